"""Plan through a model: torques that bring an arm to a pose, found by descending through its own forward model.

The arm here has random weights; a model from `delan.load` takes its place.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

import delan
from delan.mechanics.integration import rollout

model = delan.LagrangianNetwork(delan.Joints.revolute(2), key=jax.random.key(0))
start, goal = jnp.zeros(2), jnp.array([0.5, -0.3])
t = jnp.linspace(0, 1, 51)


@eqx.filter_jit
def miss(tau):
    """How far from the goal, and how fast, the arm ends."""
    q, qd = rollout(model.forward_dynamics, start, jnp.zeros(2), tau, t)
    return jnp.sum((q[-1] - goal) ** 2) + 0.1 * jnp.sum(qd[-1] ** 2)


tau = jax.vmap(lambda _: model.components(start, 0 * start, 0 * start).gravity)(t)
for step in range(200):
    value, slope = jax.value_and_grad(miss)(tau)
    tau = tau - 20.0 * slope
    if step % 50 == 0:
        print(f"step {step}: miss {value:.5f}")
print(f"end: miss {miss(tau):.2e}")
assert miss(tau) < 1e-3
