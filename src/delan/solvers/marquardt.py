"""Levenberg–Marquardt for models of a few hundred weights.

The method is dense, with Marquardt scaling and Nielsen damping. Weights in which the torque is
linear (`LinearWeights`) are not searched but solved for, bounds included, at every point that the
search tries: variable projection in the approximation of Kaufman (1975), whose step is that of the
joint normal equations with the linear block left undamped.

JAX computes torques and their slopes (`linearised`); the equations are solved in NumPy. So hardly
anything is compiled, whatever the size of the data and the terms of friction.

Call it inside `jax.enable_x64(True)`: the normal equations need float64.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..errors import SettingsError
from ..models.dynamics import trainable
from ..models.friction import Friction
from ..models.model import Model, as_model
from .linearised import (
    FrictionMotion,
    drive_torques,
    friction_columns,
    load_gain,
    numpy_friction,
    one_blas_thread,
    rigid_slopes,
    rigid_torques,
    speed_slopes,
    with_friction,
    without_friction,
)
from .loss import Data, Objective, Scale, Windows, decaying, tie

Weights = Float[np.ndarray, " weights"]
Curvature = Float[np.ndarray, "weights weights"]
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
        trials: how often the damping may grow in search of a step that lowers the loss.
    """

    damping: float = 0.1
    trials: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.damping < float("inf"):
            raise SettingsError(f"damping must be positive and finite, got {self.damping}")
        if self.trials < 1:
            raise SettingsError(f"trials must be at least 1, got {self.trials}")


# For a model that is close to its end already: the first step is hardly damped.
NEARBY = MarquardtSettings(damping=1e-3)


class MarquardtState(eqx.Module):
    """Everything the method carries from one iteration to the next."""

    model: Any
    damping: Float[Array, ""]
    scaling: Float[Array, " weights"]
    stalled: Bool[Array, ""]


def init(model: Any, settings: MarquardtSettings | None = None) -> MarquardtState:
    """Return the state before the first iteration."""
    settings = settings or MarquardtSettings()
    model = as_model(model)
    weights, _ = ravel_pytree(trainable(model)[0])
    return MarquardtState(
        model=model,
        damping=jnp.full_like(weights[0], settings.damping),
        scaling=jnp.zeros_like(weights),
        stalled=jnp.asarray(False),
    )


class _Point(NamedTuple):
    """A model that the search tries, with its linear weights solved for.

    Attributes:
        rigid: the part without friction; friction: the other part, in NumPy arrays.
        torque: of the part without friction.
        columns: torque of a unit of each linear weight.
        error: predicted minus measured torque.
        loss: with the ties and the weight decay.
    """

    rigid: Any
    friction: Friction | None
    torque: Float[np.ndarray, "rows dof"]
    columns: Float[np.ndarray, "rows dof columns"]
    error: Float[np.ndarray, "rows dof"]
    loss: float


class _Quadratic(NamedTuple):
    """Half the loss near a point, with the unit in which the step of each weight is damped.

    The weights are those of the part without friction, the linear ones, then the logarithms of the
    widths and of the Stribeck speeds of friction.
    """

    gradient: Weights
    curvature: Curvature
    linear: Mask
    resting: Mask
    unit: Weights


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
    # A step that leaves the range of numbers is refused by its loss.
    with one_blas_thread(), np.errstate(all="ignore"):
        return _updated(state, _Problem(samples, scale, objective), settings.trials)


def data_loss(model: Any, samples: Data, scale: Scale, objective: Objective) -> float:
    """Return the loss without ties and weight decay, as `loss.data_loss` but hardly compiled."""
    problem = _Problem(samples, scale, objective)
    with np.errstate(all="ignore"):
        entries = problem.entries(drive_torques(model, samples) - problem.measured)
        return float(entries @ entries)


def _updated(
    state: MarquardtState, problem: "_Problem", trials: int
) -> tuple[MarquardtState, Float[Array, ""]]:
    model = state.model
    rigid = without_friction(model)
    friction = None
    if model.friction is not None:
        friction = numpy_friction(model.friction)
    torque, slopes = problem.linearised(rigid)
    point = problem.solved(rigid, friction, torque)
    near = problem.quadratic(point, slopes, np.asarray(state.scaling))
    damping = float(state.damping)
    growth = 2.0
    accepted = False
    end = point
    for _ in range(trials):
        step = _step(near, damping)
        if step is not None:
            end = problem.moved(point, step)
            accepted = bool(end.loss < point.loss)
        if accepted:
            assert step is not None
            # Nielsen (1999): damping shrinks smoothly with the quality of a step, by at most 5, and
            # grows by 2, 4, 8, … where a step fails.
            predicted = -2 * near.gradient @ step - step @ near.curvature @ step
            quality = (point.loss - end.loss) / predicted
            damping *= max(1 / 5, 1 - (2 * quality - 1) ** 3)
            break
        damping *= growth
        growth *= 2
    if not accepted:
        end = point
    after = MarquardtState(
        model=_joined(model, end),
        damping=jnp.full_like(state.damping, damping),
        scaling=jnp.asarray(near.unit**2, state.scaling.dtype),
        stalled=jnp.asarray(not accepted),
    )
    return after, jnp.full_like(state.damping, end.loss)


