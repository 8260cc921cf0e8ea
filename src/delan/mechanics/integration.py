"""Fixed-step integration of q̈ = f(q, q̇, τ), explicit for smooth torques, implicit for friction."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Vector = Float[Array, " dof"]
Matrix = Float[Array, "dof dof"]
State = tuple[Vector, Vector]
ForwardDynamics = Callable[[Vector, Vector, Vector], Vector]

# Shares of a Newton step that are tried; the best one is taken.
SHARES = 0.5 ** np.arange(8)
# Newton ends when the residual has fallen to this share of the momentum in play, or after this
# many steps. Friction that steps within a few mm/s takes up to ten.
CONVERGED = 1e-12
MOST_NEWTON_STEPS = 30


def runge_kutta_step(
    forward_dynamics: ForwardDynamics,
    q: Vector,
    qd: Vector,
    tau: Vector,
    tau_next: Vector,
    dt: Float[Array, ""],
) -> State:
    """Take a fourth-order Runge–Kutta step over `dt` [s], with the torque interpolated linearly."""

    def stage(slopes: State, at: Array) -> tuple[State, State]:
        velocity = qd + at * dt * slopes[1]
        acceleration = forward_dynamics(
            q + at * dt * slopes[0], velocity, tau + at * (tau_next - tau)
        )
        return (velocity, acceleration), (velocity, acceleration)

    # Times of the four stages and their weights in the step.
    at = jnp.asarray([0, 1 / 2, 1 / 2, 1], dtype=q.dtype)
    weight = jnp.asarray([1 / 6, 1 / 3, 1 / 3, 1 / 6], dtype=q.dtype)
    still = jnp.zeros_like(qd)
    # A scan over the four stages compiles the dynamics once, not four times.
    _, (velocities, accelerations) = jax.lax.scan(stage, (still, still), at)
    return q + dt * (weight @ velocities), qd + dt * (weight @ accelerations)


def rollout(
    forward_dynamics: ForwardDynamics,
    q: Vector,
    qd: Vector,
    tau: Float[Array, "time dof"],
    t: Float[Array, " time"],
) -> tuple[Float[Array, "time dof"], Float[Array, "time dof"]]:
    """Return positions and velocities at the times t [s] under the torques `tau` at those times."""

    def step(state: State, drive: tuple[Vector, Vector, Array]) -> tuple[State, State]:
        state = runge_kutta_step(forward_dynamics, *state, *drive)
        return state, state

    _, (later_q, later_qd) = jax.lax.scan(step, (q, qd), (tau[:-1], tau[1:], jnp.diff(t)))
    return jnp.concatenate([q[None], later_q]), jnp.concatenate([qd[None], later_qd])


def implicit_velocity(
    drive: Callable[[Vector], Vector], inertia: Matrix, bias: Vector, qd: Vector, dt: Any
) -> Vector:
    """Return the velocity v after a step, the solution of H (v − q̇) / dt + b = drive(v).

    `drive` is the torque that reaches the links at the velocity v: that of the motors less friction
    [N m or N]. Friction grows with v, so that the solution is unique, and a joint comes to rest in
    one step where an explicit method would overshoot and chatter. Newton's method finds it; the
    derivatives of the solution are those of the equation, not of the iterations.
    """

    def residual(v: Vector) -> Vector:
        return inertia @ (v - qd) + dt * (bias - drive(v))

    def size(error: Vector) -> Array:
        """The energy that the error would give the robot, twice."""
        return error @ jnp.linalg.solve(inertia, error)

    def solve(equation: Callable[[Vector], Vector], start: Vector) -> Vector:
        # Momentum against which a residual is small.
        momentum = jnp.abs(inertia @ qd) + dt * (jnp.abs(bias) + jnp.abs(drive(qd)))
        small = CONVERGED**2 * size(momentum) + jnp.finfo(qd.dtype).tiny

        def unfinished(search: tuple[Vector, Array, Array]) -> Array:
            _, left, count = search
            return (left > small) & (count < MOST_NEWTON_STEPS)

        def improve(search: tuple[Vector, Array, Array]) -> tuple[Vector, Array, Array]:
            v, left, count = search
            step = jnp.linalg.solve(jax.jacfwd(equation)(v), -equation(v))
            tried = v[None] + jnp.outer(SHARES.astype(v.dtype), step)
            sizes = jax.vmap(lambda v: size(equation(v)))(tried)
            best = jnp.argmin(sizes)
            # Rounding stops the progress at last.
            better = sizes[best] < left
            count = jnp.where(better, count + 1, MOST_NEWTON_STEPS)
            return jnp.where(better, tried[best], v), jnp.minimum(sizes[best], left), count

        first = (start, size(equation(start)), jnp.asarray(0))
        return jax.lax.while_loop(unfinished, improve, first)[0]

    def tangent_solve(linear: Callable[[Vector], Vector], right: Vector) -> Vector:
        return jnp.linalg.solve(jax.jacobian(linear)(jnp.zeros_like(right)), right)

    return jax.lax.custom_root(residual, qd, solve, tangent_solve)
