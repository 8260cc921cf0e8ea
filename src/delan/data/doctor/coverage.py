"""What the motion visits: how far, how fast and how often each joint goes, and how much of the workspace is seen."""

from itertools import combinations

import numpy as np
from jaxtyping import Float

from ...joints import JointLimits, Joints
from .finding import Finding, plural
from .levels import Columns
from .motion import Motion

SMALL_RANGE = {"revolute": 0.1, "continuous": 0.1, "prismatic": 0.01}
"""Over less than this [rad or m] gravity and inertia look constant, and every model fits."""
FEWEST_REVERSALS = 1
"""Friction shows where a joint passes in both directions."""
REVERSAL = 0.02
"""A reversal is a turn after moving at least this share of the joint's range: noise is none."""
CELLS = 10
"""Each joint's range is cut into so many cells."""


def examine_coverage(
    columns: Columns, motion: Motion | None, joints: Joints, limits: JointLimits | None, silent: frozenset[int]
) -> list[Finding]:
    """Notes on excitation and coverage, and warnings where a joint does too little to learn from."""
    alive = [joint for joint in range(joints.dof) if joint not in silent]
    found = [_excitation(columns, motion, joints, joint) for joint in alive if motion is not None]
    return found + _coverage(columns["q"], joints, limits, alive)


def reversals(q: Float[np.ndarray, " samples"], least: float) -> int:
    """How often a position turns around after moving at least so far."""
    count, direction, low, high = 0, 0, float(q[0]), float(q[0])
    for value in q.tolist():
        if direction >= 0 and value < high - least:
            count, direction, low = count + (direction > 0), -1, value
        elif direction <= 0 and value > low + least:
            count, direction, high = count + (direction < 0), 1, value
        low, high = min(low, value), max(high, value)
    return count


def _excitation(columns: Columns, motion: Motion, joints: Joints, joint: int) -> Finding:
    q = columns["q"][:, joint]
    unit = "m" if joints.kinds[joint] == "prismatic" else "rad"
    distance = float(np.ptp(q))
    turns = sum(reversals(motion.q[rows, joint], REVERSAL * distance) for rows in motion.stretches)
    speed, push = (float(np.abs(values[:, joint]).max()) for values in (motion.speed, motion.acceleration))
    small = distance < SMALL_RANGE[joints.kinds[joint]]
    few = turns < FEWEST_REVERSALS
    told = f"{distance:.3g} {unit}, up to {speed:.3g} {unit}/s and {push:.3g} {unit}/s²"
    told += f", {plural(turns, 'reversal')}"
    wanted = [word for word, wrong in (("further", small), ("to and fro", few)) if wrong]
    return Finding(
        kind="excitation",
        severity="warning" if wanted else "note",
        joint=joint,
        column="q",
        text=told + (f": too little, it should move {' and '.join(wanted)}" if wanted else ""),
        remedy="record motions made for it (`delan references excitation`)" if wanted else "nothing",
    )


def _coverage(
    q: Float[np.ndarray, "time dof"], joints: Joints, limits: JointLimits | None, alive: list[int]
) -> list[Finding]:
    """The share of cells visited: of each joint's allowed range, and of the planes of all pairs of joints."""
    if not alive:
        return []
    low, high = q.min(axis=0), q.max(axis=0)
    found = []
    if limits is not None:
        allowed = np.isfinite(limits.lower) & np.isfinite(limits.upper) & (limits.upper > limits.lower)
        for joint in (joint for joint in alive if allowed[joint]):
            share = (high[joint] - low[joint]) / (limits.upper[joint] - limits.lower[joint])
            found.append(
                Finding(
                    kind="coverage",
                    severity="note",
                    joint=joint,
                    column="q",
                    text=f"uses {share:.0%} of its range, {low[joint]:.3g} to {high[joint]:.3g}",
                    remedy="nothing, if the robot will work there; else record where it will",
                )
            )
    if len(alive) > 1:
        place = np.minimum(((q - low) / np.maximum(high - low, 1e-300) * CELLS).astype(int), CELLS - 1)
        shares = {
            (a, b): len(np.unique(CELLS * place[:, a] + place[:, b])) / CELLS**2 for a, b in combinations(alive, 2)
        }
        (a, b), least = min(shares.items(), key=lambda item: item[1])
        middle = float(np.median(list(shares.values())))
        text = f"inside the ranges used, pairs of joints visit {middle:.0%} of their cells (median)"
        text += f"; the least, joints {a} and {b}, {least:.0%}" if len(shares) > 1 else ""
        found.append(
            Finding(
                kind="coverage",
                severity="note",
                text=text,
                remedy="nothing, if the robot will work there; else vary how joints move together",
            )
        )
    return found
