"""The Euler–Lagrange equation for a Lagrangian given by a factor of the inertia and a potential.

A system is described by one function `terms(q) → (chol, V)`: chol(q) is the lower-triangular factor of the inertia
H = chol cholᵀ and V(q) the potential energy. With p = cholᵀ q̇ and T = ½ pᵀp, eq. 4 of Lutter et al. 2019 reads

    τ = chol (cholᵀ q̈) + Ḣ q̇ − ∂T/∂q + ∂V/∂q.

One `jvp` along q̇ gives chol and its time derivative, hence Ḣ q̇; one `vjp` pulls the cotangents of −T and V back to q
together. That is three passes through `terms`, whatever the number of joints.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..joints import Energy

Vector = Float[Array, " dof"]
Terms = Callable[[Vector], tuple[Float[Array, "dof dof"], Float[Array, ""]]]


class ConservativeTorques(NamedTuple):
    """The three parts of eq. 4: H q̈, c(q, q̇) and g(q) [N m or N]."""

    inertial: Vector
    coriolis: Vector
    gravity: Vector


class _Motion(NamedTuple):
    """What the equation needs at one state: the factor, Ḣ q̇, and the way from cotangents of (chol, V) back to q."""

    chol: Float[Array, "dof dof"]
    momentum_rate: Vector
    kinetic_cotangent: Float[Array, "dof dof"]
    pull_back: Callable[[tuple[Array, Array]], tuple[Vector]]


def _motion(terms: Terms, q: Vector, qd: Vector) -> _Motion:
    (chol, _), (chol_dot, _) = jax.jvp(terms, (q,), (qd,))
    _, pull_back = jax.vjp(terms, q)
    p = chol.T @ qd
    momentum_rate = chol_dot @ p + chol @ (chol_dot.T @ qd)
    return _Motion(chol, momentum_rate, jnp.outer(qd, p), pull_back)  # outer(q̇, p) is ∂T/∂chol


def _bias(motion: _Motion) -> Vector:
    """c(q, q̇) + g(q) by a single pull-back."""
    one = jnp.ones((), motion.chol.dtype)
    (force,) = motion.pull_back((-motion.kinetic_cotangent, one))
    return motion.momentum_rate + force


def inverse_dynamics(terms: Terms, q: Vector, qd: Vector, qdd: Vector) -> Vector:
    """The torque τ(q, q̇, q̈) of eq. 6 of Lutter et al. 2019 [N m or N]."""
    motion = _motion(terms, q, qd)
    return motion.chol @ (motion.chol.T @ qdd) + _bias(motion)


def forward_dynamics(terms: Terms, q: Vector, qd: Vector, tau: Vector) -> Vector:
    """The acceleration q̈(q, q̇, τ) of eq. 8 of Lutter et al. 2019 [rad/s² or m/s²], by two triangular solves."""
    motion = _motion(terms, q, qd)
    half = solve_triangular(motion.chol, tau - _bias(motion), lower=True)
    return solve_triangular(motion.chol, half, lower=True, trans="T")


def components(terms: Terms, q: Vector, qd: Vector, qdd: Vector) -> ConservativeTorques:
    """The parts of the torque, H q̈, c = Ḣ q̇ − ∂T/∂q and g = ∂V/∂q; their sum is `inverse_dynamics`."""
    motion = _motion(terms, q, qd)
    one = jnp.ones((), motion.chol.dtype)
    (kinetic,) = motion.pull_back((-motion.kinetic_cotangent, jnp.zeros_like(one)))
    (gravity,) = motion.pull_back((jnp.zeros_like(motion.chol), one))
    return ConservativeTorques(motion.chol @ (motion.chol.T @ qdd), motion.momentum_rate + kinetic, gravity)


def mass_matrix(terms: Terms, q: Vector) -> Float[Array, "dof dof"]:
    """The inertia H(q) = chol cholᵀ [kg m² or kg]."""
    chol, _ = terms(q)
    return chol @ chol.T


def energy(terms: Terms, q: Vector, qd: Vector) -> Energy:
    """Kinetic energy T = ½ q̇ᵀ H q̇ and potential energy V [J]."""
    chol, potential = terms(q)
    p = chol.T @ qd
    return Energy(p @ p / 2, potential)


def power(terms: Terms, q: Vector, qd: Vector, qdd: Vector) -> Float[Array, ""]:
    """The rate of the total energy d(T + V)/dt along (q̇, q̈) [W]; the law says it equals q̇ᵀ τ."""
    _, rate = jax.jvp(lambda q, qd: energy(terms, q, qd).total, (q, qd), (qd, qdd))
    return rate