def _joined(model: Model, point: _Point) -> Model:
    """Return the model at a point, in the precision of the model."""
    friction = None
    if point.friction is not None:
        friction = jax.tree.map(
            lambda new, old: jnp.asarray(new, old.dtype), point.friction, model.friction
        )
    if point.rigid is None:
        return Model(friction=friction)
    return Model(point.rigid.mechanics, friction, point.rigid.residual)


def _with_weights(friction: Friction, weights: Weights) -> Friction:
    shaped = weights.reshape(friction.weights.value.shape)
    return eqx.tree_at(lambda friction: friction.weights.value, friction, shaped)


def _step(near: _Quadratic, damping: float) -> Weights | None:
    """Return the step under a damping; None if the equations cannot be solved."""
    unit = near.unit
    matrix = near.curvature / (unit[:, None] * unit[None])
    matrix[np.diag_indices(len(unit))] += np.where(near.linear, LEAST_DAMPING, damping)
    try:
        step = -cho_solve(cho_factor(matrix), near.gradient / unit) / unit
    except (LinAlgError, ValueError):
        return None
    return step if np.isfinite(step).all() else None


@dataclass(frozen=True, eq=False)
class _Problem:
    """The loss of a model on some data."""

    samples: Data
    scale: Scale
    objective: Objective

    @cached_property
    def measured(self) -> Float[np.ndarray, "rows dof"]:
        return np.asarray(self.samples.tau)

    @cached_property
    def motion(self) -> FrictionMotion:
        return FrictionMotion.of(self.samples)

    @cached_property
    def units(self) -> Float[np.ndarray, " dof"]:
        """What the errors of each joint are divided by, so that their squares add to the loss."""
        count = self.measured.size
        return np.sqrt(np.asarray(self.scale.torque) * count)

    @cached_property
    def is_tied(self) -> bool:
        """Whether a part of the loss belongs to no sample."""
        scale = self.scale
        free = float(scale.rigidity) == 0 and float(scale.weight_decay) == 0
        return not free or scale.anchor is not None

    def linearised(self, rigid: Any) -> tuple[np.ndarray, np.ndarray]:
        """The torque of the part without friction, and its slopes."""
        if rigid is None:
            return np.zeros_like(self.measured), np.zeros((*self.measured.shape, 0))
        return rigid_slopes(rigid, self.samples)

    def entries(self, rows: Float[np.ndarray, "rows dof *k"]) -> Float[np.ndarray, "entries *k"]:
        """Torques, or slopes of torques, as residuals whose squares add to the loss."""
        units = self.units.reshape(-1, *[1] * (rows.ndim - 2))
        entries = (rows / units).reshape(-1, *rows.shape[2:])
        power = self.objective.power
        # The power balance of a window would need the torque at each of its points.
        if power == 0 or isinstance(self.samples, Windows):
            return entries
        weight = np.sqrt(power / (float(self.scale.power) * len(rows)))
        balance = weight * np.einsum("rj,rj...->r...", self.motion.qd, rows)
        return np.concatenate([entries, balance])

    def solved(self, rigid: Any, friction: Friction | None, torque: np.ndarray) -> _Point:
        """The point of a model after its linear weights were solved for."""
        columns = np.zeros((*torque.shape, 0))
        total = torque
        if friction is not None:
            columns = friction_columns(friction, self.motion, torque)
            flat = self.entries(columns)
            weights = solve_bounded(
                flat.T @ flat,
                flat.T @ self.entries(torque - self.measured),
                np.array(friction.weights.bounded, dtype=bool),
            )
            friction = _with_weights(friction, weights)
            total = with_friction(friction, self.motion, torque, columns)
        error = total - self.measured
        entries = self.entries(error)
        loss = float(entries @ entries)
        if rigid is not None and self.is_tied:
            loss += float(_tied_loss(rigid, self.scale))
        return _Point(rigid, friction, torque, columns, error, loss)

    def quadratic(self, point: _Point, slopes: np.ndarray, scaling: Weights) -> _Quadratic:
        """Half the gradient of the loss, half its Gauss–Newton matrix, and Marquardt's scaling."""
        friction = point.friction
        blocks = [slopes]
        linear = np.zeros(slopes.shape[2], dtype=bool)
        resting = linear
        if friction is not None:
            gain = load_gain(friction, self.motion, point.torque)
            if gain is not None:
                blocks[0] = slopes * gain[:, :, None]
            speeds = speed_slopes(friction, self.motion, point.torque)
            blocks += [point.columns, speeds]
            others = np.zeros(speeds.shape[2], dtype=bool)
            value = np.asarray(friction.weights.value).ravel()
            bounded = np.array(friction.weights.bounded, dtype=bool)
            resting = np.concatenate([linear, bounded & (value <= 0), others])
            linear = np.concatenate([linear, np.ones(len(value), dtype=bool), others])
        flat = self.entries(np.concatenate(blocks, axis=2))
        curvature = flat.T @ flat
        gradient = flat.T @ self.entries(point.error)
        count = slopes.shape[2]
        if point.rigid is not None and self.is_tied:
            tied = _tied(point.rigid, self.scale)
            gradient[:count] += np.asarray(tied[0])
            curvature[:count, :count] += np.asarray(tied[1])
        # Marquardt's scaling forgets large curvatures of the past, by half per iteration.
        scaling = np.maximum(scaling / 2, np.diag(curvature))
        scaling = np.maximum(scaling, LEAST_SCALING * scaling.max())
        # Linear weights at their bound take no part in the step.
        gradient[resting] = 0.0
        diagonal = np.diag(curvature).copy()
        curvature[resting] = 0.0
        curvature[:, resting] = 0.0
        curvature[np.diag_indices(len(diagonal))] = diagonal
        return _Quadratic(gradient, curvature, linear, resting, np.sqrt(scaling))

    def moved(self, point: _Point, step: Weights) -> _Point:
        """The point after a step; its linear weights are solved for anew."""
        rigid = point.rigid
        torque = point.torque
        count = 0
        if rigid is not None:
            tree, fixed = trainable(rigid)
            weights, unravel = ravel_pytree(tree)
            count = weights.size
            rigid = eqx.combine(unravel(weights + step[:count]), fixed)
            torque = rigid_torques(rigid, self.samples)
        friction = point.friction
        if friction is not None:
            widths, speeds = np.split(step[count + friction.weights.value.size :], 2)
            friction = eqx.tree_at(
                lambda tree: (tree.log_width, tree.log_stribeck_speed),
                friction,
                (friction.log_width + widths, friction.log_stribeck_speed + speeds),
            )
        if not np.isfinite(torque).all():
            return point._replace(loss=np.inf)
        return self.solved(rigid, friction, torque)


