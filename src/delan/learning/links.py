"""What joint data tell of a learned arm's links: frames that its geometry fixes, and what can be told in them.

Whatever the motion, joints feel some parameters of the links only in sums with others, and some not at all (Gautier
and Khalil 1990). Random states stand here for all motions; a log of less motion tells less.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..joints import Body
from ..models.actuated import ActuatedModel, links_of
from ..models.gauge import with_third_column
from ..models.geometry import PARALLEL, LearnedArm, Matrix, Point, learned_arm, to_rigid_body
from ..models.rigid_body import LINK_PARAMETERS, RigidBody
from ..models.trust import bare
from .regression import Identifiable, Span, triangle

STATES, SPEED, PUSH = 300, 2.0, 5.0
"""How many random states there are; their usual speeds [rad/s or m/s] and accelerations [rad/s² or m/s²]."""
REACH = {"revolute": np.pi, "continuous": np.pi, "prismatic": 0.5}
"""How far joints move to either side in these states [rad or m]."""
FAINT = 0.02
"""Effects below this share of the usual count as none: a fit's small errors would make them up."""
ALONE = 0.01
"""A parameter of which a smaller share is hidden counts as told alone."""
TOUCHING = 1e-4
"""Axes nearer to each other than this [m] count as crossing: the line between them has no direction of its own."""


@dataclass(frozen=True)
class LinkParameter:
    """A number of a link or a motor, in SI units and in the frame of its joint (`in_plain_frames`).

    Attributes:
        owner: name of the joint, or of the motor of a pair; name: of `LINK_PARAMETERS`, or `armature` or `offset`.
        identifiable: whether joint data tell it `alone`, only `combined` with others, or not at all (`no`).
        error: about how wrong the value may be, if it is told alone and the errors of the torque are known.
    """

    owner: str
    name: str
    value: float
    identifiable: Identifiable
    error: float | None


@dataclass(frozen=True)
class ToldLinks:
    """The parameters of links and motors, and how many combinations of them joint data tell.

    `weighed`: whether gravity moves any joint; lengths and masses have no unit without it, or without a sliding joint.
    """

    parameters: tuple[LinkParameter, ...]
    rank: int
    weighed: bool

    def named(self, identifiable: Identifiable) -> tuple[LinkParameter, ...]:
        return tuple(one for one in self.parameters if one.identifiable == identifiable)


def told_links(
    model: Any, *, rmse: Float[np.ndarray, " dof"] | None = None, samples: int = 1, bent: float = 0.0
) -> ToldLinks:
    """Which parameters of a chain's links joint data tell alone, and their values.

    Args:
        model: a chain, alone or under an actuator, whose rotors and offsets then compete with the links.
        rmse: of its torques on motion that it was not fitted to [N m or N]; samples: that it was fitted to.
        bent: how far its frames were from rotations before `told_axes` changed them.
    """
    model = bare(model)
    arm, body = learned_arm(model), in_plain_frames(model)
    q, qd, qdd = random_states(body)
    owners, values, beside = motor_columns(model, qdd)
    names = [(joint, name) for joint in body.joints.names for name in LINK_PARAMETERS] + owners
    rows = np.concatenate([body.regressor_rows(q, qd, qdd), beside], axis=2)
    rows = rows * _felt(rows, [name for _, name in names])
    values = np.concatenate([body.parameters.ravel(), values])
    span = Span.of(triangle(np.concatenate(rows)), FAINT)
    errors: list[float | None] = [None] * len(names)
    if rmse is not None:
        noise = noise_of(rows @ values, rmse, samples, max(bent, *arm.stretch))
        errors = _errors(rows / noise[:, None], span.rank).tolist()
    found = []
    for (owner, name), value, share, error in zip(names, values.tolist(), span.hidden, errors, strict=True):
        told: Identifiable = "alone" if share < ALONE else "no" if share > 1 - ALONE**2 else "combined"
        found.append(LinkParameter(owner, name, value, told, error if told == "alone" else None))
    pull = body.regressor_rows(q, 0 * qd, 0 * qdd) @ body.parameters.ravel()
    return ToldLinks(tuple(found), span.rank, bool(np.abs(pull).max() > FAINT**2 * np.abs(rows @ values).max()))


def noise_of(
    torques: Float[np.ndarray, "time dof"], rmse: Float[np.ndarray, " dof"], samples: int, bent: float
) -> Float[np.ndarray, " dof"]:
    """How wrong the mean torque of a joint is after so many samples [N m or N].

    What a fit leaves of bent frames is an error of its geometry, which more samples would not average out.
    """
    size = np.sqrt(np.mean(torques**2, axis=0))
    return np.maximum(np.sqrt(rmse**2 / samples + (bent * size) ** 2), 1e-15 * size.max())


