"""Reading of logs: files of any known format become recordings, whole or in bounded memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os.path import isdir  # unlike those of a Path, false for names that no file can have
from pathlib import Path

import numpy as np
from jaxtyping import Int

from ..errors import DataError, SettingsError
from ..joints import COMPONENTS, Recording
from ..log_rows import FileRows
from .both_sides import both_sides
from .columns import ColumnLayout, find_columns
from .conversion import conversion_of
from .excerpts import ExcerptBuilder, LogPart, copied_rows, joined_parts, single_parts
from .formats import JSON_SUFFIX, KNOWN_FORMS, Sheet, is_log, is_log_folder, open_log
from .join import open_sheets
from .option_text import stored_options, with_stored
from .options import LogOptions
from .recording_file import torque_source_of
from .segments import require_sound
from .time_stamps import time_stamps

# Rows read at once: some tens of MB for a robot of seven joints.
_ROWS = 200_000

Paths = str | Path | Sequence[str | Path]


def read_log(paths: Paths, options: LogOptions | None = None, *, sound: bool = True) -> Recording:
    """Return the recording in a log, in several logs, or in a folder of them.

    CSV, Parquet, npz, MAT, HDF5 and ROS 2 bags are recognised by content, not by name. Each file is
    one trajectory, or as many as its labels or groups say. Data that a fit cannot use is refused;
    with `sound=False` it is returned as it is, with NaN for empty cells of a table. Of a log larger
    than `options.memory` evenly spaced segments are returned, and `Recording.excerpt` says which.
    Options in a file beside a log (`arm.csv.toml`, or `log.toml` for a folder) count where
    `options` says nothing else.
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


def is_converted(paths: Paths) -> bool:
    """Return whether all logs were written by delan, in SI units and with its own names."""
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    for path in given:
        for file in log_files(Path(path)):
            if any(sheet.provenance is None for sheet in open_log(file, LogOptions())):
                return False
    return True


def says_how_to_read(paths: Sequence[str | Path]) -> bool:
    """Return whether options lie beside any of the logs, or delan wrote all of them."""
    for path in paths:
        if any(stored_options(file) is not None for file in log_files(Path(path))):
            return True
    return is_converted(paths)


def log_files(path: Path) -> list[Path]:
    """Return the path itself, or the logs in a folder in the order of their names."""
    if not isdir(path) or is_log_folder(path):
        return [path]
    try:
        inside = sorted(path.iterdir())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; give a readable folder"
        raise DataError(str(path), problem) from None
    visible = [file for file in inside if not file.name.startswith(".")]
    logs = list(filter(is_log, visible))
    if not logs:
        logs = [file for file in visible if file.suffix.lower() == JSON_SUFFIX]
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
        own = with_stored(file, options)
        sheets = open_sheets(file, own, gaps=gaps)
        labels = labels or TrajectoryLabels(keep=len(files) == len(sheets) == 1)
        for sheet in sheets:
            for piece in recordings_of(sheet, own, rows, labels):
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
    conversion = conversion_of(sheet.source, layout, options)
    stamps = time_stamps(sheet, layout.time, layout.unit, options)
    cut = _TimeCut(options)
    labels.next_sheet()
    done = 0
    for piece in sheet.pieces(layout.wanted, rows):
        length = _common_length(sheet.source, layout, piece)
        if not length:
            continue
        piece = {name: values[:length] for name, values in piece.items()}
        trajectory = np.zeros(length, dtype=int)
        if layout.trajectory is not None:
            column = piece[layout.trajectory]
            trajectory = _whole_labels(sheet.source, layout.trajectory, column, done)
        columns, joints = both_sides(
            conversion.columns(piece), conversion.joints, conversion.stiffness, sheet.source
        )
        recording = Recording(
            t=stamps.seconds(piece, done, length),
            q=columns["q"],
            tau=columns["tau"],
            qd=columns.get("qd"),
            qdd=columns.get("qdd"),
            trajectory=labels.number(trajectory),
            truth={name: columns[name] for name in COMPONENTS if name in columns},
            joints=joints,
            source=sheet.source,
            torque_source=torque_source_of(sheet, layout.torque.source),
            gains=conversion.gains(piece),
        )
        used = cut.of(recording, done)
        done += length
        if used is not None:
            yield used
    if not done:
        raise DataError(sheet.source, "holds no rows; record some motion")
    cut.require_rows(sheet.source)


def _common_length(source: str, layout: ColumnLayout, piece: Mapping[str, np.ndarray]) -> int:
    """Return the rows that all columns of a piece have; only commands may lack the last one."""
    lengths = {name: len(values) for name, values in piece.items()}
    length = min(lengths.values())
    allowed = 1 if layout.torque.source == "commands" else 0
    if max(lengths.values()) - length > allowed:
        short = min(lengths, key=lengths.__getitem__)
        problem = "ends before the other columns; cut them to one length"
        raise DataError(source, problem, column=short)
    return length


class _TimeCut:
    """The rows between two times, in seconds since the first row of a sheet."""

    def __init__(self, options: LogOptions):
        self._start = options.start
        self._end = options.end
        self._first: float | None = None
        self._last = 0.0
        self._rows = 0

    def of(self, recording: Recording, row: int) -> Recording | None:
        """Return the rows of the next piece that are used, None if none is.

        The piece begins with this row of the file.
        """
        if self._start is None and self._end is None:
            self._rows += len(recording.t)
            return recording
        finite = recording.t[np.isfinite(recording.t)]
        if self._first is None and len(finite):
            self._first = float(finite[0])
        since = recording.t - (self._first or 0.0)
        if len(finite):
            self._last = float(finite[-1]) - (self._first or 0.0)
        inside = np.ones(len(since), dtype=bool)
        if self._start is not None:
            inside &= since >= self._start
        if self._end is not None:
            inside &= since < self._end
        self._rows += int(inside.sum())
        if not inside.any():
            return None
        first = FileRows(recording.source, 0, row + int(np.argmax(inside)))
        return replace(recording.rows(inside), files=(first,))

    def require_rows(self, source: str) -> None:
        """Refuse a cut that leaves nothing."""
        if not self._rows:
            problem = f"no row is between --from and --to; the log lasts {self._last:.6g} s"
            raise DataError(source, problem)


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
