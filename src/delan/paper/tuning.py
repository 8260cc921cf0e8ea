"""Experiment `tuning`: choose the training of both networks on validation motions.

No other experiment uses these motions: the letters are smaller, slower and elsewhere, the cosines
have other random numbers. Exact samples, noisy ones and those of a cable drive each have their own
choice. The best candidates stand in `candidates.CHOSEN`.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import NullFormatter

from ..figures import drawing
from ..joints import Dataset
from ..learning.scores import evaluate
from ..robots.arms import WAM4, WAM4_ANALYTIC
from .candidates import CANDIDATES, CHOSEN, NOISE, DataKind, Task, train
from .cells import Cell, Drawn, Experiment, Result, Results, Size
from .claims import Claim, all_hold
from .comparison import STYLES, legend_below
from .motion_logs import cable_log, cosine_log, letter_log, shuffled_letters, with_noise

NAME = "tuning"
WHERE = "not in the paper"
MODELS = ("delan", "feedforward")
DATA: tuple[tuple[Task, DataKind], ...] = (
    ("letters", "clean"),
    ("letters", "noisy"),
    ("cosines", "clean"),
    ("cosines", "noisy"),
    ("cosines", "loud"),
    ("cosines", "cable"),
)
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
    seeds = size.seed_range(quick=0, usual=2, paper=5)
    return [
        Cell.of(NAME, model, seed=seed, task=task, kind=kind, candidate=number)
        for task, kind in DATA
        for model in MODELS
        for number in range(len(CANDIDATES))
        for seed in seeds
    ]


def run(cell: Cell) -> Result:
    seed = SEED_BASE + cell.seed
    choice = CANDIDATES[cell["candidate"]]
    errors = []
    sigma = NOISE[cell["kind"]]
    for known, unseen in _logs(cell["task"], cell["kind"], seed):
        result = train(cell.model, with_noise(known, sigma, seed), choice, seed=seed)
        # Scored on noisy samples, because a robot has no others.
        noisy = with_noise(unseen, sigma, seed + 1)
        errors.append(evaluate(result.model, noisy, rollouts=False).torque.nmse_mean)
    return {"validation": float(np.exp(np.mean(np.log(errors))))}


def _logs(task: str, kind: str, seed: int) -> list[tuple[Dataset, Dataset]]:
    """Return pairs of logs to train on and to score on."""
    motions = range(10 * seed, 10 * seed + MOTIONS)
    if kind == "cable":
        speeds = (1.0, SPEED)
        slow, fast = (cable_log(WAM4, WAM4_ANALYTIC, motions, speed=speed) for speed in speeds)
        return [(slow, fast)]
    if task == "cosines":
        return [(cosine_log(WAM4, motions), cosine_log(WAM4, motions, speed=SPEED))]
    order = shuffled_letters(seed)
    unseen = letter_log(order[-UNSEEN:], place=PLACE, speed=PEN_SPEED)
    pairs = []
    for count in KNOWN:
        pairs.append((letter_log(order[:count], place=PLACE, speed=PEN_SPEED), unseen))
    return pairs


def best(results: Results) -> dict[tuple[Task, DataKind, str], int]:
    """Return the candidate with the lowest median error, by task, kind of data and model."""
    chosen = {}
    for task, kind in DATA:
        for model in MODELS:
            mine = results.of(model, task=task, kind=kind)
            medians = {}
            for number in mine.settings("candidate"):
                medians[number] = float(np.median(mine.of(candidate=number).values("validation")))
            if medians:
                chosen[task, kind, model] = min(medians, key=lambda number: medians[number])
    return chosen


def draw(results: Results) -> Mapping[str, Drawn]:
    shown = [data for data in DATA if len(results.of(task=data[0], kind=data[1]))]
    if not shown:
        return {}
    with drawing(1.7 * len(shown) + 2.4, 3.2) as figure:
        row = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, (task, kind) in zip(row, shown, strict=True):
            for shift, model in ((-0.12, "delan"), (0.13, "feedforward")):
                mine = results.of(model, task=task, kind=kind)
                style = STYLES[model]
                places = [cell["candidate"] + shift for cell, _ in mine.rows]
                errors = mine.values("validation")
                (marks,) = axes.plot(errors, places, style.marker, color=style.colour, markersize=4)
                marks.set_label(style.label)
            axes.set_xscale("log")
            # Labels between the powers of ten would overlap in axes this narrow.
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_title(f"{task}, {kind}", loc="left")
            axes.set_xlabel("validation nMSE")
            axes.grid(axis="x")
        row[0].set_yticks(range(len(CANDIDATES)), [str(choice) for choice in CANDIDATES])
        row[0].invert_yaxis()
        legend_below(figure)
    caption = (
        "Each mark a seed: DeLaN round, the feed-forward network square. In all experiments both "
        "are trained with the candidate of the lowest median for such data, and keep the weights "
        "with the lowest error on validation pieces of the training motions."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim | None]:
    chosen = best(results)
    if not chosen:
        return []
    verdicts = []
    measured = []
    for data, number in chosen.items():
        verdicts.append("yes" if CANDIDATES[number] == CHOSEN[data] else "no")
        measured.append(f"{', '.join(data)}: {CANDIDATES[number]}")
    return [
        Claim(
            claim="Both networks are trained with the settings that are best for them on "
            "validation motions.",
            where=WHERE,
            measured="; ".join(measured),
            asked="the settings that the experiments use",
            holds=all_hold(verdicts),
            seeds=results.seeds,
            ours=True,
        )
    ]


def _seconds(cell: Cell) -> float:
    """Return the time of a cell on one core, from measured cells [s]."""
    if CANDIDATES[cell["candidate"]].optimizer == "adam":
        return 14.0
    return {"letters": 4.0, "cosines": 8.0}[cell["task"]] + 4.0 * (cell["kind"] == "cable")


EXPERIMENT = Experiment(
    name=NAME,
    title="How the networks' training was chosen",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=_seconds,
    draw=draw,
    claims=claims,
)
