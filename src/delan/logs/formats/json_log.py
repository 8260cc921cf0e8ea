"""JSON logs: a list of records, columns as lists, or one record per line (JSON lines)."""

import codecs
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...joints import MOST_JOINTS
from ..options import LogOptions
from . import (
    Content,
    Field,
    Pieces,
    Sheet,
    gain_names,
    group_sheets,
    library_errors,
    row_pieces,
    time_first,
)

JSON_FORM = (
    "JSON: a list of records with t, q and tau (numbers, or lists of one number per joint), a list "
    "per column, or one record per line"
)
_WHAT = "readable JSON log"
# Bytes of a file that is read as a whole; a larger one takes ten times as much memory. A line.
_LARGEST_FILE = 1 << 28
_LONGEST_LINE = 1 << 24
# Columns of a record; one with more is no row of a log.
_MOST_COLUMNS = 10_000
# Objects in objects whose columns are read.
_DEEPEST = 8


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheets in a JSON file."""
    return sheets_of(Content.of_file(path), options, gaps)


def sheets_of(content: Content, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheets in JSON that may be packed."""
    source = content.source
    with library_errors(source, _WHAT):
        first = _first_record(content)
        if first is not None:
            return [_lines_sheet(content, first, gaps)]
        value = _whole_value(content)
        whole = _columns_sheet(source, _columns_of(source, value, gaps))
    # Objects inside a record are parts of a row, not logs of their own.
    return [whole] if _records(value) else group_sheets(whole, options)


def _first_record(content: Content) -> dict[str, Any] | None:
    """Return the record in the first line if the file has one per line, None if it has not."""
    lines = _lines(content)
    try:
        first = json.loads(next(lines, ""))
        second = json.loads(next(lines, ""))
    except (ValueError, RecursionError):
        return None
    return first if isinstance(first, dict) and isinstance(second, dict) else None


def _lines(content: Content) -> Iterator[str]:
    with content.open() as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) >= _LONGEST_LINE:
                return
            text = line.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").strip()
            if text:
                yield text


def _lines_sheet(content: Content, first: Mapping[str, Any], gaps: bool) -> Sheet:
    widths = {name: np.shape(values) for name, values in _numbers(first).items()}
    fields = {}
    for name, shape in widths.items():
        if len(shape) < 2:
            fields[name] = Field(shape=(-1, *shape))
    return Sheet(
        source=content.source,
        kind="arrays",
        form=JSON_FORM,
        fields=fields,
        pieces=partial(_line_pieces, content, fields, gaps),
    )


def _line_pieces(
    content: Content, fields: Mapping[str, Field], gaps: bool, wanted: Sequence[str], rows: int
) -> Pieces:
    lines = _lines(content)
    done = 0
    while block := list(islice(lines, rows)):
        records = []
        for line in block:
            with library_errors(f"{content.source}, row {done + len(records)}", _WHAT):
                records.append(_numbers(json.loads(line)))
        piece = {}
        for name in wanted:
            shape = fields[name].shape[1:]
            piece[name] = _column(content.source, name, shape, records, gaps, done)
        yield piece
        done += len(block)


def _whole_value(content: Content) -> Any:
    with content.open() as file:
        text = file.read(_LARGEST_FILE + 1)
    if len(text) > _LARGEST_FILE:
        problem = f"holds more than {_LARGEST_FILE >> 20} MB; write one record per line instead"
        raise DataError(content.source, problem)
    return json.loads(text.removeprefix(codecs.BOM_UTF8))


def _columns_of(source: str, value: Any, gaps: bool) -> dict[str, np.ndarray]:
    """Return the numbers of a whole file: those of its longest list of records, or its lists.

    Single numbers beside the records are columns without rows.
    """
    columns = {name: np.array(numbers) for name, numbers in _numbers(value).items()}
    records = [_numbers(record) for record in _records(value)]
    for name, first in (records[0] if records else {}).items():
        shape = np.shape(first)
        if len(shape) < 2:
            columns[name] = _column(source, name, shape, records, gaps, 0)
    return columns


def _records(value: Any, depth: int = 0) -> list[dict[str, Any]]:
    """Return the longest list of records in a value, an empty list without any."""
    if isinstance(value, list):
        return value if all(isinstance(item, dict) for item in value) else []
    chosen: list[dict[str, Any]] = []
    if isinstance(value, dict) and depth < _DEEPEST:
        for item in value.values():
            records = _records(item, depth + 1)
            if len(records) > len(chosen):
                chosen = records
    return chosen


def _numbers(record: Any, path: str = "", depth: int = 0) -> dict[str, Any]:
    """Return the numbers and lists of numbers of a record; those of an object as `object/name`."""
    if isinstance(record, list) and not path:
        record = {"column": record}
    found: dict[str, Any] = {}
    if not isinstance(record, dict) or depth > _DEEPEST:
        return found
    for name, value in record.items():
        key = f"{path}/{name}" if path else name
        if isinstance(value, dict):
            found |= _numbers(value, key, depth + 1)
        elif isinstance(value, bool | int | float):
            found[key] = _as_float(value)
        elif value is None:
            found[key] = math.nan
        elif isinstance(value, list) and value:
            numbers = _as_floats(value)
            if numbers is not None:
                found[key] = numbers
        if len(found) > _MOST_COLUMNS:
            raise ValueError(f"a record has more than {_MOST_COLUMNS} columns")
    return found


def _as_floats(values: list[Any]) -> np.ndarray | None:
    """Return a list of numbers, or of lists of one length, as an array; None if it is neither."""
    if isinstance(values[0], list):
        rows: list[np.ndarray] = []
        for value in values:
            row = _as_floats(value) if isinstance(value, list) and value else None
            if row is None or (rows and row.shape != rows[0].shape):
                return None
            rows.append(row)
        return np.array(rows)
    if not all(value is None or isinstance(value, bool | int | float) for value in values):
        return None
    return np.array([math.nan if value is None else _as_float(value) for value in values])


def _as_float(value: bool | int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf


def _column(
    source: str,
    name: str,
    shape: tuple[int, ...],
    records: Sequence[Mapping[str, Any]],
    gaps: bool,
    done: int,
) -> np.ndarray:
    """Return a column of records; `done` rows of the file come before them."""
    column = np.full((len(records), *shape), math.nan)
    for row, record in enumerate(records):
        value = record.get(name)
        if value is None:
            if gaps:
                continue
            problem = "is missing in this record; add it, or remove the record"
            raise DataError(source, problem, column=name, row=done + row)
        if np.shape(value) != shape:
            problem = f"has shape {np.shape(value)}, that of the first record is {shape}"
            raise DataError(source, problem, column=name, row=done + row)
        column[row] = value
    return column


def _columns_sheet(source: str, columns: Mapping[str, np.ndarray]) -> Sheet:
    shapes = {name: values.shape for name, values in columns.items() if values.ndim <= 2}
    constants = {}
    for name in gain_names(shapes):
        numbers = columns[name].ravel()
        if len(numbers) <= MOST_JOINTS:
            constants[name] = tuple(numbers.tolist())
        del shapes[name]
    rows = {name: shape for name, shape in shapes.items() if shape}
    upright = {}
    for name, shape in time_first(rows).items():
        upright[name] = columns[name] if columns[name].shape == shape else columns[name].T
    return Sheet(
        source=source,
        kind="arrays",
        form=JSON_FORM,
        fields={name: Field(shape=values.shape) for name, values in upright.items()},
        pieces=partial(row_pieces, upright),
        constants=constants,
    )
