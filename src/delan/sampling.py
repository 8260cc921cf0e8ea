"""Choice of rows and scaling of columns, shared by all subpackages."""

import numpy as np
from jaxtyping import Float, Int


def evenly_spaced(count: int, most: int) -> Int[np.ndarray, " rows"]:
    """Return at most `most` of the row numbers 0 … count − 1, evenly spaced, both ends included."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))


def nonzero_scale(scale: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return the scale with 1 in place of zeros, so that constant columns can be divided by it."""
    return np.where(scale > 0, scale, 1.0)
