"""Accuracy of `delan fit` on the character data published with the paper's implementation.

    python -m benchmarks.published_letters [--data PATH] [--seconds 60] [--seeds 5]

Trains on 17 letters and tests on e, q and v with `delan fit --seconds 60`: with the automatic
choice, with Adam, and with the feed-forward network (`--runs` selects; results of the others stay).
Published, after about 200 s: Σ torque MSE 2.2e-5 (parts 3.2e-5, 1.4e-5, 2.0e-5).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .results import read_results, write_results

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "published_letters.npz"
RUNS = {
    "DeLaN, automatic choice": ["--model", "delan"],
    "DeLaN, Adam": ["--model", "delan", "--optimizer", "adam"],
    "feed-forward, automatic choice": ["--model", "feedforward"],
    "feed-forward, Adam": ["--model", "feedforward", "--optimizer", "adam"],
}
QUANTITIES = ("torque", "inertial", "coriolis", "gravity")


def split(data: Path, folder: Path) -> tuple[Path, Path]:
    """Return the training log of 17 letters and the test log of 3."""
    with np.load(data) as archive:
        arrays = {name: archive[name] for name in archive.files}
    letters = arrays.pop("labels").tolist()
    test = np.isin(arrays["trajectory"], [letters.index(letter) for letter in "eqv"])
    paths = folder / "train.npz", folder / "test.npz"
    for path, rows in zip(paths, (~test, test), strict=True):
        np.savez(path, **{name: array[rows] for name, array in arrays.items()})
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), default=list(RUNS))
    chosen = parser.parse_args()
    stored = read_results("published_letters")
    how = {"seconds": chosen.seconds, "seeds": chosen.seeds}
    results: dict[str, Any] = stored["runs"] if how.items() <= stored.items() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training, test = split(chosen.data, folder)
        for run in chosen.runs:
            scores = []
            for seed in range(chosen.seeds):
                command = [
                    sys.executable,
                    "-m",
                    "delan.cli.main",
                    "fit",
                    training,
                    "--test",
                    test,
                    "--json",
                ]
                command += [
                    "-o",
                    folder / "model.delan",
                    "--seconds",
                    chosen.seconds,
                    "--seed",
                    seed,
                    *RUNS[run],
                ]
                ran = subprocess.run(
                    list(map(str, command)), capture_output=True, text=True, check=True
                )
                scores.append(json.loads(ran.stdout))
            sums = {
                quantity: [score[quantity]["mse_sum"] for score in scores]
                for quantity in QUANTITIES
                if quantity in scores[0]
            }
            medians = {quantity: float(np.median(values)) for quantity, values in sums.items()}
            seconds = max(score["seconds"] for score in scores)
            results[run] = {
                "median": medians,
                "seeds": sums,
                "method": scores[0]["optimizer"],
                "longest_seconds": seconds,
            }
            errors = ", ".join(f"{quantity} {value:.1e}" for quantity, value in medians.items())
            torques = ", ".join(f"{value:.1e}" for value in sorted(sums["torque"]))
            print(f"{run} ({results[run]['method']}, ≤ {seconds:.0f} s): Σ MSE, median: {errors}")
            print(f"  torques: {torques}", flush=True)
            write_results("published_letters", {**how, "runs": results})


if __name__ == "__main__":
    main()
