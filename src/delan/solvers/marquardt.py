"""Levenberg–Marquardt for models of a few hundred weights.

The method is dense, with Marquardt scaling and Nielsen damping. Weights in which the torque is
linear (`LinearWeights`) are not searched but solved for, bounds included, at every point that the
search tries: variable projection in the approximation of Kaufman (1975), whose step is that of the
joint normal equations with the linear block left undamped.

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

Weights = Float[Array, " weights"]
Curvature = Float[Array, "weights weights"]
Mask = Bool[np.ndarray, " weights"]

# Damping of weights that are solved for, relative to their curvature: just enough to keep the
# equations solvable in float64.
LEAST_DAMPING = 1e-10
# Least scaling of a weight relative to the largest, so that the step of a weight without effect
# stays finite.
LEAST_SCALING = 1e-6
# Added to the diagonal of the scaled equations for bounded weights: equal columns share the weight.
RIDGE = 1e-10
# This many exchanges of the bounded solution move all offenders at once. Later ones move a single
# offender, which is slow but cannot cycle.
ALL_AT_ONCE = 10


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
                "chunk and trials must be at least 1, "
                f"got chunk={self.chunk} and trials={self.trials}"
            )


class MarquardtState(eqx.Module):
    """Everything the method carries from one iteration to the next."""

    model: Any
    damping: Float[Array, ""]
    scaling: Weights
    stalled: Bool[Array, ""]


@dataclass(frozen=True, eq=False)
class _Problem:
    """The loss as a function of flat weights, and which of them are linear and bounded.

    A plain record that lives inside one trace of `update`.
    """

    samples: Data
    scale: Scale
    objective: Objective
    chunk: int
    model_of: Callable[[Weights], Any]
    linear: Mask
    bounded: Mask

    def loss(self, weights: Weights) -> Float[Array, ""]:
        return loss(self.model_of(weights), self.samples, self.scale, self.objective)

    def residual(self, weights: Weights, sample: Data) -> Array:
        return residual(self.model_of(weights), sample, self.scale, self.objective)


class _Quadratic(NamedTuple):
    """The loss near some weights, with the unit in which the step of each weight is damped."""

    weights: Weights
    loss: Float[Array, ""]
    gradient: Weights
    curvature: Curvature
    unit: Weights


class _Trial(NamedTuple):
    """The result of a trial step, and the damping of the next one."""

    weights: Weights
    loss: Float[Array, ""]
    damping: Float[Array, ""]
    growth: Float[Array, ""]
    tried: Array
    accepted: Bool[Array, ""]


def init(model: InverseDynamics, settings: MarquardtSettings | None = None) -> MarquardtState:
    """Return the state before the first iteration."""
    settings = settings or MarquardtSettings()
    weights, _ = ravel_pytree(trainable(model)[0])
    return MarquardtState(
        model=model,
        damping=jnp.full_like(weights[0], settings.damping),
        scaling=jnp.zeros_like(weights),
        stalled=jnp.asarray(False),
    )


@eqx.filter_jit
def update(
    state: MarquardtState,
    samples: Data,
    scale: Scale,
    objective: Objective,
    settings: MarquardtSettings,
) -> tuple[MarquardtState, Float[Array, ""]]:
    """Return the state and the loss after one iteration.

    The residuals are linearised once; steps under growing damping follow until one lowers the loss.
    `stalled` is set when none did: a minimum to machine precision.
    """
    tree, fixed = trainable(state.model)
    weights, unravel = ravel_pytree(tree)
    linear, bounded = _linear_weights(tree)
    problem = _Problem(
        samples=samples,
        scale=scale,
        objective=objective,
        chunk=settings.chunk,
        model_of=lambda weights: eqx.combine(unravel(weights), fixed),
        linear=linear,
        bounded=bounded,
    )
    weights = _with_linear_solved(problem, weights)
    gradient, curvature = _linearised(problem, state.model, tree, weights)
    # Marquardt's scaling forgets large curvatures of the past, by half per iteration.
    scaling = jnp.maximum(state.scaling / 2, jnp.diag(curvature))
    scaling = jnp.maximum(scaling, LEAST_SCALING * jnp.max(scaling))
    before = problem.loss(weights)
    # Linear weights at their bound take no part in the step.
    resting = linear & bounded & (weights <= 0)
    gradient = jnp.where(resting, 0, gradient)
    diagonal = jnp.diag(jnp.diag(curvature))
    curvature = jnp.where(resting[:, None] | resting[None], diagonal, curvature)
    near = _Quadratic(weights, before, gradient, curvature, jnp.sqrt(scaling))
    end = _search(problem, near, state.damping, settings.trials)
    model = problem.model_of(end.weights)
    return MarquardtState(model, end.damping, scaling, ~end.accepted), end.loss


def _linear_weights(tree: Any) -> tuple[Mask, Mask]:
    """Return which flat weights are solved for, and which of those must not be negative."""
    linear = []
    bounded = []
    for node in jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, LinearWeights)):
        if isinstance(node, LinearWeights):
            linear.append(np.ones(node.value.size, dtype=bool))
            bounded.append(np.array(node.bounded, dtype=bool))
        else:
            linear.append(np.zeros(node.size, dtype=bool))
            bounded.append(np.zeros(node.size, dtype=bool))
    return np.concatenate(linear), np.concatenate(bounded)


def _with_linear_solved(problem: _Problem, weights: Weights) -> Weights:
    """Return the weights with the linear ones at the minimum of the data loss."""
    if not problem.linear.any():
        return weights
    at = np.flatnonzero(problem.linear)
    slope, curvature = _normal_equations(
        lambda part, sample: problem.residual(weights.at[at].set(part), sample),
        jnp.zeros_like(weights, shape=at.shape),
        problem.samples,
        problem.chunk,
    )
    solution = solve_bounded(curvature, slope, jnp.asarray(problem.bounded[at]))
    return weights.at[at].set(solution)


def _linearised(
    problem: _Problem, model: Any, tree: Any, weights: Weights
) -> tuple[Weights, Curvature]:
    """Return half the gradient of the loss and half its Gauss–Newton matrix."""
    scale = problem.scale
    gradient, curvature = _normal_equations(
        problem.residual, weights, problem.samples, problem.chunk
    )
    tied = tie(model, scale)
    tied_slope = jax.jacrev(lambda weights: tie(problem.model_of(weights), scale))(weights)
    gradient += tied_slope.T @ tied
    curvature += tied_slope.T @ tied_slope
    decay, _ = ravel_pytree(jax.tree.map(jnp.full_like, tree, decaying(tree)))
    gradient += problem.objective.weight_decay * decay * weights
    curvature += problem.objective.weight_decay * jnp.diag(decay)
    return gradient, curvature


def _normal_equations(
    error: Callable[[Weights, Data], Array], weights: Weights, samples: Data, chunk: int
) -> tuple[Weights, Curvature]:
    """Return Jᵀr and JᵀJ of the mean squared error, summed over chunks of the samples.

    The whole Jacobian is never held in memory.
    """
    count = len(samples)
    chunk = min(chunk, count)
    chunks = -(-count // chunk)
    padded = jax.tree.map(lambda c: jnp.resize(c, (chunks, chunk, *c.shape[1:])), samples)
    share = jnp.where(jnp.arange(chunks * chunk) < count, 1 / count, 0.0).reshape(chunks, chunk)

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


def _search(problem: _Problem, near: _Quadratic, damping: Float[Array, ""], trials: int) -> _Trial:
    """Try steps under growing damping until one lowers the loss; return the last one."""
    start = _Trial(
        weights=near.weights,
        loss=near.loss,
        damping=damping,
        growth=jnp.full_like(near.loss, 2),
        tried=jnp.asarray(0),
        accepted=jnp.asarray(False),
    )
    return jax.lax.while_loop(
        lambda trial: ~trial.accepted & (trial.tried < trials),
        lambda trial: _attempt(problem, near, trial),
        start,
    )


def _attempt(problem: _Problem, near: _Quadratic, trial: _Trial) -> _Trial:
    """Try the step under the damping of the trial before."""
    unit = near.unit
    damping = jnp.where(problem.linear, LEAST_DAMPING, trial.damping)
    matrix = near.curvature / (unit[:, None] * unit[None]) + jnp.diag(damping)
    step = -cho_solve(cho_factor(matrix), near.gradient / unit) / unit
    after = _with_linear_solved(problem, near.weights + step)
    value = problem.loss(after)
    predicted = -2 * near.gradient @ step - step @ near.curvature @ step
    ratio = (near.loss - value) / predicted
    good = (value < near.loss) & jnp.all(jnp.isfinite(step)) & jnp.isfinite(value)
    # Nielsen (1999): damping shrinks smoothly with the quality of a step, by at most 5, and grows
    # by 2, 4, 8, … where a step fails.
    shrunk = trial.damping * jnp.maximum(1 / 5, 1 - (2 * ratio - 1) ** 3)
    return _Trial(
        weights=jnp.where(good, after, near.weights),
        loss=jnp.where(good, value, near.loss),
        damping=jnp.where(good, shrunk, trial.damping * trial.growth),
        growth=trial.growth * 2,
        tried=trial.tried + 1,
        accepted=good,
    )


class _Exchange(NamedTuple):
    free: Bool[Array, " weights"]
    wrong: Bool[Array, " weights"]
    weights: Weights
    exchanges: Int[Array, ""]


def solve_bounded(
    curvature: Curvature, gradient: Weights, bounded: Bool[Array, " weights"]
) -> Weights:
    """Return w that minimises ½ wᵀ A w + bᵀ w with w ≥ 0 where `bounded`.

    The method is block principal pivoting. A weight without curvature, whose column is zero,
    becomes zero.
    """
    size = jnp.sqrt(jnp.diag(curvature))
    size = jnp.where(size > 0, size, 1)
    count = len(size)
    scaled = curvature / (size[:, None] * size[None]) + RIDGE * jnp.eye(
        count, dtype=curvature.dtype
    )
    scaled = jnp.where(jnp.eye(count, dtype=bool), jnp.maximum(scaled, RIDGE), scaled)
    slope = gradient / size
    order = jnp.arange(count)

    def solve(free: Array) -> tuple[Array, Array]:
        matrix = jnp.where(free[:, None] & free[None], scaled, jnp.eye(count, dtype=scaled.dtype))
        weights = jnp.where(free, jnp.linalg.solve(matrix, jnp.where(free, -slope, 0)), 0)
        pull = scaled @ weights + slope
        return weights, bounded & jnp.where(free, weights < 0, pull < 0)

    def exchange(state: _Exchange) -> _Exchange:
        last = order == jnp.max(jnp.where(state.wrong, order, -1))
        moved = jnp.where(state.exchanges < ALL_AT_ONCE, state.wrong, last)
        free = state.free ^ moved
        weights, wrong = solve(free)
        return _Exchange(free, wrong, weights, state.exchanges + 1)

    free = jnp.ones(count, dtype=bool)
    weights, wrong = solve(free)
    # Single exchanges cannot cycle in exact arithmetic; the limit is for rounding.
    most = ALL_AT_ONCE + 5 * count
    end = jax.lax.while_loop(
        lambda state: jnp.any(state.wrong) & (state.exchanges < most),
        exchange,
        _Exchange(free, wrong, weights, jnp.asarray(0)),
    )
    return jnp.where(bounded, jnp.maximum(end.weights, 0), end.weights) / size
