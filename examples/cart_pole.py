"""Swing up a cart-pole by a model that was learned from the force at its cart alone.

The pole has no motor: its torque is zero in every row, and that is an equation to learn from. The
learned energy pumps the pole up, and a linear-quadratic regulator from the derivatives of the
learned dynamics holds it. MuJoCo is the robot. Run it: python examples/cart_pole.py
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import scipy

import delan

engine: Any = mujoco  # its names are created on import
CART_POLE = """<mujoco><option integrator="RK4" gravity="0 0 -9.81"/><worldbody><body>
<joint type="slide" axis="1 0 0"/><inertial pos="0 0 0" mass="1" diaginertia="1e-3 1e-3 1e-3"/>
<body><joint axis="0 1 0"/><inertial pos="0 0 -.3" mass=".3" diaginertia="9e-3 9e-3 1e-5"/></body>
</body></worldbody></mujoco>"""
STEPS = 10  # of the simulation in a period of 0.02 s
LIMIT = 20.0  # N
UPRIGHT = jnp.array([0.0, jnp.pi])

robot = engine.MjModel.from_xml_string(CART_POLE)
columns: dict[str, list] = {"t": [], "q": [], "qd": [], "qdd": [], "tau": [], "trajectory": []}
for run, rate in enumerate(np.linspace(2.0, 6.0, 5)):
    data = engine.MjData(robot)
    data.qpos[:] = 0.0, 2.5 * np.sin(run)
    for _ in range(120):
        data.qfrc_applied[0] = 8 * np.sin(rate * data.time) - 3 * data.qpos[0] - data.qvel[0]
        engine.mj_forward(robot, data)
        row = (data.time, data.qpos, data.qvel, data.qacc, data.qfrc_applied, run)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(np.copy(value))
        engine.mj_step(robot, data, nstep=STEPS)
arrays: dict[str, Any] = {name: np.array(column) for name, column in columns.items()}
log = delan.Dataset(
    **arrays,
    joints=delan.Joints(("cart", "pole"), ("prismatic", "continuous")),
)
result = delan.fit(log, "chain")
model = result.model
print(f"learned from {len(log)} samples, validation nMSE {result.verdict.error:.1e}")

still = jnp.zeros(2)
by_q, by_tau = jax.jacfwd(model.forward_dynamics, (0, 2))(UPRIGHT, still, still)
a = np.block([[np.zeros((2, 2)), np.eye(2)], [np.array(by_q), np.zeros((2, 2))]])
b = np.concatenate([np.zeros(2), np.array(by_tau)[:, 0]])[:, None]
value = scipy.linalg.solve_continuous_are(a, b, np.diag([10.0, 10.0, 1.0, 1.0]), 0.01 * np.eye(1))
gains = jnp.array(100 * b[:, 0] @ value)


@eqx.filter_jit
def force(model, q, qd):
    """Return the force at the cart: near the top the regulator, else what pumps the pole up."""
    away = q - UPRIGHT
    away = away.at[1].set(jnp.remainder(away[1] + jnp.pi, 2 * jnp.pi) - jnp.pi)
    # The pole's energy with the cart at rest, over that of standing.
    lack = model.energy(q, qd.at[0].set(0.0)).total - model.energy(UPRIGHT, still).total
    push = jnp.clip(10 * lack * model.mass_matrix(q)[0, 1] * qd[1], -1, 1)
    wanted = 6 * push - 6 * q[0] - 2 * qd[0]  # acceleration of the cart
    drift = model.forward_dynamics(q, qd, still)[0]
    gain = model.forward_dynamics(q, qd, jnp.array([1.0, 0.0]))[0] - drift
    regulated = -gains @ jnp.concatenate([away, qd])
    near = jnp.abs(away[1]) + 0.1 * jnp.abs(qd[1]) < 0.3
    return jnp.clip(jnp.where(near, regulated, (wanted - drift) / gain), -LIMIT, LIMIT)


data = engine.MjData(robot)
data.qpos[1] = 0.1
for step in range(500):
    if step % 50 == 0:
        print(f"{data.time:.0f} s: cart {data.qpos[0]:+.2f} m, pole {data.qpos[1]:+.2f} rad")
    data.qfrc_applied[0] = force(model, jnp.array(data.qpos), jnp.array(data.qvel))
    engine.mj_step(robot, data, nstep=STEPS)
assert np.cos(data.qpos[1]) < -0.999
