"""When to trust a model: how sure its torque is, and how far a state is from all that it was trained on."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints import Energy, Joints, TorqueComponents
from .actuator import Memory, Numbers
from .dynamics import DynamicsModel, InverseDynamics, MatrixResult, ScalarResult, Vector, VectorResult, one_sample


class Domain(eqx.Module):
    """Where the training data were: some of their states, and how near to one of them a state counts as known.

    Attributes:
        states: (q, q̇) of training samples, in the units of the joints.
        spread: of each coordinate in the training data, in the same units.
        radius: how far from the nearest of the states the domain reaches, in units of the spread.
    """

    states: Float[Array, "states coordinates"]
    spread: Float[Array, " coordinates"]
    radius: Float[Array, ""]
    joints: Joints = eqx.field(static=True)

    def __check_init__(self) -> None:
        width = 2 * self.joints.dof
        if self.states.ndim != 2 or self.states.shape[1] != width or not len(self.states):
            raise ModelError(f"the states of a domain have shape {self.states.shape}; expected (states, {width})")
        if self.spread.shape != (width,) or self.radius.shape != ():
            raise ModelError(
                f"the spread of a domain has shape {self.spread.shape} and its radius {self.radius.shape}; "
                f"expected ({width},) and ()"
            )

    def distance(self, q: Vector, qd: Vector) -> Float[Array, ""]:
        """How far the nearest training state is, over the radius: at most 1 inside.

        A continuous joint is compared by the angle between positions, however often it has turned.
        """
        q, qd = one_sample(self.joints, q, qd)
        return jnp.min(apart(self.joints, jnp.concatenate([q, qd]), self.states, self.spread)) / self.radius


def apart(
    joints: Joints,
    state: Float[Numbers, " coordinates"],
    others: Float[Numbers, "states coordinates"],
    spread: Float[Numbers, " coordinates"],
) -> Float[Numbers, " states"]:
    """How far a state (q, q̇) is from others, each coordinate over its spread; in numpy or in JAX."""
    away = state[None] - others
    array = away.__array_namespace__()
    endless = np.array([kind == "continuous" for kind in joints.kinds] + [False] * joints.dof)
    away = array.where(endless[None], array.remainder(away + np.pi, 2 * np.pi) - np.pi, away)
    return array.sqrt(array.sum((away / spread[None]) ** 2, axis=1))


class TrustedModel(eqx.Module):
    """A learned model that says how sure it is: an ensemble beside it, a calibrated band, and a domain.

    It is used as the model itself; `trusted` makes one, `bare` takes the model out again.

    Attributes:
        model: whose torques it gives.
        members: models of the same kind, trained on resampled data; their arrays are stacked, leading axis the member.
        floor: what errors there are even where the members agree, such as noise, per joint [N m or N].
        band: how many times √(std² + floor²) the band is wide to either side, per joint.
        domain: of the training data.
        level: the share of unseen torques that the band was made to hold.
    """

    model: eqx.AbstractVar[Any]
    members: eqx.AbstractVar[Any]
    floor: eqx.AbstractVar[Float[Array, " dof"]]
    band: eqx.AbstractVar[Float[Array, " dof"]]
    domain: eqx.AbstractVar[Domain]
    level: eqx.AbstractVar[float]

    def __check_init__(self) -> None:
        dof = self.joints.dof
        for name in ("floor", "band"):
            shape = getattr(self, name).shape
            if shape != (dof,):
                raise ModelError(f"{name} has shape {shape}; expected one number a joint, shape ({dof},)")
        if self.domain.joints.kinds != self.joints.kinds:
            raise ModelError(
                f"the domain is of joints {self.domain.joints.kinds} and the model of {self.joints.kinds}; "
                "make it of the model's own training data"
            )
        _require_stacked(self.model, self.members)

    @property
    def joints(self) -> Joints:
        return self.model.joints

    @property
    def size(self) -> int:
        """How many members there are."""
        return jax.tree.leaves(eqx.filter(self.members, eqx.is_array))[0].shape[0]

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> VectorResult:
        """The torque of the model itself [N m or N]."""
        return self.model.inverse_dynamics(q, qd, qdd, **_named(memory))

    def torque_std(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> Float[Array, " dof"]:
        """The standard deviation of the torque over the members [N m or N]: what other data could have led to."""
        arrays, rest = eqx.partition(self.members, eqx.is_array)
        torques = jax.vmap(lambda one: eqx.combine(one, rest).inverse_dynamics(q, qd, qdd, **_named(memory)))(arrays)
        return jnp.std(torques, axis=0, ddof=1)

    def torque_band(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> Float[Array, " dof"]:
        """Half the width of the band that holds a share `level` (90 %) of measured torques [N m or N].

        That share is a mean over motion like that of training and validation, joint by joint. Outside of the domain the
        band widens as the members part, but nobody measured how right it is there.
        """
        return self.band * jnp.hypot(self.torque_std(q, qd, qdd, memory=memory), self.floor)

    def in_domain(self, q: Vector, qd: Vector) -> Float[Array, ""]:
        """How far a state is from the training data: at most 1 inside, 2 at twice the distance that is usual there."""
        return self.domain.distance(q, qd)


class TrustedTorque(TrustedModel):
    """A model that knows the torque alone, such as a feed-forward network, with what tells when to trust it."""

    model: InverseDynamics
    members: Any
    floor: Float[Array, " dof"]
    band: Float[Array, " dof"]
    domain: Domain
    level: float = eqx.field(static=True)


class TrustedDynamics(TrustedModel):
    """A model that knows its mechanics, with what tells when to trust it."""

    model: DynamicsModel
    members: Any
    floor: Float[Array, " dof"]
    band: Float[Array, " dof"]
    domain: Domain
    level: float = eqx.field(static=True)

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector, *, memory: Memory | None = None) -> VectorResult:
        """The joint acceleration q̈(q, q̇, τ) [rad/s² or m/s²]."""
        return self.model.forward_dynamics(q, qd, tau, **_named(memory))

    def mass_matrix(self, q: Vector) -> MatrixResult:
        """The inertia H(q) [kg m² or kg]."""
        return self.model.mass_matrix(q)

    def components(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> TorqueComponents:
        """The parts of the torque [N m or N]."""
        return self.model.components(q, qd, qdd, **_named(memory))

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        return self.model.energy(q, qd)

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> ScalarResult:
        """The rate of the total energy [W]."""
        return self.model.power(q, qd, qdd)


def trusted(
    model: InverseDynamics,
    members: Any,
    *,
    floor: Float[Array, " dof"],
    band: Float[Array, " dof"],
    domain: Domain,
    level: float = 0.9,
) -> TrustedTorque | TrustedDynamics:
    """The model with its trust; it promises what the model does, and no more."""
    if isinstance(model, DynamicsModel):
        return TrustedDynamics(model, members, floor, band, domain, level)
    return TrustedTorque(model, members, floor, band, domain, level)


def with_model(trust: TrustedModel, model: Any) -> TrustedModel:
    """The same trust in another model of the kind, such as the one it was found for after more learning."""
    return eqx.tree_at(lambda one: one.model, trust, model)


def bare(model: Any) -> Any:
    """The model inside of a trusted one, or the model as it is."""
    return model.model if isinstance(model, TrustedModel) else model


def _named(memory: Memory | None) -> dict[str, Any]:
    """Only friction that remembers takes the argument."""
    return {} if memory is None else {"memory": memory}


def _require_stacked(model: Any, members: Any) -> None:
    """Refuse members that are not two or more of the same kind as the model."""
    one, many = (eqx.partition(tree, eqx.is_array) for tree in (model, members))
    if jax.tree.structure(one) != jax.tree.structure(many):
        raise ModelError(
            f"the members are no {type(model).__name__} of the model's settings; train them from the model"
        )
    shapes = [(a.shape, b.shape) for a, b in zip(jax.tree.leaves(one[0]), jax.tree.leaves(many[0]), strict=True)]
    count = shapes[0][1][0] if shapes[0][1] else 0
    if count < 2 or any(stacked != (count, *single) for single, stacked in shapes):
        raise ModelError(
            f"the members have arrays such as {shapes[0][1]} where the model has {shapes[0][0]}; "
            "expected those of two or more members, stacked along a new first axis"
        )
