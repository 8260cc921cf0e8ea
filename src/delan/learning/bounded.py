"""Least squares for weights of which some must not be negative, from the normal equations."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

RIDGE = 1e-10
"""Added to the diagonal of the scaled normal equations, so that columns that say the same share the weight."""
ALL_AT_ONCE = 10
"""So many exchanges may move all offenders; then one at a time, which is slow but cannot run in circles."""


class _Exchange(NamedTuple):
    free: Bool[Array, " weights"]
    wrong: Bool[Array, " weights"]
    weights: Float[Array, " weights"]
    exchanges: Int[Array, ""]


def solve_bounded(
    curvature: Float[Array, "weights weights"], gradient: Float[Array, " weights"], bounded: Bool[Array, " weights"]
) -> Float[Array, " weights"]:
    """The w that minimises ½ wᵀ A w + bᵀ w with w ≥ 0 where `bounded`, by block principal pivoting.

    A weight with no curvature at all, whose column is zero, becomes zero.
    """
    size = jnp.sqrt(jnp.diag(curvature))
    size = jnp.where(size > 0, size, 1)
    scaled = curvature / (size[:, None] * size[None]) + RIDGE * jnp.eye(len(size), dtype=curvature.dtype)
    scaled = jnp.where(jnp.eye(len(size), dtype=bool), jnp.maximum(scaled, RIDGE), scaled)
    slope = gradient / size
    order = jnp.arange(len(size))

    def solve(free: Array) -> tuple[Array, Array]:
        kept = free[:, None] & free[None]
        matrix = jnp.where(kept, scaled, jnp.eye(len(size), dtype=scaled.dtype))
        weights = jnp.where(free, jnp.linalg.solve(matrix, jnp.where(free, -slope, 0)), 0)
        pull = scaled @ weights + slope
        return weights, bounded & jnp.where(free, weights < 0, pull < 0)

    def exchange(state: _Exchange) -> _Exchange:
        last = order == jnp.max(jnp.where(state.wrong, order, -1))
        moved = jnp.where(state.exchanges < ALL_AT_ONCE, state.wrong, last)
        free = state.free ^ moved
        weights, wrong = solve(free)
        return _Exchange(free, wrong, weights, state.exchanges + 1)

    free = jnp.ones(len(size), dtype=bool)
    weights, wrong = solve(free)
    start = _Exchange(free, wrong, weights, jnp.asarray(0))
    end = jax.lax.while_loop(lambda s: jnp.any(s.wrong) & (s.exchanges < ALL_AT_ONCE + 5 * len(size)), exchange, start)
    return jnp.where(bounded, jnp.maximum(end.weights, 0), end.weights) / size
