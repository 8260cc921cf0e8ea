"""Friction as a torque that the motor must bring up: the curves it is made of, of numpy and JAX arrays alike.

Each curve has the sign of the velocity, so that with a weight ≥ 0 it takes power and never gives any.
"""

from typing import Any


def smooth_sign(v: Any, width: Any) -> Any:
    """Coulomb friction of size one, tanh(v / w).

    The width w [rad/s or m/s] of the step at standstill keeps the torque smooth; a hard sign would make it chatter.
    """
    return v.__array_namespace__().tanh(v / width)


def halves(step: Any) -> tuple[Any, Any]:
    """The parts of a step that belong to forward and to backward motion, max(step, 0) and min(step, 0)."""
    array = step.__array_namespace__()
    return array.maximum(step, 0), array.minimum(step, 0)


def stribeck(speed: Any, coulomb: Any, static: Any, stribeck_speed: Any) -> Any:
    """The dry friction that a joint moving at |q̇| opposes [N m or N]: static at rest, falling to Coulomb with speed.

    F = F_c + (F_s − F_c) exp(−(q̇ / v_s)²).
    """
    array = speed.__array_namespace__()
    return coulomb + (static - coulomb) * array.exp(-((speed / stribeck_speed) ** 2))


def stribeck_bump(v: Any, width: Any, stribeck_speed: Any) -> Any:
    """What static friction of size one adds to Coulomb friction, tanh(v / w) exp(−(v / v_s)²)."""
    return smooth_sign(v, width) * stribeck(v, 0.0, 1.0, stribeck_speed)


def stop(state: Any, motion: Any, radius: Any) -> Any:
    """The stop operator s' = clip(s + Δq, ±r): a spring that slides once it is stretched by r [rad or m].

    Stepped so, s' Δq ≥ ½ s'² − ½ s² for every Δq: what it gives back it had stored (Visintin 1994).
    """
    stretched = state + motion
    return stretched.__array_namespace__().clip(stretched, -radius, radius)


def load_friction(load: Any, share: Any, step: Any) -> Any:
    """Friction of gears and bearings that grows with what they carry, μ |τ_c| step(v) [N m or N]."""
    return share * load.__array_namespace__().abs(load) * step


def without_load_friction(tau: Any, share: Any, step: Any) -> Any:
    """The load τ_c of which τ_c + `load_friction` is τ; |μ| < 1, so that both have one sign."""
    return tau / (1 + share * step * tau.__array_namespace__().sign(tau))
