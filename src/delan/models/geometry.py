"""The geometry of a learned chain: axes, distances and links, and conversion to rigid bodies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..joints import Body, Joints
from ..mechanics.kinematic_tree import Tree
from .chain import (
    LagrangianChain,
    LagrangianChainSettings,
    Matrix,
    Point,
    numpy_links,
    settled,
    with_third_column,
)
from .model import Model, as_model
from .rigid_body import RigidBody

# Largest distance of a chain's frames from rotations for which it is read as a rigid arm.
RIGID = 1e-2
# The inertia [kg m²] for a joint without rotor: a chain stores its logarithm.
NO_ROTOR = 1e-12
# Axes closer than this [m] count as intersecting: the line between them has no clear direction.
TOUCHING = 1e-4
# Axes whose directions differ by less than this [rad] count as parallel.
PARALLEL = 1e-6


@dataclass(frozen=True)
class Axis:
    """The axis of a joint relative to that of its parent joint, at joint positions zero.

    Attributes:
        parent: name of the parent joint; None at the base.
        twist: angle between the axes, 0 … 180 [degrees].
        distance: smallest distance between the axes [m].
        offset: distance along the parent's axis from its previous common normal to the one with
            this axis [m]; None where it is arbitrary: at the base, between parallel axes, and next
            to a prismatic joint. An arm and its mirror image differ in the signs of the offsets;
            only gravity along a revolute first axis distinguishes them.
    """

    joint: str
    parent: str | None
    twist: float
    distance: float | None
    offset: float | None


@dataclass(frozen=True, eq=False)
class LearnedArm:
    """The rigid arm of a chain; z is the axis of the first joint, x points to that of the second.

    Attributes:
        directions, points: of the joint axes at joint positions zero; each point is the nearest to
            the parent's axis.
        axes: each axis relative to its parent's.
        bodies: joint frames and links as fitted; not all masses and centres are identifiable.
        gravity: acceleration of gravity in the arm's frame [m/s²].
        armature: the rotor inertia of each coordinate; the joints of a tree may depend on these.
        stretch: distance of each joint's frame from a rotation, 0 if rigid.
    """

    joints: Joints
    directions: Float[np.ndarray, "dof 3"]
    points: Float[np.ndarray, "dof 3"]
    axes: tuple[Axis, ...]
    bodies: tuple[Body, ...]
    gravity: Point
    armature: Float[np.ndarray, " coordinates"]
    stretch: tuple[float, ...]


class _Lines(NamedTuple):
    """Joint axes in the frame of the base, with the ends of their common normals."""

    tree: Tree
    directions: Float[np.ndarray, "dof 3"]
    points: Float[np.ndarray, "dof 3"]
    feet: list[Point | None]


def learned_arm(model: Any) -> LearnedArm:
    """Return the rigid arm of a chain, or of a model with a chain."""
    chain = settled(chain_of(model))
    tree = chain.tree
    place, inertia, gravity = numpy_links(chain)
    turns = []
    stretch = []
    frames: list[tuple[Matrix, Point]] = []
    for frame, parent in zip(place, tree.parents, strict=True):
        turn = nearest_rotation(frame[:, :3])
        turns.append(turn)
        stretch.append(float(np.linalg.norm(frame[:, :3] - turn)))
        base = np.eye(3)
        point = np.zeros(3)
        if parent >= 0:
            base, point = frames[parent]
        frames.append((base @ turn, base @ frame[:, 3] + point))
    directions = np.array([turn[:, 2] for turn, _ in frames])
    origins = np.array([point for _, point in frames])
    points, feet = nearest_points(tree.parents, tree.sliding, directions, origins)
    lines = _Lines(tree, directions, points, feet)
    basis, origin = _base(lines)
    points[0] = origin
    joints = chain.tree_joints
    bodies = _bodies(joints, tree.parents, turns, place[:, :, 3], inertia)
    for k, body in enumerate(bodies):
        if body.parent < 0:
            position = basis.T @ (body.position - origin)
            bodies[k] = replace(body, position=position, rotation=basis.T @ body.rotation)
    return LearnedArm(
        joints=joints,
        directions=directions @ basis,
        points=(points - origin) @ basis,
        axes=_axes(joints, lines),
        bodies=tuple(bodies),
        gravity=-basis.T @ gravity,
        armature=np.asarray(chain.armature, dtype=float),
        stretch=tuple(stretch),
    )


def chain_of(model: Any) -> LagrangianChain:
    """Return the chain of a model, or a chain as it is; other models have no geometry."""
    chain = as_model(model).chain
    if chain is None:
        raise ModelError("only a chain has a geometry; fit one (model='chain')")
    return chain


def require_uncoupled(chain: LagrangianChain) -> None:
    """Refuse a chain whose joints depend on each other, where only free joints have a form."""
    if chain.joints.motor_of:
        names = ", ".join(chain.joints.links.names)
        raise ModelError(
            f"the joints of this chain are elastic ({names}): its torques are valid, but motors "
            "behind springs have no form as a rigid body or URDF; export it as C, StableHLO or "
            "CasADi"
        )
    if chain.settings.coupling is not None:
        names = ", ".join(chain.tree_joints.names)
        raise ModelError(
            f"the joints of this chain depend on each other ({names}): its torques are valid, "
            "but it has no form as a rigid body or URDF; export it as C, StableHLO or CasADi"
        )


def nearest_rotation(matrix: Matrix) -> Matrix:
    """Return the rotation nearest to a matrix."""
    left, _, right = np.linalg.svd(matrix)
    return left @ np.diag([1, 1, np.linalg.det(left @ right)]) @ right


def nearest_points(
    parents: Sequence[int], sliding: Sequence[bool], directions: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, list[Point | None]]:
    """Return the ends of the common normals: on each axis, and on its parent's axis.

    The latter is None where it is arbitrary. A prismatic joint has a direction but no position: it
    takes that of its parent.
    """
    points = points.copy()
    feet: list[Point | None] = [None] * len(points)
    for k, parent in enumerate(parents):
        if parent < 0:
            points[k] = _start(k, parents, sliding, directions, points)
            continue
        if sliding[k]:
            points[k] = points[parent]
            continue
        u = directions[parent]
        v = directions[k]
        apart = points[k] - points[parent]
        if sliding[parent] or np.linalg.norm(np.cross(u, v)) < PARALLEL:
            points[k] = points[k] - v * (v @ apart)
            continue
        along = np.linalg.solve(
            np.array([[1, -u @ v], [u @ v, -1]]), np.array([u @ apart, v @ apart])
        )
        feet[k] = points[parent] + along[0] * u
        points[k] = points[k] + along[1] * v
    return points, feet


def _start(
    root: int,
    parents: Sequence[int],
    sliding: Sequence[bool],
    directions: np.ndarray,
    points: np.ndarray,
) -> Point:
    """Return the origin of an arm: on its first revolute axis, nearest to the next revolute axis.

    Prismatic joints before or between them have no position and must not define one.
    """
    turning: list[int] = []
    k: int | None = root
    while k is not None and len(turning) < 2:
        if not sliding[k]:
            turning.append(k)
        k = next((j for j, parent in enumerate(parents) if parent == k), None)
    if not turning:
        return points[root]
    if len(turning) == 1:
        return points[turning[0]]
    first, second = turning
    u = directions[first]
    v = directions[second]
    apart = points[second] - points[first]
    normal = np.cross(u, v)
    if np.linalg.norm(normal) < PARALLEL:
        return points[first]
    return points[first] + u * (np.cross(v, normal) @ apart) / (normal @ normal)


def _base(lines: _Lines) -> tuple[Matrix, Point]:
    """Return the arm's frame, as columns, and its origin: z the first axis, x to the second."""
    tree, directions, points, feet = lines
    z = directions[0]
    if 0 not in tree.parents:
        return with_third_column(z), points[0]
    child = tree.parents.index(0)
    origin = feet[child]
    if origin is None:
        origin = points[0] + z * (z @ (points[child] - points[0]))
    for direction, point in zip(directions[1:], points[1:], strict=True):
        x = point - origin - z * (z @ (point - origin))
        # Intersecting axes are joined by no line; their common normal takes its place.
        if np.linalg.norm(x) <= TOUCHING:
            x = np.cross(z, direction)
        if np.linalg.norm(x) > PARALLEL:
            x = x / np.linalg.norm(x)
            return np.column_stack([x, np.cross(z, x), z]), origin
    return with_third_column(z), origin


