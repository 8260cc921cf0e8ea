"""What the motors add to the links: rotors, friction with and without memory."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ModelError, SettingsError
from ..joints import Joints
from ..mechanics.friction_curves import (
    halves,
    load_friction,
    smooth_sign,
    stop,
    stribeck_bump,
    without_load_friction,
)
from .dynamics import LinearWeights, MatrixResult

Term = Literal[
    "armature", "viscous", "coulomb", "asymmetric", "stribeck", "offset", "load", "stops"
]
Numbers = Array | np.ndarray
PerJoint = Float[Numbers, " dof"]
PerMotor = Float[Numbers, " motors"]
Memory = Float[Numbers, "stops motors"]

MOST_LOAD = 0.9
"""The most that friction takes of the load it grows with; from a share of one on, no torque would
move the joint.
"""


@dataclass(frozen=True)
class MotorPair:
    """A motor that turns with two joints, q_m = q_first + ratio q_second, as in a cable
    differential.
    """

    first: int
    second: int
    ratio: float

    def __post_init__(self) -> None:
        if min(self.first, self.second) < 0 or self.first == self.second:
            raise SettingsError(
                f"a motor pair needs two different joints, counted from 0, got {self}"
            )
        if not 0 < abs(self.ratio) < float("inf"):
            raise SettingsError(
                f"the ratio of a motor pair must be finite and not zero, got {self}"
            )


@dataclass(frozen=True)
class FrictionSettings:
    """What the motors have.

    Attributes:
        terms: armature I q̈, viscous v, coulomb tanh(v/w), asymmetric (Coulomb friction with a size
            for each way), stribeck tanh(v/w) exp(−(v/v_s)²), a constant offset, load abs(τ_c)
            tanh(v/w) with the conservative torque τ_c, and stops, which remember the way: one stop
            operator s/r for each radius.
        pairs: motors that turn with two joints, beside the one of every joint; they have no offset
            and no load.
        radii: of the stop operators [rad or m].
        width: w [rad/s or m/s] of the Coulomb step; stribeck_speed: v_s. Both are where learning
            starts.
        passive: weights of friction stay ≥ 0, so that it takes energy and gives none; rotors are
            never negative.
    """

    terms: tuple[Term, ...] = ("viscous", "coulomb", "offset")
    pairs: tuple[MotorPair, ...] = ()
    radii: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    width: float = 0.01
    stribeck_speed: float = 0.1
    passive: bool = True

    def __post_init__(self) -> None:
        known = get_args(Term)
        if not isinstance(self.terms, tuple) or len(set(self.terms) & set(known)) != len(
            self.terms
        ):
            raise SettingsError(
                f"terms is a tuple of {', '.join(known)}, each at most once, got {self.terms!r}"
            )
        if {"coulomb", "asymmetric"} <= set(self.terms):
            raise SettingsError(
                f"asymmetric is coulomb with a size for each way; name one of them, got {self.terms!r}"
            )
        pairs = self.pairs if isinstance(self.pairs, tuple) else (None,)
        if not all(isinstance(pair, MotorPair) for pair in pairs) or len(set(pairs)) != len(pairs):
            raise SettingsError(
                f"pairs is a tuple of MotorPair, each at most once, got {self.pairs!r}"
            )
        radii = self.radii if isinstance(self.radii, tuple) else ()
        if (
            not radii
            or len(set(radii)) != len(radii)
            or not all(0 < radius < float("inf") for radius in radii)
        ):
            raise SettingsError(
                f"radii is a tuple of different numbers, positive and finite, got {self.radii!r}"
            )
        for name, value in (
            ("width of the Coulomb step", self.width),
            ("stribeck_speed", self.stribeck_speed),
        ):
            if not 0 < value < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {value}")

    @property
    def stops(self) -> tuple[float, ...]:
        """The radii that are in use [rad or m]."""
        return self.radii if "stops" in self.terms else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the weights that each motor has, in the order of the terms."""
        several = {
            "asymmetric": ("coulomb+", "coulomb-"),
            "stops": tuple(f"stop {radius:g}" for radius in self.radii),
        }
        return tuple(name for term in self.terms for name in several.get(term, (term,)))


