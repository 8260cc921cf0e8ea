"""Our models on the character data of the paper's reference implementation, against its own stored results."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..data.logs import read_log
from ..data.preparation import prepare
from ..drawing import drawing
from ..errors import DataError
from ..joints import Dataset
from ..learning.evaluate import evaluate
from ..robots.two_link import TWO_LINK
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .rivals import LOOKS, Choice, best_of, fitted

NAME, WHERE = "published-data", "reference implementation, stored results"
FILE = "published_letters.npz"
MODELS = ("delan", "feedforward", "chain")
TEST = "eqv"
PUBLISHED = {"delan": 2.2e-5, "feedforward": 6.2e-4}
"""Σ torque MSE of its structured network and of its plain one [N² m²]."""
CHOICES = (Choice("lm", 16), Choice("adam", 64, weight_decay=1e-5))
"""Of each network's training, for these data have no noise; its validation letters choose."""
PUBLISHED_VALID = 2.3
"""How long its forward model predicts the motion, mean over test letters [s]."""


def cells(size: Size) -> list[Cell]:
    """None without the file: it is not ours to ship."""
    file = None if size.data is None else Path(size.data)
    if file is not None and file.is_dir():
        file = file / FILE
    if file is None or file.name != FILE or not file.exists():
        return []
    seeds = size.seed_range(quick=1, usual=10)
    return [Cell.of(NAME, model, seed=seed, file=str(file)) for model in MODELS for seed in seeds]


def read_published(file: Path) -> tuple[Dataset, Dataset]:
    """Training letters, and the three that are usually tested on."""
    with np.load(file) as archive:
        if "labels" not in archive.files:
            raise DataError(
                file.name, "there is no array 'labels' with the letter of each trajectory; is it this file?"
            )
        labels = archive["labels"].tolist()
    log = prepare(read_log(file))
    test = [labels.index(letter) for letter in TEST]
    return log.select([label for label in log.trajectories if label not in test]), log.select(test)


def run(cell: Cell) -> Result:
    training, test = read_published(Path(cell["file"]))
    if cell.model == "chain":
        model, choice = fitted("chain", training, task="letters", believed=TWO_LINK, seed=cell.seed), ""
    else:
        model, choice = best_of(cell.model, training, CHOICES, seed=cell.seed)
    scores = evaluate(model, test)
    return {
        "choice": str(choice),
        "test": scores.torque.mse_sum,
        "components": {name: errors.mse_sum for name, errors in scores.components.items()},
        "valid_seconds": None if scores.rollouts is None else float(np.mean(scores.rollouts.valid_seconds)),
    }


def draw(results: Results) -> Mapping[str, Drawn]:
    if not len(results):
        return {}
    with drawing(7.6, 3.0) as figure:
        left, right = figure.subplots(1, 2)
        models = [model for model in MODELS if len(results.of(model))]
        for place, model in enumerate(models):
            mine, look = results.of(model), LOOKS[model]
            left.plot(mine.values("test"), np.full(len(mine), place), look.marker, color=look.colour, alpha=0.6)
            if model in PUBLISHED:
                left.plot(PUBLISHED[model], place, "|", color="#1f2933", markersize=16, markeredgewidth=2)
            valid = mine.values("valid_seconds")
            right.plot(valid, np.full(len(valid), place), look.marker, color=look.colour, alpha=0.6)
        right.axvline(PUBLISHED_VALID, color="#1f2933", linewidth=1)
        left.set_xscale("log")
        left.set_xlabel("Σ torque MSE on e, q, v [N² m²]")
        right.set_xlabel("valid prediction time [s]")
        for axes in (left, right):
            axes.set_yticks(range(len(models)), [LOOKS[model].label for model in models] if axes is left else [])
            axes.set_ylim(-0.6, len(models) - 0.4)
            axes.invert_yaxis()
            axes.grid(axis="x")
    caption = (
        "The character data of the reference implementation, trained on 17 letters: each mark a seed; black, its own "
        "stored results. Right: how long the motion predicted from torques stays within 0.1 rad, mean over the letters."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim]:
    mine = results.of("delan")
    if not len(mine):
        return []
    torque, valid = mine.values("test"), mine.values("valid_seconds")
    asked = PUBLISHED["delan"] / 10
    return [
        Claim(
            claim="On the published letters the network's torque error is a tenth of the published one.",
            where=WHERE,
            measured=f"median {np.median(torque):.2g}, largest {torque.max():.2g} N² m²",
            asked=f"at most {asked:.2g} N² m²",
            holds="yes" if torque.max() <= asked else "partly" if np.median(torque) <= asked else "no",
            seeds=mine.seeds,
        ),
        Claim(
            claim="Its forward model predicts the motion for longer than the published one.",
            where=WHERE,
            measured=f"median {np.median(valid):.2f} s, least {valid.min():.2f} s",
            asked=f"above {PUBLISHED_VALID} s",
            holds="yes" if valid.min() > PUBLISHED_VALID else "partly" if np.median(valid) > PUBLISHED_VALID else "no",
            seeds=mine.seeds,
        ),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="The published character data",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 30.0 if cell.model == "chain" else 60.0,
    draw=draw,
    claims=claims,
)
