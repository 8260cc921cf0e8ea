"""Text with one row a line: CSV with comma, semicolon, tab or blanks between the cells, with or without comments."""

import csv
import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from ...errors import DataError
from .sheet import Field, Pieces, Sheet

CSV_FORM = (
    "CSV columns: t, q0, q1, …, tau0, tau1, …; optional qd0…, qdd0…, inertial0…, coriolis0…, gravity0…, trajectory"
)
_COMMENTS = ("#", "%", "//")
_LONGEST_LINE = 1 << 20
_MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "?"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class _Dialect:
    """How the lines of a file are written: its encoding, what stands between cells, and how many lines come first."""

    encoding: str
    delimiter: str | None
    decimal_comma: bool
    header: tuple[str, ...]
    before: int

    def cells(self, line: str) -> list[str]:
        if self.delimiter is None:
            return line.split()
        return [cell.strip() for cell in next(csv.reader([line], delimiter=self.delimiter), [])]


def read_table(path: Path, *, gaps: bool = False) -> list[Sheet]:
    """The sheet in a text file; with `gaps` an empty cell is not a number instead of an error.

    What is no text raises `UnicodeError` or `csv.Error`: the caller knows what else the file could have been.
    """
    source = str(path)
    dialect = _dialect(path)
    repeated = next((name for name, times in Counter(dialect.header).items() if name and times > 1), None)
    if repeated is not None:
        raise DataError(source, "stands more than once in the header; name each column once", column=repeated)
    fields = {name: Field() for name in dialect.header if name}

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        return _pieces(path, dialect, wanted, rows, gaps)

    return [Sheet(source=source, kind="table", form=CSV_FORM, fields=fields, pieces=pieces)]


def _open(path: Path, encoding: str) -> TextIOWrapper:
    return path.open(newline="", encoding=encoding)


