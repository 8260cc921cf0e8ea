"""Time stamps of a log: their column, their unit, and where they begin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from .column_names import measures, parse_name
from .formats import Sheet
from .options import LogOptions
from .segments import usual_step

UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}

# Seconds since 1970 between 2001 and 2096, when robot logs are written.
_SINCE_1970 = (1e9, 4e9)

# Ranges of the step in which only one unit gives the sampling period of a robot. Steps between the
# ranges could be in two units, and the user is asked.
_STEPS = (("s", 0.0, 1.0), ("ms", 1.0, 50.0), ("µs", 200.0, 5e4), ("ns", 2e5, 1e9))

# Times this far from zero [s] count from an epoch; they are shifted to start at zero.
_FAR = 1e8

# Rows from which the unit and origin of the time are derived.
_FIRST_ROWS = 1000


@dataclass(frozen=True)
class TimeStamps:
    """How the stamps of a sheet become seconds.

    Attributes:
        source: the log, for messages.
        column: the column of the stamps, None if the rows are counted.
        unit: unit of the stamps, or of a row [s].
        zero: the stamp that becomes zero.
    """

    source: str
    column: str | None
    unit: float
    zero: Any = 0

    def seconds(
        self, piece: Mapping[str, np.ndarray], done: int, length: int
    ) -> Float[np.ndarray, " time"]:
        """Return the times [s] of a piece of `length` rows, before which `done` rows come."""
        if self.column is None:
            return np.arange(done, done + length) * self.unit
        stamps = whole_or_float(self.source, self.column, piece[self.column])
        with np.errstate(over="ignore", invalid="ignore"):
            return (stamps - self.zero).astype(np.float64) * self.unit


def time_stamps(
    sheet: Sheet, column: str | None, unit: float | None, options: LogOptions
) -> TimeStamps:
    """Return how the stamps in a column become seconds; `unit` is given if its name says it."""
    if column is None:
        return TimeStamps(sheet.source, None, 1 / float(options.rate or 1.0))
    unit = options.time_scale or unit
    first_rows = next(iter(sheet.pieces([column], _FIRST_ROWS)), None)
    if first_rows is None:
        return TimeStamps(sheet.source, column, unit or 1.0)
    stamps = whole_or_float(sheet.source, column, first_rows[column])
    if unit is None:
        unit = _unit_of(sheet.source, column, stamps)
    finite = stamps[np.isfinite(stamps)]
    zero = 0
    if len(finite) and (unit != 1.0 or abs(float(finite[0])) * unit >= _FAR):
        zero = finite[0]
    return TimeStamps(sheet.source, column, unit, zero)


def time_column(sheet: Sheet, options: LogOptions) -> str | None:
    """Return the only column of a sheet that holds times: as mapped, or by its name."""
    mapped = options.patterns("t")
    if mapped:
        return next((name for name in mapped if name in sheet.fields), None)
    names = []
    for name, known in sheet.fields.items():
        if measures(name) == "t" and len(known.shape) == 1:
            names.append(name)
    if "t" in names:
        return "t"
    return names[0] if len(names) == 1 else None


def named_unit(sheet: Sheet, column: str) -> float | None:
    """Return the unit of a column of times in seconds, if its format or name says it."""
    unit = sheet.fields[column].unit
    parsed = parse_name(column)
    if unit is None and parsed is not None and parsed.quantity == "t":
        unit = parsed.unit
    return unit


def _unit_of(source: str, column: str, stamps: np.ndarray) -> float:
    """Return the unit of time stamps in seconds; refuse those whose steps fit several units."""
    step = usual_step(stamps)
    if not step:
        return 1.0  # a single row, or time that does not increase, which is refused later
    level = abs(float(np.median(stamps.astype(np.float64))))
    for unit in UNITS.values():
        if _SINCE_1970[0] <= level * unit <= _SINCE_1970[1] and 1e-5 <= step * unit < 1.0:
            return unit
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(stamps).astype(np.float64)
    reason = "could be in more than one unit"
    if np.all(steps[np.isfinite(steps) & (steps > 0)] == 1.0):
        reason = "counts the rows, or is in ms"
    else:
        for name, low, high in _STEPS:
            if low <= step < high:
                return UNITS[name]
    problem = (
        f"a step of {step:.6g} {reason}; give --time-scale, the seconds in one unit "
        "(0.001 for ms), or --rate"
    )
    raise DataError(source, problem, column=column)


def whole_or_float(source: str, column: str, values: np.ndarray) -> np.ndarray:
    """Return values as float64, or as int64 where float64 would round them."""
    if values.dtype.kind not in "fiu":
        problem = (
            f"expected real numbers, got an array of type {values.dtype}; "
            "write it as numbers, or map another column"
        )
        raise DataError(source, problem, column=column)
    if values.dtype.kind in "iu" and values.size:
        largest = max(abs(int(values.max())), abs(int(values.min())))
        if 2**53 <= largest < 2**62:
            return values.astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float64)
