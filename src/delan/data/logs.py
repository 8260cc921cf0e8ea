"""The door for logs: files of any known form become recordings, whole or piece by piece in bounded memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, SettingsError
from ..joints import Recording
from .checks import require_sound
from .formats.opening import log_files, open_log
from .log_options import LogOptions
from .log_pieces import Labels, pieces_of

_ROWS = 200_000

Paths = str | Path | Sequence[str | Path]


def read_log(paths: Paths, options: LogOptions | None = None, *, sound: bool = True) -> Recording:
    """The recording in a log, in several, or in a folder of them: CSV, Parquet, npz, MAT, HDF5 or ROS 2 bags.

    The form is told by content, not by name. Each file is a trajectory, or as many as it tells apart. What a fit
    cannot use is refused; with `sound=False` it is handed out as it is, empty cells of a table as not a number.
    """
    columns: dict[str, _Growing] = {}
    ends: dict[str, int] = {}
    first, rows = None, 0
    for piece in _pieces(paths, options or LogOptions(), _ROWS, gaps=not sound):
        first = first or replace(piece, **_cut(piece, 0, 1))
        for name, values in _columns(piece).items():
            columns.setdefault(name, _Growing(values)).add(values)
        rows += len(piece.t)
        ends[piece.source] = rows
    assert first is not None  # a log without rows is refused
    joined = {name: growing.whole() for name, growing in columns.items()}
    truth = {name: joined.pop(name) for name in first.truth}
    whole = replace(first, **joined, truth=truth)
    if len(ends) == 1:
        return require_sound(whole) if sound else whole
    if sound:
        starts = [0, *ends.values()]
        for source, start, end in zip(ends, starts, starts[1:], strict=False):
            require_sound(replace(whole, **_cut(whole, start, end), source=source))
    whole = replace(whole, source=f"{first.source} and {len(ends) - 1} more")
    return require_sound(whole) if sound else whole


def stream_log(
    paths: Paths, options: LogOptions | None = None, *, rows: int = _ROWS, sound: bool = True
) -> Iterator[Recording]:
    """The same as `read_log`, in pieces of at most so many rows; memory holds one piece at a time.

    A long trajectory goes on over pieces with the same label. Each piece is checked by itself, and its time to run on
    from the piece before.
    """
    if rows < 1:
        raise SettingsError(f"rows must be at least 1, got {rows}")
    begun: dict[str, int] = {}
    last: tuple[str, int, float] | None = None
    for piece in _pieces(paths, options or LogOptions(), rows, gaps=not sound):
        source, row = piece.source, begun.get(piece.source, 0)
        begun[source] = row + len(piece.t)
        told = replace(piece, source=f"{source} from row {row}") if row else piece
        if sound:
            require_sound(told)
            if last is not None and last[:2] == (source, int(piece.trajectory[0])) and not piece.t[0] > last[2]:
                problem = f"time does not run forward: {piece.t[0]} s after {last[2]} s; sort the rows"
                raise DataError(source, problem, column="t", row=row)
        last = (source, int(piece.trajectory[-1]), float(piece.t[-1]))
        yield piece


def _pieces(paths: Paths, options: LogOptions, rows: int, *, gaps: bool) -> Iterator[Recording]:
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise SettingsError("no log was given; give at least one file or folder")
    files = [file for path in given for file in log_files(Path(path))]
    mapped = {quantity: options.patterns(quantity) or () for quantity in options.map}
    labels = None
    first: _Told | None = None
    for file in files:
        sheets = open_log(file, mapped=mapped, gaps=gaps)
        labels = labels or Labels(keep=len(files) == len(sheets) == 1)
        for sheet in sheets:
            for piece in pieces_of(sheet, options, rows, labels):
                told = _Told(piece)
                first = first or told
                _require_alike(first, told)
                yield piece


class _Told:
    """What a piece tells, without its numbers."""

    def __init__(self, piece: Recording):
        self.source, self.joints = piece.source, piece.joints
        self.quantities = {name for name in ("qd", "qdd") if getattr(piece, name) is not None} | set(piece.truth)


def _require_alike(first: _Told, other: _Told) -> None:
    """Logs read together are of one robot and tell the same of it."""
    if first.joints != other.joints:
        told = f"has joints {', '.join(other.joints.names)}, {first.source} has {', '.join(first.joints.names)}"
        raise DataError(other.source, f"{told}; read them apart, or pick the same by --joints")
    for name in sorted(first.quantities ^ other.quantities):
        here, there = ("", "none") if name in other.quantities else ("no ", "it")
        told = f"has {here}{name}, {first.source} has {there}"
        raise DataError(other.source, f"{told}; leave it out by --map {name}=, or read them apart")


class _Growing:
    """An array that grows in place at its end: pieces of a log joined without ever holding it twice."""

    def __init__(self, like: np.ndarray):
        self._array = np.empty((0, *like.shape[1:]), like.dtype)
        self._rows = 0

    def add(self, values: np.ndarray) -> None:
        end = self._rows + len(values)
        if end > len(self._array):
            self._array.resize((end + end // 8 if self._rows else end, *values.shape[1:]), refcheck=False)
        self._array[self._rows : end] = values
        self._rows = end

    def whole(self) -> np.ndarray:
        self._array.resize((self._rows, *self._array.shape[1:]), refcheck=False)
        return self._array


def _columns(piece: Recording) -> dict[str, np.ndarray]:
    columns = {name: getattr(piece, name) for name in ("t", "q", "qd", "qdd", "tau", "trajectory")}
    return {name: values for name, values in {**columns, **piece.truth}.items() if values is not None}


def _cut(recording: Recording, start: int, end: int) -> dict[str, Any]:
    """The fields of a recording between two rows."""
    cut = {name: values[start:end] for name, values in _columns(recording).items()}
    truth = {name: cut.pop(name) for name in recording.truth}
    return {**cut, "truth": truth}
