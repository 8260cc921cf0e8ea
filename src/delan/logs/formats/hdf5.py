"""HDF5 files, and MAT files of version 7.3, which are HDF5 with transposed axes."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .matlab import transposed_samples, upright
from .sheet import Field, Pieces, Sheet, foreign, package, require_believable, sheets_of

MAGIC = b"\x89HDF\r\n\x1a\n"
HDF5_FORM = (
    "HDF5 datasets t (time,), q and tau (time, dof); optional qd, qdd, trajectory; "
    "or groups of these"
)
_WHAT = "readable HDF5 file"


def read_hierarchy(path: Path, mapped: Collection[str] = ()) -> list[Sheet]:
    """Return the sheets in an HDF5 file: one, or one per group that holds positions."""
    source = str(path)
    h5py = package("h5py", source, "an HDF5 or MAT 7.3 file")
    fields: dict[str, Field] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and _is_plain(item) and not name.startswith("#"):
            require_believable(source, name, item.shape, item.dtype.itemsize, path.stat().st_size)
            fields[name] = Field(shape=item.shape)

    with foreign(source, _WHAT), h5py.File(path, "r") as file:
        file.visititems(visit)
    transposed = _is_matlab(path)
    if transposed:
        samples = transposed_samples(fields)
        fields = {name: upright(known, samples) for name, known in fields.items()}

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        return _pieces(path, wanted, rows, fields)

    return sheets_of(source, HDF5_FORM, fields, pieces, mapped=mapped, loose=transposed)


def _is_matlab(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(10) == b"MATLAB 7.3"


def _is_plain(dataset: Any) -> bool:
    """Return whether a dataset holds numbers in this file itself, in one or two axes."""
    foreign_bytes = dataset.external or dataset.is_virtual
    return dataset.dtype.kind in "fiu" and len(dataset.shape) in (1, 2) and not foreign_bytes


def _pieces(path: Path, wanted: Sequence[str], rows: int, fields: dict[str, Field]) -> Pieces:
    h5py = package("h5py", str(path), "an HDF5 or MAT 7.3 file")
    with foreign(str(path), _WHAT), h5py.File(path, "r") as file:
        length = max((fields[name].shape[0] for name in wanted), default=0)
        for start in range(0, length, rows):
            yield {
                name: _rows(file[name], fields[name].shape, start, start + rows) for name in wanted
            }


def _rows(dataset: Any, shape: tuple[int, ...], first: int, end: int) -> np.ndarray:
    """Return rows of a dataset that may be transposed."""
    if dataset.shape == shape:
        return dataset[first:end]
    if len(shape) == 1:
        return dataset[first:end, 0] if dataset.shape[0] == shape[0] else dataset[0, first:end]
    return dataset[:, first:end].T
