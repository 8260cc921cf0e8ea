"""The arms of the package as tables of numbers: a two-link arm that writes, and the Barrett WAM.

The two-link arm moves in a vertical plane: x points forward and z up; q₁ is measured from the
horizontal, q₂ from the first link.

The WAM has 7 joints, or 4 and a locked wrist. Its frames are proximal: each link is described in
the frame of the joint that moves it. `WAM7` and `WAM4` have the parameters of Barrett's
specification and are the simulated robots. `WAM7_ANALYTIC` and `WAM4_ANALYTIC` have those of a
public simulation of the same arm, which disagree in places, as an engineer's model usually
disagrees with the robot.
"""

from math import pi
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..joints import Trajectory
from ..motions.alphabet import Alphabet
from .description import Arm, Link, Moments, Triple

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
DRAWN = Alphabet()


def letter_motion(
    letter: str,
    *,
    speed: float = 0.45,
    dt: float,
    place: Any = WRITING,
    alphabet: Alphabet = DRAWN,
    sample: int = 0,
) -> Trajectory:
    """Return the joint motion that writes a letter at a mean pen speed [m/s].

    The letter is written more slowly if a joint would exceed its speed limit. `sample` is the
    number of a recorded stroke; see `Alphabet.pen`.
    """
    motion = follow(alphabet.pen(letter, **place, speed=speed, dt=dt, sample=sample))
    excess = float(np.max(np.abs(motion.qd) / TWO_LINK.limits.velocity))
    if excess > 1:
        slower = 0.99 * speed / excess
        motion = follow(alphabet.pen(letter, **place, speed=slower, dt=dt, sample=sample))
    return motion


# Mass [kg], centre of mass [m], inertia about it as xx yy zz xy xz yz [kg m²].
Inertial = tuple[float, Triple, Moments]

# fmt: off
# Barrett's specification of the arm.
SPECIFICATION: tuple[Inertial, ...] = (
    (10.7677, (-0.00443422, -0.00066489, -0.12189),
     (0.13488, 0.0904633, 0.113284, -0.000125, 0.00213, -0.000686)),
    (3.87494, (-0.00236983, -0.0154211, 0.0310561),
     (0.0214096, 0.0155891, 0.0137787, -2.46e-05, 0.000272, 0.00182)),
    (1.80228, (0.00674142, 3.309e-05, 0.342492),
     (0.0591108, 0.0592704, 0.0032455, 7.38e-06, 0.0025, 1.77e-05)),
    (2.40017, (-0.0400149, -0.132717, -0.00022942),
     (0.0149167, 0.00294463, 0.0148292, 0.00151, 1.74e-05, 2.11e-05)),
    (0.12376, (8.921e-05, 0.00435824, -0.00511217),
     (5.029e-05, 6.27e-05, 7.582e-05, -5e-08, -2e-07, 3.59e-06)),
    (0.417974, (-0.00012262, -0.0246834, -0.0170319),
     (0.00055516, 0.00045358, 0.00024367, 7.4e-07, 6.1e-07, 4.59e-05)),
    (0.0686475, (-7.974e-05, 0.00016313, 0.0567645),
     (3.773e-05, 3.806e-05, 7.408e-05, -1.9e-07, 0.0, 0.0)),
)

# A public simulation of the same arm: other centres and moments from the first link on.
SECOND_SET: tuple[Inertial, ...] = (
    (10.7677, (-0.00443422, -0.00066489, -0.12189),
     (0.507399, 0.462982, 0.113284, 0.000125, -0.00213, 0.000686)),
    (3.87494, (-0.00236983, -0.0154211, 0.0310561),
     (0.0214096, 0.0155891, 0.0137787, 2.46e-05, -0.000272, -0.00182)),
    (1.80228, (-0.0382586, 3.309e-05, 0.297492),
     (0.0627604, 0.0665697, 0.00689512, -7.38e-06, -0.00615, -1.77e-05)),
    (2.40017, (0.00498512, -0.132717, -0.00022942),
     (0.0149167, 0.00780497, 0.0196896, -0.00151, -1.74e-05, -2.11e-05)),
    (0.12376, (8.921e-05, 0.00435824, -0.305112),
     (0.0111887, 0.0112011, 7.582e-05, 5e-08, 2e-07, -3.59e-06)),
    (0.417974, (-0.00012262, -0.0246834, -0.0170319),
     (0.00055516, 0.00045358, 0.00024367, -7.4e-07, -6.1e-07, -4.59e-05)),
    (0.0686475, (-7.974e-05, -0.00323552, 0.0598369),
     (3.773e-05, 7.408e-05, 3.806e-05, 0.0, -1.9e-07, 0.0)),
)

_JOINTS: tuple[tuple[str, Triple, float, tuple[float, float], float, float, float], ...] = (
    # name, origin in the previous frame [m], roll [rad], range [rad], speed [rad/s],
    # torque [N m], drawn radius [m]
    ("base_yaw", (0.0, 0.0, 0.346), 0.0, (-2.6, 2.6), 6.0, 150.0, 0.09),
    ("shoulder_pitch", (0.0, 0.0, 0.0), -pi / 2, (-2.0, 2.0), 6.0, 125.0, 0.09),
    ("shoulder_yaw", (0.0, 0.0, 0.0), pi / 2, (-2.8, 2.8), 8.0, 40.0, 0.06),
    ("elbow_pitch", (0.045, 0.0, 0.55), -pi / 2, (-0.9, 3.1), 8.0, 60.0, 0.05),
    ("wrist_yaw", (-0.045, -0.3, 0.0), pi / 2, (-4.76, 1.24), 12.0, 5.0, 0.045),
    ("wrist_pitch", (0.0, 0.0, 0.0), -pi / 2, (-1.6, 1.6), 12.0, 5.0, 0.045),
    ("palm_yaw", (0.0, 0.0, 0.0), pi / 2, (-3.0, 3.0), 12.0, 2.0, 0.04),
)
# fmt: on

# Inertia of each drive, reflected to its joint [kg m²].
DRIVE_INERTIA = (0.20517, 0.18884, 0.06691, 0.03462, 0.00323, 0.00323, 0.00032)


def _arm(name: str, inertials: tuple[Inertial, ...]) -> Arm:
    links = []
    for joint, (mass, centre, inertia) in zip(_JOINTS, inertials, strict=True):
        joint_name, xyz, roll, position, velocity, torque, radius = joint
        link = Link(
            name=joint_name,
            xyz=xyz,
            rpy=(roll, 0.0, 0.0),
            axis=(0.0, 0.0, 1.0),
            mass=mass,
            centre=centre,
            inertia=inertia,
            position=position,
            velocity=velocity,
            torque=torque,
            radius=radius,
        )
        links.append(link)
    return Arm(name, tuple(links), tool=(0.0, 0.0, 0.0609))


WAM7 = _arm("wam7", SPECIFICATION)
WAM4 = WAM7.locked(4, name="wam4")
WAM7_ANALYTIC = _arm("wam7_analytic", SECOND_SET)
WAM4_ANALYTIC = WAM7_ANALYTIC.locked(4, name="wam4_analytic")
