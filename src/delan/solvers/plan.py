"""What a fit builds and by which steps it trains it: the shape of the model, the method, the
stages.
"""

import threading
import time
from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import DataError, SettingsError
from ..joints import Dataset
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import Normalisation
from ..models.feed_forward import FeedForwardSettings
from ..models.friction import Friction, FrictionSettings
from ..models.friction_memory import remembered
from ..models.model import Architecture, Blueprint, Model
from ..models.network import LagrangianNetworkSettings
from .loss import Data, Samples, Scale
from .settings import TrainingSettings
from .stages import DescentStage, MarquardtStage, Stage, StartsStage
from .windows import Windows

ModelChoice = Literal["delan", "chain", "feedforward"] | Architecture

GRADIENT_STEPS = 20_000
"""How long Adam runs when neither epochs nor seconds are given."""
ITERATIONS = 300
"""How long Levenberg–Marquardt runs when neither epochs nor seconds are given; patience is a share
of it.
"""
LEAST_SECONDS = 15.0
"""Less time than this and the second-order method is not worth its compilation."""
CHUNK_SAMPLES = 60_000
"""Samples between two validations of Adam: a fraction of a second."""
WARM_UP_EPOCHS = 100
"""Epochs of Adam before Levenberg–Marquardt, which wants a start in the right valley."""
SMALL_DOF, SMALL_WIDTH, SMALL_WEIGHTS = 3, 16, 600
"""Up to so many joints a network of so many units suffices; up to so many weights the dense method
is the faster.
"""
SMALL_WORK = 3e10
"""The work of a Levenberg–Marquardt iteration, samples × joints × weights², that is still worth
waiting for.
"""
MOST_PREPARED, MOST_WINDOWS = 2000, 400
"""Samples of a filtered log that a chain is polished on, at most: its errors are no noise that more
of them average; and windows, which hold more of the motion each.
"""
ROUNDS = 8
"""Rounds of starts that a chain gets at most; two starts a round."""
SEARCH_SHARE = 0.6
"""The share of `seconds` that the starts of a chain may take."""
WIDE, STRIBECK_WIDE = 0.1, 0.3
"""Where a fit begins the width of the Coulomb step and the Stribeck speed, as shares of a motor's
mean speed.
"""
CHAIN_PATIENCE = 25.0
"""Iterations without progress after which a chain is at its end; it converges fast or not at all.
"""


@dataclass(frozen=True)
class Plan:
    """The model to build and the method to train it, with the reason for the choice."""

    network: Architecture
    optimizer: Literal["adam", "lm"]
    reason: str
    friction: FrictionSettings | None = None


def plan(
    model: ModelChoice,
    dataset: Dataset,
    settings: TrainingSettings,
    friction: FrictionSettings | None = None,
) -> Plan:
    """Size and method: Levenberg–Marquardt where the model is small enough for it, else Adam on a
    wide network.
    """
    chosen = _plan(model, dataset.samples, settings)
    if friction is not None and isinstance(chosen.network, FeedForwardSettings):
        raise SettingsError(
            "a feed-forward network learns friction with all the rest; leave friction out"
        )
    if settings.accelerations == "none" and isinstance(chosen.network, FeedForwardSettings):
        raise SettingsError(
            "a feed-forward network has no Lagrangian to do without accelerations; give it filtered ones"
        )
    return replace(chosen, friction=friction)


def _plan(model: ModelChoice, dataset: Dataset, settings: TrainingSettings) -> Plan:
    hurried = (
        settings.optimizer == "auto"
        and settings.seconds is not None
        and settings.seconds < LEAST_SECONDS
    )
    if isinstance(model, str):
        if model not in ("delan", "chain", "feedforward"):
            raise SettingsError(f"unknown model {model!r}; known: delan, chain, feedforward")
        small = dataset.dof <= SMALL_DOF and settings.optimizer != "adam" and not hurried
        network = _named(model, SMALL_WIDTH if small else None)
    elif isinstance(model, Architecture):
        network = model
    else:
        raise SettingsError(
            "model must be 'delan', 'chain', 'feedforward' or the settings of one of them, "
            f"got {type(model).__name__}; what steers the training goes into settings="
        )
    weights = _count_weights(network, dataset)
    if isinstance(network, LagrangianChainSettings):
        if len(dataset) * dataset.dof < weights:
            least = -(-weights // dataset.dof)
            raise DataError(
                dataset.source,
                f"{len(dataset)} samples of {dataset.dof} joints cannot tell the {weights} numbers of a chain; "
                f"give at least {least}, better some hundred, of varied motion",
            )
        method = "adam" if settings.optimizer == "adam" else "lm"
        return Plan(network, method, f"{weights} weights, {len(dataset)} samples: a chain")
    work = len(dataset) * dataset.dof * weights**2
    if settings.optimizer != "auto":
        return Plan(network, settings.optimizer, f"asked for; {weights} weights")
    size = f"{weights} weights, {len(dataset)} samples"
    if hurried and dataset.dof <= SMALL_DOF:
        return Plan(
            network,
            "adam",
            f"{size}: {settings.seconds:g} s are too few for the second-order method",
        )
    if weights <= SMALL_WEIGHTS and work <= SMALL_WORK and not hurried:
        return Plan(network, "lm", f"{size}: few enough for the dense second-order method")
    return Plan(network, "adam", f"{size}: too many for the dense second-order method")


def _named(model: str, width: int | None) -> Architecture:
    if model == "chain":
        return LagrangianChainSettings()
    network = LagrangianNetworkSettings if model == "delan" else FeedForwardSettings
    return network() if width is None else network(width=width)


def build(
    network: Architecture,
    dataset: Dataset,
    key: PRNGKeyArray,
    friction: FrictionSettings | None = None,
) -> Model:
    """A model of the planned shape with random weights, in the units of the dataset."""
    blueprint = Blueprint.named(dataset.joints, network, friction)
    model = blueprint.build(Normalisation.of(dataset), key=key)
    if friction is None:
        return model
    return eqx.tree_at(lambda model: model.friction, model, head(friction, dataset))


def head(settings: FrictionSettings, dataset: Dataset) -> Friction:
    """Friction whose steps at standstill begin as wide as the data can show: from there a fit
    finds the way to narrow ones, while one that begins too narrow sees no sample on the step.
    """
    made = Friction(dataset.joints, settings)
    speed = np.abs(dataset.samples.qd @ made.transmission.T).mean(axis=0)
    starts = ((settings.width, WIDE), (settings.stribeck_speed, STRIBECK_WIDE))
    wide = tuple(jnp.log(jnp.maximum(least, share * jnp.asarray(speed))) for least, share in starts)
    return eqx.tree_at(lambda one: (one.log_width, one.log_stribeck_speed), made, wide)


def _count_weights(
    network: Architecture, dataset: Dataset, friction: FrictionSettings | None = None
) -> int:
    shape = eqx.filter_eval_shape(lambda: build(network, dataset, jax.random.key(0), friction))
    leaves = jax.tree.leaves(shape, is_leaf=lambda node: isinstance(node, Normalisation))
    return sum(leaf.size for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct))


