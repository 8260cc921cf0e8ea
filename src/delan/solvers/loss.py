"""What a training minimises: eq. 9 of Lutter et al. 2019, over samples or over windows of motion.

Windows need no accelerations: the equation of motion is multiplied by a smooth window and
integrated by parts.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError, SettingsError
from ..joints import Dataset, nonzero_scale
from ..logs.segments import time_breaks
from ..models.chain import GRAVITY_ACCELERATION, LagrangianChain, looseness
from ..models.dynamics import (
    InverseDynamics,
    LinearWeights,
    lagrangian,
    numbers,
    on_device,
    trainable,
)
from ..models.friction import Friction, FrictionSettings
from ..models.friction_memory import remembered
from ..models.layers import Affine
from ..models.model import as_model

# The parts of a model whose numbers do not all decay alike.
LAYERS = (Affine, LinearWeights)
# Data are NumPy arrays, whose rows are picked without a compiled program; inside one, JAX arrays.
Numbers = Array | np.ndarray

# Length of a window [s]; windows of 0.4 s and more blur fast motion.
SECONDS = 0.2
# Time from one window to the next [s]: a quarter of their length, so that each moment counts in
# several of them, near the centre of at least one.
HOP = 0.05
# About how many points a window has; rows between them are averaged. At 16 points the mean torque
# is right to 2e-3, at 8 points to 8e-3, and the cost of a fit grows with the points.
POINTS = 16
# With fewer rows than this, sums over a window are no integrals.
LEAST_ROWS = 4


class Windows(eqx.Module):
    """Windows on a motion, one row per window; inside `vmap`, a single window.

    Attributes:
        q, qd: the motion at the points of a window.
        tau: mean torque, weighted by the window.
        window, slope: φ and φ′ at the points, times the time step.
        memory: states of the friction's stop operators at the points.
    """

    q: Float[Numbers, "*batch points dof"]
    qd: Float[Numbers, "*batch points dof"]
    tau: Float[Numbers, "*batch dof"]
    window: Float[Numbers, "*batch points"]
    slope: Float[Numbers, "*batch points"]
    memory: Float[Numbers, "*batch points radii motors"] | None = None

    @classmethod
    def of(cls, dataset: Dataset, friction: FrictionSettings | None = None) -> "Windows":
        """Return the windows without gaps all of whose rows count."""
        if friction is not None and "load" in friction.terms:
            raise SettingsError(
                "friction under load needs the torque at every moment; leave load out without q̈"
            )
        step = float(np.median(np.diff(dataset.t)))
        length = round(SECONDS / step)
        every = max(1, length // POINTS)
        length -= length % every
        starts = _starts(dataset, length, max(1, round(HOP / step)))
        if length < LEAST_ROWS or not starts:
            raise DataError(
                dataset.source,
                f"has no motion of {SECONDS:g} s without gaps and with {LEAST_ROWS} samples in it; "
                "record longer, or faster",
            )
        rows = np.add.outer(np.array(starts), np.arange(length))
        window, slope = _sine_window(length, step)

        def averaged(values: np.ndarray) -> np.ndarray:
            points = values[rows].reshape(len(rows), length // every, every, *values.shape[1:])
            return numbers(points.mean(axis=2))

        def repeated(values: np.ndarray) -> np.ndarray:
            return numbers(np.tile(values.reshape(-1, every).sum(axis=1), (len(rows), 1)))

        memory = None
        if friction is not None:
            # The rows of windows are numbered among all rows, not among those that count.
            whole = replace(dataset, counted=None)
            memory = remembered(Friction(dataset.joints, friction), whole)
        return cls(
            q=averaged(dataset.q),
            qd=averaged(dataset.qd),
            tau=numbers(np.einsum("wrj,r->wj", dataset.tau[rows], window)),
            window=repeated(window),
            slope=repeated(slope),
            memory=None if memory is None else averaged(memory),
        )

    def rows(self, chosen: np.ndarray | slice) -> "Windows":
        """Return the windows at these rows."""
        return jax.tree.map(lambda column: column[chosen], self)

    def coarser(self) -> "Windows":
        """Return the windows with half as many points, each the mean of two.

        Windows with an odd number of points are returned as they are.
        """
        points = self.q.shape[-2]
        if points % 2:
            return self

        def halved(values: Numbers) -> Numbers:
            return values.reshape(len(values), points // 2, 2, *values.shape[2:])

        return Windows(
            q=halved(self.q).mean(axis=2),
            qd=halved(self.qd).mean(axis=2),
            tau=self.tau,
            window=halved(self.window).sum(axis=2),
            slope=halved(self.slope).sum(axis=2),
            memory=None if self.memory is None else halved(self.memory).mean(axis=2),
        )

    def __len__(self) -> int:
        return len(self.q)


def _starts(dataset: Dataset, length: int, hop: int) -> list[int]:
    """Return the first rows of windows without gaps, in one trajectory, all of whose rows count."""
    counted = dataset.counted
    if counted is None:
        counted = np.ones(len(dataset), dtype=bool)
    breaks = time_breaks(dataset.t)
    breaks[1:] |= (np.diff(dataset.trajectory) != 0) | np.diff(counted)
    starts: list[int] = []
    for first, end in itertools.pairwise([*np.flatnonzero(breaks).tolist(), len(dataset)]):
        if counted[first]:
            starts += range(first, end - length + 1, hop)
    return starts


def _sine_window(length: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return φ ∝ sin⁴ and φ′ at the rows of a window, times the time step."""
    # With the fourth power, φ′ is smooth at the ends as well: the sum over rows is an integral to
    # the fourth power of the step.
    phase = (np.arange(length) + 0.5) / length
    window = np.sin(np.pi * phase) ** 4
    slope = 4 * np.pi / (length * step) * np.sin(np.pi * phase) ** 3 * np.cos(np.pi * phase)
    total = window.sum()
    return window / total, slope / total


