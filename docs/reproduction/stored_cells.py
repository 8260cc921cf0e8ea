"""The cells of a stored run: the numbers behind its figures, from which a run can be continued.

    python docs/reproduction/stored_cells.py pack usual results
    python docs/reproduction/stored_cells.py unpack usual results --data FOLDER --letters uci=FILE
    python docs/reproduction/stored_cells.py compare usual results

`unpack` writes the cells into the folder of results, where `delan reproduce` finds them; it
computes those anew whose code has changed since. `compare` judges the cells of the folder seed by
seed and looks for each number in the intervals of the stored claims, for runs whose cells were not
stored: the interval of three seeds is that of the least, the mean and the largest number.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delan.motions.alphabet import RECORDED
from delan.paper.cells import Cell, Results, Store, Stored
from delan.paper.code_version import code_version
from delan.paper.reproduction import EXPERIMENTS

HERE = Path(__file__).parent
CELLS = "cells.json"
# Numbers that differ by less, as a share, are the same but for the rounding of a logarithm.
ROUNDING = 1e-12


def cells_in(results: Path) -> Iterator[Stored]:
    """Yield the finished cells of a folder, whatever code computed them."""
    for path in sorted((results / "cells").glob("*/*.json")):
        fields = json.loads(path.read_text())
        named = fields["cell"]
        cell = Cell.of(named["experiment"], named["model"], seed=named["seed"], **named["setting"])
        yield Stored(cell, fields["result"], fields["code"], fields["seconds"], fields["versions"])


def pack(run: str, results: Path) -> None:
    """Store the cells of a folder beside the page, without the paths of data files."""
    lines = []
    for stored in cells_in(results):
        content = stored._asdict()
        content["cell"] = stored.cell.as_dict()
        setting = content["cell"]["setting"]
        for name, value in setting.items():
            setting[name] = _without_path(name, value)
        content["seconds"] = round(stored.seconds, 1)
        lines.append(json.dumps(content, ensure_ascii=False, separators=(",", ":")))
    (HERE / run / CELLS).write_text("[\n" + ",\n".join(sorted(lines)) + "\n]\n")


def _without_path(name: str, value: Any) -> Any:
    if name == "file":
        return Path(value).name
    if isinstance(value, str) and value.startswith(RECORDED):
        return RECORDED
    return value


def unpack(run: str, results: Path, *, data: str, letters: str) -> None:
    """Write stored cells into a folder of results; files are where the options say."""
    store = Store(results / "cells")
    for content in json.loads((HERE / run / CELLS).read_text()):
        named = content["cell"]
        setting = named["setting"]
        if setting.get("alphabet") == RECORDED:
            setting["alphabet"] = letters
        if "file" in setting:
            setting["file"] = str(Path(data) / setting["file"])
        cell = Cell.of(named["experiment"], named["model"], seed=named["seed"], **setting)
        store.put(Stored(**{**content, "cell": cell}))


def compare(run: str, results: Path) -> None:
    """Say of how many numbers of the stored claims the cells of a folder give the same bits."""
    facts = json.loads((HERE / run / "run.json").read_text())
    claims = json.loads((HERE / run / "claims.json").read_text())
    stored = {claim["claim"]: claim["intervals"] for claim in claims}
    for name, experiment in EXPERIMENTS.items():
        rows = [entry for entry in cells_in(results) if entry.cell.experiment == name]
        rows = [entry for entry in rows if entry.code == code_version(name)]
        same = []
        for seed in sorted({entry.cell.seed for entry in rows}):
            mine = Results([(row.cell, row.result) for row in rows if row.cell.seed == seed])
            for claim in experiment.judged(mine):
                for setting, interval in claim.intervals.items():
                    known = stored.get(claim.claim, {}).get(setting)
                    if known is not None:
                        same.append(_among(interval.value, known))
        if same and name in facts:
            print(f"{name}: {sum(same)} of {len(same)} numbers of single seeds are the stored ones")
            facts[name]["same"] = {
                "code": code_version(name),
                "cells": len(rows),
                "numbers": len(same),
                "equal": sum(same),
            }
    lines = [f'"{name}": {json.dumps(facts[name], ensure_ascii=False)}' for name in facts]
    (HERE / run / "run.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _among(number: float, interval: list[float]) -> bool:
    """Whether the number is one of the three of which the interval is made."""
    mean, low, high = interval
    known = [low, high, 3 * mean - low - high]
    if low > 0:
        known.append(mean**3 / (low * high))
    return any(math.isclose(number, value, rel_tol=ROUNDING) for value in known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("pack", "unpack", "compare"))
    parser.add_argument("run")
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", default="")
    parser.add_argument("--letters", default="own")
    given = parser.parse_args()
    if given.what == "unpack":
        unpack(given.run, given.results, data=given.data, letters=given.letters)
    elif given.what == "pack":
        pack(given.run, given.results)
    else:
        compare(given.run, given.results)


if __name__ == "__main__":
    main()
