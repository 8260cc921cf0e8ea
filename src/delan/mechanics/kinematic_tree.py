"""The Euler–Lagrange equation of a tree of joints by two sweeps, O(n) and without derivatives.

Joint k carries the frame T_k = T_parent W_k D_k(q_k), 3×4, from T = [I | 0]. W_k = [M_k | t_k]
(bottom row 0 0 0 1) is where the joint sits, and D_k(q) = exp(q G_k) is how it moves: a turn about
the third axis or a slide along it. With the pseudo-inertia K_k of the link behind it (4×4,
symmetric, positive) and the gravity vector γ,

    kinetic energy ½ Σ tr(Ṫ_k K_k Ṫ_kᵀ),    potential energy V = Σ γᵀ T_k K_k e₄.

Since D′ = D G, the sweep outwards needs only T G. Gravity enters as the acceleration of the base,
T̈ = γ e₄ᵀ. On the way back Λ_k = T̈_k K_k + Σ_children Λ_c (W_c D_c)ᵀ, and τ_k = ⟨Λ_k, T_k G_k⟩.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..joints import Energy

Vector = Float[Array, " dof"]
Motion = Float[Array, "9 4"]  # T, Ṫ and T̈ of a joint, stacked


@dataclass(frozen=True)
class Tree:
    """The parent of each joint (−1: the base), and whether the joint slides."""

    parents: tuple[int, ...]
    sliding: tuple[bool, ...]

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Start and end of the serial chains in the tree; a serial arm has a single one."""
        starts = [k for k, parent in enumerate(self.parents) if k == 0 or parent != k - 1]
        return tuple(zip(starts, [*starts[1:], len(self.parents)], strict=True))


class Links(NamedTuple):
    """Placement of the joints, pseudo-inertia of the links, and the gravity vector."""

    place: Float[Array, "dof 3 4"]
    inertia: Float[Array, "dof 4 4"]
    gravity: Float[Array, "3"]


class _Moves(NamedTuple):
    """The motion of each joint; `turns` is 1 for a revolute joint and 0 for a prismatic one."""

    cos: Array
    sin: Array
    slide: Array
    speed: Array
    acceleration: Array
    turns: Array


def _moves(tree: Tree, q: Vector, qd: Vector, qdd: Vector) -> _Moves:
    sliding = np.array(tree.sliding)
    angle = jnp.where(sliding, 0, q)
    return _Moves(
        cos=jnp.cos(angle),
        sin=jnp.sin(angle),
        slide=jnp.where(sliding, q, 0),
        speed=qd,
        acceleration=qdd,
        turns=jnp.asarray(~sliding, dtype=q.dtype),
    )


def _moved(frames: Float[Array, "rows 4"], move: _Moves) -> Float[Array, "rows 4"]:
    """Return frames · D(q)."""
    x, y, z, origin = frames.T
    return jnp.stack(
        [move.cos * x + move.sin * y, move.cos * y - move.sin * x, z, origin + move.slide * z],
        axis=1,
    )


def _generated(frames: Float[Array, "rows 4"], move: _Moves) -> Float[Array, "rows 4"]:
    """Return frames · G."""
    x, y, z, _ = frames.T
    return jnp.stack(
        [move.turns * y, -move.turns * x, jnp.zeros_like(z), (1 - move.turns) * z], axis=1
    )


def _outwards(
    motion: Motion, joint: tuple[Array, Array, _Moves]
) -> tuple[Motion, tuple[Motion, Array, Array]]:
    """Go from a joint to the next; return its motion, T G, and the force T̈ K on its link."""
    place, inertia, move = joint
    placed = motion[:, :3] @ place + jnp.pad(motion[:, 3:], ((0, 0), (3, 0)))
    frame, rate, rate_rate = jnp.split(_moved(placed, move), 3)
    turned = _generated(frame, move)
    rate_rate = (
        rate_rate
        + 2 * move.speed * _generated(rate, move)
        + move.speed**2 * _generated(turned, move)
        + move.acceleration * turned
    )
    motion = jnp.concatenate([frame, rate + move.speed * turned, rate_rate])
    return motion, (motion, turned, rate_rate @ inertia)


