"""Opening of logs: the format is recognised by the content of a file, not by its name."""

import csv
from collections.abc import Mapping, Sequence
from os.path import isdir  # unlike those of a Path, false for names that no file can have
from pathlib import Path

from ...errors import DataError
from .. import recording_file
from . import archive, bags, hdf5, matlab, parquet, text_table
from .sheet import Field, Pieces, Sheet

_TEXT_SUFFIXES = {".csv", ".tsv", ".txt", ".dat", ".log"}
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_FORMS = (
    f"expected {archive.NPZ_FORM}, or {text_table.CSV_FORM}; or Parquet, MAT, HDF5 or a ROS 2 bag"
)


def log_files(path: Path) -> list[Path]:
    """Return the path itself, or the logs in a folder in the order of their names."""
    if not isdir(path) or bags.is_bag_folder(path):
        return [path]
    try:
        inside = sorted(path.iterdir())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; give a readable folder"
        raise DataError(str(path), problem) from None
    logs = [file for file in inside if not file.name.startswith(".") and _is_log(file)]
    if not logs:
        raise DataError(str(path), f"is a folder without logs; {_FORMS}")
    return logs


def _is_log(path: Path) -> bool:
    if path.is_dir():
        return bags.is_bag_folder(path)
    if path.suffix.lower() in _TEXT_SUFFIXES:
        return True
    head = _head(path)
    return (
        head.startswith((recording_file.MAGIC, parquet.MAGIC))
        or _array_form(head) is not None
        or bags.is_bag(head)
    )


def open_log(
    path: Path, *, mapped: Mapping[str, tuple[str, ...]], currents: bool = False, gaps: bool = False
) -> list[Sheet]:
    """Return the sheets of a log.

    `mapped` are the patterns given by the user. `currents` asks for currents beside torques. `gaps`
    reads empty cells of a table as NaN instead of refusing them.
    """
    source = str(path)
    if isdir(path):
        return bags.read_bag(path, mapped, currents=currents)
    head = _head(path)
    if not head:
        raise DataError(source, f"the file is empty; {_FORMS}")
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    if packed is not None:
        raise DataError(source, f"is compressed by {packed}; decompress it first")
    if head.startswith(recording_file.MAGIC):
        return [_recording_sheet(path)]
    if head.startswith(parquet.MAGIC):
        return parquet.read_columnar(path)
    if bags.is_bag(head):
        return bags.read_bag(path, mapped, currents=currents)
    names = {name for patterns in mapped.values() for name in patterns}
    form = _array_form(head)
    if form == "npz":
        return archive.read_archive(path, names)
    if form == "mat":
        return matlab.read_matlab(path, names)
    if form == "hdf5":
        return hdf5.read_hierarchy(path, names)
    try:
        return text_table.read_table(path, gaps=gaps)
    except (UnicodeError, csv.Error) as error:
        raise DataError(source, f"has no known format ({error}); {_FORMS}") from None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(1024)
    except FileNotFoundError:
        raise DataError(str(path), "no such file; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(str(path), f"cannot be read: {reason}; give a readable log") from None


def _array_form(head: bytes) -> str | None:
    if head.startswith(archive.MAGIC):
        return "npz"
    if head.startswith(matlab.MAGIC):
        return "mat"
    return "hdf5" if hdf5.MAGIC in (head[:8], head[512:520]) else None


def _recording_sheet(path: Path) -> Sheet:
    """Return the sheet of a recording that delan wrote."""
    recording = recording_file.read_recording_file(path)
    columns = recording.columns

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        for start in range(0, len(recording.t), rows):
            yield {name: columns[name][start : start + rows] for name in wanted}

    return Sheet(
        source=str(path),
        kind="arrays",
        form="a recording that delan wrote",
        fields={name: Field(shape=values.shape) for name, values in columns.items()},
        pieces=pieces,
        joints=recording.joints,
    )
