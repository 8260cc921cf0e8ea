"""Attacks on models, logs, folders and runs: `tests.hostile` with many cases, and what broke.

    python -m benchmarks.hostile models --count 10000 --seed 1 [--first 10000]

A slice that begins where the stored one of the same seed ended is added to it; another one takes
its place. `benchmarks/results/hostile.json` has a row for each attack.
"""

import argparse
import resource
from typing import Any

from tests.hostile import crew
from tests.hostile.__main__ import ATTACKS
from tests.hostile.trial import Outcome

from .results import read_results, write_results

# Faults that are stored by their text; all of them are counted.
SHOWN = 20
COUNTED = ("traceback", "hang", "partial file", "message", "dead or stuck process", "signal")


def row_of(outcome: Outcome, seed: int, seconds: float) -> dict[str, Any]:
    """Return the numbers of an attack that are stored."""
    return {
        "seed": seed,
        "cases": outcome.cases,
        "faults": {kind: outcome.kinds[kind] for kind in COUNTED},
        "first_faults": outcome.faults[:SHOWN],
        "longest_step_seconds": round(outcome.longest, 1),
        "most_memory_mb": round(outcome.memory),
        "processor_seconds": round(seconds),
        "answers": dict(sorted(outcome.answers.items())),
    }


def joined(stored: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of two slices of one attack."""
    both = dict(stored)
    for name in ("cases", "processor_seconds"):
        both[name] += row[name]
    for name in ("faults", "answers"):
        kinds = sorted(stored[name].keys() | row[name].keys())
        both[name] = {kind: stored[name].get(kind, 0) + row[name].get(kind, 0) for kind in kinds}
    for name in ("longest_step_seconds", "most_memory_mb"):
        both[name] = max(stored[name], row[name])
    both["first_faults"] = (stored["first_faults"] + row["first_faults"])[:SHOWN]
    return both


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile")
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--workers", type=int, default=1, help="processes at once")
    chosen = parser.parse_args()
    cases = range(chosen.first, chosen.first + chosen.count)
    outcome = crew.attack(chosen.attack, cases, chosen.seed, chosen.workers)
    print(outcome)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    row = row_of(outcome, chosen.seed, used.ru_utime + used.ru_stime)
    # Read as late as this, because another attack may have been stored meanwhile.
    rows = read_results("hostile")
    stored = rows.get(chosen.attack)
    if stored and (stored["seed"], stored["cases"]) == (chosen.seed, chosen.first):
        row = joined(stored, row)
    rows.pop("versions", None)
    rows.pop("machine", None)
    write_results("hostile", {**rows, chosen.attack: row})


if __name__ == "__main__":
    main()
