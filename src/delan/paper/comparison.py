"""The models that experiments compare: their style in figures, and how each is fitted."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import jax

from ..errors import SettingsError
from ..identification.identify import IdentifySettings, identify
from ..joints import Dataset
from ..learning.model_fit import fit_model
from ..learning.study import Study, TrainingResult
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import InverseDynamics
from ..models.feed_forward import FeedForwardSettings
from ..models.friction import FrictionSettings
from ..models.network import LagrangianNetworkSettings
from ..models.rigid_body import RigidBody
from ..robots.description import Arm
from ..solvers.adam import DescentSettings
from ..solvers.loss import Objective
from ..solvers.settings import TrainingSettings

Task = Literal["letters", "cosines"]


@dataclass(frozen=True)
class PlotStyle:
    """Label and style of a model in figures; `ours` marks models that are not in the paper."""

    label: str
    colour: str
    marker: str
    ours: bool = False

    @property
    def line(self) -> str:
        return "--" if self.ours else "-"


# The colours, after Okabe and Ito, can be told apart without seeing red and green.
STYLES: dict[str, PlotStyle] = {
    "delan": PlotStyle("DeLaN", "#0072b2", "o"),
    "feedforward": PlotStyle("feed-forward network", "#d55e00", "s"),
    "identified": PlotStyle("identification", "#009e73", "^"),
    "newton-euler": PlotStyle("Newton–Euler", "#1f2933", "v"),
    "analytic": PlotStyle("analytic model", "#1f2933", "v"),
    "feedforward-adam": PlotStyle("feed-forward network, Adam", "#e69f00", "s"),
    "delan-adam": PlotStyle("DeLaN, Adam", "#56b4e9", "o"),
    "none": PlotStyle("PD alone", "#8a94a0", "x"),
    "chain": PlotStyle("chain (not in the paper)", "#b03a78", "D", ours=True),
    "delan-friction": PlotStyle("DeLaN + friction (not in the paper)", "#56b4e9", "p", ours=True),
    "identified-friction": PlotStyle(
        "identification + friction (not in the paper)", "#7fbf9f", "^", ours=True
    ),
    "chain-friction": PlotStyle("chain + friction (not in the paper)", "#e0a0c4", "D", ours=True),
}

# Added to a rigid model of an arm with friction.
FRICTION = FrictionSettings(terms=("armature", "viscous", "coulomb", "offset"))


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
    TrainingChoice("adam", 64),
    TrainingChoice("adam", 64, weight_decay=1e-5),
    TrainingChoice("adam", 64, weight_decay=1e-4),
    TrainingChoice("adam", 64, learning_rate=1e-3),
)

# The best candidates on the validation motions of `delan reproduce tuning`; see its table.
CHOSEN: dict[tuple[Task, str], TrainingChoice] = {
    ("letters", "delan"): TrainingChoice("lm", 16, weight_decay=1e-5),
    ("letters", "feedforward"): TrainingChoice("lm", 16, weight_decay=1e-3),
    ("cosines", "delan"): TrainingChoice("lm", 16, weight_decay=1e-5),
    ("cosines", "feedforward"): TrainingChoice("lm", 16, weight_decay=1e-3),
}

# Largest number of Levenberg–Marquardt iterations; training stops earlier when validation does not
# improve.
ITERATIONS = 120
# Largest number of gradient steps of Adam.
STEPS = 6_000


def train(
    model: str, dataset: Dataset, choice: TrainingChoice, *, seed: int, friction: bool = False
) -> TrainingResult:
    """Train a network; the weights with the lowest error on validation trajectories are kept."""
    network = FeedForwardSettings(width=choice.width)
    if model == "delan":
        network = LagrangianNetworkSettings(width=choice.width)
    epochs = ITERATIONS
    if choice.optimizer == "adam":
        batch = min(DescentSettings.batch, len(dataset))
        epochs = max(20, STEPS * batch // len(dataset))
    settings = TrainingSettings(
        optimizer=choice.optimizer,
        epochs=epochs,
        objective=Objective(weight_decay=choice.weight_decay),
        descent=DescentSettings(learning_rate=choice.learning_rate),
    )
    head = FRICTION if friction else None
    return fit_model(Study.of(dataset, settings, friction=head, key=jax.random.key(seed)), network)


def best_of(
    model: str, dataset: Dataset, choices: Iterable[TrainingChoice], *, seed: int
) -> tuple[InverseDynamics, TrainingChoice]:
    """Train a network with each choice; return the one with the lowest validation error."""
    trained = [(train(model, dataset, choice, seed=seed), choice) for choice in choices]
    result, choice = min(trained, key=lambda pair: pair[0].validation.torque.nmse_mean)
    return result.model, choice


def fitted(
    model: str, dataset: Dataset, *, task: Task, believed: Arm, seed: int
) -> InverseDynamics:
    """Fit the model of this name; `believed` is the arm that models with given kinematics use."""
    name, _, extra = model.partition("-")
    friction = extra == "friction"
    if name in ("delan", "feedforward"):
        return train(name, dataset, CHOSEN[task, name], seed=seed, friction=friction).model
    if name == "chain":
        settings = TrainingSettings(epochs=ITERATIONS)
        head = FRICTION if friction else None
        key = jax.random.key(seed)
        return fit_model(
            Study.of(dataset, settings, friction=head, key=key), LagrangianChainSettings()
        ).model
    if name == "identified":
        settings = IdentifySettings()
        if not friction:
            settings = IdentifySettings(friction=(), armature=False)
        return identify(dataset, believed.urdf(), settings).model
    if model == "newton-euler":
        return RigidBody.from_urdf(believed.urdf())
    raise SettingsError(f"unknown model {model!r}; choose one of {', '.join(STYLES)}")
