"""Bounds that hold in a whole box of positions, by norms and intervals instead of samples.

A bound is on |H|, on |c| of the torque Σ c_kij q̇_i q̇_j, and on |g|, entry by entry. Those of a
chain hold for all angles; those of a network (`network_bounds`) hold in each box of a partition of
the positions. They are computed in double precision and widened by `ROUNDING`, which is far above
its errors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..models.chain import LagrangianChain, numpy_links

Boxes = Float[np.ndarray, "boxes dof"]

# What is added to a bound for rounding, as share of it.
ROUNDING = 1e-9
# Boxes of positions that a proof may look at, times the derivatives that each of them takes.
WORK = 120_000
# The most joints whose positions are partitioned; with more, boxes are too many.
PARTITIONED = 3
# Boxes along each joint at the start of a proof.
GRID = 8
# Boxes that are looked at together, so that their intervals fit into memory.
TOGETHER = 2048


class Parts(NamedTuple):
    """Bounds on the parts of the torque of links, and the intervals of H in each box.

    Attributes:
        inertia, coriolis, gravity: bounds on |H|, |c_kij| and |g|, with boxes along the first axis.
        middle, spread: centre of each box's interval of H, and half of its width; None for a chain.
        pivots: lower bounds on the inertia of each joint while all joints that it carries move
            freely; None for a network.
        rotors: inertias that a chain has on the diagonal of H, whatever its links; None likewise.
    """

    inertia: Float[np.ndarray, "boxes dof dof"]
    coriolis: Float[np.ndarray, "boxes dof dof dof"]
    gravity: Float[np.ndarray, "boxes dof"]
    middle: Float[np.ndarray, "boxes dof dof"] | None = None
    spread: Float[np.ndarray, "boxes dof dof"] | None = None
    pivots: Float[np.ndarray, "boxes dof"] | None = None
    rotors: Float[np.ndarray, " dof"] | None = None

    def least_eigenvalue(
        self, motors: Float[np.ndarray, "dof dof"], scale: Float[np.ndarray, " dof"]
    ) -> Float[np.ndarray, " boxes"]:
        """Return lower bounds on the least eigenvalue of S (H + motors) S, with S = diag(scale).

        That of a sum is at least the sum of those of its terms.
        """
        scaled = scale[:, None] * scale[None]
        if self.middle is not None and self.spread is not None:
            middle = np.linalg.eigvalsh((self.middle + motors) * scaled)[:, 0]
            return middle - np.linalg.norm(self.spread * scaled, axis=(1, 2))
        assert self.pivots is not None
        assert self.rotors is not None
        most = np.diagonal(self.inertia, axis1=1, axis2=2) * scale**2
        by_links = _least_by_pivots(self.pivots * scale**2, most)
        by_links = by_links + np.linalg.eigvalsh(motors * scaled)[0]
        by_rotors = np.linalg.eigvalsh((np.diag(self.rotors) + motors) * scaled)[0]
        return np.maximum(by_links * (1 - ROUNDING), by_rotors)

    def torque(
        self, speed: Float[np.ndarray, " dof"], push: Float[np.ndarray, " dof"]
    ) -> Float[np.ndarray, "boxes dof"]:
        """Return bounds on the torque at all |q̇| ≤ speed and |q̈| ≤ push."""
        inertial = self.inertia @ push
        coriolis = np.einsum("bkij,i,j->bk", self.coriolis, speed, speed)
        return (inertial + coriolis + self.gravity) * (1 + ROUNDING)


def _least_by_pivots(
    pivots: Float[np.ndarray, "boxes dof"], most: Float[np.ndarray, "boxes dof"]
) -> Float[np.ndarray, " boxes"]:
    """Return lower bounds on the least eigenvalue of an H with these pivots and diagonals ≤ most.

    With each joint in the unit that makes `most` one, the determinant is at least the product of
    the pivots, and the other n − 1 eigenvalues, whose sum is below n, have at most the product
    (n / (n − 1))^(n − 1). The joint of the smallest unit is the worst in the units of before.
    """
    dof = pivots.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = np.prod(pivots / most, axis=1)
    others = (dof / max(dof - 1, 1)) ** (dof - 1)
    return np.nan_to_num(determinant, nan=0.0) / others * most.min(axis=1)


# Proofs by partition.


@dataclass(frozen=True, eq=False)
class Proof:
    """A bound that holds in the whole workspace, or None.

    Attributes:
        boxes: number of boxes that were looked at.
        open: middles of boxes in which a bound was not shown, where a search should begin.
    """

    bound: float | None
    boxes: int
    open: Boxes


def prove(
    score: Callable[[Boxes, Boxes], Float[np.ndarray, " boxes"]],
    most: float,
    lower: Float[np.ndarray, " dof"],
    upper: Float[np.ndarray, " dof"],
) -> Proof:
    """Return whether a score that is bounded box by box stays at or below `most` everywhere.

    Boxes in which the bound is larger, or not a number, are cut in two along every joint, until
    none are left or the work is done.
    """
    dof = len(lower)
    corners = np.stack(np.meshgrid(*[np.arange(GRID)] * dof, indexing="ij"), axis=-1)
    half = (upper - lower) / (2 * GRID)
    middle = lower + half * (2 * corners.reshape(-1, dof) + 1)
    most_boxes = WORK // (dof * (dof + 1) // 2)
    sides = np.stack(np.meshgrid(*[[-0.5, 0.5]] * dof, indexing="ij"), axis=-1).reshape(-1, dof)
    seen = 0
    bound = -np.inf
    while len(middle):
        seen += len(middle)
        if seen > most_boxes:
            return Proof(None, seen - len(middle), middle)
        values = np.concatenate(
            [
                score(part, np.broadcast_to(half, part.shape))
                for part in np.array_split(middle, -(-len(middle) // TOGETHER))
            ]
        )
        good = values <= most
        bound = max(bound, float(values[good].max(initial=-np.inf)))
        middle = (middle[~good][:, None] + half * sides[None]).reshape(-1, dof)
        half = half / 2
    return Proof(bound, seen, middle)


# The chain: norms, for all angles.


class _Ring(NamedTuple):
    """The vectors whose first two components have a norm ≤ radius, the third is in an interval.

    Turning about the third axis leaves such a set as it is.
    """

    radius: float
    low: float
    high: float

    @classmethod
    def around(cls, vector: np.ndarray) -> "_Ring":
        return cls(float(np.hypot(*vector[:2])), float(vector[2]), float(vector[2]))

    @property
    def height(self) -> float:
        return max(abs(self.low), abs(self.high))

    def slid(self, low: float, high: float) -> "_Ring":
        return self._replace(low=self.low + low, high=self.high + high)

    def plus(self, other: "_Ring") -> "_Ring":
        return _Ring(self.radius + other.radius, self.low + other.low, self.high + other.high)

    def moved(self, matrix: np.ndarray, shift: np.ndarray) -> "_Ring":
        """Return a set that holds matrix @ v + shift of every v in this one."""
        ends = np.array([self.low, self.high])
        across = matrix[:2, 2:] * ends[None] + shift[:2, None]
        radius = min(
            np.linalg.norm(matrix[:2, :2], 2) * self.radius + np.linalg.norm(across, axis=0).max(),
            np.linalg.norm(matrix, 2) * np.hypot(self.radius, self.height)
            + np.linalg.norm(shift[:2]),
        )
        heights = matrix[2, 2] * ends + shift[2]
        around = np.linalg.norm(matrix[2, :2]) * self.radius
        return _Ring(float(radius), float(heights.min() - around), float(heights.max() + around))


def chain_bound(
    chain: LagrangianChain,
    lower: Float[np.ndarray, " dof"],
    upper: Float[np.ndarray, " dof"],
) -> Parts:
    """Return bounds for all angles of the turning joints, and all sliding ones in their limits.

    With T_l the frame of link l and K_l = F_l F_lᵀ, H_kj = Σ_l ⟨∂_k T_l F_l, ∂_j T_l F_l⟩ and
    c_kij = Σ_l ⟨∂_k T_l F_l, ∂_i ∂_j T_l F_l⟩. A derivative by several joints has at most the norm
    of that by the last of them: ‖∂_i ∂_j T_l F_l‖ ≤ ‖∂_j T_l F_l‖ for i ≤ j. That norm is the root
    of the inertia of link l about joint j, which is bounded for all angles of the joints between
    (`_lever_arms`). Gravity is bounded by the first moment of all links beyond a joint, times the
    part of the weight across its axis.
    """
    turn = _coupling_size(chain)
    lower, upper = _tree_box(chain, lower, upper)
    place, inertia, gravity = numpy_links(chain)
    levers = _lever_arms(chain, place, inertia, lower, upper)
    dof = len(place)
    last = np.maximum.outer(np.arange(dof), np.arange(dof))
    # A link moves with both joints only if it is beyond both: elsewhere a lever arm is zero.
    both = _on_one_branch(chain.tree.parents)
    mass_matrix = np.einsum("kl,jl->kj", levers, levers)
    coriolis = np.einsum("kl,ijl->kij", levers, levers[last] * both[:, :, None])
    weight = _gravity_bound(chain, place, inertia, gravity, lower, upper)
    rotors = np.asarray(chain.armature, dtype=float)
    mass_matrix = turn.T @ mass_matrix @ turn + np.diag(rotors)
    coriolis = np.einsum("kij,ka,ib,jc->abc", coriolis, turn, turn, turn, optimize=True)
    parts = Parts(mass_matrix[None], coriolis[None], (turn.T @ weight)[None])
    # The own inertias are pivots of the tree; of dependent joints only the rotors are certain.
    pivots = rotors
    if chain.settings.coupling is None:
        pivots = rotors + _own_inertia(chain, place, inertia)
    return parts._replace(pivots=pivots[None], rotors=rotors)


def _coupling_size(chain: LagrangianChain) -> Float[np.ndarray, "joints dof"]:
    """Return |A| of q_tree = A q, by which bounds of the tree become those of the coordinates."""
    if chain.coupling is None:
        return np.eye(chain.joints.dof)
    return np.abs(np.asarray(chain.coupling, dtype=float))


def _tree_box(
    chain: LagrangianChain, lower: Float[np.ndarray, " dof"], upper: Float[np.ndarray, " dof"]
) -> tuple[Float[np.ndarray, " joints"], Float[np.ndarray, " joints"]]:
    """Return the limits of the joints of the tree inside those of the coordinates."""
    if chain.coupling is None:
        return lower, upper
    # With what a search has added to A, which the settings do not say.
    rows = np.asarray(chain.coupling, dtype=float)
    # Where a coordinate without limits does not move a joint, 0 · ∞ must not count.
    ends = np.where(rows == 0, 0.0, np.stack([rows * lower, rows * upper]))
    return ends.min(axis=0).sum(axis=1), ends.max(axis=0).sum(axis=1)


def _on_one_branch(parents: tuple[int, ...]) -> np.ndarray:
    """Return for each pair of joints whether one of them carries the other."""
    dof = len(parents)
    carries = np.eye(dof, dtype=bool)
    for joint, parent in enumerate(parents):
        if parent >= 0:
            carries[:, joint] |= carries[:, parent]
    return carries | carries.T


def _stretches(chain: LagrangianChain, place: np.ndarray) -> np.ndarray:
    """Return bounds on the norm of T_k without its origin; 1 for frames that are rotations."""
    stretch = np.ones(len(place))
    for k, parent in enumerate(chain.tree.parents):
        before = 1.0 if parent < 0 else stretch[parent]
        stretch[k] = before * np.linalg.norm(place[k, :, :3], 2)
    return stretch


def _own_inertia(chain: LagrangianChain, place: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """Return lower bounds on ‖∂_k T_k F_k‖², the inertia of each link about its own joint.

    A joint has at least that inertia, whatever the joints that it carries do.
    """
    own = np.zeros(len(place))
    squeeze = np.ones(len(place))  # what a vector shrinks to in a frame, at most
    for k, parent in enumerate(chain.tree.parents):
        before = 1.0 if parent < 0 else squeeze[parent]
        squeeze[k] = before * np.linalg.norm(place[k, :, :3], -2)
        about_axis = inertia[k, 0, 0] + inertia[k, 1, 1]
        if chain.tree.sliding[k]:
            about_axis = inertia[k, 3, 3]
        own[k] = squeeze[k] ** 2 * about_axis
    return own


def _lever_arms(
    chain: LagrangianChain,
    place: np.ndarray,
    inertia: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> np.ndarray:
    """Return bounds on the norm of ∂_k T_l F_l for every joint k and link l."""
    tree = chain.tree
    stretch = _stretches(chain, place)
    levers = np.zeros((len(place), len(place)))
    for link in range(len(place)):
        mass = inertia[link, 3, 3]
        # A link without mass has no moments either, because K is positive.
        centre = inertia[link, :3, 3] / mass if mass > 0 else np.zeros(3)
        spin = inertia[link, :3, :3] - mass * np.outer(centre, centre)
        across = np.sqrt(max(spin[0, 0] + spin[1, 1], 0.0))
        along = np.sqrt(max(spin[2, 2], 0.0))
        whole = np.hypot(across, along)
        ring = _Ring.around(centre)
        joint = link
        while joint >= 0:
            turn = place[joint, :, :3]
            lever = np.sqrt(mass)
            if tree.sliding[joint]:
                ring = ring.slid(lower[joint], upper[joint])
            else:
                lever = np.hypot(across, np.sqrt(mass) * ring.radius)
            levers[joint, link] = stretch[joint] * lever
            ring = ring.moved(turn, place[joint, :, 3])
            whole = np.linalg.norm(turn, 2) * whole
            sides = np.linalg.norm(turn[:2, :2], 2) * across + np.linalg.norm(turn[:2, 2]) * along
            along = np.linalg.norm(turn[2, :2]) * across + abs(turn[2, 2]) * along
            across = min(sides, whole)
            joint = tree.parents[joint]
    return levers


def _gravity_bound(
    chain: LagrangianChain,
    place: np.ndarray,
    inertia: np.ndarray,
    gravity: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> np.ndarray:
    """Return bounds on |g_k| = |γᵀ T_k G_k m_k|, with the first moment m_k beyond the joint."""
    tree = chain.tree
    dof = len(place)
    masses = inertia[:, 3, 3].copy()
    moments = [_Ring.around(inertia[k, :3, 3]) for k in range(dof)]
    for k in reversed(range(dof)):
        parent = tree.parents[k]
        if parent < 0:
            continue
        moment = moments[k]
        if tree.sliding[k]:
            ends = masses[k] * np.array([lower[k], upper[k]])
            moment = moment.slid(ends.min(), ends.max())
        moved = moment.moved(place[k, :, :3], masses[k] * place[k, :, 3])
        moments[parent] = moments[parent].plus(moved)
        masses[parent] += masses[k]
    bound = np.zeros(dof)
    pulls: list[_Ring] = []
    for k, parent in enumerate(tree.parents):
        turn = place[k, :, :3].T
        if parent < 0:
            pull = _Ring.around(turn @ gravity)
        else:
            pull = pulls[parent].moved(turn, np.zeros(3))
        pulls.append(pull)
        bound[k] = pull.radius * moments[k].radius
        if tree.sliding[k]:
            bound[k] = pull.height * masses[k]
    return bound
