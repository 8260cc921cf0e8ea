"""What a chain learned, in a person's terms: axes, distances and links, and the way to and from rigid bodies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..joints import Body, Joints
from .actuated import ActuatedModel, links_of
from .chain import LagrangianChain, LagrangianChainSettings
from .gauge import Matrix, Point, numpy_links, settled, with_third_column
from .rigid_body import RigidBody
from .trust import bare

RIGID = 1e-2
"""How far the frames of a chain may be from rotations, at most, for it to be read as a rigid arm."""
NO_ROTOR = 1e-12
"""The inertia [kg m²] of a rotor that is not there; a chain writes it as an exponential."""
TOUCHING = 1e-4
"""Axes nearer to each other than this [m] count as crossing: the line between them has no direction of its own."""
PARALLEL = 1e-6
"""Axes whose directions differ by less than this [rad] count as parallel."""


@dataclass(frozen=True)
class Axis:
    """The axis of a joint against that of the joint it hangs on, at joint positions zero.

    Attributes:
        parent: name of that joint; None at the base.
        twist: angle between the axes, 0 … 180 [degrees]; distance: between the axes, at their nearest [m].
        offset: how far along the parent's axis the common normal to this axis stands from the one before it [m];
            None where that is free: at the base, between parallel axes, and next to a sliding joint. An arm and its
            mirror image differ in the signs of these; only gravity along a turning first axis tells which it is.
    """

    joint: str
    parent: str | None
    twist: float
    distance: float | None
    offset: float | None


@dataclass(frozen=True, eq=False)
class LearnedArm:
    """The rigid arm that a chain describes, in a frame whose z axis is the first joint's and whose x axis points to
    the second's.

    Attributes:
        directions, points: of the joints' axes at joint positions zero, the points on them nearest to the axis before.
        axes: how each lies to the one before.
        bodies: joint frames and links, masses and centres as the fit left them: not all of them can be told from data.
        gravity: its acceleration in that frame [m/s²].
        stretch: how far each joint's frame is from a rotation, after its free stretches are settled; 0 for rigid.
    """

    joints: Joints
    directions: Float[np.ndarray, "dof 3"]
    points: Float[np.ndarray, "dof 3"]
    axes: tuple[Axis, ...]
    bodies: tuple[Body, ...]
    gravity: Point
    armature: Float[np.ndarray, " dof"]
    stretch: tuple[float, ...]


def learned_arm(model: Any) -> LearnedArm:
    """Read a chain, alone or under an actuator, as a rigid arm."""
    chain = settled(_chain_of(model))
    place, inertia, gravity = numpy_links(chain)
    parents, sliding = chain.tree.parents, chain.tree.sliding
    turns = [_nearest_rotation(one[:, :3]) for one in place]
    stretch = tuple(float(np.linalg.norm(one[:, :3] - turn)) for one, turn in zip(place, turns, strict=True))
    frames: list[tuple[Matrix, Point]] = []
    for k, parent in enumerate(parents):
        turn, point = (np.eye(3), np.zeros(3)) if parent < 0 else frames[parent]
        frames.append((turn @ turns[k], turn @ place[k, :, 3] + point))
    directions = np.array([turn[:, 2] for turn, _ in frames])
    points, feet = nearest_points(parents, sliding, directions, np.array([point for _, point in frames]))
    basis, origin = _base(parents, directions, points, feet)
    points[0] = origin
    return LearnedArm(
        joints=chain.joints,
        directions=directions @ basis,
        points=(points - origin) @ basis,
        axes=_axes(chain.joints, parents, sliding, directions, points, feet),
        bodies=tuple(
            replace(one, position=basis.T @ (one.position - origin), rotation=basis.T @ one.rotation)
            if one.parent < 0
            else one
            for one in _bodies(chain.joints, parents, turns, place[:, :, 3], inertia)
        ),
        gravity=-basis.T @ gravity,
        armature=np.asarray(chain.armature, dtype=float),
        stretch=stretch,
    )


def _chain_of(model: Any) -> LagrangianChain:
    model = bare(model)
    chain = links_of(model)
    if not isinstance(chain, LagrangianChain):
        raise ModelError(f"a {type(chain).__name__} has no geometry to read; fit a chain (model='chain')")
    return chain


def _nearest_rotation(matrix: Matrix) -> Matrix:
    left, _, right = np.linalg.svd(matrix)
    return left @ np.diag([1, 1, np.linalg.det(left @ right)]) @ right


def nearest_points(
    parents: Sequence[int], sliding: Sequence[bool], directions: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, list[Point | None]]:
    """A point on each axis nearest to the axis before it, and, on that axis before, the point nearest to this one.

    The latter is None where it is free. A sliding joint has a direction and no place: it takes that of its parent.
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
        u, v, apart = directions[parent], directions[k], points[k] - points[parent]
        if sliding[parent] or np.linalg.norm(np.cross(u, v)) < PARALLEL:
            points[k] = points[k] - v * (v @ apart)
            continue
        along = np.linalg.solve(np.array([[1, -u @ v], [u @ v, -1]]), np.array([u @ apart, v @ apart]))
        feet[k] = points[parent] + along[0] * u
        points[k] = points[k] + along[1] * v
    return points, feet


