"""MAT files of version 5: matrices of numbers, and structs of them.

The reader of SciPy can crash the process on a damaged file; this one checks every length first.
"""

import math
import mmap
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from .sheet import Field, Pieces, Sheet, foreign, require_believable, sheets_of

MAGIC = b"MATLAB 5.0 MAT-file"
MAT_FORM = (
    "MAT variables t, q and tau (time × dof); optional qd, qdd, trajectory; or a struct of these"
)
_WHAT = "readable MAT file"

# Element types, array classes and flags of the MAT-file format (tables 1-1 and 1-3 of MathWorks'
# description of MAT files): the type in which values are stored may be smaller than their class.
_MATRIX = 14
_COMPRESSED = 15
_STRUCT = 2
_COMPLEX = 0x0800
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_STORED |= {12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"}
_CLASSES |= {14: "i8", 15: "u8"}


def read_matlab(path: Path, mapped: Collection[str] = ()) -> list[Sheet]:
    """Return the sheets in a MAT file: one of its variables, or one per struct."""
    source = str(path)
    with foreign(source, _WHAT):
        fields = {name: Field(shape=values.shape) for name, values in _arrays(path)}
    samples = transposed_samples(fields)
    fields = {name: upright(known, samples) for name, known in fields.items()}

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        return _pieces(path, wanted, rows, samples)

    return sheets_of(source, MAT_FORM, fields, pieces, mapped=mapped, loose=True)


def transposed_samples(fields: Mapping[str, Field]) -> int | None:
    """Return the number of samples of arrays (dof, time); None if arrays are (time, dof).

    MATLAB has no arrays of one axis: n × 1 and 1 × n are columns of single numbers.
    """
    lengths = []
    wide = []
    for known in fields.values():
        if len(known.shape) == 2 and min(known.shape) > 1:
            wide.append(known.shape)
        elif len(known.shape) == 1 or known.shape[:1] == (1,) or known.shape[1:] == (1,):
            lengths.append(max(known.shape))
    if not wide:
        return None
    longest = max(lengths, default=max(shape[1] for shape in wide))
    return longest if all(shape[0] < longest for shape in wide) else None


def upright(known: Field, samples: int | None) -> Field:
    """Return a field with time along its first axis, and single numbers in one axis."""
    shape = known.shape
    if len(shape) != 2:
        return known
    if min(shape) == 1 and max(shape) > 1:
        return Field(shape=(max(shape),), unit=known.unit)
    if samples is not None and shape[1] == samples:
        return Field(shape=shape[::-1], unit=known.unit)
    return known


def _pieces(path: Path, wanted: Sequence[str], rows: int, samples: int | None) -> Pieces:
    with foreign(str(path), _WHAT):
        loaded = {}
        for name, values in _arrays(path):
            if name in wanted:
                loaded[name] = _upright(values, samples)
        longest = max((len(values) for values in loaded.values()), default=0)
        for start in range(0, longest, rows):
            yield {name: loaded[name][start : start + rows] for name in wanted}


def _upright(values: np.ndarray, samples: int | None) -> np.ndarray:
    shape = upright(Field(shape=values.shape), samples).shape
    if shape == values.shape:
        return values
    return values.ravel() if len(shape) == 1 else values.T


def _arrays(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every matrix of real numbers, those of structs as `struct/matrix`."""
    with (
        path.open("rb") as file,
        closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as content,
    ):
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
    """Return the content of a compressed element, which begins with its type and length."""
    stream = zlib.decompressobj()
    kind, size = struct.unpack(f"{order}II", stream.decompress(packed, 8))
    require_believable(source, "variable", (size,), 1, len(packed))
    return stream.decompress(stream.unconsumed_tail, size) if kind == _MATRIX and size else b""


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
        names = []
        if length > 0:
            for start in range(0, len(text), length):
                names.append(text[start : start + length].partition(b"\0")[0])
        for leaf, (kind, body) in zip(names, parts[5:], strict=False):
            if kind == _MATRIX:
                for _, values in _matrix(body, order, name):
                    yield f"{name}/{leaf.decode('ascii', 'replace')}", values
    elif (
        flags & 0xFF in _CLASSES
        and not flags & _COMPLEX
        and parts[3][0] in _STORED
        and len(shape) == 2
    ):
        stored = np.frombuffer(parts[3][1], f"{order}{_STORED[parts[3][0]]}")
        if min(shape) >= 0 and math.prod(shape) == len(stored):
            yield name, stored.astype(_CLASSES[flags & 0xFF]).reshape(shape, order="F")
