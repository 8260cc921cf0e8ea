"""The learned friction of a robot's drives, with its memory; this file needs NumPy alone.

A drive turns with one joint or with two, u = T v. At the speed u it needs the torque

    d u + F₊ max(tanh(u/w), 0) + F₋ min(tanh(u/w), 0) + S tanh(u/w) exp(−(u/v_s)²) + Σ_r F_r s_r/r,

with stop operators s_r, springs that slide at the stretch r. Joints add a constant offset, and
μ |τ_c| tanh(v/w) under the torque τ_c that moves the links.

Friction is too steep for an explicit step of a light wrist. `implicit_friction` therefore finds the
friction at the end of a step, by Newton's method. All functions take NumPy or JAX arrays.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Most iterations of Newton's method; a step takes two to four, one that stops a joint up to ten.
ITERATIONS = 30
# Shares of a step that are tried: the best one is taken.
SHARES = 0.5 ** np.arange(10)
# A step is solved if its torques balance to this share of their size.
SOLVED = 1e-10


class Drives(NamedTuple):
    """The numbers of all drives.

    Attributes:
        turns: T, a row for each drive.
        width, stribeck_speed: w and v_s [rad/s or m/s].
        viscous: d [N m s/rad or N s/m].
        forward, backward, stribeck: F₊, F₋ and S [N m or N].
        radii, stops: r [rad or m] and F_r [N m or N], a row for each radius.
        offset, load: constant torque [N m or N] and share μ of each joint.
    """

    turns: Any
    width: Any
    stribeck_speed: Any
    viscous: Any
    forward: Any
    backward: Any
    stribeck: Any
    radii: Any
    stops: Any
    offset: Any
    load: Any


class DriveMemory(NamedTuple):
    """Positions of the drives [rad or m], and the stretch of their stop operators [rad or m]."""

    position: Any
    stretch: Any


class Step(NamedTuple):
    """A step of a simulation: M (v′ − v)/dt + bias = τ − friction.

    Attributes:
        mass, bias: inertia, and the torque of gravity and velocity [N m or N].
        v, tau: speed before the step, and the torque of the motors.
        dt: its duration [s].
    """

    mass: Any
    bias: Any
    v: Any
    tau: Any
    dt: Any


def read_drives(path: str | Path) -> Drives:
    """Read the drives from `drives.json`."""
    numbers = json.loads(Path(path).read_text(encoding="utf-8"))["drives"]
    drives = Drives(**{name: np.array(values, dtype=float) for name, values in numbers.items()})
    count = len(drives.turns)
    return drives._replace(radii=drives.radii.reshape(-1, 1), stops=drives.stops.reshape(-1, count))


def relaxed(drives: Drives, q: Any) -> DriveMemory:
    """Return the memory of drives at rest, with every stop operator relaxed."""
    position = q @ drives.turns.T
    array = position.__array_namespace__()
    return DriveMemory(position, array.zeros(drives.stops.shape, dtype=position.dtype))


def remembered(drives: Drives, memory: DriveMemory, q: Any) -> DriveMemory:
    """Return the memory after a move to q."""
    position = q @ drives.turns.T
    return DriveMemory(position, _stretched(drives, memory.stretch, position - memory.position))


def _stretched(drives: Drives, stretch: Any, move: Any) -> Any:
    array = move.__array_namespace__()
    return array.clip(stretch + move[..., None, :], -drives.radii, drives.radii)


class _Curve(NamedTuple):
    """The torque at each drive, and its slope in the speed at the end of a step."""

    torque: Any
    slope: Any


def _curve(drives: Drives, u: Any, stretch: Any, dt: Any) -> _Curve:
    array = u.__array_namespace__()
    step = array.tanh(u / drives.width)
    steep = (1 - step**2) / drives.width
    size = array.where(step > 0, drives.forward, drives.backward)
    bump = drives.stribeck * array.exp(-((u / drives.stribeck_speed) ** 2))
    held = (drives.stops * stretch / drives.radii).sum(axis=-2)
    torque = drives.viscous * u + (size + bump) * step + held
    # A spring that slides has no slope; the negative slope of static friction is left out, so that
    # the equations stay solvable.
    sticks = array.abs(stretch) < drives.radii
    springs = (drives.stops / drives.radii * sticks).sum(axis=-2)
    return _Curve(torque, drives.viscous + (size + bump) * steep + dt * springs)


def friction(drives: Drives, v: Any, load: Any, memory: DriveMemory) -> Any:
    """Return the friction at the speed v under the torque `load` that moves the links."""
    array = v.__array_namespace__()
    torque = _curve(drives, v @ drives.turns.T, memory.stretch, 0.0).torque
    step = array.tanh(v / drives.width[: v.shape[-1]])
    return torque @ drives.turns + drives.offset + drives.load * array.abs(load) * step


class _Balance(NamedTuple):
    """How much torque is left over at the end of a step, and the matrix of its slopes."""

    torque: Any
    slopes: Any


def _balance(drives: Drives, step: Step, memory: DriveMemory, v: Any) -> _Balance:
    array = v.__array_namespace__()
    u = v @ drives.turns.T
    curve = _curve(drives, u, _stretched(drives, memory.stretch, step.dt * u), step.dt)
    left = step.tau - drives.offset - curve.torque @ drives.turns
    sign = array.sign(left)
    width = drives.width[: v.shape[-1]]
    coulomb = array.tanh(v / width)
    # τ_c + μ |τ_c| tanh(v/w) = left, and both have the same sign.
    share = 1 + drives.load * coulomb * sign
    torque = (v - step.v) @ step.mass / step.dt + step.bias - left / share
    slopes = (drives.turns.T * curve.slope[..., None, :]) @ drives.turns / share[..., :, None]
    loaded = drives.load * array.abs(left) * (1 - coulomb**2) / width / share**2
    eye = np.eye(v.shape[-1])
    return _Balance(torque, step.mass / step.dt + slopes + loaded[..., None] * eye)


def _newton(drives: Drives, step: Step, memory: DriveMemory, v: Any) -> Any:
    """Return the speed at the end of a step after an iteration of Newton's method."""
    array = v.__array_namespace__()
    here = _balance(drives, step, memory, v)
    change = array.linalg.solve(here.slopes, here.torque)
    tried = v - SHARES[:, None] * change
    left = _balance(drives, step, memory, tried).torque ** 2 / array.diagonal(step.mass)
    return tried[array.argmin(left.sum(axis=-1))]


