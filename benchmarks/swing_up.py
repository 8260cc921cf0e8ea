"""Swing-up of robots with one joint without a motor, by a learned model, in MuJoCo.

The learned energy and forward dynamics say how to pump; when the latter say that a linear-quadratic
regulator would hold the robot upright, it does. `examples/cart_pole.py` is a shorter version.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy

import delan
from delan.robots.mujoco_robot import mujoco

PERIOD = 0.02  # of the control [s]


class Task(NamedTuple):
    """The motor's joint, its largest torque, where to stand, and the gains of the pumping.

    `share` weighs the speed of the motor's joint against the energy that is lacking, `stiffness`
    its position, and `damping` is the rate at which their sum falls.
    """

    motor: int
    limit: float
    upright: tuple[float, ...]
    share: float
    stiffness: float
    damping: float


def apart(model, task, q, qd):
    """Return the state relative to upright; whole turns do not count."""
    away = q - jnp.array(task.upright)
    turned = jnp.remainder(away + jnp.pi, 2 * jnp.pi) - jnp.pi
    return jnp.concatenate([jnp.where(model.joints.sliding, away, turned), qd])


def pumping(model, task, q, qd):
    """Let V = ½ lack² + ½ share q̇² + ½ stiffness q² fall by damping q̇² (Fantoni, Lozano, 2000).

    q is the position of the motor's joint, and lack the energy above that of standing, which
    changes by q̇ τ: the robot swings higher until it passes upright, with its motor at rest. If
    the share is less than twice the energy of standing over the gain, the torque may reach its
    limit on the way.
    """
    motor, upright = task.motor, jnp.array(task.upright)
    lack = model.energy(q, qd).total - model.energy(upright, jnp.zeros(2)).total
    drift = model.forward_dynamics(q, qd, jnp.zeros(2))[motor]
    gain = model.forward_dynamics(q, qd, jnp.eye(2)[motor])[motor] - drift
    wanted = task.damping * qd[motor] + task.stiffness * (q - upright)[motor] + task.share * drift
    return -wanted / (task.share * gain + lack)


def regulator(model, task):
    """Return the gains of a linear-quadratic regulator, from the derivatives of the model.

    It is that of a torque held for a period: where a motor moves little mass, as in an acrobot, the
    gains of a continuous torque would throw the robot over within two periods.
    """
    still = jnp.zeros(2)
    by_q, by_tau = jax.jacfwd(model.forward_dynamics, (0, 2))(jnp.array(task.upright), still, still)
    rates = np.zeros((5, 5))
    rates[:2, 2:4] = np.eye(2)
    rates[2:4, :2] = by_q
    rates[2:4, 4] = np.array(by_tau)[:, task.motor]
    after = scipy.linalg.expm(PERIOD * rates)
    a, b = after[:4, :4], after[:4, 4:]
    effort = np.eye(1) / task.limit**2
    value = scipy.linalg.solve_discrete_are(a, b, np.diag([10.0, 10.0, 1.0, 1.0]), effort)
    return jnp.array(np.linalg.solve(effort + b.T @ value @ b, b.T @ value @ a)[0])


@eqx.filter_jit
def command(model, task, gains, q, qd):
    """Return the torques: those of the regulator if it would hold, else those that pump."""

    def limited(torque):
        return jnp.eye(2)[task.motor] * jnp.clip(torque, -task.limit, task.limit)

    def held(state, _):
        tau = jnp.tile(limited(-gains @ apart(model, task, *state)), (2, 1))
        q, qd = state
        q, qd = delan.rollout(model.forward_dynamics, q, qd, tau, jnp.array([0.0, PERIOD]))
        return (q[-1], qd[-1]), None

    end, _ = jax.lax.scan(held, (q, qd), length=150)
    holds = jnp.linalg.norm(apart(model, task, *end)) < 0.1
    regulated = -gains @ apart(model, task, q, qd)
    return limited(jnp.where(holds, regulated, pumping(model, task, q, qd)))


def swing_up(model, task, robot, start, seconds=20.0):
    """Drive a robot; return the time from which on it stands for two seconds, or None."""
    data = mujoco.MjData(robot)
    data.qpos[:] = start
    gains = regulator(model, task)
    since = None
    while data.time < seconds:
        state = jnp.array(data.qpos), jnp.array(data.qvel)
        stands = float(jnp.linalg.norm(apart(model, task, *state))) < 0.2
        since = (since or data.time) if stands else None
        if since and data.time - since > 2:
            return since
        data.qfrc_applied[:] = np.array(command(model, task, gains, *state))
        mujoco.mj_step(robot, data, nstep=round(PERIOD / robot.opt.timestep))
    return None
