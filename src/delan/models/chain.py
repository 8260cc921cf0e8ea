"""A Lagrangian chain: a rigid-body arm whose geometry, inertia and gravity are all learned, none of it given.

It knows the number, the order and the kinds of the joints, and nothing else. What it assumes: rigid links, joints that
turn or slide about fixed axes, no closed loop, no elasticity. Arms of that kind it holds exactly; others it cannot fit.
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
from ..mechanics import chain
from .dynamics import Normalisation, one_sample

Vector = Float[Array, " dof"]

USUAL_LENGTH = 0.3
"""How far apart joints are at the start, about [m]."""
GRAVITY_ACCELERATION = 9.81
"""[m/s²]"""


@dataclass(frozen=True)
class LagrangianChainSettings:
    """The shape of a chain.

    Attributes:
        parents: for each joint the one that it hangs on, −1 for the base; None: a serial arm, each on the one before.
    """

    parents: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.parents is not None:
            object.__setattr__(self, "parents", tuple(self.parents))


class LagrangianChain(eqx.Module):
    """Frames T_k = T_parent [M_k | t_k] D_k(q_k) with free 3×3 M_k, links with pseudo-inertia K_k = F_k F_kᵀ.

    The kinetic energy ½ Σ tr(Ṫ_k K_k Ṫ_kᵀ) + ½ Σ e^{α_k} q̇_k² is a sum of squares plus a positive diagonal, so that H
    is positive definite for every weight; gravity is the gradient of V = Σ γᵀ T_k K_k e₄. M_k need not be a rotation:
    that leaves the fit ways around obstacles. What a fit to a rigid arm finds is one, up to a choice of units and
    frames that the joints cannot see; `geometry.learned_arm` makes that choice.
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
        problem = chain.require_tree(self.tree.parents, joints.dof)
        if problem:
            raise SettingsError(
                f"parents asks for {problem}; give each of the {joints.dof} joints the index of an earlier joint, "
                "or −1 for the base"
            )
        n = joints.dof
        turn_key, shift_key, factor_key, gravity_key = jax.random.split(key, 4)
        self.turn = _rotations(turn_key, n - 1)
        self.shift = USUAL_LENGTH * jax.random.normal(shift_key, (n - 1, 3))
        size = 0.15 * jnp.sqrt(_least_on_the_way(self.tree, normalisation or Normalisation.identity(n)))
        self.factor = size[:, None, None] * (jnp.eye(4)[None] + 0.3 * jax.random.normal(factor_key, (n, 4, 4)))
        self.gravity = GRAVITY_ACCELERATION * jax.random.normal(gravity_key, (3,)) / np.sqrt(3)
        self.log_armature = 2 * jnp.log(size) - 2

    @property
    def tree(self) -> chain.Tree:
        """Which joint hangs on which, and how they move."""
        parents = self.settings.parents
        serial = tuple(range(-1, self.joints.dof - 1))
        return chain.Tree(
            serial if parents is None else parents, tuple(kind == "prismatic" for kind in self.joints.kinds)
        )

    @property
    def links(self) -> chain.Links:
        """Places [M_k | t_k], pseudo-inertias K_k and gravity γ; the first joint sits at the origin by choice."""
        first = jnp.eye(3, 4, dtype=self.shift.dtype)[None]
        place = jnp.concatenate([first, jnp.concatenate([self.turn, self.shift[:, :, None]], axis=2)])
        return chain.Links(place, self.factor @ self.factor.mT, self.gravity)

    @property
    def armature(self) -> Vector:
        """The rotor inertia that each joint adds to the diagonal of H [kg m² or kg]."""
        return jnp.exp(self.log_armature)

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """The torque of eq. 6 of Lutter et al. 2019, by two sweeps over the joints [N m or N]."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        return chain.inverse_dynamics(self.tree, self.links, q, qd, qdd) + self.armature * qdd

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> Vector:
        """The acceleration of eq. 8 of Lutter et al. 2019 [rad/s² or m/s²]."""
        q, qd, tau = one_sample(self.joints, q, qd, tau)
        bias = chain.inverse_dynamics(self.tree, self.links, q, qd, jnp.zeros_like(q))
        return cho_solve(cho_factor(self.mass_matrix(q)), tau - bias)

    def mass_matrix(self, q: Vector) -> Float[Array, "dof dof"]:
        """The inertia H(q), positive definite for every weight [kg m² or kg]."""
        (q,) = one_sample(self.joints, q)
        return chain.mass_matrix(self.tree, self.links, q) + jnp.diag(self.armature)

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """The parts of the torque; friction is zero, for this model has none."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        still, links = jnp.zeros_like(q), self.links
        weightless = links._replace(gravity=jnp.zeros_like(links.gravity))
        return TorqueComponents(
            inertial=chain.inverse_dynamics(self.tree, weightless, q, still, qdd) + self.armature * qdd,
            coriolis=chain.inverse_dynamics(self.tree, weightless, q, qd, still),
            gravity=chain.inverse_dynamics(self.tree, links, q, still, still),
            friction=still,
        )

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        q, qd = one_sample(self.joints, q, qd)
        kinetic, potential = chain.energy(self.tree, self.links, q, qd)
        return Energy(kinetic + self.armature @ qd**2 / 2, potential)

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> Float[Array, ""]:
        """The rate of the total energy along the motion [W]; it equals q̇ᵀ τ."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        _, rate = jax.jvp(lambda q, qd: self.energy(q, qd).total, (q, qd), (qd, qdd))
        return rate


def _rotations(key: PRNGKeyArray, count: int) -> Float[Array, "count 3 3"]:
    """Random orthogonal matrices."""
    return jnp.linalg.qr(jax.random.normal(key, (count, 3, 3)))[0]


def _least_on_the_way(tree: chain.Tree, normalisation: Normalisation) -> Vector:
    """The least torque that any joint between the base and each joint needs: a link beyond it cannot be heavier."""
    least: list[Array] = []
    for own, parent in zip(normalisation.tau_std, tree.parents, strict=True):
        least.append(own if parent < 0 else jnp.minimum(own, least[parent]))
    return jnp.stack(least)
