"""Friction and rotors of the motors, with and without memory.

The torque of the motors is τ = Tᵀ (I T q̈ + Σ_k w_k φ_k(T q̇)) + load friction: T maps positions of
joints to those of motors, I are the inertias of the rotors, w_k the learned weights and φ_k the
curves of the terms. `friction_terms` holds the terms, and says how to add one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    FrictionLaw,
    MotorMotion,
    Term,
    load_friction,
    smooth_sign,
    stop,
    without_load_friction,
)
from .dynamics import LinearWeights, MatrixResult, on_device

Numbers = Array | np.ndarray
PerJoint = Float[Numbers, " dof"]
PerMotor = Float[Numbers, " motors"]
Memory = Float[Numbers, "stops motors"]

# Range of radii, speeds and ratios: the C code computes their inverses and squares in float.
SMALLEST = 1e-9
LARGEST = 1e9
_RANGE = f"expected {SMALLEST:g} to {LARGEST:g} in size"

# The largest share of the load that load friction may take: at 1 no torque would move the joint.
MOST_LOAD = 0.9


@dataclass(frozen=True)
class MotorPair:
    """A motor that turns with two joints, q_m = q_first + ratio q_second: a cable differential."""

    first: int
    second: int
    ratio: float

    def __post_init__(self) -> None:
        if min(self.first, self.second) < 0 or self.first == self.second:
            raise SettingsError(
                f"a motor pair needs two different joints, counted from 0, got {self}"
            )
        if not _is_positive(abs(self.ratio)):
            raise SettingsError(
                f"the ratio of a motor pair must be finite and not zero, got {self}; {_RANGE}"
            )


@dataclass(frozen=True)
class FrictionSettings:
    """The friction of the motors.

    Attributes:
        terms: names in `TERMS`: armature I q̈, viscous d v, coulomb F_c tanh(v/w), asymmetric
            (Coulomb friction with a size for each direction), stribeck (static friction), a
            constant offset, load friction `μ |τ_c| tanh(v/w)` with the conservative torque τ_c, and
            stops, which remember the path: one stop operator for each radius.
        pairs: motors that drive two joints, in addition to the motor of every joint; they have no
            offset and no load friction.
        radii: radii of the stop operators [rad or m].
        width, stribeck_speed: w and v_s [rad/s or m/s]; training starts from both.
        passive: weights of friction stay ≥ 0, so that it dissipates energy and supplies none; the
            inertias of rotors are never negative.
    """

    terms: tuple[Term, ...] = ("viscous", "coulomb", "offset")
    pairs: tuple[MotorPair, ...] = ()
    radii: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    width: float = 0.01
    stribeck_speed: float = 0.1
    passive: bool = True

    def __post_init__(self) -> None:
        if not _all_distinct(self.terms, TERMS.__contains__):
            raise SettingsError(
                f"terms is a tuple of {', '.join(TERMS)}, each at most once, got {self.terms!r}"
            )
        if {"coulomb", "asymmetric"} <= set(self.terms):
            raise SettingsError(
                "asymmetric is coulomb with a size for each direction; give only one of them, "
                f"got {self.terms!r}"
            )
        if not _all_distinct(self.pairs, lambda pair: isinstance(pair, MotorPair)):
            raise SettingsError(
                f"pairs is a tuple of MotorPair, each at most once, got {self.pairs!r}"
            )
        if not (self.radii and _all_distinct(self.radii, _is_positive)):
            raise SettingsError(
                f"radii is a tuple of different numbers, positive and finite, "
                f"got {self.radii!r}; {_RANGE}"
            )
        speeds = {"width of the Coulomb step": self.width, "stribeck_speed": self.stribeck_speed}
        for name, value in speeds.items():
            if not _is_positive(value):
                raise SettingsError(f"{name} must be positive and finite, got {value}; {_RANGE}")

    @property
    def stops(self) -> tuple[float, ...]:
        """Radii of the stop operators in use [rad or m]."""
        return self.radii if "stops" in self.terms else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the weights of each motor, in the order of the terms."""
        return tuple(name for name, _ in self.laws)

    def bounded(self, dof: int) -> tuple[bool, ...]:
        """Whether each weight, column by column and in these motor by motor, must be ≥ 0."""
        bounded: list[bool] = []
        for _, law in self.laws:
            bounded += [law.bounded(self.passive)] * (dof + len(self.pairs))
        return tuple(bounded)

    @property
    def laws(self) -> list[tuple[str, FrictionLaw]]:
        """Name and law of every column."""
        laws = []
        for term in self.terms:
            law = TERMS[term]
            names = (term,) if law.columns is None else law.columns(self.radii)
            for name in names:
                laws.append((name, law))
        return laws


def _is_positive(value: float) -> bool:
    return SMALLEST <= value <= LARGEST


def _all_distinct(values: Any, fits: Callable[[Any], bool]) -> bool:
    """Return whether the values are a tuple of different elements that all fit."""
    return isinstance(values, tuple) and all(map(fits, values)) and len(set(values)) == len(values)


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

    def features(
        self,
        qd: Float[Numbers, "*rows dof"],
        memory: Float[Numbers, "*rows stops motors"] | None = None,
    ) -> Float[Numbers, "*rows columns motors"]:
        """Return the curves φ, whose weighted sum is the friction at the motors.

        They are zero where a weight is no factor of such a curve: for rotors, for load friction and
        for the offset of a pair. Without memory a stop operator counts as slid.
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
