"""Joints without a motor, and the size of torques that are zero.

The torque of a joint without a motor is zero in every row of a log. That is not a missing column
but an equation of motion: inertia, gravity and friction of this joint balance. Its errors need a
size to be compared with, which the column itself does not have.
"""

import numpy as np
from jaxtyping import Bool, Float

from ..joints import nonzero_scale

Rows = Float[np.ndarray, "rows dof"]


def unactuated(tau: Rows) -> Bool[np.ndarray, " dof"]:
    """Return which joints have no motor: zero torque in every row, while another joint has some."""
    idle = np.all(tau == 0, axis=0)
    return np.logical_and(idle, not idle.all())


def natural_torque(qd: Rows, tau: Rows) -> Float[np.ndarray, " dof"]:
    """Return the torque that has the motors' power at the usual speed of each joint [N m or N].

    √⟨(Σ τ_i q̇_i)²⟩ / √⟨q̇_k²⟩: motors drive the other joints by the same energy, so that forces of
    this size act there, whatever the units of a joint are. Zero for a joint that stands still.
    """
    power = np.sqrt(np.mean(np.sum(tau * qd, axis=1) ** 2))
    speed = np.sqrt(np.mean(qd**2, axis=0))
    return np.divide(power, speed, out=np.zeros_like(speed), where=speed > 0)


def torque_scale(qd: Rows, tau: Rows) -> Float[np.ndarray, " dof"]:
    """Return the standard deviation of each torque, to divide errors by.

    At a joint without a motor it is the natural torque, and 1 where nothing varies.
    """
    return _with_natural(tau.std(axis=0), natural_torque(qd, tau), tau)


def torque_variance(qd: Rows, tau: Rows) -> Float[np.ndarray, " dof"]:
    """Return the variance of each torque, to divide squared errors by, as in `torque_scale`."""
    return _with_natural(tau.var(axis=0), natural_torque(qd, tau) ** 2, tau)


def _with_natural(size: np.ndarray, natural: np.ndarray, tau: Rows) -> Float[np.ndarray, " dof"]:
    return nonzero_scale(np.where(unactuated(tau), natural, size))
