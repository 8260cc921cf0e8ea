"""npz archives of named arrays, read in pieces and never through pickle."""

import contextlib
import math
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...errors import DataError, DelanError
from ...joints import MOST_JOINTS, JointKind, Joints
from ..options import LogOptions
from . import (
    NPZ_FORM,
    PROVENANCE,
    TORCH_INDEX,
    Field,
    Pieces,
    PromisedSize,
    Sheet,
    gain_names,
    group_sheets,
    library_errors,
    read_provenance,
    time_first,
)

_WHAT = "readable npz file"
# Bytes decompressed at once where a column is skipped.
_SKIPPED_AT_ONCE = 1 << 18
# Files in an archive, and bytes of the name of a joint; an archive with more is no log.
_MOST_ARRAYS = 1000
_LONGEST_TEXT = 4000
_LARGEST_PROVENANCE = 1 << 20
_NAMING = ("joint_names", "joint_kinds")


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheets in an npz file: one, or one per group of arrays named `group/array`.

    A zip archive of other files is one of torch, or an archive of logs.
    """
    source = str(path)
    with library_errors(source, _WHAT), zipfile.ZipFile(path) as archive:
        members = archive.namelist()
        if len(members) > _MOST_ARRAYS:
            problem = f"holds {len(members)} files; expected {NPZ_FORM}"
            raise DataError(source, problem)
        module = _other_reader(members)
        content = None
        if module is None:
            content = _Arrays(source, archive, PromisedSize(path))
    if module is not None or content is None:
        return import_module(str(module), __package__).read_sheets(path, options, gaps)
    shapes = time_first(content.shapes)
    fields = {name: Field(shape=shape) for name, shape in shapes.items()}
    whole = Sheet(
        source=source,
        kind="arrays",
        form=NPZ_FORM,
        fields=fields,
        pieces=partial(_pieces, path, shapes),
        joints=_joints(source, content.naming, fields),
        loose=False,
        constants=content.constants,
        provenance=content.provenance,
    )
    return group_sheets(whole, options)


def _other_reader(members: Sequence[str]) -> str | None:
    """Return the module that reads a zip archive which is no npz file."""
    if any(name.endswith(".npy") for name in members) or not members:
        return None
    return ".torch_file" if any(name.endswith(TORCH_INDEX) for name in members) else ".packed"


class _Arrays:
    """What the heads of the arrays in an archive say, and the texts and gains among them."""

    def __init__(self, source: str, archive: zipfile.ZipFile, size: PromisedSize):
        shapes: dict[str, tuple[int, ...]] = {}
        self.naming: dict[str, tuple[str, ...]] = {}
        self.provenance: dict[str, Any] | None = None
        for member in archive.namelist():
            name = member.removesuffix(".npy")
            if name == member:
                continue
            shape = _shape(archive, name, size)
            if name in _NAMING:
                self.naming[name] = _texts(source, archive, name)
            elif name == PROVENANCE:
                self.provenance = _provenance(archive)
            else:
                shapes[name] = shape
        self.constants: dict[str, tuple[float, ...]] = {}
        for name in gain_names(shapes):
            del shapes[name]
            with archive.open(f"{name}.npy") as file:
                values = np.lib.format.read_array(file, allow_pickle=False)
            self.constants[name] = tuple(values.astype(np.float64).ravel().tolist())
        # A single number has no rows.
        self.shapes = {name: shape for name, shape in shapes.items() if shape}


def _provenance(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return what delan wrote of the log that it converted into this file."""
    if archive.getinfo(f"{PROVENANCE}.npy").file_size > _LARGEST_PROVENANCE:
        raise ValueError(f"{PROVENANCE} has more than {_LARGEST_PROVENANCE} bytes")
    with archive.open(f"{PROVENANCE}.npy") as file:
        values = np.lib.format.read_array(file, allow_pickle=False)
    return read_provenance(str(values))


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return the shape, whether it is in Fortran order, and the type of the array that follows."""
    if np.lib.format.read_magic(file) == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _shape(archive: zipfile.ZipFile, name: str, size: PromisedSize) -> tuple[int, ...]:
    with archive.open(f"{name}.npy") as file:
        shape, _, dtype = _header(file)
        start = file.tell()
    if not dtype.hasobject:
        claimed = dtype.itemsize * math.prod(shape)
        size.add(name, claimed)
        missing = start + claimed - archive.getinfo(f"{name}.npy").file_size
        if missing > 0:
            raise EOFError(f"array {name} ends {missing} bytes early")
    return shape


def _texts(source: str, archive: zipfile.ZipFile, name: str) -> tuple[str, ...]:
    with archive.open(f"{name}.npy") as file:
        shape, _, dtype = _header(file)
        if math.prod(shape) > MOST_JOINTS or dtype.itemsize > _LONGEST_TEXT:
            problem = f"holds {math.prod(shape)} texts of up to {dtype.itemsize} bytes"
            raise DataError(source, f"{problem}; expected one for each joint", column=name)
    with archive.open(f"{name}.npy") as file:
        values = np.lib.format.read_array(file, allow_pickle=False)
    return tuple(map(str, values.ravel()))


def _joints(
    source: str, naming: Mapping[str, tuple[str, ...]], fields: Mapping[str, Field]
) -> Joints | None:
    """Return the joints that the archive names, None if it names none or has no positions."""
    shape = fields.get("q", Field()).shape
    if not naming or len(shape) != 2 or shape[1] == 0:
        return None
    if shape[1] > MOST_JOINTS:
        return None  # refused where the columns are looked for
    default = Joints.revolute(shape[1])
    names = naming.get("joint_names", default.names)
    kinds = cast(tuple[JointKind, ...], naming.get("joint_kinds", default.kinds))
    for column, given in (("joint_names", names), ("joint_kinds", kinds)):
        if len(given) != shape[1]:
            problem = (
                f"expected one joint name and one kind for each of {shape[1]} joints, "
                f"got {len(names)} and {len(kinds)}"
            )
            raise DataError(source, problem, column=column)
    try:
        return Joints(names, kinds)
    except DelanError as error:
        raise DataError(source, str(error)) from None


def _pieces(
    path: Path, shapes: Mapping[str, tuple[int, ...]], wanted: Sequence[str], rows: int
) -> Pieces:
    with library_errors(str(path), _WHAT), contextlib.ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(path))
        members = {name: _Member(stack, archive, name, shapes[name]) for name in wanted}
        while True:
            piece = {name: member.take(rows) for name, member in members.items()}
            if not any(map(len, piece.values())):
                return
            yield piece


class _Member:
    """An array of an archive, read from its first row to its last.

    The columns of an array in Fortran order, or of one with joints along the first axis, are read
    through one open file each.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        archive: zipfile.ZipFile,
        name: str,
        shape: tuple[int, ...],
    ):
        self._name = name
        self._files: list[Any] = [stack.enter_context(archive.open(f"{name}.npy"))]
        stored, by_columns, self._dtype = _header(self._files[0])
        self._shape = shape
        if self._dtype.hasobject:
            raise ValueError(f"array {name} holds objects, which are not read: allow_pickle is off")
        self._at = 0
        # An array that was turned has its other order.
        self._by_columns = (by_columns != (stored != shape)) and len(shape) == 2
        if self._by_columns:
            start = self._files[0].tell()
            length = self._shape[0] * self._dtype.itemsize
            for column in range(1, self._shape[1]):
                file = stack.enter_context(archive.open(f"{name}.npy"))
                _skip(file, start + column * length)
                self._files.append(file)

    def take(self, rows: int) -> np.ndarray:
        """Return the next rows, fewer at the end of the array."""
        count = max(0, min(rows, self._shape[0] - self._at))
        self._at += count
        if self._by_columns:
            return np.stack([self._read(file, (count,)) for file in self._files], axis=1)
        return self._read(self._files[0], (count, *self._shape[1:]))

    def _read(self, file: Any, shape: tuple[int, ...]) -> np.ndarray:
        wanted = math.prod(shape) * self._dtype.itemsize
        content = file.read(wanted)
        if len(content) < wanted:
            raise EOFError(f"array {self._name} ends {wanted - len(content)} bytes early")
        return np.frombuffer(content, self._dtype).reshape(shape)


def _skip(file: Any, count: int) -> None:
    """Skip `count` bytes in little memory; a seek would read them, too, and many at once."""
    while count > 0 and (content := file.read(min(count, _SKIPPED_AT_ONCE))):
        count -= len(content)
