"""Reading of logs: files of any known format become recordings, whole or in bounded memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import isdir  # unlike those of a Path, false for names that no file can have
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from ..errors import DataError, SettingsError
from ..joints import COMPONENTS, Joints, Recording
from .columns import ColumnLayout, find_columns
from .excerpts import ExcerptBuilder, LogPart, copied_rows, joined_parts, single_parts
from .formats import KNOWN_FORMS, Sheet, is_bag_folder, is_log, open_log
from .options import QUANTITIES, LogOptions
from .segments import require_sound, usual_step

# Rows read at once: some tens of MB for a robot of seven joints.
_ROWS = 200_000

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

# Quantities that change their sign together.
_RATES = ("q", "qd", "qdd")
_TORQUES = ("tau", *COMPONENTS)

Paths = str | Path | Sequence[str | Path]


def read_log(paths: Paths, options: LogOptions | None = None, *, sound: bool = True) -> Recording:
    """Return the recording in a log, in several logs, or in a folder of them.

    CSV, Parquet, npz, MAT, HDF5 and ROS 2 bags are recognised by content, not by name. Each file is
    one trajectory, or as many as its labels or groups say. Data that a fit cannot use is refused;
    with `sound=False` it is returned as it is, with NaN for empty cells of a table. Of a log larger
    than `options.memory` evenly spaced segments are returned, and `Recording.excerpt` says which.
    """
    options = options or LogOptions()
    builder = ExcerptBuilder(options.most_bytes)
    for part in log_parts(paths, options, sound=sound):
        if part.is_whole:
            return part.recording
        builder.add(part)
        del part  # frees its memory before the next part is read
    recording = builder.recording()
    if sound:
        require_sound(recording)
    return recording


def log_parts(paths: Paths, options: LogOptions, *, sound: bool = True) -> Iterator[LogPart]:
    """Yield all rows of a log in parts of at most `options.memory`; `sound` checks each part."""
    pieces = _pieces(paths, options, _ROWS, gaps=not sound)
    parts = joined_parts(pieces, options.most_bytes)
    return _sound_parts(parts) if sound else parts


def stream_log(
    paths: Paths, options: LogOptions | None = None, *, rows: int = _ROWS, sound: bool = True
) -> Iterator[Recording]:
    """Yield the rows of `read_log` in pieces of at most `rows` rows, one in memory at a time.

    A long trajectory continues over several pieces with the same label. Each piece is checked by
    itself, and its first time against the last of the piece before.
    """
    if rows < 1:
        raise SettingsError(f"rows must be at least 1, got {rows}")
    parts = single_parts(_pieces(paths, options or LogOptions(), rows, gaps=not sound))
    for part in _sound_parts(parts) if sound else parts:
        yield part.recording


def log_files(path: Path) -> list[Path]:
    """Return the path itself, or the logs in a folder in the order of their names."""
    if not isdir(path) or is_bag_folder(path):
        return [path]
    try:
        inside = sorted(path.iterdir())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; give a readable folder"
        raise DataError(str(path), problem) from None
    logs = [file for file in inside if not file.name.startswith(".") and is_log(file)]
    if not logs:
        raise DataError(str(path), f"is a folder without logs; {KNOWN_FORMS}")
    return logs


def _sound_parts(parts: Iterator[LogPart]) -> Iterator[LogPart]:
    """Refuse parts that a fit cannot use, or between which time does not increase."""
    last_t = -np.inf
    for part in parts:
        part.require_sound()
        t = part.recording.t
        if part.continues and not t[0] > last_t:
            problem = f"time does not increase: {t[0]} s after {last_t} s; sort the rows"
            source, _, row = part.files[0]
            raise DataError(source, problem, column="t", row=row)
        last_t = float(t[-1])
        yield part
        del part, t  # frees its memory before the next part is read


def _pieces(paths: Paths, options: LogOptions, rows: int, *, gaps: bool) -> Iterator[Recording]:
    """Yield all files as recordings of at most `rows` rows; refuse files that do not match."""
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise SettingsError("no log was given; give at least one file or folder")
    files: list[Path] = []
    for path in given:
        files += log_files(Path(path))
    labels = None
    first = None
    for file in files:
        sheets = open_log(file, options, gaps=gaps)
        labels = labels or TrajectoryLabels(keep=len(files) == len(sheets) == 1)
        for sheet in sheets:
            for piece in recordings_of(sheet, options, rows, labels):
                # One row has all that is compared.
                first = first or copied_rows(piece, slice(0, 1))
                _require_alike(first, piece)
                yield piece


def _require_alike(first: Recording, other: Recording) -> None:
    """Refuse logs of different robots, or with different quantities."""
    if first.joints != other.joints:
        problem = (
            f"has joints {', '.join(other.joints.names)}, "
            f"{first.source} has {', '.join(first.joints.names)}; "
            "read the logs separately, or choose the same joints by --joints"
        )
        raise DataError(other.source, problem)
    for name in sorted(first.columns.keys() ^ other.columns.keys()):
        difference = f"has no {name}, {first.source} has it"
        if name in other.columns:
            difference = f"has {name}, {first.source} has none"
        problem = f"{difference}; leave it out by --map {name}=, or read the logs separately"
        raise DataError(other.source, problem)


def recordings_of(
    sheet: Sheet, options: LogOptions, rows: int, labels: "TrajectoryLabels"
) -> Iterator[Recording]:
    """Yield the recording in a sheet, at most `rows` rows at a time."""
    layout = find_columns(sheet, options)
    conversion = _conversion(sheet.source, layout, options)
    time = _TimeBase(sheet, layout, options)
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
        trajectory = np.zeros(length, dtype=int)
        if layout.trajectory is not None:
            column = piece[layout.trajectory]
            trajectory = _whole_labels(sheet.source, layout.trajectory, column, done)
        columns = conversion.columns(piece)
        yield Recording(
            t=time.seconds(piece, done, length),
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
        numbers = np.empty_like(unique)
        for place in np.argsort(first):
            label = (self._sheet, int(unique[place]))
            numbers[place] = self._numbers.setdefault(label, len(self._numbers))
        return numbers[inverse]


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


class _TimeBase:
    """Unit and origin of the time stamps of a sheet, derived from its first rows."""

    def __init__(self, sheet: Sheet, layout: ColumnLayout, options: LogOptions):
        self._source = sheet.source
        self._column = layout.time
        self._rate = options.rate
        self._unit = options.time_scale or layout.unit
        self._zero = 0
        if self._column is None:
            return
        first_rows = next(iter(sheet.pieces([self._column], _FIRST_ROWS)), None)
        if first_rows is None:
            return
        stamps = _whole_or_float(self._source, self._column, first_rows[self._column])
        if self._unit is None:
            self._unit = _unit_of(self._source, self._column, stamps)
        finite = stamps[np.isfinite(stamps)]
        if len(finite) and (self._unit != 1.0 or abs(float(finite[0])) * self._unit >= _FAR):
            self._zero = finite[0]

    def seconds(
        self, piece: Mapping[str, np.ndarray], done: int, length: int
    ) -> Float[np.ndarray, " time"]:
        """Return the times [s] of a piece of `length` rows, before which `done` rows come."""
        if self._column is None:
            return np.arange(done, done + length) / float(self._rate or 1.0)
        stamps = _whole_or_float(self._source, self._column, piece[self._column])
        with np.errstate(over="ignore", invalid="ignore"):
            return (stamps - self._zero).astype(np.float64) * (self._unit or 1.0)


def _unit_of(source: str, column: str, stamps: np.ndarray) -> float:
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
    reason = "could be in more than one unit"
    if np.all(steps[np.isfinite(steps) & (steps > 0)] == 1.0):
        reason = "counts the rows, or is in ms"
    else:
        for name, low, high in _STEPS:
            if low <= step < high:
                return _UNITS[name]
    problem = (
        f"a step of {step:.6g} {reason}; give --time-scale, the seconds in one unit "
        "(0.001 for ms), or --rate"
    )
    raise DataError(source, problem, column=column)


def _whole_or_float(source: str, column: str, values: np.ndarray) -> np.ndarray:
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


@dataclass(frozen=True)
class _Conversion:
    """Which joints of a sheet are used, and the factor of each quantity, per joint."""

    source: str
    layout: ColumnLayout
    numbers: tuple[int, ...]
    joints: Joints
    factors: Mapping[str, np.ndarray]

    def columns(self, piece: Mapping[str, np.ndarray]) -> dict[str, Float[np.ndarray, "time dof"]]:
        """Return each quantity of the chosen joints in SI units."""
        columns = {}
        for quantity, names in self.layout.places.items():
            arrays = []
            for name in names:
                values = _whole_or_float(self.source, name, piece[name])
                arrays.append(values.astype(np.float64, copy=False))
            # Columns of single joints lie side by side; an array holds all joints already.
            table = arrays[0]
            if table.ndim == 1:
                table = np.stack(arrays, axis=1)
            with np.errstate(over="ignore", invalid="ignore"):
                columns[quantity] = table[:, self.numbers] * self.factors[quantity]
        return columns


def _conversion(source: str, layout: ColumnLayout, options: LogOptions) -> _Conversion:
    numbers = list(range(layout.joints.dof))
    if options.joints is not None:
        numbers = _joint_numbers(source, "--joints", options.joints, layout.joints)
    joints = layout.joints.pick(numbers)
    if options.sliding is not None:
        slides = _joint_numbers(source, "--sliding", options.sliding, joints)
        kinds = list(joints.kinds)
        for joint in slides:
            kinds[joint] = "prismatic"
        joints = replace(joints, kinds=tuple(kinds))
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
        for name in _RATES if quantity == "q" else _TORQUES:
            factors[name] = factors[name] * sign
    return _Conversion(source, layout, tuple(numbers), joints, factors)


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
