"""How the torques of a rigid part answer to its weights."""

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..joints import Dataset
from ..models.dynamics import DynamicsModel, trainable
from .objective import Data, Samples, torque


def rigid_slope(rigid: DynamicsModel, data: Dataset | Data, std: np.ndarray) -> Float[np.ndarray, "entries weights"]:
    """How the torques of samples, or the mean ones of windows, each over its joint's deviation, answer to the weights
    of the links."""
    with jax.enable_x64(True):
        seen = Samples.of(data) if isinstance(data, Dataset) else data
        slope = np.asarray(_slope(rigid, seen)) / std[:, None]
    return slope.reshape(-1, slope.shape[-1])


@eqx.filter_jit
def _slope(rigid: DynamicsModel, data: Data) -> Float[Array, "rows dof weights"]:
    tree, fixed = trainable(rigid)
    weights, unravel = ravel_pytree(tree)

    def answer(weights: Array, sample: Data) -> Array:
        return torque(eqx.combine(unravel(weights), fixed), sample)

    return jax.lax.map(lambda sample: jax.jacrev(answer)(weights, sample), data, batch_size=256)
