"""A model refitted from near its weights: to other samples, or without each fold of a log in turn.

Every sample of the log is predicted by a model that has not learned from it. These errors choose
between models; they calibrate the band, and the refitted models are its ensemble. How much they
differ on motion that was not recorded says what the log leaves open, and so do other arms that
explain the log as well.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..joints import Dataset, evenly_spaced
from ..logs.split import generator
from ..models.dynamics import in_precision
from ..models.model import Model
from ..simulation.replay import LogReplay, Part, ReplaySettings, replay_parts
from ..solvers import marquardt
from ..solvers.linearised import drive_torques
from ..solvers.loss import Anchor, Objective, Samples, Scale
from ..solvers.plan import samples
from ..solvers.stages import SAMPLES
from .added_inertia import AddedInertia, choose_added_inertia
from .scores import predict_samples
from .study import CrossFit, Entry, Study

# Iterations of a refit.
ITERATIONS = 6
# Folds that are refitted at the same time; XLA and BLAS release the interpreter while they compute.
TOGETHER = 2
# A fit simulates its validation motion over these times [s], from this many starts.
REPLAYED = ReplaySettings(horizons=(0.1, 0.5), windows=30)
# Samples of motion that was not recorded, on which models are compared.
MIXED_ROWS = 1000


def refined(
    model: Any,
    training: Dataset,
    *,
    rows: np.ndarray | None = None,
    iterations: int = ITERATIONS,
    count: int = SAMPLES,
    objective: Objective | None = None,
) -> Any:
    """The model after some iterations on at most `count` of the given samples, or of all."""
    objective = objective or Objective()
    with jax.enable_x64(True):
        data = samples(training, model.friction_settings)
        if rows is None:
            rows = np.arange(len(data))
        data = data.rows(rows[evenly_spaced(len(rows), count)])
        return _iterated(in_precision(model), data, Scale.of(training, objective), iterations)


def _iterated(
    model: Any, data: Samples, scale: Scale, iterations: int, objective: Objective | None = None
) -> Any:
    """The model after some iterations from a short way off."""
    problem = marquardt.Problem(data, scale, objective or Objective())
    descent = marquardt.Descent.of(model, problem, marquardt.NEARBY)
    for _ in range(iterations):
        descent.advance()
        if descent.stalled:
            break
    return descent.model


@dataclass(frozen=True, eq=False)
class Refit:
    """Refits a model to the training motion of a study with any fold left out, from near it.

    The memory of friction is computed once, for all rows.
    """

    model: Model
    data: Samples
    scale: Scale
    iterations: int
    count: int

    @classmethod
    def of(
        cls,
        model: Model,
        study: Study,
        *,
        anchor: Anchor | None = None,
        iterations: int = ITERATIONS,
        count: int = SAMPLES,
    ) -> "Refit":
        with jax.enable_x64(True):
            data = samples(study.dataset, model.friction_settings)
            scale = replace(Scale.of(study.dataset, study.settings.objective), anchor=anchor)
        return cls(model, data, scale, iterations, count)

    def __call__(self, study: Study) -> Model:
        """The model without the present fold of the study."""
        return self.on(study.training_rows)

    def on(self, rows: np.ndarray) -> Model:
        """The model refitted to these samples."""
        rows = rows[evenly_spaced(len(rows), self.count)]
        with jax.enable_x64(True):
            model = _iterated(
                in_precision(self.model), self.data.rows(rows), self.scale, self.iterations
            )
        return in_precision(model)


def cross_fit(study: Study, model: Model, refit: Callable[[Study], Model]) -> CrossFit:
    """Refit a model without each fold, and predict what was left out."""
    # The memory of friction is computed once, for all rows.
    with jax.enable_x64(True):
        data = samples(study.scored, model.friction_settings)
    parts = [study.without(number) for number in range(len(study.split.folds))]

    def member(part: Study) -> tuple[Model, np.ndarray]:
        fitted = refit(part)
        with jax.enable_x64(True):
            unseen = data.rows(part.judged_rows)
            return fitted, drive_torques(in_precision(fitted), unseen)

    with ThreadPoolExecutor(TOGETHER) as pool:
        members = list(pool.map(member, parts))
    return CrossFit(
        members=tuple(fitted for fitted, _ in members),
        judged=tuple(part.judged for part in parts),
        predicted=tuple(predicted for _, predicted in members),
        size=study.torque_size.for_model(model, study.scored),
    )


def known_fit(study: Study, model: Model) -> CrossFit:
    """A model that was trained without the present fold, scored on it alone."""
    judged = study.judged
    size = study.torque_size.for_model(model, judged)
    return CrossFit((model,), (judged,), (predict_samples(model, judged),), size)


def jackknife(count: int) -> float:
    """The standard error of a model over the spread of members that each lack one of its parts."""
    return (count - 1) / np.sqrt(count)


def left_open(
    entry: Entry, start: Model | None, others: Sequence[Model], study: Study, *, key: PRNGKeyArray
) -> float:
    """How much models differ on other motion that the log leaves open (nMSE).

    They are the entry without each fold, and for a chain the arms that the search met: `others`
    explain the log as well as `start`.
    """
    if entry.cross is None or entry.folds < 2:
        return 0.0
    apart = disagreement(entry.cross, study.dataset, key=key)
    if entry.model.chain is None or start is None:
        return apart
    return max(apart, ambiguity(start, others, study, key=key))


def disagreement(cross: CrossFit, dataset: Dataset, *, key: PRNGKeyArray) -> float:
    """The nMSE by which models of parts of a log differ on other motion, mean over joints."""
    std = jackknife(len(cross.members)) * spread_of(cross.members, other_motion(dataset, key=key))
    return cross.size.nmse(std)


def ambiguity(model: Model, others: Sequence[Model], study: Study, *, key: PRNGKeyArray) -> float:
    """The largest nMSE by which other arms differ from a model on other motion, mean over joints.

    The others explain the log as well as the model does: where they differ, the log does not tell
    which of them the robot is.
    """
    torques = torques_of([model, *others], other_motion(study.dataset, key=key))
    return max((study.torque_size.nmse(each - torques[0]) for each in torques[1:]), default=0.0)


def other_motion(dataset: Dataset, *, key: PRNGKeyArray) -> Dataset:
    """The motion of a log with its joints at different moments.

    Each joint keeps to the positions, speeds and accelerations that it had, in combinations that
    were not recorded; a motor behind a spring stays with its link.
    """
    known = dataset.samples
    moments = generator(key).integers(len(known), size=(MIXED_ROWS, known.dof))
    for motor, link in enumerate(known.joints.motor_of, start=known.joints.links.dof):
        moments[:, motor] = moments[:, link]
    rows = (moments, np.arange(known.dof))
    return Dataset(
        t=np.arange(MIXED_ROWS, dtype=float),
        q=known.q[rows],
        qd=known.qd[rows],
        qdd=known.qdd[rows],
        tau=known.tau[rows],
        trajectory=np.arange(MIXED_ROWS),
        joints=known.joints,
    )


def spread_of(members: Sequence[Model], dataset: Dataset) -> Float[np.ndarray, "samples dof"]:
    """The standard deviation of the members' torques at every sample."""
    return np.std(torques_of(members, dataset), axis=0, ddof=1)


def torques_of(models: Sequence[Model], dataset: Dataset) -> list[Float[np.ndarray, "samples dof"]]:
    """The torques of models that all have the same friction, whose memory is computed once."""
    with jax.enable_x64(True):
        data = samples(dataset, models[0].friction_settings)
        return [drive_torques(in_precision(model), data) for model in models]


def simulated_validation(entry: Entry, study: Study) -> AddedInertia:
    """Return the validation motion as simulated by models that have not learned from it.

    Where it does not tell the inertia of a joint, the forward dynamics of the models get some.
    """
    members = (entry.model,)
    if entry.cross is not None:
        members = entry.cross.members
    parts = []
    for member, fold in zip(members, study.split.folds, strict=False):
        parts.append(Part(member, fold.validation))
    if not entry.model.promises.mechanics:
        return AddedInertia(None, None)
    return choose_added_inertia(parts, study.dataset, study.scored, REPLAYED)


def replay_motion(parts: Sequence[Part], dataset: Dataset) -> LogReplay | None:
    """Return a motion as simulated; None for a model without mechanics or too short a motion."""
    if not parts[0].model.promises.mechanics:
        return None
    return replay_parts(parts, dataset, REPLAYED)
