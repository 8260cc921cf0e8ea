"""Layers of networks, and the paper's Lagrangian layer, which carries ∂h/∂q along with h."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import SettingsError

Activation = Literal["tanh", "softplus", "relu", "silu", "sin"]
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "sin": jnp.sin,
}

Positive = Literal["softplus", "relu"]
POSITIVE: dict[str, Callable[[Array], Array]] = {"softplus": jax.nn.softplus, "relu": jax.nn.relu}


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


class Sensitive(NamedTuple):
    """A value h(q) with its Jacobian ∂h/∂q, as it passes from layer to layer."""

    value: Float[Array, " units"]
    slope: Float[Array, "units dof"]

    @classmethod
    def of(cls, function: Callable[[Array], Array], q: Float[Array, " dof"]) -> "Sensitive":
        """Return a function of q with its Jacobian, such as the inputs of the first layer."""
        return cls(function(q), jax.jacfwd(function)(q))


class LagrangianLayer(eqx.Module):
    """The layer of section 4.3 of Lutter et al. 2019, with the value and its Jacobian in one pass.

    a = W h + b, h′ = g(a) and ∂h′/∂h = diag(g′(a)) W, so that ∂h′/∂q = diag(g′(a)) W ∂h/∂q.
    Chained from `Sensitive(q, I)` or from any other `Sensitive`, layers give l and ∂l/∂q of
    figure 2b.

    Attributes:
        affine: W and b; those of a network, or new ones.
        activation: g, acting on each entry; None leaves a as it is, as in the head of the lower
            entries.
    """

    affine: Affine
    activation: Callable[[Array], Array] | None = eqx.field(static=True, default=None)

    def __call__(self, given: Sensitive) -> Sensitive:
        """Return g(W h + b) and its Jacobian in q."""
        a = self.affine(given.value)
        slope = self.affine.weight @ given.slope
        if self.activation is None:
            return Sensitive(a, slope)
        value, rate = jax.jvp(self.activation, (a,), (jnp.ones_like(a),))
        return Sensitive(value, rate[:, None] * slope)

    def jacobian(self, h: Float[Array, " inputs"]) -> Float[Array, "outputs inputs"]:
        """Return ∂h′/∂h = diag(g′(W h + b)) W of this layer alone, as in figure 2a."""
        return self(Sensitive(h, jnp.eye(h.size, dtype=h.dtype))).slope


def chained(trunk: Perceptron, given: Sensitive) -> Sensitive:
    """Return the output of all hidden layers and its Jacobian in q."""
    for layer in trunk.layers:
        given = LagrangianLayer(layer, ACTIVATIONS[trunk.activation])(given)
    return given
