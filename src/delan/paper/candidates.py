"""Candidates for the training of networks, the choices among them, and how models are fitted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import jax
import numpy as np

from ..errors import DataError, SettingsError
from ..identification.identify import IdentifySettings, identify
from ..joints import Dataset
from ..learning.model_fit import fit_model
from ..learning.presets import PAPER
from ..learning.study import Study, TrainingResult
from ..logs.split import Fold, Split
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import InverseDynamics
from ..models.friction import FrictionSettings
from ..models.networks import FeedForwardSettings, LagrangianNetworkSettings
from ..models.rigid_body import RigidBody
from ..robots.description import Arm
from ..solvers.adam import DescentSettings
from ..solvers.loss import Objective
from ..solvers.plan import ModelChoice
from ..solvers.training import TrainingSettings

Task = Literal["letters", "cosines"]
# What the samples are like: exact, with noise of the sizes below, or the log of a cable drive.
DataKind = Literal["clean", "noisy", "loud", "cable"]
# Standard deviation of the noise on every number of a sample (SI units), by kind: that of the
# experiment with letters, and that of a noise that hides most of the dynamics.
NOISE = {"clean": 0.0, "noisy": 0.01, "loud": 0.3, "cable": 0.0}

# Added to a rigid model of an arm with friction.
FRICTION = FrictionSettings(terms=("armature", "viscous", "coulomb", "offset"))

# Every motion gives this many pieces to validation, a share of it in all. Whole motions would be
# missing in the training of which the paper's claims speak.
PIECES = 3
VALIDATION = 0.15

# Largest number of Levenberg–Marquardt iterations; training stops earlier when validation does not
# improve.
ITERATIONS = 120
# Largest number of gradient steps of Adam.
STEPS = 6_000


@dataclass(frozen=True)
class TrainingChoice:
    """How a network is trained; it has two hidden layers of `width` units."""

    optimizer: Literal["adam", "lm"]
    width: int
    learning_rate: float = 3e-3
    weight_decay: float = 0.0

    def __str__(self) -> str:
        method = "Levenberg–Marquardt"
        if self.optimizer == "adam":
            method = f"Adam, learning rate {self.learning_rate:g}"
        decay = f", weight decay {self.weight_decay:g}" if self.weight_decay else ""
        return f"2 × {self.width} units, {method}{decay}"


# The experiment `tuning` chooses among these, for both networks alike.
CANDIDATES: tuple[TrainingChoice, ...] = (
    TrainingChoice("lm", 16),
    TrainingChoice("lm", 16, weight_decay=1e-5),
    TrainingChoice("lm", 16, weight_decay=1e-4),
    TrainingChoice("lm", 16, weight_decay=1e-3),
    TrainingChoice("lm", 16, weight_decay=1e-2),
    TrainingChoice("adam", 64),
    TrainingChoice("adam", 64, weight_decay=1e-5),
    TrainingChoice("adam", 64, weight_decay=1e-4),
    TrainingChoice("adam", 64, learning_rate=1e-3),
)

# Clean data: the best of the second-order candidates on one seed. Noisy data: the best of all on
# three seeds, with whole motions held out. Loud and cable data have the choices for noisy data and
# were not tuned yet. The experiment `tuning` says whether each is the best on its motions.
CHOSEN: dict[tuple[Task, DataKind, str], TrainingChoice] = {
    ("letters", "clean", "delan"): CANDIDATES[0],
    ("letters", "clean", "feedforward"): CANDIDATES[0],
    ("letters", "noisy", "delan"): CANDIDATES[1],
    ("letters", "noisy", "feedforward"): CANDIDATES[3],
    ("cosines", "clean", "delan"): CANDIDATES[0],
    ("cosines", "clean", "feedforward"): CANDIDATES[2],
    ("cosines", "noisy", "delan"): CANDIDATES[1],
    ("cosines", "noisy", "feedforward"): CANDIDATES[3],
    ("cosines", "loud", "delan"): CANDIDATES[1],
    ("cosines", "loud", "feedforward"): CANDIDATES[3],
    ("cosines", "cable", "delan"): CANDIDATES[1],
    ("cosines", "cable", "feedforward"): CANDIDATES[3],
}


# By Adam, as in the paper: two hidden layers of 64 units, and no weight decay.
BY_ADAM = CANDIDATES[5]


def kind_of_noise(sigma: float) -> DataKind:
    """Return the kind of data whose noise is nearest, in orders of magnitude."""
    if sigma < NOISE["noisy"] / 3:
        return "clean"
    # The geometric mean of the two noises parts them.
    return "noisy" if sigma**2 < NOISE["noisy"] * NOISE["loud"] else "loud"


def split_by_pieces(dataset: Dataset) -> Split:
    """Return the split that gives pieces of every motion to validation, evenly spread over it."""
    held_out = np.zeros(len(dataset), dtype=bool)
    for label in dataset.trajectories:
        rows = np.flatnonzero(dataset.trajectory == label)
        length = round(VALIDATION * len(rows) / PIECES)
        if length < 1:
            raise DataError(
                dataset.source,
                f"motion {label} has {len(rows)} samples, too few for {PIECES} validation pieces",
            )
        for piece in range(PIECES):
            middle = round((piece + 0.5) * len(rows) / PIECES)
            first = middle - length // 2
            held_out[rows[first : first + length]] = True
    return Split((Fold(~held_out, held_out),))


def split_not_at_all(dataset: Dataset) -> Split:
    """Return the split that trains on every sample and validates on the same ones."""
    every = np.ones(len(dataset), dtype=bool)
    return Split((Fold(every, every),))


def train(
    model: str,
    dataset: Dataset,
    choice: TrainingChoice,
    *,
    seed: int,
    friction: bool = False,
    split: Callable[[Dataset], Split] = split_by_pieces,
) -> TrainingResult:
    """Train a network; the weights with the lowest error on the validation samples are kept."""
    network = FeedForwardSettings(width=choice.width)
    if model == "delan":
        network = LagrangianNetworkSettings(width=choice.width)
    epochs = ITERATIONS
    if choice.optimizer == "adam":
        epochs = _epochs_of_adam(dataset)
    settings = TrainingSettings(
        optimizer=choice.optimizer,
        epochs=epochs,
        objective=Objective(weight_decay=choice.weight_decay),
        descent=DescentSettings(learning_rate=choice.learning_rate),
    )
    return _fit(dataset, network, settings, seed=seed, friction=friction, split=split)


def _epochs_of_adam(dataset: Dataset) -> int:
    batch = min(DescentSettings.batch, len(dataset))
    return max(20, STEPS * batch // len(dataset))


def _as_in_the_paper(name: str, dataset: Dataset, *, seed: int) -> InverseDynamics:
    """Train a network of the preset `paper`, with as many steps as the others have at the most."""
    network = PAPER.network if name == "delan" else PAPER.feed_forward
    settings = replace(PAPER.training, epochs=_epochs_of_adam(dataset))
    return _fit(dataset, network, settings, seed=seed, friction=False).model


def _fit(
    dataset: Dataset,
    model: ModelChoice,
    settings: TrainingSettings,
    *,
    seed: int,
    friction: bool,
    split: Callable[[Dataset], Split] = split_by_pieces,
) -> TrainingResult:
    head = FRICTION if friction else None
    study = Study.of(dataset, settings, friction=head, key=jax.random.key(seed))
    return fit_model(replace(study, split=split(dataset)), model)


def best_of(
    model: str,
    dataset: Dataset,
    choices: Iterable[TrainingChoice],
    *,
    seed: int,
    friction: bool = False,
) -> tuple[InverseDynamics, TrainingChoice]:
    """Train a network with each choice; return the one with the lowest validation error."""
    trained = []
    for choice in choices:
        trained.append((train(model, dataset, choice, seed=seed, friction=friction), choice))
    result, choice = min(trained, key=lambda pair: pair[0].validation.torque.nmse_mean)
    return result.model, choice


def fitted(
    model: str, dataset: Dataset, *, task: Task, kind: DataKind, believed: Arm, seed: int
) -> InverseDynamics:
    """Fit the model of this name.

    A name may end in `-friction`; that of a network in `-adam`, for Adam in place of the choice for
    such data, in `-unstopped`, for Adam to the end with no validation samples, or in `-paper`, for
    the preset of that name. `believed` is the arm that models with given kinematics use.
    """
    name, _, extra = model.partition("-")
    friction = extra == "friction"
    if extra == "paper":
        return _as_in_the_paper(name, dataset, seed=seed)
    if extra == "unstopped":
        return train(name, dataset, BY_ADAM, seed=seed, split=split_not_at_all).model
    if name in ("delan", "feedforward"):
        choice = BY_ADAM if extra == "adam" else CHOSEN[task, kind, name]
        return train(name, dataset, choice, seed=seed, friction=friction).model
    if name == "chain":
        settings = TrainingSettings(epochs=ITERATIONS)
        chain = LagrangianChainSettings()
        return _fit(dataset, chain, settings, seed=seed, friction=friction).model
    if name == "identified":
        settings = IdentifySettings()
        if not friction:
            settings = IdentifySettings(friction=(), armature=False)
        return identify(dataset, believed.urdf(), settings).model
    if model == "newton-euler":
        return RigidBody.from_urdf(believed.urdf())
    raise SettingsError(f"unknown model {model!r}; give delan, feedforward, chain or identified")
