"""The models that experiments compare: how each looks in a figure, and how each is fitted."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import jax

from ..errors import SettingsError
from ..joints import Dataset
from ..learning.descent import DescentSettings
from ..learning.fit import fit
from ..learning.fit_result import FitResult
from ..learning.identify import IdentifySettings, identify
from ..learning.objective import Objective
from ..learning.planning import FitSettings
from ..models.actuator import ActuatorSettings
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import InverseDynamics
from ..models.feed_forward import FeedForwardSettings
from ..models.network import LagrangianNetworkSettings
from ..models.rigid_body import RigidBody
from ..robots.description import Arm

Task = Literal["letters", "cosines"]


@dataclass(frozen=True)
class Look:
    """How a model is named and drawn; `ours` marks what is not in the paper."""

    label: str
    colour: str
    marker: str
    ours: bool = False

    @property
    def line(self) -> str:
        return "--" if self.ours else "-"


LOOKS: dict[str, Look] = {
    "delan": Look("DeLaN", "#0072b2", "o"),
    "feedforward": Look("feed-forward network", "#d55e00", "s"),
    "identified": Look("identification", "#009e73", "^"),
    "newton-euler": Look("Newton–Euler", "#1f2933", "v"),
    "analytic": Look("analytic model", "#1f2933", "v"),
    "feedforward-adam": Look("feed-forward network, Adam", "#e69f00", "s"),
    "delan-adam": Look("DeLaN, Adam", "#56b4e9", "o"),
    "none": Look("PD alone", "#8a94a0", "x"),
    "chain": Look("chain (not in the paper)", "#b03a78", "D", ours=True),
    "delan-friction": Look("DeLaN + friction (not in the paper)", "#56b4e9", "p", ours=True),
    "identified-friction": Look("identification + friction (not in the paper)", "#7fbf9f", "^", ours=True),
    "chain-friction": Look("chain + friction (not in the paper)", "#e0a0c4", "D", ours=True),
}
"""Colours that can be told apart without red and green, after Okabe and Ito."""

FRICTION = ActuatorSettings(terms=("armature", "viscous", "coulomb", "offset"))
"""What is added to a rigid model of an arm with friction."""


@dataclass(frozen=True)
class Choice:
    """What can be chosen of a network's training: method, units of each of two layers, peak learning rate, decay."""

    optimizer: Literal["adam", "lm"]
    width: int
    learning_rate: float = 3e-3
    weight_decay: float = 0.0

    def __str__(self) -> str:
        method = "Levenberg–Marquardt" if self.optimizer == "lm" else f"Adam, learning rate {self.learning_rate:g}"
        decay = f", weight decay {self.weight_decay:g}" if self.weight_decay else ""
        return f"2 × {self.width} units, {method}{decay}"


CANDIDATES: tuple[Choice, ...] = (
    Choice("lm", 16),
    Choice("lm", 16, weight_decay=1e-5),
    Choice("lm", 16, weight_decay=1e-4),
    Choice("lm", 16, weight_decay=1e-3),
    Choice("adam", 64),
    Choice("adam", 64, weight_decay=1e-5),
    Choice("adam", 64, weight_decay=1e-4),
    Choice("adam", 64, learning_rate=1e-3),
)
"""Among these the experiment `tuning` chooses, for both networks alike."""

CHOSEN: dict[tuple[Task, str], Choice] = {
    ("letters", "delan"): Choice("lm", 16, weight_decay=1e-5),
    ("letters", "feedforward"): Choice("lm", 16, weight_decay=1e-3),
    ("cosines", "delan"): Choice("lm", 16, weight_decay=1e-5),
    ("cosines", "feedforward"): Choice("lm", 16, weight_decay=1e-3),
}
"""What `delan reproduce tuning` found best on its validation motions; see its table on the page."""

ITERATIONS = 120
"""Of Levenberg–Marquardt at most; it stops earlier when validation no longer gains."""
STEPS = 6_000
"""Gradient steps of Adam at most."""


def network(model: str, width: int) -> LagrangianNetworkSettings | FeedForwardSettings:
    return LagrangianNetworkSettings(width=width) if model == "delan" else FeedForwardSettings(width=width)


def train(model: str, dataset: Dataset, choice: Choice, *, seed: int, friction: bool = False) -> FitResult:
    """A network fitted with a choice; the best weights on validation trajectories out of the dataset are kept."""
    batch = min(DescentSettings.batch, len(dataset))
    settings = FitSettings(
        optimizer=choice.optimizer,
        epochs=ITERATIONS if choice.optimizer == "lm" else max(20, STEPS * batch // len(dataset)),
        objective=Objective(weight_decay=choice.weight_decay),
        descent=DescentSettings(learning_rate=choice.learning_rate),
    )
    head = FRICTION if friction else None
    return fit(dataset, network(model, choice.width), settings, friction=head, key=jax.random.key(seed))


def best_of(model: str, dataset: Dataset, choices: Iterable[Choice], *, seed: int) -> tuple[InverseDynamics, Choice]:
    """A network fitted with each choice: the one that the validation trajectories like best, and its choice."""
    tried = [(train(model, dataset, choice, seed=seed), choice) for choice in choices]
    result, choice = min(tried, key=lambda one: one[0].validation.torque.nmse_mean)
    return result.model, choice


def fitted(model: str, dataset: Dataset, *, task: Task, believed: Arm, seed: int) -> InverseDynamics:
    """A model of that name, fitted to a dataset; `believed` gives the kinematics to those who need them."""
    name, _, extra = model.partition("-")
    if name in ("delan", "feedforward"):
        return train(name, dataset, CHOSEN[task, name], seed=seed, friction=extra == "friction").model
    if name == "chain":
        head = FRICTION if extra == "friction" else None
        settings = FitSettings(epochs=ITERATIONS)
        return fit(dataset, LagrangianChainSettings(), settings, friction=head, key=jax.random.key(seed)).model
    if name == "identified":
        settings = IdentifySettings() if extra == "friction" else IdentifySettings(friction=(), armature=False)
        return identify(dataset, believed.urdf(), settings).model
    if model == "newton-euler":
        return RigidBody.from_urdf(believed.urdf())
    raise SettingsError(f"there is no model {model!r} to fit; there are {', '.join(LOOKS)}")