def stages(
    chosen: Plan,
    training: Dataset,
    validation: Dataset,
    settings: TrainingSettings,
    *,
    key: PRNGKeyArray,
    stop: threading.Event | None = None,
) -> list[Stage]:
    """The steps of the fit."""
    if isinstance(chosen.network, LagrangianChainSettings) and chosen.optimizer == "lm":
        return _chain_stages(chosen, training, validation, settings, key, stop)
    scale = Scale.of(training, settings.objective)
    training_data, validation_data = (
        learned_from(one, chosen.friction, settings) for one in (training, validation)
    )
    data, count = (training_data, validation_data, scale, settings.objective), len(training_data)
    by_clock = settings.seconds is not None and settings.epochs is None
    if chosen.optimizer == "lm":
        epochs = None if by_clock else settings.epochs or ITERATIONS
        warm_up = DescentStage(
            *data, settings.descent, chunk=10, epochs=WARM_UP_EPOCHS, patience=float("inf")
        )
        patience = settings.patience * ITERATIONS
        return [
            warm_up,
            MarquardtStage(*data, settings.marquardt, epochs=epochs, patience=patience),
        ]
    epochs = settings.epochs or max(
        20, GRADIENT_STEPS * min(settings.descent.batch, count) // count
    )
    chunk = max(1, min(CHUNK_SAMPLES // count, -(-epochs // 40)))
    if by_clock:
        chunk, epochs = max(1, CHUNK_SAMPLES // count), None
    patience = float("inf") if epochs is None else settings.patience * epochs
    return [DescentStage(*data, settings.descent, chunk=chunk, epochs=epochs, patience=patience)]


def learned_from(
    dataset: Dataset, friction: FrictionSettings | None, settings: TrainingSettings
) -> Data:
    """What a fit sees of a dataset: its samples, or windows on its motion."""
    return (
        samples(dataset, friction)
        if settings.accelerations == "given"
        else Windows.of(dataset, friction)
    )


def samples(dataset: Dataset, friction: FrictionSettings | None) -> Samples:
    """The samples of a dataset with what friction of this kind remembers along its trajectories."""
    return Samples.of(
        dataset,
        None if friction is None else remembered(Friction(dataset.joints, friction), dataset),
    )


def polish(
    chosen: Plan,
    training: Dataset,
    validation: Dataset,
    settings: TrainingSettings,
    *,
    key: PRNGKeyArray,
) -> MarquardtStage:
    """Levenberg–Marquardt on all samples, or on as many as are worth waiting for."""
    data = learned_from(training, chosen.friction, settings)
    most = max(
        1,
        int(
            SMALL_WORK
            / (training.dof * _count_weights(chosen.network, training, chosen.friction) ** 2)
        ),
    )
    if isinstance(data, Windows):
        most = min(most, MOST_WINDOWS)
    elif training.counted is not None:
        most = min(most, MOST_PREPARED)
    if len(data) > most:
        data = data.rows(np.sort(np.asarray(jax.random.permutation(key, len(data)))[:most]))
    by_clock = settings.seconds is not None and settings.epochs is None
    return MarquardtStage(
        training=data,
        validation=learned_from(validation, chosen.friction, settings),
        scale=Scale.of(training, settings.objective),
        objective=settings.objective,
        settings=settings.marquardt,
        epochs=None if by_clock else settings.epochs or ITERATIONS,
        patience=CHAIN_PATIENCE,
    )


def _chain_stages(
    chosen: Plan,
    training: Dataset,
    validation: Dataset,
    settings: TrainingSettings,
    key: PRNGKeyArray,
    stop: threading.Event | None,
) -> list[Stage]:
    """Starts on a part of the data, and then all of it, or as much as is worth waiting for."""
    last = polish(chosen, training, validation, settings, key=key)
    until = (
        float("inf")
        if settings.seconds is None
        else time.perf_counter() + SEARCH_SHARE * settings.seconds
    )
    search = StartsStage(
        last.training,
        last.validation,
        last.scale,
        settings.objective,
        settings.marquardt,
        build=lambda one: build(chosen.network, training, one, chosen.friction),
        epochs=ROUNDS,
        until=until,
        stop=stop,
    )
    return [search, last]
