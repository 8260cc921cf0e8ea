"""The plan of a fit: the shape of the model, the method that trains it, and its stages."""

import threading
import time
from dataclasses import dataclass, replace
from typing import Literal, get_args

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import DataError, SettingsError
from ..joints import Dataset
from ..logs.split import generator
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import Normalisation, on_device
from ..models.friction import Friction, FrictionSettings
from ..models.friction_memory import remembered
from ..models.model import Architecture, Blueprint, Model
from ..models.networks import FeedForwardSettings, LagrangianNetworkSettings
from .loss import Data, Objective, Samples, Scale, Windows
from .pair import Seat
from .stages import DescentStage, MarquardtStage, StartsStage
from .training import Stage, TrainingSettings

ModelName = Literal["delan", "chain", "feedforward"]
ModelChoice = ModelName | Architecture

# Steps of Adam if neither epochs nor seconds are given, and the least epochs they make.
GRADIENT_STEPS = 20_000
LEAST_EPOCHS = 20
# Adam is validated at least this many times in a fit, ...
VALIDATIONS = 40
# ... and at the latest after this many samples, a fraction of a second.
CHUNK_SAMPLES = 60_000
# Iterations of Levenberg–Marquardt if neither epochs nor seconds are given; patience is a share of
# them.
ITERATIONS = 300
# In less time [s] the second-order method is not worth its compilation.
LEAST_SECONDS = 15.0
# Epochs of Adam before Levenberg–Marquardt, which needs a start in the right valley, and epochs
# between their validations.
WARM_UP_EPOCHS = 100
WARM_UP_CHUNK = 10
# Up to this many joints, a network of this width suffices.
SMALL_DOF = 3
SMALL_WIDTH = 16
# Up to this many weights, the dense second-order method is faster than Adam.
SMALL_WEIGHTS = 600
# The most work of an iteration of Levenberg–Marquardt, samples × joints × weights², that is worth
# waiting for: seconds on one core.
SMALL_WORK = 3e10
# Most samples of a filtered log that a chain is polished on: its errors are not noise, which more
# samples would average. Windows hold more of the motion each.
MOST_PREPARED = 2000
MOST_WINDOWS = 400
# The share of `seconds` that the search for a chain may take.
SEARCH_SHARE = 0.6
# Iterations without progress after which a chain has converged; it converges fast or not at all.
CHAIN_PATIENCE = 25.0
# The width of the Coulomb step and the Stribeck speed at the start of a fit, relative to a motor's
# mean speed.
WIDE = 0.1
STRIBECK_WIDE = 0.3


@dataclass(frozen=True)
class Plan:
    """The model to build and the method that trains it, with the reason for the choice."""

    network: Architecture
    optimizer: Literal["adam", "lm"]
    reason: str
    friction: FrictionSettings | None = None

    @property
    def is_chain(self) -> bool:
        """Whether the model is a chain, which needs many starts."""
        return isinstance(self.network, LagrangianChainSettings)


