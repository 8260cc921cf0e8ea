"""The Deep Lagrangian Network: a network for the factor of the inertia and for gravity, bound by
eq. 6 of the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import ModelError, SettingsError
from ..joints import Energy, Joints, TorqueComponents
from ..mechanics import euler_lagrange
from ..mechanics.triangle import Entries, by_row
from .dynamics import Normalisation, Promises, one_sample
from .feed_forward import ACTIVATIONS, Activation, Affine, Perceptron

Vector = Float[Array, " dof"]
Positive = Literal["softplus", "relu"]
POSITIVE: dict[str, Callable[[Array], Array]] = {"softplus": jax.nn.softplus, "relu": jax.nn.relu}


@dataclass(frozen=True)
class LagrangianNetworkSettings:
    """The shape of a Lagrangian network.

    Attributes:
        width, depth: units of each hidden layer of the shared trunk, and how many there are.
        activation: of the hidden layers; smooth ones learn the derivatives better than the paper's
            `relu`.
        diagonal: what makes the diagonal of the factor non-negative; the paper names both.
        offset: b > 0 of the paper, added to the scaled diagonal, so that H is positive definite for
            every weight.
        focus: how much less the network sees of a joint that needs little torque, as the power of
            its share of the largest one. One potential and one trunk serve all joints: without it a
            wrist, whose torque is a thousandth of a shoulder's, drowns in the shoulder's errors; 0
            shows all joints alike, as in the paper.
        gravity: `potential` learns V(q) with g = ∂V/∂q; `vector` learns g(q) directly as in the
            paper, which need not be a gradient and has no potential energy.
    """

    width: int = 64
    depth: int = 2
    activation: Activation = "silu"
    diagonal: Positive = "softplus"
    offset: float = 1e-3
    focus: float = 0.5
    gravity: Literal["potential", "vector"] = "potential"

    def __post_init__(self) -> None:
        if self.width < 1 or self.depth < 1:
            raise SettingsError(
                f"width and depth must be at least 1, got width={self.width} and depth={self.depth}"
            )
        if not 0 < self.offset < float("inf"):
            raise SettingsError(
                f"the offset of the diagonal must be positive and finite, got {self.offset}"
            )
        if not 0 <= self.focus <= 1:
            raise SettingsError(f"focus is a power between 0 and 1, got {self.focus}")
        for name, known in (
            ("activation", tuple(ACTIVATIONS)),
            ("diagonal", get_args(Positive)),
            ("gravity", ("potential", "vector")),
        ):
            if getattr(self, name) not in known:
                raise SettingsError(
                    f"unknown {name} {getattr(self, name)!r}; known: {', '.join(known)}"
                )


class LagrangianNetwork(eqx.Module):
    """Inertia H(q) = chol cholᵀ and gravity of a robot from one shared trunk with three heads (eqs.
    5–8 of the paper).

    A turning joint enters as (cos q, sin q), a sliding one as its normalised coordinate.
    """

    trunk: Perceptron
    diagonal: Affine
    lower: Affine
    gravity: Affine
    normalisation: Normalisation
    joints: Joints = eqx.field(static=True)
    settings: LagrangianNetworkSettings = eqx.field(static=True)

    def __init__(
        self,
        joints: Joints,
        settings: LagrangianNetworkSettings | None = None,
        normalisation: Normalisation | None = None,
        *,
        key: PRNGKeyArray,
    ):
        self.joints = joints
        self.settings = settings = settings or LagrangianNetworkSettings()
        self.normalisation = normalisation or Normalisation.identity(joints.dof)
        n = joints.dof
        turning = sum(kind != "prismatic" for kind in joints.kinds)
        trunk_key, diagonal_key, lower_key, gravity_key = jax.random.split(key, 4)
        self.trunk = Perceptron(
            n + turning, settings.width, settings.depth, settings.activation, key=trunk_key
        )
        self.diagonal = Affine(
            settings.width, n, key=diagonal_key, bias=0.5
        )  # softplus(0.5) ≈ 1: H starts near its scale
        self.lower = Affine(settings.width, n * (n - 1) // 2, key=lower_key)
        self.gravity = Affine(
            settings.width, 1 if settings.gravity == "potential" else n, key=gravity_key
        )

    @property
    def promises(self) -> Promises:
        """Which questions beyond the torque it answers."""
        return Promises(mechanics=True, energy=self.settings.gravity == "potential")

    def _terms(self, q: Vector) -> tuple[Entries, Float[Array, ""]]:
        """The factor of the inertia and the potential energy, which is zero where gravity is a
        vector of its own.
        """
        hidden = self.trunk(self._features(q))
        chol = self._factor(hidden)
        if self.settings.gravity == "vector":
            return chol, jnp.zeros_like(chol[0])
        return chol, self._potential_scale() * self.gravity(hidden)[0]

    def _features(self, q: Vector) -> Float[Array, " features"]:
        turning = np.array([kind != "prismatic" for kind in self.joints.kinds])
        torque = self.normalisation.tau_std
        seen = (torque / jnp.max(torque)) ** self.settings.focus
        angle, near = q[turning], seen[turning]
        slide = (seen * (q - self.normalisation.q_mean) / self.normalisation.q_std)[~turning]
        return jnp.concatenate([near * jnp.cos(angle), near * jnp.sin(angle), slide])

    def _factor(self, hidden: Float[Array, " width"]) -> Entries:
        n = self.joints.dof
        both = jax.tree.map(
            lambda *heads: jnp.concatenate(heads), self.diagonal, self.lower
        )  # one product, not two
        raw = both(hidden)
        diagonal = POSITIVE[self.settings.diagonal](raw[:n]) + self.settings.offset
        return by_row(self._inertia_scale()) * jnp.concatenate([diagonal, raw[n:]])

    def _inertia_scale(self) -> Vector:
        """The size of each row of the factor, √(τ/q̈), so that an untrained network speaks the
        robot's units.
        """
        return jnp.sqrt(self.normalisation.tau_std / self.normalisation.qdd_std)

    def _potential_scale(self) -> Float[Array, ""]:
        return jnp.max(self.normalisation.tau_std)

    def _gravity_vector(self, q: Vector) -> Vector:
        """The vector head of the paper, zero for a network with a potential."""
        if self.settings.gravity == "potential":
            return jnp.zeros_like(q)
        return self.normalisation.tau_std * self.gravity(self.trunk(self._features(q)))

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """The torque of eq. 6 of Lutter et al. 2019 [N m or N]."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        return euler_lagrange.inverse_dynamics(self._terms, q, qd, qdd) + self._gravity_vector(q)

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> Vector:
        """The acceleration of eq. 8 of Lutter et al. 2019 [rad/s² or m/s²]."""
        q, qd, tau = one_sample(self.joints, q, qd, tau)
        return euler_lagrange.forward_dynamics(self._terms, q, qd, tau - self._gravity_vector(q))

    def mass_matrix(self, q: Vector) -> Float[Array, "dof dof"]:
        """The inertia H(q) of eq. 5, positive definite for every weight [kg m² or kg]."""
        (q,) = one_sample(self.joints, q)
        return euler_lagrange.mass_matrix(self._terms, q)

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """The parts of the torque; friction is zero, for this model has none."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        parts = euler_lagrange.components(self._terms, q, qd, qdd)
        gravity = parts.gravity + self._gravity_vector(q)
        return TorqueComponents(parts.inertial, parts.coriolis, gravity, friction=jnp.zeros_like(q))

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        q, qd = one_sample(self.joints, q, qd)
        self._require_potential()
        return euler_lagrange.energy(self._terms, q, qd)

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> Float[Array, ""]:
        """The rate of the total energy along the motion [W]; it equals q̇ᵀ τ."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        self._require_potential()
        return euler_lagrange.power(self._terms, q, qd, qdd)

    def _require_potential(self) -> None:
        if self.settings.gravity == "vector":
            raise ModelError(
                "this network learned gravity as a vector, which has no potential energy; "
                "build it with gravity='potential' to ask for energy or power"
            )
