"""The derivative of a model's torques with respect to its weights."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..joints import Dataset
from ..models.dynamics import trainable
from .loss import Data, Samples, torque

CHUNK = 256
"""Rows whose slopes are computed together."""


def rigid_slope(
    mechanics: Any, data: Dataset | Data, std: np.ndarray
) -> Float[np.ndarray, "entries weights"]:
    """How the torques of samples, or the mean ones of windows, each over its joint's deviation,
    answer to the weights of the links.
    """
    with jax.enable_x64(True):
        seen = Samples.of(data) if isinstance(data, Dataset) else data
        slopes = [np.asarray(_slope(mechanics, part))[:count] for part, count in _chunks(seen)]
    slope = np.concatenate(slopes) / std[:, None]
    return slope.reshape(-1, slope.shape[-1])


def _chunks(data: Data) -> Iterator[tuple[Data, int]]:
    """The rows in parts of one size, the last one filled up with its last row; and how many of them
    are new. One compiled program serves data of every length.
    """
    for first in range(0, len(data), CHUNK):
        rows = np.minimum(np.arange(first, first + CHUNK), len(data) - 1)
        yield data.rows(rows), min(CHUNK, len(data) - first)


@eqx.filter_jit
def _slope(mechanics: Any, data: Data) -> Float[Array, "rows dof weights"]:
    tree, fixed = trainable(mechanics)
    weights, unravel = ravel_pytree(tree)

    def answer(weights: Array, sample: Data) -> Array:
        return torque(eqx.combine(unravel(weights), fixed), sample)

    return jax.vmap(lambda sample: jax.jacrev(answer)(weights, sample))(data)