class FrictionState(NamedTuple):
    """What friction remembers: where the motors were, and how far each stop operator is stretched
    [rad or m].
    """

    position: PerMotor
    stops: Memory


class Friction(eqx.Module):
    """The torque that motors need beside that of the links: τ_a = Tᵀ (I T q̈ + Σ_k w_k φ_k(T q̇)) +
    load friction.

    Its motors are one of each joint, then the pairs; q_m = T q. Takes and gives JAX arrays, or
    numpy arrays if its numbers are such (`known`, `of`). The torque is linear in the weights as
    long as load and armature are not both there (the load holds the rotors' torque) and no weight
    of the load passes 0.9, where it is cut.
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
                    f"{pair} names a joint that is not there; the {joints.dof} joints count from 0"
                )
        motors = joints.dof + len(settings.pairs)
        bounded = (
            name == "armature" or (settings.passive and name != "offset")
            for name in settings.columns
        )
        self.weights = LinearWeights(
            jnp.zeros((len(settings.columns), motors)),
            tuple(one for one in bounded for _ in range(motors)),
        )
        self.log_width = jnp.full(motors, np.log(settings.width))
        self.log_stribeck_speed = jnp.full(motors, np.log(settings.stribeck_speed))

    @classmethod
    def of(
        cls,
        joints: Joints,
        settings: FrictionSettings,
        weights: Float[np.ndarray, "columns motors"],
    ) -> "Friction":
        """An actuator of numpy arrays with these weights and with the width and Stribeck speed of
        the settings.
        """
        made, weights = cls(joints, settings), np.asarray(weights, dtype=float)
        wanted = made.weights.value.shape
        if weights.shape != wanted or not np.isfinite(weights).all():
            raise ModelError(
                f"the weights have shape {weights.shape}; expected finite numbers in shape {wanted}"
            )
        if (weights[np.array(made.weights.bounded, dtype=bool).reshape(wanted)] < 0).any():
            raise ModelError(
                "a weight of friction or of a rotor is negative; give it ≥ 0, or friction passive=False"
            )
        speeds = (
            np.full(wanted[1], np.log(value)) for value in (settings.width, settings.stribeck_speed)
        )
        return eqx.tree_at(
            lambda one: (one.weights.value, one.log_width, one.log_stribeck_speed),
            made,
            (weights, *speeds),
        )

    @classmethod
    def known(
        cls,
        joints: Joints,
        *,
        coulomb: Float[np.ndarray, " dof"] | None = None,
        viscous: Float[np.ndarray, " dof"] | None = None,
        stribeck: Float[np.ndarray, " dof"] | None = None,
        offset: Float[np.ndarray, " dof"] | None = None,
        load: Float[np.ndarray, " dof"] | None = None,
        width: float = 0.01,
        stribeck_speed: float = 0.1,
    ) -> "Friction":
        """Friction of known size at each joint, of numpy arrays.

        Args:
            coulomb, offset: [N m or N]; stribeck: by how much static friction is more than
                Coulomb's [N m or N].
            viscous: [N m s/rad or N s/m]; load: the share of the conservative torque that friction
                takes.
        """
        given: dict[Term, Any] = {
            "coulomb": coulomb,
            "viscous": viscous,
            "stribeck": stribeck,
            "offset": offset,
            "load": load,
        }
        terms: tuple[Term, ...] = tuple(term for term, sizes in given.items() if sizes is not None)
        rows = [np.asarray(given[term], dtype=float) for term in terms]
        for term, row in zip(terms, rows, strict=True):
            if row.shape != (joints.dof,):
                raise ModelError(
                    f"{term} has shape {row.shape}; expected one number a joint, shape ({joints.dof},)"
                )
        settings = FrictionSettings(terms=terms, width=width, stribeck_speed=stribeck_speed)
        return cls.of(joints, settings, np.reshape(rows, (len(terms), joints.dof)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the rows of the weights."""
        return self.settings.columns

    @property
    def motors(self) -> tuple[str, ...]:
        """Names of the motors: of their joints, or such as `elbow + 0.6 wrist`."""
        names = self.joints.names
        pairs = (
            (names[pair.first], pair.ratio, names[pair.second]) for pair in self.settings.pairs
        )
        return (
            *names,
            *(f"{a} {'-' if ratio < 0 else '+'} {abs(ratio):g} {b}" for a, ratio, b in pairs),
        )

    @property
    def transmission(self) -> Float[np.ndarray, "motors dof"]:
        """T of q_m = T q."""
        return _transmission(self.joints.dof, self.settings.pairs)

    @property
    def named(self) -> dict[str, PerMotor]:
        """The weights of the motors under the names of their columns."""
        return {name: self.weights.value[row] for row, name in enumerate(self.columns)}

    @property
    def acting(self) -> Bool[np.ndarray, "columns motors"]:
        """Which weights have an effect: a pair has no offset and no load."""
        pair = np.arange(len(self.transmission)) >= self.joints.dof
        return ~(np.isin(self.columns, ("offset", "load"))[:, None] & pair)

    @property
    def armature(self) -> MatrixResult:
        """The inertia of the rotors Tᵀ diag(I) T [kg m² or kg]; zero without that term."""
        dtype, turn = self.weights.value.dtype, self.transmission
        if "armature" not in self.settings.terms:
            return np.zeros((self.joints.dof, self.joints.dof), dtype)
        turn = turn.astype(dtype)
        return turn.T @ (self.named["armature"][:, None] * turn)

    def features(
        self,
        qd: Float[Numbers, "*rows dof"],
        memory: Float[Numbers, "*rows stops motors"] | None = None,
    ) -> Float[Numbers, "*rows columns motors"]:
        """The curves φ whose weighted sum is the friction at the motors; without memory a stop
        operator has slid.

        Zero where a weight is no factor of such a curve: for rotors and load, and for the offset of
        a pair.
        """
        return _curves(self, qd, memory)

    def torque(self, qd: PerJoint, load: PerJoint, memory: Memory | None = None) -> PerJoint:
        """The torque that friction takes at the speed q̇ under the conservative torque `load` [N m
        or N].

        Args:
            memory: s/r of the stop operators, as `remember` gives it; without it they count as
                slid, tanh(v/w).
        """
        return _unloaded(self, qd, memory) + _under_load(self, qd, load)

    def conservative(self, qd: PerJoint, tau: PerJoint, memory: Memory | None = None) -> PerJoint:
        """The torque τ_c that is left of τ when friction has taken its part: τ_c + friction(q̇,
        τ_c) = τ [N m or N].
        """
        rest = tau - _unloaded(self, qd, memory)
        if "load" not in self.settings.terms:
            return rest
        return without_load_friction(rest, *_load(self, qd))

    def init(self, q: PerJoint) -> FrictionState:
        """The memory of motors that rest at q with every stop operator relaxed, as if nothing had
        been before.
        """
        position = _at_motors(self, 1.0 * q)
        array = position.__array_namespace__()
        return FrictionState(
            position, array.zeros((len(self.settings.stops), len(position)), dtype=position.dtype)
        )

    def update(
        self, state: FrictionState, q: PerJoint, qd: PerJoint, *, load: PerJoint | None = None
    ) -> tuple[FrictionState, PerJoint]:
        """The memory after the way to q, and the friction torque there [N m or N]; without a load
        that part is zero.
        """
        state = _moved(self, state, q)
        torque = _unloaded(self, qd, _normalised(self, state))
        return state, torque if load is None else torque + _under_load(self, qd, load)

    def follow(
        self,
        state: FrictionState,
        q: Float[Numbers, "time dof"],
        starts: Bool[Numbers, " time"] | None = None,
    ) -> tuple[FrictionState, Float[Array, "time stops motors"]]:
        """The memory after a motion, and s/r of the stop operators along it; `starts` marks rows
        that begin relaxed.
        """
        starts = np.zeros(len(q), dtype=bool) if starts is None else starts
        return _follow(self, jax.tree.map(jnp.asarray, state), jnp.asarray(q), jnp.asarray(starts))

    def remember(
        self, q: Float[Numbers, "time dof"], starts: Bool[Numbers, " time"] | None = None
    ) -> Float[Array, "time stops motors"]:
        """s/r of the stop operators along a motion that begins relaxed; `starts` marks rows where
        another one begins.

        What was before the first row nobody knows: until a joint has moved by two radii, its
        operator is a guess. A reversal between two rows is not seen: give the positions at the rate
        they were recorded at.
        """
        q = 1.0 * jnp.asarray(q)
        return self.follow(self.init(q[0]), q, starts)[1]


