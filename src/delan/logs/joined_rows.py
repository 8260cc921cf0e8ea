"""Rows of a log in several files, read from all of them at once in bounded memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import DataError
from .formats import Pieces, Sheet
from .time_stamps import TimeStamps, whole_or_float


@dataclass(frozen=True, eq=False)
class Member:
    """A file of a joined log.

    Attributes:
        name: name of the file.
        sheet: its columns.
        stamps: its times, None if it has none or its rows are not joined by time.
        names: name in the file of each column of the joined log.
    """

    name: str
    sheet: Sheet
    stamps: TimeStamps | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def joined_pieces(members: Sequence[Member], wanted: Sequence[str], rows: int) -> Pieces:
    """Yield rows of all files: by row, and by time those that have times beside the first."""
    first = members[0]
    by_time = [member for member in members[1:] if member.stamps is not None]
    cursors = []
    for member in members:
        columns = [name for name in wanted if name in member.names]
        if columns or (member is first and by_time):
            cursors.append(_cursor(member, columns, rows, timed=member in by_time))
    if not cursors:
        return
    lead = cursors[0]
    done = 0
    while True:
        piece, times = lead.take(rows, done)
        length = len(next(iter(piece.values()), times))
        if not length:
            break
        inside = np.ones(length, dtype=bool)
        for cursor in cursors[1:]:
            if isinstance(cursor, _TimeCursor):
                columns, known = cursor.at(times)
                inside &= known
            else:
                columns, _ = cursor.take(length, done)
                cursor.require(length, columns, lead.source)
            piece |= columns
        done += length
        if not inside.all():
            piece = {name: values[inside] for name, values in piece.items()}
        yield {name: piece[name] for name in wanted}
    for cursor in cursors[1:]:
        cursor.require_end(lead.source, done)


def _cursor(
    member: Member, columns: Sequence[str], rows: int, *, timed: bool
) -> "_RowCursor | _TimeCursor":
    kind = _TimeCursor if timed else _RowCursor
    return kind(member, columns, rows)


class _RowCursor:
    """Reads a file from its first row to its last, as many rows at a time as are asked for."""

    def __init__(self, member: Member, columns: Sequence[str], rows: int):
        self.source = member.sheet.source
        self._stamps = member.stamps
        self._names = {name: member.names[name] for name in columns}
        self._own = list(dict.fromkeys(self._names.values()))
        if member.stamps is not None and member.stamps.column not in self._own:
            self._own.append(str(member.stamps.column))
        self._pieces = iter(member.sheet.pieces(self._own, rows))
        self._left: dict[str, np.ndarray] = {}

    def _more(self) -> bool:
        """Read on; return whether there was something."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        lengths = set(map(len, piece.values()))
        if len(lengths) > 1:
            short = min(piece, key=lambda name: len(piece[name]))
            problem = "ends before the other columns; cut them to one length"
            raise DataError(self.source, problem, column=short)
        for name, values in piece.items():
            before = self._left.get(name)
            self._left[name] = values if before is None else np.concatenate([before, values])
        return True

    @property
    def _count(self) -> int:
        return len(next(iter(self._left.values()), ()))

    def take(self, rows: int, done: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the next rows, fewer at the end, and their times if the file has any."""
        while self._count < rows and self._more():
            pass
        taken = {name: values[:rows] for name, values in self._left.items()}
        self._left = {name: values[rows:] for name, values in self._left.items()}
        length = len(next(iter(taken.values()), ()))
        times = np.empty(length)
        if self._stamps is not None and length:
            times = self._stamps.seconds(taken, done, length)
        return {name: taken[own] for name, own in self._names.items() if own in taken}, times

    def require(self, length: int, columns: Mapping[str, np.ndarray], other: str) -> None:
        """Refuse a file that ends before another."""
        if any(len(values) != length for values in columns.values()) or not columns:
            problem = f"has fewer rows than {other}; cut them to one length, or join them by time"
            raise DataError(self.source, problem)

    def require_end(self, other: str, rows: int) -> None:
        """Refuse a file that goes on after another."""
        if self._count or self._more():
            problem = f"has more rows than the {rows} of {other}; cut them to one length"
            raise DataError(self.source, problem + ", or give --columns if rows are spread")


class _TimeCursor(_RowCursor):
    """Reads a file at given times, which increase, between its first and its last row."""

    def __init__(self, member: Member, columns: Sequence[str], rows: int):
        super().__init__(member, columns, rows)
        self._t = np.empty(0)
        self._read = 0
        self._overlaps = False

    def at(self, times: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the columns interpolated at times, and which times lie inside the file."""
        finite = times[np.isfinite(times)]
        last = finite.max() if len(finite) else -np.inf
        while (not len(self._t) or self._t[-1] < last) and self._more():
            self._t = np.concatenate([self._t, self._times_of_new_rows()])
            if len(self._t) > 1 and not np.all(np.diff(self._t) > 0):
                problem = "its times do not increase, so that it cannot be joined by time"
                raise DataError(self.source, f"{problem}; sort its rows, or --join-by row")
        inside = np.zeros(len(times), dtype=bool)
        if len(self._t):
            inside = (times >= self._t[0]) & (times <= self._t[-1])
        self._overlaps = self._overlaps or bool(inside.any())
        columns = {}
        for name, own in self._names.items():
            values = np.asarray(whole_or_float(self.source, own, self._left[own]), dtype=np.float64)
            columns[name] = _interpolated(times, self._t, values)
        # The next rows still need the last row before them.
        done = max(0, int(np.searchsorted(self._t, last, side="right")) - 1)
        self._t = self._t[done:]
        self._left = {name: values[done:] for name, values in self._left.items()}
        return columns, inside

    def _times_of_new_rows(self) -> np.ndarray:
        assert self._stamps is not None
        assert self._stamps.column is not None
        new = {self._stamps.column: self._left[self._stamps.column][len(self._t) :]}
        return self._stamps.seconds(new, 0, len(new[self._stamps.column]))

    def require_end(self, other: str, rows: int) -> None:
        """Refuse a file that has no time in common with another."""
        if not self._overlaps:
            problem = (
                f"no row lies in the time of {other}; the clocks differ: give --join-by row, or "
                "times that begin together"
            )
            raise DataError(self.source, problem)


def _interpolated(times: np.ndarray, known: np.ndarray, values: np.ndarray) -> np.ndarray:
    if not len(known):
        return np.full((len(times), *values.shape[1:]), np.nan)
    if values.ndim == 1:
        return np.interp(times, known, values)
    return np.stack([np.interp(times, known, column) for column in values.T], axis=1)
