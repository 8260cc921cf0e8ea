"""MAT files of version 5: matrices of numbers, and structs of them.

The format is small, and the reader that others use can crash the whole process on a damaged file: this one checks
every length before it follows it.
"""

import math
import mmap
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from .groups import sheets_of
from .sheet import Field, Pieces, Sheet, foreign, require_believable

MAGIC = b"MATLAB 5.0 MAT-file"
MAT_FORM = "MAT variables t, q and tau (time × dof); optional qd, qdd, trajectory; or a struct of these"
_WHAT = "readable MAT file"
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _COMPLEX = 2, 0x0800
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}


def read_matlab(path: Path, mapped: Collection[str] = ()) -> list[Sheet]:
    """The sheets in a MAT file: its variables, or one sheet a struct."""
    source = str(path)
    with foreign(source, _WHAT):
        fields = {name: Field(shape=values.shape) for name, values in _arrays(path)}
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


def _pieces(path: Path, wanted: Sequence[str], rows: int, lying: int | None) -> Pieces:
    with foreign(str(path), _WHAT):
        loaded = {name: _upright(values, lying) for name, values in _arrays(path) if name in wanted}
        for start in range(0, max((len(values) for values in loaded.values()), default=0), rows):
            yield {name: loaded[name][start : start + rows] for name in wanted}


def _upright(values: np.ndarray, lying: int | None) -> np.ndarray:
    shape = upright(Field(shape=values.shape), lying).shape
    if shape == values.shape:
        return values
    return values.ravel() if len(shape) == 1 else values.T


def _arrays(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Every matrix of real numbers, those of structs as `struct/matrix`; what else the file holds is passed over."""
    with path.open("rb") as file, closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as content:
        order = {b"IM": "<", b"MI": ">"}[content[126:128]]
        at = 128
        while at + 8 <= len(content):
            kind, size = struct.unpack_from(f"{order}II", content, at)
            body = content[at + 8 : at + 8 + size]
            if len(body) < size:
                raise EOFError(f"a variable ends {size - len(body)} bytes early")
            at += 8 + size
            if kind == _COMPRESSED:
                body = _unpacked(str(path), body, order)
            if kind in (_MATRIX, _COMPRESSED):
                yield from _matrix(memoryview(body), order, "")


def _unpacked(source: str, packed: bytes, order: str) -> bytes:
    """The element in a compressed one, which says its length at its start."""
    stream = zlib.decompressobj()
    kind, size = struct.unpack(f"{order}II", stream.decompress(packed, 8))
    require_believable(source, "variable", (size,), 1, len(packed))
    return stream.decompress(stream.unconsumed_tail, size) if kind == _MATRIX and size else b""


def _elements(view: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element in a matrix."""
    at = 0
    while at + 8 <= len(view):
        kind, size = struct.unpack_from(f"{order}II", view, at)
        begin, step = at + 8, -size % 8 + size + 8
        if kind >> 16:  # up to four bytes lie in the tag itself
            kind, size, begin, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        if begin + size > len(view) or (step == 8 and size > 4):
            raise EOFError(f"an element claims {size} bytes of {len(view) - begin}")
        yield kind, view[begin : begin + size]
        at += step


def _matrix(view: memoryview, order: str, group: str) -> Iterator[tuple[str, np.ndarray]]:
    parts = list(_elements(view, order))
    if len(parts) < 4 or len(parts[0][1]) < 8:
        return
    flags = struct.unpack_from(f"{order}I", parts[0][1])[0]
    shape = tuple(np.frombuffer(parts[1][1], f"{order}i4").tolist())
    name = bytes(parts[2][1]).decode("ascii", "replace")
    name = f"{group}/{name}" if group else name
    if flags & 0xFF == _STRUCT and not group and math.prod(shape) == 1 and len(parts) > 4:
        length = int(np.frombuffer(parts[3][1], f"{order}i4")[0])
        text = bytes(parts[4][1])
        names = [text[i : i + length].partition(b"\0")[0] for i in range(0, len(text), length)] if length > 0 else []
        for leaf, (kind, body) in zip(names, parts[5:], strict=False):
            if kind == _MATRIX:
                for _, values in _matrix(body, order, name):
                    yield f"{name}/{leaf.decode('ascii', 'replace')}", values
    elif flags & 0xFF in _CLASSES and not flags & _COMPLEX and parts[3][0] in _STORED and len(shape) == 2:
        stored = np.frombuffer(parts[3][1], f"{order}{_STORED[parts[3][0]]}")
        if min(shape) >= 0 and math.prod(shape) == len(stored):
            yield name, stored.astype(_CLASSES[flags & 0xFF]).reshape(shape, order="F")
