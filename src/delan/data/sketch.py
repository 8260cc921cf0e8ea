"""Some rows of a log, by which its motion is known again without keeping it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from ..joints import Recording

KEPT = 128
"""Rows that a sketch keeps, evenly over what moves in the log."""
DIGITS = 7
"""of their numbers."""
ALIKE = 1e-3
"""Rows are the same if no number differs by more than this share of its spread, as numbers written in short do."""
LARGEST = 100_000
"""Rows that are looked through at once, so that a large log takes little room beside itself."""


def sketch(recording: Recording) -> dict[str, Any]:
    """How many rows the recording has, and positions and torques of some of them, as plain numbers."""
    numbers, moves = _numbers(recording, slice(None)), np.flatnonzero(_moving(recording))
    rows = moves[np.unique(np.linspace(0, len(moves) - 1, KEPT).astype(int))]
    return {
        "rows": len(recording.t),
        "kept": [[float(f"{number:.{DIGITS}g}") for number in row] for row in numbers[rows].tolist()],
    }


def share_known(known: Mapping[str, Any], recording: Recording) -> float:
    """About which share of a recording's rows are those of the log behind a sketch."""
    kept = np.asarray(known["kept"], dtype=float)
    if kept.ndim != 2 or kept.shape[1] != 2 * recording.joints.dof or not np.isfinite(kept).all():
        raise ValueError(f"a sketch of {recording.joints.dof} joints has rows of twice as many numbers")
    spread = kept.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    found = np.zeros(len(kept), dtype=bool)
    for first in range(0, len(recording.t), LARGEST):
        numbers = _numbers(recording, slice(first, first + LARGEST))
        numbers = numbers[np.isfinite(numbers).all(axis=1)]
        if len(numbers):
            away, _ = KDTree(numbers / spread).query(kept / spread, p=np.inf, distance_upper_bound=ALIKE)
            found |= np.isfinite(away)
    return float(min(1.0, found.mean() * known["rows"] / len(recording.t)))


def _numbers(recording: Recording, rows: slice) -> Float[np.ndarray, "rows numbers"]:
    return np.concatenate([recording.q[rows], recording.tau[rows]], axis=1, dtype=float)


def _moving(recording: Recording) -> Bool[np.ndarray, " rows"]:
    """Rows that move no less than most; at rest, other logs of the robot are alike."""
    spread = recording.q.std(axis=0)
    steps = np.abs(np.gradient(recording.q, axis=0) / np.where(spread > 0, spread, 1.0)).max(axis=1)
    return steps >= np.median(steps)
