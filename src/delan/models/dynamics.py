"""The interfaces of models, and what learned models share.

All methods take one sample; `jax.vmap` makes them take many.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints import Dataset, Energy, Joints, TorqueComponents, nonzero_scale
from ..logs.actuation import torque_scale

Vector = Float[Array, " dof"]
# Learned models return JAX arrays, known ones NumPy arrays.
VectorResult = Float[Array, " dof"] | Float[np.ndarray, " dof"]
MatrixResult = Float[Array, "dof dof"] | Float[np.ndarray, "dof dof"]
ScalarResult = Float[Array, ""] | float


@dataclass(frozen=True)
class Promises:
    """Which questions beyond the torque a model answers.

    Attributes:
        mechanics: `forward_dynamics`, `mass_matrix` and `components`.
        energy: `energy` and `power`.
        geometry: axes and links of a chain, by `delan.learned_arm`.
        trust: `torque_std`, `torque_band` and `in_domain`.
        memory: its friction depends on the path, so that methods take `memory`.
    """

    mechanics: bool = False
    energy: bool = False
    geometry: bool = False
    trust: bool = False
    memory: bool = False


@runtime_checkable
class InverseDynamics(Protocol):
    """A model that knows the torque of a motion, and perhaps no more."""

    @property
    def joints(self) -> Joints: ...

    @property
    def promises(self) -> Promises: ...

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> VectorResult:
        """Return the joint torque τ(q, q̇, q̈) [N m or N]."""
        ...


@runtime_checkable
class DynamicsModel(InverseDynamics, Protocol):
    """A model that also knows accelerations, components of the torque, inertia and energy."""

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> VectorResult:
        """Return the joint acceleration q̈(q, q̇, τ) [rad/s² or m/s²]."""
        ...

    def mass_matrix(self, q: Vector) -> MatrixResult:
        """Return the inertia H(q), symmetric and positive definite [kg m² or kg]."""
        ...

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """Return the components of τ; their sum is `inverse_dynamics`."""
        ...

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Return kinetic and potential energy [J]."""
        ...

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> ScalarResult:
        """Return the rate of the total energy [W]; without friction it equals q̇ᵀ τ."""
        ...


class Lagrangian(NamedTuple):
    """The Lagrangian L = T − V at a moment of a motion, and its derivatives.

    Attributes:
        value: L [J].
        by_q, by_qd: ∂L/∂q [N m or N], and ∂L/∂q̇ = H q̇, the momentum.
        rate: dL/dt along q̇ and q̈ [W].
    """

    value: Float[Array, ""]
    by_q: Vector
    by_qd: Vector
    rate: Float[Array, ""]


def lagrangian(model: DynamicsModel, q: Vector, qd: Vector, qdd: Vector) -> Lagrangian:
    """Return the Lagrangian of a learned model that promises energy, with its derivatives.

    The torque of the model without friction is d/dt ∂L/∂q̇ − ∂L/∂q.
    """
    q, qd, qdd = one_sample(model.joints, q, qd, qdd)

    def value(q: Vector, qd: Vector) -> Array:
        energy = model.energy(q, qd)
        return jnp.asarray(energy.kinetic - energy.potential)

    at, (by_q, by_qd) = jax.value_and_grad(value, argnums=(0, 1))(q, qd)
    return Lagrangian(at, by_q, by_qd, by_q @ qd + by_qd @ qdd)


class Normalisation(eqx.Module):
    """Mean and spread of the training data per joint; training never changes these numbers."""

    q_mean: Float[Array, " dof"]
    q_std: Float[Array, " dof"]
    qd_std: Float[Array, " dof"]
    qdd_std: Float[Array, " dof"]
    tau_mean: Float[Array, " dof"]
    tau_std: Float[Array, " dof"]

    @classmethod
    def identity(cls, dof: int) -> "Normalisation":
        zero = jnp.zeros(dof)
        unit = jnp.ones(dof)
        return cls(q_mean=zero, q_std=unit, qd_std=unit, qdd_std=unit, tau_mean=zero, tau_std=unit)

    @classmethod
    def of(cls, dataset: Dataset) -> "Normalisation":
        def spread(columns: np.ndarray) -> Array:
            return on_device(nonzero_scale(columns.std(axis=0)))

        dataset = dataset.samples
        return cls(
            q_mean=on_device(dataset.q.mean(axis=0)),
            q_std=spread(dataset.q),
            qd_std=spread(dataset.qd),
            qdd_std=spread(dataset.qdd),
            tau_mean=on_device(dataset.tau.mean(axis=0)),
            tau_std=on_device(torque_scale(dataset.qd, dataset.tau)),
        )


