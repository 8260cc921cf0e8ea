"""The claims of a run as Markdown tables, for `docs/reproduction.md`: python
docs/reproduction/table.py usual
"""

import json
import sys
from pathlib import Path

from delan.report.reproduction_page import MARKS

HEAD = ("claim", "asked", "measured here", "seeds", "")


def table(claims: list[dict]) -> str:
    """Return one row for each claim, and below the table the remarks where one fails."""
    lines = [HEAD, ("---",) * len(HEAD)]
    remarks = []
    for claim in claims:
        mark = MARKS[claim["holds"]]
        verdict = f"{mark['sign']} {mark['word']}"
        seeds = str(claim["seeds"])
        lines.append((claim["claim"], claim["asked"], claim["measured"], seeds, verdict))
        if claim.get("remark"):
            remarks.append(f"- *{claim['claim']}* {mark['word']}. {claim['remark']}.")
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([rows, "", *remarks])


def main(run: str) -> None:
    """Print the claims of the paper and those of this package."""
    claims = json.loads((Path(__file__).parent / run / "claims.json").read_text())
    lists = {
        "Claims of the paper": [claim for claim in claims if not claim.get("ours")],
        "Claims of this package": [claim for claim in claims if claim.get("ours")],
    }
    for title, rows in lists.items():
        if rows:
            print(f"### {title}\n\n{table(rows)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
