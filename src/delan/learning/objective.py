"""What a fit makes small: eq. 9 of Lutter et al. 2019, as residuals whose mean square is the loss."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import SettingsError
from ..joints import Dataset
from ..models.dynamics import InverseDynamics, trainable


@dataclass(frozen=True)
class Objective:
    """The terms of the loss.

    Attributes:
        torque: `normalised` divides each joint's squared error by the variance of its torque in the training data,
            so that a wrist counts as much as a shoulder; `squared` is the paper's plain squared error [N² m²].
        power: weight of the power balance (q̇ᵀ(τ̂ − τ))², divided by the variance of the measured power q̇ᵀτ.
        weight_decay: λ of eq. 9, times the sum of the squared weights (not of the biases).
    """

    torque: Literal["normalised", "squared"] = "normalised"
    power: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.torque not in ("normalised", "squared"):
            raise SettingsError(f"unknown torque loss {self.torque!r}; known: normalised, squared")
        for name in ("power", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SettingsError(f"{name} must be a finite number of at least 0, got {getattr(self, name)}")


class Samples(eqx.Module):
    """Motions and their torques: one row a sample, or, inside `vmap`, a single sample."""

    q: Float[Array, "*batch dof"]
    qd: Float[Array, "*batch dof"]
    qdd: Float[Array, "*batch dof"]
    tau: Float[Array, "*batch dof"]

    @classmethod
    def of(cls, dataset: Dataset) -> "Samples":
        return cls(*(jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd, dataset.tau)))

    def __len__(self) -> int:
        return len(self.q)


class Scale(eqx.Module):
    """The variances of the training data that make the residuals free of units."""

    torque: Float[Array, " dof"]
    power: Float[Array, ""]

    @classmethod
    def of(cls, dataset: Dataset, objective: Objective) -> "Scale":
        variance = dataset.tau.var(axis=0)
        torque = np.where(variance > 0, variance, 1.0) if objective.torque == "normalised" else np.ones(dataset.dof)
        power = np.sum(dataset.qd * dataset.tau, axis=1).var()
        return cls(jnp.asarray(torque), jnp.asarray(power if power > 0 else 1.0))


def residual(model: InverseDynamics, sample: Samples, scale: Scale, objective: Objective) -> Float[Array, " residual"]:
    """The errors of one sample, scaled such that the mean over samples of their sum of squares is the data loss."""
    error = jnp.asarray(model.inverse_dynamics(sample.q, sample.qd, sample.qdd)) - sample.tau
    entries = error / jnp.sqrt(scale.torque * error.size)
    if objective.power == 0:
        return entries
    power_error = sample.qd @ error * jnp.sqrt(objective.power / scale.power)
    return jnp.concatenate([entries, power_error[None]])


def data_loss(model: InverseDynamics, samples: Samples, scale: Scale, objective: Objective) -> Float[Array, ""]:
    """The loss without weight decay: what validation watches."""
    rows = jax.vmap(lambda sample: residual(model, sample, scale, objective))(samples)
    return jnp.mean(jnp.sum(rows**2, axis=1))


def loss(model: InverseDynamics, samples: Samples, scale: Scale, objective: Objective) -> Float[Array, ""]:
    """Eq. 9: data loss plus λ Ω(weights)."""
    data = data_loss(model, samples, scale, objective)
    if objective.weight_decay == 0:
        return data
    return data + objective.weight_decay * sum(jnp.sum(leaf**2) for leaf in _decayed(model))


def _decayed(model: InverseDynamics) -> list[Array]:
    """The matrices among the weights; biases may grow freely."""
    weights, _ = trainable(model)
    return [leaf for leaf in jax.tree.leaves(weights) if leaf.ndim > 1]
