"""Logs of several files: their columns lie side by side, row by row or at the times of the first.

The columns of the log keep their names. Those of a joined file are `file.column` where another file
has the same; the columns of a file without a header are an array that has the name of the file.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os.path import isfile, samefile  # unlike those of a Path, false for impossible names
from pathlib import Path

import numpy as np

from ..errors import DataError
from .column_finder import with_elements
from .column_names import measures
from .formats import Field, Pieces, Sheet, open_log
from .options import LogOptions
from .time_stamps import TimeStamps, named_unit, time_column, time_stamps, whole_or_float

_NUMBERED = re.compile(r"column\d+")
# Endings of names of files that say nothing of their content.
_PACKED_SUFFIXES = (".gz", ".zst", ".bz2", ".zip")


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
            times, rest = divmod(rows + self._count_rest(), rows)
            if not rest:
                problem = (
                    f"has {times} times the rows of {other}: give --columns {times} if the numbers "
                    "of a row are spread over lines, else cut the files to one length"
                )
            raise DataError(self.source, problem)

    def _count_rest(self) -> int:
        """Return how many rows follow, which are read but not kept."""
        count = self._count
        for piece in self._pieces:
            count += len(next(iter(piece.values())))
        return count


class _TimeCursor(_RowCursor):
    """Reads a file at given times, which increase, between its first and its last row."""

    def __init__(self, member: Member, columns: Sequence[str], rows: int):
        super().__init__(member, columns, rows)
        self._t = np.empty(0)
        self._overlaps = False

    def at(self, times: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the columns interpolated at times, and which times lie inside the file.

        The file is read on piece by piece and only its last piece kept, however far the times go.
        """
        finite = times[np.isfinite(times)]
        last = finite.max() if len(finite) else -np.inf
        if not len(self._t) and not self._read_on():
            raise DataError(self.source, "holds no rows; record some motion")
        inside = np.zeros(len(times), dtype=bool)
        columns = {}
        for name, own in self._names.items():
            columns[name] = np.full((len(times), *self._left[own].shape[1:]), np.nan)
        while True:
            found = ~inside & (times >= self._t[0]) & (times <= self._t[-1])
            inside |= found
            if found.any():
                self._fill(columns, times, found)
            # The next rows still need the last row before them.
            self._keep_from(int(np.searchsorted(self._t, last, side="right")) - 1)
            if self._t[-1] >= last or not self._read_on():
                break
        self._overlaps = self._overlaps or bool(inside.any())
        return columns, inside

    def _fill(self, columns: dict[str, np.ndarray], times: np.ndarray, found: np.ndarray) -> None:
        """Interpolate the columns at those times that were found between the rows in memory."""
        for name, own in self._names.items():
            values = np.asarray(whole_or_float(self.source, own, self._left[own]), dtype=np.float64)
            columns[name][found] = _interpolated(times[found], self._t, values)

    def _keep_from(self, row: int) -> None:
        first = min(max(0, row), len(self._t) - 1)
        self._t = self._t[first:]
        # Copies, as views would keep all rows in memory.
        self._left = {name: values[first:].copy() for name, values in self._left.items()}

    def _read_on(self) -> bool:
        """Read the next piece; return whether there was one."""
        if not self._more():
            return False
        self._t = np.concatenate([self._t, self._times_of_new_rows()])
        if len(self._t) > 1 and not np.all(np.diff(self._t) > 0):
            problem = "its times do not increase, so that it cannot be joined by time"
            raise DataError(self.source, f"{problem}; sort its rows, or --join-by row")
        return len(self._t) > 0

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
    if values.ndim == 1:
        return np.interp(times, known, values)
    return np.stack([np.interp(times, known, column) for column in values.T], axis=1)


def open_sheets(path: Path, options: LogOptions, *, gaps: bool) -> list[Sheet]:
    """Return the sheets of a log with the columns of all files that are joined to it."""
    sheets = _sheets_of(path, options, gaps)
    if options.join:
        name = file_name(path)
        others = []
        for pattern in options.join:
            other, part = joined_path(path, pattern)
            others.append((file_name(other, part), _sheets_of(other, options, gaps)))
            name = name if not part else file_name(path, part)
        sheets = _side_by_side((name, sheets), others, options)
    return [with_elements(sheet, options) for sheet in sheets]


