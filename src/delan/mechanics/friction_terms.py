"""Friction terms: their curves, their weights, and when those keep friction passive.

Each curve is a torque that the motor has to overcome and has the sign of the velocity: with a
weight of at least 0 it dissipates power. Springs and cables depend on the position instead: their
curves are slopes of an energy that they store, and dissipate nothing. Curves take NumPy and JAX
arrays.

To add a term, name it in `Term` and describe it in `TERMS`: its curves, the columns that it adds to
a regressor, when its weights must not be negative, and whether motor pairs have it. Settings,
bounds, regressors, training and storage read that table. Three modules name the terms that they
support: `deploy/layout.py` writes them in C, `learning/friction_search.py` tries them, and
`identification/identify.py` lists those of a linear regression.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np


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


Term = Literal[
    "armature",
    "viscous",
    "coulomb",
    "asymmetric",
    "stribeck",
    "offset",
    "load",
    "stops",
    "spring",
    "periodic",
]

# Harmonics of the torque of cables in a turning joint.
HARMONICS = 2


class MotorMotion(NamedTuple):
    """What the curves of friction depend on; the last axis of the arrays is that of the motors.

    Attributes:
        v: speed of the motors [rad/s or m/s].
        width, step: width w of the Coulomb step [rad/s or m/s], and the step tanh(v/w).
        log_stribeck_speed: ln v_s, with v_s in [rad/s or m/s].
        stops: s/r of each stop operator.
        dof: number of motors that drive a single joint; pairs follow them.
    """

    v: Any
    width: Any
    step: Any
    log_stribeck_speed: Any
    stops: Sequence[Any]
    dof: int


def _zero(motion: MotorMotion) -> Sequence[Any]:
    return [motion.v.__array_namespace__().zeros_like(motion.v)]


def _constant(motion: MotorMotion) -> Sequence[Any]:
    of_joint = np.arange(motion.v.shape[-1]) < motion.dof
    return [motion.v.__array_namespace__().zeros_like(motion.v) + of_joint]


def _stribeck(motion: MotorMotion) -> Sequence[Any]:
    speed = motion.v.__array_namespace__().exp(motion.log_stribeck_speed)
    return [stribeck_bump(motion.v, motion.width, speed)]


def _spring(q: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    return [q], [q**2 / 2]


def _periodic(q: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    array = q.__array_namespace__()
    torques = []
    energies = []
    for harmonic in range(1, HARMONICS + 1):
        torques += [array.cos(harmonic * q), array.sin(harmonic * q)]
        energies += [array.sin(harmonic * q) / harmonic, -array.cos(harmonic * q) / harmonic]
    return torques, energies


def _harmonic_names(_: Sequence[float]) -> tuple[str, ...]:
    names = []
    for harmonic in range(1, HARMONICS + 1):
        names += [f"cos {harmonic}q", f"sin {harmonic}q"]
    return tuple(names)


@dataclass(frozen=True)
class FrictionLaw:
    """A term of the friction torque.

    Attributes:
        curves: φ of each column; its weight times φ is the torque at the motor.
        columns: names of the columns, from the radii of the stop operators; None for a single
            column with the name of the term.
        non_negative: when the weights must be ≥ 0; `if passive` is for terms that dissipate energy
            with such weights and supply it with others.
        pairs: whether a motor that drives two joints has this term; otherwise its curve is zero
            there.
        potential: for a term that stores energy, its torques and energies per unit of each weight
            at a position of the motor; its curves above are zero.
        turning: whether only turning joints have the term.
    """

    curves: Callable[[MotorMotion], Sequence[Any]]
    columns: Callable[[Sequence[float]], tuple[str, ...]] | None = None
    non_negative: Literal["always", "if passive", "never"] = "if passive"
    pairs: bool = True
    potential: Callable[[Any], tuple[Sequence[Any], Sequence[Any]]] | None = None
    turning: bool = False

    def bounded(self, passive: bool) -> bool:
        """Return whether the weights must be ≥ 0."""
        return self.non_negative == "always" or (passive and self.non_negative != "never")


TERMS: dict[Term, FrictionLaw] = {
    # I q̈ of the rotors. It depends on the acceleration, so `Friction.armature` has it.
    "armature": FrictionLaw(_zero, non_negative="always"),
    # d v
    "viscous": FrictionLaw(lambda motion: [motion.v]),
    # F_c tanh(v/w)
    "coulomb": FrictionLaw(lambda motion: [motion.step]),
    # F₊ max(tanh(v/w), 0) + F₋ min(tanh(v/w), 0)
    "asymmetric": FrictionLaw(
        lambda motion: halves(motion.step), columns=lambda _: ("coulomb+", "coulomb-")
    ),
    # (F_s − F_c) tanh(v/w) exp(−(v/v_s)²), what static friction adds to Coulomb's.
    "stribeck": FrictionLaw(_stribeck),
    # A constant torque, such as that of a spring or of a sensor's zero; its sign is free.
    "offset": FrictionLaw(_constant, non_negative="never", pairs=False),
    # μ |τ_c| tanh(v/w). It depends on the torque of the links, so `Friction.torque` has it.
    "load": FrictionLaw(_zero, pairs=False),
    # Σ_r F_r s_r/r, where a stop operator s_r is a spring that slides at the stretch r.
    "stops": FrictionLaw(
        lambda motion: motion.stops,
        columns=lambda radii: tuple(f"stop {radius:g}" for radius in radii),
    ),
    # k q of a spring at a joint or, at a pair, between joints; its rest position is in the offsets.
    "spring": FrictionLaw(_zero, non_negative="always", potential=_spring),
    # a cos q + b sin q + c cos 2q + d sin 2q, the torque of cables along a turning joint.
    "periodic": FrictionLaw(
        lambda motion: 2 * HARMONICS * list(_zero(motion)),
        columns=_harmonic_names,
        non_negative="never",
        pairs=False,
        potential=_periodic,
        turning=True,
    ),
}
