"""Time the same commands with this installation and with another one, taking turns.

    python -m benchmarks.side_by_side OTHER_PYTHON [--repeats 3] [--only demo panda …]

OTHER_PYTHON is the interpreter of an environment that has another version of the package. Each run
is its own process with a compilation cache of its own that starts empty, so that compile time
counts. The two installations take turns, and which goes first changes with every repeat, so that a
machine that slows down slows both. Reported are the least wall times and the median of their
ratios. The Panda's log is left out where `../shared/data` is not there. Writes to
`benchmarks/results`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .goldens import ENTRY, PANDA, two_link
from .results import write_results

COMMANDS = {
    "help": "--help",
    "demo": "demo -o OUT",
    "chain": "fit SMALL -o OUT/model.delan --model chain --friction none --cutoff 20",
    "panda": "fit PANDA -o OUT/model.delan",
}


def seconds(python: str, words: list[str], cache: Path) -> float:
    """Run one command to its end and return its wall time [s]."""
    places = {"XDG_CACHE_HOME": str(cache), "JAX_COMPILATION_CACHE_DIR": str(cache / "xla")}
    began = time.perf_counter()
    done = subprocess.run(
        [python, "-c", ENTRY, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **places},
    )
    if done.returncode:
        raise SystemExit(f"delan {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - began


def measure(name: str, other: str, repeats: int, logs: dict[str, Path]) -> dict[str, float]:
    """Return the least times of both installations and the median ratio of this to the other."""
    times: dict[str, list[float]] = {sys.executable: [], other: []}
    for repeat in range(repeats):
        order = [sys.executable, other]
        if repeat % 2:
            order.reverse()
        for python in order:
            with tempfile.TemporaryDirectory() as folder:
                places = {"OUT": folder, **{key: str(path) for key, path in logs.items()}}
                words = []
                for word in COMMANDS[name].split():
                    for key, place in places.items():
                        word = word.replace(key, place)
                    words.append(word)
                times[python].append(seconds(python, words, Path(folder) / "cache"))
    ratios = np.array(times[sys.executable]) / np.array(times[other])
    return {
        "seconds": min(times[sys.executable]),
        "other_seconds": min(times[other]),
        "ratio": float(np.median(ratios)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", help="interpreter of the other installation")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=tuple(COMMANDS), default=tuple(COMMANDS))
    given = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.npz"
        np.savez(small, allow_pickle=False, **two_link(24.0, friction=False, accelerations=False))
        logs = {"SMALL": small, "PANDA": PANDA}
        for name in given.only:
            if name == "panda" and not PANDA.exists():
                print(f"{name}: left out, {PANDA.name} is not there")
                continue
            rows[name] = row = measure(name, given.other, given.repeats, logs)
            print(
                f"{name}: {row['seconds']:.1f} s, the other {row['other_seconds']:.1f} s, "
                f"ratio {row['ratio']:.2f}",
                flush=True,
            )
    write_results("side_by_side", rows)


if __name__ == "__main__":
    main()
