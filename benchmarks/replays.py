"""Whether learned models move like their robots: logs replayed with `delan simulate`.

    python -m benchmarks.replays [--data FOLDER] [--models FOLDER] [CASE …]

Each case of `choice_cases.py` is fitted by the command and replayed on its unseen motion: open loop
from recorded states, and closed loop where the log's controller is known. The WAM is replayed by
the arm of classical identification as well, which knows the kinematics and has Coulomb and viscous
friction. `acceleration_nmse` is that of the accelerations that follow from the torques, per joint,
and `exact` the same without the inertia that forward dynamics add (`added_inertia`).

`without_residual` tells why a simulation strays: errors over 0.5 s of a model that is driven by the
recorded torques less a part of what it does not explain of them on that very motion, which nobody
knows beforehand. The part below 0.5 Hz drifts, as friction does that depends on warmth and place;
all of it leaves the errors of the integration alone.

With `--models` the fitted models are kept in that folder, and those of a run before are replayed.
Writes to `benchmarks/results/replays.json`, case by case.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

from delan.cli.log_options import read_for_model
from delan.identification.identify import IdentifySettings, identify
from delan.learning.scores import evaluate
from delan.logs.filters import smoothed
from delan.logs.options import LogOptions
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.reading import read_log
from delan.logs.segments import usual_step
from delan.models.dynamics import in_precision
from delan.models.friction_memory import memory_of
from delan.models.geometry import model_of
from delan.models.model import without_trust
from delan.robots.arms import WAM7_ANALYTIC
from delan.robots.robot import Gains
from delan.simulation.replay import (
    Part,
    ReplaySettings,
    recorded_motion,
    replay,
    replay_parts,
)
from delan.solvers.linearised import drive_torques
from delan.solvers.loss import Samples
from delan.storage import read_model

from .choice_cases import CASES
from .choices import Failure, run_fit, write_rows
from .results import read_results, write_results

NAME = "replays"
# The part of the residual that drifts [Hz].
SLOW = 0.5


@dataclass(frozen=True)
class ReplayedCase:
    """A case, and the gains of the controller that drove the robot, where they are known."""

    kp: tuple[float, ...] | None = None
    kd: tuple[float, ...] | None = None

    @property
    def options(self) -> list[str]:
        """The gains as options of the command."""
        if self.kp is None or self.kd is None:
            return []
        return ["--kp", ",".join(map(str, self.kp)), "--kd", ",".join(map(str, self.kd))]


REPLAYED = {
    "wam_4runs": ReplayedCase(
        kp=(200, 300, 100, 100, 10, 10, 2.5), kd=(7, 15, 5, 2.5, 0.3, 0.3, 0.05)
    ),
    "panda_first75": ReplayedCase(),
    "ur3_1to2": ReplayedCase(),
    "pendulum_012to45": ReplayedCase(),
    "z1_first75": ReplayedCase(kp=(80, 120, 120, 80, 80, 80), kd=(2.5,) * 6),
    "go2_leg0": ReplayedCase(kp=(20, 20, 40), kd=(1, 1, 2)),
}


def measure(name: str, data: Path, folder: Path) -> dict[str, Any]:
    """Fit a case and replay its unseen motion; return errors by horizon and of the closed loop."""
    known, unseen = CASES[name].build(data)
    log = write_rows(folder / f"{name}.npz", known)
    test = write_rows(folder / f"{name}_test.npz", unseen)
    model = log.with_suffix(".delan")
    if not model.exists():
        fit = run_fit(log, ["--model", "chain", *getattr(CASES[name], "options", ())])
        if isinstance(fit, Failure):
            raise SystemExit(f"{name}: {fit.failed}")
    command = [sys.executable, "-m", "delan.cli.main", "simulate"]
    command += [str(model), "--log", str(test), "--json"]
    ran = subprocess.run(
        [*command, *REPLAYED[name].options], capture_output=True, text=True, check=True
    )
    replayed = json.loads(ran.stdout)
    result = {key: replayed[key] for key in ("open_loop", "closed_loop")}
    result |= _accelerations(model, test)
    result["without_residual"] = _without_residual(model, test)
    if name == "wam_4runs":
        result["identified"] = _identified(log, test, REPLAYED[name])
    return result


def _accelerations(path: Path, test: Path) -> dict[str, Any]:
    """Errors of accelerations on unseen motion, prepared as the model's own log was."""
    with jax.enable_x64(True):
        stored = read_model(path)
        _, dataset = read_for_model(path, stored, [test], LogOptions())
        model = stored.model
        errors: dict[str, Any] = {"added_inertia": model.added_inertia}
        for name, each in (
            ("acceleration_nmse", model),
            ("exact", model.with_added_inertia(None)),
        ):
            accelerations = evaluate(each, dataset, rollouts=False).acceleration
            assert accelerations is not None
            errors[name] = list(accelerations.nmse)
    return errors


