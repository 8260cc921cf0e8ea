"""Text tables: CSV with commas, semicolons, tabs or blanks between cells, and with comments."""

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
    "CSV columns: t, q0, q1, …, tau0, tau1, …; "
    "optional qd0…, qdd0…, inertial0…, coriolis0…, gravity0…, trajectory"
)
_COMMENTS = ("#", "%", "//")
# Characters; a longer line means that the file is no table.
_LONGEST_LINE = 1 << 20
_MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "?"}
_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE
)
_COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class _Dialect:
    """How a file is written.

    Attributes:
        encoding: of the text.
        delimiter: between cells, None for blanks.
        decimal_comma: whether decimals are written with a comma.
        header: names of the columns.
        header_lines: number of lines before the first row, without comments and blank lines.
    """

    encoding: str
    delimiter: str | None
    decimal_comma: bool = False
    header: tuple[str, ...] = ()
    header_lines: int = 0

    def cells(self, line: str) -> list[str]:
        if self.delimiter is None:
            return line.split()
        return [cell.strip() for cell in next(csv.reader([line], delimiter=self.delimiter), [])]


def read_table(path: Path, *, gaps: bool = False) -> list[Sheet]:
    """Return the sheet in a text file; `gaps` reads empty cells as NaN instead of refusing them.

    A file that is no text raises `UnicodeError` or `csv.Error`.
    """
    source = str(path)
    dialect = _dialect(path)
    for name, times in Counter(dialect.header).items():
        if name and times > 1:
            problem = "is more than once in the header; give each column its own name"
            raise DataError(source, problem, column=name)
    fields = {name: Field() for name in dialect.header if name}

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        return _pieces(path, dialect, wanted, rows, gaps)

    return [Sheet(source=source, kind="table", form=CSV_FORM, fields=fields, pieces=pieces)]


def _open(path: Path, encoding: str) -> TextIOWrapper:
    return path.open(newline="", encoding=encoding)


def _encoding(path: Path) -> str:
    """Return the encoding by the first bytes: UTF-16 by its mark, cp1252 where UTF-8 fails."""
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        head[:-4].decode("utf-8")
    except UnicodeDecodeError:
        # Control characters, or bytes that cp1252 does not define, mean that the file is no text.
        if not re.search(rb"[\x00-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]", head):
            return "cp1252"
    return "utf-8-sig"


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """Yield the lines that are not blank; refuse a file with a line that no log has."""
    with _open(path, encoding) as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) >= _LONGEST_LINE:
                problem = f"has a line of more than {_LONGEST_LINE} characters; expected {CSV_FORM}"
                raise DataError(str(path), problem)
            if not line.isspace():
                yield line


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(_COMMENTS)


def _dialect(path: Path) -> _Dialect:
    encoding = _encoding(path)
    comments: list[str] = []
    lines = _lines(path, encoding)
    first = ""
    for line in lines:
        if not _is_comment(line):
            first = line.rstrip("\r\n")
            break
        comments.append(line.strip())
    if not first:
        raise DataError(str(path), f"holds no table; expected {CSV_FORM}")
    second = next((line.rstrip("\r\n") for line in lines if not _is_comment(line)), "")
    if "\0" in first:
        raise csv.Error("line contains NUL")
    delimiter = _delimiter(first)
    plain = _Dialect(encoding, delimiter)
    cells = plain.cells(first)
    if not all(_is_number(cell) for cell in cells):
        return _Dialect(encoding, delimiter, _has_comma(plain, second), tuple(cells), 1)
    header = _commented_header(plain, comments, len(cells))
    if header is None:
        header = [f"column{i + 1}" for i in range(len(cells))]
    return _Dialect(encoding, delimiter, _has_comma(plain, first), tuple(header))


def _delimiter(line: str) -> str | None:
    """Return the delimiter between the cells of a line, None for blanks."""
    for mark in (";", "\t"):
        if mark in line:
            return mark
    cells = line.split()
    if "," in line and not all(_is_number(cell) for cell in cells):
        return ","
    if len(cells) > 1 and "," not in line.replace(", ", ""):
        return None
    return ","


