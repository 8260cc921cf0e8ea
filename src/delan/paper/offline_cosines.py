"""Experiment `offline-cosines`: fit offline to slow cosine motions, predict torques of faster ones.

If the user has the file, the same is done with a published log of a physical WAM.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from ..figures import drawing
from ..joints import Dataset, Recording
from ..learning.scores import evaluate
from ..logs.filters import low_passed
from ..robots.arms import WAM4, WAM4_ANALYTIC, WAM7, WAM7_ANALYTIC
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size, verdict
from .comparison import (
    STYLES,
    by_speed,
    draw_speeds,
    fitted,
    legend_below,
    listed,
    median_ratios,
    ratio,
)
from .motion_logs import cable_log, cosine_log

NAME = "offline-cosines"
WHERE = "Fig. 8"
ROBOTS = {"wam4": "WAM, rigid", "wam4-cable": "WAM, cable drives"}
MODELS = ("identified", "feedforward", "delan", "newton-euler", "chain")
# Models with friction, on an arm that has friction.
FRICTION = ("identified-friction", "delan-friction", "chain-friction")
MOTIONS = 3
# A published log of a physical WAM, and the models that are fitted to it.
REAL_FILE = "wam7_real_neg_500Hz.npz"
REAL_MODELS = (
    "identified",
    "identified-friction",
    "feedforward",
    "newton-euler",
    "chain-friction",
)
# The torque was not logged, but follows from the gains of the controller and its start.
REAL_STIFFNESS = np.array([200, 300, 100, 100, 10, 10, 2.5])
REAL_DAMPING = np.array([7, 15, 5, 2.5, 0.3, 0.3, 0.05])
REAL_START = np.array([0, 0.5876, 0, 1.36, 0, -0.321, -1.57])
REAL_PERIOD = 2e-3
# The signals of the log lie below this frequency [Hz].
REAL_CUTOFF = 5.0
# Samples are kept at 25 Hz: five per period of the filter.
REAL_THINNING = 20
# Share of each run that is used for training, from its start.
REAL_TRAINING = 0.7


def cells(size: Size) -> list[Cell]:
    speeds = size.pick(quick="1,2", usual="1,1.25,1.5,1.75,2", paper="1,1.25,1.5,1.75,2")
    seeds = size.seed_range(quick=1, usual=10)
    extra_seeds = size.extra_seeds(seeds, quick=0)
    wanted = []
    for robot in ROBOTS:
        for model in MODELS:
            for seed in seeds:
                wanted.append(Cell.of(NAME, model, seed=seed, robot=robot, speeds=speeds))
        for model in FRICTION if robot.endswith("cable") else ():
            for seed in extra_seeds:
                wanted.append(Cell.of(NAME, model, seed=seed, robot=robot, speeds=speeds))
    file = size.data_file(REAL_FILE)
    if file is not None:
        for model in REAL_MODELS:
            for seed in size.extra_seeds(seeds):
                wanted.append(Cell.of(NAME, model, seed=seed, robot="real", file=str(file)))
    return wanted


def run(cell: Cell) -> Result:
    if cell["robot"] == "real":
        return _run_real(cell)
    training = _log(cell["robot"], cell.seed, 1.0)
    model = fitted(cell.model, training, task="cosines", believed=WAM4_ANALYTIC, seed=cell.seed)
    errors = {}
    nmse = {}
    for speed in map(float, cell["speeds"].split(",")):
        log = _log(cell["robot"], cell.seed, speed)
        torque = evaluate(model, log, rollouts=False).torque
        errors[f"{speed:g}"] = torque.mse_sum
        nmse[f"{speed:g}"] = torque.nmse_mean
    return {"errors": errors, "nmse": nmse}


@cache
def _log(robot: str, seed: int, speed: float) -> Dataset:
    """Return the log of a robot; the paths do not depend on the speed or the model."""
    seeds = range(1000 * seed, 1000 * seed + MOTIONS)
    if robot.endswith("cable"):
        return cable_log(WAM4, WAM4_ANALYTIC, seeds, speed=speed)
    return cosine_log(WAM4, seeds, speed=speed)


def _run_real(cell: Cell) -> Result:
    log = read_real(Path(cell["file"]))
    training = np.zeros(len(log), dtype=bool)
    for label in log.trajectories:
        rows = np.flatnonzero(log.trajectory == label)
        training[rows[: round(REAL_TRAINING * len(rows))]] = True
    model = fitted(
        cell.model, log.rows(training), task="cosines", believed=WAM7_ANALYTIC, seed=cell.seed
    )
    return {"nmse": list(evaluate(model, log.rows(~training), rollouts=False).torque.nmse)}


def read_real(file: Path) -> Dataset:
    """Read the log of the physical WAM, filtered and thinned."""
    return low_passed(recorded_real(file), REAL_CUTOFF).rows(slice(None, None, REAL_THINNING))


def recorded_real(file: Path) -> Recording:
    """Read the log of the physical WAM as recorded, with torques from its controller's gains."""
    parts = []
    with np.load(file) as archive:
        names = sorted({name.split("/")[0] for name in archive.files})
        for number, name in enumerate(names):
            q_des = archive[f"{name}/q_des"]
            qd_des = archive[f"{name}/qd_des"]
            count = len(q_des)
            q = archive[f"{name}/q"][:count]
            qd = archive[f"{name}/qd"][:count]
            tau = REAL_STIFFNESS * (REAL_START + q_des - q) + REAL_DAMPING * (qd_des - qd)
            parts.append((np.arange(count) * REAL_PERIOD, q, qd, tau, np.full(count, number)))
    t, q, qd, tau, label = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Recording(
        t=t, q=q, qd=qd, tau=tau, trajectory=label, joints=WAM7.joints, source=file.name
    )