def plan(
    model: ModelChoice,
    dataset: Dataset,
    settings: TrainingSettings,
    friction: FrictionSettings | None = None,
) -> Plan:
    """Choose size and method: Levenberg–Marquardt for models that are small enough, else Adam."""
    dataset = dataset.samples
    network = _architecture(model, dataset, settings)
    _require_trainable(network, settings, friction)
    if settings.objective.loss is not None:
        return _by_own_loss(network, settings, friction)
    weights = _count_weights(network, dataset)
    size = f"{weights} weights, {len(dataset)} samples"
    if isinstance(network, LagrangianChainSettings):
        if len(dataset) * dataset.dof < weights:
            least = -(-weights // dataset.dof)
            raise DataError(
                dataset.source,
                f"{len(dataset)} samples of {dataset.dof} joints cannot tell the {weights} numbers "
                f"of a chain; give at least {least}, better some hundred, of varied motion",
            )
        method = "adam" if settings.optimizer == "adam" else "lm"
        return Plan(network, method, f"{size}: a chain", friction)
    if settings.optimizer != "auto":
        return Plan(network, settings.optimizer, f"asked for; {weights} weights", friction)
    hurried = _is_hurried(settings)
    work = len(dataset) * dataset.dof * weights**2
    if hurried and dataset.dof <= SMALL_DOF:
        reason = f"{size}: {settings.seconds:g} s are too few for the second-order method"
        return Plan(network, "adam", reason, friction)
    if weights <= SMALL_WEIGHTS and work <= SMALL_WORK and not hurried:
        reason = f"{size}: few enough for the dense second-order method"
        return Plan(network, "lm", reason, friction)
    reason = f"{size}: too many for the dense second-order method"
    return Plan(network, "adam", reason, friction)


def _require_trainable(
    network: Architecture, settings: TrainingSettings, friction: FrictionSettings | None
) -> None:
    """Refuse friction beside a network that has it, and windows for one without a Lagrangian."""
    if isinstance(network, FeedForwardSettings):
        if friction is not None:
            raise SettingsError(
                "a feed-forward network learns friction with all the rest; leave friction out"
            )
        if settings.accelerations == "none":
            raise SettingsError(
                "a feed-forward network has no Lagrangian to do without accelerations; "
                "give it filtered ones"
            )
    is_vector = isinstance(network, LagrangianNetworkSettings) and network.gravity == "vector"
    if is_vector and settings.accelerations == "none":
        raise SettingsError(
            "gravity as a vector has no Lagrangian to do without accelerations; use "
            "gravity='potential', or filtered accelerations"
        )


def _by_own_loss(
    network: Architecture, settings: TrainingSettings, friction: FrictionSettings | None
) -> Plan:
    """Return Adam, the only method that takes any loss."""
    if isinstance(network, LagrangianChainSettings):
        raise SettingsError(
            "a chain is searched for by squared errors; a loss of your own is for networks"
        )
    if settings.optimizer == "lm":
        raise SettingsError(
            "Levenberg–Marquardt needs squared errors; use optimizer='adam' for a loss of your own"
        )
    return Plan(network, "adam", "a loss of one's own", friction)


def _is_hurried(settings: TrainingSettings) -> bool:
    """Return whether there is no time for the second-order method, and nobody asked for it."""
    if settings.optimizer != "auto" or settings.seconds is None:
        return False
    return settings.seconds < LEAST_SECONDS


def _architecture(model: ModelChoice, dataset: Dataset, settings: TrainingSettings) -> Architecture:
    """Return the architecture of a model by name, in the size that its method can train."""
    if isinstance(model, Architecture):
        return model
    if not isinstance(model, str):
        raise SettingsError(
            "model must be 'delan', 'chain', 'feedforward' or the settings of one of them, "
            f"got {type(model).__name__}; what steers the training goes into settings="
        )
    if model not in get_args(ModelName):
        raise SettingsError(f"unknown model {model!r}; known: {', '.join(get_args(ModelName))}")
    if model == "chain":
        return LagrangianChainSettings()
    network = {"delan": LagrangianNetworkSettings, "feedforward": FeedForwardSettings}[model]
    by_adam = settings.optimizer == "adam" or settings.objective.loss is not None
    by_adam = by_adam or _is_hurried(settings)
    if by_adam or dataset.dof > SMALL_DOF:
        return network()
    return network(width=SMALL_WIDTH)


def build(
    network: Architecture,
    dataset: Dataset,
    key: PRNGKeyArray,
    friction: FrictionSettings | None = None,
) -> Model:
    """Return a model of the planned shape with random weights, in the units of the dataset."""
    blueprint = Blueprint.named(dataset.joints, network, friction)
    model = _built(blueprint, Normalisation.of(dataset), key)
    if friction is None:
        return model
    return eqx.tree_at(lambda model: model.friction, model, head(friction, dataset))


@eqx.filter_jit
def _built(blueprint: Blueprint, normalisation: Normalisation, key: PRNGKeyArray) -> Model:
    """Return a model with random weights: one program draws those of all layers."""
    return blueprint.build(normalisation, key=key)


def head(settings: FrictionSettings, dataset: Dataset) -> Friction:
    """Return friction whose steps at standstill start as wide as the data can show.

    From there a fit finds the way to narrow steps, while one that starts too narrow has no sample
    on the step.
    """
    friction = Friction(dataset.joints, settings)
    speed = np.abs(dataset.samples.qd @ friction.transmission.T).mean(axis=0)
    width = on_device(np.log(np.maximum(settings.width, WIDE * speed)))
    stribeck_speed = on_device(np.log(np.maximum(settings.stribeck_speed, STRIBECK_WIDE * speed)))
    return eqx.tree_at(
        lambda friction: (friction.log_width, friction.log_stribeck_speed),
        friction,
        (width, stribeck_speed),
    )


def _count_weights(
    network: Architecture, dataset: Dataset, friction: FrictionSettings | None = None
) -> int:
    shape = Blueprint.named(dataset.joints, network, friction).shape
    # A fit does not change a normalisation, so that its numbers are not weights.
    leaves = jax.tree.leaves(shape, is_leaf=lambda node: isinstance(node, Normalisation))
    return sum(leaf.size for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct))


