"""Bounds of friction and springs at all speeds and in a box of positions, in closed form."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..models.friction import MOST_LOAD, Friction
from .bounds import ROUNDING

# Weights of friction that would give power, or make a robot unstable, if they were negative.
NEVER_NEGATIVE = ("viscous", "load", "armature", "spring")


class FrictionBound(NamedTuple):
    """Bounds on the friction without load, and on the share of the load that friction adds."""

    torque: Float[np.ndarray, " dof"]
    share: Float[np.ndarray, " dof"]


def friction_bound(friction: Friction | None, speed: Float[np.ndarray, " dof"]) -> FrictionBound:
    """Return bounds on friction at all |q̇| ≤ speed, with and without memory.

    Every curve of a term but `viscous` lies between −1 and 1. Springs and cables are not friction:
    `spring_bound` has them.
    """
    if friction is None:
        return FrictionBound(np.zeros_like(speed), np.zeros_like(speed))
    turn = np.abs(friction.transmission)
    motor = np.zeros(len(turn))
    share = np.zeros(len(speed))
    directed = np.zeros((2, len(turn)))
    storing = _storing_columns(friction)
    for name, row in friction.named.items():
        size = np.abs(np.asarray(row, dtype=float))
        if name == "armature" or name in storing:
            continue
        if name == "load":
            share = np.minimum(size[: len(speed)], MOST_LOAD)
        elif name == "offset":
            motor[: len(speed)] += size[: len(speed)]
        elif name == "viscous":
            motor += size * (turn @ speed)
        elif name in ("coulomb+", "coulomb-"):
            directed[int(name == "coulomb-")] = size
        else:
            motor += size
    motor += directed.max(axis=0)
    return FrictionBound(turn.T @ motor * (1 + ROUNDING), share)


def _storing_columns(friction: Friction) -> set[str]:
    """Return the names of the weights of springs and cables."""
    laws = friction.settings.laws
    return {name for name, law in laws if law.potential is not None}


def spring_bound(
    friction: Friction | None,
    lower: Float[np.ndarray, " dof"],
    upper: Float[np.ndarray, " dof"],
) -> Float[np.ndarray, " dof"]:
    """Return bounds on the torque against springs and cables at all positions in a box."""
    if friction is None or not friction.settings.stores_energy:
        return np.zeros_like(lower)
    turn = np.abs(friction.transmission)
    motor = np.zeros(len(turn))
    for name, row in friction.named.items():
        size = np.abs(np.asarray(row, dtype=float))
        if name == "spring":
            motor += size * (turn @ np.maximum(np.abs(lower), np.abs(upper)))
        elif name in _storing_columns(friction):
            motor[: len(lower)] += size[: len(lower)]
    return turn.T @ motor * (1 + ROUNDING)


def driving_friction(friction: Friction | None) -> str | None:
    """Return the motor and the reason for which friction may give power; None if it never does.

    Of a motor at the speed v > 0 the friction d v + t (C + B e) takes power, offsets aside, where
    t = tanh(v/w) and e = exp(−(v/v_s)²) lie between 0 and 1. Because v ≥ w t, it does so at every
    speed if d, d w + C and d w + C + B are not negative; v < 0 is alike. A stop operator gives back
    what it stored, and load friction takes a share of any load, if their weights are not negative.
    """
    if friction is None:
        return None
    named = {name: np.asarray(row, dtype=float) for name, row in friction.named.items()}
    acting = dict(zip(friction.columns, friction.acting, strict=True))
    width = np.exp(np.asarray(friction.log_width, dtype=float))
    stribeck_speed = np.exp(np.asarray(friction.log_stribeck_speed, dtype=float))
    rest = np.zeros_like(width)
    viscous = named.get("viscous", rest)
    stops = rest
    for name, row in named.items():
        must_not_be_negative = name in NEVER_NEGATIVE or name.startswith("stop ")
        bad = acting[name] & ~(row >= 0)
        if must_not_be_negative and bad.any():
            at = int(np.argmax(bad))
            return f"the {name} weight {row[at]:.3g} of {friction.motors[at]}"
        if name.startswith("stop "):
            stops = stops + row
    for widths, name in ((width, "width"), (stribeck_speed, "Stribeck speed")):
        if not (np.isfinite(widths) & (widths > 0)).all():
            return f"a {name} of the curves that is not positive and finite"
    bump = named.get("stribeck", rest)
    for direction in ("coulomb+", "coulomb-"):
        # Slid operators count as Coulomb friction where the memory is unknown.
        step = named.get("coulomb", rest) + named.get(direction, rest)
        for slid in (rest, stops):
            least = viscous * width + step + slid + np.minimum(bump, 0)
            if not (least >= 0).all():
                at = int(np.argmin(least >= 0))
                return f"dry friction of {least[at]:.3g} at {friction.motors[at]}"
    return None
