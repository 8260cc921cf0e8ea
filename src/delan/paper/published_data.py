"""Experiment `published-data`: our models on the letters of the reference implementation."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..figures import drawing
from ..joints import Dataset
from ..learning.scores import evaluate
from ..logs.preparation import prepare
from ..logs.reading import read_log
from ..robots.arms import TWO_LINK
from .candidates import TrainingChoice, best_of, fitted
from .cells import Cell, Drawn, Experiment, Result, Results, Size
from .claims import Claim, Criterion, compared
from .comparison import STYLES

NAME = "published-data"
WHERE = "reference implementation, stored results"
FILE = "published_letters.npz"
MODELS = ("delan", "feedforward", "chain")
TEST = "eqv"
# Results stored with the reference implementation: Σ torque MSE of its structured and its plain
# network [N² m²], and how long its forward model predicts the motion, mean over test letters [s].
PUBLISHED = {"delan": 2.2e-5, "feedforward": 6.2e-4}
PUBLISHED_VALID = 2.3
# These data have no noise, so that the choices of `tuning` do not apply; validation letters choose.
CHOICES = (TrainingChoice("lm", 16), TrainingChoice("adam", 64, weight_decay=1e-5))


def cells(size: Size) -> list[Cell]:
    """Return no cells without the file, which is not ours to ship."""
    file = size.data_file(FILE)
    if file is None:
        return []
    seeds = size.seed_range(quick=1, usual=5)
    models = size.pick(quick=MODELS[:1], usual=MODELS, paper=MODELS)
    return [Cell.of(NAME, model, seed=seed, file=str(file)) for model in models for seed in seeds]


def read_published(file: Path) -> tuple[Dataset, Dataset]:
    """Return the training letters and the three that the reference implementation tests on."""
    with np.load(file) as archive:
        if "labels" not in archive.files:
            raise DataError(
                file.name,
                "there is no array 'labels' with the letter of each trajectory; is it this file?",
            )
        labels = archive["labels"].tolist()
    log = prepare(read_log(file))
    test = [labels.index(letter) for letter in TEST]
    return log.select([label for label in log.trajectories if label not in test]), log.select(test)


def run(cell: Cell) -> Result:
    training, test = read_published(Path(cell["file"]))
    choice = ""
    if cell.model == "chain":
        model = fitted(
            "chain", training, task="letters", kind="clean", believed=TWO_LINK, seed=cell.seed
        )
    else:
        model, choice = best_of(cell.model, training, CHOICES, seed=cell.seed)
    scores = evaluate(model, test)
    valid_seconds = None
    if scores.rollouts is not None:
        valid_seconds = float(np.mean(scores.rollouts.valid_seconds))
    return {
        "choice": str(choice),
        "test": scores.torque.mse_sum,
        "components": {name: errors.mse_sum for name, errors in scores.components.items()},
        "valid_seconds": valid_seconds,
    }


def draw(results: Results) -> Mapping[str, Drawn]:
    models = [model for model in MODELS if len(results.of(model))]
    if not models:
        return {}
    with drawing(7.6, 3.0) as figure:
        left, right = figure.subplots(1, 2)
        for place, model in enumerate(models):
            style = STYLES[model]
            mine = results.of(model)
            for axes, field in ((left, "test"), (right, "valid_seconds")):
                values = mine.values(field)
                y = np.full(len(values), place)
                axes.plot(values, y, style.marker, color=style.colour, alpha=0.6)
            if model in PUBLISHED:
                left.scatter(PUBLISHED[model], place, 256, "#1f2933", "|", linewidths=2)
        right.axvline(PUBLISHED_VALID, color="#1f2933", linewidth=1)
        left.set_xscale("log")
        left.set_xlabel("Σ torque MSE on e, q, v [N² m²]")
        right.set_xlabel("valid prediction time [s]")
        left.set_yticks(range(len(models)), [STYLES[model].label for model in models])
        right.set_yticks(range(len(models)), [])
        for axes in (left, right):
            axes.set_ylim(-0.6, len(models) - 0.4)
            axes.invert_yaxis()
            axes.grid(axis="x")
    caption = (
        "The letters of the reference implementation, trained on 17 of them: each mark a seed; "
        "black, its own stored results. Right: how long the motion predicted from torques stays "
        "within 0.1 rad, mean over the letters."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim | None]:
    mine = results.of("delan")
    torque = mine.values("test")
    required = PUBLISHED["delan"] / 10
    return [
        compared(
            "On the published letters the network's torque error is a tenth of the published one.",
            WHERE,
            {"": torque},
            Criterion(f"below {required:.2g} N² m²", high=required),
            what="torque error [N² m²]",
            ours=True,
        ),
        compared(
            "Its forward model predicts the motion for longer than the published one.",
            WHERE,
            {"": mine.values("valid_seconds")},
            Criterion(f"above {PUBLISHED_VALID} s", low=PUBLISHED_VALID),
            what="valid time [s]",
            ours=True,
        ),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="The published character data",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 5.0 if cell.model == "chain" else 10.0,
    draw=draw,
    claims=claims,
)
