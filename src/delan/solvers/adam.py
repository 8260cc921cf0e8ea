"""Stochastic gradient descent by Adam, for fits and for online learners alike."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import SettingsError
from ..models.dynamics import InverseDynamics, projected, trainable
from .loss import Data, Objective, Scale, data_loss, loss


@dataclass(frozen=True)
class DescentSettings:
    """How Adam steps.

    Attributes:
        batch: samples in a minibatch.
        learning_rate: the peak.
        rate: `cosine` follows a cosine from the peak down to zero; `constant` stays at the peak.
        warm_up: share of the run that the learning rate takes to reach its peak.
        clip: largest norm of a gradient; None: gradients are taken as they are.
    """

    batch: int = 512
    learning_rate: float = 3e-3
    warm_up: float = 0.02
    clip: float | None = 1.0
    rate: Literal["cosine", "constant"] = "cosine"

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise SettingsError(f"a minibatch needs at least 1 sample, got batch={self.batch}")
        if not 0 <= self.warm_up < 1:
            raise SettingsError(f"warm_up is a share of the run in [0, 1), got {self.warm_up}")
        if self.rate not in ("cosine", "constant"):
            raise SettingsError(f"unknown rate {self.rate!r}; known: cosine, constant")
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {value}")

    def schedule(self, progress: float) -> float:
        """Return the learning rate at a share `progress` of the run, in [0, 1]."""
        # The offset of 1e-3 makes the first rate positive, and allows a run without warm-up.
        rise = min(1.0, (progress + 1e-3) / (self.warm_up + 1e-3))
        if self.rate == "constant":
            return self.learning_rate * rise
        return self.learning_rate * rise * 0.5 * (1 + float(np.cos(np.pi * min(progress, 1.0))))


class LearnerState(eqx.Module):
    """Everything a learner carries from one update to the next."""

    model: Any
    optimizer: optax.OptState
    learning_rate: Float[Array, ""]
    scale: Scale
    objective: Objective = eqx.field(static=True)
    settings: DescentSettings = eqx.field(static=True)


class EpochsReport(eqx.Module):
    """Mean training loss of the last epoch, and the data loss on validation after it."""

    training: Float[Array, ""]
    validation: Float[Array, ""]


def _adam(settings: DescentSettings) -> optax.GradientTransformation:
    if settings.clip is None:
        return optax.scale_by_adam()
    return optax.chain(optax.clip_by_global_norm(settings.clip), optax.scale_by_adam())


def init(
    model: InverseDynamics,
    scale: Scale,
    objective: Objective | None = None,
    settings: DescentSettings | None = None,
) -> LearnerState:
    """Return a learner before its first update, at the peak learning rate."""
    settings = settings or DescentSettings()
    weights, _ = trainable(model)
    return LearnerState(
        model=model,
        optimizer=_adam(settings).init(weights),
        learning_rate=jnp.full_like(scale.power, settings.learning_rate),
        scale=scale,
        # The weight decay is in the scale: here it would ask for a program of its own.
        objective=replace(objective or Objective(), weight_decay=0.0),
        settings=settings,
    )


@eqx.filter_jit
def update(state: LearnerState, batch: Data) -> tuple[LearnerState, Float[Array, ""]]:
    """Return the learner after one gradient step on a minibatch, and the loss before it."""
    weights, fixed = trainable(state.model)

    def objective(weights: Any) -> Float[Array, ""]:
        return loss(eqx.combine(weights, fixed), batch, state.scale, state.objective)

    value, gradient = jax.value_and_grad(objective)(weights)
    direction, optimizer = _adam(state.settings).update(gradient, state.optimizer)
    weights = jax.tree.map(lambda w, d: w - state.learning_rate * d, weights, direction)
    # A step may leave the bounds of friction; its weights return to them at once.
    model = projected(eqx.combine(weights, fixed))
    after = eqx.tree_at(lambda state: (state.model, state.optimizer), state, (model, optimizer))
    return after, value


@eqx.filter_jit
def run_epochs(
    state: LearnerState,
    training: Data,
    validation: Data,
    learning_rates: Float[Array, " epochs"],
    key: PRNGKeyArray,
) -> tuple[LearnerState, EpochsReport]:
    """Run one epoch per learning rate, each over shuffled minibatches, compiled as one call."""
    count = len(training)
    size = min(state.settings.batch, count)
    batches = count // size
    dynamic, static = eqx.partition(state, eqx.is_array)

    def step(dynamic: Any, rows: Array) -> tuple[Any, Array]:
        batch = jax.tree.map(lambda column: column[rows], training)
        after, value = update(eqx.combine(dynamic, static), batch)
        return eqx.partition(after, eqx.is_array)[0], value

    def epoch(dynamic: Any, drive: tuple[Array, Array]) -> tuple[Any, Array]:
        rate, epoch_key = drive
        dynamic = eqx.tree_at(lambda state: state.learning_rate, dynamic, rate)
        # Samples that do not fill a minibatch sit out; the next epoch leaves out others.
        order = jax.random.permutation(epoch_key, count)[: batches * size].reshape(batches, size)
        dynamic, values = jax.lax.scan(step, dynamic, order)
        return dynamic, jnp.mean(values)

    keys = jax.random.split(key, len(learning_rates))
    dynamic, means = jax.lax.scan(epoch, dynamic, (learning_rates, keys))
    state = eqx.combine(dynamic, static)
    return state, EpochsReport(
        training=means[-1],
        validation=data_loss(state.model, validation, state.scale, state.objective),
    )
