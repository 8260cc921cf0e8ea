"""The model of a robot: mechanics, friction, a residual network and trust, each of them optional."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
from .feed_forward import FeedForwardNetwork, FeedForwardSettings
from .friction import Friction, FrictionSettings, Memory
from .network import LagrangianNetwork, LagrangianNetworkSettings
from .trust import Trust

Mechanics = LagrangianChain | LagrangianNetwork
Architecture = LagrangianChainSettings | LagrangianNetworkSettings | FeedForwardSettings


class Model(eqx.Module):
    """A robot's dynamics, τ = τ_c + friction(q̇, τ_c) + residual, with the conservative torque τ_c.

    τ_c = τ_mechanics + A q̈, where A is the inertia of the rotors. Parts that are absent add nothing.
    `promises` says which methods a model answers: a feed-forward network alone, or a residual beside
    the mechanics, knows torques only.

    Where a method takes `memory`, it is the state of the friction's stop operators at this sample
    (`Friction.remember`). Without it they count as slid, which is wrong just after a reversal.

    Attributes:
        mechanics: the conservative part, a Lagrangian chain or network.
        friction: rotors and friction of the drives.
        residual: a feed-forward network for a torque without mechanics.
        trust: an ensemble, a calibrated band and the domain of the training data.
    """

    mechanics: Mechanics | None = None
    friction: Friction | None = None
    residual: FeedForwardNetwork | None = None
    trust: Trust | None = None

    def __check_init__(self) -> None:
        if self.mechanics is None and self.friction is None and self.residual is None:
            raise ModelError("a model needs mechanics, friction or a residual; got none of them")
        _require_kind("mechanics", self.mechanics, Mechanics)
        _require_kind("friction", self.friction, Friction)
        _require_kind("residual", self.residual, FeedForwardNetwork)
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

    @property
    def joints(self) -> Joints:
        """The joints of the robot."""
        parts = (self.mechanics, self.friction, self.residual)
        return next(part.joints for part in parts if part is not None)

    @property
    def promises(self) -> Promises:
        """Which questions beyond the torque this model answers."""
        known = Promises()
        if self.mechanics is not None and self.residual is None:
            known = self.mechanics.promises
        return Promises(
            mechanics=known.mechanics,
            energy=known.energy,
            trust=self.trust is not None,
            memory=self.friction is not None and bool(self.friction.settings.stops),
        )

    @property
    def chain(self) -> LagrangianChain | None:
        """The mechanics, if they are those of a chain with learned geometry."""
        return self.mechanics if isinstance(self.mechanics, LagrangianChain) else None

    @property
    def friction_settings(self) -> FrictionSettings | None:
        """The terms of the friction; None without friction."""
        return None if self.friction is None else self.friction.settings

    def with_trust(self, trust: Trust | None) -> "Model":
        """The same model with another trust, or without any."""
        return Model(self.mechanics, self.friction, self.residual, trust)

    def with_mechanics(self, mechanics: Mechanics) -> "Model":
        """The same model with other numbers in its mechanics."""
        return eqx.tree_at(lambda model: model.mechanics, self, mechanics)

    def inverse_dynamics(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> VectorResult:
        """The torque of the drives τ(q, q̇, q̈) [N m or N]."""
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
        load = self.friction.armature @ qdd
        if self.mechanics is not None:
            load = self.mechanics.inverse_dynamics(q, qd, qdd) + load
        return load + self.friction.torque(qd, load, memory)

    def forward_dynamics(
        self, q: Vector, qd: Vector, tau: Vector, *, memory: Memory | None = None
    ) -> VectorResult:
        """The acceleration q̈ = (H + A)⁻¹ (τ_c − c − g) [rad/s² or m/s²]."""
        mechanics = self._require_mechanics("forward dynamics")
        if self.friction is None:
            return mechanics.forward_dynamics(q, qd, tau)
        q, qd, tau = one_sample(self.joints, q, qd, tau)
        load = jnp.asarray(self.friction.conservative(qd, tau, memory))
        if "armature" not in self.friction.settings.terms:
            return mechanics.forward_dynamics(q, qd, load)
        bias = mechanics.inverse_dynamics(q, qd, jnp.zeros_like(qd))
        return cho_solve(cho_factor(self.mass_matrix(q), lower=True), load - bias)

    def mass_matrix(self, q: Vector) -> MatrixResult:
        """The inertia H(q) + A of links and rotors [kg m² or kg]."""
        inertia = self._require_mechanics("a mass matrix").mass_matrix(q)
        return inertia if self.friction is None else inertia + self.friction.armature

    def components(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> TorqueComponents:
        """The parts of the torque; those of the rotors are inertial."""
        mechanics = self._require_mechanics("parts of the torque")
        if self.friction is None:
            return mechanics.components(q, qd, qdd)
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        parts = mechanics.components(q, qd, qdd)
        parts = parts._replace(inertial=parts.inertial + self.friction.armature @ qdd)
        load = parts.inertial + parts.coriolis + parts.gravity
        return parts._replace(friction=self.friction.torque(qd, load, memory))

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy of links and rotors [J].

        Energy that stop operators store is not counted.
        """
        links = self._require_mechanics("energies").energy(q, qd)
        if self.friction is None:
            return links
        q, qd = one_sample(self.joints, q, qd)
        return links._replace(kinetic=links.kinetic + qd @ self.friction.armature @ qd / 2)

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> ScalarResult:
        """The rate of that energy [W]; it equals q̇ᵀ (τ − friction)."""
        links = self._require_mechanics("power").power(q, qd, qdd)
        if self.friction is None:
            return links
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        return links + qd @ self.friction.armature @ qdd

    def torque_std(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> Float[Array, " dof"]:
        """The standard deviation of the torque over the members of the ensemble [N m or N]."""
        return self._require_trust().torque_std(q, qd, qdd, memory=memory)

    def torque_band(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> Float[Array, " dof"]:
        """Half the width of the band that holds a share `trust.level` of measured torques [N m or N].

        The share is a mean over motion like that of training and validation, joint by joint. Outside
        the domain the band widens as the members disagree, but it was not calibrated there.
        """
        trust = self._require_trust()
        return trust.band * jnp.hypot(self.torque_std(q, qd, qdd, memory=memory), trust.floor)

    def in_domain(self, q: Vector, qd: Vector) -> Float[Array, ""]:
        """The distance to the training data: at most 1 inside, 2 at twice the usual distance."""
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


def _require_kind(name: str, part: Any, kind: Any) -> None:
    """Refuse a part of another kind, such as a rigid body, whose numbers JAX cannot learn."""
    if part is not None and not isinstance(part, kind):
        raise ModelError(
            f"a {type(part).__name__} cannot be the {name} of a model; a RigidBody becomes a model "
            "by `delan.models.geometry.model_of`"
        )


@dataclass(frozen=True)
class Blueprint:
    """A model without its numbers: enough to build it anew, and to send the numbers alone.

    Plain values, fit to cross processes.
    """

    joints: Joints
    mechanics: LagrangianChainSettings | LagrangianNetworkSettings | None = None
    friction: FrictionSettings | None = None
    residual: FeedForwardSettings | None = None

    @classmethod
    def of(cls, model: Model) -> "Blueprint":
        """The blueprint of a model; trust is not part of it."""
        return cls(
            joints=model.joints,
            mechanics=None if model.mechanics is None else model.mechanics.settings,
            friction=model.friction_settings,
            residual=None if model.residual is None else model.residual.settings,
        )

    @classmethod
    def named(
        cls, joints: Joints, architecture: Architecture, friction: FrictionSettings | None = None
    ) -> "Blueprint":
        """Mechanics or a feed-forward network, whichever the architecture is of."""
        if isinstance(architecture, FeedForwardSettings):
            return cls(joints, None, friction, architecture)
        return cls(joints, architecture, friction)

    def build(self, normalisation: Normalisation | None = None, *, key: PRNGKeyArray) -> Model:
        """A model with random weights, in the units of the data that the normalisation describes."""
        mechanics = friction = residual = None
        if self.mechanics is not None:
            kinds = {
                LagrangianChainSettings: LagrangianChain,
                LagrangianNetworkSettings: LagrangianNetwork,
            }
            kind: Any = kinds[type(self.mechanics)]
            mechanics = kind(self.joints, self.mechanics, normalisation, key=key)
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
        """The count of numbers in the model, those of its normalisation included."""
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.shape, _is_number)))

    def pack(self, model: Model) -> Float[np.ndarray, " numbers"]:
        """The numbers of such a model as one vector."""
        # In numpy: JAX would round float64 numbers where it is not in that mode.
        leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
        return np.concatenate([np.asarray(leaf, dtype=float).ravel() for leaf in leaves])

    def unpack(self, vector: Float[Array, " numbers"]) -> Model:
        """The model of a vector of numbers; may be called inside `jax.jit`."""
        leaves, structure = jax.tree.flatten(eqx.filter(self.shape, _is_number))
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1].tolist()
        parts = [
            part.reshape(leaf.shape)
            for part, leaf in zip(jnp.split(vector, ends), leaves, strict=True)
        ]
        numbers = jax.tree.unflatten(structure, parts)
        return eqx.combine(numbers, eqx.filter(self.shape, _is_number, inverse=True))


def _is_number(leaf: Any) -> bool:
    """Whether a leaf of a shape stands for floating-point numbers."""
    return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def as_model(part: Any) -> Model:
    """A model of one part alone, such as a chain; a model is returned as it is."""
    if isinstance(part, Model):
        return part
    if isinstance(part, Mechanics):
        return Model(mechanics=part)
    if isinstance(part, FeedForwardNetwork):
        return Model(residual=part)
    raise ModelError(
        f"a {type(part).__name__} has no weights that can be learned; give a Model, a chain, a "
        "Lagrangian network or a feed-forward network"
    )


def without_trust(model: Any) -> Any:
    """The model alone, for computations that need no ensemble."""
    return model.with_trust(None) if model.promises.trust else model
