"""Mechanisms beyond serial arms with a motor at every joint.

    python -m benchmarks.loops [cart_pole acrobot furuta] [five_bar delta] [go2] [--data FOLDER]

`cart_pole`, `acrobot`, `furuta`: a joint without a motor, 1,200 samples from MuJoCo; errors on
other motion, and swing-ups in MuJoCo by the learned model from five starts. `five_bar`, `delta`:
closed loops of which the motors alone are logged; errors of the chosen model on other motion and at
twice the speed. `go2`: the twelve joints of a real quadruped that hangs, as a tree of four legs,
against a feed-forward network and against what repeated motion itself leaves. All but `go2` by
default.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import delan
from delan.joints import Dataset, Recording
from delan.learning.limbs import find_limbs
from delan.learning.scores import evaluate
from delan.robots.mujoco_robot import mujoco
from tests.support.mechanisms import (
    UNDERACTUATED,
    ClosedLoop,
    delta,
    driven,
    five_bar,
    logged,
)

from .choice_cases import GO2_RUNS
from .choice_cases import driven as driven_by_pd
from .results import read_results, write_results
from .swing_up import Task, swing_up

FREE_SAMPLES = 1200
SEEDS = range(5)
SECONDS = 40.0
# The motor's joint, torque limit, upright position and gains of the pumping.
TASKS = {
    "cart_pole": Task(0, 20.0, (0.0, np.pi), share=3.5, stiffness=35.0, damping=0.3),
    "furuta": Task(0, 1.5, (0.0, np.pi), share=0.0125, stiffness=4.4, damping=0.013),
    "acrobot": Task(1, 15.0, (np.pi, 0.0), share=0.8, stiffness=5.0, damping=1.0),
}
LOOPS: dict[str, tuple[Callable[[], ClosedLoop], int]] = {
    "five_bar": (five_bar, 2000),
    "delta": (delta, 5000),
}
# Rows by which the starts of two chirps may differ.
SHIFT = 20
LEGS = (-1, 0, 1, -1, 3, 4, -1, 6, 7, -1, 9, 10)


def unactuated(name: str) -> dict[str, Any]:
    """Fit all models to a mechanism with a free joint, and swing it up by the one chosen."""
    mechanism = UNDERACTUATED[name]
    began = time.perf_counter()
    result = delan.fit(driven(mechanism, FREE_SAMPLES, seed=0))
    seconds = time.perf_counter() - began
    scores = evaluate(result.model, driven(mechanism, FREE_SAMPLES, seed=1), rollouts=False)
    assert scores.acceleration is not None
    robot = delan_robot(mechanism)
    starts = 0.2 * np.random.default_rng(0).standard_normal((len(SEEDS), 2))
    upright = []
    for start in starts:
        upright.append(swing_up(result.model, TASKS[name], robot, start, SECONDS))
    return {
        "chosen": result.chosen.name,
        "decision": result.verdict.decision,
        "nmse": scores.torque.nmse_mean,
        "nmse_free_joint": scores.torque.free_nmse,
        "nmse_acceleration": max(scores.acceleration.nmse),
        "upright_after": upright,
        "swung_up": sum(reached is not None for reached in upright),
        "seconds": seconds,
    }


def delan_robot(mechanism: Any) -> Any:
    """Return the model of MuJoCo with a step that divides the period of the control."""
    robot = mujoco.MjModel.from_xml_string(mechanism.arm.mjcf())
    robot.opt.timestep = 2e-3
    return robot


def closed_loop(name: str) -> dict[str, Any]:
    """Fit all models to the motors of a mechanism with loops, and score the one chosen."""
    build, samples = LOOPS[name]
    mechanism = build()
    began = time.perf_counter()
    result = delan.fit(logged(mechanism, samples, seed=0))
    seconds = time.perf_counter() - began
    other = logged(mechanism, 1000, seed=1)
    fast = logged(mechanism, 1000, seed=1, speed=2.0)
    return {
        "samples": samples,
        "chosen": result.chosen.name,
        "decision": result.verdict.decision,
        "nmse": evaluate(result.model, other, rollouts=False).torque.nmse_mean,
        "nmse_twice_as_fast": evaluate(result.model, fast, rollouts=False).torque.nmse_mean,
        "seconds": seconds,
    }


def legs(data: Path) -> dict[str, Any]:
    """Fit a tree of four legs to chirps 0–4 of a Go2, and score it on chirp 5.

    One signal commands all joints in all chirps. So the log cannot tell which joints feel each
    other, and what chirps 0–4 leave of chirp 5, row by row, is what a model of it can hardly beat.
    """
    folder = data / "robots" / "go2"
    files = [folder / f"traj_{run}.npz" for run in range(GO2_RUNS)]
    runs = [driven_by_pd(file, slice(0, 12)) for file in files]
    known = recording(runs[:-1])
    settings = delan.FitSettings(parents=LEGS)
    began = time.perf_counter()
    result = delan.fit(known, ("chain", "feedforward"), settings=settings)
    seconds = time.perf_counter() - began
    unseen = delan.prepare(recording(runs[-1:]), result.preparation.settings)
    errors = {}
    for entry in result.entries:
        errors[entry.name] = evaluate(entry.deployed, unseen, rollouts=False).torque.nmse_mean
    prepared = [delan.prepare(recording([run]), result.preparation.settings) for run in runs]
    return {
        "nmse": errors,
        "nmse_of_the_same_chirps": repeated(prepared),
        "chain_over_feedforward": errors["chain"] / errors["feedforward"],
        "rank_of_the_commands": int(np.linalg.matrix_rank(commands(files[0]), rtol=1e-3)),
        "legs_told_by_the_log": find_limbs(known),
        "seconds": seconds,
    }


def commands(file: Path) -> np.ndarray:
    """Return how far each commanded position is from its mean."""
    wanted = np.load(file)["q_des"]
    return wanted - wanted.mean(axis=0)


def repeated(motions: list[Dataset]) -> float:
    """Return the nMSE of the last torques by the mean of the others, each shifted to fit best."""
    last = motions[-1].tau
    rows = np.arange(SHIFT, min(len(motion.tau) for motion in motions) - SHIFT)
    others = []
    for motion in motions[:-1]:
        shifted = [motion.tau[rows + shift] for shift in range(-SHIFT, SHIFT + 1)]
        others.append(min(shifted, key=lambda torque: np.sum((torque - last[rows]) ** 2)))
    wrong = np.mean(others, axis=0) - last[rows]
    return float(np.mean(np.mean(wrong**2, axis=0) / last[rows].var(axis=0)))


def recording(runs: list[Any]) -> Recording:
    """Return runs of a log as trajectories of one recording."""
    columns = {}
    for name in ("t", "q", "qd", "tau"):
        columns[name] = np.concatenate([np.asarray(run[name], dtype=float) for run in runs])
    trajectory = np.repeat(np.arange(len(runs)), [len(run["t"]) for run in runs])
    joints = delan.Joints.revolute(columns["q"].shape[1])
    return Recording(**columns, trajectory=trajectory, joints=joints)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*UNDERACTUATED, *LOOPS])
    parser.add_argument("--data", type=Path, default=Path())
    arguments = parser.parse_args()
    for name in arguments.names:
        if name in UNDERACTUATED:
            row = unactuated(name)
        elif name in LOOPS:
            row = closed_loop(name)
        else:
            row = legs(arguments.data)
        print(name, row, flush=True)
        # Read again: another row may have been measured meanwhile.
        write_results("loops", read_results("loops") | {name: row})


if __name__ == "__main__":
    main()
