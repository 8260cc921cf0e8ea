"""Columns under each other's names: velocities that stand where positions should, or torques."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from jaxtyping import Float

from ..stretches import Stretch
from .agreement import FOLLOWS, RATIO_SEEN, Agreement, compare
from .finding import Finding, plural
from .levels import Columns
from .motion import filtered

NAMES = ("q", "qd", "tau")
MUCH_BETTER = 0.5
"""Another order must leave at most this share of what the logged one leaves unexplained."""


@dataclass(frozen=True)
class Exchange:
    """What was found, and under which name of the log each quantity stands."""

    finding: Finding
    names: dict[str, str]


def examine_exchange(
    t: Float[np.ndarray, " time"], columns: Columns, stretches: tuple[Stretch, ...]
) -> Exchange | None:
    """Of positions, velocities and torques, only velocities are another's derivative: that tells which is which.

    Units and signs are judged elsewhere, so another order is believed only where it needs neither: in more than half of
    the joints one column is the derivative of another to the last factor, and in none velocities are that of positions.
    """
    if not all(name in columns for name in NAMES):
        return None
    logged = []
    for joint, one in enumerate(_compared(t, columns, stretches, ("q", "qd"))):
        if one is not None and _belongs(one):
            return None
        logged.append((joint, one))
    for order in permutations(NAMES):
        if order[:2] == ("q", "qd"):
            continue
        other = _compared(t, columns, stretches, order[:2])
        better = [joint for (joint, now), then in zip(logged, other, strict=True) if _better(then, now)]
        if 2 * len(better) > len(logged):
            return Exchange(_told(order, len(better), len(logged)), dict(zip(NAMES, order, strict=True)))
    return None


def _compared(
    t: np.ndarray, columns: Columns, stretches: tuple[Stretch, ...], pair: tuple[str, ...]
) -> Iterator[Agreement | None]:
    """For each joint, the second column against the derivative of the first, one after another: of a log in order
    the first joint tells enough."""
    place, speed = (columns[name] for name in pair)
    motion = filtered(t, {"q": place, "qd": speed}, stretches)
    for joint in range(place.shape[1]):
        yield None if motion is None else compare(motion, motion.speed, "qd", joint)


def _belongs(one: Agreement) -> bool:
    return one.explained > FOLLOWS and 1 / RATIO_SEEN < one.ratio < RATIO_SEEN


def _better(then: Agreement | None, now: Agreement | None) -> bool:
    if then is None or not _belongs(then):
        return False
    return now is None or 1 - then.explained < MUCH_BETTER * (1 - now.explained)


def _told(order: tuple[str, ...], joints: int, dof: int) -> Finding:
    place, speed, _ = order
    moved = [(name, real) for name, real in zip(NAMES, order, strict=True) if name != real]
    *first, last = (name for name, _ in moved)
    arrays = " ".join(f"--map {name}={real}" for name, real in moved)
    columns = " ".join(f"--map '{name}={real}{{0-{dof - 1}}}'" for name, real in moved)
    return Finding(
        kind="exchanged",
        severity="error",
        text=f"{', '.join(first)} and {last} look exchanged: {speed} is the derivative of {place} in {joints} of "
        f"{plural(dof, 'joint')}, and in none is qd that of q; all else is told of the log with them put right",
        remedy=f"read the log with {arrays}, or, if each joint has its own column, {columns}; with the names of your "
        "log",
    )