def mean_torque(model: Any, window: Windows) -> Any:
    """Return ∫ φ τ dt of a single window, with ∫ φ dt = 1."""
    model = as_model(model)
    held = jnp.zeros_like(window.q)
    carried = jnp.zeros_like(window.q[0])
    if model.mechanics is not None:
        still = jnp.zeros_like(window.q[0])
        each = jax.vmap(lambda q, qd: lagrangian(model, q, qd, still))(window.q, window.qd)
        held = -each.by_q
        carried = window.slope @ each.by_qd
    if model.friction is not None:
        friction = model.friction.torque
        # The load is not known without accelerations, and `Windows.of` refuses friction under it.
        load = jnp.zeros(model.joints.dof, held.dtype)
        if window.memory is None:
            held += jax.vmap(lambda qd: friction(qd, load))(window.qd)
        else:
            held += jax.vmap(lambda qd, memory: friction(qd, load, memory))(
                window.qd, window.memory
            )
    return window.window @ held - carried


# The loss ℓ of one sample by its model, itself, and the torque that the model predicts for it:
# a JAX number, at least 0 and differentiable. A sample has q, qd, qdd and tau.
SampleLoss = Callable[[Any, Any, Array], Array]


@dataclass(frozen=True)
class Objective:
    """The terms of the loss.

    Attributes:
        torque: `normalised` divides each joint's squared error by the variance of its torque in the
            training data, so that a wrist counts as much as a shoulder; `squared` is the paper's
            plain squared error [N² m²].
        power: weight of the power balance (q̇ᵀ(τ̂ − τ))², divided by the variance of the measured
            power q̇ᵀτ.
        weight_decay: λ of eq. 9, times the sum of the squared weights (never of friction, whose
            parameters have units).
        decayed: `matrices` lets biases grow freely; `all` takes them as weights too, as the
            paper's Ω(θ, ψ) does.
        rigidity: weight of the squares that keep the frames of a chain rotations and gravity at
            9.81 m/s². A rigid arm satisfies both at no cost, so that this settles only what the
            data leave open.
        upright: weight of the squared sine of the angle between gravity and the first axis of a
            chain, which is zero for an arm on a level floor or ceiling.
        loss: a loss of one's own, `loss(model, sample, torque)`, in place of `torque` and `power`:
            the ℓ of eq. 9, of which the mean over samples is minimised, by Adam. Any function that
            JAX can differentiate, such as `lambda model, sample, torque: jnp.sum(jnp.abs(torque -
            sample.tau))`; it may ask the model whatever the model promises.
    """

    torque: Literal["normalised", "squared"] = "normalised"
    power: float = 0.0
    weight_decay: float = 0.0
    rigidity: float = 1e-3
    upright: float = 0.0
    decayed: Literal["matrices", "all"] = "matrices"
    loss: SampleLoss | None = None

    def __post_init__(self) -> None:
        if self.torque not in ("normalised", "squared"):
            raise SettingsError(f"unknown torque loss {self.torque!r}; known: normalised, squared")
        if self.decayed not in ("matrices", "all"):
            raise SettingsError(f"unknown decayed {self.decayed!r}; known: matrices, all")
        if self.loss is not None and (not callable(self.loss) or self.power > 0):
            raise SettingsError(
                "loss is a function loss(model, sample, torque) in place of torque and power; got "
                f"loss={self.loss!r} and power={self.power}"
            )
        for name in ("power", "weight_decay", "rigidity", "upright"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise SettingsError(f"{name} must be a finite number of at least 0, got {value}")


@dataclass(frozen=True)
class Advance:
    """The losses after a step of a training, and whether its stage is finished."""

    training: float
    validation: float
    finished: bool = False


class Samples(eqx.Module):
    """Motions and their torques, one row per sample; inside `vmap`, a single sample.

    `memory` holds the states of the friction's stop operators.
    """

    q: Float[Numbers, "*batch dof"]
    qd: Float[Numbers, "*batch dof"]
    qdd: Float[Numbers, "*batch dof"]
    tau: Float[Numbers, "*batch dof"]
    memory: Float[Numbers, "*batch radii motors"] | None = None

    @classmethod
    def of(cls, dataset: Dataset, memory: np.ndarray | None = None) -> "Samples":
        """Return the samples of a dataset."""
        dataset = dataset.samples
        columns = map(numbers, (dataset.q, dataset.qd, dataset.qdd, dataset.tau))
        if memory is None:
            return cls(*columns)
        return cls(*columns, memory=numbers(memory))

    def rows(self, chosen: np.ndarray) -> "Samples":
        """Return the samples at these rows."""
        return jax.tree.map(lambda column: column[chosen], self)

    def __len__(self) -> int:
        return len(self.q)


# What a fit learns from.
Data = Samples | Windows


class Anchor(eqx.Module):
    """A chain to hold another one to, and the deviation of each number that costs a loss of 1."""

    chain: LagrangianChain
    reach: LagrangianChain

    @classmethod
    def of(cls, chain: LagrangianChain, firmness: float) -> "Anchor":
        """Return an anchor at a chain that is known as well as a URDF usually is."""
        loose = 1 / np.sqrt(firmness)
        size = jnp.linalg.norm(chain.factor, axis=(1, 2), keepdims=True)
        # Axes are known to about 0.1 rad and 0.1 m, and links to a third. Rotors are hardly known:
        # 3 is a factor of 20 in their logarithm.
        reach = eqx.tree_at(
            lambda tree: (tree.turn, tree.shift, tree.factor, tree.log_armature, tree.gravity),
            chain,
            (
                jnp.full_like(chain.turn, 0.1 * loose),
                jnp.full_like(chain.shift, 0.1 * loose),
                jnp.broadcast_to(0.3 * loose * size, chain.factor.shape),
                jnp.full_like(chain.log_armature, 3.0 * loose),
                jnp.full_like(chain.gravity, loose),
            ),
        )
        return cls(chain, reach)

    def strain(self, chain: LagrangianChain) -> Float[Array, " rows"]:
        """Return the deviation of each number of a chain from the anchor, in units of its reach."""
        parts = jax.tree.map(
            lambda value, origin, reach: ((value - origin) / reach).ravel(),
            chain,
            self.chain,
            self.reach,
        )
        return jnp.concatenate(jax.tree.leaves(parts))


class Scale(eqx.Module):
    """Variances of the training data, which make residuals free of units, and the ties of a chain.

    Attributes:
        torque, power: variances of each joint's torque and of the measured power.
        rigidity, upright, weight_decay: see `Objective`; numbers would be compiled into the
            program.
        bias_decay: the weight decay of biases.
        anchor: what a chain is held to, if anything.
    """

    torque: Float[Array, " dof"]
    power: Float[Array, ""]
    rigidity: Float[Array, ""]
    upright: Float[Array, ""]
    weight_decay: Float[Array, ""]
    bias_decay: Float[Array, ""]
    anchor: Anchor | None = None

    @classmethod
    def of(cls, dataset: Dataset, objective: Objective) -> "Scale":
        """Return the scale of the samples of a dataset."""
        dataset = dataset.samples
        torque = np.ones(dataset.dof)
        if objective.torque == "normalised":
            torque = nonzero_scale(dataset.tau.var(axis=0))
        power = np.asarray(np.sum(dataset.qd * dataset.tau, axis=1).var())
        return cls(
            torque=on_device(torque),
            power=on_device(nonzero_scale(power)),
            rigidity=on_device(objective.rigidity),
            upright=on_device(objective.upright),
            weight_decay=on_device(objective.weight_decay),
            bias_decay=on_device(objective.weight_decay * (objective.decayed == "all")),
        )

    def untied(self) -> "Scale":
        """Return the scale without rigidity: frames of a chain may stretch freely."""
        return eqx.tree_at(lambda scale: scale.rigidity, self, on_device(0.0))


def torque(model: Any, sample: Data) -> Any:
    """Return the torque that a model predicts for a sample, or its mean over a window."""
    if isinstance(sample, Windows):
        return mean_torque(model, sample)
    if sample.memory is None:
        return model.inverse_dynamics(sample.q, sample.qd, sample.qdd)
    return model.inverse_dynamics(sample.q, sample.qd, sample.qdd, memory=sample.memory)


def residual(
    model: InverseDynamics, sample: Data, scale: Scale, objective: Objective
) -> Float[Array, " residual"]:
    """Return the scaled errors of one sample.

    The mean over samples of their sum of squares is the data loss.
    """
    error = jnp.asarray(torque(model, sample)) - sample.tau
    entries = error / jnp.sqrt(scale.torque * error.size)
    # The power balance of a window would need the torque at each of its points.
    if objective.power == 0 or isinstance(sample, Windows):
        return entries
    power_error = sample.qd @ error * jnp.sqrt(objective.power / scale.power)
    return jnp.concatenate([entries, power_error[None]])


def tie(model: Any, scale: Scale) -> Float[Array, " rows"]:
    """Return the residuals of `rigidity`, `upright` and an anchor, which belong to no sample.

    A model without a chain has none.
    """
    if not model.promises.geometry:
        return jnp.zeros_like(scale.torque, shape=(0,))
    chain = as_model(model).chain
    assert chain is not None
    tilt = chain.gravity[:2] / GRAVITY_ACCELERATION
    rows = jnp.concatenate(
        [jnp.sqrt(scale.rigidity) * looseness(chain), jnp.sqrt(scale.upright) * tilt]
    )
    if scale.anchor is None:
        return rows
    return jnp.concatenate([rows, scale.anchor.strain(chain)])


def data_loss(
    model: InverseDynamics, samples: Data, scale: Scale, objective: Objective
) -> Float[Array, ""]:
    """Return the loss without ties and weight decay, by which validation judges."""
    own = objective.loss
    if own is not None:
        return jnp.mean(jax.vmap(lambda sample: own(model, sample, torque(model, sample)))(samples))
    rows = jax.vmap(lambda sample: residual(model, sample, scale, objective))(samples)
    return jnp.mean(jnp.sum(rows**2, axis=1))


def loss(
    model: InverseDynamics, samples: Data, scale: Scale, objective: Objective
) -> Float[Array, ""]:
    """Return eq. 9, the data loss plus λ Ω(weights), plus the ties of a chain."""
    data = data_loss(model, samples, scale, objective) + jnp.sum(tie(model, scale) ** 2)
    weights, _ = trainable(model)
    terms = jax.tree.map(lambda rate, leaf: rate * jnp.sum(leaf**2), decay(weights, scale), weights)
    return data + sum(jax.tree.leaves(terms))


def decay(weights: Any, scale: Scale) -> Any:
    """Return λ for every leaf of the weights: for matrices, for biases, and none for friction.

    Friction may grow freely, because its size is a fact about the robot.
    """

    def rates(part: Any) -> Any:
        if isinstance(part, Affine):
            return eqx.tree_at(
                lambda layer: (layer.weight, layer.bias),
                part,
                (scale.weight_decay, scale.bias_decay),
            )
        if isinstance(part, LinearWeights) or part.ndim < 2:
            return jax.tree.map(lambda leaf: jnp.zeros_like(scale.weight_decay), part)
        return scale.weight_decay

    return jax.tree.map(rates, weights, is_leaf=lambda part: isinstance(part, LAYERS))
