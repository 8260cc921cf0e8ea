"""How sure the axes of a learned arm are, and which of them its torques cannot tell from parallel ones.

Where two axes are nearly parallel, the place where they come nearest runs away along them: a tilt that hardly changes
a torque moves it by metres. So the arm with these axes parallel is tried, and told if its torques are as good.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float
from scipy.linalg import null_space
from scipy.optimize import least_squares

from ..models.actuated import links_of
from ..models.chain import LagrangianChain
from ..models.dynamics import in_precision
from ..models.gauge import Matrix, looseness, settled
from ..models.geometry import PARALLEL, learned_arm, nearest_points, to_rigid_body
from .links import PUSH, STATES, motor_columns, noise_of, random_states
from .objective import Objective
from .regression import triangle

Rows = Float[np.ndarray, "states dof"]
Motion = tuple[Rows, Rows, Rows]

NEARLY_PARALLEL = 5.0
"""Axes that are less than so many degrees from parallel are tried as parallel ones."""
TRIES = 60
"""How often torques are computed at most in search of an arm with parallel axes."""
HIDDEN = 1e-9
"""Changes of an arm that do less than this share of what others do change no torque."""
NUDGE = PARALLEL / 10
"""How far numbers are moved to see what changes; parallel axes still count as such."""


@dataclass(frozen=True)
class AxisDoubt:
    """About how wrong the numbers of an `Axis` may be; infinite where no torque tells, None where there is no number.

    `found`: the twist [degrees] that the fit gave to axes which are told as parallel, and None for others.
    """

    joint: str
    twist: float | None
    distance: float | None
    offset: float | None
    found: float | None


@dataclass(frozen=True, eq=False)
class ToldAxes:
    """A chain whose axes are parallel where its torques cannot tell that they are not, and the doubt in each axis.

    Attributes:
        bent: how far its frames were from rotations before.
        flat: whether all axes are parallel and gravity pulls across them. How far it leans along them moves no joint,
            but gives lengths their unit: it is taken to stand square to them.
    """

    chain: LagrangianChain
    doubts: tuple[AxisDoubt, ...]
    bent: float
    flat: bool


def told_axes(
    model: Any,
    *,
    rmse: Float[np.ndarray, " dof"],
    samples: int = 1,
    states: Float[np.ndarray, "states coordinates"] | None = None,
) -> ToldAxes:
    """What the torques of a chain, alone or under an actuator, tell of its axes; call it inside `jax.enable_x64(True)`.

    Args:
        rmse: of its torques on motion that it was not fitted to [N m or N]; samples: that it was fitted to.
        states: (q, q̇) of those samples, or of some; None: random ones.
    """
    chain = settled(in_precision(links_of(model)))
    to_rigid_body(chain)  # refuses what is no rigid arm
    arm, motion = learned_arm(chain), _motion(chain, states)
    tilts = {k: min(axis.twist, 180 - axis.twist) for k, axis in enumerate(arm.axes) if axis.distance is not None}
    parallel = sorted((k for k in tilts if np.degrees(PARALLEL) < tilts[k] < NEARLY_PARALLEL), key=lambda k: tilts[k])
    torques, straight = _torques(chain, motion), chain
    while parallel:
        straight = _straightened(chain, parallel, motion)
        if (np.sqrt(np.mean((_torques(straight, motion) - torques) ** 2, axis=0)) <= rmse).all():
            break
        parallel, straight = parallel[:-1], chain
    flat = _is_flat(straight, motion, rmse)
    if flat:
        straight = settled(eqx.tree_at(lambda one: one.gravity, straight, straight.gravity.at[2].set(0)))
    noise = noise_of(torques, rmse, samples, max(arm.stretch))
    held = [k for k in tilts if k in parallel or tilts[k] <= np.degrees(PARALLEL)]
    errors = _errors(model, straight, motion, noise, parallel=held, flat=flat)
    doubts = []
    for k, axis in enumerate(learned_arm(straight).axes):
        found = tilts[k] if k in parallel else None
        twist, distance, offset = errors[k].tolist()
        doubts.append(
            AxisDoubt(
                joint=axis.joint,
                twist=found if k in held else None if axis.parent is None else twist,
                distance=None if axis.distance is None else distance,
                offset=None if axis.offset is None else offset,
                found=found,
            )
        )
    return ToldAxes(straight, tuple(doubts), max(arm.stretch), flat)


def _motion(chain: LagrangianChain, states: np.ndarray | None) -> Motion:
    """Motions in these states, the same ones every time."""
    if states is None:
        return random_states(to_rigid_body(chain))
    q, qd = np.split(np.asarray(states, dtype=float)[:STATES], 2, axis=1)
    return q, qd, PUSH * np.random.default_rng(0).normal(size=q.shape)


def _is_flat(chain: LagrangianChain, motion: Motion, rmse: Float[np.ndarray, " dof"]) -> bool:
    arm, rest = learned_arm(chain), np.zeros_like(motion[1])
    alike = np.linalg.norm(np.cross(arm.directions, arm.directions[0]), axis=1) < PARALLEL
    if any(chain.tree.sliding) or chain.joints.dof == 1 or not alike.all():
        return False
    return bool((np.ptp(_torques(chain, (motion[0], rest, rest)), axis=0) > rmse).any())


@eqx.filter_jit
def _linearised(chain: LagrangianChain, motion: Any) -> tuple[Array, Array, Array, Array]:
    """Torques and looseness, and the slopes of both in the flat weights."""
    weights, unravel = ravel_pytree(chain)

    def torque(weights: Array, *row: Array) -> Array:
        return unravel(weights).inverse_dynamics(*row)

    torques, slopes = (jax.vmap(one, in_axes=(None, 0, 0, 0)) for one in (torque, jax.jacrev(torque)))
    loose = jax.jacrev(lambda weights: looseness(unravel(weights)))(weights)
    loose = jnp.nan_to_num(loose)  # the size of no gravity has no slope
    return torques(weights, *motion), slopes(weights, *motion), looseness(chain), loose


def _torques(chain: LagrangianChain, motion: Motion) -> Rows:
    return np.asarray(_linearised(chain, motion)[0])


def _straightened(chain: LagrangianChain, parallel: Sequence[int], motion: Motion) -> LagrangianChain:
    """The chain that comes nearest to the torques of this one with the axes of these joints parallel to those before.

    A frame may turn about its own axis, so that all of its turn can be kept as it is once the axis is parallel.
    """
    turn = np.array(chain.turn)
    for k in parallel:
        turn[k - 1] = _upright(turn[k - 1])
    start, unravel = ravel_pytree(eqx.tree_at(lambda one: one.turn, chain, jnp.asarray(turn)))
    free = np.flatnonzero(~_turns_of(parallel, start.size))
    wanted, _, loose, _ = (np.asarray(part) for part in _linearised(chain, motion))
    size = np.maximum(wanted.std(axis=0), 1e-12 * np.abs(wanted).max()) * np.sqrt(wanted.size)
    firm = np.sqrt(Objective.rigidity) * np.ones(len(loose))
    kept = np.append(np.zeros(len(loose) - 1), loose[-1])  # rotations, and gravity of the size it has

    def linearised(weights: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(part) for part in _linearised(unravel(start.at[free].set(weights)), motion)]

    def errors(weights: np.ndarray) -> np.ndarray:
        torque, _, loose, _ = linearised(weights)
        return np.concatenate([((torque - wanted) / size).ravel(), firm * (loose - kept)])

    def slopes(weights: np.ndarray) -> np.ndarray:
        _, torque, _, loose = linearised(weights)
        rows = np.concatenate([np.concatenate(torque / size[:, None]), firm[:, None] * loose])
        return rows[:, free]

    with np.errstate(over="ignore", invalid="ignore"):  # of steps too long, which are taken back
        found = least_squares(errors, np.asarray(start)[free], jac=cast(Any, slopes), x_scale="jac", max_nfev=TRIES)
    return settled(unravel(start.at[free].set(found.x)))


def _upright(turn: Matrix) -> Matrix:
    """The rotation about the z axis, or about it and upside down, that is nearest to this one."""
    left, _, right = np.linalg.svd(turn[:2, :2])
    flat = np.zeros((3, 3))
    flat[:2, :2], flat[2, 2] = left @ right, np.sign(turn[2, 2])
    return flat


def _turns_of(parallel: Sequence[int], weights: int) -> Bool[np.ndarray, " weights"]:
    """Which of the flat weights are the turns of these joints: they come first, 9 each from the second joint on."""
    chosen = np.zeros(weights, dtype=bool)
    for k in parallel:
        chosen[9 * (k - 1) : 9 * k] = True
    return chosen


def _errors(
    model: Any,
    chain: LagrangianChain,
    motion: Motion,
    noise: Float[np.ndarray, " dof"],
    *,
    parallel: Sequence[int],
    flat: bool,
) -> Float[np.ndarray, "dof 3"]:
    """Standard errors of twists, distances and offsets: what frames, gravity, links and motors may do together."""
    _, slopes, _, loose = (np.asarray(part) for part in _linearised(chain, motion))
    count, frames = slopes.shape[2], 12 * len(chain.turn)
    geometry = np.r_[0:frames, count - 3 : count]  # turns, shifts and, at the end, gravity
    loose = loose[:-1] if any(chain.tree.sliding) else loose  # where a joint slides, lengths need no gravity
    square = np.eye(count)[[count - 1] if flat else []]
    held = np.concatenate([loose, np.eye(count)[_turns_of(parallel, count)], square])[:, geometry]
    ways = null_space(held, rcond=HIDDEN) if held.size else np.eye(len(geometry))
    links = to_rigid_body(chain).regressor_rows(*motion)
    motors = motor_columns(model, motion[2])[2]
    rows = np.concatenate([slopes[:, :, geometry] @ ways, links, motors], axis=2) / noise[:, None]
    effect = np.zeros((3 * len(noise), rows.shape[2]))
    effect[:, : ways.shape[1]] = np.pad(_geometry_slopes(chain), ((0, 0), (0, 3))) @ ways
    matrix = triangle(np.concatenate(rows)) / np.sqrt(len(rows))
    length = np.linalg.norm(matrix, axis=0)
    scale = np.where(length > 0, length, 1.0)
    _, singular, directions = np.linalg.svd(matrix / scale)
    seen = singular > HIDDEN * singular[0]
    along = effect / scale @ directions.T
    hidden = np.linalg.norm(along[:, ~seen], axis=1) > np.sqrt(HIDDEN) * np.linalg.norm(along, axis=1)
    errors = np.linalg.norm(along[:, seen] / singular[seen], axis=1)
    return np.where(hidden, np.inf, errors).reshape(-1, 3)


def _geometry_slopes(chain: LagrangianChain) -> Float[np.ndarray, "numbers frames"]:
    """How twists, distances and offsets change with turns and shifts, by differences."""
    turn, shift = np.array(chain.turn), np.array(chain.shift)
    flat = np.concatenate([turn.ravel(), shift.ravel()])
    columns = []
    for nudge in NUDGE * np.eye(len(flat)):
        sides = [
            _numbers(chain, one[: turn.size].reshape(turn.shape), one[turn.size :].reshape(shift.shape))
            for one in (flat + nudge, flat - nudge)
        ]
        columns.append((sides[0] - sides[1]) / (2 * NUDGE))
    return np.array(columns).reshape(len(flat), 3 * chain.joints.dof).T


def _numbers(chain: LagrangianChain, turn: np.ndarray, shift: np.ndarray) -> Float[np.ndarray, " numbers"]:
    """Twist [degrees], distance and offset of each axis as `Axis` has them, but distances with a sign; 0 for none."""
    tree, frames = chain.tree, [(np.eye(3), np.zeros(3))]
    for k, parent in enumerate(tree.parents[1:]):
        before, point = frames[parent] if parent >= 0 else frames[0]
        frames.append((before @ turn[k], before @ shift[k] + point))
    directions = np.array([frame[:, 2] / np.linalg.norm(frame[:, 2]) for frame, _ in frames])
    points, feet = nearest_points(tree.parents, tree.sliding, directions, np.array([point for _, point in frames]))
    found = np.zeros((len(frames), 3))
    for k, parent in enumerate(tree.parents):
        if parent < 0:
            continue
        u, v, foot, apart = directions[parent], directions[k], feet[k], points[k] - points[parent]
        normal = np.cross(u, v)
        found[k, 0] = np.degrees(np.arctan2(np.linalg.norm(normal), u @ v))
        if foot is None:
            found[k, 1] = np.linalg.norm(apart - u * (u @ apart))
        else:
            found[k, 1:] = apart @ normal / np.linalg.norm(normal), (foot - points[parent]) @ u
    return found.ravel()
