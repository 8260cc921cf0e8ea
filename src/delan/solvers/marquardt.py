"""Least squares for weights of which some must not be negative, from the normal equations.

Levenberg–Marquardt for models of a few hundred weights: dense, with Marquardt scaling and Nielsen
damping.

Weights in which the torque is linear (`LinearWeights`) are not searched but solved for, bounds
included, at every point that the search tries: variable projection, in the approximation of Kaufman
(1975), whose step is that of the joint normal equations with the linear block left undamped.

Call it inside `jax.enable_x64(True)`: the normal equations need float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int

from ..errors import SettingsError
from ..models.dynamics import InverseDynamics, LinearWeights, trainable
from .loss import Data, Objective, Scale, decaying, loss, residual, tie

RIDGE = 1e-10
"""Added to the diagonal of the scaled normal equations, so that columns that say the same share the
weight.
"""
ALL_AT_ONCE = 10
"""So many exchanges may move all offenders; then one at a time, which is slow but cannot run in
circles.
"""


class _Exchange(NamedTuple):
    free: Bool[Array, " weights"]
    wrong: Bool[Array, " weights"]
    weights: Float[Array, " weights"]
    exchanges: Int[Array, ""]


def solve_bounded(
    curvature: Float[Array, "weights weights"],
    gradient: Float[Array, " weights"],
    bounded: Bool[Array, " weights"],
) -> Float[Array, " weights"]:
    """The w that minimises ½ wᵀ A w + bᵀ w with w ≥ 0 where `bounded`, by block principal pivoting.

    A weight with no curvature at all, whose column is zero, becomes zero.
    """
    size = jnp.sqrt(jnp.diag(curvature))
    size = jnp.where(size > 0, size, 1)
    scaled = curvature / (size[:, None] * size[None]) + RIDGE * jnp.eye(
        len(size), dtype=curvature.dtype
    )
    scaled = jnp.where(jnp.eye(len(size), dtype=bool), jnp.maximum(scaled, RIDGE), scaled)
    slope = gradient / size
    order = jnp.arange(len(size))

    def solve(free: Array) -> tuple[Array, Array]:
        kept = free[:, None] & free[None]
        matrix = jnp.where(kept, scaled, jnp.eye(len(size), dtype=scaled.dtype))
        weights = jnp.where(free, jnp.linalg.solve(matrix, jnp.where(free, -slope, 0)), 0)
        pull = scaled @ weights + slope
        return weights, bounded & jnp.where(free, weights < 0, pull < 0)

    def exchange(state: _Exchange) -> _Exchange:
        last = order == jnp.max(jnp.where(state.wrong, order, -1))
        moved = jnp.where(state.exchanges < ALL_AT_ONCE, state.wrong, last)
        free = state.free ^ moved
        weights, wrong = solve(free)
        return _Exchange(free, wrong, weights, state.exchanges + 1)

    free = jnp.ones(len(size), dtype=bool)
    weights, wrong = solve(free)
    start = _Exchange(free, wrong, weights, jnp.asarray(0))
    end = jax.lax.while_loop(
        lambda s: jnp.any(s.wrong) & (s.exchanges < ALL_AT_ONCE + 5 * len(size)), exchange, start
    )
    return jnp.where(bounded, jnp.maximum(end.weights, 0), end.weights) / size


LEAST_DAMPING = 1e-10
"""The damping of weights that are solved for, relative to their curvature: enough to keep the
equations solvable.
"""


@dataclass(frozen=True)
class MarquardtSettings:
    """How Levenberg–Marquardt steps.

    Attributes:
        damping: λ at the start, relative to the curvature of each weight.
        chunk: samples whose Jacobian is held in memory at once.
        trials: how often the damping may grow in search of a step that lowers the loss.
    """

    damping: float = 0.1
    chunk: int = 256
    trials: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.damping < float("inf"):
            raise SettingsError(f"damping must be positive and finite, got {self.damping}")
        if self.chunk < 1 or self.trials < 1:
            raise SettingsError(
                f"chunk and trials must be at least 1, got chunk={self.chunk} and trials={self.trials}"
            )


class MarquardtState(eqx.Module):
    """Everything the method carries from one iteration to the next."""

    model: Any
    damping: Float[Array, ""]
    scaling: Float[Array, " weights"]
    stalled: Bool[Array, ""]


class _Trial(NamedTuple):
    """A step that was tried: where it led, the loss there, and the damping to go on with."""

    weights: Float[Array, " weights"]
    loss: Float[Array, ""]
    damping: Float[Array, ""]
    growth: Float[Array, ""]
    tried: Array
    accepted: Bool[Array, ""]


def init(model: InverseDynamics, settings: MarquardtSettings | None = None) -> MarquardtState:
    """The state before the first iteration."""
    settings = settings or MarquardtSettings()
    weights, _ = ravel_pytree(trainable(model)[0])
    zero = jnp.zeros_like(weights)
    return MarquardtState(
        model, jnp.full_like(weights[0], settings.damping), zero, jnp.asarray(False)
    )


@eqx.filter_jit
def update(
    state: MarquardtState,
    samples: Data,
    scale: Scale,
    objective: Objective,
    settings: MarquardtSettings,
) -> tuple[MarquardtState, Float[Array, ""]]:
    """One iteration: linearise once, then try steps under growing damping until one lowers the
    loss.

    Gives the loss after the step. `stalled` is set when no trial lowered it: a minimum to machine
    precision.
    """
    tree, fixed = trainable(state.model)
    weights, unravel = ravel_pytree(tree)

    def model_of(weights: Float[Array, " weights"]) -> Any:
        return eqx.combine(unravel(weights), fixed)

    linear, bounded = _linear(tree)

    def loss_of(weights: Float[Array, " weights"]) -> Float[Array, ""]:
        return loss(model_of(weights), samples, scale, objective)

    def solved(weights: Float[Array, " weights"]) -> Float[Array, " weights"]:
        """The weights with the linear ones at their best."""
        if not linear.any():
            return weights
        at = np.flatnonzero(linear)
        free = jnp.zeros_like(weights, shape=at.shape)
        slope, bend = _normal_equations(
            lambda part: model_of(weights.at[at].set(part)),
            free,
            samples,
            scale,
            objective,
            settings.chunk,
        )
        return weights.at[at].set(solve_bounded(bend, slope, jnp.asarray(bounded[at])))

    weights = solved(weights)
    gradient, curvature = _normal_equations(
        model_of, weights, samples, scale, objective, settings.chunk
    )
    extra, slope_of_extra = (
        tie(state.model, scale),
        jax.jacrev(lambda w: tie(model_of(w), scale))(weights),
    )
    gradient += slope_of_extra.T @ extra
    curvature += slope_of_extra.T @ slope_of_extra
    decay, _ = ravel_pytree(jax.tree.map(jnp.full_like, tree, decaying(tree)))
    gradient += objective.weight_decay * decay * weights
    curvature += objective.weight_decay * jnp.diag(decay)
    scaling = jnp.maximum(state.scaling / 2, jnp.diag(curvature))
    scaling = jnp.maximum(scaling, 1e-6 * jnp.max(scaling))
    unit = jnp.sqrt(scaling)
    before = loss_of(weights)
    resting = linear & bounded & (weights <= 0)  # at their bound they take no part in the step
    gradient = jnp.where(resting, 0, gradient)
    curvature = jnp.where(
        resting[:, None] | resting[None], jnp.diag(jnp.diag(curvature)), curvature
    )

    def attempt(trial: _Trial) -> _Trial:
        damping = jnp.where(linear, LEAST_DAMPING, trial.damping)
        step = (
            -cho_solve(
                cho_factor(curvature / (unit[:, None] * unit[None]) + jnp.diag(damping)),
                gradient / unit,
            )
            / unit
        )
        after = solved(weights + step)
        value = loss_of(after)
        predicted = -2 * gradient @ step - step @ curvature @ step
        ratio = (before - value) / predicted
        good = (value < before) & jnp.all(jnp.isfinite(step)) & jnp.isfinite(value)
        shrunk = trial.damping * jnp.maximum(1 / 5, 1 - (2 * ratio - 1) ** 3)
        return _Trial(
            weights=jnp.where(good, after, weights),
            loss=jnp.where(good, value, before),
            damping=jnp.where(good, shrunk, trial.damping * trial.growth),
            growth=trial.growth * 2,
            tried=trial.tried + 1,
            accepted=good,
        )

    start = _Trial(
        weights, before, state.damping, jnp.full_like(before, 2), jnp.asarray(0), jnp.asarray(False)
    )
    end = jax.lax.while_loop(
        lambda trial: ~trial.accepted & (trial.tried < settings.trials), attempt, start
    )
    return MarquardtState(model_of(end.weights), end.damping, scaling, ~end.accepted), end.loss


def _linear(weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which entries of the flat weights are solved for, and which of those must not be negative."""
    nodes = jax.tree.leaves(weights, is_leaf=lambda node: isinstance(node, LinearWeights))
    linear = [np.full(_size(node), isinstance(node, LinearWeights)) for node in nodes]
    bounded = [
        np.array(n.bounded) if isinstance(n, LinearWeights) else np.zeros(n.size, dtype=bool)
        for n in nodes
    ]
    return np.concatenate(linear), np.concatenate(bounded)


