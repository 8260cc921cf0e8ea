"""Friction, rotors and springs of the motors, with and without memory.

The torque of the motors is τ = Tᵀ (I T q̈ + ∂V/∂q_m + Σ_k w_k φ_k(T q̇)) + load friction: T maps
positions of joints to those of motors, q_m = T q, I are the inertias of the rotors, V is the energy
of springs and cables, w_k are the learned weights and φ_k the curves of the terms. `friction_terms`
holds the terms, and says how to add one.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ModelError, SettingsError
from ..joints import Joints
from ..mechanics.friction_terms import (
    TERMS,
    MotorMotion,
    Term,
    load_friction,
    smooth_sign,
    stop,
    without_load_friction,
)
from .dynamics import LinearWeights, MatrixResult, ScalarResult, on_device
from .friction_settings import FrictionSettings, MotorPair

Numbers = Array | np.ndarray
PerJoint = Float[Numbers, " dof"]
PerMotor = Float[Numbers, " motors"]
Memory = Float[Numbers, "stops motors"]

# The largest share of the load that load friction may take: at 1 no torque would move the joint.
MOST_LOAD = 0.9


class FrictionState(NamedTuple):
    """Positions of the motors, and stretch of each of their stop operators [rad or m]."""

    position: PerMotor
    stops: Memory


class Friction(eqx.Module):
    """The torque that motors need in addition to that of the links (see the top of this module).

    Its motors are one for each joint, then the pairs; q_m = T q. It takes and returns JAX arrays,
    or NumPy arrays if its weights are such (`known`, `of`). The torque is linear in the weights
    unless there are both load friction and rotors, whose torque is part of the load, or a weight of
    load friction exceeds `MOST_LOAD`, where it is cut.
    """

    weights: LinearWeights
    log_width: PerMotor
    log_stribeck_speed: PerMotor
    joints: Joints = eqx.field(static=True)
    settings: FrictionSettings = eqx.field(static=True)

    def __init__(self, joints: Joints, settings: FrictionSettings | None = None):
        self.joints = joints
        self.settings = settings = settings or FrictionSettings()
        for pair in settings.pairs:
            if max(pair.first, pair.second) >= joints.dof:
                raise SettingsError(
                    f"{pair} names a joint that does not exist; "
                    f"the {joints.dof} joints count from 0"
                )
        motors = joints.dof + len(settings.pairs)
        bounded = settings.bounded(joints.dof)
        self.weights = LinearWeights(on_device(np.zeros((len(settings.laws), motors))), bounded)
        self.log_width = on_device(np.full(motors, np.log(settings.width)))
        self.log_stribeck_speed = on_device(np.full(motors, np.log(settings.stribeck_speed)))

    @classmethod
    def of(
        cls,
        joints: Joints,
        settings: FrictionSettings,
        weights: Float[np.ndarray, "columns motors"],
    ) -> "Friction":
        """Return friction of NumPy arrays with these weights and the speeds of the settings."""
        blank = cls(joints, settings)
        weights = np.asarray(weights, dtype=float)
        expected = blank.weights.value.shape
        if weights.shape != expected or not np.isfinite(weights).all():
            raise ModelError(
                f"the weights have shape {weights.shape}; "
                f"expected finite numbers in shape {expected}"
            )
        bounded = np.array(blank.weights.bounded, dtype=bool).reshape(expected)
        if (weights[bounded] < 0).any():
            raise ModelError(
                "a weight of friction or of a rotor is negative; "
                "give it ≥ 0, or friction passive=False"
            )
        motors = expected[1]
        log_width = np.full(motors, np.log(settings.width))
        log_stribeck_speed = np.full(motors, np.log(settings.stribeck_speed))
        return eqx.tree_at(
            lambda friction: (
                friction.weights.value,
                friction.log_width,
                friction.log_stribeck_speed,
            ),
            blank,
            (weights, log_width, log_stribeck_speed),
        )

    @classmethod
    def known(
        cls,
        joints: Joints,
        sizes: Mapping[Term, Float[np.ndarray, " dof"]],
        *,
        width: float = 0.01,
        stribeck_speed: float = 0.1,
    ) -> "Friction":
        """Return friction of known size at each joint, of NumPy arrays.

        Args:
            sizes: of each term, a number per joint: coulomb, offset and stribeck, the excess of
                static over Coulomb friction [N m or N]; viscous [N m s/rad or N s/m]; load, the
                share of the conservative torque.
        """
        terms = tuple(sizes)
        rows = np.zeros((len(terms), joints.dof))
        for row, term in enumerate(terms):
            size = np.asarray(sizes[term], dtype=float)
            if size.shape != (joints.dof,):
                raise ModelError(
                    f"{term} has shape {size.shape}; "
                    f"expected one number per joint, shape ({joints.dof},)"
                )
            rows[row] = size
        settings = FrictionSettings(terms=terms, width=width, stribeck_speed=stribeck_speed)
        return cls.of(joints, settings, rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the rows of the weights."""
        return self.settings.columns

    @property
    def motors(self) -> tuple[str, ...]:
        """Names of the motors: those of their joints, or such as `elbow + 0.6 wrist`."""
        joints = self.joints.names
        names = list(joints)
        for pair in self.settings.pairs:
            sign = "-" if pair.ratio < 0 else "+"
            names.append(f"{joints[pair.first]} {sign} {abs(pair.ratio):g} {joints[pair.second]}")
        return tuple(names)

    @property
    def transmission(self) -> Float[np.ndarray, "motors dof"]:
        """T of q_m = T q."""
        return _transmission(self.joints.dof, self.settings.pairs)

    @property
    def named(self) -> dict[str, PerMotor]:
        """The weights of the motors by the names of their columns."""
        return {name: self.weights.value[row] for row, name in enumerate(self.columns)}

    @property
    def acting(self) -> Bool[np.ndarray, "columns motors"]:
        """Mask of the weights that have an effect: a pair lacks some of the terms."""
        at_pairs = np.array([law.pairs for _, law in self.settings.laws], dtype=bool)
        of_joint = np.arange(len(self.transmission)) < self.joints.dof
        return at_pairs[:, None] | of_joint

    @property
    def armature(self) -> MatrixResult:
        """The inertia of the rotors Tᵀ diag(I) T [kg m² or kg]; zero without that term."""
        dtype = self.weights.value.dtype
        if "armature" not in self.settings.terms:
            return np.zeros((self.joints.dof, self.joints.dof), dtype)
        turn = self.transmission.astype(dtype)
        return turn.T @ (self.named["armature"][:, None] * turn)

    def potential_curves(
        self, q: Float[Numbers, "*rows dof"]
    ) -> Float[Numbers, "*rows columns motors"]:
        """Return the torque at the motors of a unit of each weight that stores energy, else 0."""
        return _position_curves(self, q)[0]

    def potential_torque(self, q: PerJoint) -> PerJoint:
        """Return the torque against springs and cables, the slope of `potential` [N m or N]."""
        if not self.settings.stores_energy:
            return 0 * q
        return _at_joints(self, (self.weights.value * self.potential_curves(q)).sum(axis=-2))

    def potential(self, q: PerJoint) -> ScalarResult:
        """Return the energy that springs and cables store [J]."""
        if not self.settings.stores_energy:
            return 0.0
        return (self.weights.value * _position_curves(self, q)[1]).sum()

    def features(
        self,
        qd: Float[Numbers, "*rows dof"],
        memory: Float[Numbers, "*rows stops motors"] | None = None,
    ) -> Float[Numbers, "*rows columns motors"]:
        """Return the curves φ, whose weighted sum is the friction at the motors.

        They are zero where a weight is no factor of such a curve: for rotors, springs, cables, load
        friction and the offset of a pair. Without memory a stop operator counts as slid.
        """
        return _curves(self, qd, memory)

    def torque(self, qd: PerJoint, load: PerJoint, memory: Memory | None = None) -> PerJoint:
        """Return the friction at the speed q̇ under the conservative torque `load` [N m or N].

        Args:
            memory: s/r of the stop operators, as returned by `remember`; without it they count as
                slid, tanh(v/w).
        """
        return _unloaded(self, qd, memory) + _under_load(self, qd, load)

    def conservative(self, qd: PerJoint, tau: PerJoint, memory: Memory | None = None) -> PerJoint:
        """Return the conservative torque τ_c with τ_c + friction(q̇, τ_c) = τ [N m or N]."""
        rest = tau - _unloaded(self, qd, memory)
        if "load" not in self.settings.terms:
            return rest
        return without_load_friction(rest, *_load(self, qd))

    def init(self, q: PerJoint) -> FrictionState:
        """Return the memory of motors at rest at q, with every stop operator relaxed."""
        position = _at_motors(self, 1.0 * q)
        array = position.__array_namespace__()
        shape = (len(self.settings.stops), len(position))
        return FrictionState(position, array.zeros(shape, dtype=position.dtype))

    def moved(self, state: FrictionState, q: PerJoint) -> FrictionState:
        """Return the memory after a move to q."""
        return _moved(self, state, q)

    def memory(self, state: FrictionState) -> Memory:
        """Return s/r of the stop operators, as `torque` takes it."""
        return _normalised(self, state)

    def update(
        self, state: FrictionState, q: PerJoint, qd: PerJoint, *, load: PerJoint | None = None
    ) -> tuple[FrictionState, PerJoint]:
        """Return the memory after a move to q, and the friction torque there [N m or N].

        Without a load there is no load friction.
        """
        state = _moved(self, state, q)
        torque = _unloaded(self, qd, _normalised(self, state))
        if load is not None:
            torque = torque + _under_load(self, qd, load)
        return state, torque

    def follow(
        self,
        state: FrictionState,
        q: Float[Numbers, "time dof"],
        starts: Bool[Numbers, " time"] | None = None,
    ) -> tuple[FrictionState, Float[Array, "time stops motors"]]:
        """Return the memory after a motion, and s/r of the stop operators along it.

        `starts` marks rows at which the operators are relaxed.
        """
        if starts is None:
            starts = np.zeros(len(q), dtype=bool)
        return _follow(self, jax.tree.map(jnp.asarray, state), jnp.asarray(q), jnp.asarray(starts))

    def remember(
        self, q: Float[Numbers, "time dof"], starts: Bool[Numbers, " time"] | None = None
    ) -> Float[Array, "time stops motors"]:
        """Return s/r of the stop operators along a motion that begins relaxed.

        `starts` marks rows at which another motion begins. The motion before the first row is
        unknown: until a joint has moved by two radii, its operator is a guess. A reversal between
        two rows is not seen: give the positions at the rate they were recorded at.
        """
        q = 1.0 * jnp.asarray(q)
        return self.follow(self.init(q[0]), q, starts)[1]


