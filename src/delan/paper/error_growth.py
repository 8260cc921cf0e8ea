"""Experiment `error-growth`: how the errors of the network's parts grow with the speed.

The paper says that model errors scale with the square of the velocity. In the summed torque parts
of the error can cancel, most of all at the speed of training; in the parts they cannot.
"""

from collections.abc import Mapping

import numpy as np

from ..figures import drawing
from ..learning.scores import evaluate
from ..robots.arms import WAM4, WAM4_ANALYTIC
from .candidates import fitted
from .cells import Cell, Drawn, Experiment, Result, Results, Size
from .claims import SAME, Claim, compared
from .comparison import FAST, SLOW, legend_below
from .motion_logs import cosine_log
from .offline_cosines import MOTIONS, SQUARE

NAME = "error-growth"
WHERE = "not in the paper"
SPEEDS = (1.0, 1.25, 1.5, 1.75, 2.0)
# Line colour of the summed torque and of each part.
COLOURS = {
    "torque": "#1f2933",
    "inertial": "#0072b2",
    "coriolis": "#d55e00",
    "gravity": "#009e73",
}


def cells(size: Size) -> list[Cell]:
    """Return no cells for a quick run."""
    if size.name == "quick":
        return []
    return [
        Cell.of(NAME, "delan", seed=seed) for seed in size.seed_range(quick=0, usual=10, paper=20)
    ]


def run(cell: Cell) -> Result:
    """Fit the network as `offline-cosines` does on the rigid arm, and score its parts."""
    seeds = range(1000 * cell.seed, 1000 * cell.seed + MOTIONS)
    training = cosine_log(WAM4, seeds)
    model = fitted(
        cell.model, training, task="cosines", kind="clean", believed=WAM4_ANALYTIC, seed=cell.seed
    )
    errors: dict[str, dict[str, float]] = {}
    for speed in SPEEDS:
        scores = evaluate(model, cosine_log(WAM4, seeds, speed=speed), rollouts=False)
        of_speed = {"torque": scores.torque.mse_sum}
        for part, error in scores.components.items():
            of_speed[part] = error.mse_sum
        errors[f"{speed:g}"] = of_speed
    return {"errors": errors}


def draw(results: Results) -> Mapping[str, Drawn]:
    if not len(results):
        return {}
    with drawing(4.8, 3.4) as figure:
        axes = figure.subplots()
        for part, colour in COLOURS.items():
            curves = []
            for _, row in results.rows:
                curves.append([row["errors"][f"{speed:g}"][part] for speed in SPEEDS])
            axes.plot(SPEEDS, np.array(curves).T, color=colour, alpha=0.3, linewidth=0.8)
            axes.plot(SPEEDS, np.median(curves, axis=0), color=colour, label=part)
        axes.set_yscale("log")
        axes.set_xlabel("speed, times that of training")
        axes.set_ylabel("Σ MSE of the network [N² m²]")
        axes.grid(axis="y")
        legend_below(figure, columns=4)
    caption = (
        "The network's error on the simulated rigid WAM: of the summed torque, on which it was "
        "trained, and of each part. Pale: seeds; strong: their median."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim | None]:
    factors = {}
    for part in COLOURS:
        ratios = []
        for _, row in results.rows:
            errors = row["errors"]
            ratios.append(errors[f"{FAST:g}"][part] / errors[f"{SLOW:g}"][part])
        factors[part] = np.array(ratios)
    return [
        compared(
            "Simulated WAM: the network's errors in the inertial and in the Coriolis part grow "
            "with the square of the speed.",
            WHERE,
            {part: factors[part] for part in ("inertial", "coriolis")},
            SQUARE,
            what="error of the part at 2× over that at 1×",
            ours=True,
        ),
        compared(
            "Simulated WAM: the network's error in gravity does not grow with the speed.",
            WHERE,
            {"": factors["gravity"]},
            SAME,
            what="error at 2× over that at 1×",
            ours=True,
        ),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="How the parts of the error grow with the speed",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 11.0,
    draw=draw,
    claims=claims,
)