def implicit_friction(drives: Drives, step: Step, memory: DriveMemory) -> Any:
    """Return the friction at the end of a step [N m or N]; `memory` is that before the step."""

    def repeat(iteration: Callable[[Any], Any], v: Any) -> Any:
        size = np.abs(step.tau).max() + np.abs(step.bias).max() + np.abs(drives.offset).max()
        for _ in range(ITERATIONS):
            left = _balance(drives, step, memory, v).torque
            if np.abs(left).max() <= SOLVED * size:
                break
            v = iteration(v)
        return v

    return _solved(drives, step, memory, repeat)


def jax_friction(drives: Drives, step: Step, memory: DriveMemory) -> Any:
    """Return `implicit_friction` of JAX arrays; it may be compiled, mapped and differentiated.

    A step of MJX adds its negative to `qfrc_applied`, with the mass matrix and `qfrc_bias` of the
    same data, and moves the memory by `remembered` afterwards.
    """
    import jax  # noqa: PLC0415  (only for those who use it)

    def repeat(iteration: Callable[[Any], Any], v: Any) -> Any:
        def body(v: Any, _: Any) -> tuple[Any, None]:
            return iteration(v), None

        return jax.lax.scan(body, v, None, length=ITERATIONS)[0]

    return _solved(drives, step, memory, repeat)


def _solved(
    drives: Drives,
    step: Step,
    memory: DriveMemory,
    repeat: Callable[[Callable[[Any], Any], Any], Any],
) -> Any:
    v = repeat(lambda v: _newton(drives, step, memory, v), step.v)
    return step.tau - step.bias - (v - step.v) @ step.mass / step.dt
