"""Parts of a log: consecutive rows that fit into the memory limit. A log that fits is one part."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..errors import DataError
from ..joints import Recording
from .soundness import require_sound

# A part is joined from at least this many pieces, so that its size comes near the limit.
FEWEST_PIECES = 4


@dataclass(frozen=True, eq=False)
class LogPart:
    """Consecutive rows of a log.

    Attributes:
        recording: the rows.
        files: for each file, or group in one, its name, its first row in this part, and the number
            of that row in the file.
        first: number of the first row in the log.
        continues: whether the first row continues the last trajectory of the part before.
        last: whether no part follows.
    """

    recording: Recording
    files: tuple[tuple[str, int, int], ...]
    first: int
    continues: bool
    last: bool

    def require_sound(self) -> None:
        """Refuse what a fit cannot use, first file by file and then in all of them together."""
        whole = self.recording
        ends = [*(start for _, start, _ in self.files[1:]), len(whole.t)]
        for (source, start, row), end in zip(self.files, ends, strict=True):
            rows = whole.rows(slice(start, end))
            require_sound(replace(rows, source=source_from(source, row)))
        if len(self.files) > 1:
            require_sound(whole)


def source_from(source: str, row: int) -> str:
    """Return the name of a file, with the first row if it is not the first of the file."""
    return f"{source} from row {row}" if row else source


def source_of(files: list[str]) -> str:
    """Return the name of the first file and the number of the others."""
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def parts_of(pieces: Iterator[Recording], most: float) -> Iterator[LogPart]:
    """Join pieces of a log to parts of at most `most` bytes, and half of that after the first part.

    What is kept of the first parts needs the other half.
    """
    builder = _PartBuilder()
    room = most
    rows_read = 0
    rows_of_file: dict[str, int] = {}
    last: tuple[str, int] | None = None
    for piece in _small(pieces, most / FEWEST_PIECES):
        if builder.rows and builder.nbytes + piece.nbytes > room:
            yield builder.take(last=False)
            builder = _PartBuilder()
            room = most / 2
        if not builder.rows:
            builder.first = rows_read
            builder.continues = last == (piece.source, int(piece.trajectory[0]))
        row = rows_of_file.get(piece.source, 0)
        builder.add(piece, row)
        rows_of_file[piece.source] = row + len(piece.t)
        rows_read += len(piece.t)
        last = (piece.source, int(piece.trajectory[-1]))
    yield builder.take(last=True)


def _small(pieces: Iterator[Recording], most: float) -> Iterator[Recording]:
    """Yield the pieces, those of more than `most` bytes in several."""
    for piece in pieces:
        count = len(piece.t)
        if piece.nbytes <= most:
            yield piece
            continue
        rows = max(1, int(most / piece.nbytes * count))
        for start in range(0, count, rows):
            yield piece.rows(slice(start, start + rows))


class TimeOrder:
    """Check that time increases from each piece of a trajectory to the next."""

    def __init__(self) -> None:
        self._last: tuple[str, int, float] | None = None

    def require_increasing(self, source: str, row: int, piece: Recording) -> None:
        """Refuse a piece that continues the last one at an earlier time; `row` is its first row."""
        if self._last is None:
            return
        *last_trajectory, last_t = self._last
        same = last_trajectory == [source, int(piece.trajectory[0])]
        if same and not piece.t[0] > last_t:
            problem = f"time does not increase: {piece.t[0]} s after {last_t} s; sort the rows"
            raise DataError(source, problem, column="t", row=row)

    def end(self, source: str, piece: Recording) -> None:
        """Remember where a piece ends."""
        self._last = (source, int(piece.trajectory[-1]), float(piece.t[-1]))


class _PartBuilder:
    """A part under construction."""

    def __init__(self) -> None:
        self._columns: dict[str, _GrowingArray] = {}
        self._head: Recording | None = None
        self._files: list[tuple[str, int, int]] = []
        self.rows = 0
        self.nbytes = 0
        self.first = 0
        self.continues = False

    def add(self, piece: Recording, row: int) -> None:
        """Append a piece whose first row has the number `row` in its file."""
        self._head = self._head or piece.rows(slice(0, 1))
        if not self._files or self._files[-1][0] != piece.source:
            self._files.append((piece.source, self.rows, row))
        for name, values in piece.columns.items():
            self._columns.setdefault(name, _GrowingArray(values)).append(values)
        self.rows += len(piece.t)
        self.nbytes += piece.nbytes

    def take(self, *, last: bool) -> LogPart:
        """Return the part."""
        assert self._head is not None  # a log without rows is refused
        whole = self._head.with_columns(
            {name: column.whole() for name, column in self._columns.items()}
        )
        whole = replace(whole, source=source_of([source for source, _, _ in self._files]))
        return LogPart(whole, tuple(self._files), self.first, self.continues, last)


class _GrowingArray:
    """An array that grows in place, so that no row of a large log is in memory twice."""

    def __init__(self, like: np.ndarray):
        self._array = np.empty((0, *like.shape[1:]), like.dtype)
        self._rows = 0

    def append(self, values: np.ndarray) -> None:
        end = self._rows + len(values)
        if end > len(self._array):
            # One eighth more than needed keeps the number of reallocations logarithmic.
            room = end + end // 8 if self._rows else end
            self._array.resize((room, *values.shape[1:]), refcheck=False)
        self._array[self._rows : end] = values
        self._rows = end

    def whole(self) -> np.ndarray:
        self._array.resize((self._rows, *self._array.shape[1:]), refcheck=False)
        return self._array
