"""The same without a loop: fitted offline to slow cosine motions, torques predicted on faster ones."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from ..data.smoothing import low_passed
from ..drawing import drawing
from ..joints import Dataset, Recording
from ..learning.evaluate import evaluate
from ..robots.barrett_wam import WAM4, WAM4_ANALYTIC, WAM7, WAM7_ANALYTIC
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .curves import by_speed, draw_speeds, legend_below, ratio
from .motion_logs import cable_driven, swung
from .rivals import LOOKS, fitted

NAME, WHERE = "offline-cosines", "Fig. 8"
ROBOTS = {"wam4": "WAM, rigid", "wam4-cable": "WAM, cable drives"}
MODELS = ("identified", "feedforward", "delan", "newton-euler", "chain")
FRICTION = ("identified-friction", "delan-friction", "chain-friction")
"""Added on an arm with friction."""
MOTIONS = 3
REAL_FILE = "wam7_real_neg_500Hz.npz"
"""A log of a physical WAM, published; read where the user has it."""
REAL_STIFFNESS = np.array([200, 300, 100, 100, 10, 10, 2.5])
REAL_DAMPING = np.array([7, 15, 5, 2.5, 0.3, 0.3, 0.05])
REAL_START = np.array([0, 0.5876, 0, 1.36, 0, -0.321, -1.57])
REAL_CUTOFF = 5.0
"""The torque was not logged, but follows from these gains; the log's signals lie below the cut-off [Hz]."""
REAL_TRAINING = 0.7
"""The first part of each run is learned on."""


def cells(size: Size) -> list[Cell]:
    speeds = size.pick(quick="1,2", usual="1,1.25,1.5,1.75,2", paper="1,1.25,1.5,1.75,2")
    seeds = size.seed_range(quick=1, usual=10)
    wanted = [
        Cell.of(NAME, model, seed=seed, robot=robot, speeds=speeds)
        for robot in ROBOTS
        for model in (*MODELS, *(FRICTION if robot.endswith("cable") else ()))
        for seed in (size.extra_seeds(seeds, quick=0) if model in FRICTION else seeds)
    ]
    file = None if size.data is None else Path(size.data)
    if file is not None and file.is_dir():
        file = file / REAL_FILE
    if file is not None and file.name == REAL_FILE and file.exists():
        models = ("identified", "identified-friction", "feedforward", "newton-euler", "chain-friction")
        wanted += [
            Cell.of(NAME, model, seed=seed, robot="real", file=str(file))
            for model in models
            for seed in size.extra_seeds(seeds)
        ]
    return wanted


def run(cell: Cell) -> Result:
    if cell["robot"] == "real":
        return _run_real(cell)
    speeds = [float(speed) for speed in cell["speeds"].split(",")]
    training = _log(cell["robot"], cell.seed, 1.0)
    model = fitted(cell.model, training, task="cosines", believed=WAM4_ANALYTIC, seed=cell.seed)
    scores = {
        f"{speed:g}": evaluate(model, _log(cell["robot"], cell.seed, speed), rollouts=False).torque for speed in speeds
    }
    return {
        "errors": {speed: one.mse_sum for speed, one in scores.items()},
        "nmse": {speed: one.nmse_mean for speed, one in scores.items()},
    }


@cache
def _log(robot: str, seed: int, speed: float) -> Dataset:
    """The same paths for every speed; kept, for every model asks for them."""
    seeds = range(1000 * seed, 1000 * seed + MOTIONS)
    if robot.endswith("cable"):
        return cable_driven(WAM4, WAM4_ANALYTIC, seeds, speed=speed)
    return swung(WAM4, seeds, speed=speed)


def _run_real(cell: Cell) -> Result:
    log = read_real(Path(cell["file"]))
    first = np.zeros(len(log), dtype=bool)
    for label in log.trajectories:
        rows = np.flatnonzero(log.trajectory == label)
        first[rows[: round(REAL_TRAINING * len(rows))]] = True
    model = fitted(cell.model, log.rows(first), task="cosines", believed=WAM7_ANALYTIC, seed=cell.seed)
    return {"nmse": list(evaluate(model, log.rows(~first), rollouts=False).torque.nmse)}


