"""A few rows of a log as numbers, by which its motion is known again without keeping it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt64

from ..joints import Recording

KEPT = 64
"""Rows that a sketch keeps, evenly over the log."""
LARGEST = 100_000
"""Rows that are mixed at once, so that a large log takes little room beside itself."""


def sketch(recording: Recording) -> list[str]:
    """Marks of some rows of the recording, in hexadecimal digits."""
    rows = np.unique(np.linspace(0, len(recording.t) - 1, KEPT).astype(int))
    return [f"{mark:016x}" for mark in _marks(recording.q[rows], recording.tau[rows])]


def share_in(marks: Sequence[str], recording: Recording) -> float:
    """The share of the rows behind a sketch that a recording holds, bit for bit; 0 of an empty sketch."""
    wanted = np.array([int(mark, 16) for mark in marks], dtype=np.uint64)
    found = np.zeros(len(wanted), dtype=bool)
    for first in range(0, len(recording.t), LARGEST):
        part = slice(first, first + LARGEST)
        found |= np.isin(wanted, _marks(recording.q[part], recording.tau[part]))
    return float(found.mean()) if len(found) else 0.0


def _marks(q: Float[np.ndarray, "rows dof"], tau: Float[np.ndarray, "rows dof"]) -> UInt64[np.ndarray, " rows"]:
    """A number for the positions and torques of each row, the same for the same row only."""
    numbers = np.concatenate([q, tau], axis=1, dtype=float) + 0.0  # −0 and 0 are the same number
    bits = np.ascontiguousarray(numbers).view(np.uint64)
    odd = 2 * np.random.default_rng(0).integers(1 << 62, size=bits.shape[1], dtype=np.uint64) + np.uint64(1)
    mixed = bits * odd  # modulo 2⁶⁴
    return ((mixed ^ (mixed >> np.uint64(32))) * odd[::-1]).sum(axis=1, dtype=np.uint64)