def _axes(joints: Joints, lines: _Lines) -> tuple[Axis, ...]:
    tree, directions, points, feet = lines
    axes = []
    for k, parent in enumerate(tree.parents):
        if parent < 0:
            axes.append(Axis(joints.names[k], None, 0.0, None, None))
            continue
        u = directions[parent]
        v = directions[k]
        twist = float(np.degrees(np.arctan2(np.linalg.norm(np.cross(u, v)), u @ v)))
        distance = None
        offset = None
        # The axis of a prismatic joint has no position, hence no distance to another.
        if not (tree.sliding[k] or tree.sliding[parent]):
            apart = points[k] - points[parent]
            foot = feet[k]
            near = apart - u * (u @ apart) if foot is None else points[k] - foot
            distance = float(np.linalg.norm(near))
            before = tree.parents[parent]
            if foot is not None and before >= 0 and not tree.sliding[before]:
                offset = float((foot - points[parent]) @ u)
        axes.append(Axis(joints.names[k], joints.names[parent], twist, distance, offset))
    return tuple(axes)


def _bodies(
    joints: Joints,
    parents: Sequence[int],
    turns: Sequence[Matrix],
    shifts: np.ndarray,
    inertia: np.ndarray,
) -> list[Body]:
    """Return a body for each joint, in a frame whose z axis is the joint's."""
    bodies = []
    for k, parent in enumerate(parents):
        mass = float(inertia[k, 3, 3])
        centre = inertia[k, :3, 3] / mass
        spread = inertia[k, :3, :3] - mass * np.outer(centre, centre)
        body = Body(
            parent=parent,
            position=shifts[k],
            rotation=turns[k],
            mass=mass,
            centre=centre,
            # From second moments, the integral of x xᵀ, to moments of inertia.
            inertia=np.trace(spread) * np.eye(3) - spread,
            joint=joints.names[k],
            kind=joints.kinds[k],
            axis=np.array([0.0, 0.0, 1.0]),
            anchor=np.zeros(3),
        )
        bodies.append(body)
    return bodies


