"""Identifiable link parameters of a learned arm, in joint frames that its geometry fixes.

Whatever the motion, some parameters of the links affect joint torques only in combination with
others, and some not at all (Gautier and Khalil 1990). Random states stand here for all motions; a
log with less motion determines less.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..joints import Body, Joints
from ..models.chain import with_third_column
from ..models.geometry import (
    PARALLEL,
    TOUCHING,
    LearnedArm,
    Matrix,
    Point,
    chain_of,
    learned_arm,
    to_rigid_body,
)
from ..models.model import as_model
from ..models.rigid_body import LINK_PARAMETERS, RigidBody
from .regression import Identifiable, Span, triangle

# Random states: several times as many torques as the 10 parameters per link.
STATES = 300
# Their RMS speed [rad/s or m/s] and acceleration [rad/s² or m/s²], as of an arm in quick motion.
SPEED = 2.0
ACCELERATION = 5.0
# Range of the joints to either side in these states [rad or m].
REACH = {"revolute": np.pi, "continuous": np.pi, "prismatic": 0.5}
# Effects below this fraction of the usual count as none: small errors of a fit could cause them.
FAINT = 0.02
# A parameter with a smaller hidden share counts as identifiable alone.
ALONE = 0.01

Frame = tuple[Matrix, Point]


@dataclass(frozen=True)
class LinkParameter:
    """A parameter of a link or a motor, in SI units and in the frame of its joint.

    Attributes:
        owner: name of the joint, or of the motor of a pair.
        name: one of `LINK_PARAMETERS`, `armature` or `offset`.
        identifiable: whether joint data determine it `alone`, only `combined` with others, or not
            at all (`no`).
        error: standard error, if identifiable alone and if the torque errors are known.
    """

    owner: str
    name: str
    value: float
    identifiable: Identifiable
    error: float | None


@dataclass(frozen=True)
class IdentifiableLinks:
    """The parameters of links and motors, and the number of identifiable combinations.

    `feels_gravity` says whether gravity acts on any joint; without gravity or a prismatic joint,
    lengths and masses have no unit.
    """

    parameters: tuple[LinkParameter, ...]
    rank: int
    feels_gravity: bool

    def named(self, identifiable: Identifiable) -> tuple[LinkParameter, ...]:
        """Return the parameters of this class."""
        return tuple(item for item in self.parameters if item.identifiable == identifiable)


def identifiable_links(
    model: Any,
    *,
    rmse: Float[np.ndarray, " dof"] | None = None,
    samples: int = 1,
    stretch: float = 0.0,
) -> IdentifiableLinks:
    """Return which parameters of a chain's links joint data determine alone, with their values.

    Args:
        model: a chain, alone or under an actuator, whose rotors and offsets then compete with the
            links.
        rmse: its torque error on motion that it was not fitted to [N m or N].
        samples: number of samples it was fitted to.
        stretch: distance of its frames from rotations before `identifiable_axes` changed them.
    """
    model = as_model(model)
    arm = learned_arm(model)
    body = in_plain_frames(model)
    q, qd, qdd = random_states(body.joints)
    motors = motor_columns(model, qdd)
    names = [(joint, name) for joint in body.joints.names for name in LINK_PARAMETERS]
    names += motors.names
    rows = np.concatenate([body.regressor_rows(q, qd, qdd), motors.columns], axis=2)
    rows = rows * _felt(rows, [name for _, name in names])
    values = np.concatenate([body.parameters.ravel(), motors.values])
    span = Span.of(triangle(np.concatenate(rows)), FAINT)
    errors: list[float | None] = [None] * len(names)
    if rmse is not None:
        noise = noise_of(rows @ values, rmse, samples, max(stretch, *arm.stretch))
        errors = _errors(rows / noise[:, None], span.rank).tolist()
    parameters = []
    for index, identifiable in enumerate(span.identifiable(ALONE)):
        error = errors[index] if identifiable == "alone" else None
        parameters.append(LinkParameter(*names[index], float(values[index]), identifiable, error))
    weight = np.abs(body.regressor_rows(q, 0 * qd, 0 * qdd) @ body.parameters.ravel()).max()
    return IdentifiableLinks(
        parameters=tuple(parameters),
        rank=span.rank,
        feels_gravity=bool(weight > FAINT**2 * np.abs(rows @ values).max()),
    )


def noise_of(
    torques: Float[np.ndarray, "time dof"],
    rmse: Float[np.ndarray, " dof"],
    samples: int,
    stretch: float,
) -> Float[np.ndarray, " dof"]:
    """Return the error of each joint's mean torque over the samples [N m or N].

    Frames that a fit left stretched are an error of geometry, which more samples do not average
    out.
    """
    size = np.sqrt(np.mean(torques**2, axis=0))
    return np.maximum(np.sqrt(rmse**2 / samples + (stretch * size) ** 2), 1e-15 * size.max())


def random_states(joints: Joints) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions, speeds and accelerations, always the same ones."""
    reach = np.array([REACH[kind] for kind in joints.kinds])
    q, qd, qdd = np.random.default_rng(0).uniform(-1, 1, (3, STATES, len(reach)))
    # A uniform distribution over ±√3 has unit variance.
    return reach * q, SPEED * np.sqrt(3) * qd, ACCELERATION * np.sqrt(3) * qdd


