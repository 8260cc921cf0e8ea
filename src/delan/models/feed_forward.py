"""The feed-forward network (q, q̇, q̈) → τ without mechanics, and the layers of all networks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import SettingsError
from ..joints import Joints
from .dynamics import Normalisation, Promises, Vector, one_sample

Activation = Literal["tanh", "softplus", "relu", "silu", "sin"]
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "sin": jnp.sin,
}


class Affine(eqx.Module):
    """x ↦ W x + b; it may have no outputs, like the lower part of a 1 × 1 matrix."""

    weight: Float[Array, "outputs inputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray, bias: float = 0.0):
        """Weights from N(0, 1/inputs) and one bias for all outputs."""
        self.weight = jax.random.normal(key, (outputs, inputs)) / inputs**0.5
        self.bias = jnp.full_like(self.weight, bias, shape=(outputs,))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        # Of a batch, XLA multiplies rows a fifth faster than columns, and the gradient of the
        # weights up to four times faster with the longer side of the matrix along its rows; these
        # two forms differ in that gradient only.
        outputs, inputs = self.weight.shape
        if outputs > inputs:
            return x @ self.weight.T + self.bias
        return jnp.inner(x, self.weight) + self.bias


class Perceptron(eqx.Module):
    """Hidden layers only: `depth` affine maps of `width` units, each followed by the activation."""

    layers: tuple[Affine, ...]
    activation: Activation = eqx.field(static=True)

    def __init__(
        self, inputs: int, width: int, depth: int, activation: Activation, *, key: PRNGKeyArray
    ):
        layers = []
        for layer_key in jax.random.split(key, depth):
            layers.append(Affine(inputs, width, key=layer_key))
            inputs = width
        self.layers = tuple(layers)
        self.activation = activation

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " width"]:
        for layer in self.layers:
            x = ACTIVATIONS[self.activation](layer(x))
        return x


def require_layers(width: int, depth: int, activation: str) -> None:
    """Refuse hidden layers that cannot be built."""
    if width < 1 or depth < 1:
        raise SettingsError(
            f"width and depth must be at least 1, got width={width} and depth={depth}"
        )
    if activation not in ACTIVATIONS:
        raise SettingsError(f"unknown activation {activation!r}; known: {', '.join(ACTIVATIONS)}")


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
