"""The networks: the paper's Lagrangian network, and a feed-forward network as its baseline."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..errors import ModelError, SettingsError
from ..joints import Energy, Joints, TorqueComponents
from ..mechanics import euler_lagrange
from ..mechanics.euler_lagrange import ConservativeTorques, Entries, FactorRates, by_row, dense
from .dynamics import Normalisation, Promises, Vector, one_sample
from .layers import (
    POSITIVE,
    Activation,
    Affine,
    LagrangianLayer,
    Perceptron,
    Positive,
    Sensitive,
    chained,
    require_layers,
)


@dataclass(frozen=True)
class FeedForwardSettings:
    """Units of each hidden layer, number of hidden layers, and their activation."""

    width: int = 64
    depth: int = 2
    activation: Activation = "silu"

    def __post_init__(self) -> None:
        require_layers(self.width, self.depth, self.activation)


class FeedForwardNetwork(eqx.Module):
    """τ = network(q, q̇, q̈) with normalised inputs and outputs.

    A continuous joint enters as (cos q, sin q).
    """

    trunk: Perceptron
    torque: Affine
    normalisation: Normalisation
    joints: Joints = eqx.field(static=True)
    settings: FeedForwardSettings = eqx.field(static=True)

    def __init__(
        self,
        joints: Joints,
        settings: FeedForwardSettings | None = None,
        normalisation: Normalisation | None = None,
        *,
        key: PRNGKeyArray,
    ):
        self.joints = joints
        self.settings = settings = settings or FeedForwardSettings()
        self.normalisation = normalisation or Normalisation.identity(joints.dof)
        trunk_key, torque_key = jax.random.split(key)
        inputs = 3 * joints.dof + int(joints.continuous.sum())
        self.trunk = Perceptron(
            inputs, settings.width, settings.depth, settings.activation, key=trunk_key
        )
        self.torque = Affine(settings.width, joints.dof, key=torque_key)

    @property
    def promises(self) -> Promises:
        """Which questions beyond the torque it answers."""
        return Promises()

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """Return the learned torque [N m or N]."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        scale = self.normalisation
        continuous = self.joints.continuous
        position = ((q - scale.q_mean) / scale.q_std)[~continuous]
        angle = q[continuous]
        features = [
            position,
            jnp.cos(angle),
            jnp.sin(angle),
            qd / scale.qd_std,
            qdd / scale.qdd_std,
        ]
        return scale.tau_mean + scale.tau_std * self.torque(self.trunk(jnp.concatenate(features)))


Gravity = Literal["potential", "vector"]
Inputs = Literal["circular", "normalised", "raw"]
Outputs = Literal["scaled", "raw"]
Engine = Literal["passes", "layers"]
SMALLEST_OFFSET = 1e-12


@dataclass(frozen=True)
class LagrangianNetworkSettings:
    """The shape of a Lagrangian network.

    Attributes:
        width, depth: units of each hidden layer of the shared trunk, and number of layers.
        activation: of the hidden layers; smooth ones learn the derivatives better than the paper's
            `relu`.
        diagonal: function that makes the diagonal of the factor non-negative; the paper names both.
        offset: b > 0 of the paper, added to the scaled diagonal, so that H is positive definite for
            every weight.
        focus: inputs of a joint are scaled by this power of its share of the largest torque. All
            joints share a potential and a trunk: at 0, as in the paper, all inputs count alike, and
            a wrist with a thousandth of the shoulder's torque is lost in the shoulder's errors.
        gravity: `potential` learns V(q) with g = ∂V/∂q; `vector` learns g(q) directly as in the
            paper, which need not be a gradient and has no potential energy.
        inputs: `circular` gives cos q and sin q of a joint that turns, and the normalised position
            of one that slides; `normalised` gives every position less its mean over its spread;
            `raw` gives q as it is, as in the paper.
        outputs: `scaled` multiplies the heads by the units of the training data, so that an
            untrained network has the size of the robot; `raw` leaves them as in the paper.
        engine: `passes` computes the torque by three passes through the network, whatever the
            number of joints; `layers` by the paper's Lagrangian layers, with one tangent a joint.
            The numbers are the same.
    """

    width: int = 64
    depth: int = 2
    activation: Activation = "silu"
    diagonal: Positive = "softplus"
    offset: float = 1e-3
    focus: float = 0.5
    gravity: Gravity = "potential"
    inputs: Inputs = "circular"
    outputs: Outputs = "scaled"
    engine: Engine = "passes"

    def __post_init__(self) -> None:
        require_layers(self.width, self.depth, self.activation)
        # In float, as the C code has it, the square of a smaller offset is zero.
        if not SMALLEST_OFFSET <= self.offset <= 1 / SMALLEST_OFFSET:
            raise SettingsError(
                f"the offset of the diagonal must be positive and finite, got {self.offset}; "
                f"expected {SMALLEST_OFFSET:g} to {1 / SMALLEST_OFFSET:g}"
            )
        if not 0 <= self.focus <= 1:
            raise SettingsError(f"focus is a power between 0 and 1, got {self.focus}")
        for name, kind in CHOICES.items():
            value = getattr(self, name)
            if value not in get_args(kind):
                raise SettingsError(f"unknown {name} {value!r}; known: {', '.join(get_args(kind))}")