def samples(dataset: Dataset, friction: FrictionSettings | None) -> Samples:
    """Return the samples of a dataset with the memory of such friction along its trajectories."""
    if friction is None:
        return Samples.of(dataset)
    return Samples.of(dataset, remembered(Friction(dataset.joints, friction), dataset))


def _fit_data(
    dataset: Dataset, friction: FrictionSettings | None, settings: TrainingSettings
) -> Data:
    """Return the samples of a dataset, or windows on its motion."""
    if settings.accelerations == "given":
        return samples(dataset, friction)
    return Windows.of(dataset, friction)


def stages(
    chosen: Plan,
    training: Dataset,
    validation: Dataset,
    settings: TrainingSettings,
    *,
    key: PRNGKeyArray,
    stop: threading.Event | None = None,
    partner: Seat | None = None,
) -> list[Stage]:
    """Return the stages of a fit."""
    data = (
        _fit_data(training, chosen.friction, settings),
        _fit_data(validation, chosen.friction, settings),
        Scale.of(training, settings.objective),
        settings.objective,
    )
    if chosen.optimizer == "adam":
        return [descent_stage(data, settings)]
    iterations = settings.epochs
    if iterations is None and not settings.by_clock:
        iterations = ITERATIONS
    last = MarquardtStage(
        *data, settings.marquardt, epochs=iterations, patience=settings.patience * ITERATIONS
    )
    if not chosen.is_chain:
        warm_up = DescentStage(
            *data,
            settings.descent,
            chunk=WARM_UP_CHUNK,
            epochs=WARM_UP_EPOCHS,
            patience=float("inf"),
        )
        return [warm_up, last]
    last = replace(last, training=_thinned(chosen, training, data[0], key), patience=CHAIN_PATIENCE)
    until = float("inf")
    if settings.seconds is not None:
        until = time.perf_counter() + SEARCH_SHARE * settings.seconds
    search = StartsStage(
        last.training,
        *data[1:],
        settings.marquardt,
        build=lambda key: build(chosen.network, training, key, chosen.friction),
        epochs=settings.searches,
        until=until,
        stop=stop,
        partner=partner,
    )
    return [search, last]


def descent_stage(
    data: tuple[Data, Data, Scale, Objective], settings: TrainingSettings
) -> DescentStage:
    """Return Adam for as long as the settings say, or until it stops improving."""
    count = len(data[0])
    chunk = CHUNK_SAMPLES // count
    epochs = None
    patience = float("inf")
    if not settings.by_clock:
        batch = min(settings.descent.batch, count)
        epochs = settings.epochs or max(LEAST_EPOCHS, GRADIENT_STEPS * batch // count)
        chunk = min(chunk, -(-epochs // VALIDATIONS))
        patience = settings.patience * epochs
    return DescentStage(
        *data, settings.descent, chunk=max(1, chunk), epochs=epochs, patience=patience
    )


def _thinned(chosen: Plan, training: Dataset, data: Data, key: PRNGKeyArray) -> Data:
    """Return random samples or windows, as many as an iteration on them is worth waiting for."""
    weights = _count_weights(chosen.network, training, chosen.friction)
    most = max(1, int(SMALL_WORK / (training.dof * weights**2)))
    if isinstance(data, Windows):
        most = min(most, MOST_WINDOWS)
    elif training.counted is not None:
        most = min(most, MOST_PREPARED)
    if len(data) <= most:
        return data
    return data.rows(np.sort(generator(key).permutation(len(data))[:most]))
