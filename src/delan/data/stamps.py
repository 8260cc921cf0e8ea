"""Time stamps: their unit told from the size of their steps, where that is certain, and seconds made of them."""

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from .formats.sheet import Sheet

_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
_FROM_EPOCH = (1e9, 4e9)
"""Seconds since 1970 in the years of robots' logs."""

_STEPS = (("s", 0.0, 1.0), ("ms", 1.0, 50.0), ("µs", 200.0, 5e4), ("ns", 2e5, 1e9))
"""Steps that only one unit makes the sampling period of a robot; what lies between could be two."""

_FAR = 1e8
"""Times so far from zero [s] are counted from an epoch, and begin with zero here."""

_HEAD = 1000


class Clock:
    """Turns the stamps of a sheet into seconds: its unit and its zero are found once, from the first rows."""

    def __init__(self, sheet: Sheet, column: str, unit: float | None):
        head = next(iter(sheet.pieces([column], _HEAD)), {column: np.zeros(0)})[column]
        stamps = whole_or_float(sheet.source, column, head)
        self._unit = unit_of(sheet.source, column, stamps) if unit is None else unit
        sound = stamps[np.isfinite(stamps)]
        first = sound[0] if len(sound) else 0
        far = abs(float(first)) * self._unit >= _FAR
        self._zero = first if far or self._unit != 1.0 else 0

    def seconds(self, source: str, column: str, values: np.ndarray) -> Float[np.ndarray, " time"]:
        stamps = whole_or_float(source, column, values)
        with np.errstate(over="ignore", invalid="ignore"):
            return (stamps - self._zero).astype(np.float64) * self._unit


def unit_of(source: str, column: str, stamps: np.ndarray) -> float:
    """Seconds in one unit of these stamps; asks where their steps do not tell."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(stamps).astype(np.float64)
    steps = steps[np.isfinite(steps) & (steps > 0)]
    if not len(steps):
        return 1.0  # one row, or times that do not run: the checks will say so
    step, level = float(np.median(steps)), abs(float(np.median(stamps.astype(np.float64))))
    for unit in _UNITS.values():
        if _FROM_EPOCH[0] <= level * unit <= _FROM_EPOCH[1] and 1e-5 <= step * unit < 1.0:
            return unit
    counted = bool(np.all(steps == 1.0))
    for name, low, high in _STEPS:
        if low <= step < high and not counted:
            return _UNITS[name]
    what = "counts the rows, or is in ms" if counted else "could be in more than one unit"
    problem = f"a step of {step:.6g} {what}; give --time-scale, the seconds in one unit (0.001 for ms), or --rate"
    raise DataError(source, problem, column=column)


def whole_or_float(source: str, column: str, values: np.ndarray) -> np.ndarray:
    """As float64; whole numbers too large for it stay whole, so that no stamp loses its end."""
    if values.dtype.kind not in "fiu":
        problem = (
            f"expected real numbers, got an array of type {values.dtype}; write it as numbers, or map another column"
        )
        raise DataError(source, problem, column=column)
    if values.dtype.kind in "iu" and values.size:
        largest = max(abs(int(values.max())), abs(int(values.min())))
        if 2**53 <= largest < 2**62:
            return values.astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float64)
