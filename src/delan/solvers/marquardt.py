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
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..errors import SettingsError
from ..models.dynamics import on_device, trainable
from ..models.friction import Friction
from ..models.model import Model, as_model
from .bounded import solve_bounded
from .linearised import (
    Chunks,
    FlatModel,
    FrictionMotion,
    changed,
    drive_torques,
    load_gain,
    motor_curves,
    numpy_friction,
    one_blas_thread,
    speed_curves,
    with_friction,
    without_friction,
)
from .loss import Data, Objective, Scale, Windows
from .ties import tied_loss, tied_quadratic

Weights = Float[np.ndarray, " weights"]
Curvature = Float[np.ndarray, "weights weights"]
Mask = Bool[np.ndarray, " weights"]

# Damping of weights that are solved for, relative to their curvature: just enough to keep the
# equations solvable in float64.
LEAST_DAMPING = 1e-10
# Least scaling of a weight relative to the largest, so that the step of a weight without effect
# stays finite.
LEAST_SCALING = 1e-6


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
    count = sum(leaf.size for leaf in jax.tree.leaves(trainable(model)[0]))
    return MarquardtState(
        model=model,
        damping=on_device(settings.damping),
        scaling=on_device(np.zeros(count)),
        stalled=jax.device_put(np.asarray(False)),
    )


class _Point(NamedTuple):
    """A model that the search tries, with its linear weights solved for.

    Attributes:
        rigid: the part without friction; friction: the other part, in NumPy arrays.
        torque: of the part without friction.
        curves: torque at the motors of a unit of each linear weight.
        error: predicted minus measured torque.
        loss: with the ties and the weight decay.
    """

    rigid: FlatModel | None
    friction: Friction | None
    torque: Float[np.ndarray, "rows dof"]
    curves: Float[np.ndarray, "rows columns motors"]
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
    state: MarquardtState, problem: "Problem", settings: MarquardtSettings
) -> tuple[MarquardtState, float]:
    """Return the state and the loss after one iteration; several are a `Descent`.

    `stalled` is set when no step lowered the loss: a minimum to machine precision.
    """
    descent = Descent.after(state, problem, settings)
    loss = descent.advance()
    return descent.state, loss


@dataclass(eq=False)
class Descent:
    """The method on its way, in NumPy arrays.

    A model is made of them only where it is asked for: that takes as long as half an iteration of
    a 7-joint chain.
    """

    problem: "Problem"
    trials: int
    begin: Model
    rigid: FlatModel | None
    friction: Friction | None
    damping: float
    scaling: Weights
    stalled: bool = False

    @classmethod
    def of(cls, model: Any, problem: "Problem", settings: MarquardtSettings) -> "Descent":
        return cls.after(init(model, settings), problem, settings)

    @classmethod
    def after(
        cls, state: MarquardtState, problem: "Problem", settings: MarquardtSettings
    ) -> "Descent":
        """The method from a state on."""
        model = state.model
        rigid = without_friction(model)
        return cls(
            problem=problem,
            trials=settings.trials,
            begin=model,
            rigid=None if rigid is None else FlatModel.of(rigid),
            friction=None if model.friction is None else numpy_friction(model.friction),
            damping=float(state.damping),
            scaling=np.asarray(state.scaling),
        )

    @property
    def model(self) -> Model:
        """The model at this point, in the precision of the one that the search began with."""
        return joined(self.begin, self.rigid, self.friction)

    @property
    def state(self) -> MarquardtState:
        """The state that the method can go on from."""
        return MarquardtState(
            model=self.model,
            damping=on_device(self.damping),
            scaling=on_device(self.scaling),
            stalled=jax.device_put(np.asarray(self.stalled)),
        )

    def advance(self) -> float:
        """Do one iteration, and return the loss after it.

        The residuals are linearised once; steps under growing damping follow until one lowers the
        loss.
        """
        # A step that leaves the range of numbers is refused by its loss.
        with one_blas_thread(), np.errstate(all="ignore"):
            return self._advanced()

    def _advanced(self) -> float:
        torque, slopes = self.problem.linearised(self.rigid)
        point = self.problem.solved(self.rigid, self.friction, torque)
        near = self.problem.quadratic(point, slopes, self.scaling)
        growth = 2.0
        accepted = False
        end = point
        for _ in range(self.trials):
            step = _step(near, self.damping)
            if step is not None:
                end = self.problem.moved(point, step)
                accepted = bool(end.loss < point.loss)
            if accepted:
                assert step is not None
                # Nielsen (1999): damping shrinks smoothly with the quality of a step, by at most 5,
                # and grows by 2, 4, 8, … where a step fails.
                predicted = -2 * near.gradient @ step - step @ near.curvature @ step
                quality = (point.loss - end.loss) / predicted
                self.damping *= max(1 / 5, float(1 - (2 * quality - 1) ** 3))
                break
            self.damping *= growth
            growth *= 2
        if not accepted:
            end = point
        self.rigid = end.rigid
        self.friction = end.friction
        self.scaling = near.unit**2
        self.stalled = not accepted
        return end.loss