# Functions, not methods: equinox takes tens of microseconds to bind a method, more than NumPy takes
# for the torque.


@lru_cache
def _transmission(dof: int, pairs: tuple[MotorPair, ...]) -> Float[np.ndarray, "motors dof"]:
    turn = np.eye(dof + len(pairs), dof)
    for row, pair in enumerate(pairs, start=dof):
        turn[row, pair.first] = 1.0
        turn[row, pair.second] = pair.ratio
    # The cache hands the same array to everyone.
    turn.flags.writeable = False
    return turn


def _at_motors(head: Friction, joints: Any) -> Any:
    """Return T x."""
    if not head.settings.pairs:
        return joints
    return joints @ head.transmission.T.astype(joints.dtype)


def _at_joints(head: Friction, motors: Any) -> Any:
    """Return Tᵀ y."""
    if not head.settings.pairs:
        return motors
    return motors @ head.transmission.astype(motors.dtype)


def _moved(head: Friction, state: FrictionState, q: Any) -> FrictionState:
    position = _at_motors(head, q)
    radii = np.array(head.settings.stops, dtype=state.stops.dtype)[:, None]
    return FrictionState(position, stop(state.stops, (position - state.position)[None], radii))


@eqx.filter_jit
def _follow(
    head: Friction, state: FrictionState, q: Float[Array, "time dof"], starts: Bool[Array, " time"]
) -> tuple[FrictionState, Float[Array, "time stops motors"]]:
    def step(state: FrictionState, row: tuple[Array, Array]) -> tuple[FrictionState, Array]:
        q, start = row
        moved = _moved(head, state, q)
        state = jax.tree.map(lambda new, old: jnp.where(start, new, old), head.init(q), moved)
        return state, _normalised(head, state)

    return jax.lax.scan(step, state, (q, starts))


