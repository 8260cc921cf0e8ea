"""The claims of a run as a Markdown table, for `docs/reproduction.md`: python
docs/reproduction/table.py usual
"""

import json
import sys
from pathlib import Path

from delan.report.reproduction_page import MARKS


def table(run: str) -> str:
    """One row for each claim of the run's `claims.json`."""
    claims = json.loads((Path(__file__).parent / run / "claims.json").read_text())
    verdict = {name: f"{mark['sign']} {mark['word']}" for name, mark in MARKS.items()}
    rows = [
        (one["claim"], one["asked"], one["measured"], str(one["seeds"]), verdict[one["holds"]])
        for one in claims
    ]
    lines = [("claim", "asked", "measured here", "seeds", ""), ("---",) * 5, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table(sys.argv[1]))
