"""What a fit makes small: eq. 9 of Lutter et al. 2019, as residuals whose mean square is the loss."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..errors import SettingsError
from ..joints import Dataset
from ..models.chain import LagrangianChain, looseness
from ..models.dynamics import InverseDynamics, LinearWeights, trainable
from ..models.model import as_model
from .windows import Windows, mean_torque


@dataclass(frozen=True)
class Objective:
    """The terms of the loss.

    Attributes:
        torque: `normalised` divides each joint's squared error by the variance of its torque in the
            training data, so that a wrist counts as much as a shoulder; `squared` is the paper's
            plain squared error [N² m²].
        power: weight of the power balance (q̇ᵀ(τ̂ − τ))², divided by the variance of the measured
            power q̇ᵀτ.
        weight_decay: λ of eq. 9, times the sum of the squared weights (not of the biases, and not
            of friction, whose sizes have units).
        rigidity: weight of the squares that keep the frames of a chain rotations and gravity at
            9.81 m/s². A rigid arm can have both at no cost, so that this settles only what the data
            leave open.
    """

    torque: Literal["normalised", "squared"] = "normalised"
    power: float = 0.0
    weight_decay: float = 0.0
    rigidity: float = 1e-3

    def __post_init__(self) -> None:
        if self.torque not in ("normalised", "squared"):
            raise SettingsError(f"unknown torque loss {self.torque!r}; known: normalised, squared")
        for name in ("power", "weight_decay", "rigidity"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SettingsError(
                    f"{name} must be a finite number of at least 0, got {getattr(self, name)}"
                )


class Samples(eqx.Module):
    """Motions and their torques: one row a sample, or, inside `vmap`, a single sample."""

    q: Float[Array, "*batch dof"]
    qd: Float[Array, "*batch dof"]
    qdd: Float[Array, "*batch dof"]
    tau: Float[Array, "*batch dof"]
    memory: Float[Array, "*batch radii motors"] | None = None

    @classmethod
    def of(cls, dataset: Dataset, memory: np.ndarray | None = None) -> "Samples":
        """The samples of a dataset; `memory` is what an actuator's stop operators remember at each
        of them.
        """
        dataset = dataset.samples
        columns = (
            jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd, dataset.tau)
        )
        return cls(*columns, memory=None if memory is None else jnp.asarray(memory))

    def rows(self, chosen: np.ndarray) -> "Samples":
        return jax.tree.map(lambda column: column[chosen], self)

    def __len__(self) -> int:
        return len(self.q)


class Anchor(eqx.Module):
    """Where the numbers of a chain are believed to be, and how far each may stray for a penalty of
    one.
    """

    chain: LagrangianChain
    reach: LagrangianChain

    @classmethod
    def of(cls, chain: LagrangianChain, firmness: float) -> "Anchor":
        """Frames may turn by about 0.1 and shift by 0.1 m, links change by a third, and rotors are
        hardly known.
        """
        loose = 1 / np.sqrt(firmness)
        size = jnp.linalg.norm(chain.factor, axis=(1, 2), keepdims=True)
        reach = eqx.tree_at(
            lambda one: (one.turn, one.shift, one.factor, one.log_armature, one.gravity),
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
        """How far each number is from where it is believed to be."""
        parts = jax.tree.map(
            lambda now, then, reach: ((now - then) / reach).ravel(), chain, self.chain, self.reach
        )
        return jnp.concatenate(jax.tree.leaves(parts))


class Scale(eqx.Module):
    """The variances of the training data that make the residuals free of units, and how firmly a
    chain is tied.
    """

    torque: Float[Array, " dof"]
    power: Float[Array, ""]
    rigidity: Float[Array, ""]
    anchor: Anchor | None = None

    @classmethod
    def of(cls, dataset: Dataset, objective: Objective) -> "Scale":
        dataset = dataset.samples
        variance = dataset.tau.var(axis=0)
        torque = (
            np.where(variance > 0, variance, 1.0)
            if objective.torque == "normalised"
            else np.ones(dataset.dof)
        )
        power = np.sum(dataset.qd * dataset.tau, axis=1).var()
        return cls(
            jnp.asarray(torque),
            jnp.asarray(power if power > 0 else 1.0),
            jnp.asarray(objective.rigidity),
        )

    def untied(self) -> "Scale":
        """The same with a chain left free."""
        return eqx.tree_at(lambda one: one.rigidity, self, jnp.zeros_like(self.rigidity))


Data = Samples | Windows
"""What a fit learns from: samples with accelerations, or windows without."""


def torque(model: Any, sample: Data) -> Any:
    """The torque that the model gives to a sample, with what its actuator remembers there; the mean
    one of a window.
    """
    if isinstance(sample, Windows):
        return mean_torque(model, sample)
    if sample.memory is None:
        return model.inverse_dynamics(sample.q, sample.qd, sample.qdd)
    return model.inverse_dynamics(sample.q, sample.qd, sample.qdd, memory=sample.memory)


def residual(
    model: InverseDynamics, sample: Data, scale: Scale, objective: Objective
) -> Float[Array, " residual"]:
    """The errors of one sample, scaled such that the mean over samples of their sum of squares is
    the data loss.
    """
    error = jnp.asarray(torque(model, sample)) - sample.tau
    entries = error / jnp.sqrt(scale.torque * error.size)
    if objective.power == 0 or isinstance(sample, Windows):
        return entries
    power_error = sample.qd @ error * jnp.sqrt(objective.power / scale.power)
    return jnp.concatenate([entries, power_error[None]])


def tie(model: Any, scale: Scale) -> Float[Array, " rows"]:
    """Residuals that belong to no sample: those of `rigidity` and of an anchor, for a chain alone
    or with motors.
    """
    chain = as_model(model).chain
    if chain is None:
        return jnp.zeros_like(scale.torque, shape=(0,))
    rows = jnp.sqrt(scale.rigidity) * looseness(chain)
    return rows if scale.anchor is None else jnp.concatenate([rows, scale.anchor.strain(chain)])


def data_loss(
    model: InverseDynamics, samples: Data, scale: Scale, objective: Objective
) -> Float[Array, ""]:
    """The loss without weight decay: what validation watches."""
    rows = jax.vmap(lambda sample: residual(model, sample, scale, objective))(samples)
    return jnp.mean(jnp.sum(rows**2, axis=1))


def loss(
    model: InverseDynamics, samples: Data, scale: Scale, objective: Objective
) -> Float[Array, ""]:
    """Eq. 9: data loss plus λ Ω(weights), plus what ties a chain to rigid arms."""
    data = data_loss(model, samples, scale, objective) + jnp.sum(tie(model, scale) ** 2)
    if objective.weight_decay == 0:
        return data
    return data + objective.weight_decay * sum(jnp.sum(leaf**2) for leaf in _decayed(model))


def _decayed(model: InverseDynamics) -> list[Array]:
    weights, _ = trainable(model)
    return [
        leaf
        for leaf, decays in zip(
            jax.tree.leaves(weights), jax.tree.leaves(decaying(weights)), strict=True
        )
        if decays
    ]


def decaying(weights: Any) -> Any:
    """Which leaves weight decay holds for: the matrices of a network; biases and friction may grow
    freely.
    """

    def of(part: Any) -> Any:
        free = isinstance(part, LinearWeights)
        return jax.tree.map(lambda leaf: not free and leaf.ndim > 1, part)

    return jax.tree.map(of, weights, is_leaf=lambda part: isinstance(part, LinearWeights))


CHUNK = 256
"""Rows whose slopes are computed together."""


def rigid_slope(
    mechanics: Any, data: Dataset | Data, std: np.ndarray
) -> Float[np.ndarray, "entries weights"]:
    """How the torques of samples, or the mean ones of windows, each over its joint's deviation,
    answer to the weights of the links.
    """
    with jax.enable_x64(True):
        seen = Samples.of(data) if isinstance(data, Dataset) else data
        slopes = [np.asarray(_slope(mechanics, part))[:count] for part, count in _chunks(seen)]
    slope = np.concatenate(slopes) / std[:, None]
    return slope.reshape(-1, slope.shape[-1])


def _chunks(data: Data) -> Iterator[tuple[Data, int]]:
    """The rows in parts of one size, the last one filled up with its last row; and how many of them
    are new. One compiled program serves data of every length.
    """
    for first in range(0, len(data), CHUNK):
        rows = np.minimum(np.arange(first, first + CHUNK), len(data) - 1)
        yield data.rows(rows), min(CHUNK, len(data) - first)


@eqx.filter_jit
def _slope(mechanics: Any, data: Data) -> Float[Array, "rows dof weights"]:
    tree, fixed = trainable(mechanics)
    weights, unravel = ravel_pytree(tree)

    def answer(weights: Array, sample: Data) -> Array:
        return torque(eqx.combine(unravel(weights), fixed), sample)

    return jax.vmap(lambda sample: jax.jacrev(answer)(weights, sample))(data)
