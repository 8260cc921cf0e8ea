"""Experiment `tuning`: choose the training of both networks on validation motions.

No other experiment uses these motions: the letters are smaller, slower and elsewhere, the cosines
have other random numbers. The best candidates stand in `comparison.CHOSEN`.
"""

from collections.abc import Mapping

import numpy as np

from ..figures import drawing
from ..joints import Dataset
from ..learning.scores import evaluate
from ..robots.arms import WAM4
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size, verdict
from .comparison import CANDIDATES, CHOSEN, STYLES, legend_below, train
from .motion_logs import cosine_log, letter_log, shuffled_letters, with_noise
from .offline_letters import NOISE

NAME = "tuning"
WHERE = "not in the paper"
MODELS = ("delan", "feedforward")
# Where and how fast letters are written: elsewhere than in the experiments, smaller and slower.
PLACE = {"origin": (0.45, 0.0), "height": 0.15}
PEN_SPEED = 0.35
# Numbers of training letters, and of letters to score on; the score is the geometric mean over
# the first.
KNOWN = (1, 8)
UNSEEN = 4
# Cosine motions to train on; they are scored at a higher speed.
MOTIONS = 3
SPEED = 1.5
SEED_BASE = 90_000


def cells(size: Size) -> list[Cell]:
    """Return no cells for a quick run, which uses the choices of earlier runs."""
    if size.name == "quick":
        return []
    seeds = size.seed_range(quick=0, usual=3, paper=5)
    return [
        Cell.of(NAME, model, seed=seed, task=task, candidate=number)
        for task in ("letters", "cosines")
        for model in MODELS
        for number in range(len(CANDIDATES))
        for seed in seeds
    ]


def run(cell: Cell) -> Result:
    seed = SEED_BASE + cell.seed
    choice = CANDIDATES[cell["candidate"]]
    errors = []
    for known, unseen in _logs(cell["task"], seed):
        result = train(cell.model, with_noise(known, NOISE, seed), choice, seed=seed)
        # Scored on noisy samples, because a robot has no others.
        noisy = with_noise(unseen, NOISE, seed + 1)
        errors.append(evaluate(result.model, noisy, rollouts=False).torque.nmse_mean)
    return {"validation": float(np.exp(np.mean(np.log(errors))))}


def _logs(task: str, seed: int) -> list[tuple[Dataset, Dataset]]:
    """Return pairs of logs to train on and to score on."""
    if task == "cosines":
        motions = range(10 * seed, 10 * seed + MOTIONS)
        return [(cosine_log(WAM4, motions), cosine_log(WAM4, motions, speed=SPEED))]
    order = shuffled_letters(seed)
    unseen = letter_log(order[-UNSEEN:], place=PLACE, speed=PEN_SPEED)
    pairs = []
    for count in KNOWN:
        pairs.append((letter_log(order[:count], place=PLACE, speed=PEN_SPEED), unseen))
    return pairs


def best(results: Results) -> dict[tuple[str, str], int]:
    """Return the candidate with the lowest median error, by task and model."""
    chosen = {}
    for task in results.settings("task"):
        for model in MODELS:
            mine = results.of(model, task=task)
            medians = {}
            for number in mine.settings("candidate"):
                medians[number] = float(np.median(mine.of(candidate=number).values("validation")))
            if medians:
                chosen[task, model] = min(medians, key=lambda number: medians[number])
    return chosen


def draw(results: Results) -> Mapping[str, Drawn]:
    tasks = results.settings("task")
    if not tasks:
        return {}
    with drawing(9.0, 3.0) as figure:
        row = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for axes, task in zip(row, tasks, strict=True):
            for shift, model in ((-0.12, "delan"), (0.13, "feedforward")):
                mine = results.of(model, task=task)
                style = STYLES[model]
                places = [cell["candidate"] + shift for cell, _ in mine.rows]
                errors = mine.values("validation")
                (marks,) = axes.plot(errors, places, style.marker, color=style.colour, markersize=4)
                marks.set_label(style.label)
            axes.set_xscale("log")
            axes.set_title(task, loc="left")
            axes.set_xlabel("nMSE on validation motions")
            axes.grid(axis="x")
        row[0].set_yticks(range(len(CANDIDATES)), [str(choice) for choice in CANDIDATES])
        row[0].invert_yaxis()
        legend_below(figure, row[0])
    chosen = "; ".join(
        f"{task}, {STYLES[model].label}: {choice}" for (task, model), choice in CHOSEN.items()
    )
    caption = (
        "Each mark a seed: DeLaN round, the feed-forward network square. In all experiments both "
        f"are trained with the candidate of the lowest median here ({chosen}), and keep the "
        "weights with the lowest error on validation trajectories."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim]:
    chosen = best(results)
    if not chosen:
        return []
    same = []
    for (task, model), choice in CHOSEN.items():
        if (task, model) in chosen:
            same.append(CANDIDATES[chosen[task, model]] == choice)
    measured = [
        f"{task}, {model}: {CANDIDATES[number]}" for (task, model), number in chosen.items()
    ]
    return [
        Claim(
            claim="Both networks are trained with the settings that are best for them on "
            "validation motions.",
            where=WHERE,
            measured="; ".join(measured),
            asked="the settings that the experiments use",
            holds=verdict(*same),
            seeds=results.seeds,
        )
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="How the networks' training was chosen",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 25.0,
    draw=draw,
    claims=claims,
)
