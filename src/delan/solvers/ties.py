"""The part of a loss that belongs to no sample: the ties of a chain and the weight decay."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..models.dynamics import trainable
from .loss import Scale, decay, tie


@partial(jax.jit, static_argnums=0)
def tied_quadratic(structure: Any, weights: Any, arrays: Any, scale: Scale) -> tuple[Array, Array]:
    """Half the gradient and half the curvature of the ties and of the weight decay."""

    def tied(weights: Array) -> Array:
        return tie(structure.model(weights, arrays), scale)

    slope = jax.jacrev(tied)(weights)
    rates = _decay(structure, weights, arrays, scale)
    return slope.T @ tied(weights) + rates * weights, slope.T @ slope + jnp.diag(rates)


@partial(jax.jit, static_argnums=0)
def tied_loss(structure: Any, weights: Any, arrays: Any, scale: Scale) -> Array:
    """The part of the loss that belongs to no sample."""
    decayed = jnp.sum(_decay(structure, weights, arrays, scale) * weights**2)
    return jnp.sum(tie(structure.model(weights, arrays), scale) ** 2) + decayed


def _decay(structure: Any, weights: Array, arrays: Any, scale: Scale) -> Array:
    """Return λ of every weight."""
    tree, _ = trainable(structure.model(weights, arrays))
    return ravel_pytree(jax.tree.map(jnp.full_like, tree, decay(tree, scale)))[0]
