"""Pieces of a log joined to parts that memory may hold; a log that fits is one part."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import DataError
from ..joints import Recording
from .checks import require_sound

FEWEST_PIECES = 4
"""make a part, so that parts come near the size they may have."""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a log that follow each other.

    Attributes:
        recording: the rows.
        files: for each file, or group in one, its name, its first row here, and that row's number there.
        first: number of the first row in the log.
        goes_on: whether the first row goes on with the last trajectory of the part before.
        last: whether no part follows.
    """

    recording: Recording
    files: tuple[tuple[str, int, int], ...]
    first: int
    goes_on: bool
    last: bool

    def require_sound(self) -> None:
        """Refuse what a fit cannot use: file by file, and then of all together."""
        whole = self.recording
        ends = [*(start for _, start, _ in self.files[1:]), len(whole.t)]
        for (source, start, row), end in zip(self.files, ends, strict=True):
            told = f"{source} from row {row}" if row else source
            require_sound(replace(whole, **rows_between(whole, start, end), source=told))
        if len(self.files) > 1:
            require_sound(whole)


def parts_of(pieces: Iterator[Recording], most: float) -> Iterator[Part]:
    """The pieces joined to parts of at most so many bytes; where more than one is needed, the others have half of it.

    For what is kept of the first parts takes room beside the others.
    """
    joined, read, begun, room = _Joined(), 0, dict[str, int](), most
    last: tuple[str, int] | None = None
    for piece in _small(pieces, most / FEWEST_PIECES):
        if joined.rows and joined.bytes + bytes_of(piece) > room:
            yield joined.taken(last=False)
            room = most / 2
        if not joined.rows:
            joined.first, joined.goes_on = read, last == (piece.source, int(piece.trajectory[0]))
        joined.add(piece, begun.get(piece.source, 0))
        begun[piece.source] = begun.get(piece.source, 0) + len(piece.t)
        read += len(piece.t)
        last = (piece.source, int(piece.trajectory[-1]))
    yield joined.taken(last=True)


def _small(pieces: Iterator[Recording], most: float) -> Iterator[Recording]:
    """The pieces, cut where one has more bytes."""
    for piece in pieces:
        count = len(piece.t)
        rows = count if bytes_of(piece) <= most else max(1, int(most / bytes_of(piece) * count))
        for start in range(0, count, rows):
            yield replace(piece, **rows_between(piece, start, start + rows)) if rows < count else piece


class Seam:
    """Where a piece ended, to see that the next goes on from there."""

    def __init__(self) -> None:
        self._last: tuple[str, int, float] | None = None

    def require_onward(self, source: str, row: int, piece: Recording) -> None:
        """Refuse a piece of the same trajectory whose time does not run on; `row` is its first in the file."""
        last = self._last
        if last is not None and last[:2] == (source, int(piece.trajectory[0])) and not piece.t[0] > last[2]:
            problem = f"time does not run forward: {piece.t[0]} s after {last[2]} s; sort the rows"
            raise DataError(source, problem, column="t", row=row)

    def end(self, source: str, piece: Recording) -> None:
        self._last = (source, int(piece.trajectory[-1]), float(piece.t[-1]))


class _Joined:
    """A part in the making: columns that grow at their ends, so that no row is ever held twice."""

    def __init__(self) -> None:
        self._columns: dict[str, _Growing] = {}
        self._head: Recording | None = None
        self._files: list[tuple[str, int, int]] = []
        self.rows = self.bytes = self.first = 0
        self.goes_on = False

    def add(self, piece: Recording, row: int) -> None:
        """More rows, the first of which is so many rows from the beginning of its file."""
        self._head = self._head or replace(piece, **rows_between(piece, 0, 1))
        if not self._files or self._files[-1][0] != piece.source:
            self._files.append((piece.source, self.rows, row))
        for name, values in columns_of(piece).items():
            self._columns.setdefault(name, _Growing(values)).add(values)
        self.rows += len(piece.t)
        self.bytes += bytes_of(piece)

    def taken(self, *, last: bool) -> Part:
        """The part, of which nothing stays here."""
        head = self._head
        assert head is not None  # a log without rows is refused
        joined = {name: growing.whole() for name, growing in self._columns.items()}
        truth = {name: joined.pop(name) for name in head.truth}
        source = head.source if len(self._files) == 1 else f"{head.source} and {len(self._files) - 1} more"
        whole = replace(head, **joined, truth=truth, source=source)
        part = Part(whole, tuple(self._files), self.first, self.goes_on, last)
        self.__init__()
        return part


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


def columns_of(recording: Recording) -> dict[str, np.ndarray]:
    """Everything that has a row for each time stamp, by name."""
    columns = {name: getattr(recording, name) for name in ("t", "q", "qd", "qdd", "tau", "trajectory")}
    return {name: values for name, values in {**columns, **recording.truth}.items() if values is not None}


def bytes_of(recording: Recording) -> int:
    """What its numbers take."""
    return sum(values.nbytes for values in columns_of(recording).values())


def rows_between(recording: Recording, start: int, end: int) -> dict[str, Any]:
    """The fields of a recording between two rows."""
    cut = {name: values[start:end] for name, values in columns_of(recording).items()}
    truth = {name: cut.pop(name) for name in recording.truth}
    return {**cut, "truth": truth}
