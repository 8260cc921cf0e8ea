"""npz archives of named arrays, read in pieces and never through pickle."""

import contextlib
import math
import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...errors import DataError, DelanError
from ...joints import JointKind, Joints
from .sheet import Field, Pieces, Sheet, foreign, require_believable, sheets_of

MAGIC = b"PK"
NPZ_FORM = (
    "npz arrays: t (time,), q and tau (time, dof); "
    "optional qd, qdd, inertial, coriolis, gravity, trajectory"
)
_WHAT = "readable npz file"
# Bytes decompressed at once where a column is skipped.
_SKIPPED_AT_ONCE = 1 << 18
_NAMING = ("joint_names", "joint_kinds")


def read_archive(path: Path, mapped: Collection[str] = ()) -> list[Sheet]:
    """Return the sheets in an npz file: one, or one per group of arrays named `group/array`."""
    source = str(path)
    with foreign(source, _WHAT), zipfile.ZipFile(path) as archive:
        fields = {name: _field(path, archive, name) for name in _members(archive)}
        naming = {name: _text(archive, name) for name in _NAMING if name in fields}

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        return _pieces(path, wanted, rows)

    fields = {name: known for name, known in fields.items() if name not in _NAMING}
    joints = _joints(source, naming, fields) if naming else None
    return sheets_of(source, NPZ_FORM, fields, pieces, mapped=mapped, joints=joints)


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return the shape, whether it is in Fortran order, and the type of the array that follows."""
    if np.lib.format.read_magic(file) == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _field(path: Path, archive: zipfile.ZipFile, name: str) -> Field:
    with archive.open(f"{name}.npy") as file:
        shape, _, dtype = _header(file)
    if not dtype.hasobject:
        require_believable(str(path), name, shape, dtype.itemsize, path.stat().st_size)
    return Field(shape=shape)


def _text(archive: zipfile.ZipFile, name: str) -> tuple[str, ...]:
    with archive.open(f"{name}.npy") as file:
        values = np.lib.format.read_array(file, allow_pickle=False)
    return tuple(str(value) for value in values.ravel())


def _joints(
    source: str, naming: dict[str, tuple[str, ...]], fields: dict[str, Field]
) -> Joints | None:
    shape = fields["q"].shape if "q" in fields else ()
    if len(shape) != 2 or shape[1] == 0:
        return None
    default = Joints.revolute(shape[1])
    names = naming.get("joint_names", default.names)
    kinds = cast(tuple[JointKind, ...], naming.get("joint_kinds", default.kinds))
    if len(names) != shape[1] or len(kinds) != shape[1]:
        problem = (
            f"expected one joint name and one kind for each of {shape[1]} joints, "
            f"got {len(names)} and {len(kinds)}"
        )
        wrong = "joint_names" if len(names) != shape[1] else "joint_kinds"
        raise DataError(source, problem, column=wrong)
    try:
        return Joints(names, kinds)
    except DelanError as error:
        raise DataError(source, str(error)) from None


def _pieces(path: Path, wanted: Sequence[str], rows: int) -> Pieces:
    source = str(path)
    with foreign(source, _WHAT), contextlib.ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(path))
        members = {name: _Member(name, _opener(stack, archive, name)) for name in wanted}
        while True:
            piece = {name: member.take(rows) for name, member in members.items()}
            if not any(len(values) for values in piece.values()):
                return
            yield piece


def _opener(stack: contextlib.ExitStack, archive: zipfile.ZipFile, name: str) -> Callable[[], Any]:
    return lambda: stack.enter_context(archive.open(f"{name}.npy"))


def _skip(file: Any, count: int) -> None:
    """Skip `count` bytes in little memory; a seek would read them, too, and many at once."""
    while count > 0 and (content := file.read(min(count, _SKIPPED_AT_ONCE))):
        count -= len(content)


class _Member:
    """An array of an archive, read from its first row to its last.

    The columns of an array in Fortran order are read through one open file each.
    """

    def __init__(self, name: str, opened: Callable[[], Any]):
        self._name = name
        self._files = [opened()]
        self._shape, by_columns, self._dtype = _header(self._files[0])
        if self._dtype.hasobject:
            raise ValueError(f"array {name} holds objects, which are not read: allow_pickle is off")
        self._at = 0
        self._by_columns = by_columns and len(self._shape) == 2
        if self._by_columns:
            start = self._files[0].tell()
            length = self._shape[0] * self._dtype.itemsize
            for column in range(1, self._shape[1]):
                self._files.append(opened())
                _skip(self._files[-1], start + column * length)

    def take(self, rows: int) -> np.ndarray:
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
