"""Text tables: CSV with commas, semicolons, tabs or blanks between cells, and with comments."""

import csv
import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..options import LogOptions
from . import (
    CSV_FORM,
    KNOWN_FORMS,
    PROVENANCE,
    Content,
    Field,
    Pieces,
    Sheet,
    library_errors,
    read_provenance,
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
        return list(map(str.strip, next(csv.reader([line], delimiter=self.delimiter), [])))


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheet in a text file; `gaps` reads empty cells as NaN instead of refusing them."""
    return sheets_of(Content.of_file(path), options, gaps)


def sheets_of(content: Content, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheet in text that may be packed."""
    source = content.source
    try:
        dialect = _dialect(content)
    except (UnicodeError, csv.Error) as error:
        raise DataError(source, f"has no known format ({error}); {KNOWN_FORMS}") from None
    for name, times in Counter(dialect.header).items():
        if name and times > 1:
            problem = "is more than once in the header; give each column its own name"
            raise DataError(source, problem, column=name)
    fields = {name: Field() for name in dialect.header if name}
    sheet = Sheet(
        source=source,
        kind="table",
        form=CSV_FORM,
        fields=fields,
        pieces=partial(_pieces, content, dialect, gaps),
        provenance=_provenance(content),
    )
    return [sheet]


def _provenance(content: Content) -> dict[str, Any] | None:
    """Return what delan wrote in the first line of a log that it converted."""
    mark = f"# {PROVENANCE} ".encode()
    if not content.head(len(mark)).startswith(mark):
        return None
    with library_errors(content.source, "converted log"), content.open() as file:
        return read_provenance(file.readline(_LONGEST_LINE)[len(mark) :].decode("utf-8"))


def _open(content: Content, encoding: str) -> TextIOWrapper:
    return TextIOWrapper(content.open(), newline="", encoding=encoding)


def _encoding(content: Content) -> str:
    """Return the encoding by the first bytes: UTF-16 by its mark, cp1252 where UTF-8 fails."""
    head = content.head(1 << 16)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        head[:-4].decode("utf-8")
    except UnicodeDecodeError:
        # Control characters, or bytes that cp1252 does not define, mean that the file is no text.
        if not re.search(rb"[\x00-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]", head):
            return "cp1252"
    return "utf-8-sig"


def _lines(content: Content, encoding: str, *, comments: bool = False) -> Iterator[str]:
    """Yield the lines that are not blank and no comments; refuse a line that no log has."""
    with _open(content, encoding) as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) >= _LONGEST_LINE:
                problem = f"has a line of more than {_LONGEST_LINE} characters; expected {CSV_FORM}"
                raise DataError(content.source, problem)
            if not line.isspace() and (comments or not _is_comment(line)):
                yield line


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(_COMMENTS)


def _dialect(content: Content) -> _Dialect:
    encoding = _encoding(content)
    comment = ""
    first = ""
    for line in _lines(content, encoding, comments=True):
        if not _is_comment(line):
            first = line.rstrip("\r\n")
            break
        comment = line.strip()
    if not first:
        raise DataError(content.source, f"holds no table; expected {CSV_FORM}")
    if "\0" in first:
        raise csv.Error("line contains NUL")
    dialect = _Dialect(encoding, _delimiter(first))
    cells = dialect.cells(first)
    if not _are_numbers(cells):
        second = next(itertools.islice(_lines(content, encoding), 1, None), "")
        decimal_comma = _has_comma(dialect, second.rstrip("\r\n"))
        return replace(dialect, decimal_comma=decimal_comma, header=tuple(cells), header_lines=1)
    header = _commented_header(dialect, comment, len(cells))
    return replace(dialect, decimal_comma=_has_comma(dialect, first), header=tuple(header))


def _delimiter(line: str) -> str | None:
    """Return the delimiter between the cells of a line, None for blanks."""
    for mark in (";", "\t"):
        if mark in line:
            return mark
    cells = line.split()
    if "," in line and not _are_numbers(cells):
        return ","
    if len(cells) > 1 and "," not in line.replace(", ", ""):
        return None
    return ","


def _are_numbers(cells: Sequence[str]) -> bool:
    return all(_NUMBER.fullmatch(cell) or _COMMA_NUMBER.fullmatch(cell) for cell in cells)


def _has_comma(dialect: _Dialect, line: str) -> bool:
    if dialect.delimiter == ",":
        return False
    return any(map(_COMMA_NUMBER.fullmatch, dialect.cells(line)))


def _commented_header(dialect: _Dialect, comment: str, width: int) -> list[str]:
    """Return the names in a comment if there are as many as cells in a row, else numbered ones."""
    line = comment.lstrip("#%/ \t")
    for candidate in (dialect, _Dialect(dialect.encoding, _delimiter(line))):
        cells = candidate.cells(line)
        if len(cells) == width and not _are_numbers(cells):
            return cells
    return [f"column{number}" for number in range(1, width + 1)]


def _pieces(
    content: Content, dialect: _Dialect, gaps: bool, wanted: Sequence[str], rows: int
) -> Pieces:
    source = content.source
    places = list(map(dialect.header.index, wanted))
    done = 0
    try:
        lines = itertools.islice(_lines(content, dialect.encoding), dialect.header_lines, None)
        while block := list(itertools.islice(lines, rows)):
            table = _fast(dialect, block, places)
            if table is None:
                table = _SlowReader(content, dialect, wanted, gaps).read(block, done)
            done += len(table)
            yield dict(zip(wanted, table.T, strict=True))
    except (UnicodeError, csv.Error) as error:
        problem = f"is not readable text after row {done} ({error}); expected {CSV_FORM}"
        raise DataError(source, problem) from None
    if not done:
        raise DataError(source, "has a header and no rows; record some motion")


def _fast(dialect: _Dialect, block: list[str], places: list[int]) -> np.ndarray | None:
    """Return the wanted cells of equally written lines, None if a line differs."""
    for line in block:
        if dialect.delimiter is None:
            count = len(line.split())
        else:
            count = line.count(dialect.delimiter) + 1
        if count != len(dialect.header):
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
    # Lines that loadtxt passes over would shift all rows after them.
    if len(table) != len(block):
        return None
    return table


@dataclass(frozen=True)
class _SlowReader:
    """Reads cell by cell, for quotes and gaps, and to name the cell that is no number."""

    content: Content
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
            raise DataError(self.content.source, problem, row=row)
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
        raise DataError(self.content.source, problem, column=name, row=row)

    def _line_number(self, row: int) -> str:
        """Return the line of a row, which is counted without header, comments and blank lines."""
        number = 0
        rows_left = self.dialect.header_lines + row + 1
        with _open(self.content, self.dialect.encoding) as file:
            while rows_left:
                line = file.readline()
                number += 1
                if not line.isspace() and not _is_comment(line):
                    rows_left -= 1
        return f"line {number} of the file"
