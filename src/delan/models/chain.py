"""A Lagrangian chain: a rigid-body arm whose geometry, inertia and gravity are all learned.

It knows the number, the order and the kinds of the joints, and nothing else. It assumes rigid
links, joints that turn or slide about fixed axes, and no elasticity. It represents such arms
exactly and cannot fit others.

Joints of its tree may depend on the measured coordinates q by constants, q_tree = A q: in a
parallelogram, a wrist with coupled drives, or a belt. Such a tree may have more joints than
coordinates. Torques are those of the tree, seen from the coordinates: τ = Aᵀ τ_tree(A q, A q̇, A q̈).
A coordinate that moves no joint of the tree is a motor behind a spring (`elastic`): it has the
inertia of its rotor alone.

Joint data leave a choice of frames and units, which `settled` makes by a rule: every frame may turn
about its axis, slide along it and be stretched; lengths have no unit until gravity, 9.81 m/s², or a
prismatic joint gives them one; an arm and its mirror image move alike. No torque depends on the
choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..errors import SettingsError
from ..joints import Energy, JointKind, Joints, TorqueComponents
from ..mechanics import kinematic_tree
from .dynamics import Normalisation, Promises, Vector, one_sample

Matrix = Float[np.ndarray, "3 3"]
Point = Float[np.ndarray, "3"]

# Usual distance between joints before training [m].
USUAL_LENGTH = 0.3
# Of the earth [m/s²]; it gives the lengths of a learned arm their unit.
GRAVITY_ACCELERATION = 9.81
# Gravity has no effect if the potential energy varies by less than this share of what the heaviest
# link could contribute: rounding of a fit, not weight.
WEIGHTLESS = 1e-6


@dataclass(frozen=True)
class LagrangianChainSettings:
    """The shape of the kinematic tree.

    Attributes:
        parents: index of each joint's parent joint, −1 for the base; None for a serial arm.
        coupling: the rows of A in q_tree = A q, one for each joint of the tree; None if the joints
            of the tree are the coordinates.
        sliding: whether each joint of the tree slides; None if they do as the coordinates do.
    """

    parents: tuple[int, ...] | None = None
    coupling: tuple[tuple[float, ...], ...] | None = None
    sliding: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        if self.parents is not None:
            object.__setattr__(self, "parents", tuple(self.parents))
        if self.coupling is not None:
            rows = tuple(tuple(map(float, row)) for row in self.coupling)
            object.__setattr__(self, "coupling", rows)
        if self.sliding is not None:
            object.__setattr__(self, "sliding", tuple(self.sliding))


class Slack(eqx.Module):
    """What is added to A while a coupling is searched for; only `free` entries are learned."""

    value: Float[Array, "joints dof"]
    free: Bool[Array, "joints dof"]


class LagrangianChain(eqx.Module):
    """Frames T_k = T_parent [M_k | t_k] D_k(q_k), links with the pseudo-inertia K_k = F_k F_kᵀ.

    The kinetic energy ½ Σ tr(Ṫ_k K_k Ṫ_kᵀ) + ½ Σ e^{α_k} q̇_k² is a sum of squares plus a positive
    diagonal, so that H is positive definite for every weight; gravity is the gradient of V = Σ γᵀ
    T_k K_k e₄. M_k is any 3×3 matrix: a fit that may leave the rotations gets around obstacles. On
    data of a rigid arm it ends at rotations, up to the choice of frames and units, which
    `geometry.learned_arm` makes. Rotors turn with the coordinates.
    """

    turn: Float[Array, "others 3 3"]
    shift: Float[Array, "others 3"]
    factor: Float[Array, "joints 4 4"]
    log_armature: Float[Array, " dof"]
    gravity: Float[Array, "3"]
    slack: Slack | None
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
        self.slack = None
        count = _require_coupling(settings, joints)
        problem = kinematic_tree.require_tree(self.tree.parents, count)
        if problem:
            raise SettingsError(
                f"parents asks for {problem}; give each of the {count} joints the index of an "
                "earlier joint, or −1 for the base"
            )
        normalisation = normalisation or Normalisation.identity(joints.dof)
        torque = _least_torque_to_base(self, normalisation)
        self.turn, self.shift, self.factor, self.gravity, log_rotors = _random_weights(key, torque)
        self.log_armature = log_rotors
        if settings.coupling is not None:
            # The first joint of the tree that moves with each coordinate.
            own = np.argmax(np.array(settings.coupling) != 0, axis=0)
            self.log_armature = log_rotors[own]

    @property
    def tree(self) -> kinematic_tree.Tree:
        """Parent of each joint, and whether it slides."""
        settings = self.settings
        sliding = settings.sliding
        if sliding is None:
            sliding = tuple(self.joints.sliding.tolist())
        parents = settings.parents
        if parents is None:
            parents = tuple(range(-1, len(sliding) - 1))
        return kinematic_tree.Tree(parents, sliding)

    @property
    def coupling(self) -> Float[Array, "joints dof"] | None:
        """A of q_tree = A q; None if the joints of the tree are the coordinates."""
        if self.settings.coupling is None:
            return None
        rows = jnp.array(self.settings.coupling, dtype=self.shift.dtype)
        if self.slack is None:
            return rows
        held = jax.lax.stop_gradient(self.slack.value)
        return rows + jnp.where(self.slack.free, self.slack.value, held)

    @property
    def tree_joints(self) -> Joints:
        """The joints of the tree; one that depends on coordinates is named like `elbow - base`."""
        if self.settings.coupling is None:
            return self.joints
        names: list[str] = []
        for row in self.settings.coupling:
            name = _combination(row, self.joints.names)
            while name in names:
                name += "'"
            names.append(name)
        kinds: list[JointKind] = []
        for slides in self.tree.sliding:
            kinds.append("prismatic" if slides else "revolute")
        return Joints(tuple(names), tuple(kinds))

    @property
    def links(self) -> kinematic_tree.Links:
        """Places [M_k | t_k], pseudo-inertias K_k and gravity γ; the first joint is the origin."""
        first = jnp.eye(3, 4, dtype=self.shift.dtype)[None]
        others = jnp.concatenate([self.turn, self.shift[:, :, None]], axis=2)
        place = jnp.concatenate([first, others])
        return kinematic_tree.Links(place, self.factor @ self.factor.mT, self.gravity)

    @property
    def armature(self) -> Vector:
        """The rotor inertia that each joint adds to the diagonal of H [kg m² or kg]."""
        return jnp.exp(self.log_armature)

    @property
    def promises(self) -> Promises:
        """Which questions beyond the torque it answers."""
        return Promises(mechanics=True, energy=True, geometry=True)

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """Return the torque of eq. 6 of Lutter et al. 2019 by two sweeps [N m or N]."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        return _swept(self, self.links, q, qd, qdd) + self.armature * qdd

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> Vector:
        """Return the acceleration of eq. 8 of Lutter et al. 2019 [rad/s² or m/s²]."""
        q, qd, tau = one_sample(self.joints, q, qd, tau)
        bias = _swept(self, self.links, q, qd, jnp.zeros_like(q))
        return cho_solve(cho_factor(self.mass_matrix(q)), tau - bias)

    def mass_matrix(self, q: Vector) -> Float[Array, "dof dof"]:
        """Return the inertia H(q), positive definite for every weight [kg m² or kg]."""
        (q,) = one_sample(self.joints, q)
        coupling = self.coupling
        if coupling is None:
            inertia = kinematic_tree.mass_matrix(self.tree, self.links, q)
        else:
            inertia = kinematic_tree.mass_matrix(self.tree, self.links, coupling @ q)
            inertia = coupling.T @ inertia @ coupling
        return inertia + jnp.diag(self.armature)

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """Return the components of the torque; friction is zero."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        still = jnp.zeros_like(q)
        links = self.links
        weightless = links._replace(gravity=jnp.zeros_like(links.gravity))
        return TorqueComponents(
            inertial=_swept(self, weightless, q, still, qdd) + self.armature * qdd,
            coriolis=_swept(self, weightless, q, qd, still),
            gravity=_swept(self, links, q, still, still),
            friction=still,
        )

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Return kinetic and potential energy [J]."""
        q, qd = one_sample(self.joints, q, qd)
        coupling = self.coupling
        moved = (q, qd) if coupling is None else (coupling @ q, coupling @ qd)
        kinetic, potential = kinematic_tree.energy(self.tree, self.links, *moved)
        return Energy(kinetic + self.armature @ qd**2 / 2, potential)

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> Float[Array, ""]:
        """Return the rate of the total energy along the motion [W]; it equals q̇ᵀ τ."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        _, rate = jax.jvp(lambda q, qd: self.energy(q, qd).total, (q, qd), (qd, qdd))
        return rate


def _swept(
    chain: LagrangianChain, links: kinematic_tree.Links, q: Vector, qd: Vector, qdd: Vector
) -> Vector:
    """Return the torque of such links at the coordinates, Aᵀ τ_tree(A q, A q̇, A q̈)."""
    coupling = chain.coupling
    if coupling is None:
        return kinematic_tree.inverse_dynamics(chain.tree, links, q, qd, qdd)
    motion = (coupling @ q, coupling @ qd, coupling @ qdd)
    return coupling.T @ kinematic_tree.inverse_dynamics(chain.tree, links, *motion)


def _combination(row: Sequence[float], names: Sequence[str]) -> str:
    """Return a sum of coordinates as text, such as `elbow - 0.5 shoulder`."""
    text = ""
    # Largest coordinate number first: that of the joint itself stands before what it depends on.
    for ratio, name in reversed(list(zip(row, names, strict=True))):
        if ratio == 0:
            continue
        sign = "-" if ratio < 0 else "+"
        size = "" if abs(ratio) == 1 else f"{abs(ratio):.4g} "
        term = f"{sign} {size}{name}"
        if text == "":
            term = term.removeprefix("+ ").replace("- ", "-", 1)
        text = f"{text} {term}".strip()
    return text or "fixed"


def _require_coupling(settings: LagrangianChainSettings, joints: Joints) -> int:
    """Return the number of joints of the tree; refuse a coupling that does not fit the joints."""
    rows = settings.coupling
    count = joints.dof if rows is None else len(rows)
    kinds = joints.dof if settings.sliding is None else len(settings.sliding)
    if kinds != count:
        raise SettingsError(
            f"the coupling has {count} rows and the joints of the tree {kinds} kinds; give one row "
            "and one kind (sliding) for each joint of the tree"
        )
    if rows is None:
        return count
    for row in rows:
        if len(row) != joints.dof or not np.isfinite(row).all():
            raise SettingsError(
                f"a row of the coupling is {row}; give {joints.dof} finite numbers, one for each "
                "coordinate"
            )
    # A motor behind a spring moves no joint of the tree.
    links = joints.dof - len(joints.motor_of)
    if np.linalg.matrix_rank(np.array(rows)) < links:
        raise SettingsError(
            "the coupling leaves a coordinate that moves no joint of the tree; its rows must have "
            f"the rank {links}"
        )
    return count


@jax.jit
def _random_weights(
    key: PRNGKeyArray, torque: Float[Array, " joints"]
) -> tuple[Array, Array, Array, Array, Array]:
    """Return random places of the joints, factors of the links, gravity and rotors.

    One program draws them all: compiled one by one, they take a second.
    """
    n = len(torque)
    turn_key, shift_key, factor_key, gravity_key = jax.random.split(key, 4)
    # The Q of a random matrix is a random orthogonal matrix.
    turn = jnp.linalg.qr(jax.random.normal(turn_key, (n - 1, 3, 3)))[0]
    shift = USUAL_LENGTH * jax.random.normal(shift_key, (n - 1, 3))
    # Inertias grow with the square of the factor, and torques with the inertias; 0.15 starts below
    # the torques of the data. The spread of 0.3 makes each link different.
    size = 0.15 * jnp.sqrt(torque)
    spread = 0.3 * jax.random.normal(factor_key, (n, 4, 4))
    factor = size[:, None, None] * (jnp.eye(4)[None] + spread)
    gravity = GRAVITY_ACCELERATION * jax.random.normal(gravity_key, (3,)) / np.sqrt(3)
    # Rotors start at e⁻² of the squared size of the links' factors.
    return turn, shift, factor, gravity, 2 * jnp.log(size) - 2


def _least_torque_to_base(
    chain: LagrangianChain, normalisation: Normalisation
) -> Float[Array, " joints"]:
    """Return the least torque of all joints between the base and each joint of the tree.

    All of them carry the link of that joint, so that it cannot be heavier.
    """
    tau_std = normalisation.tau_std
    torques = tau_std
    rows = chain.settings.coupling
    if rows is not None:
        # A joint that moves with several coordinates is carried by the motors of all of them.
        moving = np.array(rows) != 0
        torques = jnp.where(moving, tau_std[None], tau_std.max()).min(axis=1)
    least: list[Array] = []
    for torque, parent in zip(torques, chain.tree.parents, strict=True):
        if parent >= 0:
            torque = jnp.minimum(torque, least[parent])
        least.append(torque)
    return jnp.stack(least)


@dataclass(frozen=True, eq=False)
class _Settlement:
    """A choice of frames: T′ = mirror · T · diag(B_k, unit), with B_k and the new M′_k."""

    mirror: Matrix
    stretches: list[Matrix]
    unit: float
    turns: list[Matrix]


def _settle(chain: LagrangianChain) -> _Settlement:
    tree = chain.tree
    place, _, gravity = numpy_links(chain)
    mirror = np.eye(3)
    # Of an arm and its mirror image, take the one that gravity pulls down its first axis.
    if gravity[2] < 0 and not tree.sliding[0]:
        mirror[2, 2] = -1.0
    stretches = [mirror]
    turns = [np.eye(3)]
    unit = 1.0 if tree.sliding[0] else None
    for k in range(1, len(tree.parents)):
        inner = _inner(mirror, stretches, tree.parents[k]) @ place[k, :, :3]
        if tree.sliding[k]:
            if unit is None:
                unit = 1 / np.linalg.norm(inner[:, 2])
            turn = with_third_column(unit * inner[:, 2])
            stretches.append(np.linalg.solve(inner, turn))
        else:
            square = inner.T @ inner
            across = np.sqrt(2 / (square[0, 0] + square[1, 1]))
            along = 1 / np.sqrt(square[2, 2])
            stretches.append(np.diag([across, across, along * np.sign(np.linalg.det(inner))]))
        turns.append(inner @ stretches[-1])
    if unit is None:
        unit = GRAVITY_ACCELERATION / np.linalg.norm(gravity) if _has_weight(chain) else 1.0
    return _Settlement(mirror, stretches, float(unit), turns)


def _inner(mirror: Matrix, stretches: list[Matrix], parent: int) -> Matrix:
    """Return what multiplies a joint's place from the left: B⁻¹ of its parent, or the mirror."""
    if parent < 0:
        return mirror
    return np.linalg.inv(stretches[parent])


