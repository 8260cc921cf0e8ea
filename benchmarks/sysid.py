"""The real WAM learned from its log, beside `mujoco.sysid` that is given a correct MJCF.

    python -m benchmarks.sysid [--data FOLDER]

Both learn from runs 1 to 4 and are replayed on run 5, one after the other, on the cores that they
are given. `delan fit` knows the log alone. `mujoco.sysid` knows the kinematics of the WAM and its
published masses; it fits mass and centre of every link, and armature, damping and friction loss of
every joint, to the positions of windows of half a second, which is what the replay measures. Its
search ends by itself or after `ITERATIONS`. Errors are those of `delan simulate`. It needs
`pip install 'mujoco[sysid]'`. Writes to `benchmarks/results/sysid.json`.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import mujoco as _mujoco
import numpy as np
from mujoco import sysid as _sysid

from delan.joints import Dataset, evenly_spaced
from delan.logs.reading import read_log
from delan.robots.arms import WAM7_ANALYTIC
from delan.robots.robot import Gains
from delan.simulation.replay import LogReplay, ReplaySettings, recorded_motion, replay
from delan.storage import load

from .choice_cases import CASES
from .choices import Failure, run_fit, write_rows
from .replays import REPLAYED
from .results import write_results

mujoco: Any = _mujoco
sysid: Any = _sysid

CASE = "wam_4runs"
SETTINGS = ReplaySettings(horizons=(0.1, 0.5))
# Windows that the rival learns from, and the iterations after which it is stopped.
WINDOWS = 40
SECONDS = 0.5
ITERATIONS = 30
# Bounds of armature [kg m²], damping [N m s/rad] and friction loss [N m] with where each starts.
DRIVES = {"armature": (0.01, 1e-5, 2.0), "damping": (0.1, 0.0, 10.0), "frictionloss": (0.1, 0, 10)}


def rival_spec(step: float) -> Any:
    """Return the WAM as MuJoCo's specification, with sensors of its positions."""
    spec = mujoco.MjSpec.from_string(WAM7_ANALYTIC.mjcf())
    spec.option.timestep = step
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    disabled = mujoco.mjtDisableBit
    spec.option.disableflags = int(disabled.mjDSBL_LIMIT) | int(disabled.mjDSBL_CONTACT)
    for actuator in spec.actuators:
        actuator.ctrllimited = False
        actuator.forcelimited = False
    for name in WAM7_ANALYTIC.joints.names:
        spec.add_sensor(
            name=f"{name}_position",
            type=mujoco.mjtSensor.mjSENS_JOINTPOS,
            objtype=mujoco.mjtObj.mjOBJ_JOINT,
            objname=name,
        )
    return spec


def parameters(spec: Any) -> Any:
    """Return what the rival may change."""
    model = spec.compile()
    known = sysid.ParameterDict()
    for joint in spec.joints:
        body = model.body(model.joint(joint.name).bodyid[0]).name
        known.add(sysid.body_inertia_param(spec, model, body, scale_rot_inertia=True))
        for field, (start, least, most) in DRIVES.items():

            def write(spec: Any, found: Any, name: str = joint.name, field: str = field) -> None:
                setattr(spec.joint(name), field, _as_field(spec, name, field, found.value[0]))

            known.add(sysid.Parameter(f"{joint.name} {field}", start, least, most, modifier=write))
    return known


def _as_field(spec: Any, name: str, field: str, value: float) -> Any:
    """Return a number as the specification stores it: some fields are arrays of coefficients."""
    stored = getattr(spec.joint(name), field)
    if np.ndim(stored) == 0:
        return float(value)
    whole = np.zeros_like(stored)
    whole[0] = value
    return whole


def rival(motion: Dataset) -> tuple[Any, float]:
    """Return the model that `mujoco.sysid` finds, and the seconds that it takes."""
    began = time.perf_counter()
    step = float(np.median(np.diff(motion.t)))
    spec = rival_spec(step)
    model = spec.compile()
    length = round(SECONDS / step)
    ends = np.flatnonzero(np.diff(motion.trajectory, append=-1) != 0)
    usable = []
    for row in np.flatnonzero(motion.counted if motion.counted is not None else motion.t >= 0):
        end = ends[np.searchsorted(ends, row)]
        if end - row > length:
            usable.append(int(row))
    chosen = np.array(usable)[evenly_spaced(len(usable), WINDOWS)]
    starts, controls, sensors = [], [], []
    t = step * np.arange(length)
    for row in chosen:
        rows = slice(row, row + length)
        state = sysid.create_initial_state(model, motion.q[row], motion.qd[row], np.zeros(0))
        starts.append(state)
        controls.append(sysid.TimeSeries(t, motion.tau[rows]))
        later = slice(row + 1, row + length)
        sensors.append(sysid.TimeSeries.from_names(t[1:], motion.q[later], model))
    names = [f"window {number}" for number in range(len(starts))]
    sequences = sysid.ModelSequences("wam", spec, names, starts, controls, sensors)
    residual = sysid.build_residual_fn(models_sequences=[sequences])
    initial = parameters(spec)
    found, _ = sysid.optimize(
        initial, residual, optimizer="mujoco", verbose=False, max_iters=ITERATIONS
    )
    for each in found.values():
        each.apply_modifier(spec)
    return spec.compile(), time.perf_counter() - began


