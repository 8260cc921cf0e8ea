"""Experiment `offline-cosines`: fit offline to slow cosine motions, predict torques of faster ones.

If the user has the file, the same is done with a published log of a physical WAM.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from ..figures import drawing
from ..joints import Dataset
from ..learning.scores import evaluate
from ..robots.arms import WAM4, WAM4_ANALYTIC, WAM7_ANALYTIC
from .candidates import TrainingChoice, best_of, fitted
from .cells import Cell, Drawn, Experiment, Result, Results, Size
from .claims import ABOVE, BELOW, SAME, Claim, Criterion, compared, noted
from .comparison import (
    FAST,
    SLOW,
    STYLES,
    beyond_training,
    by_speed,
    draw_speeds,
    growth,
    legend_below,
    ratio,
    ratios_over,
    speeds_of,
)
from .motion_logs import cable_log, cosine_log
from .physical_wam import FILE, filtered_log

NAME = "offline-cosines"
WHERE = "Fig. 8"
APPENDIX = "Appendix A, Fig. 8"
ROBOTS = {"wam4": "WAM, rigid", "wam4-cable": "WAM, cable drives"}
MODELS = ("identified", "feedforward", "delan", "newton-euler", "chain")
# Models with friction, on an arm that has friction.
FRICTION = ("identified-friction", "delan-friction", "chain-friction")
MOTIONS = 3
# The models that are fitted to the log of a physical WAM.
REAL_MODELS = (
    "identified",
    "identified-friction",
    "delan-friction",
    "feedforward",
    "newton-euler",
    "chain-friction",
)
# How a network of seven joints is trained; the validation pieces of the log choose.
REAL_CHOICES = (
    TrainingChoice("adam", 64, weight_decay=1e-5),
    TrainingChoice("adam", 64, weight_decay=1e-3),
)
# Share of each run that is used for training, from its start.
REAL_TRAINING = 0.7
EXACT_SAMPLES = (
    "Samples of the simulated arm are exact, and identification is exact with them. Noisy samples "
    "change the order: see the claims of this package about σ² = 1 (experiment `noise`)"
)
FRICTION_MISFIT = (
    "Friction makes the misfit, not stretch or wrong kinematics: see the claims of this package "
    "about the arm with one fault taken away at a time (experiment `causes`)"
)
# The square of the speed in the torque is its fourth power in the squared error; an exponent within
# a half of 2 counts as the square.
SQUARE = Criterion("a growth of the error from 1× to 2× between 2³ and 2⁵", low=8.0, high=32.0)


def cells(size: Size) -> list[Cell]:
    speeds = speeds_of(size)
    seeds = size.seed_range(quick=1, usual=10)
    extra_seeds = size.extra_seeds(seeds, quick=0)
    wanted = []
    for robot in ROBOTS:
        extra = FRICTION if robot.endswith("cable") else ()
        for model in (*MODELS, *extra):
            ours = model == "chain" or model in FRICTION
            for seed in extra_seeds if ours else seeds:
                wanted.append(Cell.of(NAME, model, seed=seed, robot=robot, speeds=speeds))
    file = size.data_file(FILE)
    if file is not None:
        for model in REAL_MODELS:
            # The search for an arm of seven joints is long.
            fewest = 0 if model == "chain-friction" else 1
            for seed in size.extra_seeds(seeds, quick=fewest):
                wanted.append(Cell.of(NAME, model, seed=seed, robot="real", file=str(file)))
    return wanted


def run(cell: Cell) -> Result:
    if cell["robot"] == "real":
        return _run_real(cell)
    training = _log(cell["robot"], cell.seed, 1.0)
    model = fitted(
        cell.model,
        training,
        task="cosines",
        kind="cable" if cell["robot"].endswith("cable") else "clean",
        believed=WAM4_ANALYTIC,
        seed=cell.seed,
    )
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
    log = filtered_log(Path(cell["file"]))
    training = np.zeros(len(log), dtype=bool)
    for label in log.trajectories:
        rows = np.flatnonzero(log.trajectory == label)
        training[rows[: round(REAL_TRAINING * len(rows))]] = True
    known = log.rows(training)
    name, _, extra = cell.model.partition("-")
    if name in ("delan", "feedforward"):
        friction = extra == "friction"
        model, _ = best_of(name, known, REAL_CHOICES, seed=cell.seed, friction=friction)
    else:
        model = fitted(
            cell.model,
            known,
            task="cosines",
            kind="cable",
            believed=WAM7_ANALYTIC,
            seed=cell.seed,
        )
    torque = evaluate(model, log.rows(~training), rollouts=False).torque
    return {"nmse": list(torque.nmse), "test": torque.nmse_mean}


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
        legend_below(figure, columns=2)
    caption = (
        f"A physical WAM on a sine motion of 20 s, five runs: fitted to the first "
        f"{REAL_TRAINING:.0%} of each, scored on the rest; 1 is no better than the mean torque."
    )
    return Drawn(figure, caption)


def claims(results: Results) -> list[Claim | None]:
    rows = by_speed(results)
    return [
        *_on_the_rigid_arm(rows.of(robot="wam4")),
        *_on_the_fast_rigid_arm(rows.of(robot="wam4")),
        *_on_cables(rows.of(robot="wam4-cable")),
        *_on_fast_cables(rows.of(robot="wam4-cable")),
        *_on_the_real_arm(results.of(robot="real")),
    ]


def _on_the_rigid_arm(rows: Results) -> list[Claim | None]:
    """Judge the training motions."""
    slow = rows.of(speed=SLOW)
    return [
        compared(
            "Simulated WAM: on the training motions the feed-forward network is ahead of the "
            "network and of identification.",
            APPENDIX,
            {
                "over the network's": ratio(slow, "feedforward", "delan"),
                "over identification's": ratio(slow, "feedforward", "identified"),
            },
            BELOW,
            what="its error at 1×",
            remark=EXACT_SAMPLES,
        ),
        compared(
            "Simulated WAM: on the training motions network and identification are comparable.",
            APPENDIX,
            {"": ratio(slow, "identified", "delan")},
            SAME,
            what="identification's error over the network's at 1×",
            remark=EXACT_SAMPLES,
        ),
    ]


def _on_the_fast_rigid_arm(rows: Results) -> list[Claim | None]:
    """Judge the motions at higher speeds."""
    grown = growth(rows, "delan", "speed", SLOW, FAST)
    return [
        compared(
            "Simulated WAM: at higher speeds the network extrapolates significantly better than "
            "the feed-forward network.",
            APPENDIX,
            ratios_over(beyond_training(rows), "speed", "delan", "feedforward", label="{:g}×"),
            BELOW,
            what="error over the feed-forward network's",
        ),
        compared(
            "Simulated WAM: at higher speeds identification extrapolates better than the network.",
            APPENDIX,
            ratios_over(beyond_training(rows), "speed", "identified", "delan", label="{:g}×"),
            BELOW,
            what="identification's error over the network's",
        ),
        compared(
            "Simulated WAM: errors of the network grow with the square of the speed.",
            "Section 5.1",
            {"": np.array(list(grown.values()))},
            SQUARE,
            what="torque error at 2× over that at 1×",
            remark=(
                "At 1× the errors of the parts cancel in the torque that was learned, at 2× less. "
                "The parts themselves are judged in the experiment `error-growth`"
            ),
        ),
    ]


def _on_cables(rows: Results) -> list[Claim | None]:
    """Judge the training motions."""
    slow = rows.of(speed=SLOW)
    note = ""
    friction = ratio(slow, "identified-friction", "delan-friction")
    if len(friction):
        note = f"; with friction terms for both {np.median(friction):.2g} over the network's"
    worse = compared(
        "Cable drives: identification is significantly worse than network and feed-forward "
        "network.",
        APPENDIX,
        {
            "over the network's": ratio(slow, "identified", "delan"),
            "over the feed-forward network's": ratio(slow, "identified", "feedforward"),
        },
        ABOVE,
        what="identification's error at 1×",
        remark=(
            "Tried: differentials, published friction of the motors and tolerances of ISO 2768-m. "
            + FRICTION_MISFIT
        ),
    )
    return [
        noted(worse, note),
        compared(
            "Cable drives: identification is about as good as Newton–Euler with published "
            "parameters.",
            APPENDIX,
            {"": ratio(slow, "identified", "newton-euler")},
            SAME,
            what="identification's error over Newton–Euler's at 1×",
        ),
        compared(
            "Cable drives: on the training motions the network is worse than the feed-forward "
            "network.",
            APPENDIX,
            {"": ratio(slow, "delan", "feedforward")},
            ABOVE,
            what="error over the feed-forward network's at 1×",
        ),
    ]


def _on_fast_cables(rows: Results) -> list[Claim | None]:
    """Judge the motions at twice the speed."""
    fast = rows.of(speed=FAST)
    return [
        compared(
            "Cable drives: at twice the speed the network extrapolates better than the "
            "feed-forward network.",
            APPENDIX,
            {"": ratio(fast, "delan", "feedforward")},
            BELOW,
            what="error over the feed-forward network's at 2×",
            remark="The network explains friction by inertia, whose torque grows. "
            + FRICTION_MISFIT,
        ),
        compared(
            "Cable drives: at twice the speed the network extrapolates worse than identification "
            "and Newton–Euler.",
            APPENDIX,
            {
                "over identification's": ratio(fast, "delan", "identified"),
                "over Newton–Euler's": ratio(fast, "delan", "newton-euler"),
            },
            ABOVE,
            what="error at 2×",
        ),
    ]


def _on_the_real_arm(results: Results) -> list[Claim | None]:
    return [
        compared(
            "Physical WAM: identification is significantly worse than network and feed-forward "
            "network, on the rest of the motion that was learned.",
            APPENDIX,
            {
                "over the network's with friction": ratio(results, "identified", "delan-friction"),
                "over the feed-forward network's": ratio(results, "identified", "feedforward"),
            },
            ABOVE,
            what="identification's mean nMSE",
        )
    ]


def _seconds(cell: Cell) -> float:
    """Return the time of a cell on one core, from measured cells [s]."""
    if cell["robot"] == "real":
        return {"identified": 4.0, "newton": 4.0, "chain": 40.0}.get(cell.model.split("-")[0], 60.0)
    quick = cell.model.split("-")[0] in ("identified", "newton")
    simulation = 10.0 if cell["robot"].endswith("cable") else 1.0
    return simulation if quick else simulation + 10.0


EXPERIMENT = Experiment(
    name=NAME,
    title="Cosine motions at rising speed, learned offline",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=_seconds,
    draw=draw,
    claims=claims,
)
