"""What a model promises. All methods take one sample; `jax.vmap` makes them take many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints import Dataset, Energy, Joints, TorqueComponents

Vector = Float[Array, " dof"]
VectorResult = Float[Array, " dof"] | Float[np.ndarray, " dof"]
MatrixResult = Float[Array, "dof dof"] | Float[np.ndarray, "dof dof"]
ScalarResult = Float[Array, ""] | float
"""Learned models give JAX arrays, known ones numpy arrays."""


@dataclass(frozen=True)
class Promises:
    """Which questions beyond the torque a model answers.

    Attributes:
        mechanics: `forward_dynamics`, `mass_matrix` and `components`.
        energy: `energy` and `power`.
        trust: `torque_std`, `torque_band` and `in_domain`.
        memory: its friction remembers the way, so that methods take `memory`.
    """

    mechanics: bool = False
    energy: bool = False
    trust: bool = False
    memory: bool = False


@runtime_checkable
class InverseDynamics(Protocol):
    """Knows the torque of a motion, and nothing more."""

    @property
    def joints(self) -> Joints: ...

    @property
    def promises(self) -> Promises: ...

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> VectorResult:
        """The joint torque τ(q, q̇, q̈) [N m or N]."""
        ...


@runtime_checkable
class DynamicsModel(InverseDynamics, Protocol):
    """Knows the mechanics: torque and acceleration, the parts of the torque, the inertia and the
    energies.
    """

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> VectorResult:
        """The joint acceleration q̈(q, q̇, τ) [rad/s² or m/s²]."""
        ...

    def mass_matrix(self, q: Vector) -> MatrixResult:
        """The inertia H(q), symmetric and positive definite [kg m² or kg]."""
        ...

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """The parts of τ; their sum is `inverse_dynamics`."""
        ...

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        ...

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> ScalarResult:
        """The rate of the total energy [W]; without friction it equals q̇ᵀ τ."""
        ...


class Normalisation(eqx.Module):
    """Centre and spread of the training data, per joint. A fit reads these numbers and never
    changes them.
    """

    q_mean: Float[Array, " dof"]
    q_std: Float[Array, " dof"]
    qd_std: Float[Array, " dof"]
    qdd_std: Float[Array, " dof"]
    tau_mean: Float[Array, " dof"]
    tau_std: Float[Array, " dof"]

    @classmethod
    def identity(cls, dof: int) -> "Normalisation":
        zero, one = jnp.zeros(dof), jnp.ones(dof)
        return cls(q_mean=zero, q_std=one, qd_std=one, qdd_std=one, tau_mean=zero, tau_std=one)

    @classmethod
    def of(cls, dataset: Dataset) -> "Normalisation":
        def spread(columns: np.ndarray) -> Array:
            std = columns.std(axis=0)
            return jnp.asarray(
                np.where(std > 0, std, 1.0)
            )  # a joint that stood still is left as it is

        dataset = dataset.samples
        return cls(
            q_mean=jnp.asarray(dataset.q.mean(axis=0)),
            q_std=spread(dataset.q),
            qd_std=spread(dataset.qd),
            qdd_std=spread(dataset.qdd),
            tau_mean=jnp.asarray(dataset.tau.mean(axis=0)),
            tau_std=spread(dataset.tau),
        )


class LinearWeights(eqx.Module):
    """Weights in which the torque is linear: a least-squares fit solves for them instead of
    descending.

    `bounded` says, for each entry of `value`, whether it must stay at or above zero.
    """

    value: Float[Array, "*shape"] | Float[np.ndarray, "*shape"]
    bounded: tuple[bool, ...] = eqx.field(static=True)

    def projected(self) -> "LinearWeights":
        """The nearest weights that keep the bounds."""
        bounded = np.array(self.bounded, dtype=bool).reshape(self.value.shape)
        return LinearWeights(
            jnp.where(bounded, jnp.maximum(self.value, 0), self.value), self.bounded
        )


def projected(model: Any) -> Any:
    """The model with every linear weight inside its bounds."""
    return jax.tree.map(
        lambda node: node.projected() if isinstance(node, LinearWeights) else node,
        model,
        is_leaf=lambda node: isinstance(node, LinearWeights),
    )


def one_sample(joints: Joints, *given: Any) -> list[Array]:
    """The vectors of one sample as floats of one precision; a batch or a wrong joint count is
    refused.
    """
    vectors = [jnp.asarray(vector) for vector in given]
    for vector in vectors:
        if vector.shape != (joints.dof,):
            raise ModelError(
                f"expected one sample of {joints.dof} joints, shape ({joints.dof},), got shape {vector.shape}; "
                "use jax.vmap for many samples"
            )
    return [vector.astype(jnp.result_type(float, *vectors)) for vector in vectors]


def trainable(model: Any) -> tuple[Any, Any]:
    """The weights that a fit may change, and the rest; `eqx.combine` joins them again."""
    return eqx.partition(
        model, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, Normalisation)
    )


def in_precision(model: Any) -> Any:
    """The model with its numbers in the precision that holds here, float64 inside `jax.enable_x64`."""
    weights, rest = eqx.partition(model, eqx.is_inexact_array)
    return eqx.combine(
        jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), float), weights), rest
    )


def require_same_joints(joints: Joints, dataset: Dataset) -> None:
    """Refuse to join the joints of a model with data of other joints."""
    problem = _difference(joints.kinds, dataset.joints.kinds)
    if problem:
        raise ModelError(
            f"the model has {problem[0]} and {dataset.source} has {problem[1]}; "
            "use the model's own robot and joint order"
        )
    names, theirs = joints.names, dataset.joints.names
    if names != theirs and sorted(names) == sorted(theirs):
        raise ModelError(
            f"the model's joints are {', '.join(names)}, in this order, and {dataset.source} has them as "
            f"{', '.join(theirs)}; read it with --joints {','.join(names)} (LogOptions.joints in Python)"
        )


def _difference(model: Sequence[str], data: Sequence[str]) -> tuple[str, str] | None:
    if len(model) != len(data):
        return f"{len(model)} joints", f"{len(data)}"
    turning = ("revolute", "continuous")
    for i, (a, b) in enumerate(zip(model, data, strict=True)):
        if (a in turning) != (b in turning):
            return f"a {a} joint {i}", f"a {b} one"
    return None
