"""MAT files of versions 5 and 7.3, and HDF5 files, in which version 7.3 is written.

The reader of SciPy can crash the process on a damaged file of version 5; this one checks every
length first.
"""

import math
import mmap
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...joints import MOST_JOINTS
from ..options import LogOptions
from . import (
    Field,
    Pieces,
    PromisedSize,
    Sheet,
    gain_names,
    group_sheets,
    library,
    library_errors,
    row_pieces,
    time_first,
)

MAT_FORM = (
    "MAT variables t, q and tau (time × dof); optional qd, qdd, trajectory; or structs of these"
)
HDF5_FORM = (
    "HDF5 datasets t (time,), q and tau (time, dof); optional qd, qdd, trajectory; "
    "or groups of these"
)
_MAT = "readable MAT file"
_HDF5 = "readable HDF5 file"

# Element types, array classes and flags of the MAT-file format (tables 1-1 and 1-3 of MathWorks'
# description of MAT files): the type in which values are stored may be smaller than their class.
_MATRIX = 14
_COMPRESSED = 15
_STRUCT = 2
_COMPLEX = 0x0800
# Structs in structs that are read.
_DEEPEST = 8
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_STORED |= {12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"}
_CLASSES |= {14: "i8", 15: "u8"}

Shape = tuple[int, ...]


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheets in a file: one, or one per struct or group that holds positions."""
    with path.open("rb") as file:
        version = file.read(10)
    if version == b"MATLAB 5.0":
        form = MAT_FORM
        shapes = _mat_shapes(path)
        read = _mat_pieces
    else:
        form = HDF5_FORM
        shapes = _hdf5_shapes(path)
        read = _hdf5_pieces
    by_matlab = version.startswith(b"MATLAB")
    gains = gain_names(shapes)
    constants = {}
    for name in gains:
        (piece,) = read(path, shapes, [name], MOST_JOINTS)
        constants[name] = tuple(piece[name].astype(np.float64).ravel().tolist())
    shapes = time_first(shapes, vectors=by_matlab)
    fields = {}
    for name, shape in shapes.items():
        if name not in gains:
            fields[name] = Field(shape=shape)
    whole = Sheet(
        source=str(path),
        kind="arrays",
        form=form,
        fields=fields,
        pieces=partial(read, path, shapes),
        loose=by_matlab,
        constants=constants,
    )
    return group_sheets(whole, options)


def _hdf5_shapes(path: Path) -> dict[str, Shape]:
    source = str(path)
    h5py = library("h5py", source, "an HDF5 or MAT 7.3 file")
    shapes: dict[str, Shape] = {}
    size = PromisedSize(path)

    def visit(name: str, item: Any) -> None:
        # MATLAB keeps the targets of references in groups whose names begin with #.
        if isinstance(item, h5py.Dataset) and _is_plain(item) and not name.startswith("#"):
            # A whole chunk is unpacked for any of its rows, and may be larger than the dataset.
            chunk = math.prod(item.chunks or (0,)) * item.dtype.itemsize
            size.add(name, max(item.nbytes, chunk))
            shapes[name] = item.shape

    with library_errors(source, _HDF5), h5py.File(path, "r") as file:
        file.visititems(visit)
    return shapes


def _is_plain(dataset: Any) -> bool:
    """Return whether a dataset holds numbers in this file itself, in one or two axes."""
    elsewhere = dataset.external or dataset.is_virtual
    return dataset.dtype.kind in "fiu" and len(dataset.shape) in (1, 2) and not elsewhere


def _hdf5_pieces(
    path: Path, shapes: Mapping[str, Shape], wanted: Sequence[str], rows: int
) -> Pieces:
    h5py = library("h5py", str(path), "an HDF5 or MAT 7.3 file")
    with library_errors(str(path), _HDF5), h5py.File(path, "r") as file:
        length = max((shapes[name][0] for name in wanted), default=0)
        for start in range(0, length, rows):
            piece = {}
            for name in wanted:
                piece[name] = _hdf5_rows(file[name], shapes[name], slice(start, start + rows))
            yield piece


def _hdf5_rows(dataset: Any, shape: Shape, rows: slice) -> np.ndarray:
    """Return rows of a dataset that may be transposed."""
    if dataset.shape == shape:
        return dataset[rows]
    if dataset.shape[0] == shape[0]:
        return dataset[rows, 0]
    return dataset[:, rows].T.reshape(-1, *shape[1:])


def _mat_shapes(path: Path) -> dict[str, Shape]:
    with library_errors(str(path), _MAT):
        return {name: values.shape for name, values in _mat_arrays(path)}


def _mat_pieces(
    path: Path, shapes: Mapping[str, Shape], wanted: Sequence[str], rows: int
) -> Pieces:
    with library_errors(str(path), _MAT):
        loaded = {}
        for name, values in _mat_arrays(path):
            if name in wanted:
                upright = values.shape == shapes[name]
                loaded[name] = values if upright else values.T.reshape(shapes[name])
        yield from row_pieces(loaded, wanted, rows)


def _mat_arrays(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every matrix of real numbers, those of structs as `struct/matrix`."""
    with (
        path.open("rb") as file,
        closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as content,
    ):
        order = {b"IM": "<", b"MI": ">"}[content[126:128]]
        promised = PromisedSize(path)
        at = 128
        while at + 8 <= len(content):
            kind, size = struct.unpack_from(f"{order}II", content, at)
            body = content[at + 8 : at + 8 + size]
            if len(body) < size:
                raise EOFError(f"a variable ends {size - len(body)} bytes early")
            at += 8 + size
            if kind == _COMPRESSED:
                body = _unpacked(promised, body, order)
            if kind in (_MATRIX, _COMPRESSED):
                yield from _matrix(memoryview(body), order, "")


def _unpacked(promised: PromisedSize, packed: bytes, order: str) -> bytes:
    """Return the content of a compressed element, which begins with its type and length."""
    stream = zlib.decompressobj()
    kind, size = struct.unpack(f"{order}II", stream.decompress(packed, 8))
    promised.add("variable", size)
    if kind != _MATRIX or not size:
        return b""
    return stream.decompress(stream.unconsumed_tail, size)


def _elements(view: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the type and content of each element of a matrix."""
    at = 0
    while at + 8 <= len(view):
        kind, size = struct.unpack_from(f"{order}II", view, at)
        begin = at + 8
        step = 8 + size + -size % 8  # elements are padded to multiples of 8 bytes
        if kind >> 16:  # up to four bytes of content lie in the tag itself
            size = kind >> 16
            kind &= 0xFFFF
            begin = at + 4
            step = 8
        if begin + size > len(view) or (step == 8 and size > 4):
            raise EOFError(f"an element claims {size} bytes of {len(view) - begin}")
        yield kind, view[begin : begin + size]
        at += step


def _matrix(
    view: memoryview, order: str, group: str, depth: int = 0
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the matrices of real numbers in a matrix element, which may be a struct of others."""
    elements = _elements(view, order)
    _, head = next(elements, (0, memoryview(b"")))
    if len(head) < 8:
        return
    flags = struct.unpack_from(f"{order}I", head)[0]
    array_class = flags & 0xFF
    # Objects, tables and function handles are written in a way of their own, which is not read.
    if array_class not in _CLASSES and array_class != _STRUCT:
        return
    parts = [(0, head), *elements]
    if len(parts) < 4 or len(parts[1][1]) % 4:
        return
    shape = tuple(np.frombuffer(parts[1][1], f"{order}i4").tolist())
    name = group or bytes(parts[2][1]).decode("ascii", "replace")
    if not name:
        return  # what MATLAB keeps of its objects
    if array_class == _STRUCT:
        if math.prod(shape) == 1 and len(parts) > 4 and depth < _DEEPEST:
            yield from _struct(parts, order, name, depth)
    elif parts[3][0] in _STORED and len(shape) == 2:
        stored = np.frombuffer(parts[3][1], f"{order}{_STORED[parts[3][0]]}")
        is_whole = min(shape) >= 0 and math.prod(shape) == len(stored)
        if is_whole and not flags & _COMPLEX:
            yield name, stored.astype(_CLASSES[array_class]).reshape(shape, order="F")


def _struct(
    parts: list[tuple[int, memoryview]], order: str, name: str, depth: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the matrices of a struct as `struct/matrix`."""
    if len(parts[3][1]) < 4:
        return
    length = int(np.frombuffer(parts[3][1][:4], f"{order}i4")[0])
    text = bytes(parts[4][1])
    for number, (kind, body) in enumerate(parts[5:]):
        # Field names have the same length, padded with zeros.
        leaf = text[number * length : (number + 1) * length].partition(b"\0")[0]
        if kind == _MATRIX and length > 0 and number * length < len(text):
            path = f"{name}/{leaf.decode('ascii', 'replace')}"
            yield from _matrix(body, order, path, depth + 1)
