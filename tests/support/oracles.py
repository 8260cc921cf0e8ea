"""Independent, slow derivations of the package's results, short enough to be verified by eye."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def torque_from_lagrangian(
    lagrangian: Callable[[Array, Array], Array], q: Array, qd: Array, qdd: Array
) -> Array:
    """Return d/dt ∂L/∂q̇ − ∂L/∂q by plain automatic differentiation of L(q, q̇)."""
    momentum = jax.grad(lagrangian, argnums=1)
    _, momentum_rate = jax.jvp(momentum, (q, qd), (qd, qdd))
    return momentum_rate - jax.grad(lagrangian, argnums=0)(q, qd)


def differences(function: Callable[[Array], Array], x: Array, step: float = 1e-5) -> np.ndarray:
    """Return the Jacobian of a function by central differences, the input along the first axis."""
    return np.stack(
        [
            (np.asarray(function(x + row)) - np.asarray(function(x - row))) / (2 * step)
            for row in step * jnp.eye(x.size)
        ]
    )