@eqx.filter_jit
def _tied(rigid: Any, scale: Scale) -> tuple[Array, Array]:
    """Half the gradient and half the curvature of the ties and of the weight decay."""
    tree, fixed = trainable(rigid)
    weights, unravel = ravel_pytree(tree)

    def tied(weights: Array) -> Array:
        return tie(eqx.combine(unravel(weights), fixed), scale)

    slope = jax.jacrev(tied)(weights)
    decayed, _ = ravel_pytree(jax.tree.map(jnp.full_like, tree, decaying(tree)))
    gradient = slope.T @ tied(weights) + scale.weight_decay * decayed * weights
    return gradient, slope.T @ slope + scale.weight_decay * jnp.diag(decayed)


@eqx.filter_jit
def _tied_loss(rigid: Any, scale: Scale) -> Array:
    """The part of the loss that belongs to no sample."""
    tree, _ = trainable(rigid)
    weights, _ = ravel_pytree(tree)
    decayed, _ = ravel_pytree(jax.tree.map(jnp.full_like, tree, decaying(tree)))
    decay = scale.weight_decay * jnp.sum(decayed * weights**2)
    return jnp.sum(tie(rigid, scale) ** 2) + decay


def solve_bounded(curvature: Curvature, gradient: Weights, bounded: Mask) -> Weights:
    """Return w that minimises ½ wᵀ A w + bᵀ w with w ≥ 0 where `bounded`.

    The method is block principal pivoting. A weight without curvature, whose column is zero,
    becomes zero.
    """
    count = len(gradient)
    size = np.sqrt(np.diag(curvature))
    size = np.where(size > 0, size, 1.0)
    scaled = curvature / (size[:, None] * size[None])
    diagonal = np.diag_indices(count)
    scaled[diagonal] = np.maximum(scaled[diagonal] + RIDGE, RIDGE)
    slope = gradient / size
    free = np.ones(count, dtype=bool)
    weights = np.zeros(count)
    # Single exchanges cannot cycle in exact arithmetic; the limit is for rounding.
    for exchanges in range(ALL_AT_ONCE + 5 * count):
        weights = np.zeros(count)
        weights[free] = np.linalg.solve(scaled[np.ix_(free, free)], -slope[free])
        pull = scaled @ weights + slope
        wrong = bounded & np.where(free, weights < 0, pull < 0)
        if not wrong.any():
            break
        if exchanges >= ALL_AT_ONCE:
            last = np.flatnonzero(wrong)[-1]
            wrong = np.arange(count) == last
        free ^= wrong
    return np.where(bounded, np.maximum(weights, 0.0), weights) / size