def file_name(path: Path, part: str = "") -> str:
    """Return the name by which columns of a file are called: without endings, and without a part.

    The part is what the names of all files of a run have in common.
    """
    name = path.name
    for suffix in _PACKED_SUFFIXES:
        name = name.removesuffix(suffix)
    stem = Path(name).stem
    return stem.replace(part, "", 1).strip(" _-.") or stem


def joined_path(log: Path, name: str) -> tuple[Path, str]:
    """Return the file that is joined to a log under a name, and what `{}` stands for in it.

    A name is looked up beside the log, and in the working folder. `{}` stands for the longest
    beginning, or end, of the log's name for which there is such a file.
    """
    stem = file_name(log)
    parts = [""]
    if "{}" in name:
        parts = [stem[:end] for end in range(len(stem), 0, -1)]
        parts += [stem[start:] for start in range(1, len(stem))]
    for part in parts:
        given = Path(name.replace("{}", part))
        for path in (log.parent / given, given):
            if isfile(path) and not samefile(path, log):
                return path, part
    problem = f"--join {name}: there is no such file beside the log or here; check the name"
    raise DataError(str(log), problem)


def _sheets_of(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    sheets = open_log(path, options, gaps=gaps)
    if options.columns is None:
        return sheets
    named_time = measures(file_name(path)) in ("t", "trajectory")
    mapped = set(options.patterns("t") or ()) | set(options.patterns("trajectory") or ())
    if options.join and (named_time or file_name(path) in mapped):
        return sheets  # one number a row, as it is
    return [_folded(sheet, options.columns) for sheet in sheets]


def _folded(sheet: Sheet, width: int) -> Sheet:
    """Return a table without a header with so many columns, over whose lines rows are spread."""
    names = list(sheet.fields)
    if sheet.kind != "table" or not all(map(_NUMBERED.fullmatch, names)):
        return sheet
    fields = {f"column{number}": Field() for number in range(1, width + 1)}
    return replace(sheet, fields=fields, pieces=partial(_folded_pieces, sheet, names, width))


def _folded_pieces(
    sheet: Sheet, names: Sequence[str], width: int, wanted: Sequence[str], rows: int
) -> Pieces:
    places = [int(name.removeprefix("column")) - 1 for name in wanted]
    left = np.empty(0)
    lines = max(1, rows * width // len(names))
    for piece in sheet.pieces(names, lines):
        numbers = np.concatenate([left, np.stack([piece[name] for name in names], axis=1).ravel()])
        count = len(numbers) // width
        table = numbers[: count * width].reshape(count, width)
        left = numbers[count * width :]
        if count:
            yield {name: table[:, place] for name, place in zip(wanted, places, strict=True)}
    if len(left):
        problem = (
            f"ends with {len(left)} numbers of a row of {width}; give the right --columns, or "
            "remove what is no row"
        )
        raise DataError(sheet.source, problem)


Named = tuple[str, list[Sheet]]


def _side_by_side(log: Named, others: Sequence[Named], options: LogOptions) -> list[Sheet]:
    """Return one sheet for each of the log, with the columns of the others' sheets beside it."""
    count = len(log[1])
    names = Counter([log[0], *(name for name, _ in others)])
    name, times = names.most_common(1)[0]
    if times > 1:
        problem = f"--join: {times} files are named {name}, so their columns cannot be told apart"
        raise DataError(log[1][0].source, f"{problem}; rename one of them")
    for name, sheets in others:
        if len(sheets) != count:
            problem = (
                f"--join: {name} holds {len(sheets)} groups and {log[0]} {count}; join files with "
                "the same groups, or map the arrays of one group"
            )
            raise DataError(log[1][0].source, problem)
    joined = []
    for number in range(count):
        files = [(name, sheets[number]) for name, sheets in (log, *others)]
        joined.append(_joined(files, options))
    return joined


def _joined(files: Sequence[tuple[str, Sheet]], options: LogOptions) -> Sheet:
    members = []
    for name, sheet in files:
        array = with_elements(_as_array(name, sheet), options)
        members.append(Member(name, array, _stamps_of(array, options)))
    members = _in_common_time(members)
    members = _named_apart(members, options)
    fields = {}
    for member in members:
        for name, own in member.names.items():
            known = member.sheet.fields[own]
            fields[name] = replace(known, shape=(-1, *known.shape[1:]))
    constants: dict[str, tuple[float, ...]] = {}
    for member in members:
        constants |= member.sheet.constants
    joints = [member.sheet.joints for member in members if member.sheet.joints is not None]
    return replace(
        members[0].sheet,
        source=" + ".join(member.sheet.source for member in members),
        kind="arrays",
        fields=fields,
        pieces=partial(joined_pieces, members),
        joints=next(iter(joints), None),
        constants=constants,
        loose=True,
    )


def _as_array(name: str, sheet: Sheet) -> Sheet:
    """Return a sheet whose columns have no names as one array with the name of its file."""
    columns = list(sheet.fields)
    if sheet.kind != "table" or not all(map(_NUMBERED.fullmatch, columns)):
        return sheet
    shape = (-1, len(columns)) if len(columns) > 1 else (-1,)
    pieces = partial(_array_pieces, sheet, columns)
    return replace(sheet, kind="arrays", fields={name: Field(shape=shape)}, pieces=pieces)


def _array_pieces(sheet: Sheet, columns: Sequence[str], wanted: Sequence[str], rows: int) -> Pieces:
    for piece in sheet.pieces(columns, rows):
        table = piece[columns[0]]
        if len(columns) > 1:
            table = np.stack([piece[column] for column in columns], axis=1)
        yield dict.fromkeys(wanted, table)


def _stamps_of(sheet: Sheet, options: LogOptions) -> TimeStamps | None:
    """Return the times of a file, None if it has none or its rows are joined by number."""
    column = time_column(sheet, options)
    if column is not None and options.join_by != "row" and options.rate is None:
        return time_stamps(sheet, column, named_unit(sheet, column), options)
    if options.join_by == "time":
        problem = "has no column of times to join it by; map t, or join it --join-by row"
        raise DataError(sheet.source, problem)
    return None


def _in_common_time(members: Sequence[Member]) -> list[Member]:
    """Return the files with times that begin where those of the first do.

    Files are joined by row if the first has no times.
    """
    first = members[0].stamps
    if first is None:
        return [replace(member, stamps=None) for member in members]
    common = [members[0]]
    for member in members[1:]:
        stamps = member.stamps
        if stamps is not None:
            # Seconds since 1970 in ns are integers, of which a float has not all digits.
            zero = first.zero
            if first.unit != stamps.unit:
                zero = float(first.zero) * first.unit / stamps.unit
            stamps = replace(stamps, zero=zero)
        common.append(replace(member, stamps=stamps))
    return common


def _named_apart(members: Sequence[Member], options: LogOptions) -> list[Member]:
    """Return the files with the names of their columns in the joined log.

    Columns are named by their file where several files have them, and where the map names them so.
    The times of the first file are those of the log; other files need none.
    """
    own_names = []
    for number, member in enumerate(members):
        names = list(member.sheet.fields)
        if member.stamps is not None and number and member.stamps.column in names:
            names.remove(member.stamps.column)
        own_names.append(names)
    count: Counter[str] = Counter()
    for names in own_names:
        count.update(names)
    named = []
    for number, (member, names) in enumerate(zip(members, own_names, strict=True)):
        plain = {member.name}  # a file without a header is an array of its own name
        if member.stamps is not None and not number:
            plain.add(str(member.stamps.column))
        prefix = f"{member.name}."
        by_file = any(name.startswith(prefix) for name in options.mapped_names)
        apart: dict[str, str] = {}
        for name in names:
            shared = count[name] > 1 and number > 0  # the log keeps its own names
            if name in plain or not (by_file or shared):
                apart[name] = name
            else:
                apart[prefix + name] = name
        named.append(replace(member, names=apart))
    return named
