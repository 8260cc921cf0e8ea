"""A rigid body, learned or identified, as URDF text."""

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from ..joints import Body, JointLimits
from ..models.rigid_body import RigidBody
from .description import Link, Triple, tree_urdf

WIDE = 1e6
"""Stands for a limit that nobody knows: URDF wants numbers [m, rad/s or m/s, N m or N]."""

Point = Float[np.ndarray, "3"]
Matrix = Float[np.ndarray, "3 3"]


def urdf_of(body: RigidBody, *, name: str = "arm", limits: JointLimits | None = None) -> str:
    """The links and joints of a rigid body as URDF text; friction and rotors have no place in it.

    A URDF knows no gravity and its readers pull along −z: the base is turned so that this model's gravity does. A
    joint that turns without a limit is written as continuous. Joints keep their names; of a tree, readers may change
    their order.
    """
    upright = _upright(body.gravity)
    bodies = body.bodies
    links = [_link(one, k, upright if one.parent < 0 else np.eye(3), limits) for k, one in enumerate(bodies)]
    return tree_urdf(name, links, [one.parent for one in bodies])


def _upright(gravity: Point) -> Matrix:
    """The least rotation that turns gravity to −z; none where there is no gravity."""
    if not gravity.any():
        return np.eye(3)
    return Rotation.align_vectors([[0.0, 0.0, -1.0]], [gravity])[0].as_matrix()


def _link(body: Body, index: int, base: Matrix, limits: JointLimits | None) -> Link:
    assert body.joint is not None
    assert body.kind is not None
    low, high, speed, torque = -np.inf, np.inf, np.inf, np.inf
    if limits is not None:
        low, high, speed, torque = (
            float(one[index]) for one in (limits.lower, limits.upper, limits.velocity, limits.torque)
        )
    kind = body.kind
    if kind == "prismatic":
        low, high = max(low, -WIDE), min(high, WIDE)
    elif not np.isfinite([low, high]).all():
        kind = "continuous"
    if kind != "continuous" or min(speed, torque) < np.inf:  # there readers want both or nothing
        speed, torque = min(speed, WIDE), min(torque, WIDE)
    moments = body.inertia[(0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2)]
    xx, yy, zz, xy, xz, yz = moments.tolist()
    return Link(
        name=body.joint,
        xyz=_triple(base @ body.position),
        rpy=_roll_pitch_yaw(base @ body.rotation),
        axis=_triple(body.axis),
        mass=body.mass,
        centre=_triple(body.centre),
        inertia=(xx, yy, zz, xy, xz, yz),
        position=(low, high),
        velocity=speed,
        torque=torque,
        kind=kind,
    )


def _roll_pitch_yaw(turn: Matrix) -> Triple:
    """Angles about fixed x, y, z [rad], exact also where pitch is ±90° and roll and yaw turn about one axis."""
    yaw = np.arctan2(turn[1, 0], turn[0, 0])
    # What is left after the yaw is taken away is a pitch and a roll, whatever rounding made of the yaw.
    sine, cosine = np.sin(yaw), np.cos(yaw)
    pitch = np.arctan2(-turn[2, 0], cosine * turn[0, 0] + sine * turn[1, 0])
    roll = np.arctan2(sine * turn[0, 2] - cosine * turn[1, 2], cosine * turn[1, 1] - sine * turn[0, 1])
    return float(roll), float(pitch), float(yaw)


def _triple(vector: Point) -> Triple:
    x, y, z = np.asarray(vector).tolist()
    return x, y, z
