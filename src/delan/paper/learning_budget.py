"""Experiment `learning-budget`: how many learning steps a core makes in a second, model by model.

The online experiments give every learner the same number of steps per second of the robot's time,
so that they give the same numbers on every machine. Here stands what this machine really makes.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..figures import drawing
from ..online.learner import OnlineLearner
from ..online.session import SessionSettings, blueprint_of
from ..robots import arm_named
from .cells import Cell, Drawn, Experiment, Result, Results, Size
from .claims import Claim, Criterion, compared
from .comparison import STYLES

NAME = "learning-budget"
WHERE = "not in the paper"
# Learning steps per second of the robot's time in the stepped experiments: about what one core has
# beside the control loop. A step is an iteration of Levenberg–Marquardt on 512 samples, or five
# passes of Adam over as many.
STEPS_PER_SECOND = 80.0
LEARNERS = {
    "two-link": ("delan", "feedforward", "delan-adam", "feedforward-adam", "chain"),
    "wam4": ("delan", "feedforward", "chain"),
}
# Rows to learn from, and the steps before and during the measurement.
ROWS = 2000
WARM_UP = 20
MEASURED = 60


def cells(size: Size) -> list[Cell]:
    return [
        Cell.of(NAME, model, seed=0, robot=robot)
        for robot, models in LEARNERS.items()
        for model in (models if size.name != "quick" else models[:2])
    ]


def run(cell: Cell) -> Result:
    """Measure the time of steps on random samples; their values do not matter for it."""
    joints = arm_named(cell["robot"]).joints
    optimizer: Any = "adam" if cell.model.endswith("-adam") else "auto"
    settings = SessionSettings(optimizer=optimizer)
    blueprint = blueprint_of(cell.model.removesuffix("-adam"), joints, settings)
    learner = OnlineLearner(blueprint, 2e-3)
    random = np.random.default_rng(0)
    t = np.arange(ROWS) * 2e-3
    learner.absorb(np.column_stack([t, random.standard_normal((ROWS, 3 * joints.dof))]))
    for _ in range(WARM_UP):
        learner.improve()
    began = time.process_time()
    for _ in range(MEASURED):
        learner.improve()
    return {"steps_per_second": MEASURED / (time.process_time() - began)}


def draw(results: Results) -> Mapping[str, Drawn]:
    if not len(results):
        return {}
    with drawing(6.4, 0.3 * len(results) + 1.0) as figure:
        axes = figure.subplots()
        names = []
        for place, (cell, result) in enumerate(results.rows):
            style = STYLES[cell.model]
            axes.barh(place, result["steps_per_second"], color=style.colour)
            names.append(f"{style.label}, {cell['robot']}")
        axes.axvline(STEPS_PER_SECOND, color="#1f2933", linewidth=1)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("learning steps in a second of one core")
    caption = (
        "Learning steps that this machine makes in a second of one core; the line is the budget of "
        "every learner in the stepped experiments."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim | None]:
    rates = {}
    for cell, result in results.rows:
        rates[f"{cell.model}, {cell['robot']}"] = np.array([result["steps_per_second"]])
    claim = compared(
        f"One core makes the {STEPS_PER_SECOND:g} learning steps a second that online learners "
        "get.",
        WHERE,
        rates,
        Criterion(f"at least {STEPS_PER_SECOND:g} steps a second", low=STEPS_PER_SECOND),
        what="steps per second of one core",
        ours=True,
        remark="The rate depends on the machine and on what else runs on it",
    )
    return [claim]


EXPERIMENT = Experiment(
    name=NAME,
    title="What a core can learn in real time",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 2.0,
    draw=draw,
    claims=claims,
)
