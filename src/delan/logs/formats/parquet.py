"""Parquet files: columns of numbers, of times, or of lists of one length, read in batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from .sheet import Field, Pieces, Sheet, foreign, package

MAGIC = b"PAR1"
PARQUET_FORM = (
    "Parquet columns t, q0, q1, …, tau0, tau1, …, or q and tau as lists of one number per joint"
)
_WHAT = "readable Parquet file"
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def read_columnar(path: Path) -> list[Sheet]:
    """Return the sheet in a Parquet file."""
    source = str(path)
    parquet = package("pyarrow.parquet", source, "a Parquet file")
    with foreign(source, _WHAT), parquet.ParquetFile(path) as file:
        fields = {}
        for column in file.schema_arrow:
            known = _field(source, file, column)
            if known is not None:
                fields[column.name] = known

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        return _pieces(path, fields, wanted, rows)

    return [Sheet(source=source, kind="table", form=PARQUET_FORM, fields=fields, pieces=pieces)]


def _field(source: str, file: Any, column: Any) -> Field | None:
    """Return what is known of a column, None if it holds no numbers."""
    types = package("pyarrow.types", source, "a Parquet file")
    rows = file.metadata.num_rows
    kind = column.type
    if types.is_timestamp(kind) or types.is_duration(kind):
        return Field(shape=(rows,), unit=_UNITS[kind.unit])
    if _is_real(types, kind):
        return Field(shape=(rows,))
    if types.is_fixed_size_list(kind) and _is_real(types, kind.value_type):
        return Field(shape=(rows, kind.list_size))
    if (types.is_list(kind) or types.is_large_list(kind)) and _is_real(types, kind.value_type):
        batch = next(file.iter_batches(batch_size=1, columns=[column.name]), None)
        first = None if batch is None or not batch.num_rows else batch.column(0)[0].as_py()
        return Field(shape=(rows, len(first))) if first else None
    return None


def _is_real(types: Any, kind: Any) -> bool:
    return types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)


def _pieces(path: Path, fields: dict[str, Field], wanted: Sequence[str], rows: int) -> Pieces:
    source = str(path)
    parquet = package("pyarrow.parquet", source, "a Parquet file")
    with foreign(source, _WHAT), parquet.ParquetFile(path) as file:
        done = 0
        for batch in file.iter_batches(batch_size=rows, columns=list(wanted)):
            yield {
                name: _values(source, name, batch.column(name), fields[name], done)
                for name in wanted
            }
            done += batch.num_rows


def _values(source: str, name: str, column: Any, known: Field, done: int) -> np.ndarray:
    """Return the values of a column in a batch that begins at row `done` of the file."""
    arrow = package("pyarrow", source, "a Parquet file")
    if len(known.shape) == 1:
        if known.unit is not None:
            column = column.cast(arrow.int64())
        elif arrow.types.is_decimal(column.type):
            column = column.cast(arrow.float64())
        return column.to_numpy(zero_copy_only=False)
    width = known.shape[1]
    for row, length in enumerate(_lengths(arrow, column)):
        if length != width:
            problem = (
                f"expected a list of {width} numbers, got {length or 'none'}; "
                "fix the row or remove it"
            )
            raise DataError(source, problem, column=name, row=done + row)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), width)


def _lengths(arrow: Any, column: Any) -> list[int]:
    if column.null_count:
        return [len(row) if row.is_valid else 0 for row in column]
    if arrow.types.is_fixed_size_list(column.type):
        return [column.type.list_size] * len(column)
    return np.diff(column.offsets.to_numpy()).tolist()
