"""Fixed-step integration of q̈ = f(q, q̇, τ)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Vector = Float[Array, " dof"]
State = tuple[Vector, Vector]
ForwardDynamics = Callable[[Vector, Vector, Vector], Vector]


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