def random_states(body: RigidBody) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, speeds and accelerations, the same ones every time."""
    reach = np.array([REACH[kind] for kind in body.joints.kinds])
    q, qd, qdd = np.random.default_rng(0).uniform(-1, 1, (3, STATES, len(reach)))
    return reach * q, SPEED * np.sqrt(3) * qd, PUSH * np.sqrt(3) * qdd


def motor_columns(
    model: Any, qdd: Float[np.ndarray, "time dof"]
) -> tuple[list[tuple[str, str]], np.ndarray, np.ndarray]:
    """Names, values and columns of what motors add: the rotors, and the offsets if there are any."""
    chain: Any = links_of(model)
    dof, joints = chain.joints.dof, chain.joints.names
    names = [(joint, "armature") for joint in joints]
    rotors, turn, columns = np.asarray(chain.armature, dtype=float), np.eye(dof), []
    if isinstance(model, ActuatedModel):
        weights = {name: np.asarray(row, dtype=float) for name, row in model.actuator.named.items()}
        if "armature" in weights:
            turn = np.asarray(model.actuator.transmission)
            rotors = weights["armature"] + np.pad(rotors, (0, len(turn) - dof))
            names = [(motor, "armature") for motor in model.actuator.motors]
        if "offset" in weights:
            names += [(joint, "offset") for joint in joints]
            rotors = np.concatenate([rotors, weights["offset"][:dof]])
            columns = [np.broadcast_to(np.eye(dof), (len(qdd), dof, dof))]
    return names, rotors, np.concatenate([(qdd @ turn.T)[:, None, :] * turn.T, *columns], axis=2)


def _felt(rows: Float[np.ndarray, "time dof columns"], names: list[str]) -> Bool[np.ndarray, " columns"]:
    """Which columns are no fainter than others of the same unit."""
    length = np.linalg.norm(rows, axis=(0, 1))
    units = np.array([name if name in ("mass", "armature", "offset") else name[0] for name in names])
    most = {unit: length[units == unit].max() for unit in set(units)}
    return length > FAINT * np.array([most[unit] for unit in units])


def _errors(rows: Float[np.ndarray, "time dof columns"], rank: int) -> Float[np.ndarray, " columns"]:
    """Standard errors of the parameters from rows of unit noise, of which one sample in the mean was seen."""
    matrix = triangle(np.concatenate(rows)) / np.sqrt(len(rows))
    length = np.linalg.norm(matrix, axis=0)
    scale = np.where(length > 0, length, np.inf)
    _, singular, directions = np.linalg.svd(matrix / scale)
    return np.linalg.norm(directions[:rank] / singular[:rank, None], axis=0) / scale


def in_plain_frames(model: Any) -> RigidBody:
    """The rigid arm of a chain, without friction, with the joint frames that its geometry fixes.

    z is the joint's axis, x the common normal from the axis before it (u × v where the two cross), and the origin the
    point where that normal meets the axis. A first joint has x and origin from the joint after it, or x downwards.
    """
    model = bare(model)
    chain = links_of(model)
    to_rigid_body(chain)  # refuses what is no rigid arm
    arm = learned_arm(chain)
    old: list[tuple[Matrix, Point]] = []
    new: list[tuple[Matrix, Point]] = []
    bodies = []
    for k, body in enumerate(arm.bodies):
        turn, place = _before(old, body)
        old.append((turn @ body.rotation, turn @ body.position + place))
        new.append(_first_frame(arm, k) if body.parent < 0 else _frame(arm, k, new))
        bodies.append(_moved(body, old[k], new[k], _before(new, body)))
    x, y, z = arm.gravity.tolist()
    return RigidBody.from_bodies(bodies, gravity=(x, y, z), armature=arm.armature)


def _before(frames: list[tuple[Matrix, Point]], body: Body) -> tuple[Matrix, Point]:
    return frames[body.parent] if body.parent >= 0 else (np.eye(3), np.zeros(3))


def _moved(body: Body, old: tuple[Matrix, Point], new: tuple[Matrix, Point], before: tuple[Matrix, Point]) -> Body:
    """The body in another frame of its own and of its parent, all frames given in that of the base."""
    across = new[0].T @ old[0]
    return replace(
        body,
        position=before[0].T @ (new[1] - before[1]),
        rotation=before[0].T @ new[0],
        centre=across @ body.centre + new[0].T @ (old[1] - new[1]),
        inertia=across @ body.inertia @ across.T,
    )


def _first_frame(arm: LearnedArm, k: int) -> tuple[Matrix, Point]:
    """Of a joint on the base: by the joint after it; if there is none, x points down as far as it can."""
    z, point = arm.directions[k], arm.points[k]
    child = next((j for j, body in enumerate(arm.bodies) if body.parent == k), None)
    if child is None:
        down = arm.gravity - z * (z @ arm.gravity)
        seen = np.linalg.norm(down) > TOUCHING
        return _with_axes(down if seen else with_third_column(z)[:, 0], z), point
    if k == 0:
        return np.eye(3), np.zeros(3)  # the arm's own frame follows the same rule
    x = _normal(arm, k, child, with_third_column(z)[:, 0])
    apart = arm.points[child] - point
    across = np.linalg.norm(np.cross(z, arm.directions[child])) > PARALLEL
    return _with_axes(x, z), arm.points[child] - x * (x @ apart) if across else point + z * (z @ apart)


def _frame(arm: LearnedArm, k: int, frames: list[tuple[Matrix, Point]]) -> tuple[Matrix, Point]:
    parent = arm.bodies[k].parent
    x = _normal(arm, parent, k, frames[parent][0][:, 0])
    return _with_axes(x, arm.directions[k]), arm.points[k]


def _normal(arm: LearnedArm, near: int, far: int, otherwise: Point) -> Point:
    """The direction from one axis to the other; `otherwise` if they are one and the same."""
    u, v, apart = arm.directions[near], arm.directions[far], arm.points[far] - arm.points[near]
    placed, normal = arm.axes[far].distance is not None, np.cross(u, v)
    if np.linalg.norm(normal) < PARALLEL:
        normal = apart - u * (u @ apart)
        normal = normal if placed and np.linalg.norm(normal) > TOUCHING else otherwise
    length = float(np.linalg.norm(normal))
    return normal / length * (-1 if placed and normal @ apart < -TOUCHING * length else 1)


def _with_axes(x: Point, z: Point) -> Matrix:
    x = x - z * (z @ x)
    x = x / np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z])
