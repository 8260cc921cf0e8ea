"""One step of a learned robot through time: mechanics at mid-step, friction at the end of it.

The velocity after a step of `dt` solves H (q̇' − q̇) / dt + b = τ_c(q̇'), where τ_c is the torque that
is left of τ after friction at the new velocity, memory included. So a joint that friction stops
comes to rest and stays there, and steps of milliseconds are stable for a wrist of 1e-4 kg m².
Inertia H (with what forward dynamics add to it) and the torque b of gravity and Coriolis forces are
taken at mid-step, which makes the smooth part second order in dt; friction is first order.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..mechanics.integration import implicit_velocity
from ..models.friction import FrictionState
from ..models.model import Model

Vector = Float[Array, " dof"]

# The velocity at mid-step is guessed by the first pass and used by the second.
PASSES = 2


class Drive(NamedTuple):
    """Torque of the motors with feedback: τ + Kp (q_ref − q) + Kd (q̇_ref − q̇) [N m or N].

    Feedback is taken at the end of a step, so that it is stable for every gain.
    """

    tau: Any
    stiffness: Any
    damping: Any
    q: Any
    qd: Any

    @classmethod
    def held(cls, tau: Any) -> "Drive":
        """Return a torque without feedback."""
        nothing = jnp.zeros_like(tau)
        return cls(tau, nothing, nothing, nothing, nothing)

    def torque(self, q: Vector, qd: Vector) -> Vector:
        """Return the torque at a state."""
        return self.tau + self.stiffness * (self.q - q) + self.damping * (self.qd - qd)


class MovingState(NamedTuple):
    """Positions and velocities of a robot, and the memory of its friction; None without memory."""

    q: Any
    qd: Any
    memory: FrictionState | None


def at_rest(model: Model, q: Vector) -> MovingState:
    """Return the state at rest at q, with every stop operator of the friction relaxed."""
    memory = None
    if model.friction is not None and model.promises.memory:
        memory = model.friction.init(q)
    return MovingState(q, jnp.zeros_like(q), memory)


def require_simulable(model: Any) -> None:
    """Refuse a model without forward dynamics."""
    if not isinstance(model, Model) or not model.promises.mechanics:
        raise ModelError(
            "this model computes torques only and cannot be simulated; fit a chain or a "
            "Lagrangian network (delan fit --model chain)"
        )


def step(model: Model, state: MovingState, drive: Drive, dt: Any) -> MovingState:
    """Return the state after `dt` [s] under the torque of the motors."""
    mechanics = model.mechanics
    assert mechanics is not None
    q = state.q
    qd = state.qd

    def on_links(velocity: Vector) -> Vector:
        """The torque that is left after friction and springs at the end of the step."""
        there = q + dt * (qd + velocity) / 2
        tau = drive.torque(there, velocity)
        if model.friction is None:
            return tau
        moved = _moved(model, state, there)
        memory = None
        if moved is not None:
            memory = model.friction.memory(moved)
        held = model.friction.potential_torque(there)
        return jnp.asarray(model.friction.conservative(velocity, tau, memory) - held)

    after = qd
    for _ in range(PASSES):
        mid_velocity = (qd + after) / 2
        mid = q + dt * mid_velocity / 2
        inertia = jnp.asarray(model.forward_inertia(mid))
        bias = mechanics.inverse_dynamics(mid, mid_velocity, jnp.zeros_like(qd))
        after = implicit_velocity(on_links, inertia, bias, qd, dt)
    there = q + dt * (qd + after) / 2
    return MovingState(there, after, _moved(model, state, there))


def _moved(model: Model, state: MovingState, q: Vector) -> FrictionState | None:
    if state.memory is None:
        return None
    assert model.friction is not None
    return model.friction.moved(state.memory, q)


@eqx.filter_jit
def driven(model: Model, state: MovingState, drives: Drive, dt: Float[Array, ""]) -> MovingState:
    """Return the states after each of many steps, one row of the drives for each."""

    def advance(state: MovingState, drive: Drive) -> tuple[MovingState, MovingState]:
        state = step(model, state, drive, dt)
        return state, state

    return jax.lax.scan(advance, state, drives)[1]