def to_rigid_body(model: Any) -> RigidBody:
    """Return a chain as a rigid-body model, with the friction of its model.

    Its torques are those of the chain. Its links are physically consistent, but joint data
    determine only some of their masses and moments.
    """
    require_uncoupled(chain_of(model))
    arm = learned_arm(model)
    worst = int(np.argmax(arm.stretch))
    if arm.stretch[worst] > RIGID:
        raise ModelError(
            f"the frame of {arm.joints.names[worst]} is {arm.stretch[worst]:.2g} away from a "
            f"rotation, where 0 is rigid and at most {RIGID:g} is accepted: the torques of this "
            "chain are valid, but it cannot be read as links or written as a URDF; fit it to more "
            "motion for that"
        )
    x, y, z = arm.gravity.tolist()
    friction = as_model(model).friction
    if friction is not None and "armature" in friction.settings.terms:
        raise ModelError(
            "the friction of this model has its own rotors; fit the chain without the armature term"
        )
    if friction is not None and friction.settings.stores_energy:
        raise ModelError(
            "this model has springs or cables, which a rigid body has not; fit the chain without "
            "the terms spring and periodic, or take delan.learned_arm"
        )
    return RigidBody.from_bodies(
        arm.bodies, gravity=(x, y, z), friction=friction, armature=arm.armature
    )


def from_rigid_body(body: RigidBody) -> LagrangianChain:
    """Return the chain with exactly the torques of a rigid body without friction."""
    bodies = body.bodies
    parents = tuple(part.parent for part in bodies)
    # New frames, with z along the axis of the joint.
    aligned = [with_third_column(part.axis) for part in bodies]
    turns = np.zeros((len(bodies), 3, 3))
    shifts = np.zeros((len(bodies), 3))
    factors = np.zeros((len(bodies), 4, 4))
    for k, part in enumerate(bodies):
        before = np.eye(3)
        if part.parent >= 0:
            before = aligned[part.parent]
        turns[k] = before.T @ part.rotation @ aligned[k]
        shifts[k] = before.T @ part.position
        factors[k] = _factor(part, aligned[k])
    # A chain has its first joint at the origin: the other joints at the base move with it.
    base_turn = turns[0].copy()
    base_shift = shifts[0].copy()
    for k, parent in enumerate(parents):
        if parent < 0:
            turns[k] = base_turn.T @ turns[k]
            shifts[k] = base_turn.T @ (shifts[k] - base_shift)
    settings = LagrangianChainSettings(parents)
    # Only the structure: all values are replaced below.
    blank = eqx.filter_eval_shape(
        lambda: LagrangianChain(body.joints, settings, key=jax.random.key(0))
    )
    parts = (
        turns[1:],
        shifts[1:],
        factors,
        np.log(np.maximum(body.armature, NO_ROTOR)),
        -base_turn.T @ body.gravity,
    )
    return eqx.tree_at(
        lambda chain: (chain.turn, chain.shift, chain.factor, chain.log_armature, chain.gravity),
        blank,
        tuple(map(jnp.asarray, parts)),
    )


def model_of(body: RigidBody) -> Model:
    """Return the model with exactly the torques of a rigid body and its friction."""
    return Model(from_rigid_body(body), jax.tree.map(jnp.asarray, body.friction))


def _factor(body: Body, turn: Matrix) -> Float[np.ndarray, "4 4"]:
    """Return a root F of the pseudo-inertia F Fᵀ of a link, in a frame rotated by `turn`."""
    spread = np.trace(body.inertia) / 2 * np.eye(3) - body.inertia
    moment = body.mass * body.centre
    full = np.block(
        [
            [spread + np.outer(moment, body.centre), moment[:, None]],
            [moment[None], np.array([[body.mass]])],
        ]
    )
    values, vectors = np.linalg.eigh(full)
    turned = np.block([[turn.T, np.zeros((3, 1))], [np.zeros((1, 3)), np.eye(1)]])
    return turned @ vectors * np.sqrt(np.maximum(values, 0))
