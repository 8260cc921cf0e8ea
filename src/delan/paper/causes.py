"""Experiment `causes`: why claims of the paper fail here, each question by changing one thing.

Every question has cells of its own; `cause_claims` has the answers. Causes that show in the cells
of another experiment are judged there.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from ..joints import Dataset
from ..learning.presets import PAPER
from ..learning.scores import evaluate
from ..models.model import Blueprint
from ..online.learner import LearnerSettings
from ..online.loop import LoopSettings
from ..online.online_run import (
    OnlineRun,
    evaluation_motions,
    make_robot,
    run_online,
    training_motions,
)
from ..online.session import OnlineOutcome
from ..online.session import run as run_session
from ..robots.arms import TWO_LINK, WAM4, WAM4_ANALYTIC
from ..robots.cable_drive import CableSettings
from ..robots.robot import low_gains
from .candidates import NOISE, fitted
from .cells import Cell, Result, Setting, Size
from .comparison import FAST, SLOW
from .motion_logs import cable_log, letter_log, shuffled_letters, with_noise
from .online_cosines import PAPER_RATE
from .online_letters import ENOUGH, letters_run, pen_paths

NAME = "causes"
SEEDS = 3
# Learning steps per second of robot time: what the other experiments give, and few.
STEPS = (5, 80)
# How an online network is trained: as in the other experiments, or by the preset `paper`.
RECIPES = ("own", "paper")
# Learning times on the rigid WAM [s]: that of the usual `online-cosines`, and longer.
SECONDS = (20, 60)
MOTIONS = 2
LOGGED_MOTIONS = 3
# Numbers of noisy letters after which Adam is not stopped by validation.
LETTERS = (8, 12)
DRY = ("coulomb", "static", "viscous")
# How much stiffer the cables of a nearly rigid drive are; the damping ratio stays as it is.
STIFFER = 10.0


def _without_friction() -> CableSettings:
    usual = CableSettings()
    return replace(usual, **{name: tuple(0.0 for _ in getattr(usual, name)) for name in DRY})


def _stiff() -> CableSettings:
    usual = CableSettings()
    stiffness = tuple(STIFFER * value for value in usual.stiffness)
    damping = tuple(STIFFER**0.5 * value for value in usual.damping)
    return replace(usual, stiffness=stiffness, damping=damping)


class ArmVariant(NamedTuple):
    """The cable-driven arm with one of its faults taken away."""

    title: str
    drive: Callable[[], CableSettings] = CableSettings
    tolerances: bool = True


ARMS = {
    "whole": ArmVariant("as it is"),
    "frictionless": ArmVariant("without friction", _without_friction),
    "stiff": ArmVariant(f"cables {STIFFER:g} × stiffer", _stiff),
    "drawn": ArmVariant("without tolerances", tolerances=False),
}


def cells(size: Size) -> list[Cell]:
    """Return no cells for a quick run."""
    if size.name == "quick":
        return []
    seeds = size.seed_range(quick=0, usual=SEEDS, paper=5)
    wanted = []
    for seed in seeds:
        for cells_of in CELLS.values():
            wanted += cells_of(size, seed)
    return wanted


def run(cell: Cell) -> Result:
    return RUNS[cell["question"]](cell)


def _cell(question: str, model: str, seed: int, **setting: Setting) -> Cell:
    return Cell.of(NAME, model, seed=seed, question=question, **setting)


# How far the feed-forward network strays from its letters


def _letter_cells(size: Size, seed: int) -> list[Cell]:
    setting = {
        "alphabet": size.letters,
        "engine": size.engine,
        "clock": "stepped",
        "letters": ENOUGH,
    }
    wanted = []
    for model in ("feedforward-adam", "delan-adam"):
        for recipe in RECIPES:
            for steps in STEPS:
                wanted.append(_cell("letters", model, seed, recipe=recipe, steps=steps, **setting))
    return wanted


def _run_letters(cell: Cell) -> Result:
    settings = letters_run(cell)
    outcome = _by_preset(settings) if cell["recipe"] == "paper" else run_online(settings)
    strays = {}
    for letter, (wanted, written) in pen_paths(outcome.test["test"]).items():
        strays[letter] = float(np.linalg.norm(written - wanted, axis=1).max())
    return {"stray": max(strays.values()), "strays": strays}


def _by_preset(settings: OnlineRun) -> OnlineOutcome:
    """Run as `run_online` does, with the network and the training of the preset `paper`."""
    network = PAPER.network if settings.model == "delan" else PAPER.feed_forward
    learner = LearnerSettings(objective=PAPER.training.objective, adam=PAPER.training.descent)
    return run_session(
        make_robot(settings),
        training_motions(settings),
        Blueprint.named(settings.arm.joints, network),
        test=evaluation_motions(settings),
        gains=low_gains(settings.arm),
        settings=replace(settings.session, learner=learner),
    )


# Whether both networks are comparable on the training motions of the rigid WAM


def _budget_cells(size: Size, seed: int) -> list[Cell]:
    wanted = []
    for model in ("feedforward", "delan"):
        for seconds in SECONDS:
            wanted.append(_cell("budget", model, seed, engine=size.engine, seconds=seconds))
    return wanted


def _run_budget(cell: Cell) -> Result:
    outcome = run_online(
        OnlineRun(
            robot="wam4",
            engine=cell["engine"],
            model=cell.model,  # type: ignore[arg-type]
            reference="cosines",
            motions=MOTIONS,
            test_on="seen",
            test_speeds=(SLOW,),
            seconds=float(cell["seconds"]),
            clock="stepped",
            steps_per_second=float(STEPS[1]),
            loop=LoopSettings(reference_rate=PAPER_RATE),
            seed=cell.seed,
        )
    )
    return {"test": outcome.test[f"{SLOW:g}x"].tracking.mse_sum}


# What makes the misfit on cables


@cache
def _cable_log(arm: str, seed: int, speed: float) -> Dataset:
    variant = ARMS[arm]
    seeds = range(1000 * seed, 1000 * seed + LOGGED_MOTIONS)
    return cable_log(
        WAM4,
        WAM4_ANALYTIC,
        seeds,
        speed=speed,
        drive=variant.drive(),
        tolerances=variant.tolerances,
    )


def _cable_cells(size: Size, seed: int) -> list[Cell]:
    wanted = []
    for arm in ARMS:
        networks = ("delan", "feedforward") if arm in ("whole", "frictionless") else ()
        for model in ("identified", *networks):
            wanted.append(_cell("cables", model, seed, arm=arm))
    return wanted


def _run_cables(cell: Cell) -> Result:
    model = fitted(
        cell.model,
        _cable_log(cell["arm"], cell.seed, SLOW),
        task="cosines",
        kind="cable",
        believed=WAM4_ANALYTIC,
        seed=cell.seed,
    )
    errors = {}
    for name, speed in (("slow", SLOW), ("fast", FAST)):
        log = _cable_log(cell["arm"], cell.seed, speed)
        errors[name] = evaluate(model, log, rollouts=False).torque.mse_sum
    return errors


# Whether validation keeps the feed-forward network from overfitting


def _noise_cells(size: Size, seed: int) -> list[Cell]:
    wanted = []
    for letters in LETTERS:
        for model in ("feedforward-unstopped", "delan-unstopped", "identified", "newton-euler"):
            setting = {"letters": letters, "alphabet": size.letters}
            wanted.append(_cell("validation", model, seed, **setting))
    return wanted


def _run_noise(cell: Cell) -> Result:
    known = letter_log(
        shuffled_letters(cell.seed)[: cell["letters"]],
        alphabet=cell["alphabet"],
        sample=cell.seed,
    )
    noisy = with_noise(known, NOISE["noisy"], cell.seed)
    model = fitted(
        cell.model, noisy, task="letters", kind="noisy", believed=TWO_LINK, seed=cell.seed
    )
    return {"train_noisy": evaluate(model, noisy, rollouts=False).torque.mse_sum}


# How the cells of a question are made, and how one is computed: apart from each other, so that
# other cells of a question can be asked for and stored ones remain valid.
CELLS: dict[str, Callable[[Size, int], list[Cell]]] = {
    "letters": _letter_cells,
    "cables": _cable_cells,
    "budget": _budget_cells,
    "validation": _noise_cells,
}
RUNS: dict[str, Callable[[Cell], Result]] = {
    "letters": _run_letters,
    "cables": _run_cables,
    "budget": _run_budget,
    "validation": _run_noise,
}