def _encoding(path: Path) -> str:
    """Told by the first bytes; text of Windows is believed where UTF-8 fails and no control characters stand."""
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        head[:-4].decode("utf-8")
    except UnicodeDecodeError:
        if not re.search(rb"[\x00-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]", head):
            return "cp1252"
    return "utf-8-sig"


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines that are not blank, none longer than any log has."""
    with _open(path, encoding) as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) >= _LONGEST_LINE:
                problem = f"has a line of more than {_LONGEST_LINE} characters; expected {CSV_FORM}"
                raise DataError(str(path), problem)
            if not line.isspace():
                yield line


def _dialect(path: Path) -> _Dialect:
    encoding = _encoding(path)
    comments: list[str] = []
    lines = _lines(path, encoding)
    first = ""
    for line in lines:
        if not line.lstrip().startswith(_COMMENTS):
            first = line.rstrip("\r\n")
            break
        comments.append(line.strip())
    if not first:
        raise DataError(str(path), f"holds no table; expected {CSV_FORM}")
    second = next((line.rstrip("\r\n") for line in lines if not line.lstrip().startswith(_COMMENTS)), "")
    if "\0" in first:
        raise csv.Error("line contains NUL")
    delimiter = _delimiter(first)
    plain = _Dialect(encoding, delimiter, False, (), 0)
    cells = plain.cells(first)
    if all(_is_number(cell) for cell in cells):
        header = _commented_header(plain, comments, len(cells)) or [f"column{i + 1}" for i in range(len(cells))]
        return _Dialect(encoding, delimiter, _has_comma(plain, first), tuple(header), 0)
    return _Dialect(encoding, delimiter, _has_comma(plain, second), tuple(cells), 1)


def _delimiter(line: str) -> str | None:
    """What stands between the cells of a line; None for blanks."""
    for mark in (";", "\t"):
        if mark in line:
            return mark
    if "," in line and not all(_COMMA_NUMBER.fullmatch(cell) or _is_number(cell) for cell in line.split()):
        return ","
    return None if len(line.split()) > 1 and "," not in line.replace(", ", "") else ","


def _is_number(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell) or _COMMA_NUMBER.fullmatch(cell))


def _has_comma(dialect: _Dialect, line: str) -> bool:
    if dialect.delimiter == ",":
        return False
    return any(_COMMA_NUMBER.fullmatch(cell) for cell in dialect.cells(line))


def _commented_header(dialect: _Dialect, comments: list[str], width: int) -> list[str] | None:
    """The names in the last comment, where it has as many as the rows have cells."""
    if not comments:
        return None
    line = comments[-1].lstrip("#%/ \t")
    for each in (dialect, _Dialect(dialect.encoding, _delimiter(line), False, (), 0)):
        cells = each.cells(line)
        if len(cells) == width and not all(_is_number(cell) for cell in cells):
            return cells
    return None


def _pieces(path: Path, dialect: _Dialect, wanted: Sequence[str], rows: int, gaps: bool) -> Pieces:
    source = str(path)
    places = [dialect.header.index(name) for name in wanted]
    done = 0
    try:
        lines = (line for line in _lines(path, dialect.encoding) if not line.lstrip().startswith(_COMMENTS))
        lines = itertools.islice(lines, dialect.before, None)
        while block := list(itertools.islice(lines, rows)):
            table = _fast(dialect, block, places)
            if table is None:
                table = _slow(source, dialect, block, wanted, places, done, gaps)
            done += len(table)
            yield {name: table[:, column] for column, name in enumerate(wanted)}
    except (UnicodeError, csv.Error) as error:
        raise DataError(source, f"is no readable text behind row {done} ({error}); expected {CSV_FORM}") from None
    if not done:
        raise DataError(source, "has a header and no rows; record some motion")


def _fast(dialect: _Dialect, block: list[str], places: list[int]) -> np.ndarray | None:
    """The wanted cells of lines that are all alike; None if one is not."""
    if dialect.delimiter is not None:
        marks = len(dialect.header) - 1
        if any(line.count(dialect.delimiter) != marks for line in block):
            return None
    elif any(len(line.split()) != len(dialect.header) for line in block):
        return None
    if dialect.decimal_comma:
        block = [line.replace(",", ".") for line in block]
    try:
        with warnings.catch_warnings(action="ignore"):
            table = np.loadtxt(block, delimiter=dialect.delimiter, usecols=places, ndmin=2, comments=None)
    except ValueError:
        return None
    return table if len(table) == len(block) else None


def _slow(
    source: str,
    dialect: _Dialect,
    block: list[str],
    wanted: Sequence[str],
    places: list[int],
    done: int,
    gaps: bool,
) -> np.ndarray:
    """Cell by cell, to read quotes and gaps, and to say which cell is no number."""
    table = np.empty((len(block), len(places)))
    for number, line in enumerate(block):
        cells = dialect.cells(line)
        if gaps:
            cells += [""] * (len(dialect.header) - len(cells))
        if len(cells) != len(dialect.header):
            problem = f"expected {len(dialect.header)} cells as in the header, got {len(cells)}"
            where = _line_of(source, dialect, done + number)
            raise DataError(source, f"{problem}{where}; mend the row or remove it", row=done + number)
        for column, (name, place) in enumerate(zip(wanted, places, strict=True)):
            cell = cells[place].replace(",", ".") if dialect.decimal_comma else cells[place]
            found = _number(cell, gaps)
            if found is None:
                problem = f"expected a number, got {cell!r}; mend the cell or remove the row"
                problem += _line_of(source, dialect, done + number)
                raise DataError(source, problem, column=name, row=done + number)
            table[number, column] = found
    return table


def _number(cell: str, gaps: bool) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return math.nan if gaps and cell.lower() in _MISSING else None


def _line_of(source: str, dialect: _Dialect, row: int) -> str:
    """Where a person finds a row of the data, which are counted without header, comments and blank lines."""
    with _open(Path(source), dialect.encoding) as file:
        numbered = enumerate(file, start=1)
        held = (number for number, line in numbered if not line.isspace() and not line.lstrip().startswith(_COMMENTS))
        return f" (line {next(itertools.islice(held, dialect.before + row, None))} of the file)"
