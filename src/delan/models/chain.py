"""A Lagrangian chain: a rigid-body arm whose geometry, inertia and gravity are all learned, none of
it given.

It knows the number, the order and the kinds of the joints, and nothing else. What it assumes: rigid
links, joints that turn or slide about fixed axes, no closed loop, no elasticity. Arms of that kind
it holds exactly; others it cannot fit.


The choice of frames and units that joint data leave to a chain, settled by a rule.

Every frame may turn about its axis, slide along it and be stretched; lengths have no unit until
gravity, 9.81 m/s², or a sliding joint gives them one; an arm and its mirror image move alike. None
of it changes a torque.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import SettingsError
from ..joints import Energy, Joints, TorqueComponents
from ..mechanics import kinematic_tree
from .dynamics import Normalisation, Promises, one_sample

Vector = Float[Array, " dof"]

USUAL_LENGTH = 0.3
"""How far apart joints are at the start, about [m]."""
GRAVITY_ACCELERATION = 9.81
"""[m/s²]"""


@dataclass(frozen=True)
class LagrangianChainSettings:
    """The shape of a kinematic_tree.

    Attributes:
        parents: for each joint the one that it hangs on, −1 for the base; None: a serial arm, each
            on the one before.
    """

    parents: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.parents is not None:
            object.__setattr__(self, "parents", tuple(self.parents))


class LagrangianChain(eqx.Module):
    """Frames T_k = T_parent [M_k | t_k] D_k(q_k) with free 3×3 M_k, links with pseudo-inertia K_k =
    F_k F_kᵀ.

    The kinetic energy ½ Σ tr(Ṫ_k K_k Ṫ_kᵀ) + ½ Σ e^{α_k} q̇_k² is a sum of squares plus a positive
    diagonal, so that H is positive definite for every weight; gravity is the gradient of V = Σ γᵀ
    T_k K_k e₄. M_k need not be a rotation: that leaves the fit ways around obstacles. What a fit to
    a rigid arm finds is one, up to a choice of units and frames that the joints cannot see;
    `geometry.learned_arm` makes that choice.
    """

    turn: Float[Array, "joints 3 3"]
    shift: Float[Array, "joints 3"]
    factor: Float[Array, "dof 4 4"]
    log_armature: Float[Array, " dof"]
    gravity: Float[Array, "3"]
    joints: Joints = eqx.field(static=True)
    settings: LagrangianChainSettings = eqx.field(static=True)

    def __init__(
        self,
        joints: Joints,
        settings: LagrangianChainSettings | None = None,
        normalisation: Normalisation | None = None,
        *,
        key: PRNGKeyArray,
    ):
        self.joints = joints
        self.settings = settings = settings or LagrangianChainSettings()
        problem = kinematic_tree.require_tree(self.tree.parents, joints.dof)
        if problem:
            raise SettingsError(
                f"parents asks for {problem}; give each of the {joints.dof} joints the index of an earlier joint, "
                "or −1 for the base"
            )
        n = joints.dof
        turn_key, shift_key, factor_key, gravity_key = jax.random.split(key, 4)
        self.turn = _rotations(turn_key, n - 1)
        self.shift = USUAL_LENGTH * jax.random.normal(shift_key, (n - 1, 3))
        size = 0.15 * jnp.sqrt(
            _least_on_the_way(self.tree, normalisation or Normalisation.identity(n))
        )
        self.factor = size[:, None, None] * (
            jnp.eye(4)[None] + 0.3 * jax.random.normal(factor_key, (n, 4, 4))
        )
        self.gravity = GRAVITY_ACCELERATION * jax.random.normal(gravity_key, (3,)) / np.sqrt(3)
        self.log_armature = 2 * jnp.log(size) - 2

    @property
    def tree(self) -> kinematic_tree.Tree:
        """Which joint hangs on which, and how they move."""
        parents = self.settings.parents
        serial = tuple(range(-1, self.joints.dof - 1))
        return kinematic_tree.Tree(
            serial if parents is None else parents,
            tuple(kind == "prismatic" for kind in self.joints.kinds),
        )

    @property
    def links(self) -> kinematic_tree.Links:
        """Places [M_k | t_k], pseudo-inertias K_k and gravity γ; the first joint sits at the origin
        by choice.
        """
        first = jnp.eye(3, 4, dtype=self.shift.dtype)[None]
        place = jnp.concatenate(
            [first, jnp.concatenate([self.turn, self.shift[:, :, None]], axis=2)]
        )
        return kinematic_tree.Links(place, self.factor @ self.factor.mT, self.gravity)

    @property
    def armature(self) -> Vector:
        """The rotor inertia that each joint adds to the diagonal of H [kg m² or kg]."""
        return jnp.exp(self.log_armature)

    @property
    def promises(self) -> Promises:
        """Which questions beyond the torque it answers."""
        return Promises(mechanics=True, energy=True)

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """The torque of eq. 6 of Lutter et al. 2019, by two sweeps over the joints [N m or N]."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        return (
            kinematic_tree.inverse_dynamics(self.tree, self.links, q, qd, qdd) + self.armature * qdd
        )

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> Vector:
        """The acceleration of eq. 8 of Lutter et al. 2019 [rad/s² or m/s²]."""
        q, qd, tau = one_sample(self.joints, q, qd, tau)
        bias = kinematic_tree.inverse_dynamics(self.tree, self.links, q, qd, jnp.zeros_like(q))
        return cho_solve(cho_factor(self.mass_matrix(q)), tau - bias)

    def mass_matrix(self, q: Vector) -> Float[Array, "dof dof"]:
        """The inertia H(q), positive definite for every weight [kg m² or kg]."""
        (q,) = one_sample(self.joints, q)
        return kinematic_tree.mass_matrix(self.tree, self.links, q) + jnp.diag(self.armature)

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """The parts of the torque; friction is zero, for this model has none."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        still, links = jnp.zeros_like(q), self.links
        weightless = links._replace(gravity=jnp.zeros_like(links.gravity))
        return TorqueComponents(
            inertial=kinematic_tree.inverse_dynamics(self.tree, weightless, q, still, qdd)
            + self.armature * qdd,
            coriolis=kinematic_tree.inverse_dynamics(self.tree, weightless, q, qd, still),
            gravity=kinematic_tree.inverse_dynamics(self.tree, links, q, still, still),
            friction=still,
        )

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        q, qd = one_sample(self.joints, q, qd)
        kinetic, potential = kinematic_tree.energy(self.tree, self.links, q, qd)
        return Energy(kinetic + self.armature @ qd**2 / 2, potential)

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> Float[Array, ""]:
        """The rate of the total energy along the motion [W]; it equals q̇ᵀ τ."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        _, rate = jax.jvp(lambda q, qd: self.energy(q, qd).total, (q, qd), (qd, qdd))
        return rate