def _without_residual(path: Path, test: Path) -> dict[str, list[float] | None]:
    """Errors after 0.5 s with parts of the residual taken off the torques that drive the model."""
    settings = ReplaySettings(horizons=(0.5,))
    motion = recorded_motion(read_log(test), settings)
    rate = 1 / usual_step(motion.t)
    found: dict[str, list[float] | None] = {}
    with jax.enable_x64(True):
        model = in_precision(without_trust(read_model(path).model.with_added_inertia(None)))
        whole = replace(motion, counted=None)
        samples = Samples.of(whole, memory_of(model, whole))
        residual = whole.tau - drive_torques(model, samples)
        slow = residual.copy()
        for label in motion.trajectories:
            rows = motion.trajectory == label
            slow[rows] = smoothed(residual[rows], rate, SLOW)
        usable = motion.counted
        if usable is None:
            usable = np.ones(len(motion), dtype=bool)
        for name, part in ((f"below {SLOW} Hz", slow), ("all", residual)):
            driven = replace(motion, tau=motion.tau - part)
            replayed = replay_parts([Part(model, usable)], driven, settings)
            found[name] = None if replayed is None else list(replayed.open_loop[0.5].over_hold)
    return found


def _identified(log: Path, test: Path, case: ReplayedCase) -> dict[str, Any]:
    """The arm of classical identification with known kinematics, replayed likewise."""
    settings = PreparationSettings(cutoff=5.0)
    body = identify(
        prepare(read_log(log), settings),
        WAM7_ANALYTIC.urdf(),
        IdentifySettings(friction=("coulomb", "viscous", "offset")),
    ).model
    gains = Gains(np.array(case.kp), np.array(case.kd))
    model = model_of(body)
    replayed = replay(model, read_log(test), gains=gains).as_dict()
    accelerations = evaluate(model, prepare(read_log(test), settings), rollouts=False).acceleration
    assert accelerations is not None
    return replayed | {"acceleration_nmse": list(accelerations.nmse)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(REPLAYED))
    parser.add_argument("--models", type=Path, help="folder where fitted models are kept")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(
            f"there is no folder {options.data}; give the folder of the logs with --data"
        )
    results = read_results(NAME)
    cases = results.get("cases", {})
    for name in options.cases or REPLAYED:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.models or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            cases[name] = measure(name, options.data, folder)
        _show(name, cases[name])
        write_results(NAME, {"cases": cases})


def _show(name: str, result: dict[str, Any]) -> None:
    ratios = []
    for horizon, error in result["open_loop"].items():
        known = [ratio for ratio in error["over_hold"] if ratio is not None]
        ratios.append(f"{horizon} s {median(known):.2f}" if known else f"{horizon} s –")
    line = f"{name}: median joint over a robot that holds its speed: {', '.join(ratios)}"
    if result["closed_loop"] is not None:
        line += f"; closed loop, worst joint {1000 * max(result['closed_loop']['rmse']):.1f} mrad"
    if "identified" in result:
        worst = 1000 * max(result["identified"]["closed_loop"]["rmse"])
        line += f" (identified arm {worst:.1f} mrad)"
    print(line, flush=True)


if __name__ == "__main__":
    main()
