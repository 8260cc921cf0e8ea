"""MAT files of version 5: matrices and structs of matrices, one variable in memory at a time."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy.io

from .groups import sheets_of
from .sheet import Field, Pieces, Sheet, foreign, require_believable

MAGIC = b"MATLAB 5.0 MAT-file"
MAT_FORM = "MAT variables t, q and tau (time × dof); optional qd, qdd, trajectory; or a struct of these"
_WHAT = "readable MAT file"
_NUMERIC = {"double", "single", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def read_matlab(path: Path, mapped: Collection[str] = ()) -> list[Sheet]:
    """The sheets in a MAT file: its variables, or one sheet a struct."""
    source = str(path)
    fields: dict[str, Field] = {}
    with foreign(source, _WHAT), warnings.catch_warnings(action="ignore"):
        for name, shape, kind in scipy.io.whosmat(str(path)):
            if kind in _NUMERIC:
                require_believable(source, name, shape, 8, path.stat().st_size)
                fields[name] = Field(shape=shape)
            elif kind == "struct":
                fields |= {f"{name}/{leaf}": Field(shape=values.shape) for leaf, values in _struct(path, name).items()}
    lying = lying_rows(fields)
    fields = {name: upright(known, lying) for name, known in fields.items()}

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        return _pieces(path, wanted, rows, lying)

    return sheets_of(source, MAT_FORM, fields, pieces, mapped=mapped, loose=True)


def lying_rows(fields: Mapping[str, Field]) -> int | None:
    """How many columns an array has whose rows are joints and whose columns are times; None if times are rows.

    MATLAB knows no arrays of one axis: what is n × 1 or 1 × n for most n is a column of single numbers.
    """
    lengths = [max(known.shape) for known in fields.values() if len(known.shape) == 2 and min(known.shape) == 1]
    lengths += [known.shape[0] for known in fields.values() if len(known.shape) == 1]
    wide = [known.shape for known in fields.values() if len(known.shape) == 2 and min(known.shape) > 1]
    if not wide:
        return None
    longest = max(lengths, default=max(shape[1] for shape in wide))
    return longest if all(shape[0] < longest for shape in wide) else None


def upright(known: Field, lying: int | None) -> Field:
    """The field as it will be read: single numbers in one axis, time along the first."""
    shape = known.shape
    if len(shape) != 2:
        return known
    if min(shape) == 1 and max(shape) > 1:
        return Field(shape=(max(shape),), unit=known.unit)
    return Field(shape=shape[::-1], unit=known.unit) if lying is not None and shape[1] == lying else known


def _struct(path: Path, name: str) -> dict[str, np.ndarray]:
    """The matrices of numbers in a struct; cells, texts and objects are left alone."""
    loaded = scipy.io.loadmat(str(path), variable_names=[name], struct_as_record=True, squeeze_me=False)[name]
    if loaded.dtype.names is None or loaded.size != 1:
        return {}
    record = loaded.ravel()[0]
    return {
        leaf: record[leaf]
        for leaf in loaded.dtype.names
        if isinstance(record[leaf], np.ndarray) and record[leaf].dtype.kind in "fiu" and record[leaf].ndim == 2
    }


def _load(path: Path, name: str) -> np.ndarray:
    group, _, leaf = name.rpartition("/")
    if group:
        return _struct(path, group)[leaf]
    values = scipy.io.loadmat(str(path), variable_names=[name])[name]
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise ValueError(f"variable {name} is no matrix of real numbers")
    return values


def _pieces(path: Path, wanted: Sequence[str], rows: int, lying: int | None) -> Pieces:
    with foreign(str(path), _WHAT):
        with warnings.catch_warnings(action="ignore"):
            loaded = {name: _upright(_load(path, name), lying) for name in wanted}
        for start in range(0, max((len(values) for values in loaded.values()), default=0), rows):
            yield {name: values[start : start + rows] for name, values in loaded.items()}


def _upright(values: np.ndarray, lying: int | None) -> np.ndarray:
    shape = upright(Field(shape=values.shape), lying).shape
    if shape == values.shape:
        return values
    return values.ravel() if len(shape) == 1 else values.T
