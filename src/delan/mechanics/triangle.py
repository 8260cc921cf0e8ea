"""Lower-triangular matrices as vectors of entries: the diagonal, then the rest row by row.

XLA multiplies a batch of small matrices one by one. Here a vector is spread over the entries, or
entries are summed to a vector, by a product with a constant matrix of zeros and ones that the whole
batch shares: training is a fifth faster.
"""

from math import isqrt

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Entries = Float[Array, " entries"]
Vector = Float[Array, " dof"]
Matrix = Float[Array, "dof dof"]


def places(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of every entry of an n × n matrix."""
    row, column = np.tril_indices(n, -1)
    return np.append(np.arange(n), row), np.append(np.arange(n), column)


def by_row(v: Vector) -> Entries:
    """Return the component of v in the row of every entry."""
    return v @ _rows(len(v), v.dtype).T


def by_column(v: Vector) -> Entries:
    """Return the component of v in the column of every entry."""
    return v @ _columns(len(v), v.dtype).T


def times(chol: Entries, v: Vector) -> Vector:
    """Return chol v."""
    return (chol * by_column(v)) @ _rows(len(v), chol.dtype)


def transposed_times(chol: Entries, v: Vector) -> Vector:
    """Return cholᵀ v."""
    return (chol * by_row(v)) @ _columns(len(v), chol.dtype)


def dense(chol: Entries) -> Matrix:
    """Return the full matrix."""
    n = isqrt(2 * len(chol))  # of n (n + 1) / 2 entries
    return jnp.zeros_like(chol, shape=(n, n)).at[places(n)].set(chol)


# In NumPy, so that the matrices are constants of the compiled program.


def _rows(n: int, dtype: np.dtype) -> np.ndarray:
    return np.eye(n, dtype=dtype)[places(n)[0]]


def _columns(n: int, dtype: np.dtype) -> np.ndarray:
    return np.eye(n, dtype=dtype)[places(n)[1]]