# Functions, not methods: equinox takes tens of microseconds to bind a method, more than numpy takes
# for the torque.


@lru_cache
def _transmission(dof: int, pairs: tuple[MotorPair, ...]) -> Float[np.ndarray, "motors dof"]:
    turn = np.eye(dof + len(pairs), dof)
    for row, pair in enumerate(pairs, start=dof):
        turn[row, pair.first], turn[row, pair.second] = 1.0, pair.ratio
    turn.flags.writeable = False
    return turn


def _at_motors(head: Friction, joints: Any) -> Any:
    """T x."""
    return joints @ head.transmission.T.astype(joints.dtype) if head.settings.pairs else joints


def _at_joints(head: Friction, motors: Any) -> Any:
    """Tᵀ y."""
    return motors @ head.transmission.astype(motors.dtype) if head.settings.pairs else motors


def _moved(head: Friction, state: FrictionState, q: Any) -> FrictionState:
    position = _at_motors(head, q)
    radii = np.array(head.settings.stops, dtype=state.stops.dtype)[:, None]
    return FrictionState(position, stop(state.stops, (position - state.position)[None], radii))


@eqx.filter_jit
def _follow(
    head: Friction, state: FrictionState, q: Float[Array, "time dof"], starts: Bool[Array, " time"]
) -> tuple[FrictionState, Float[Array, "time stops motors"]]:
    def step(state: FrictionState, row: tuple[Array, Array]) -> tuple[FrictionState, Array]:
        moved = _moved(head, state, row[0])
        state = jax.tree.map(lambda new, old: jnp.where(row[1], new, old), head.init(row[0]), moved)
        return state, _normalised(head, state)

    return jax.lax.scan(step, state, (q, starts))