def read_real(file: Path) -> Dataset:
    """The physical WAM's log, smoothed, every twentieth sample: five a period of the filter."""
    return low_passed(recorded_real(file), REAL_CUTOFF).rows(slice(None, None, 20))


def recorded_real(file: Path) -> Recording:
    """The physical WAM's log as it was recorded, with torques from the gains of its controller."""
    with np.load(file) as archive:
        runs = sorted({name.split("/")[0] for name in archive.files})
        parts = []
        for number, one in enumerate(runs):
            q, qd, q_des, qd_des = (archive[f"{one}/{name}"] for name in ("q", "qd", "q_des", "qd_des"))
            count = len(q_des)
            tau = REAL_STIFFNESS * (REAL_START + q_des - q[:count]) + REAL_DAMPING * (qd_des - qd[:count])
            parts.append((np.arange(count) * 2e-3, q[:count], qd[:count], tau, np.full(count, number)))
    t, q, qd, tau, label = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Recording(t=t, q=q, qd=qd, tau=tau, trajectory=label, joints=WAM7.joints, source=file.name)


def draw(results: Results) -> Mapping[str, Drawn]:
    figure = draw_speeds(results, ROBOTS, (*MODELS, *FRICTION), error="Σ torque MSE [N² m²]", width=8.6, height=4.2)
    caption = (
        f"Error of the torque on {MOTIONS} cosine motions at rising speed; fitted at 1× alone (white). Identification "
        "is given the kinematics; Newton–Euler carries published parameters that are not quite the simulated arm's. "
        "Median and 5th to 95th percentile over seeds."
    )
    drawn = {NAME: Drawn(figure, caption)}
    real = results.of(robot="real")
    if len(real):
        drawn[f"{NAME}-real"] = _real(real)
    return drawn


def _real(results: Results) -> Drawn:
    with drawing(7.4, 3.4) as figure:
        axes = figure.subplots()
        models = [model for model in LOOKS if len(results.of(model))]
        for place, model in enumerate(models):
            nmse = np.median([result["nmse"] for _, result in results.of(model).rows], axis=0)
            x = np.arange(len(nmse)) + 0.8 * (place - (len(models) - 1) / 2) / len(models)
            axes.bar(x, nmse, width=0.75 / len(models), color=LOOKS[model].colour, label=LOOKS[model].label)
        axes.set_yscale("log")
        axes.set_xticks(range(7), [f"joint {joint + 1}" for joint in range(7)])
        axes.set_ylabel("torque nMSE")
        axes.grid(axis="y")
        legend_below(figure, axes, columns=2)
    caption = (
        f"A physical WAM on a sine motion of 20 s, five runs: fitted to the first {REAL_TRAINING:.0%} of each, scored "
        "on the rest; 1 is no better than the mean torque."
    )
    return Drawn(figure, caption)


def claims(results: Results) -> list[Claim]:
    rows, made = by_speed(results), []
    texts = {
        "wam4": ("On a simulated rigid arm identification is ahead of the network.", True),
        "wam4-cable": ("With cable drives, which no rigid body has, identification falls behind the network.", False),
    }
    for robot, (text, ahead) in texts.items():
        mine = rows.of(robot=robot)
        ratios = {
            speed: float(np.median(values))
            for speed in mine.settings("speed")
            if len(values := ratio(mine.of(speed=speed), "test", "identified", "delan"))
        }
        if ratios:
            held = [(value < 1) == ahead for value in ratios.values()]
            shown = ", ".join(f"{speed:g}×: {value:.2g}" for speed, value in ratios.items())
            made.append(
                Claim(
                    claim=text,
                    where=WHERE,
                    measured=f"identification's torque error over the network's (median), {shown}{_beside(mine)}",
                    asked=f"{'below' if ahead else 'above'} 1",
                    holds="yes" if all(held) else "partly" if any(held) else "no",
                    seeds=mine.of("delan").seeds,
                )
            )
    return made


def _beside(rows: Results) -> str:
    """How it stands when both are given friction."""
    over = ratio(rows.of(speed=1.0), "test", "identified-friction", "delan-friction")
    return f"; with friction terms for both, {np.median(over):.2g} at 1×" if len(over) else ""


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