def _rotations(key: PRNGKeyArray, count: int) -> Float[Array, "count 3 3"]:
    """Random orthogonal matrices."""
    return jnp.linalg.qr(jax.random.normal(key, (count, 3, 3)))[0]


def _least_on_the_way(tree: kinematic_tree.Tree, normalisation: Normalisation) -> Vector:
    """The least torque that any joint between the base and each joint needs: a link beyond it
    cannot be heavier.
    """
    least: list[Array] = []
    for own, parent in zip(normalisation.tau_std, tree.parents, strict=True):
        least.append(own if parent < 0 else jnp.minimum(own, least[parent]))
    return jnp.stack(least)


Matrix = Float[np.ndarray, "3 3"]
Point = Float[np.ndarray, "3"]


@dataclass(frozen=True, eq=False)
class _Settlement:
    """A choice of frames: T′ = mirror · T · diag(B_k, unit) for each joint, and how far M′_k stays
    from a rotation.
    """

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
    """What stands before a joint's place in its new frame: B⁻¹ of the joint it hangs on, or the
    mirror of the base.
    """
    return np.linalg.inv(stretches[parent]) if parent >= 0 else mirror


def with_third_column(column: Point) -> Matrix:
    """A matrix with this third column whose others are of unit length and normal to it,
    right-handed.
    """
    basis = np.linalg.svd(column[:, None])[0]
    turn = np.column_stack([basis[:, 1], basis[:, 2], column])
    turn[:, 0] *= np.sign(np.linalg.det(turn))
    return turn


@eqx.filter_jit
def _heights(chain: LagrangianChain, states: Float[Array, "states dof"]) -> Float[Array, " states"]:
    return jax.vmap(lambda q: chain.energy(q, jnp.zeros_like(q)).potential)(states)


def _has_weight(chain: LagrangianChain) -> bool:
    """Whether gravity moves any joint: an arm that lies flat feels none, and its lengths have no
    unit.
    """
    states = jax.random.uniform(jax.random.key(0), (20, chain.joints.dof), minval=-1, maxval=1)
    heights = _heights(chain, states)
    _, inertia, gravity = numpy_links(chain)
    most = np.linalg.norm(inertia[:, :, 3], axis=1).max() * np.linalg.norm(gravity)
    return bool(np.ptp(heights) > 1e-6 * most)


def numpy_links(chain: LagrangianChain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    place, inertia, gravity = (np.asarray(part, dtype=float) for part in chain.links)
    return place, inertia, gravity


def settled(chain: LagrangianChain) -> LagrangianChain:
    """The same torques from frames that are as near to rotations as their free stretches allow, and
    in metres.
    """
    choice, (place, _, gravity) = _settle(chain), numpy_links(chain)
    inner = [_inner(choice.mirror, choice.stretches, parent) for parent in chain.tree.parents]
    shifts = [choice.unit * inner[k] @ place[k, :, 3] for k in range(1, len(place))]
    factors = [
        np.block(
            [
                [np.linalg.inv(stretch), np.zeros((3, 1))],
                [np.zeros((1, 3)), np.eye(1) / choice.unit],
            ]
        )
        @ factor
        for stretch, factor in zip(
            choice.stretches, np.asarray(chain.factor, dtype=float), strict=True
        )
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
    """How far the frames are from rotations, M_kᵀ M_k − I, and gravity from 9.81 m/s²: all zero for
    a settled arm.
    """
    square = chain.turn.mT @ chain.turn - jnp.eye(3, dtype=chain.turn.dtype)[None]
    upper = square[:, *np.triu_indices(3)]
    weight = jnp.linalg.norm(chain.gravity) / GRAVITY_ACCELERATION - 1
    return jnp.concatenate([upper.ravel(), weight[None]])