def _normalised(head: Friction, state: FrictionState) -> Any:
    return state.stops / np.array(head.settings.stops, dtype=state.stops.dtype)[:, None]


def _curves(head: Friction, qd: Any, memory: Any) -> Any:
    settings, v = head.settings, _at_motors(head, qd)
    array = v.__array_namespace__()
    count, motors = len(settings.stops), head.log_width.shape[0]
    if memory is not None and memory.shape[-2:] != (count, motors):
        raise ModelError(
            f"the memory has shape {memory.shape}; expected (stops, motors) = ({count}, {motors}) of `remember` or None"
        )
    width = array.exp(head.log_width)
    step = smooth_sign(v, width)
    curves = []
    for term in settings.terms:
        match term:
            case "viscous":
                curves.append(v)
            case "coulomb":
                curves.append(step)
            case "asymmetric":
                curves += halves(step)
            case "stribeck":
                curves.append(stribeck_bump(v, width, array.exp(head.log_stribeck_speed)))
            case "offset":
                curves.append(
                    array.zeros_like(v) + (np.arange(motors) < head.joints.dof)
                )  # a pair has none
            case "stops":
                curves += [step if memory is None else memory[..., row, :] for row in range(count)]
            case "armature" | "load":
                curves.append(array.zeros_like(v))
    return (
        array.stack(curves, axis=-2)
        if curves
        else array.zeros((*v.shape[:-1], 0, motors), dtype=v.dtype)
    )


def _unloaded(head: Friction, qd: Any, memory: Any) -> Any:
    """Friction without the part that grows with the load."""
    return _at_joints(head, (head.weights.value * _curves(head, qd, memory)).sum(axis=-2))


def _load(head: Friction, qd: Any) -> tuple[Any, Any]:
    """The shares of the load and the steps of the joints."""
    dof, array = head.joints.dof, qd.__array_namespace__()
    share = array.clip(head.weights.value[head.columns.index("load"), :dof], -MOST_LOAD, MOST_LOAD)
    return share, smooth_sign(qd, array.exp(head.log_width[:dof]))


def _under_load(head: Friction, qd: Any, load: Any) -> Any:
    return load_friction(load, *_load(head, qd)) if "load" in head.settings.terms else 0 * qd
