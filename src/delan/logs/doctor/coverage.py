"""Check of excitation and coverage: how far, fast and often each joint moves, and where."""

from itertools import combinations

import numpy as np
from jaxtyping import Float

from ...joints import JointLimits, Joints
from . import cases
from .finding import Finding
from .motion import Columns, Motion

# Over less than this [rad or m], gravity and inertia look constant, and every model fits.
SMALL_RANGE = {"revolute": 0.1, "continuous": 0.1, "prismatic": 0.01}
# Friction is visible where a joint passes in both directions.
FEWEST_REVERSALS = 1
# A reversal follows a motion of at least this share of the joint's range, so that noise is none.
REVERSAL = 0.02
# Number of cells into which each joint's range is divided.
CELLS = 10


def examine_coverage(
    columns: Columns,
    motion: Motion | None,
    joints: Joints,
    limits: JointLimits | None,
    dead: frozenset[int],
) -> list[Finding]:
    """Report excitation and coverage, with warnings where a joint moves too little to learn."""
    alive = [joint for joint in range(joints.dof) if joint not in dead]
    q = columns["q"]
    findings = []
    if motion is not None:
        findings = [_excitation(q[:, joint], motion, joints, joint) for joint in alive]
    if limits is not None:
        findings += _range_coverage(q, limits, alive)
    if len(alive) > 1:
        findings.append(_pair_coverage(q, alive))
    return findings


def reversals(q: Float[np.ndarray, " samples"], least: float) -> int:
    """Count how often a position reverses after moving at least this far."""
    count = 0
    direction = 0
    low = float(q[0])
    high = float(q[0])
    for value in q.tolist():
        if direction >= 0 and value < high - least:
            count += direction > 0
            direction = -1
            low = value
        elif direction <= 0 and value > low + least:
            count += direction < 0
            direction = 1
            high = value
        low = min(low, value)
        high = max(high, value)
    return count


def _excitation(
    q: Float[np.ndarray, " time"], motion: Motion, joints: Joints, joint: int
) -> Finding:
    distance = float(np.ptp(q))
    count = 0
    for rows in motion.segments:
        count += reversals(motion.q[rows, joint], REVERSAL * distance)
    wanted = []
    if distance < SMALL_RANGE[joints.kinds[joint]]:
        wanted.append("farther")
    if count < FEWEST_REVERSALS:
        wanted.append("back and forth")
    measured = {
        "range": distance,
        "velocity": float(np.abs(motion.velocity[:, joint]).max()),
        "acceleration": float(np.abs(motion.acceleration[:, joint]).max()),
        "unit": joints.units[joint].q,
        "reversals": count,
        "wanted": tuple(wanted),
    }
    if wanted:
        return Finding(cases.TOO_LITTLE_EXCITATION, "warning", joint, "q", measured)
    return Finding(cases.EXCITATION, "note", joint, "q", measured)


def _range_coverage(
    q: Float[np.ndarray, "time dof"], limits: JointLimits, alive: list[int]
) -> list[Finding]:
    """Report the share of each joint's allowed range that the log visits."""
    findings = []
    for joint in alive:
        allowed = float(limits.upper[joint] - limits.lower[joint])
        if not (np.isfinite(allowed) and allowed > 0):
            continue
        low = float(q[:, joint].min())
        high = float(q[:, joint].max())
        measured = {"share": (high - low) / allowed, "lowest": low, "highest": high}
        findings.append(Finding(cases.RANGE_COVERAGE, "note", joint, "q", measured))
    return findings


def _pair_coverage(q: Float[np.ndarray, "time dof"], alive: list[int]) -> Finding:
    """Report the share of cells that the log visits in the planes of all pairs of joints."""
    low = q.min(axis=0)
    size = np.maximum(q.max(axis=0) - low, 1e-300)
    cell = np.minimum(((q - low) / size * CELLS).astype(int), CELLS - 1)
    shares = {}
    for first, second in combinations(alive, 2):
        visited = np.unique(CELLS * cell[:, first] + cell[:, second])
        shares[first, second] = len(visited) / CELLS**2
    first, second = min(shares, key=lambda pair: shares[pair])
    measured = {
        "median": float(np.median(list(shares.values()))),
        "least": shares[first, second],
        "first": first,
        "second": second,
    }
    return Finding(cases.PAIR_COVERAGE, "note", measured=measured)
