"""Models of real robots from their logs with `delan fit`: a Panda, a Barrett WAM, a KUKA KR300.

    python -m benchmarks.real_logs [--data FOLDER] [panda wam wam70 kuka …]

The logs are those of `../shared/data`; without them nothing is measured. Each is split by time into
a training part and a test part. The classical identification knows the arm's kinematics, has
Coulomb and viscous friction, an offset and rotors, gets the same preparation and is scored at the
same bandwidth. Writes to `benchmarks/results`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from delan.identification.identify import IdentifySettings, identify
from delan.learning.scores import evaluate
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.reading import read_log
from delan.paper import physical_wam
from delan.robots.arms import WAM7_ANALYTIC

from .results import write_results

Rows = dict[str, np.ndarray]


def panda(data: Path) -> tuple[Rows, Rows]:
    """Return the first three quarters of the file, and the last."""
    log = np.load(data / "panda_first75.npz")
    return _cut({name: log[name] for name in ("t", "q", "qd", "tau")}, 0.75)


def wam(data: Path) -> tuple[Rows, Rows]:
    """Return four runs, and the fifth."""
    runs = _wam_runs(data)
    return _joined(runs[:4]), _joined(runs[4:])


def wam70(data: Path) -> tuple[Rows, Rows]:
    """Return the first 70 % of every run, and the rest."""
    parts = [_cut(run, 0.7) for run in _wam_runs(data)]
    return _joined([first for first, _ in parts]), _joined([rest for _, rest in parts])


def kuka(data: Path) -> tuple[Rows, Rows]:
    """Return the first 70 % of the file, and the rest.

    Positions are of the link side where these are measured, torques are those behind the gears.
    """
    log = np.load(data / "kuka_kr300_A.npz")
    q = np.concatenate([log["A_q"][:, :3], log["A_q_motor_side"][:, 3:]], axis=1)
    return _cut({"t": log["A_t"], "q": q, "tau": log["gear_u"] * log["A_tau_motor"]}, 0.7)


def _wam_runs(data: Path) -> list[Rows]:
    log = physical_wam.recorded_log(data / physical_wam.FILE)
    assert log.qd is not None
    columns = {"t": log.t, "q": log.q, "qd": log.qd, "tau": log.tau}
    labels = np.unique(log.trajectory)
    return [
        {name: part[log.trajectory == label] for name, part in columns.items()} for label in labels
    ]


def _cut(rows: Rows, share: float) -> tuple[Rows, Rows]:
    end = int(share * len(rows["t"]))
    return {name: part[:end] for name, part in rows.items()}, {
        name: part[end:] for name, part in rows.items()
    }


def _joined(runs: list[Rows]) -> Rows:
    rows = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    return rows | {"trajectory": np.repeat(np.arange(len(runs)), [len(run["t"]) for run in runs])}


LOGS = {"panda": panda, "wam": wam, "wam70": wam70, "kuka": kuka}
KINEMATICS = {"wam": WAM7_ANALYTIC, "wam70": WAM7_ANALYTIC}


def measure(name: str, data: Path) -> dict[str, Any]:
    """Run the command from the log to model and page; return its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        known, unseen = (Path(folder) / f"{name}_{part}.npz" for part in ("known", "unseen"))
        for path, rows in zip((known, unseen), LOGS[name](data), strict=True):
            columns: dict[str, Any] = rows
            np.savez(path, **columns)
        command = [
            sys.executable,
            "-m",
            "delan.cli.main",
            "fit",
            str(known),
            "--test",
            str(unseen),
            "--json",
        ]
        ran = subprocess.run(
            [*command, "-o", f"{folder}/{name}.delan"], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise SystemExit(f"{name}: {ran.stderr}")
        fit = json.loads(ran.stdout)
        cutoff = fit["preparation"]["cutoff"]
        settings = PreparationSettings(cutoff=cutoff, delay=fit["preparation"]["delay"])
        textbook = _textbook(name, known, unseen, settings) if name in KINEMATICS else None
    return {
        "chosen": fit["chosen"],
        "seconds": fit["seconds"],
        "preparation": fit["preparation"],
        "test": {model: scores["test"] for model, scores in fit["models"].items()},
        "validation": {
            model: scores["validation"]["nmse_mean"] for model, scores in fit["models"].items()
        },
        "coverage": fit["coverage"],
        "textbook": textbook,
        "verdict": fit["verdict"],
    }


def _textbook(
    name: str, known: Path, unseen: Path, settings: PreparationSettings
) -> dict[str, Any]:
    training = prepare(read_log(known), settings)
    recording = read_log(unseen)
    rate = 1 / float(np.median(np.diff(recording.t)))
    # By the same ruler as the models: torques at the bandwidth of the scores.
    test = prepare(recording, settings.scored(rate))
    model = identify(training, KINEMATICS[name].urdf(), IdentifySettings()).model
    scores = evaluate(model, test, rollouts=False).torque
    return {"nmse": list(scores.nmse), "nmse_mean": scores.nmse_mean}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", default=list(LOGS), metavar="LOG", help=", ".join(LOGS))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(
            f"there is no folder {options.data}; give the folder of the logs with --data"
        )
    for name in options.logs:
        results = measure(name, options.data)
        error = results["test"][results["chosen"]]["nmse_mean"]
        print(f"{name}: {results['chosen']} {error:.5f} on test motion", flush=True)
        for model, scores in results["test"].items():
            print(f"  {model}: {scores['nmse_mean']:.5f}")
        if results["textbook"]:
            error = results["textbook"]["nmse_mean"]
            print(f"  textbook identification, kinematics known: {error:.5f}")
        print(f"  {results['seconds']:.0f} s; {results['verdict']}", flush=True)
        write_results(f"real_log_{name}", results)


if __name__ == "__main__":
    main()