def joined(begin: Model, rigid: FlatModel | None, friction: Friction | None) -> Model:
    """Return a model of two parts, its friction in the precision of the model to begin with."""
    if friction is not None:
        friction = jax.tree.map(
            lambda new, old: jax.device_put(np.asarray(new, old.dtype)), friction, begin.friction
        )
    if rigid is None:
        return Model(friction=friction)
    model = rigid.model
    return Model(model.mechanics, friction, model.residual)


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
class Problem:
    """The loss of a model on some data; what does not depend on the model is computed once."""

    samples: Data
    scale: Scale
    objective: Objective

    def loss(self, model: Any) -> float:
        """Return the loss without ties and weight decay, like `loss.data_loss`."""
        with np.errstate(all="ignore"):
            return self._squares(drive_torques(model, self.samples) - self.measured)

    @cached_property
    def measured(self) -> Float[np.ndarray, "rows dof"]:
        return np.asarray(self.samples.tau)

    @cached_property
    def chunks(self) -> Chunks:
        return Chunks(self.samples)

    @cached_property
    def motion(self) -> FrictionMotion:
        return FrictionMotion.of(self.samples)

    @cached_property
    def weights(self) -> Float[np.ndarray, " dof"]:
        """What the squared errors of each joint are multiplied by, so that they add to the loss."""
        return 1 / (np.asarray(self.scale.torque) * self.measured.size)

    @cached_property
    def balance(self) -> Float[np.ndarray, "rows dof"] | None:
        """What errors of a row are multiplied by and added, for their power; None: not asked."""
        power = self.objective.power
        # The power balance of a window would need the torque at each of its points.
        if power == 0 or isinstance(self.samples, Windows):
            return None
        weight = np.sqrt(power / (float(self.scale.power) * len(self.measured)))
        return weight * self.motion.qd

    @cached_property
    def is_tied(self) -> bool:
        """Whether a part of the loss belongs to no sample."""
        scale = self.scale
        weights = (scale.rigidity, scale.upright, scale.weight_decay)
        return scale.anchor is not None or any(float(weight) > 0 for weight in weights)

    def linearised(self, rigid: FlatModel | None) -> tuple[np.ndarray, np.ndarray]:
        """The torque of the part without friction, and its slopes."""
        if rigid is None:
            return np.zeros_like(self.measured), np.zeros((*self.measured.shape, 0))
        return self.chunks.slopes(rigid)

    def solved(
        self, rigid: FlatModel | None, friction: Friction | None, torque: np.ndarray
    ) -> _Point:
        """The point of a model after its linear weights were solved for."""
        curves = np.zeros((len(torque), 0, 0))
        total = torque
        if friction is not None:
            curves = motor_curves(friction, self.motion, torque)
            turn = friction.transmission
            weights = solve_bounded(
                self._among_curves(curves, turn),
                self._along_curves(curves, turn, torque - self.measured),
                np.array(friction.weights.bounded, dtype=bool),
            )
            friction = changed(friction, weights=weights.reshape(curves.shape[1:]))
            total = with_friction(friction, self.motion, torque, curves)
        error = total - self.measured
        loss = self._squares(error)
        if rigid is not None and self.is_tied:
            loss += float(tied_loss(rigid.structure, rigid.weights, rigid.arrays, self.scale))
        return _Point(rigid, friction, torque, curves, error, loss)

    def quadratic(self, point: _Point, slopes: np.ndarray, scaling: Weights) -> _Quadratic:
        """Half the gradient of the loss, half its Gauss–Newton matrix, and Marquardt's scaling."""
        friction = point.friction
        count = slopes.shape[2]
        linear = np.zeros(count, dtype=bool)
        resting = linear
        if friction is None:
            curvature = self._among_slopes(slopes)
            gradient = self._along_slopes(slopes, point.error)
        else:
            gain = load_gain(friction, self.motion, point.torque)
            if gain is not None:
                slopes = slopes * gain[:, :, None]
            speeds = speed_curves(friction, self.motion, point.torque)
            curves = np.concatenate([point.curves, speeds], axis=1)
            turn = friction.transmission
            across = self._across(slopes, curves, turn)
            curvature = np.block(
                [
                    [self._among_slopes(slopes), across],
                    [across.T, self._among_curves(curves, turn)],
                ]
            )
            gradient = np.concatenate(
                [
                    self._along_slopes(slopes, point.error),
                    self._along_curves(curves, turn, point.error),
                ]
            )
            others = np.zeros(speeds[0].size, dtype=bool)
            value = np.asarray(friction.weights.value).ravel()
            bounded = np.array(friction.weights.bounded, dtype=bool)
            resting = np.concatenate([linear, bounded & (value <= 0), others])
            linear = np.concatenate([linear, np.ones(len(value), dtype=bool), others])
        if point.rigid is not None and self.is_tied:
            rigid = point.rigid
            tied = tied_quadratic(rigid.structure, rigid.weights, rigid.arrays, self.scale)
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
            count = rigid.weights.size
            rigid = rigid.moved(step[:count])
            torque = self.chunks.torques(rigid)
        friction = point.friction
        if friction is not None:
            widths, speeds = np.split(step[count + friction.weights.value.size :], 2)
            friction = changed(
                friction,
                log_width=friction.log_width + widths,
                log_stribeck_speed=friction.log_stribeck_speed + speeds,
            )
        if not np.isfinite(torque).all():
            return point._replace(loss=np.inf)
        return self.solved(rigid, friction, torque)

    # Products of the columns of the Jacobian, summed over rows and joints. A motor acts on a joint
    # or two, so that the columns of friction are kept as curves at the motors and T of q_m = T q.

    def _squares(self, error: np.ndarray) -> float:
        total = float(np.sum(error**2 * self.weights))
        if self.balance is not None:
            total += float(np.sum(np.sum(self.balance * error, axis=1) ** 2))
        return total

    def _among_slopes(self, slopes: np.ndarray) -> Curvature:
        scaled = (slopes * np.sqrt(self.weights)[:, None]).reshape(-1, slopes.shape[2])
        products = scaled.T @ scaled
        if self.balance is not None:
            power = np.einsum("rj,rjw->rw", self.balance, slopes)
            products += power.T @ power
        return products

    def _along_slopes(self, slopes: np.ndarray, error: np.ndarray) -> Weights:
        return np.tensordot(slopes, self._pulled(error), axes=([0, 1], [0, 1]))

    def _among_curves(self, curves: np.ndarray, turn: np.ndarray) -> Curvature:
        flat = curves.reshape(len(curves), -1)
        together = (turn * self.weights) @ turn.T
        shape = curves.shape[1:]
        products = (flat.T @ flat).reshape(*shape, *shape) * together[None, :, None, :]
        products = products.reshape(flat.shape[1], flat.shape[1])
        if self.balance is not None:
            power = (curves * (self.balance @ turn.T)[:, None]).reshape(flat.shape)
            products += power.T @ power
        return products

    def _along_curves(self, curves: np.ndarray, turn: np.ndarray, error: np.ndarray) -> Weights:
        return np.einsum("rtm,rm->tm", curves, self._pulled(error) @ turn.T).ravel()

    def _across(self, slopes: np.ndarray, curves: np.ndarray, turn: np.ndarray) -> np.ndarray:
        products = np.empty((slopes.shape[2], *curves.shape[1:]))
        for motor, turns in enumerate(turn * self.weights):
            joints = np.flatnonzero(turns)
            pulled = slopes[:, joints[0]] * turns[joints[0]]
            for joint in joints[1:]:
                pulled = pulled + slopes[:, joint] * turns[joint]
            products[:, :, motor] = pulled.T @ curves[:, :, motor]
        if self.balance is not None:
            power = np.einsum("rj,rjw->rw", self.balance, slopes)
            at_motors = curves * (self.balance @ turn.T)[:, None]
            products += np.tensordot(power, at_motors, axes=(0, 0))
        return products.reshape(slopes.shape[2], -1)

    def _pulled(self, error: np.ndarray) -> np.ndarray:
        """Half the gradient of the squares in the torque of each row."""
        pulled = error * self.weights
        if self.balance is not None:
            pulled = pulled + self.balance * np.sum(self.balance * error, axis=1, keepdims=True)
        return pulled