# The settings that are one of a few words.
CHOICES: dict[str, Any] = {
    "diagonal": Positive,
    "gravity": Gravity,
    "inputs": Inputs,
    "outputs": Outputs,
    "engine": Engine,
}


class InputScale(NamedTuple):
    """How positions enter a network: gain (cos q, sin q) where circular, else gain (q − centre)."""

    circular: Bool[np.ndarray, " dof"]
    gain: Any
    centre: Any


class OutputScale(NamedTuple):
    """What the rows of the factor and the gravity head are multiplied by."""

    factor: Any
    gravity: Any


class LagrangianNetwork(eqx.Module):
    """Inertia H(q) = chol cholᵀ and gravity from a trunk with three heads (eqs. 5–8 of the paper).

    How q enters and in which units the heads are is a matter of the settings.
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
        if settings.inputs != "circular" and joints.continuous.any():
            raise SettingsError(
                f"inputs={settings.inputs!r} and a continuous joint do not fit: after a full turn "
                "the torque is the same and q is not; use inputs='circular'"
            )
        inputs = n + int(self.circular.sum())
        trunk_key, diagonal_key, lower_key, gravity_key = jax.random.split(key, 4)
        self.trunk = Perceptron(
            inputs, settings.width, settings.depth, settings.activation, key=trunk_key
        )
        # softplus(0.5) ≈ 1: H starts near its scale.
        self.diagonal = Affine(settings.width, n, key=diagonal_key, bias=0.5)
        self.lower = Affine(settings.width, n * (n - 1) // 2, key=lower_key)
        outputs = 1 if settings.gravity == "potential" else n
        self.gravity = Affine(settings.width, outputs, key=gravity_key)

    @property
    def circular(self) -> Bool[np.ndarray, " dof"]:
        """Which joints enter by cosine and sine."""
        turning = self.joints.turning
        return turning if self.settings.inputs == "circular" else np.zeros_like(turning)

    @property
    def promises(self) -> Promises:
        """Which questions beyond the torque it answers."""
        return Promises(mechanics=True, energy=self.settings.gravity == "potential")

    def _terms(self, q: Vector) -> tuple[Entries, Float[Array, ""]]:
        """Return the factor of the inertia, and the potential energy (0 with vector gravity)."""
        hidden = self.trunk(self._features(q))
        chol = self._factor(hidden)
        if self.settings.gravity == "vector":
            return chol, jnp.zeros_like(chol[0])
        return chol, output_scale(self, self.normalisation).gravity[0] * self.gravity(hidden)[0]

    def _features(self, q: Vector) -> Float[Array, " features"]:
        circular, gain, centre = input_scale(self, self.normalisation)
        angle = q[circular]
        radius = gain[circular]
        slide = (gain * (q - centre))[~circular]
        return jnp.concatenate([radius * jnp.cos(angle), radius * jnp.sin(angle), slide])

    def _factor(self, hidden: Float[Array, " width"]) -> Entries:
        n = self.joints.dof
        # Both heads as a single product, which is faster than two.
        both = jax.tree.map(lambda *heads: jnp.concatenate(heads), self.diagonal, self.lower)
        raw = both(hidden)
        diagonal = POSITIVE[self.settings.diagonal](raw[:n]) + self.settings.offset
        scale = output_scale(self, self.normalisation).factor
        return by_row(scale) * jnp.concatenate([diagonal, raw[n:]])

    def _gravity_vector(self, q: Vector) -> Vector:
        """Return the vector head of the paper, zero for a network with a potential."""
        if self.settings.gravity == "potential":
            return jnp.zeros_like(q)
        scale = output_scale(self, self.normalisation).gravity
        return scale * self.gravity(self.trunk(self._features(q)))

    def factor(self, q: Vector, qd: Vector) -> FactorRates:
        """Return L, dL/dt and ∂L/∂q_i of H = L Lᵀ in one pass by Lagrangian layers (figure 2b)."""
        q, qd = one_sample(self.joints, q, qd)
        return self._by_layers(q, qd)[0]

    def _by_layers(self, q: Vector, qd: Vector) -> tuple[FactorRates, Vector]:
        """Return the factor with its rates, and g(q), from one pass through Lagrangian layers."""
        hidden = chained(self.trunk, Sensitive.of(self._features, q))
        diagonal = LagrangianLayer(self.diagonal, POSITIVE[self.settings.diagonal])(hidden)
        lower = LagrangianLayer(self.lower)(hidden)
        gravity = LagrangianLayer(self.gravity)(hidden)
        scale = output_scale(self, self.normalisation)
        rows = by_row(scale.factor)
        entries = jnp.concatenate([diagonal.value + self.settings.offset, lower.value])
        slopes = jnp.concatenate([diagonal.slope, lower.slope])
        slope = jax.vmap(dense, in_axes=1)(rows[:, None] * slopes)
        rates = FactorRates(dense(rows * entries), jnp.tensordot(qd, slope, 1), slope)
        if self.settings.gravity == "vector":
            return rates, scale.gravity * gravity.value
        return rates, scale.gravity[0] * gravity.slope[0]

    def _parts(self, q: Vector, qd: Vector, qdd: Vector) -> ConservativeTorques:
        if self.settings.engine == "layers":
            factor, gravity = self._by_layers(q, qd)
            return euler_lagrange.components_of_factor(factor, gravity, qd, qdd)
        parts = euler_lagrange.components(self._terms, q, qd, qdd)
        return parts._replace(gravity=parts.gravity + self._gravity_vector(q))

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """Return the torque of eq. 6 of Lutter et al. 2019 [N m or N]."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        if self.settings.engine == "layers":
            return sum(self._parts(q, qd, qdd), jnp.zeros_like(q))
        return euler_lagrange.inverse_dynamics(self._terms, q, qd, qdd) + self._gravity_vector(q)

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> Vector:
        """Return the acceleration of eq. 8 of Lutter et al. 2019 [rad/s² or m/s²]."""
        q, qd, tau = one_sample(self.joints, q, qd, tau)
        if self.settings.engine == "layers":
            factor, gravity = self._by_layers(q, qd)
            rest = euler_lagrange.components_of_factor(factor, gravity, qd, jnp.zeros_like(qd))
            return euler_lagrange.solved(factor.value, tau - rest.coriolis - rest.gravity)
        return euler_lagrange.forward_dynamics(self._terms, q, qd, tau - self._gravity_vector(q))

    def mass_matrix(self, q: Vector) -> Float[Array, "dof dof"]:
        """Return the inertia H(q) of eq. 5, positive definite for every weight [kg m² or kg]."""
        (q,) = one_sample(self.joints, q)
        return euler_lagrange.mass_matrix(self._terms, q)

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """Return the components of the torque; friction is zero."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        return TorqueComponents(*self._parts(q, qd, qdd), friction=jnp.zeros_like(q))

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Return kinetic and potential energy [J]."""
        q, qd = one_sample(self.joints, q, qd)
        self._require_potential()
        return euler_lagrange.energy(self._terms, q, qd)

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> Float[Array, ""]:
        """Return the rate of the total energy along the motion [W]; it equals q̇ᵀ τ."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        self._require_potential()
        return euler_lagrange.power(self._terms, q, qd, qdd)

    def _require_potential(self) -> None:
        if self.settings.gravity == "vector":
            raise ModelError(
                "this network learned gravity as a vector, which has no potential energy; "
                "build it with gravity='potential' to ask for energy or power"
            )


def input_scale(network: LagrangianNetwork, units: Normalisation, xp: Any = jnp) -> InputScale:
    """Return how positions enter a network, by JAX or by NumPy as the numbers of `units` are."""
    settings = network.settings
    circular = network.circular
    size = (units.tau_std / units.tau_std.max()) ** settings.focus
    if settings.inputs == "raw":
        return InputScale(circular, size, xp.zeros_like(size))
    # Cosine and sine need no scale.
    return InputScale(circular, xp.where(circular, size, size / units.q_std), units.q_mean)


def output_scale(network: LagrangianNetwork, units: Normalisation, xp: Any = jnp) -> OutputScale:
    """Return the units of the heads, by JAX or by NumPy as the numbers of `units` are."""
    torque = units.tau_std
    factor = xp.sqrt(torque / units.qdd_std)  # H scales as τ/q̈, and its factor as the root
    if network.settings.outputs == "raw":
        torque = xp.ones_like(torque)
        factor = torque
    if network.settings.gravity == "potential":
        # A potential is one number, with one scale for all joints.
        torque = torque.max()[None]
    return OutputScale(factor, torque)