def _size(node: Any) -> int:
    return node.value.size if isinstance(node, LinearWeights) else node.size


def _normal_equations(
    model_of: Callable[[Array], Any],
    weights: Float[Array, " weights"],
    samples: Data,
    scale: Scale,
    objective: Objective,
    chunk: int,
) -> tuple[Float[Array, " weights"], Float[Array, "weights weights"]]:
    """Jᵀr and JᵀJ of the mean squared residual, summed over chunks so that the whole Jacobian is
    never held.
    """
    count = len(samples)
    chunk = min(chunk, count)
    chunks = -(-count // chunk)
    padded = jax.tree.map(lambda c: jnp.resize(c, (chunks, chunk, *c.shape[1:])), samples)
    share = jnp.where(jnp.arange(chunks * chunk) < count, 1 / count, 0.0).reshape(chunks, chunk)

    def error(weights: Array, sample: Data) -> Array:
        return residual(model_of(weights), sample, scale, objective)

    def add(
        total: tuple[Array, Array], part: tuple[Data, Array]
    ) -> tuple[tuple[Array, Array], None]:
        rows, row_share = part
        jacobian = jax.vmap(jax.jacrev(error), in_axes=(None, 0))(weights, rows)
        value = jax.vmap(error, in_axes=(None, 0))(weights, rows)
        root = jnp.sqrt(row_share)[:, None]
        flat = (root[:, :, None] * jacobian).reshape(-1, weights.size)
        return (total[0] + flat.T @ (root * value).ravel(), total[1] + flat.T @ flat), None

    zero = (jnp.zeros_like(weights), jnp.zeros_like(weights, shape=(weights.size, weights.size)))
    total, _ = jax.lax.scan(add, zero, (padded, share))
    return total
