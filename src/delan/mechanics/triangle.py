"""Lower-triangular matrices as the vector of their entries: the diagonal first, then what lies below it, row by row.

Of a batch of small matrices XLA takes one after the other. Here a vector is spread over the entries, or the entries are
summed up to one, by a product with a constant of zeros and ones, which the whole batch shares: training gains a fifth.
"""

from math import isqrt

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Entries = Float[Array, " entries"]
Vector = Float[Array, " dof"]
Matrix = Float[Array, "dof dof"]


def places(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The row and the column of every entry of an n × n matrix."""
    row, column = np.tril_indices(n, -1)
    return np.append(np.arange(n), row), np.append(np.arange(n), column)


def by_row(v: Vector) -> Entries:
    """For every entry the component of v in its row."""
    return v @ _rows(len(v), v.dtype).T


def by_column(v: Vector) -> Entries:
    """For every entry the component of v in its column."""
    return v @ _columns(len(v), v.dtype).T


def times(chol: Entries, v: Vector) -> Vector:
    """chol v."""
    return (chol * by_column(v)) @ _rows(len(v), chol.dtype)


def transposed_times(chol: Entries, v: Vector) -> Vector:
    """cholᵀ v."""
    return (chol * by_row(v)) @ _columns(len(v), chol.dtype)


def dense(chol: Entries) -> Matrix:
    """The matrix with its zeros."""
    n = isqrt(2 * len(chol))  # of n (n + 1) / 2 entries
    return jnp.zeros_like(chol, shape=(n, n)).at[places(n)].set(chol)


def _rows(n: int, dtype: np.dtype) -> np.ndarray:
    return np.eye(n, dtype=dtype)[places(n)[0]]


def _columns(n: int, dtype: np.dtype) -> np.ndarray:
    return np.eye(n, dtype=dtype)[places(n)[1]]
