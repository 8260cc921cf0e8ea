"""Conversion of sheets to recordings: columns gathered, units and signs converted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ..errors import DataError
from ..joints import COMPONENTS, Joints, Recording
from .columns import ColumnLayout, find_columns
from .formats.sheet import Sheet
from .options import QUANTITIES, LogOptions
from .segments import usual_step

_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}

# Seconds since 1970 between 2001 and 2096, when robot logs are written.
_SINCE_1970 = (1e9, 4e9)

# Ranges of the step in which only one unit gives the sampling period of a robot. Steps between the
# ranges could be in two units, and the user is asked.
_STEPS = (("s", 0.0, 1.0), ("ms", 1.0, 50.0), ("µs", 200.0, 5e4), ("ns", 2e5, 1e9))

# Times this far from zero [s] count from an epoch; they are shifted to start at zero.
_FAR = 1e8

# Rows from which the unit and origin of the time are derived.
_FIRST_ROWS = 1000

_RATES = ("q", "qd", "qdd")


class TimeBase:
    """Unit and origin of the time stamps of a sheet, derived from its first rows."""

    def __init__(self, sheet: Sheet, column: str, unit: float | None):
        """Read the first rows of the sheet; `unit` is in seconds, None derives it."""
        first_rows = next(iter(sheet.pieces([column], _FIRST_ROWS)), {column: np.zeros(0)})
        stamps = whole_or_float(sheet.source, column, first_rows[column])
        if unit is None:
            unit = unit_of(sheet.source, column, stamps)
        self._unit = unit
        self._zero = 0
        finite = stamps[np.isfinite(stamps)]
        if len(finite) and (unit != 1.0 or abs(float(finite[0])) * unit >= _FAR):
            self._zero = finite[0]

    def seconds(self, source: str, column: str, values: np.ndarray) -> Float[np.ndarray, " time"]:
        """Return time stamps as seconds."""
        stamps = whole_or_float(source, column, values)
        with np.errstate(over="ignore", invalid="ignore"):
            return (stamps - self._zero).astype(np.float64) * self._unit


def unit_of(source: str, column: str, stamps: np.ndarray) -> float:
    """Return the unit of time stamps in seconds; refuse those whose steps fit several units."""
    step = usual_step(stamps)
    if not step:
        return 1.0  # a single row, or time that does not increase, which is refused later
    level = abs(float(np.median(stamps.astype(np.float64))))
    for unit in _UNITS.values():
        if _SINCE_1970[0] <= level * unit <= _SINCE_1970[1] and 1e-5 <= step * unit < 1.0:
            return unit
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(stamps).astype(np.float64)
    counted = bool(np.all(steps[np.isfinite(steps) & (steps > 0)] == 1.0))
    for name, low, high in _STEPS:
        if low <= step < high and not counted:
            return _UNITS[name]
    reason = "counts the rows, or is in ms" if counted else "could be in more than one unit"
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


class TrajectoryLabels:
    """Trajectory labels across sheets: a single sheet keeps its labels, others are renumbered."""

    def __init__(self, *, keep: bool):
        self._keep = keep
        self._numbers: dict[tuple[int, int], int] = {}
        self._sheet = -1

    def next_sheet(self) -> None:
        """Begin a sheet; equal labels of two sheets are different trajectories."""
        self._sheet += 1

    def number(self, labels: Int[np.ndarray, " time"]) -> Int[np.ndarray, " time"]:
        """Return the labels of rows of the current sheet as unique labels of the recording."""
        if self._keep:
            return labels
        unique, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        for label in unique[np.argsort(first)].tolist():
            self._numbers.setdefault((self._sheet, label), len(self._numbers))
        numbers = [self._numbers[self._sheet, label] for label in unique.tolist()]
        return np.array(numbers, dtype=int)[inverse]


@dataclass(frozen=True)
class _Conversion:
    """Which joints of a sheet are used, and the factor of each quantity, per joint."""

    numbers: tuple[int, ...]
    joints: Joints
    factors: Mapping[str, np.ndarray]


def recordings_of(
    sheet: Sheet, options: LogOptions, rows: int, labels: TrajectoryLabels
) -> Iterator[Recording]:
    """Yield the recording in a sheet, at most `rows` rows at a time."""
    layout = find_columns(sheet, options)
    conversion = _conversion(sheet.source, layout, options)
    base = None
    if layout.time is not None:
        unit = layout.unit if options.time_scale is None else options.time_scale
        base = TimeBase(sheet, layout.time, unit)
    labels.next_sheet()
    done = 0
    for piece in sheet.pieces(layout.wanted, rows):
        lengths = {name: len(values) for name, values in piece.items()}
        length = min(lengths.values())
        if max(lengths.values()) != length:
            short = min(lengths, key=lengths.__getitem__)
            problem = "ends before the other columns; cut them to one length"
            raise DataError(sheet.source, problem, column=short)
        if not length:
            continue
        if base is None or layout.time is None:
            t = np.arange(done, done + length) / float(options.rate or 1.0)
        else:
            t = base.seconds(sheet.source, layout.time, piece[layout.time])
        trajectory = np.zeros(length, dtype=int)
        if layout.trajectory is not None:
            column = piece[layout.trajectory]
            trajectory = _whole_labels(sheet.source, layout.trajectory, column, done)
        columns = _columns(sheet.source, layout, conversion, piece)
        yield Recording(
            t=t,
            q=columns["q"],
            tau=columns["tau"],
            qd=columns.get("qd"),
            qdd=columns.get("qdd"),
            trajectory=labels.number(trajectory),
            truth={name: columns[name] for name in COMPONENTS if name in columns},
            joints=conversion.joints,
            source=sheet.source,
        )
        done += length
    if not done:
        raise DataError(sheet.source, "holds no rows; record some motion")


def _columns(
    source: str, layout: ColumnLayout, conversion: _Conversion, piece: Mapping[str, np.ndarray]
) -> dict[str, Float[np.ndarray, "time dof"]]:
    """Return each quantity of the chosen joints in SI units."""
    columns = {}
    for quantity, names in layout.places.items():
        arrays = []
        for name in names:
            arrays.append(whole_or_float(source, name, piece[name]).astype(np.float64, copy=False))
        values = arrays[0] if arrays[0].ndim == 2 else np.stack(arrays, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            columns[quantity] = values[:, conversion.numbers] * conversion.factors[quantity]
    return columns


def _conversion(source: str, layout: ColumnLayout, options: LogOptions) -> _Conversion:
    numbers = list(range(layout.joints.dof))
    if options.joints is not None:
        numbers = _joint_numbers(source, "--joints", options.joints, layout.joints)
    joints = layout.joints.pick(numbers)
    factors = {name: np.ones(joints.dof) for name in QUANTITIES}
    for quantity in _RATES:
        if options.degrees or quantity in layout.degrees:
            factors[quantity] = np.where(joints.turning, np.pi / 180, 1.0)
    if options.gain is not None:
        if len(options.gain) not in (1, joints.dof):
            problem = (
                f"--gain gives {len(options.gain)} numbers for {joints.dof} joints; "
                "give one number, or one per joint"
            )
            raise DataError(source, problem)
        factors["tau"] = factors["tau"] * np.array(options.gain)
    for quantity, flipped in options.flip.items():
        chosen = numbers
        if flipped != "all":
            chosen = _joint_numbers(source, "--flip", flipped, layout.joints)
        sign = np.where(np.isin(numbers, chosen), -1.0, 1.0)
        for name in _RATES if quantity == "q" else ("tau", *COMPONENTS):
            factors[name] = factors[name] * sign
    return _Conversion(tuple(numbers), joints, factors)


def _joint_numbers(
    source: str, option: str, chosen: tuple[int | str, ...], joints: Joints
) -> list[int]:
    """Return the numbers in the log of joints given by name or number."""
    numbers = []
    for joint in chosen:
        if isinstance(joint, str) and joint in joints.names:
            numbers.append(joints.names.index(joint))
        elif isinstance(joint, int) and joint < joints.dof:
            numbers.append(joint)
        else:
            known = ", ".join(f"{i} {name}" for i, name in enumerate(joints.names))
            raise DataError(source, f"{option}: there is no joint {joint!r}; the log has {known}")
    if len(set(numbers)) < len(numbers):
        given = ", ".join(map(str, chosen))
        raise DataError(source, f"{option}: {given} name a joint twice; give each joint once")
    return numbers


def _whole_labels(
    source: str, column: str, values: np.ndarray, done: int
) -> Int[np.ndarray, " time"]:
    """Return trajectory labels as integers; `done` rows of the sheet come before them."""
    labels = np.zeros(len(values), dtype=int)
    wrong = np.arange(len(values))
    if values.dtype.kind in "fiu":
        with np.errstate(invalid="ignore"):
            labels = values.astype(int)
        wrong = np.flatnonzero(labels != values)
    if len(wrong):
        row = int(wrong[0])
        problem = (
            f"expected whole-number labels, got {values[row]!s}; "
            "number the trajectories 0, 1, …, or leave the column out by --map trajectory="
        )
        raise DataError(source, problem, column=column, row=done + row)
    return labels
