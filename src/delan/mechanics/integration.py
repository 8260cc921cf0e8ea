"""Motion from accelerations: fixed-step integration of q̈ = f(q, q̇, τ)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Vector = Float[Array, " dof"]
ForwardDynamics = Callable[[Vector, Vector, Vector], Vector]


def runge_kutta_step(
    forward_dynamics: ForwardDynamics, q: Vector, qd: Vector, tau: Vector, tau_next: Vector, dt: Float[Array, ""]
) -> tuple[Vector, Vector]:
    """One Runge–Kutta step of fourth order over `dt` [s]; the torque runs linearly from `tau` to `tau_next`."""

    def stage(slopes: tuple[Vector, Vector], at: Array) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector]]:
        velocity = qd + at * dt * slopes[1]
        acceleration = forward_dynamics(q + at * dt * slopes[0], velocity, tau + at * (tau_next - tau))
        return (velocity, acceleration), (velocity, acceleration)

    # A scan over the four stages compiles the dynamics once, not four times.
    at = jnp.asarray([0, 1 / 2, 1 / 2, 1], dtype=q.dtype)
    weight = jnp.asarray([1 / 6, 1 / 3, 1 / 3, 1 / 6], dtype=q.dtype)
    _, (velocities, accelerations) = jax.lax.scan(stage, (jnp.zeros_like(qd), jnp.zeros_like(qd)), at)
    return q + dt * (weight @ velocities), qd + dt * (weight @ accelerations)


def rollout(
    forward_dynamics: ForwardDynamics,
    q: Vector,
    qd: Vector,
    tau: Float[Array, "time dof"],
    t: Float[Array, " time"],
) -> tuple[Float[Array, "time dof"], Float[Array, "time dof"]]:
    """Positions and velocities at the times t [s] from the first state, driven by the torques `tau` at those times."""

    def step(state: tuple[Vector, Vector], drive: tuple[Vector, Vector, Array]) -> tuple[tuple[Vector, Vector], tuple]:
        state = runge_kutta_step(forward_dynamics, *state, *drive)
        return state, state

    _, (later_q, later_qd) = jax.lax.scan(step, (q, qd), (tau[:-1], tau[1:], jnp.diff(t)))
    return jnp.concatenate([q[None], later_q]), jnp.concatenate([qd[None], later_qd])
