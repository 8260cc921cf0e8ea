"""The layers that the network models share."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Activation = Literal["tanh", "softplus", "relu", "silu", "sin"]
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "sin": jnp.sin,
}


class Affine(eqx.Module):
    """x ↦ W x + b; it may have no outputs at all, as the lower part of a 1 × 1 matrix has none."""

    weight: Float[Array, "outputs inputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray, bias: float = 0.0):
        """Weights from N(0, 1/inputs) and one bias for all outputs."""
        self.weight = jax.random.normal(key, (outputs, inputs)) / inputs**0.5
        self.bias = jnp.full_like(self.weight, bias, shape=(outputs,))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        # Of a batch, XLA multiplies rows a fifth faster than columns, and the gradient of the weights up to four times
        # faster with the longer side of the matrix along its rows; these two forms differ in that gradient only.
        outputs, inputs = self.weight.shape
        return (x @ self.weight.T if outputs > inputs else jnp.inner(x, self.weight)) + self.bias


class Perceptron(eqx.Module):
    """Hidden layers only: `depth` affine maps of `width` units, each followed by the activation."""

    layers: tuple[Affine, ...]
    activation: Activation = eqx.field(static=True)

    def __init__(self, inputs: int, width: int, depth: int, activation: Activation, *, key: PRNGKeyArray):
        sizes = [inputs, *[width] * depth]
        keys = jax.random.split(key, depth)
        self.layers = tuple(Affine(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True))
        self.activation = activation

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " width"]:
        for layer in self.layers:
            x = ACTIVATIONS[self.activation](layer(x))
        return x