def _inwards(
    force: Float[Array, "3 4"], joint: tuple[Array, Array, Array, _Moves]
) -> tuple[Array, Array]:
    """Go from a joint to its parent; return the force Λ (W D)ᵀ and the torque ⟨Λ, T G⟩."""
    place, link_force, turned, move = joint
    force = force + link_force
    x, y, z, origin = force.T
    z = z + move.slide * origin
    unmoved = jnp.stack(
        [move.cos * x - move.sin * y, move.sin * x + move.cos * y, z, origin], axis=1
    )
    return jnp.concatenate([unmoved @ place.T, force[:, 3:]], axis=1), jnp.sum(force * turned)


class _Swept(NamedTuple):
    """Results of the outward sweep per serial chain: motions, T G and T̈ K of its joints."""

    moves: _Moves
    motion: list[Array]
    turned: list[Array]
    force: list[Array]


def _sweep(tree: Tree, links: Links, q: Vector, qd: Vector, qdd: Vector) -> _Swept:
    dtype = jnp.result_type(q, qd, qdd, *links)
    moves = _moves(tree, q.astype(dtype), qd.astype(dtype), qdd.astype(dtype))
    base = jnp.eye(9, 4, dtype=dtype).at[3].set(0).at[6:, 3].set(links.gravity)
    swept = _Swept(moves, [], [], [])
    for start, end in tree.runs:
        run, row = _run_of(tree, tree.parents[start])
        begin = base if run is None else swept.motion[run][row]
        joints = _between((links.place, links.inertia, moves), start, end)
        _, (motion, turned, force) = jax.lax.scan(_outwards, begin, joints)
        swept.motion.append(motion)
        swept.turned.append(turned)
        swept.force.append(force)
    return swept


def _between(columns: Any, start: int, end: int) -> Any:
    """Return the rows start … end − 1 of every array."""
    return jax.tree.map(lambda column: column[start:end], columns)


def _run_of(tree: Tree, joint: int) -> tuple[int | None, int]:
    """Return the serial chain that holds a joint and the joint's place in it; None: the base."""
    for index, (start, end) in enumerate(tree.runs):
        if start <= joint < end:
            return index, joint - start
    return None, 0


def inverse_dynamics(tree: Tree, links: Links, q: Vector, qd: Vector, qdd: Vector) -> Vector:
    """Return the torque τ(q, q̇, q̈) [N m or N]."""
    swept = _sweep(tree, links, q, qd, qdd)
    torques: list[Array] = []
    # Backwards: a chain passes its force on before the chain of its parent is swept.
    for index in reversed(range(len(tree.runs))):
        start, end = tree.runs[index]
        moves = _between(swept.moves, start, end)
        joints = (links.place[start:end], swept.force[index], swept.turned[index], moves)
        down, torque = jax.lax.scan(
            _inwards, jnp.zeros_like(swept.force[index][0]), joints, reverse=True
        )
        torques.insert(0, torque)
        run, row = _run_of(tree, tree.parents[start])
        if run is not None:
            swept.force[run] = swept.force[run].at[row].add(down)
    return jnp.concatenate(torques)


def mass_matrix(tree: Tree, links: Links, q: Vector) -> Float[Array, "dof dof"]:
    """Return the inertia H(q) [kg m² or kg]."""
    weightless = links._replace(gravity=jnp.zeros_like(links.gravity))

    def column(qdd: Vector) -> Vector:
        return inverse_dynamics(tree, weightless, q, jnp.zeros_like(q), qdd)

    # At rest and without gravity, the torque of a unit acceleration is a column of H.
    inertia = jax.vmap(column)(jnp.eye(len(q), dtype=q.dtype))
    # Rounding leaves H slightly asymmetric, and a Cholesky factorisation reads one half only.
    return (inertia + inertia.T) / 2


def energy(tree: Tree, links: Links, q: Vector, qd: Vector) -> Energy:
    """Return kinetic and potential energy [J]."""
    swept = _sweep(tree, links, q, qd, jnp.zeros_like(q))
    motion = jnp.concatenate(swept.motion)
    frame = motion[:, :3]
    rate = motion[:, 3:6]
    kinetic = jnp.sum((rate @ links.inertia) * rate) / 2
    moments = (frame @ links.inertia[:, :, 3:])[:, :, 0]
    return Energy(kinetic, jnp.sum(links.gravity @ moments.T))


def require_tree(parents: Sequence[int], dof: int) -> str | None:
    """Return the problem of a list of parents, or None if there is none."""
    if len(parents) != dof:
        return f"{len(parents)} parents for {dof} joints"
    for k, parent in enumerate(parents):
        if not -1 <= parent < k:
            return f"joint {k} with the parent {parent}"
    return None
