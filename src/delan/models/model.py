"""The model of a robot: mechanics, friction, a residual network and trust, each optional."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import ModelError
from ..joints import Energy, Joints, TorqueComponents
from .chain import LagrangianChain, LagrangianChainSettings
from .dynamics import (
    MatrixResult,
    Normalisation,
    Promises,
    ScalarResult,
    Vector,
    VectorResult,
    one_sample,
)
from .friction import Friction, FrictionSettings, Memory
from .networks import (
    FeedForwardNetwork,
    FeedForwardSettings,
    LagrangianNetwork,
    LagrangianNetworkSettings,
)
from .trust import Trust

Mechanics = LagrangianChain | LagrangianNetwork
Architecture = LagrangianChainSettings | LagrangianNetworkSettings | FeedForwardSettings

# What each part of a model may be.
PARTS: dict[str, Any] = {
    "mechanics": Mechanics,
    "friction": Friction,
    "residual": FeedForwardNetwork,
}


class Model(eqx.Module):
    """A robot's dynamics, τ = τ_c + friction(q̇, τ_c) + residual, with the conservative torque τ_c.

    τ_c = τ_mechanics + A q̈ + ∂V/∂q with rotors A and the energy V of springs and cables. Absent
    parts add nothing. `promises` says which methods a model answers: a feed-forward network alone,
    or mechanics with a residual, know torques only.

    Where a method takes `memory`, it is the state of the friction's stop operators at this sample
    (`Friction.remember`). Without it they count as slid, which is wrong just after a reversal.

    Attributes:
        mechanics: the conservative part, a Lagrangian chain or network.
        friction: rotors, springs and friction of the drives.
        residual: a feed-forward network for a torque without mechanics.
        trust: an ensemble, a calibrated band and the domain of the training data.
        added_inertia: what forward dynamics add to the inertia of each joint [kg m² or kg], where
            a log does not tell that inertia (`learning/added_inertia.py`); None adds nothing. No
            torque, no mass matrix and no energy contains it, so that forward dynamics do not undo
            inverse dynamics where it is not zero.
    """

    mechanics: Mechanics | None = None
    friction: Friction | None = None
    residual: FeedForwardNetwork | None = None
    trust: Trust | None = None
    added_inertia: tuple[float, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.mechanics is None and self.friction is None and self.residual is None:
            raise ModelError("a model needs mechanics, friction or a residual; got none of them")
        for name, kind in PARTS.items():
            part = getattr(self, name)
            # Such as a rigid body, whose numbers JAX cannot learn.
            if part is not None and not isinstance(part, kind):
                raise ModelError(
                    f"a {type(part).__name__} cannot be the {name} of a model; a RigidBody becomes "
                    "a model by `delan.models.geometry.model_of`"
                )
        if self.mechanics is None and None not in (self.friction, self.residual):
            raise ModelError(
                "a feed-forward network alone learns friction with everything else; "
                "leave friction out, or give mechanics"
            )
        for name in ("friction", "residual"):
            part = getattr(self, name)
            if part is not None and part.joints.kinds != self.joints.kinds:
                raise ModelError(
                    f"the {name} is for joints {part.joints.kinds} and the mechanics for "
                    f"{self.joints.kinds}; build both for the same joints"
                )
        if self.trust is not None:
            self.trust.require_fitting(self)
        if self.added_inertia is not None:
            _require_inertia(self.added_inertia, self.joints)

    @property
    def joints(self) -> Joints:
        """The joints of the robot."""
        part = self.mechanics or self.friction or self.residual
        assert part is not None
        return part.joints

    @property
    def promises(self) -> Promises:
        """Which questions beyond the torque this model answers."""
        known = Promises()
        if self.mechanics is not None and self.residual is None:
            known = self.mechanics.promises
        return replace(
            known,
            geometry=self.chain is not None,
            trust=self.trust is not None,
            memory=self.friction is not None and bool(self.friction.settings.stops),
        )

    @property
    def chain(self) -> LagrangianChain | None:
        """The mechanics, if they have a learned geometry."""
        if self.mechanics is None or not self.mechanics.promises.geometry:
            return None
        return cast(LagrangianChain, self.mechanics)

    @property
    def friction_settings(self) -> FrictionSettings | None:
        """The settings of the friction; None without friction."""
        if self.friction is None:
            return None
        return self.friction.settings

    def with_trust(self, trust: Trust | None) -> "Model":
        """Return the same model with another trust, or without any."""
        return Model(self.mechanics, self.friction, self.residual, trust, self.added_inertia)

    def with_added_inertia(self, added: tuple[float, ...] | None) -> "Model":
        """Return the same model with other inertia added to forward dynamics, or none."""
        return Model(self.mechanics, self.friction, self.residual, self.trust, added)

    def with_added_rotors(self) -> "Model":
        """Return a chain whose rotors hold the added inertia, for simulators.

        Its forward dynamics are those of this model, and its inverse dynamics undo them.
        """
        chain = self.chain
        if self.added_inertia is None or chain is None:
            return self.with_added_inertia(None)
        rotors = chain.armature + jnp.asarray(self.added_inertia, chain.log_armature.dtype)
        raised = eqx.tree_at(lambda chain: chain.log_armature, chain, jnp.log(rotors))
        return self.with_mechanics(raised).with_added_inertia(None)

    def with_mechanics(self, mechanics: Mechanics) -> "Model":
        """Return the same model with other weights in its mechanics."""
        return eqx.tree_at(lambda model: model.mechanics, self, mechanics)

    def inverse_dynamics(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> VectorResult:
        """Return the torque of the drives τ(q, q̇, q̈) [N m or N]."""
        if self.residual is None:
            return self._drive_torque(q, qd, qdd, memory)
        residual = self.residual.inverse_dynamics(q, qd, qdd)
        if self.mechanics is None:
            return residual
        return self._drive_torque(q, qd, qdd, memory) + residual

    def _drive_torque(
        self, q: Vector, qd: Vector, qdd: Vector, memory: Memory | None
    ) -> VectorResult:
        if self.friction is None:
            assert self.mechanics is not None
            return self.mechanics.inverse_dynamics(q, qd, qdd)
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        load = self.friction.armature @ qdd + self.friction.potential_torque(q)
        if self.mechanics is not None:
            load = self.mechanics.inverse_dynamics(q, qd, qdd) + load
        return load + self.friction.torque(qd, load, memory)

    def forward_dynamics(
        self, q: Vector, qd: Vector, tau: Vector, *, memory: Memory | None = None
    ) -> VectorResult:
        """Return the acceleration q̈ = (H + A + A₊)⁻¹ (τ_c − c − g) [rad/s² or m/s²].

        A₊ is the added inertia.
        """
        mechanics = self._require_mechanics("forward dynamics")
        q, qd, load = one_sample(self.joints, q, qd, tau)
        rotors = self.added_inertia is not None
        if self.friction is not None:
            load = jnp.asarray(self.friction.conservative(qd, load, memory))
            load = load - self.friction.potential_torque(q)
            rotors |= "armature" in self.friction.settings.terms
        if not rotors:
            return mechanics.forward_dynamics(q, qd, load)
        bias = mechanics.inverse_dynamics(q, qd, jnp.zeros_like(qd))
        return cho_solve(cho_factor(self.forward_inertia(q), lower=True), load - bias)

    def mass_matrix(self, q: Vector) -> MatrixResult:
        """Return the inertia H(q) + A of links and rotors [kg m² or kg]."""
        inertia = self._require_mechanics("a mass matrix").mass_matrix(q)
        if self.friction is None:
            return inertia
        return inertia + self.friction.armature

    def forward_inertia(self, q: Vector) -> MatrixResult:
        """Return the inertia of forward dynamics H(q) + A + A₊ [kg m² or kg]."""
        inertia = self.mass_matrix(q)
        if self.added_inertia is None:
            return inertia
        return inertia + jnp.diag(jnp.asarray(self.added_inertia, inertia.dtype))

    def components(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> TorqueComponents:
        """Return the components of the torque.

        That of the rotors is inertial; that of springs and cables belongs to gravity.
        """
        mechanics = self._require_mechanics("components of the torque")
        if self.friction is None:
            return mechanics.components(q, qd, qdd)
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        parts = mechanics.components(q, qd, qdd)
        parts = parts._replace(
            inertial=parts.inertial + self.friction.armature @ qdd,
            gravity=parts.gravity + self.friction.potential_torque(q),
        )
        load = parts.inertial + parts.coriolis + parts.gravity
        return parts._replace(friction=self.friction.torque(qd, load, memory))

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Return kinetic and potential energy of links, rotors, springs and cables [J].

        Energy that stop operators store is not counted.
        """
        links = self._require_mechanics("energies").energy(q, qd)
        if self.friction is None:
            return links
        q, qd = one_sample(self.joints, q, qd)
        return Energy(
            kinetic=links.kinetic + qd @ self.friction.armature @ qd / 2,
            potential=links.potential + self.friction.potential(q),
        )

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> ScalarResult:
        """Return the rate of that energy [W]; it equals q̇ᵀ (τ − friction)."""
        links = self._require_mechanics("power").power(q, qd, qdd)
        if self.friction is None:
            return links
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        return links + qd @ (self.friction.armature @ qdd + self.friction.potential_torque(q))

    def torque_std(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> Float[Array, " dof"]:
        """Return the standard deviation of the torque over the ensemble [N m or N]."""
        return self._require_trust().torque_std(q, qd, qdd, memory=memory)

    def torque_band(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> Float[Array, " dof"]:
        """Return half the width of the band that holds a share `trust.level` of torques [N m or N].

        The share is a mean over motion like that of training and validation, joint by joint.
        Outside the domain, where it is not calibrated, it widens with the distance and as the
        members disagree.
        """
        trust = self._require_trust()
        spread = jnp.hypot(self.torque_std(q, qd, qdd, memory=memory), trust.floor)
        return trust.band * spread * trust.widening(q, qd)

    def in_domain(self, q: Vector, qd: Vector) -> Float[Array, ""]:
        """Return the distance to the training data: at most 1 inside, 2 at twice that distance."""
        return self._require_trust().domain.distance(q, qd)

    def _require_mechanics(self, what: str) -> Mechanics:
        if self.mechanics is None or self.residual is not None:
            raise ModelError(
                f"this model knows torques only and has no {what}; ask `model.promises`, or fit a "
                "chain or a Lagrangian network without a residual"
            )
        return self.mechanics

    def _require_trust(self) -> Trust:
        if self.trust is None:
            raise ModelError(
                "this model has no band and no domain; `delan.fit` gives models that have both"
            )
        return self.trust


def _require_inertia(added: tuple[float, ...], joints: Joints) -> None:
    """Refuse added inertia of other joints, and negative numbers."""
    sound = all(0 <= number < np.inf for number in added)
    if len(added) != joints.dof or not sound:
        raise ModelError(
            f"the added inertia is {added}; expected {joints.dof} finite numbers, one for each "
            "joint, none of them negative"
        )


@dataclass(frozen=True)
class Blueprint:
    """The structure of a model without its numbers, as plain values that can cross processes.

    Neither trust nor added inertia is part of it.
    """

    joints: Joints
    mechanics: LagrangianChainSettings | LagrangianNetworkSettings | None = None
    friction: FrictionSettings | None = None
    residual: FeedForwardSettings | None = None

    @classmethod
    def of(cls, model: Model) -> "Blueprint":
        """Return the blueprint of a model."""
        settings: dict[str, Any] = {}
        for name in PARTS:
            part = getattr(model, name)
            if part is not None:
                settings[name] = part.settings
        return cls(model.joints, **settings)

    @classmethod
    def named(
        cls, joints: Joints, architecture: Architecture, friction: FrictionSettings | None = None
    ) -> "Blueprint":
        """Return the blueprint of mechanics or of a feed-forward network, by the architecture."""
        if isinstance(architecture, FeedForwardSettings):
            return cls(joints, None, friction, architecture)
        return cls(joints, architecture, friction)

    def build(self, normalisation: Normalisation | None = None, *, key: PRNGKeyArray) -> Model:
        """Return a model with random weights, in the units of the data of the normalisation."""
        mechanics = friction = residual = None
        if isinstance(self.mechanics, LagrangianChainSettings):
            mechanics = LagrangianChain(self.joints, self.mechanics, normalisation, key=key)
        elif self.mechanics is not None:
            mechanics = LagrangianNetwork(self.joints, self.mechanics, normalisation, key=key)
        if self.friction is not None:
            friction = Friction(self.joints, self.friction)
        if self.residual is not None:
            residual = FeedForwardNetwork(self.joints, self.residual, normalisation, key=key)
        return Model(mechanics, friction, residual)

    @cached_property
    def shape(self) -> Model:
        """The model with shapes in place of numbers; it takes no memory."""
        return eqx.filter_eval_shape(lambda: self.build(key=jax.random.key(0)))

    @cached_property
    def size(self) -> int:
        """The number of floating-point numbers in the model, with those of its normalisation."""
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.shape, _is_number)))

    def pack(self, model: Model) -> Float[np.ndarray, " numbers"]:
        """Return the numbers of such a model as a vector."""
        # In NumPy: JAX would round float64 numbers where it is not in that mode.
        leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
        return np.concatenate([np.asarray(leaf, dtype=float).ravel() for leaf in leaves])

    def unpack(self, vector: Float[Array, " numbers"]) -> Model:
        """Return the model of a vector of numbers; may be called inside `jax.jit`."""
        leaves, structure = jax.tree.flatten(eqx.filter(self.shape, _is_number))
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1].tolist()
        parts = []
        for part, leaf in zip(jnp.split(vector, ends), leaves, strict=True):
            parts.append(part.reshape(leaf.shape))
        numbers = jax.tree.unflatten(structure, parts)
        return eqx.combine(numbers, eqx.filter(self.shape, _is_number, inverse=True))


def _is_number(leaf: Any) -> bool:
    """Return whether a leaf of a shape stands for floating-point numbers."""
    return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def as_model(part: Any) -> Model:
    """Return the model of a single part, such as a chain; a model is returned as it is."""
    if isinstance(part, Model):
        return part
    for name in ("mechanics", "residual"):
        if isinstance(part, PARTS[name]):
            return Model(**{name: part})
    raise ModelError(
        f"a {type(part).__name__} has no weights that can be learned; give a Model, a chain, a "
        "Lagrangian network or a feed-forward network"
    )


def without_trust(model: Any) -> Any:
    """Return the model without its ensemble, for computations that do not need it."""
    if not model.promises.trust:
        return model
    return model.with_trust(None)
