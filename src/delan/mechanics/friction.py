"""Joint friction as a torque that the motor must bring up, of numpy and JAX arrays alike."""

from typing import Any


def coulomb_viscous(qd: Any, coulomb: Any, viscous: Any, offset: Any, width: Any) -> Any:
    """Friction torque F_c tanh(q̇ / w) + F_v q̇ + τ₀ [N m or N].

    The width w [rad/s or m/s] of the step at standstill keeps the torque smooth; a hard sign would make it chatter.
    """
    array = qd.__array_namespace__()
    return coulomb * array.tanh(qd / width) + viscous * qd + offset


def stribeck(speed: Any, coulomb: Any, static: Any, stribeck_speed: Any) -> Any:
    """The dry friction that a joint moving at |q̇| opposes [N m or N]: static at rest, falling to Coulomb with speed.

    F = F_c + (F_s − F_c) exp(−(q̇ / v_s)²).
    """
    array = speed.__array_namespace__()
    return coulomb + (static - coulomb) * array.exp(-((speed / stribeck_speed) ** 2))
