"""A two-joint arm in a vertical plane that writes letters.

x points forward and z up; q₁ is measured from the horizontal, q₂ from the first link.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..joints import Trajectory
from ..motions.letters import draw_letter
from .description import Arm, Link

LENGTHS = (0.5, 0.5)  # of the two links [m]


def _rod(
    name: str, length: float, mass: float, radius: float, start: float, reach: float, torque: float
) -> Link:
    """Return a solid rod along x that turns upwards about −y."""
    along = mass * radius**2 / 2
    across = mass * (length**2 / 12 + radius**2 / 4)
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


def _directions(q: Float[np.ndarray, "time 2"]) -> Float[np.ndarray, "2 time 2"]:
    """Return the unit vectors (x, z) along the two links."""
    angles = np.cumsum(q, axis=1).T
    return np.stack([np.cos(angles), np.sin(angles)], axis=2)


def pen_position(q: Float[np.ndarray, "time 2"]) -> Float[np.ndarray, "time 2"]:
    """Return the end point (x, z) [m] of joint positions [rad]."""
    near, far = _directions(q)
    return LENGTHS[0] * near + LENGTHS[1] * far


def follow(pen: Trajectory) -> Trajectory:
    """Return the joint motion that moves the end point along (x, z), with the elbow below.

    Velocities and accelerations are exact.
    """
    x, z = pen.q.T
    first, second = LENGTHS
    cosine = (x**2 + z**2 - first**2 - second**2) / (2 * first * second)
    outside = np.abs(cosine) >= 1
    if outside.any():
        row = int(np.argmax(outside))
        problem = (
            f"the point ({x[row]:.3f}, {z[row]:.3f}) m is out of reach; "
            f"stay within {first + second} m of the shoulder"
        )
        raise DataError(pen.label, problem, row=row)
    elbow = np.arccos(cosine)
    shoulder = np.arctan2(z, x) - np.arctan2(second * np.sin(elbow), first + second * np.cos(elbow))
    q = np.stack([shoulder, elbow], axis=1)
    near, far = _directions(q)
    # A rotation by 90° takes a direction to its derivative: d/dt (cos, sin) = ω (−sin, cos).
    left = np.array([[0.0, 1.0], [-1.0, 0.0]])
    near_slope = first * near @ left
    far_slope = second * far @ left
    jacobian = np.stack([near_slope + far_slope, far_slope], axis=2)
    qd = np.linalg.solve(jacobian, pen.qd[:, :, None])[:, :, 0]
    omega = np.cumsum(qd, axis=1)
    swing = -(first * near * omega[:, :1] ** 2 + second * far * omega[:, 1:] ** 2)
    qdd = np.linalg.solve(jacobian, (pen.qdd - swing)[:, :, None])[:, :, 0]
    return Trajectory(t=pen.t, q=q, qd=qd, qdd=qdd, label=pen.label)


# Where the arm writes and how tall [m]: all letters are within reach, with the elbow bent.
WRITING: Any = {"origin": (0.4, -0.15), "height": 0.2}


def letter_motion(
    letter: str, *, speed: float = 0.45, dt: float, place: Any = WRITING
) -> Trajectory:
    """Return the joint motion that writes a letter at a mean pen speed [m/s].

    The letter is written more slowly if a joint would exceed its speed limit.
    """
    motion = follow(draw_letter(letter, **place, speed=speed, dt=dt))
    excess = float(np.max(np.abs(motion.qd) / TWO_LINK.limits.velocity))
    if excess > 1:
        motion = follow(draw_letter(letter, **place, speed=0.99 * speed / excess, dt=dt))
    return motion
