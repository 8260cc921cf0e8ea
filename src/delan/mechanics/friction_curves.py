"""Friction curves for NumPy and JAX arrays, as torques that the motor has to overcome.

Each curve has the sign of the velocity: with a weight ≥ 0 it dissipates power.
"""

from typing import Any


def smooth_sign(v: Any, width: Any) -> Any:
    """Return unit Coulomb friction, tanh(v / w).

    The width w [rad/s or m/s] keeps the torque smooth at standstill; with a hard sign it would
    chatter.
    """
    return v.__array_namespace__().tanh(v / width)


def halves(step: Any) -> tuple[Any, Any]:
    """Split a step by direction of motion, into max(step, 0) and min(step, 0)."""
    array = step.__array_namespace__()
    return array.maximum(step, 0), array.minimum(step, 0)


def stribeck(speed: Any, coulomb: Any, static: Any, stribeck_speed: Any) -> Any:
    """Return the dry friction F = F_c + (F_s − F_c) exp(−(q̇ / v_s)²) [N m or N]."""
    array = speed.__array_namespace__()
    return coulomb + (static - coulomb) * array.exp(-((speed / stribeck_speed) ** 2))


def stribeck_bump(v: Any, width: Any, stribeck_speed: Any) -> Any:
    """Return unit static friction in excess of Coulomb, tanh(v / w) exp(−(v / v_s)²)."""
    return smooth_sign(v, width) * stribeck(v, 0.0, 1.0, stribeck_speed)


def stop(state: Any, motion: Any, radius: Any) -> Any:
    """Return the stop operator s' = clip(s + Δq, ±r), a spring that slides at stretch r [rad or m].

    s' Δq ≥ ½ s'² − ½ s² for every Δq: it returns only energy that it has stored (Visintin 1994).
    """
    stretched = state + motion
    return stretched.__array_namespace__().clip(stretched, -radius, radius)


def load_friction(load: Any, share: Any, step: Any) -> Any:
    """Return the load-dependent friction of gears and bearings, μ |τ_c| step(v) [N m or N]."""
    return share * load.__array_namespace__().abs(load) * step


def without_load_friction(tau: Any, share: Any, step: Any) -> Any:
    """Return the load τ_c with τ_c + `load_friction` = τ; for |μ| < 1 both have the same sign."""
    return tau / (1 + share * step * tau.__array_namespace__().sign(tau))