def _is_number(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell) or _COMMA_NUMBER.fullmatch(cell))


def _has_comma(dialect: _Dialect, line: str) -> bool:
    if dialect.delimiter == ",":
        return False
    return any(_COMMA_NUMBER.fullmatch(cell) for cell in dialect.cells(line))


def _commented_header(dialect: _Dialect, comments: list[str], width: int) -> list[str] | None:
    """Return the names in the last comment if there are as many as cells in a row."""
    if not comments:
        return None
    line = comments[-1].lstrip("#%/ \t")
    for candidate in (dialect, _Dialect(dialect.encoding, _delimiter(line))):
        cells = candidate.cells(line)
        if len(cells) == width and not all(_is_number(cell) for cell in cells):
            return cells
    return None


def _pieces(path: Path, dialect: _Dialect, wanted: Sequence[str], rows: int, gaps: bool) -> Pieces:
    source = str(path)
    places = [dialect.header.index(name) for name in wanted]
    done = 0
    try:
        lines = (line for line in _lines(path, dialect.encoding) if not _is_comment(line))
        lines = itertools.islice(lines, dialect.header_lines, None)
        while block := list(itertools.islice(lines, rows)):
            table = _fast(dialect, block, places)
            if table is None:
                table = _SlowReader(source, dialect, wanted, gaps).read(block, done)
            done += len(table)
            yield {name: table[:, column] for column, name in enumerate(wanted)}
    except (UnicodeError, csv.Error) as error:
        problem = f"is no readable text after row {done} ({error}); expected {CSV_FORM}"
        raise DataError(source, problem) from None
    if not done:
        raise DataError(source, "has a header and no rows; record some motion")


def _fast(dialect: _Dialect, block: list[str], places: list[int]) -> np.ndarray | None:
    """Return the wanted cells of equally written lines, None if a line differs."""
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
            table = np.loadtxt(
                block, delimiter=dialect.delimiter, usecols=places, ndmin=2, comments=None
            )
    except ValueError:
        return None
    return table if len(table) == len(block) else None


@dataclass(frozen=True)
class _SlowReader:
    """Reads cell by cell, for quotes and gaps, and to name the cell that is no number."""

    source: str
    dialect: _Dialect
    wanted: Sequence[str]
    gaps: bool

    def read(self, block: list[str], done: int) -> np.ndarray:
        """Return the wanted cells of lines; `done` rows come before them."""
        table = np.empty((len(block), len(self.wanted)))
        for number, line in enumerate(block):
            cells = self._cells(line, done + number)
            for column, name in enumerate(self.wanted):
                table[number, column] = self._number(cells[name], name, done + number)
        return table

    def _cells(self, line: str, row: int) -> dict[str, str]:
        header = self.dialect.header
        cells = self.dialect.cells(line)
        if self.gaps:
            cells += [""] * (len(header) - len(cells))
        if len(cells) != len(header):
            problem = (
                f"expected {len(header)} cells as in the header, got {len(cells)} "
                f"({self._line_number(row)}); fix the row or remove it"
            )
            raise DataError(self.source, problem, row=row)
        return dict(zip(header, cells, strict=True))

    def _number(self, cell: str, name: str, row: int) -> float:
        if self.dialect.decimal_comma:
            cell = cell.replace(",", ".")
        try:
            return float(cell)
        except ValueError:
            if self.gaps and cell.lower() in _MISSING:
                return math.nan
        problem = (
            f"expected a number, got {cell!r}; fix the cell or remove the row "
            f"({self._line_number(row)})"
        )
        raise DataError(self.source, problem, column=name, row=row)

    def _line_number(self, row: int) -> str:
        """Return the line of a row, which is counted without header, comments and blank lines."""
        row_lines = []
        with _open(Path(self.source), self.dialect.encoding) as file:
            for number, line in enumerate(file, start=1):
                if not line.isspace() and not _is_comment(line):
                    row_lines.append(number)
                if len(row_lines) > self.dialect.header_lines + row:
                    break
        return f"line {row_lines[-1]} of the file"
