"""Models of a user's own under the contest of a fit: same samples, same split, same scores.

A `Guest` learns from the training motion of a study and returns anything that predicts torques.
`enter` trains it without each fold of the log in turn and scores it on what it has not seen, as
the models of `delan.fit` are; `standings` puts all of them into one table with intervals.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import ModelError
from ..joints import Dataset
from ..models.dynamics import InverseDynamics
from ..solvers.loss import Samples, Scale
from ..solvers.plan import descent_stage
from ..solvers.training import Limits, TrainingSettings, require_learned, train
from .scores import Scores, nmse_interval, predict_samples, time_blocks
from .study import CrossFit, Entry, Study


@runtime_checkable
class Guest(Protocol):
    """A model of one's own that takes part in a contest."""

    @property
    def name(self) -> str: ...

    def learn(self, study: Study) -> InverseDynamics:
        """Learn from `study.training`, choose by `study.validation`; `study.key` is the seed.

        What is returned has `joints`, `promises` (`Promises()` if it knows torques only) and
        `inverse_dynamics(q, qd, qdd)` of one sample. An `equinox.Module` is compiled and may be
        asked for many samples at once; any other object is asked row by row.
        """
        ...


@dataclass(frozen=True, eq=False)
class OwnNetwork:
    """A guest that is an `equinox.Module`, trained by the Adam of our networks.

    Attributes:
        build: returns the module with random weights; the dataset tells its joints and units.
        training: its settings, a loss of one's own among them; the best weights on the validation
            motion are kept.
    """

    name: str
    build: Callable[[Dataset, PRNGKeyArray], Any]
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def learn(self, study: Study) -> InverseDynamics:
        """Train the module on the training motion of a study."""
        settings = self.training
        build_key, train_key = jax.random.split(study.key)
        model = self.build(study.training, build_key)
        if not isinstance(model, InverseDynamics):
            raise ModelError(
                f"{self.name}: build returned a {type(model).__name__} without joints, promises "
                "and inverse_dynamics(q, qd, qdd); see delan.InverseDynamics"
            )
        data = (
            Samples.of(study.training),
            Samples.of(study.validation),
            Scale.of(study.training, settings.objective),
            settings.objective,
        )
        stage = descent_stage(data, settings)
        run = train([stage], model, Limits.of(settings, study.stop), key=train_key)
        require_learned(run, study.dataset.source)
        return run.best_model


@dataclass(frozen=True, eq=False)
class GuestEntry:
    """A guest after the contest.

    Attributes:
        models: one without each fold, in the order of the folds.
        cross: the torques that they predict for the fold they have not seen.
        seconds: training time of all of them.
    """

    name: str
    models: tuple[InverseDynamics, ...]
    cross: CrossFit
    seconds: float

    @property
    def validation(self) -> Scores:
        """The scores over all folds."""
        return self.cross.scores()


@dataclass(frozen=True)
class ContestRow:
    """A row of the table: a model, its mean nMSE over joints, and how certain that is.

    Attributes:
        interval: 90 % interval of the error, by resampling seconds of the validation motion; NaN
            where there are too few.
        seconds: training time.
    """

    name: str
    error: float
    interval: tuple[float, float]
    seconds: float


def enter(guest: Guest, study: Study) -> GuestEntry:
    """Train a guest without each fold of the log of a study in turn, and score it there.

    `fit.study` is the study of a fit.
    """
    if not isinstance(guest, Guest):
        raise ModelError(
            f"a {type(guest).__name__} has no name and learn(study); see delan.learning.Guest"
        )
    began = time.perf_counter()
    models = []
    judged = []
    predicted = []
    for number in range(len(study.split.folds)):
        part = study.without(number)
        model = guest.learn(part)
        models.append(model)
        judged.append(part.judged)
        predicted.append(predict_samples(model, part.judged))
    cross = CrossFit((), tuple(judged), tuple(predicted), study.torque_size)
    return GuestEntry(guest.name, tuple(models), cross, time.perf_counter() - began)


def standings(
    entries: Sequence[Entry | GuestEntry], *, key: PRNGKeyArray | None = None
) -> tuple[ContestRow, ...]:
    """Return entries of a fit and guests by their error on motion that they have not seen.

    All are compared on the same parts of the log: on as many as every one of them was trained
    without. A network of `fit` that is far behind has one.
    """
    if key is None:
        key = jax.random.key(0)
    folds = 1
    if all(entry.cross is not None for entry in entries):
        folds = min(len(entry.cross.judged) for entry in entries if entry.cross is not None)
    rows = []
    for entry in entries:
        error = entry.validation.torque.nmse_mean
        interval = (float("nan"), float("nan"))
        if entry.cross is not None:
            error = entry.cross.error(folds)
            interval = _interval(entry.cross, folds, key)
        rows.append(ContestRow(entry.name, error, interval, entry.seconds))
    return tuple(sorted(rows, key=lambda row: row.error))


def _interval(cross: CrossFit, folds: int, key: PRNGKeyArray) -> tuple[float, float]:
    """Return the ends of the interval of the mean nMSE over the first folds."""
    blocks = []
    last = 0
    for judged in cross.judged[:folds]:
        labels = last + time_blocks(judged)
        last = int(labels.max()) + 1
        blocks.append(labels)
    labels = np.concatenate(blocks)
    residual = cross.residual[: len(labels)]
    found = nmse_interval(residual, cross.size, labels, key)
    return found.mean_low, found.mean_high
