"""A two-joint arm in a vertical plane: x forward, z up; q₁ from the horizontal, q₂ from the first link."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ..data.letters import draw_letter
from ..errors import DataError
from ..joints import Trajectory
from .description import Arm, Link

LENGTHS = (0.5, 0.5)
"""Lengths of the two links [m]."""


def _rod(name: str, length: float, mass: float, radius: float, start: float, reach: float, torque: float) -> Link:
    """A solid rod along x that turns upwards about −y."""
    along, across = mass * radius**2 / 2, mass * (length**2 / 12 + radius**2 / 4)
    return Link(
        name=name,
        xyz=(start, 0.0, 0.0),
        rpy=(0.0, 0.0, 0.0),
        axis=(0.0, -1.0, 0.0),
        mass=mass,
        centre=(length / 2, 0.0, 0.0),
        inertia=(along, across, across, 0.0, 0.0, 0.0),
        position=(-reach, reach),
        velocity=10.0,
        torque=torque,
        radius=radius,
    )


TWO_LINK = Arm(
    name="two_link",
    links=(
        _rod("shoulder", LENGTHS[0], mass=1.2, radius=0.03, start=0.0, reach=3.1, torque=60.0),
        _rod("elbow", LENGTHS[1], mass=0.8, radius=0.025, start=LENGTHS[0], reach=2.9, torque=30.0),
    ),
    tool=(LENGTHS[1], 0.0, 0.0),
)


def pen_position(q: Float[np.ndarray, "time 2"]) -> Float[np.ndarray, "time 2"]:
    """The end point (x, z) [m] of joint positions [rad]."""
    a, b = q[:, 0], q[:, 0] + q[:, 1]
    return np.stack(
        [LENGTHS[0] * np.cos(a) + LENGTHS[1] * np.cos(b), LENGTHS[0] * np.sin(a) + LENGTHS[1] * np.sin(b)], 1
    )


def follow(pen: Trajectory) -> Trajectory:
    """The joint motion that moves the end point along (x, z), elbow below, exact to the second derivative."""
    x, z = pen.q.T
    first, second = LENGTHS
    cosine = (x**2 + z**2 - first**2 - second**2) / (2 * first * second)
    if np.any(np.abs(cosine) >= 1):
        row = int(np.argmax(np.abs(cosine) >= 1))
        problem = (
            f"the point ({x[row]:.3f}, {z[row]:.3f}) m is out of reach; stay within {first + second} m of the shoulder"
        )
        raise DataError(pen.label, problem, row=row)
    bend = np.arccos(cosine)
    shoulder = np.arctan2(z, x) - np.arctan2(second * np.sin(bend), first + second * np.cos(bend))
    q = np.stack([shoulder, bend], axis=1)
    a, b = q[:, 0], q[:, 0] + q[:, 1]
    far = np.stack([-second * np.sin(b), second * np.cos(b)], axis=1)
    near = np.stack([-first * np.sin(a), first * np.cos(a)], axis=1)
    jacobian = np.stack([near + far, far], axis=2)
    qd = np.linalg.solve(jacobian, pen.qd[:, :, None])[:, :, 0]
    turn, turn_both = qd[:, :1], qd[:, :1] + qd[:, 1:]
    # Each link turns its derivative by a right angle: d/dt (−sin, cos) = −(cos, sin) times the angular velocity.
    swing = -(
        first * np.stack([np.cos(a), np.sin(a)], 1) * turn**2
        + second * np.stack([np.cos(b), np.sin(b)], 1) * turn_both**2
    )
    qdd = np.linalg.solve(jacobian, (pen.qdd - swing)[:, :, None])[:, :, 0]
    return Trajectory(t=pen.t, q=q, qd=qd, qdd=qdd, label=pen.label)


WRITING: Any = {"origin": (0.4, -0.15), "height": 0.2}
"""Where the arm writes and how tall [m]: all letters are within its reach, elbow bent."""


def letter_motion(letter: str, *, speed: float = 0.45, dt: float, place: Any = WRITING) -> Trajectory:
    """The joint motion that writes a letter at a mean pen speed [m/s], slower where a joint would turn too fast."""
    limit = TWO_LINK.limits.velocity
    motion = follow(draw_letter(letter, **place, speed=speed, dt=dt))
    over = float(np.max(np.abs(motion.qd) / limit))
    if over > 1:
        motion = follow(draw_letter(letter, **place, speed=0.99 * speed / over, dt=dt))
    return motion