def rival_paths(model: Any, motion: Dataset, replayed: LogReplay) -> np.ndarray:
    """Return the positions of the windows of a replay, as MuJoCo simulates them."""
    steps = replayed.recorded.shape[1]
    paths = np.full_like(replayed.recorded, np.nan)
    data = mujoco.MjData(model)
    for path, start in zip(paths, replayed.starts, strict=True):
        row = int(np.argmin(np.abs(motion.t - start)))
        mujoco.mj_resetData(model, data)
        data.qpos[:] = motion.q[row]
        data.qvel[:] = motion.qd[row]
        for number in range(min(steps, len(motion) - row - 1)):
            data.ctrl[:] = (motion.tau[row + number] + motion.tau[row + number + 1]) / 2
            mujoco.mj_step(model, data)
            path[number] = data.qpos
    return paths


def closed_loop(model: Any, motion: Dataset) -> list[float]:
    """Return the error of positions under the controller of the log, per joint."""
    case = REPLAYED[CASE]
    stiffness, damping = np.array(case.kp), np.array(case.kd)
    data = mujoco.MjData(model)
    data.qpos[:] = motion.q[0]
    data.qvel[:] = motion.qd[0]
    squares = []
    for row in range(len(motion) - 1):
        away = stiffness * (motion.q[row] - data.qpos) + damping * (motion.qd[row] - data.qvel)
        data.ctrl[:] = motion.tau[row] + away
        mujoco.mj_step(model, data)
        squares.append((data.qpos - motion.q[row + 1]) ** 2)
    return np.sqrt(np.mean(squares, axis=0)).tolist()


def measure(data: Path, folder: Path) -> dict[str, Any]:
    """Return errors and seconds of both."""
    known, unseen = CASES[CASE].build(data)
    log = write_rows(folder / "wam.npz", known)
    test = write_rows(folder / "test.npz", unseen)
    began = time.perf_counter()
    fitted = run_fit(log, ["--model", "chain"])
    seconds = time.perf_counter() - began
    if isinstance(fitted, Failure):
        raise SystemExit(fitted.failed)
    case = REPLAYED[CASE]
    gains = Gains(np.array(case.kp), np.array(case.kd))
    replayed = replay(load(log.with_suffix(".delan")), read_log(test), SETTINGS, gains=gains)
    assert replayed.closed_loop is not None
    model, rival_seconds = rival(recorded_motion(read_log(log), SETTINGS))
    motion = recorded_motion(read_log(test), SETTINGS)
    paths = rival_paths(model, motion, replayed)
    ours: dict[str, Any] = {"seconds": seconds}
    theirs: dict[str, Any] = {"seconds": rival_seconds}
    for horizon, error in replayed.open_loop.items():
        at = round(horizon / replayed.step) - 1
        rmse = np.sqrt(np.nanmean((paths[:, at] - replayed.recorded[:, at]) ** 2, axis=0))
        hold = np.array(error.rmse) / np.array(error.over_hold)
        ours[f"{horizon:g}"] = list(error.over_hold)
        theirs[f"{horizon:g}"] = (rmse / hold).tolist()
    ours["closed_loop"] = list(replayed.closed_loop.rmse)
    theirs["closed_loop"] = closed_loop(model, motion)
    return {"delan": ours, "mujoco.sysid": theirs, "mujoco": mujoco.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    if not hasattr(sysid, "ParameterDict"):
        raise SystemExit("mujoco.sysid lacks its packages; pip install 'mujoco[sysid]'")
    with tempfile.TemporaryDirectory() as temporary:
        results = measure(options.data, Path(temporary))
    for name in ("delan", "mujoco.sysid"):
        row = results[name]
        print(
            f"{name}: {row['seconds']:.0f} s; over a robot that holds its speed, median joint: "
            f"0.1 s {median(row['0.1']):.2f}, 0.5 s {median(row['0.5']):.2f}; closed loop, worst "
            f"joint {1000 * max(row['closed_loop']):.1f} mrad"
        )
    write_results("sysid", results)


if __name__ == "__main__":
    main()
