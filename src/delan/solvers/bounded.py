"""Least squares with weights that must not be negative, such as those of friction."""

import numpy as np
from jaxtyping import Bool, Float

Weights = Float[np.ndarray, " weights"]
Curvature = Float[np.ndarray, "weights weights"]
Mask = Bool[np.ndarray, " weights"]

# Added to the diagonal of the scaled equations for bounded weights: equal columns share the weight.
RIDGE = 1e-10
# This many exchanges of the bounded solution move all offenders at once. Later ones move a single
# offender, which is slow but cannot cycle.
ALL_AT_ONCE = 10


def solve_bounded(
    curvature: Curvature, gradient: Weights, bounded: Mask, free: Mask | None = None
) -> Weights:
    """Return w that minimises ½ wᵀ A w + bᵀ w with w ≥ 0 where `bounded`.

    The method is block principal pivoting from weights that are `free`, all unless given. A weight
    without curvature, whose column is zero, becomes zero.
    """
    count = len(gradient)
    size = np.sqrt(np.diag(curvature))
    size = np.where(size > 0, size, 1.0)
    scaled = curvature / (size[:, None] * size[None])
    diagonal = np.diag_indices(count)
    scaled[diagonal] = np.maximum(scaled[diagonal] + RIDGE, RIDGE)
    slope = gradient / size
    moving = np.ones(count, dtype=bool)
    if free is not None:
        moving = free.copy()
    weights = np.zeros(count)
    # Single exchanges cannot cycle in exact arithmetic; the limit is for rounding.
    for exchanges in range(ALL_AT_ONCE + 5 * count):
        weights = np.zeros(count)
        weights[moving] = np.linalg.solve(scaled[np.ix_(moving, moving)], -slope[moving])
        pull = scaled @ weights + slope
        wrong = bounded & np.where(moving, weights < 0, pull < 0)
        if not wrong.any():
            break
        if exchanges >= ALL_AT_ONCE:
            last = np.flatnonzero(wrong)[-1]
            wrong = np.arange(count) == last
        moving ^= wrong
    return np.where(bounded, np.maximum(weights, 0.0), weights) / size