def _start(
    root: int, parents: Sequence[int], sliding: Sequence[bool], directions: np.ndarray, points: np.ndarray
) -> Point:
    """Where an arm begins: on its first turning axis, at the point nearest to the next one.

    A joint that slides there or between them has no place, and must not lend the arm one.
    """
    turning: list[int] = []
    k: int | None = root
    while k is not None and len(turning) < 2:
        if not sliding[k]:
            turning.append(k)
        k = next((j for j, parent in enumerate(parents) if parent == k), None)
    if len(turning) < 2:
        return points[turning[0] if turning else root]
    first, second = turning
    u, v, apart = directions[first], directions[second], points[second] - points[first]
    normal = np.cross(u, v)
    if np.linalg.norm(normal) < PARALLEL:
        return points[first]
    return points[first] + u * (np.cross(v, normal) @ apart) / (normal @ normal)


def _base(
    parents: Sequence[int], directions: np.ndarray, points: np.ndarray, feet: list[Point | None]
) -> tuple[Matrix, Point]:
    """The frame to show the arm in, as columns, and its origin: z the first axis, x towards the second."""
    z, child = directions[0], next((k for k, parent in enumerate(parents) if parent == 0), None)
    if child is None:
        return with_third_column(z), points[0]
    foot = feet[child]
    origin = points[0] + z * (z @ (points[child] - points[0])) if foot is None else foot
    for direction, point in zip(directions[1:], points[1:], strict=True):
        x = point - origin - z * (z @ (point - origin))
        x = x if np.linalg.norm(x) > TOUCHING else np.cross(z, direction)
        if np.linalg.norm(x) > PARALLEL:
            x = x / np.linalg.norm(x)
            return np.column_stack([x, np.cross(z, x), z]), origin
    return with_third_column(z), origin


def _axes(
    joints: Joints,
    parents: Sequence[int],
    sliding: Sequence[bool],
    directions: np.ndarray,
    points: np.ndarray,
    feet: list[Point | None],
) -> tuple[Axis, ...]:
    found = []
    for k, parent in enumerate(parents):
        if parent < 0:
            found.append(Axis(joints.names[k], None, 0.0, None, None))
            continue
        u, v, foot = directions[parent], directions[k], feet[k]
        apart = points[k] - points[parent]
        near = points[k] - foot if foot is not None else apart - u * (u @ apart)
        placed = not (sliding[k] or sliding[parent])
        before = parents[parent]
        free = foot is None or before < 0 or sliding[before]
        found.append(
            Axis(
                joint=joints.names[k],
                parent=joints.names[parent],
                twist=float(np.degrees(np.arctan2(np.linalg.norm(np.cross(u, v)), u @ v))),
                distance=float(np.linalg.norm(near)) if placed else None,
                offset=None if free or not placed else float((foot - points[parent]) @ u),
            )
        )
    return tuple(found)