class MotorColumns(NamedTuple):
    """Owner and name, value and torque per unit of the parameters of motors."""

    names: list[tuple[str, str]]
    values: Float[np.ndarray, " parameters"]
    columns: Float[np.ndarray, "time dof parameters"]


def motor_columns(model: Any, qdd: Float[np.ndarray, "time dof"]) -> MotorColumns:
    """Return the columns of the rotors, and of the offsets if the model has any."""
    chain = chain_of(model)
    friction = as_model(model).friction
    dof = chain.joints.dof
    owners = chain.joints.names
    values = np.asarray(chain.armature, dtype=float)
    turn = np.eye(dof)
    weights = {} if friction is None else friction.named
    if friction is not None and "armature" in weights:
        owners = friction.motors
        turn = np.asarray(friction.transmission)
        # The rotors of a chain turn with its joints, which come first among the motors.
        values = np.asarray(weights["armature"], float) + np.pad(values, (0, len(turn) - dof))
    names = [(owner, "armature") for owner in owners]
    columns = (qdd @ turn.T)[:, None, :] * turn.T
    if "offset" in weights:
        names += [(joint, "offset") for joint in chain.joints.names]
        values = np.concatenate([values, np.asarray(weights["offset"], float)[:dof]])
        offsets = np.broadcast_to(np.eye(dof), (len(qdd), dof, dof))
        columns = np.concatenate([columns, offsets], axis=2)
    return MotorColumns(names, values, columns)


def _felt(
    rows: Float[np.ndarray, "time dof columns"], names: list[str]
) -> Bool[np.ndarray, " columns"]:
    """Return which columns are not faint compared to others of the same unit."""
    length = np.linalg.norm(rows, axis=(0, 1))
    # mx, my, mz share a unit, as do Ixx, Ixy, …; every other name has its own.
    shared = {name: name[0] for name in LINK_PARAMETERS if name != "mass"}
    units = np.array([shared.get(name, name) for name in names])
    largest = np.empty_like(length)
    for unit in set(units):
        largest[units == unit] = length[units == unit].max()
    return length > FAINT * largest


def _errors(
    rows: Float[np.ndarray, "time dof columns"], rank: int
) -> Float[np.ndarray, " columns"]:
    """Return standard errors of the parameters from rows of unit noise, averaged to one sample."""
    matrix = triangle(np.concatenate(rows)) / np.sqrt(len(rows))
    length = np.linalg.norm(matrix, axis=0)
    scale = np.where(length > 0, length, np.inf)
    _, singular, directions = np.linalg.svd(matrix / scale)
    return np.linalg.norm(directions[:rank] / singular[:rank, None], axis=0) / scale