def draw(results: Results) -> Mapping[str, Drawn]:
    figure = draw_speeds(
        results, ROBOTS, (*MODELS, *FRICTION), error="Σ torque MSE [N² m²]", width=8.6, height=4.2
    )
    caption = (
        f"Torque error on {MOTIONS} cosine motions at rising speed; fitted at 1× alone (white). "
        "Identification is given the kinematics; Newton–Euler has published parameters that differ "
        "from the simulated arm's. Median and 5th to 95th percentile over seeds."
    )
    drawn = {NAME: Drawn(figure, caption)}
    real = results.of(robot="real")
    if len(real):
        drawn[f"{NAME}-real"] = _real(real)
    return drawn


def _real(results: Results) -> Drawn:
    models = [model for model in STYLES if len(results.of(model))]
    joints = np.arange(7)
    with drawing(7.4, 3.4) as figure:
        axes = figure.subplots()
        for place, model in enumerate(models):
            nmse = np.median([result["nmse"] for _, result in results.of(model).rows], axis=0)
            x = joints + 0.8 * (place - (len(models) - 1) / 2) / len(models)
            style = STYLES[model]
            axes.bar(x, nmse, width=0.75 / len(models), color=style.colour, label=style.label)
        axes.set_yscale("log")
        axes.set_xticks(joints, [f"joint {joint + 1}" for joint in joints])
        axes.set_ylabel("torque nMSE")
        axes.grid(axis="y")
        legend_below(figure, axes, columns=2)
    caption = (
        f"A physical WAM on a sine motion of 20 s, five runs: fitted to the first "
        f"{REAL_TRAINING:.0%} of each, scored on the rest; 1 is no better than the mean torque."
    )
    return Drawn(figure, caption)


def claims(results: Results) -> list[Claim]:
    rows = by_speed(results)
    claims = [
        _claim(
            rows.of(robot="wam4"),
            "On a simulated rigid arm identification is ahead of the network.",
            ahead=True,
        ),
        _claim(
            rows.of(robot="wam4-cable"),
            "With cable drives, which no rigid body has, identification falls behind the network.",
            ahead=False,
        ),
    ]
    return [claim for claim in claims if claim is not None]


def _claim(rows: Results, text: str, *, ahead: bool) -> Claim | None:
    """Judge whether identification is ahead of the network on an arm; None without results."""
    ratios = median_ratios(rows, "speed", "identified", "delan")
    if not ratios:
        return None
    shown = listed(ratios, "{:g}×")
    measured = f"identification's torque error over the network's (median), {shown}"
    friction = ratio(rows.of(speed=1.0), "identified-friction", "delan-friction")
    if len(friction):
        measured += f"; with friction terms for both, {np.median(friction):.2g} at 1×"
    return Claim(
        claim=text,
        where=WHERE,
        measured=measured,
        asked="below 1" if ahead else "above 1",
        holds=verdict(*((value < 1) == ahead for value in ratios.values())),
        seeds=rows.of("delan").seeds,
    )


EXPERIMENT = Experiment(
    name=NAME,
    title="Cosine motions at rising speed, learned offline",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 8.0 if cell.model.split("-")[0] in ("identified", "newton") else 40.0,
    draw=draw,
    claims=claims,
)
