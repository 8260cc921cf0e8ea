"""Parquet files: columns of numbers, of times, or of lists of one length, read in batches."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..options import LogOptions
from . import (
    PROVENANCE,
    Field,
    Pieces,
    PromisedSize,
    Sheet,
    library,
    library_errors,
    read_provenance,
)

PARQUET_FORM = (
    "Parquet columns t, q0, q1, …, tau0, tau1, …, or q and tau as lists of one number per joint"
)
_WHAT = "readable Parquet file"
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheet in a Parquet file."""
    source = str(path)
    arrow = _arrow(source)
    fields = {}
    provenance = None
    size = PromisedSize(path)
    with library_errors(source, _WHAT), arrow.parquet.ParquetFile(path) as file:
        # A row is a number at least; a column of one value takes some bytes for any number of rows.
        size.add("rows", 8 * file.metadata.num_rows)
        written = (file.schema_arrow.metadata or {}).get(PROVENANCE.encode())
        if written is not None:
            provenance = read_provenance(written.decode("utf-8"))
        for column in file.schema_arrow:
            known = _field(arrow.types, file, column)
            if known is not None:
                size.add(column.name, 8 * math.prod(known.shape))
                fields[column.name] = known
    pieces = partial(_pieces, path, fields)
    sheet = Sheet(
        source=source,
        kind="table",
        form=PARQUET_FORM,
        fields=fields,
        pieces=pieces,
        provenance=provenance,
    )
    return [sheet]


def _arrow(source: str) -> Any:
    """Return pyarrow with the submodules that are used here, which it does not import itself."""
    library("pyarrow.parquet", source, "a Parquet file")
    library("pyarrow.compute", source, "a Parquet file")
    return library("pyarrow", source, "a Parquet file")


def _field(types: Any, file: Any, column: Any) -> Field | None:
    """Return what is known of a column, None if it holds no numbers."""
    rows = file.metadata.num_rows
    kind = column.type
    if types.is_timestamp(kind) or types.is_duration(kind):
        return Field(shape=(rows,), unit=_UNITS[kind.unit])
    if _is_real(types, kind):
        return Field(shape=(rows,))
    if types.is_fixed_size_list(kind) and _is_real(types, kind.value_type):
        return Field(shape=(rows, kind.list_size))
    if (types.is_list(kind) or types.is_large_list(kind)) and _is_real(types, kind.value_type):
        # The type does not say how long the lists are; the first one does.
        for batch in file.iter_batches(batch_size=1, columns=[column.name]):
            first = batch.column(0).to_pylist()
            if first and first[0]:
                return Field(shape=(rows, len(first[0])))
            break
    return None


def _is_real(types: Any, kind: Any) -> bool:
    return types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)


def _pieces(path: Path, fields: Mapping[str, Field], wanted: Sequence[str], rows: int) -> Pieces:
    source = str(path)
    arrow = _arrow(source)
    with library_errors(source, _WHAT), arrow.parquet.ParquetFile(path) as file:
        done = 0
        for batch in file.iter_batches(batch_size=rows, columns=list(wanted)):
            piece = {}
            for name in wanted:
                piece[name] = _values(source, name, batch.column(name), fields[name], done)
            yield piece
            done += batch.num_rows


def _values(source: str, name: str, column: Any, known: Field, done: int) -> np.ndarray:
    """Return the values of a column in a batch that begins at row `done` of the file."""
    arrow = _arrow(source)
    if len(known.shape) == 1:
        if known.unit is not None:
            column = column.cast(arrow.int64())
        elif arrow.types.is_decimal(column.type):
            column = column.cast(arrow.float64())
        return column.to_numpy(zero_copy_only=False)
    width = known.shape[1]
    lengths = arrow.compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        length = lengths[wrong[0]] or "none"
        problem = f"expected a list of {width} numbers, got {length}; fix the row or remove it"
        raise DataError(source, problem, column=name, row=done + int(wrong[0]))
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), width)
