"""Store a run of `delan reproduce` beside `docs/reproduction.md`, and write its part of the page.

    python docs/reproduction/table.py usual results   # experiments in the folder `results`
    python docs/reproduction/table.py                 # the page again, from what is stored

Experiments that are not in the folder, or of which cells failed, stay as they were stored. Of an
experiment that is not complete the page says how many cells there are. What code computed an
experiment, and whether it is the present one, comes from its cells.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from delan.paper.code_version import code_version
from delan.report.reproduction_page import MARKS, time_in_words

HERE = Path(__file__).parent
PAGE = HERE.parent / "reproduction.md"
RUNS = ("usual", "quick")
CLAIMS = ("claim", "asked", "measured here", "seeds", "")
COMPUTED = ("experiment", "letters", "cells", "seeds", "time of its cells", "code")


def store(run: str, results: Path) -> None:
    """Copy claims, provenance and figures of the experiments without failed cells."""
    folder = HERE / run
    folder.mkdir(exist_ok=True)
    computed = json.loads((results / "run.json").read_text())
    for name, facts in list(computed.items()):
        if facts["failed"]:
            print(f"left out: {name}, {facts['failed']} cells failed")
            del computed[name]
    known = read(folder / "run.json", {})
    claims = [claim for claim in read(folder / "claims.json", []) if claim["experiment"] in known]
    claims = [claim for claim in claims if claim["experiment"] not in computed]
    for claim in read(results / "claims.json", []):
        if claim["experiment"] in computed:
            claims.append(claim)
    experiments = {**known, **computed}
    write(folder / "run.json", [f'"{name}": {compact(experiments[name])}' for name in experiments])
    write(folder / "claims.json", [compact(claim) for claim in claims], brackets="[]")
    for facts in computed.values():
        for figure in facts["figures"]:
            shutil.copy(results / "figures" / f"{figure}.png", folder)
    shown = {figure for facts in experiments.values() for figure in facts["figures"]}
    for path in folder.glob("*.png"):
        if path.stem not in shown:
            path.unlink()


def read(path: Path, otherwise: Any) -> Any:
    """Return the content of a JSON file, or something else if it is missing."""
    return json.loads(path.read_text()) if path.exists() else otherwise


def compact(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False)


def write(path: Path, entries: list[str], *, brackets: str = "{}") -> None:
    """Write JSON with one entry on a line."""
    first, last = brackets
    path.write_text(f"{first}\n" + ",\n".join(entries) + f"\n{last}\n")


def section(run: str) -> str:
    """Return the part of the page about a run."""
    experiments = read(HERE / run / "run.json", {})
    claims = read(HERE / run / "claims.json", [])
    rows = []
    for name, facts in experiments.items():
        letters = facts["letters"] if "letters" in name or name == "torque-components" else ""
        codes = ", ".join(f"`{code}`" for code in facts["codes"]) + anew(facts)
        cost = time_in_words(facts["core_seconds"])
        cells = facts["cells"]
        if facts["missing"]:
            cells = f"{cells} of {cells + facts['missing']}"
        rows.append((name, letters, cells, facts["seeds"], cost, codes))
    parts = [table(COMPUTED, rows)]
    lists = {
        "Claims of the paper": [claim for claim in claims if not claim["ours"]],
        "Claims of this package": [claim for claim in claims if claim["ours"]],
    }
    for title, listed in lists.items():
        if listed:
            parts += [f"### {title}, {run} run", counted(listed), judged(listed), remarks(listed)]
    for facts in experiments.values():
        for figure, caption in facts["figures"].items():
            parts.append(f"![{figure}, {run} run](reproduction/{run}/{figure}.png)\n\n{caption}")
    return "\n\n".join(part for part in parts if part)


def anew(facts: dict[str, Any]) -> str:
    """Return what `stored_cells.py compare` found: whether later code gives the same numbers."""
    same = facts.get("same")
    if same is None:
        return ""
    return (
        f"; with `{same['code']}`, {same['cells']} cells again: {same['equal']} of "
        f"{same['numbers']} numbers are the same"
    )


def counted(claims: list[dict[str, Any]]) -> str:
    """Return how many claims there are of each verdict."""
    numbers = []
    for verdict, mark in MARKS.items():
        number = sum(claim["holds"] == verdict for claim in claims)
        numbers.append(f"{mark['sign']} {mark['word']}: {number}")
    several = sum(claim["holds"] == "yes" and claim["seeds"] > 1 for claim in claims)
    words = f"{len(claims)} claims. {', '.join(numbers)}."
    return f"{words} Of those that hold, {several} do so with the interval of several seeds."


def judged(claims: list[dict[str, Any]]) -> str:
    """Return one row for each claim."""
    rows = []
    for claim in claims:
        mark = MARKS[claim["holds"]]
        verdict = f"{mark['sign']} {mark['word']}"
        rows.append((claim["claim"], claim["asked"], claim["measured"], claim["seeds"], verdict))
    return table(CLAIMS, rows)


def remarks(claims: list[dict[str, Any]]) -> str:
    """Return what is known of the causes where a claim fails."""
    lines = []
    for claim in claims:
        if claim["remark"]:
            lines.append(f"- *{claim['claim']}* {claim['remark']}.")
    return "\n".join(lines)


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def page() -> str:
    """Return the whole page with the parts of all runs as they are stored."""
    text = PAGE.read_text()
    for run in RUNS:
        part = f"<!-- {run} run, by table.py -->\n\n{section(run)}\n\n<!-- end -->"
        pattern = f"<!-- {run} run, by table.py -->.*?<!-- end -->"
        text = re.sub(pattern, lambda found, part=part: part, text, flags=re.DOTALL)
    return text


def main(run: str | None = None, results: str | None = None) -> None:
    """Store a run if one is given; then write the page, and say which code is the present one."""
    if run is not None and results is not None:
        store(run, Path(results))
    PAGE.write_text(page())
    for name in RUNS:
        for experiment, facts in read(HERE / name / "run.json", {}).items():
            present = code_version(experiment)
            word = "other code"
            if facts["codes"] == [present]:
                word = "the present code"
            elif facts.get("same", {}).get("code") == present:
                word = "other code, with the numbers of the present code where it was run again"
            print(f"{name}, {experiment}: {word}")


if __name__ == "__main__":
    main(*sys.argv[1:])
