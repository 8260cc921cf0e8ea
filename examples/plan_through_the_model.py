"""Swing a pendulum up by planning through a learned model; its motor is too weak to lift it straight.

Model-predictive control: 20 times a second, 256 plans of 1.5 s are tried in the learned forward model, and the first
torque of their weighted mean is given to the true pendulum. A model from `delan.load` plans in the same way.
Run it: python examples/plan_through_the_model.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import delan

# The truth, 2 kg at 0.5 m, which only the recording and the simulation know: upwards is q = 90°.
INERTIA, WEIGHT, LIMIT = 0.5, 9.81, 5.0  # kg m², N m, N m
t = np.arange(0, 1.5, 0.03)
size, rate = np.linspace(1.5, 3.5, 6)[:, None], np.linspace(2, 4, 6)[:, None]  # six swings
q, qd, qdd = size * np.sin(rate * t), size * rate * np.cos(rate * t), -size * rate**2 * np.sin(rate * t)
q, qd, qdd, tau = (signal.reshape(-1, 1) for signal in (q, qd, qdd, INERTIA * qdd + WEIGHT * np.cos(q)))
label, joints = np.repeat(np.arange(6), len(t)), delan.Joints.revolute(1)
swings = delan.Dataset(t=np.tile(t, 6), q=q, qd=qd, qdd=qdd, tau=tau, trajectory=label, joints=joints)
result = delan.fit(swings, settings=delan.FitSettings(epochs=40))
print(f"learned in {result.seconds:.0f} s, validation nMSE {result.validation.torque.nmse_mean:.1e}")

STEP, HORIZON, PLANS = 0.05, 30, 256
times = jnp.arange(HORIZON + 1) * STEP


def cost(model, plan, q, qd):
    """How low, and how fast, the pendulum of the model is on its way."""
    q, qd = delan.rollout(model.forward_dynamics, q, qd, plan, times)
    return jnp.sum(1 - jnp.sin(q)) + 0.01 * jnp.sum(qd**2)


@eqx.filter_jit
def improved(model, plan, q, qd, key):
    """The mean of many plans around one, those of low cost weighted most."""
    plans = jnp.clip(plan + 3 * jax.random.normal(key, (PLANS, *plan.shape)), -LIMIT, LIMIT)
    costs = jax.vmap(lambda one: cost(model, one, q, qd))(plans)
    return jnp.tensordot(jax.nn.softmax(-costs), plans, axes=1)


@jax.jit
def moved(plan, q, qd):
    """The true pendulum, one step of the plan later."""
    path = delan.rollout(lambda q, _, tau: (tau - WEIGHT * jnp.cos(q)) / INERTIA, q, qd, plan[:2], times[:2])
    return path[0][-1], path[1][-1]


q, qd, plan = jnp.array([-jnp.pi / 2]), jnp.zeros(1), jnp.zeros((HORIZON + 1, 1))
for step, key in enumerate(jax.random.split(jax.random.key(0), 81)):
    plan = improved(result.model, plan, q, qd, key)
    if step % 10 == 0:
        print(f"{step * STEP:.1f} s: height {jnp.sin(q[0]):+.2f}, torque {plan[0, 0]:+.1f} N m")
    q, qd = moved(plan, q, qd)
    plan = jnp.roll(plan, -1, axis=0).at[-1].set(0.0)
assert jnp.sin(q[0]) > 0.95