def _bodies(
    joints: Joints, parents: Sequence[int], turns: Sequence[Matrix], shifts: np.ndarray, inertia: np.ndarray
) -> list[Body]:
    """A body for each joint, in a frame whose z axis is the joint's."""
    bodies = []
    for k, parent in enumerate(parents):
        mass = float(inertia[k, 3, 3])
        centre = inertia[k, :3, 3] / mass
        spread = inertia[k, :3, :3] - mass * np.outer(centre, centre)
        bodies.append(
            Body(
                parent=parent,
                position=shifts[k],
                rotation=turns[k],
                mass=mass,
                centre=centre,
                inertia=np.trace(spread) * np.eye(3) - spread,
                joint=joints.names[k],
                kind=joints.kinds[k],
                axis=np.array([0.0, 0.0, 1.0]),
                anchor=np.zeros(3),
            )
        )
    return bodies


def to_rigid_body(model: Any) -> RigidBody:
    """A chain as a rigid-body model, with its friction if it has an actuator, for tools that know masses and frames.

    Its links are possible ones, but only some of their masses and moments are told by joint data; the torques are.
    """
    arm, model = learned_arm(model), bare(model)
    worst = int(np.argmax(arm.stretch))
    if arm.stretch[worst] > RIGID:
        raise ModelError(
            f"the matrix of {arm.joints.names[worst]}'s frame is {arm.stretch[worst]:.2g} away from a rotation, where "
            f"0 is rigid and more than {RIGID:g} is not: the torques of this chain hold all the same, but it cannot be "
            "read as links or written as a URDF; for these, fit it to more motion"
        )
    x, y, z = arm.gravity.tolist()
    friction = model.actuator if isinstance(model, ActuatedModel) else None
    if friction is not None and "armature" in friction.settings.terms:
        raise ModelError("the actuator of this model has rotors of its own; fit the chain without the armature term")
    return RigidBody.from_bodies(arm.bodies, gravity=(x, y, z), friction=friction, armature=arm.armature)


def from_rigid_body(body: RigidBody) -> LagrangianChain:
    """The chain that gives the same torques as a rigid body without friction, exactly."""
    bodies = body.bodies
    parents = tuple(one.parent for one in bodies)
    aligned = [with_third_column(one.axis) for one in bodies]  # z of the new frame along the joint's axis
    places = []
    for one, turn in zip(bodies, aligned, strict=True):
        before = np.eye(3) if one.parent < 0 else aligned[one.parent]
        places.append((before.T @ one.rotation @ turn, before.T @ one.position))
    base_turn, base_shift = places[0]
    for k, parent in enumerate(parents):
        if parent < 0:
            turn, shift = places[k]
            places[k] = (base_turn.T @ turn, base_turn.T @ (shift - base_shift))
    settings = LagrangianChainSettings(parents)
    # Every number of it is replaced below: none has to be computed.
    blank = eqx.filter_eval_shape(lambda: LagrangianChain(body.joints, settings, key=jax.random.key(0)))
    factors = [_factor(one, turn) for one, turn in zip(bodies, aligned, strict=True)]
    parts = (
        np.reshape([turn for turn, _ in places[1:]], (-1, 3, 3)),
        np.reshape([shift for _, shift in places[1:]], (-1, 3)),
        np.array(factors),
        np.log(np.maximum(body.armature, NO_ROTOR)),
        -base_turn.T @ body.gravity,
    )
    return eqx.tree_at(
        lambda one: (one.turn, one.shift, one.factor, one.log_armature, one.gravity),
        blank,
        tuple(jnp.asarray(part) for part in parts),
    )


def _factor(body: Body, turn: Matrix) -> Float[np.ndarray, "4 4"]:
    """A root F of the pseudo-inertia F Fᵀ of a link, in a frame turned by `turn`."""
    spread = np.trace(body.inertia) / 2 * np.eye(3) - body.inertia
    moment = body.mass * body.centre
    full = np.block(
        [[spread + np.outer(moment, body.centre), moment[:, None]], [moment[None], np.array([[body.mass]])]]
    )
    values, vectors = np.linalg.eigh(full)
    turned = np.block([[turn.T, np.zeros((3, 1))], [np.zeros((1, 3)), np.eye(1)]])
    return turned @ vectors * np.sqrt(np.maximum(values, 0))
