"""Swing up a pendulum with a weak motor by model-predictive control through a learned model.

Every 50 ms, 256 plans of 1.5 s are simulated with the learned model, and the first torque of their
weighted mean is applied to the true pendulum. A model from `delan.load` works in the same way.
Run it: python examples/plan_through_the_model.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import delan

# The true pendulum, 2 kg at 0.5 m, used by the recording and the simulation only. It is upright at
# q = 90°.
INERTIA = 0.5  # kg m²
WEIGHT = 9.81  # N m
LIMIT = 5.0  # N m

# Six swings to learn from.
amplitude = np.linspace(1.5, 3.5, 6)[:, None]
rate = np.linspace(2, 4, 6)[:, None]
t = np.arange(0, 1.5, 0.03)
q = amplitude * np.sin(rate * t)
qd = amplitude * rate * np.cos(rate * t)
qdd = -amplitude * rate**2 * np.sin(rate * t)
tau = INERTIA * qdd + WEIGHT * np.cos(q)
swings = delan.Dataset(
    t=np.tile(t, 6),
    q=q.reshape(-1, 1),
    qd=qd.reshape(-1, 1),
    qdd=qdd.reshape(-1, 1),
    tau=tau.reshape(-1, 1),
    trajectory=np.repeat(np.arange(6), len(t)),
    joints=delan.Joints.revolute(1),
)
settings = delan.FitSettings(training=delan.TrainingSettings(epochs=40))
result = delan.fit(swings, "delan", settings=settings)
print(f"learned in {result.seconds:.0f} s, validation nMSE {result.verdict.error:.1e}")

STEP = 0.05  # s
HORIZON = 30  # steps
PLANS = 256
times = jnp.arange(HORIZON + 1) * STEP


def cost(model, plan, q, qd):
    """Return a cost that is high where the pendulum is low or fast."""
    q, qd = delan.rollout(model.forward_dynamics, q, qd, plan, times)
    return jnp.sum(1 - jnp.sin(q)) + 0.01 * jnp.sum(qd**2)


@eqx.filter_jit
def improved(model, plan, q, qd, key):
    """Return the mean of random variations of a plan, weighted by their cost."""
    plans = jnp.clip(plan + 3 * jax.random.normal(key, (PLANS, *plan.shape)), -LIMIT, LIMIT)
    costs = jax.vmap(lambda plan: cost(model, plan, q, qd))(plans)
    return jnp.tensordot(jax.nn.softmax(-costs), plans, axes=1)


@jax.jit
def moved(plan, q, qd):
    """Return the state of the true pendulum after one step of the plan."""

    def acceleration(q, qd, tau):
        return (tau - WEIGHT * jnp.cos(q)) / INERTIA

    q, qd = delan.rollout(acceleration, q, qd, plan[:2], times[:2])
    return q[-1], qd[-1]


q = jnp.array([-jnp.pi / 2])
qd = jnp.zeros(1)
plan = jnp.zeros((HORIZON + 1, 1))
for step, key in enumerate(jax.random.split(jax.random.key(0), 81)):
    plan = improved(result.model, plan, q, qd, key)
    if step % 10 == 0:
        print(f"{step * STEP:.1f} s: height {jnp.sin(q[0]):+.2f}, torque {plan[0, 0]:+.1f} N m")
    q, qd = moved(plan, q, qd)
    plan = jnp.roll(plan, -1, axis=0).at[-1].set(0.0)
assert jnp.sin(q[0]) > 0.95
