"""Open a log, whatever its form: the form is told by what the file holds, not by how it is called."""

import csv
from collections.abc import Mapping, Sequence
from os.path import isdir  # unlike those of a Path, false for names that no file can have
from pathlib import Path

from ...errors import DataError
from .. import recording_file
from ..log_parts import columns_of
from . import archive, bags, columnar, hierarchy, matlab, table
from .sheet import Field, Pieces, Sheet

_TEXT_SUFFIXES = {".csv", ".tsv", ".txt", ".dat", ".log"}
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_FORMS = f"expected {archive.NPZ_FORM}, or {table.CSV_FORM}; or Parquet, MAT, HDF5 or a ROS 2 bag"


def log_files(path: Path) -> list[Path]:
    """The logs that a path stands for: itself, or those in a folder by the order of their names."""
    if not isdir(path) or bags.is_bag_folder(path):
        return [path]
    try:
        inside = sorted(path.iterdir())
    except OSError as error:
        raise DataError(str(path), f"cannot be read: {error.strerror}; give a readable folder") from None
    found = [each for each in inside if not each.name.startswith(".") and _is_log(each)]
    if not found:
        problem = f"is a folder without logs; {_FORMS}"
        raise DataError(str(path), problem)
    return found


def _is_log(path: Path) -> bool:
    if path.is_dir():
        return bags.is_bag_folder(path)
    if path.suffix.lower() in _TEXT_SUFFIXES:
        return True
    head = _head(path)
    return head.startswith((recording_file.MAGIC, columnar.MAGIC)) or _array_form(head) is not None or bags.is_bag(head)


def open_log(
    path: Path, *, mapped: Mapping[str, tuple[str, ...]], currents: bool = False, gaps: bool = False
) -> list[Sheet]:
    """The sheets of a log, given what was mapped of it and whether torques are to be made of currents; with `gaps`
    empty cells of a table are no errors."""
    source = str(path)
    if isdir(path):
        return bags.read_bag(path, mapped, currents=currents)
    head = _head(path)
    if not head:
        raise DataError(source, f"the file is empty; {_FORMS}")
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    if packed is not None:
        raise DataError(source, f"is packed by {packed}; unpack it first")
    if head.startswith(recording_file.MAGIC):
        return [_own(path)]
    if head.startswith(columnar.MAGIC):
        return columnar.read_columnar(path)
    if bags.is_bag(head):
        return bags.read_bag(path, mapped, currents=currents)
    names = {name for patterns in mapped.values() for name in patterns}
    form = _array_form(head)
    if form == "npz":
        return archive.read_archive(path, names)
    if form == "mat":
        return matlab.read_matlab(path, names)
    if form == "hdf5":
        return hierarchy.read_hierarchy(path, names)
    try:
        return table.read_table(path, gaps=gaps)
    except (UnicodeError, csv.Error) as error:
        raise DataError(source, f"is of no form that is read, nor text ({error}); {_FORMS}") from None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(1024)
    except FileNotFoundError:
        raise DataError(str(path), "no such file; check the path") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise DataError(str(path), f"cannot be read: {said}; give a readable log") from None


def _array_form(head: bytes) -> str | None:
    if head.startswith(archive.MAGIC):
        return "npz"
    if head.startswith(matlab.MAGIC):
        return "mat"
    return "hdf5" if hierarchy.MAGIC in (head[:8], head[512:520]) else None


def _own(path: Path) -> Sheet:
    """The sheet of a recording that we wrote."""
    recording = recording_file.read_recording_file(path)
    held = columns_of(recording)

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        for start in range(0, len(recording.t), rows):
            yield {name: held[name][start : start + rows] for name in wanted}

    return Sheet(
        source=str(path),
        kind="arrays",
        form="a recording that delan wrote",
        fields={name: Field(shape=values.shape) for name, values in held.items()},
        pieces=pieces,
        joints=recording.joints,
    )
