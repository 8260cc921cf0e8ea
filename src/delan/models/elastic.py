"""Elastic joints: a chain of links that springs drive, and motors behind the springs.

With the positions q of the links and θ of the motors, stiffness K, damping D and rotors B (Spong
1987, with reflected rotor inertias):

    H(q) q̈ + c(q, q̇) + g(q) + friction of links = K (θ − q) + D (θ̇ − q̇)
    B θ̈ + friction of motors + K (θ − q) + D (θ̇ − q̇) = τ

This is a chain in the coordinates (q, θ) whose tree moves with q alone, whose rotors turn with θ,
and whose motor pairs θ − q have springs and dampers. Its inertia is positive for every weight, its
springs store energy and its dampers lose it, because those of every chain with such friction do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints import Joints
from .chain import LagrangianChain, LagrangianChainSettings
from .dynamics import Vector, on_device
from .friction import Friction
from .friction_settings import FrictionSettings, MotorPair
from .geometry import NO_ROTOR, chain_of
from .model import Model

# Terms of friction that every elastic joint has: losses at links, motors and in the spring, the
# spring itself, and its rest position in the offsets.
TERMS = ("viscous", "coulomb", "offset", "spring")

PerJoint = Float[np.ndarray, " links"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ElasticDrives:
    """The motors of elastic joints and the springs before them, one number for each link.

    Attributes:
        stiffness, damping: of the springs [N m/rad or N/m, N m s/rad or N s/m].
        rotor: inertia of the motors, seen from the link [kg m² or kg].
        viscous, coulomb, offset: friction of the motors.
    """

    stiffness: PerJoint
    damping: PerJoint
    rotor: PerJoint
    viscous: PerJoint
    coulomb: PerJoint
    offset: PerJoint

    def resonance(self, inertia: PerJoint) -> PerJoint:
        """Return the frequency at which each motor swings against such an inertia of links [Hz]."""
        return np.sqrt(self.stiffness * (1 / self.rotor + 1 / inertia)) / (2 * np.pi)

    def antiresonance(self, inertia: PerJoint) -> PerJoint:
        """Return the frequency at which such a link swings while its motor stands still [Hz]."""
        return np.sqrt(self.stiffness / inertia) / (2 * np.pi)


def with_springs(link: Model, drives: ElasticDrives) -> Model:
    """Return the model in the coordinates of links and motors, from that of the links.

    The friction of the link model stays at the links. Rotors that it has there are kept, too: what
    turns with a link is part of it.
    """
    links = link.joints
    joints = links.with_motors()
    chain = _with_motors(chain_of(link), link, drives, joints)
    return Model(chain, _friction(link.friction, drives, joints))


def _with_motors(
    chain: LagrangianChain, link: Model, drives: ElasticDrives, joints: Joints
) -> LagrangianChain:
    """Return the chain of the links with coordinates for motors, which move none of its joints."""
    links = chain.joints.dof
    rows = np.eye(links) if chain.coupling is None else np.array(chain.coupling, dtype=float)
    coupling = np.hstack([rows, np.zeros_like(rows)])
    settings = LagrangianChainSettings(
        chain.tree.parents, tuple(map(tuple, coupling.tolist())), chain.tree.sliding
    )
    blank = eqx.filter_eval_shape(lambda: LagrangianChain(joints, settings, key=jax.random.key(0)))
    rotors = np.asarray(chain.armature, dtype=float)
    if link.friction is not None:
        rotors = rotors + np.diag(np.asarray(link.friction.armature))
    rotors = np.concatenate([rotors, drives.rotor])
    return eqx.tree_at(
        lambda chain: (chain.turn, chain.shift, chain.factor, chain.log_armature, chain.gravity),
        blank,
        (
            chain.turn,
            chain.shift,
            chain.factor,
            on_device(np.log(np.maximum(rotors, NO_ROTOR))),
            chain.gravity,
        ),
    )


def _friction(link: Friction | None, drives: ElasticDrives, joints: Joints) -> Friction:
    """Return the friction of links, motors and springs; the pairs θ − q follow those of links."""
    links = len(drives.stiffness)
    before = FrictionSettings(terms=()) if link is None else link.settings
    # Coulomb friction of either kind is one column or two.
    known = [term for term in before.terms if term != "armature"]
    terms = [term for term in TERMS if term != "coulomb" or "asymmetric" not in known]
    terms = [*known, *(term for term in terms if term not in known)]
    springs = tuple(MotorPair(links + joint, joint, -1.0) for joint in range(links))
    settings = replace(before, terms=tuple(terms), pairs=(*before.pairs, *springs))
    friction = Friction(joints, settings)
    pairs = len(before.pairs)
    at_motors = slice(links, 2 * links)
    at_springs = slice(2 * links + pairs, None)
    weights = np.array(friction.weights.value, dtype=float)
    width = np.array(friction.log_width, dtype=float)
    stribeck = np.array(friction.log_stribeck_speed, dtype=float)
    if link is not None:
        places = [*range(links), *range(2 * links, 2 * links + pairs)]
        for name, row in link.named.items():
            if name != "armature":
                weights[friction.columns.index(name), places] = row
        width[places] = link.log_width
        stribeck[places] = link.log_stribeck_speed
        width[at_motors] = link.log_width[:links]
        width[at_springs] = link.log_width[:links]
    values = {name: row for row, name in enumerate(friction.columns)}
    weights[values["viscous"], at_motors] = drives.viscous
    for name in ("coulomb", "coulomb+", "coulomb-"):
        if name in values:
            weights[values[name], at_motors] = drives.coulomb
    weights[values["offset"], at_motors] = drives.offset
    weights[values["spring"], at_springs] = drives.stiffness
    weights[values["viscous"], at_springs] = drives.damping
    return eqx.tree_at(
        lambda friction: (
            friction.weights.value,
            friction.log_width,
            friction.log_stribeck_speed,
        ),
        friction,
        tuple(map(on_device, (weights, width, stribeck))),
    )


def drives_of(model: Model) -> ElasticDrives | None:
    """Return motors and springs of a model with elastic joints, by link; None for a rigid one."""
    joints = model.joints
    if not joints.motor_of or model.chain is None or model.friction is None:
        return None
    named = model.friction.named
    links = joints.links.dof
    at_motors = links + np.argsort(joints.motor_of)
    pairs = model.friction.settings.pairs
    springs = []
    for joint, motor in enumerate(at_motors.tolist()):
        spring = MotorPair(motor, joint, -1.0)
        if spring in pairs:
            springs.append(joints.dof + pairs.index(spring))
    if "spring" not in named or len(springs) < links:
        return None

    def numbers(name: str, places: Sequence[int] | np.ndarray) -> PerJoint:
        if name not in named:
            return np.zeros(links)
        return np.asarray(named[name], dtype=float)[np.asarray(places)]

    dry = numbers("coulomb", at_motors)
    dry = dry + (numbers("coulomb+", at_motors) + numbers("coulomb-", at_motors)) / 2
    return ElasticDrives(
        stiffness=numbers("spring", springs),
        damping=numbers("viscous", springs),
        rotor=np.asarray(model.chain.armature, dtype=float)[at_motors],
        viscous=numbers("viscous", at_motors),
        coulomb=dry,
        offset=numbers("offset", at_motors),
    )


def motion_of_motors(
    model: Model, q: Vector, qd: Vector, qdd: Vector, jerk: Vector, snap: Vector
) -> tuple[Vector, Vector, Vector]:
    """Return θ, θ̇ and θ̈ of the motors that a motion of the links takes.

    A robot with elastic joints is flat: the links' motion up to its fourth derivative determines
    that of the motors, θ = q + τ_link / K, as long as the friction of the links is smooth there.
    Damping of the springs counts to first order in D / K, and not in θ̈.
    """
    drives = drives_of(model)
    if drives is None:
        raise ModelError("only a model of elastic joints has motors behind springs; ask for others")
    stiffness = jnp.asarray(drives.stiffness)
    lag = jnp.asarray(drives.damping) / stiffness
    links = len(drives.stiffness)

    def stretch(q: Array, qd: Array, qdd: Array) -> Array:
        # Links and motors side by side: the spring is not stretched, its torque is what is missing.
        still = jnp.zeros_like(q)
        both = (
            jnp.concatenate([q, q]),
            jnp.concatenate([qd, qd]),
            jnp.concatenate([qdd, still]),
        )
        return jnp.asarray(model.inverse_dynamics(*both))[:links] / stiffness

    def rate(q: Array, qd: Array, qdd: Array, jerk: Array) -> tuple[Array, Array]:
        return jax.jvp(stretch, (q, qd, qdd), (qd, qdd, jerk))

    (at, first), (_, second) = jax.jvp(rate, (q, qd, qdd, jerk), (qd, qdd, jerk, snap))
    return q + at - lag * first, qd + first - lag * second, qdd + second