def _normalised(head: Friction, state: FrictionState) -> Any:
    return state.stops / np.array(head.settings.stops, dtype=state.stops.dtype)[:, None]


def _curves(head: Friction, qd: Any, memory: Any) -> Any:
    v = _at_motors(head, qd)
    array = v.__array_namespace__()
    count = len(head.settings.stops)
    motors = head.log_width.shape[0]
    if memory is not None and memory.shape[-2:] != (count, motors):
        raise ModelError(
            f"the memory has shape {memory.shape}; "
            f"expected (stops, motors) = ({count}, {motors}) of `remember` or None"
        )
    width = array.exp(head.log_width)
    step = smooth_sign(v, width)
    stops = [step] * count
    if memory is not None:
        stops = [memory[..., row, :] for row in range(count)]
    motion = MotorMotion(v, width, step, head.log_stribeck_speed, stops, head.joints.dof)
    curves = []
    for term in head.settings.terms:
        curves += TERMS[term].curves(motion)
    if not curves:
        return array.zeros((*v.shape[:-1], 0, motors), dtype=v.dtype)
    return array.stack(curves, axis=-2)


def _position_curves(head: Friction, q: Any) -> tuple[Any, Any]:
    """Return the torques and energies of springs and cables per unit of every weight."""
    position = _at_motors(head, q)
    array = position.__array_namespace__()
    nothing = array.zeros_like(position)
    single = np.arange(position.shape[-1]) < head.joints.dof
    turning = np.concatenate([head.joints.turning, np.zeros(len(head.settings.pairs), dtype=bool)])
    torques = []
    energies = []
    for term in head.settings.terms:
        law = TERMS[term]
        count = len(law.columns(head.settings.radii)) if law.columns else 1
        if law.potential is None:
            torques += [nothing] * count
            energies += [nothing] * count
            continue
        acting = (single | law.pairs) & (turning | (not law.turning))
        slopes, stored = law.potential(position)
        torques += [array.where(acting, slope, 0) for slope in slopes]
        energies += [array.where(acting, energy, 0) for energy in stored]
    return array.stack(torques, axis=-2), array.stack(energies, axis=-2)


def _unloaded(head: Friction, qd: Any, memory: Any) -> Any:
    """Return friction without the part that grows with the load."""
    return _at_joints(head, (head.weights.value * _curves(head, qd, memory)).sum(axis=-2))


def _load(head: Friction, qd: Any) -> tuple[Any, Any]:
    """Return the shares of the load and the steps of the joints."""
    dof = head.joints.dof
    array = qd.__array_namespace__()
    share = array.clip(head.weights.value[head.columns.index("load"), :dof], -MOST_LOAD, MOST_LOAD)
    return share, smooth_sign(qd, array.exp(head.log_width[:dof]))


def _under_load(head: Friction, qd: Any, load: Any) -> Any:
    if "load" not in head.settings.terms:
        return 0 * qd
    return load_friction(load, *_load(head, qd))