class LinearWeights(eqx.Module):
    """Weights in which the torque is linear, so that least squares can solve for them.

    `bounded` says for each entry of `value` whether it must stay at or above zero.
    """

    value: Float[Array, "*shape"] | Float[np.ndarray, "*shape"]
    bounded: tuple[bool, ...] = eqx.field(static=True)

    def projected(self) -> "LinearWeights":
        """Return the nearest weights that keep the bounds."""
        bounded = np.array(self.bounded, dtype=bool).reshape(self.value.shape)
        return LinearWeights(
            jnp.where(bounded, jnp.maximum(self.value, 0), self.value), self.bounded
        )


def is_linear(node: Any) -> TypeGuard[LinearWeights]:
    """Return whether a node of a model holds linear weights; a predicate for `jax.tree.map`."""
    return isinstance(node, LinearWeights)


def projected(model: Any) -> Any:
    """Return the model with every linear weight inside its bounds."""
    return jax.tree.map(
        lambda node: node.projected() if is_linear(node) else node, model, is_leaf=is_linear
    )


def one_sample(joints: Joints, *given: Any) -> list[Array]:
    """Return the vectors of a sample as floats of one precision; refuse a batch or other joints."""
    vectors = [jnp.asarray(vector) for vector in given]
    for vector in vectors:
        if vector.shape != (joints.dof,):
            raise ModelError(
                f"expected one sample of {joints.dof} joints, shape ({joints.dof},), "
                f"got shape {vector.shape}; use jax.vmap for many samples"
            )
    return [vector.astype(jnp.result_type(float, *vectors)) for vector in vectors]


def trainable(model: Any) -> tuple[Any, Any]:
    """Return the weights that training may change, and the rest; `eqx.combine` joins both."""
    return eqx.partition(
        model, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, Normalisation)
    )


def numbers(values: Any) -> np.ndarray:
    """Return values as a NumPy array in JAX's present precision."""
    return np.asarray(values, dtype=jax.dtypes.canonicalize_dtype(float))


def on_device(values: Any) -> Array:
    """Return values as a JAX array in the present precision.

    `jnp.asarray` compiles a program for every shape, which takes longer than most uses of it.
    """
    return jax.device_put(numbers(values))


def in_precision(model: Any) -> Any:
    """Return the model in JAX's present precision, which is float64 inside `jax.enable_x64`."""
    weights, rest = eqx.partition(model, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(on_device, weights), rest)


def require_same_joints(joints: Joints, dataset: Dataset) -> None:
    """Refuse data of other joints than those of a model."""
    given = dataset.joints
    problem = None
    if joints.motor_of and not given.motor_of:
        problem = (
            f"motors behind springs and {dataset.source} has no positions of motors; read it with "
            "--map 'q_motor=NAME{}'"
        )
        raise ModelError(f"the model has {problem} (LogOptions.map in Python)")
    if joints.dof != given.dof:
        problem = f"{joints.dof} joints and {dataset.source} has {given.dof}"
    elif (joints.sliding != given.sliding).any():
        at = int(np.argmax(joints.sliding != given.sliding))
        kind = joints.kinds[at]
        problem = f"a {kind} joint {at} and {dataset.source} has a {given.kinds[at]} one"
    if problem is not None:
        raise ModelError(f"the model has {problem}; use the model's own robot and joint order")
    # Other names alone may be a renamed log of the same robot; the same names in another order
    # cannot.
    if joints.names != given.names and sorted(joints.names) == sorted(given.names):
        names = joints.names
        raise ModelError(
            f"the model's joints are {', '.join(names)}, in this order, and {dataset.source} has "
            f"them as {', '.join(given.names)}; read it with --joints {','.join(names)} "
            "(LogOptions.joints in Python)"
        )
