"""Instructions of one call of the exported C code, counted by callgrind, independent of load.

    python -m benchmarks.instructions [--check]

Needs valgrind. The code is compiled for processors that valgrind knows (x86-64-v3, with AVX2)
instead of this one, so that counts of different machines compare; they belong to one version of the
compiler. `--check` compares with the counts in `benchmarks/results/instructions.json`, writes
nothing, and exits with 1 if a count has grown by more than 2 %.
"""

import argparse
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .exported import PROGRAM_FLAGS, Program, build_programs, compiler_version, models
from .results import read_results, write_results

CALLS = 100
GROWTH = 0.02
REMEDY = "callgrind counts: left out, valgrind is missing; apt-get install valgrind"


def portable_flags() -> tuple[str, ...]:
    """Return the flags of the package, without those for this processor only."""
    target = ("-march=x86-64-v3",) if platform.machine() in ("x86_64", "AMD64") else ()
    return (*(flag for flag in PROGRAM_FLAGS if not flag.startswith("-march")), *target)


def count(program: Program) -> int:
    """Return the instructions of one call, including those of the functions that it calls."""
    counted = f"--toggle-collect=arm_{program.direction}_dynamics"
    watch = ("valgrind", "--tool=callgrind", counted, "--callgrind-out-file=/dev/null")
    output = program.run(1, CALLS, 0, before=watch).stderr
    collected = re.search(r"Collected *: *(\d+)", output)
    if collected is None or not int(collected[1]):
        raise SystemExit(
            f"callgrind counted nothing in arm_{program.direction}_dynamics; "
            f"its output: {output[-500:]}"
        )
    return round(int(collected[1]) / CALLS)


def measure() -> dict[str, Any] | None:
    """Return the counts of all models, precisions and directions; None without valgrind."""
    if shutil.which("valgrind") is None:
        print(REMEDY)
        return None
    with tempfile.TemporaryDirectory() as folder:
        programs = build_programs(models(), Path(folder), portable_flags())
        counts = {
            f"{program.model}, {program.direction}, C {program.precision}": count(program)
            for program in programs
        }
    results = {
        "per_call": counts,
        "compiler": compiler_version(),
        "flags": " ".join(portable_flags()),
    }
    print_counts(counts, stored_counts())
    return results


def stored_counts() -> Mapping[str, int]:
    """Return the stored counts, if they are of this compiler and these flags."""
    before = read_results("instructions")
    same = before.get("compiler") == compiler_version() and before.get("flags") == " ".join(
        portable_flags()
    )
    return before["per_call"] if same else {}


def print_counts(counts: Mapping[str, int], before: Mapping[str, int]) -> None:
    for name, instructions in counts.items():
        change = (
            ""
            if name not in before
            else f"{instructions / before[name] - 1:+9.1%} since the stored counts"
        )
        print(f"  {name:38s} {instructions:12,d} {change}")


def grown(counts: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    """Return the functions whose counts have grown by more than `GROWTH`."""
    return [
        name for name, value in counts.items() if value > (1 + GROWTH) * before.get(name, value)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with the stored counts and write nothing"
    )
    chosen = parser.parse_args()
    results = measure()
    if results is None:
        return
    if not chosen.check:
        write_results("instructions", results)
    elif not stored_counts():
        raise SystemExit(
            f"no counts are stored for {compiler_version()}; run without --check first"
        )
    elif more := grown(results["per_call"], stored_counts()):
        raise SystemExit(f"more instructions than before: {', '.join(more)}")


if __name__ == "__main__":
    main()
