"""The choice of frames and units that joint data leave to a chain, settled by a rule.

Every frame may turn about its axis, slide along it and be stretched; lengths have no unit until gravity, 9.81 m/s², or
a sliding joint gives them one; an arm and its mirror image move alike. None of it changes a torque.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .chain import GRAVITY_ACCELERATION, LagrangianChain

Matrix = Float[np.ndarray, "3 3"]
Point = Float[np.ndarray, "3"]


@dataclass(frozen=True, eq=False)
class _Settlement:
    """A choice of frames: T′ = mirror · T · diag(B_k, unit) for each joint, and how far M′_k stays from a rotation."""

    mirror: Matrix
    stretches: list[Matrix]
    unit: float
    turns: list[Matrix]


def _settle(chain: LagrangianChain) -> _Settlement:
    tree, (place, _, gravity) = chain.tree, numpy_links(chain)
    # Of an arm and its mirror image, take the one that gravity pulls down its first axis.
    flips = gravity[2] < 0 and not tree.sliding[0]
    mirror = np.diag([1.0, 1.0, -1.0 if flips else 1.0])
    stretches, turns = [mirror], [np.eye(3)]
    unit = 1.0 if tree.sliding[0] else None
    for k in range(1, len(tree.parents)):
        inner = _inner(mirror, stretches, tree.parents[k]) @ place[k, :, :3]
        if tree.sliding[k]:
            unit = 1 / np.linalg.norm(inner[:, 2]) if unit is None else unit
            turn = with_third_column(unit * inner[:, 2])
            stretches.append(np.linalg.solve(inner, turn))
        else:
            square = inner.T @ inner
            across, along = np.sqrt(2 / (square[0, 0] + square[1, 1])), 1 / np.sqrt(square[2, 2])
            stretches.append(np.diag([across, across, along * np.sign(np.linalg.det(inner))]))
        turns.append(inner @ stretches[-1])
    if unit is None:
        unit = GRAVITY_ACCELERATION / np.linalg.norm(gravity) if _has_weight(chain) else 1.0
    return _Settlement(mirror, stretches, float(unit), turns)


def _inner(mirror: Matrix, stretches: list[Matrix], parent: int) -> Matrix:
    """What stands before a joint's place in its new frame: B⁻¹ of the joint it hangs on, or the mirror of the base."""
    return np.linalg.inv(stretches[parent]) if parent >= 0 else mirror


def with_third_column(column: Point) -> Matrix:
    """A matrix with this third column whose others are of unit length and normal to it, right-handed."""
    basis = np.linalg.svd(column[:, None])[0]
    turn = np.column_stack([basis[:, 1], basis[:, 2], column])
    turn[:, 0] *= np.sign(np.linalg.det(turn))
    return turn


@eqx.filter_jit
def _heights(chain: LagrangianChain, states: Float[Array, "states dof"]) -> Float[Array, " states"]:
    return jax.vmap(lambda q: chain.energy(q, jnp.zeros_like(q)).potential)(states)


def _has_weight(chain: LagrangianChain) -> bool:
    """Whether gravity moves any joint: an arm that lies flat feels none, and its lengths have no unit."""
    states = jax.random.uniform(jax.random.key(0), (20, chain.joints.dof), minval=-1, maxval=1)
    heights = _heights(chain, states)
    _, inertia, gravity = numpy_links(chain)
    most = np.linalg.norm(inertia[:, :, 3], axis=1).max() * np.linalg.norm(gravity)
    return bool(np.ptp(heights) > 1e-6 * most)


def numpy_links(chain: LagrangianChain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    place, inertia, gravity = (np.asarray(part, dtype=float) for part in chain.links)
    return place, inertia, gravity


def settled(chain: LagrangianChain) -> LagrangianChain:
    """The same torques from frames that are as near to rotations as their free stretches allow, and in metres."""
    choice, (place, _, gravity) = _settle(chain), numpy_links(chain)
    inner = [_inner(choice.mirror, choice.stretches, parent) for parent in chain.tree.parents]
    shifts = [choice.unit * inner[k] @ place[k, :, 3] for k in range(1, len(place))]
    factors = [
        np.block([[np.linalg.inv(stretch), np.zeros((3, 1))], [np.zeros((1, 3)), np.eye(1) / choice.unit]]) @ factor
        for stretch, factor in zip(choice.stretches, np.asarray(chain.factor, dtype=float), strict=True)
    ]
    parts = (
        np.reshape(choice.turns[1:], (-1, 3, 3)),
        np.reshape(shifts, (-1, 3)),
        np.array(factors),
        choice.unit * choice.mirror @ gravity,
    )
    return eqx.tree_at(
        lambda one: (one.turn, one.shift, one.factor, one.gravity),
        chain,
        tuple(jnp.asarray(part, dtype=chain.turn.dtype) for part in parts),
    )


def looseness(chain: LagrangianChain) -> Float[Array, " rows"]:
    """How far the frames are from rotations, M_kᵀ M_k − I, and gravity from 9.81 m/s²: all zero for a settled arm."""
    square = chain.turn.mT @ chain.turn - jnp.eye(3, dtype=chain.turn.dtype)[None]
    upper = square[:, *np.triu_indices(3)]
    weight = jnp.linalg.norm(chain.gravity) / GRAVITY_ACCELERATION - 1
    return jnp.concatenate([upper.ravel(), weight[None]])