def with_third_column(column: Point) -> Matrix:
    """Return a right-handed matrix with this third column and unit columns normal to it."""
    basis = np.linalg.svd(column[:, None])[0]
    turn = np.column_stack([basis[:, 1], basis[:, 2], column])
    turn[:, 0] *= np.sign(np.linalg.det(turn))
    return turn


@eqx.filter_jit
def _potentials(
    chain: LagrangianChain, states: Float[Array, "states dof"]
) -> Float[Array, " states"]:
    return jax.vmap(lambda q: chain.energy(q, jnp.zeros_like(q)).potential)(states)


def _has_weight(chain: LagrangianChain) -> bool:
    """Return whether gravity moves any joint: the lengths of a horizontal arm have no unit."""
    states = jax.random.uniform(jax.random.key(0), (20, chain.joints.dof), minval=-1, maxval=1)
    potentials = _potentials(chain, states)
    _, inertia, gravity = numpy_links(chain)
    most = np.linalg.norm(inertia[:, :, 3], axis=1).max() * np.linalg.norm(gravity)
    return bool(np.ptp(potentials) > WEIGHTLESS * most)


def numpy_links(chain: LagrangianChain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places, pseudo-inertias and gravity as NumPy arrays in double precision."""
    arrays = (chain.turn, chain.shift, chain.factor, chain.gravity)
    turn, shift, factor, gravity = (np.asarray(array, dtype=float) for array in arrays)
    place = np.concatenate([np.eye(3, 4)[None], np.concatenate([turn, shift[:, :, None]], axis=2)])
    return place, factor @ np.swapaxes(factor, 1, 2), gravity


def settled(chain: LagrangianChain) -> LagrangianChain:
    """Return the chain with the same torques, in metres and with frames nearest to rotations."""
    choice = _settle(chain)
    place, _, gravity = numpy_links(chain)
    factors = np.array(chain.factor, dtype=float)
    shifts = np.zeros((len(place), 3))
    for k, parent in enumerate(chain.tree.parents):
        inner = _inner(choice.mirror, choice.stretches, parent)
        shifts[k] = choice.unit * inner @ place[k, :, 3]
        shrink = np.eye(4)
        shrink[:3, :3] = np.linalg.inv(choice.stretches[k])
        shrink[3, 3] = 1 / choice.unit
        factors[k] = shrink @ factors[k]
    # The first joint stays the origin, so that its place is no weight.
    parts = (
        np.reshape(choice.turns[1:], (-1, 3, 3)),
        shifts[1:],
        factors,
        choice.unit * choice.mirror @ gravity,
    )
    return eqx.tree_at(
        lambda chain: (chain.turn, chain.shift, chain.factor, chain.gravity),
        chain,
        tuple(jnp.asarray(part, dtype=chain.turn.dtype) for part in parts),
    )


def looseness(chain: LagrangianChain) -> Float[Array, " rows"]:
    """Return M_kᵀ M_k − I of the frames and gravity's deviation from 9.81 m/s².

    All are zero for a settled rigid arm.
    """
    square = chain.turn.mT @ chain.turn - jnp.eye(3, dtype=chain.turn.dtype)[None]
    upper = square[:, *np.triu_indices(3)]
    weight = jnp.linalg.norm(chain.gravity) / GRAVITY_ACCELERATION - 1
    return jnp.concatenate([upper.ravel(), weight[None]])