def in_plain_frames(model: Any) -> RigidBody:
    """Return the rigid arm of a chain, without friction, in joint frames fixed by its geometry.

    z is the joint's axis, x the common normal from the previous axis (u × v where the two cross),
    and the origin the point where that normal meets the axis. A first joint takes x and origin from
    the next joint; if there is none, x points down.
    """
    chain = chain_of(model)
    to_rigid_body(chain)  # raises if the chain is not a rigid arm
    arm = learned_arm(chain)
    old: list[Frame] = []
    new: list[Frame] = []
    bodies = []
    for k, body in enumerate(arm.bodies):
        turn, position = _parent_frame(old, body)
        old.append((turn @ body.rotation, turn @ body.position + position))
        new.append(_frame(arm, k, new))
        bodies.append(_moved(body, old[k], new[k], _parent_frame(new, body)))
    x, y, z = arm.gravity.tolist()
    return RigidBody.from_bodies(bodies, gravity=(x, y, z), armature=arm.armature)


def _parent_frame(frames: list[Frame], body: Body) -> Frame:
    if body.parent < 0:
        return np.eye(3), np.zeros(3)
    return frames[body.parent]


def _moved(body: Body, old: Frame, new: Frame, parent: Frame) -> Body:
    """Return the body in a new frame of its own and of its parent, all given in the base frame."""
    old_turn, old_origin = old
    turn, origin = new
    parent_turn, parent_origin = parent
    across = turn.T @ old_turn
    return replace(
        body,
        position=parent_turn.T @ (origin - parent_origin),
        rotation=parent_turn.T @ turn,
        centre=across @ body.centre + turn.T @ (old_origin - origin),
        inertia=across @ body.inertia @ across.T,
    )


def _first_frame(arm: LearnedArm, k: int) -> Frame:
    """Return the frame of a joint on the base."""
    z = arm.directions[k]
    point = arm.points[k]
    any_normal = with_third_column(z)[:, 0]
    child = next((j for j, body in enumerate(arm.bodies) if body.parent == k), None)
    if child is None:
        down = arm.gravity - z * (z @ arm.gravity)
        if np.linalg.norm(down) <= TOUCHING:
            down = any_normal
        return _with_axes(down, z), point
    if k == 0:
        return np.eye(3), np.zeros(3)  # the arm's own frame follows the same rule
    x = _normal(arm, k, child, any_normal)
    offset = arm.points[child] - point
    if np.linalg.norm(np.cross(z, arm.directions[child])) > PARALLEL:
        return _with_axes(x, z), arm.points[child] - x * (x @ offset)
    return _with_axes(x, z), point + z * (z @ offset)


def _frame(arm: LearnedArm, k: int, frames: list[Frame]) -> Frame:
    parent = arm.bodies[k].parent
    if parent < 0:
        return _first_frame(arm, k)
    x = _normal(arm, parent, k, frames[parent][0][:, 0])
    return _with_axes(x, arm.directions[k]), arm.points[k]


def _normal(arm: LearnedArm, near: int, far: int, default: Point) -> Point:
    """Return the direction from one axis to the other, or `default` if they coincide."""
    u = arm.directions[near]
    offset = arm.points[far] - arm.points[near]
    placed = arm.axes[far].distance is not None
    normal = np.cross(u, arm.directions[far])
    if np.linalg.norm(normal) < PARALLEL:
        normal = offset - u * (u @ offset)
        if not placed or np.linalg.norm(normal) <= TOUCHING:
            normal = default
    length = float(np.linalg.norm(normal))
    if placed and normal @ offset < -TOUCHING * length:
        return -normal / length
    return normal / length


def _with_axes(x: Point, z: Point) -> Matrix:
    """Return the frame with this z axis and the x axis nearest to the given one."""
    x = x - z * (z @ x)
    x = x / np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z])
