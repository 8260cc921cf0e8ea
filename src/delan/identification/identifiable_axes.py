"""Uncertainty of the axes of a learned arm, and axes indistinguishable from parallel ones.

The common normal of two nearly parallel axes is ill-conditioned: a tilt that hardly changes a
torque moves it by metres along them. So the arm is also fitted with such axes made parallel, and
that arm is returned if its torques are as good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float
from scipy.linalg import null_space
from scipy.optimize import least_squares

from ..joints import nonzero_scale
from ..models.chain import LagrangianChain, Matrix, looseness, settled
from ..models.dynamics import in_precision
from ..models.geometry import PARALLEL, chain_of, learned_arm, nearest_points, to_rigid_body
from ..solvers.loss import Objective
from .identifiable_links import ACCELERATION, STATES, motor_columns, noise_of, random_states
from .regression import triangle

Rows = Float[np.ndarray, "states dof"]
Motion = tuple[Rows, Rows, Rows]

# Axes that differ by less than this angle [degrees] are tried as parallel ones.
NEARLY_PARALLEL = 5.0
# Most evaluations of the torques in the search for an arm with parallel axes.
TRIES = 60
# Directions whose singular value is below this fraction of the largest change no torque.
HIDDEN = 1e-9
# Step of finite differences, so small that parallel axes still count as parallel.
NUDGE = PARALLEL / 10


@dataclass(frozen=True)
class AxisUncertainty:
    """Standard errors of an `Axis`; infinite where no torque depends on it, None without a value.

    `fitted_twist` is the twist [degrees] that the fit gave to axes which were made parallel; it is
    None for other axes.
    """

    joint: str
    twist: float | None
    distance: float | None
    offset: float | None
    fitted_twist: float | None


@dataclass(frozen=True, eq=False)
class IdentifiableAxes:
    """A chain with axes parallel wherever its torques do not show otherwise, and their errors.

    Attributes:
        stretch: distance of its frames from rotations before.
        flat: whether all axes are parallel and gravity acts across them. The component of gravity
            along the axes moves no joint, but with it gravity sets the unit of length: it is taken
            to be zero.
    """

    chain: LagrangianChain
    uncertainties: tuple[AxisUncertainty, ...]
    stretch: float
    flat: bool


def identifiable_axes(
    model: Any,
    *,
    rmse: Float[np.ndarray, " dof"],
    samples: int = 1,
    states: Float[np.ndarray, "states coordinates"] | None = None,
) -> IdentifiableAxes:
    """Return the axes of a chain, alone or under an actuator, and their uncertainty.

    Call it inside `jax.enable_x64(True)`.

    Args:
        rmse: torque error on motion that the chain was not fitted to [N m or N].
        samples: number of samples it was fitted to.
        states: (q, q̇) of those samples, or of some; None: random ones.
    """
    chain = settled(in_precision(chain_of(model)))
    to_rigid_body(chain)  # raises if the chain is not a rigid arm
    arm = learned_arm(chain)
    motion = _motion(chain, states)
    tilts = {}
    for k, axis in enumerate(arm.axes):
        if axis.distance is not None:
            tilts[k] = min(axis.twist, 180 - axis.twist)
    straight, fitted_twists = _straightest(chain, tilts, motion, rmse)
    flat = _is_flat(straight, motion, rmse)
    if flat:
        across = straight.gravity.at[2].set(0)
        straight = settled(eqx.tree_at(lambda chain: chain.gravity, straight, across))
    noise = noise_of(_linearised(chain, motion).torques, rmse, samples, max(arm.stretch))
    parallel = [k for k in tilts if k in fitted_twists or tilts[k] <= np.degrees(PARALLEL)]
    errors = _errors(model, straight, motion, noise, parallel=parallel, flat=flat)
    uncertainties = []
    for k, axis in enumerate(learned_arm(straight).axes):
        fitted_twist = fitted_twists.get(k)
        twist, distance, offset = errors[k].tolist()
        if axis.parent is None or k in parallel:
            twist = fitted_twist
        if axis.distance is None:
            distance = None
        if axis.offset is None:
            offset = None
        uncertainties.append(AxisUncertainty(axis.joint, twist, distance, offset, fitted_twist))
    return IdentifiableAxes(straight, tuple(uncertainties), max(arm.stretch), flat)


def _motion(chain: LagrangianChain, states: np.ndarray | None) -> Motion:
    """Return motions through these states, always the same ones."""
    if states is None:
        return random_states(chain.joints)
    q, qd = np.split(np.asarray(states, dtype=float)[:STATES], 2, axis=1)
    return q, qd, ACCELERATION * np.random.default_rng(0).normal(size=q.shape)


def _straightest(
    chain: LagrangianChain,
    tilts: Mapping[int, float],
    motion: Motion,
    rmse: Float[np.ndarray, " dof"],
) -> tuple[LagrangianChain, dict[int, float]]:
    """Return the chain with as many parallel axes as its torques allow, and their old tilts.

    `tilts` are the angles of axes from parallel [degrees]; the most tilted are given up first.
    """
    nearly = [k for k in tilts if np.degrees(PARALLEL) < tilts[k] < NEARLY_PARALLEL]
    parallel = sorted(nearly, key=lambda k: tilts[k])
    torques = _linearised(chain, motion).torques
    while parallel:
        straight = _straightened(chain, parallel, motion)
        change = _linearised(straight, motion).torques - torques
        if (np.sqrt(np.mean(change**2, axis=0)) <= rmse).all():
            return straight, {k: tilts[k] for k in parallel}
        parallel.pop()
    return chain, {}


def _is_flat(chain: LagrangianChain, motion: Motion, rmse: Float[np.ndarray, " dof"]) -> bool:
    """Return whether all axes are parallel and gravity acts across them."""
    arm = learned_arm(chain)
    tilt = np.linalg.norm(np.cross(arm.directions, arm.directions[0]), axis=1)
    if any(chain.tree.sliding) or chain.joints.dof == 1 or not (tilt < PARALLEL).all():
        return False
    rest = np.zeros_like(motion[1])
    weight = _linearised(chain, (motion[0], rest, rest)).torques
    return bool((np.ptp(weight, axis=0) > rmse).any())


class _Linearisation(NamedTuple):
    """Torques and looseness of a chain, and their Jacobians in its flat weights."""

    torques: Rows
    torque_slopes: Float[np.ndarray, "states dof weights"]
    loose: Float[np.ndarray, " rows"]
    loose_slopes: Float[np.ndarray, "rows weights"]


def _linearised(chain: LagrangianChain, motion: Motion) -> _Linearisation:
    return _Linearisation(*map(np.asarray, _derivatives(chain, motion)))


@eqx.filter_jit
def _derivatives(chain: LagrangianChain, motion: Any) -> tuple[Array, Array, Array, Array]:
    weights, unravel = ravel_pytree(chain)

    def torque(weights: Array, *row: Array) -> Array:
        return unravel(weights).inverse_dynamics(*row)

    axes = (None, 0, 0, 0)
    torques = jax.vmap(torque, in_axes=axes)(weights, *motion)
    slopes = jax.vmap(jax.jacrev(torque), in_axes=axes)(weights, *motion)
    loose = jax.jacrev(lambda weights: looseness(unravel(weights)))(weights)
    # Without gravity, the derivative of its norm is not defined.
    return torques, slopes, looseness(chain), jnp.nan_to_num(loose)


def _straightened(
    chain: LagrangianChain, parallel: Sequence[int], motion: Motion
) -> LagrangianChain:
    """Return the chain nearest in torque whose axes of these joints are parallel to the previous.

    A frame may turn about its own axis, so that the whole rotation of such a joint can be fixed
    once its axis is parallel.
    """
    turn = np.array(chain.turn)
    for k in parallel:
        turn[k - 1] = _upright(turn[k - 1])
    start, unravel = ravel_pytree(eqx.tree_at(lambda chain: chain.turn, chain, jnp.asarray(turn)))
    free = np.flatnonzero(~_turns_of(parallel, start.size))
    wanted, _, loose, _ = _linearised(chain, motion)
    size = np.maximum(wanted.std(axis=0), 1e-12 * np.abs(wanted).max()) * np.sqrt(wanted.size)
    firm = np.sqrt(Objective.rigidity) * np.ones(len(loose))
    # Rotations without stretch, and gravity of the size it has.
    target = np.append(np.zeros(len(loose) - 1), loose[-1])

    def linearised(weights: np.ndarray) -> _Linearisation:
        return _linearised(unravel(start.at[free].set(weights)), motion)

    def errors(weights: np.ndarray) -> np.ndarray:
        torque, _, loose, _ = linearised(weights)
        return np.concatenate([((torque - wanted) / size).ravel(), firm * (loose - target)])

    def slopes(weights: np.ndarray) -> np.ndarray:
        _, torque, _, loose = linearised(weights)
        rows = np.concatenate([np.concatenate(torque / size[:, None]), firm[:, None] * loose])
        return rows[:, free]

    # Steps that are too long may overflow; they are rejected.
    with np.errstate(over="ignore", invalid="ignore"):
        solution = least_squares(
            errors, np.asarray(start)[free], jac=cast(Any, slopes), x_scale="jac", max_nfev=TRIES
        )
    return settled(unravel(start.at[free].set(solution.x)))


def _upright(turn: Matrix) -> Matrix:
    """Return the nearest rotation about the z axis, upside down if the given one is."""
    left, _, right = np.linalg.svd(turn[:2, :2])
    upright = np.zeros((3, 3))
    upright[:2, :2] = left @ right
    upright[2, 2] = np.sign(turn[2, 2])
    return upright


def _turns_of(joints: Sequence[int], weights: int) -> Bool[np.ndarray, " weights"]:
    """Return which flat weights are the rotations of these joints.

    Rotations come first, 9 numbers each from the second joint on.
    """
    chosen = np.zeros(weights, dtype=bool)
    for k in joints:
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
    """Return standard errors of twists, distances and offsets.

    Frames, gravity, links and motors may all change together.
    """
    _, slopes, _, loose = _linearised(chain, motion)
    count = slopes.shape[2]
    # Rotations and shifts come first among the weights, gravity last.
    geometry = np.r_[0 : 12 * len(chain.turn), count - 3 : count]
    if any(chain.tree.sliding):
        loose = loose[:-1]  # lengths do not need gravity where a joint slides
    fixed = _turns_of(parallel, count)
    fixed[-1] |= flat
    constraints = np.concatenate([loose, np.eye(count)[fixed]])[:, geometry]
    basis = np.eye(len(geometry))
    if constraints.size:
        basis = null_space(constraints, rcond=HIDDEN)
    links = to_rigid_body(chain).regressor_rows(*motion)
    motors = motor_columns(model, motion[2]).columns
    rows = np.concatenate([slopes[:, :, geometry] @ basis, links, motors], axis=2) / noise[:, None]
    effect = np.zeros((3 * len(noise), rows.shape[2]))
    effect[:, : basis.shape[1]] = np.pad(_geometry_slopes(chain), [[0, 0], [0, 3]]) @ basis
    matrix = triangle(np.concatenate(rows)) / np.sqrt(len(rows))
    scale = nonzero_scale(np.linalg.norm(matrix, axis=0))
    _, singular, directions = np.linalg.svd(matrix / scale)
    seen = singular > HIDDEN * singular[0]
    along = effect / scale @ directions.T
    total = np.linalg.norm(along, axis=1)
    hidden = np.linalg.norm(along[:, ~seen], axis=1) > np.sqrt(HIDDEN) * total
    errors = np.linalg.norm(along[:, seen] / singular[seen], axis=1)
    return np.where(hidden, np.inf, errors).reshape(-1, 3)


def _geometry_slopes(chain: LagrangianChain) -> Float[np.ndarray, "numbers frames"]:
    """Return the Jacobian of twists, distances and offsets in turns and shifts, by differences."""
    turn = np.array(chain.turn)
    weights = np.concatenate([turn.ravel(), np.array(chain.shift).ravel()])

    def numbers(weights: np.ndarray) -> np.ndarray:
        turns = weights[: turn.size].reshape(turn.shape)
        return _axis_numbers(chain, turns, weights[turn.size :].reshape(-1, 3))

    columns = []
    for step in NUDGE * np.eye(len(weights)):
        columns.append((numbers(weights + step) - numbers(weights - step)) / (2 * NUDGE))
    return np.array(columns).reshape(len(weights), 3 * chain.joints.dof).T


def _axis_numbers(
    chain: LagrangianChain, turn: np.ndarray, shift: np.ndarray
) -> Float[np.ndarray, " numbers"]:
    """Return twist [degrees], signed distance and offset of each axis, 0 where there is none."""
    tree = chain.tree
    frames = [(np.eye(3), np.zeros(3))]
    for k, parent in enumerate(tree.parents[1:]):
        parent_turn, point = frames[max(parent, 0)]
        frames.append((parent_turn @ turn[k], parent_turn @ shift[k] + point))
    directions = np.array([frame[:, 2] / np.linalg.norm(frame[:, 2]) for frame, _ in frames])
    origins = np.array([point for _, point in frames])
    points, feet = nearest_points(tree.parents, tree.sliding, directions, origins)
    numbers = np.zeros((len(frames), 3))
    for k, parent in enumerate(tree.parents):
        if parent < 0:
            continue
        u = directions[parent]
        foot = feet[k]
        offset = points[k] - points[parent]
        normal = np.cross(u, directions[k])
        numbers[k, 0] = np.degrees(np.arctan2(np.linalg.norm(normal), u @ directions[k]))
        if foot is None:
            numbers[k, 1] = np.linalg.norm(offset - u * (u @ offset))
        else:
            numbers[k, 1] = offset @ normal / np.linalg.norm(normal)
            numbers[k, 2] = (foot - points[parent]) @ u
    return numbers.ravel()
