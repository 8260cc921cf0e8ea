"""The Euler–Lagrange equation of an inertia H = chol cholᵀ, given by its triangular factor.

Lower-triangular matrices are vectors of entries: the diagonal, then the rest row by row. XLA
multiplies a batch of small matrices one by one. Here a vector is spread over the entries, or
entries are summed to a vector, by a product with a constant matrix of zeros and ones that the whole
batch shares: training is a fifth faster.
"""

from collections.abc import Callable
from math import isqrt
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..joints import Energy

Entries = Float[Array, " entries"]
Vector = Float[Array, " dof"]
Matrix = Float[Array, "dof dof"]


def places(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of every entry of a lower-triangular n × n matrix."""
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


Terms = Callable[[Vector], tuple[Entries, Float[Array, ""]]]


class ConservativeTorques(NamedTuple):
    """The three parts of eq. 4: H q̈, c(q, q̇) and g(q) [N m or N]."""

    inertial: Vector
    coriolis: Vector
    gravity: Vector


class FactorRates(NamedTuple):
    """The factor L of H = L Lᵀ with its rates, as the Lagrangian layers of the paper give them.

    Attributes:
        value: L.
        rate: dL/dt along q̇, eq. 12.
        slope: ∂L/∂q_i, the joint i along the first axis.
    """

    value: Matrix
    rate: Matrix
    slope: Float[Array, "dof dof dof"]


class _Motion(NamedTuple):
    """The factor, d/dt (H q̇), ∂T/∂chol, and the pull-back of cotangents of (chol, V) to q."""

    chol: Entries
    momentum_rate: Vector
    kinetic_cotangent: Entries
    pull_back: Callable[[tuple[Array, Array]], tuple[Vector]]


def _motion(terms: Terms, q: Vector, qd: Vector, qdd: Vector) -> _Motion:
    (chol, _), push_forward = jax.linearize(terms, q)
    chol_dot, _ = push_forward(qd)
    p, p_dot = jax.jvp(transposed_times, (chol, qd), (chol_dot, qdd))
    _, momentum_rate = jax.jvp(times, (chol, p), (chol_dot, p_dot))
    return _Motion(
        chol=chol,
        momentum_rate=momentum_rate,
        kinetic_cotangent=by_row(qd) * by_column(p),
        pull_back=jax.linear_transpose(push_forward, q),
    )


def _torque(motion: _Motion) -> Vector:
    """Return the torque by a single pull-back."""
    # The cotangent of V is 1: its pull-back alone is ∂V/∂q.
    unit = jnp.ones((), motion.chol.dtype)
    (force,) = motion.pull_back((-motion.kinetic_cotangent, unit))
    return motion.momentum_rate + force


def inverse_dynamics(terms: Terms, q: Vector, qd: Vector, qdd: Vector) -> Vector:
    """Return the torque τ(q, q̇, q̈) of eq. 6 of Lutter et al. 2019 [N m or N]."""
    return _torque(_motion(terms, q, qd, qdd))


def forward_dynamics(terms: Terms, q: Vector, qd: Vector, tau: Vector) -> Vector:
    """Return the acceleration q̈(q, q̇, τ) of eq. 8 of Lutter et al. 2019 [rad/s² or m/s²]."""
    # At zero acceleration the torque is c + g, the part that does not move the joints.
    motion = _motion(terms, q, qd, jnp.zeros_like(qd))
    return solved(dense(motion.chol), tau - _torque(motion))


def solved(chol: Matrix, torque: Vector) -> Vector:
    """Return H⁻¹ torque by two triangular solves."""
    half = solve_triangular(chol, torque, lower=True)
    return solve_triangular(chol, half, lower=True, trans="T")


def components(terms: Terms, q: Vector, qd: Vector, qdd: Vector) -> ConservativeTorques:
    """Return H q̈, c = Ḣ q̇ − ∂T/∂q and g = ∂V/∂q, whose sum is `inverse_dynamics`."""
    motion = _motion(terms, q, qd, jnp.zeros_like(qd))
    unit = jnp.ones((), motion.chol.dtype)
    (kinetic,) = motion.pull_back((-motion.kinetic_cotangent, jnp.zeros_like(unit)))
    (gravity,) = motion.pull_back((jnp.zeros_like(motion.chol), unit))
    inertial = times(motion.chol, transposed_times(motion.chol, qdd))
    return ConservativeTorques(inertial, motion.momentum_rate + kinetic, gravity)


def components_of_factor(
    factor: FactorRates, gravity: Vector, qd: Vector, qdd: Vector
) -> ConservativeTorques:
    """Return H q̈, c and g as the paper computes them, from L, dL/dt and ∂L/∂q_i.

    c = (L dL/dtᵀ + dL/dt Lᵀ) q̇ − ½ q̇ᵀ (∂L/∂q_i Lᵀ + L ∂L/∂q_iᵀ) q̇ (eqs. 10 and 14), whose last
    term is q̇ᵀ ∂L/∂q_i Lᵀ q̇, because both of its halves are equal.
    """
    chol = factor.value
    p = chol.T @ qd
    inertia_rate = chol @ (factor.rate.T @ qd) + factor.rate @ p
    kinetic_slope = (factor.slope @ p) @ qd
    return ConservativeTorques(chol @ (chol.T @ qdd), inertia_rate - kinetic_slope, gravity)


def mass_matrix(terms: Terms, q: Vector) -> Matrix:
    """Return the inertia H(q) = chol cholᵀ [kg m² or kg]."""
    chol = dense(terms(q)[0])
    return chol @ chol.T


def energy(terms: Terms, q: Vector, qd: Vector) -> Energy:
    """Return the kinetic energy T = ½ q̇ᵀ H q̇ and the potential energy V [J]."""
    chol, potential = terms(q)
    p = transposed_times(chol, qd)
    return Energy(p @ p / 2, potential)


def power(terms: Terms, q: Vector, qd: Vector, qdd: Vector) -> Float[Array, ""]:
    """Return the rate of the energy d(T + V)/dt along (q̇, q̈) [W], which must equal q̇ᵀ τ."""
    _, rate = jax.jvp(lambda q, qd: energy(terms, q, qd).total, (q, qd), (qd, qdd))
    return rate
