"""File formats of logs: each is recognised by its content and read as sheets by its own module.

A sheet is a set of named columns that share their rows. A new format needs a module with a function
`read_sheets(path, options, gaps)` that returns the sheets of a file, a row in `_FORMATS`, and its
name in `KNOWN_FORMS`. The function reads the head of the file and returns at once; the numbers are
read by `Sheet.pieces(wanted, rows)`, which may be called several times and yields the columns in
blocks of at most `rows` rows. Integers stay integers, because time stamps in ns exceed a float's
digits. With `gaps`, empty cells become NaN; without, they are refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from os.path import isdir  # unlike those of a Path, false for names that no file can have
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...errors import DataError, DelanError, installing
from ...joints import Joints
from ..column_names import measures
from ..options import LogOptions

# Offset and content of the bytes that identify a format, and the module that reads it; the first
# row that matches counts. Every matching file in a folder is taken for a log: a format whose bytes
# other files share, such as "{" of JSON, must be recognised by its suffix there, as text is. HDF5
# files may begin with 512 bytes of other content; MAT files of version 7.3 do.
_FORMATS = (
    (0, b'{"format": "delan-recording"', "..recording_file"),
    (0, b"PAR1", ".parquet"),
    (0, b"\x89MCAP0\r\n", ".bags"),
    (0, b"SQLite format 3\0", ".bags"),
    (0, b"PK", ".archive"),
    (0, b"MATLAB 5.0 MAT-file", ".mat_hdf5"),
    (0, b"\x89HDF\r\n\x1a\n", ".mat_hdf5"),
    (512, b"\x89HDF\r\n\x1a\n", ".mat_hdf5"),
)
# A folder is a log, and not a folder of logs, if it holds this file of a ROS 2 bag.
_BAG_FILE = "metadata.yaml"

# Text has no identifying bytes: in a folder it is recognised by name, elsewhere by being readable.
_TEXT = ".text_table"
_TEXT_SUFFIXES = {".csv", ".tsv", ".txt", ".dat", ".log"}

# A model file of ours after its first 8 bytes, which hold the length of its header.
_MODEL = b'{"__metadata__":{"delan":'

_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}

NPZ_FORM = (
    "npz arrays: t (time,), q and tau (time, dof); "
    "optional qd, qdd, inertial, coriolis, gravity, trajectory"
)
CSV_FORM = (
    "CSV columns: t, q0, q1, …, tau0, tau1, …; "
    "optional qd0…, qdd0…, inertial0…, coriolis0…, gravity0…, trajectory"
)
KNOWN_FORMS = f"expected {NPZ_FORM}, or {CSV_FORM}; or Parquet, MAT, HDF5 or a ROS 2 bag"

# Compression does not make the numbers of a moving robot this many times smaller: a log without any
# noise becomes 2 times smaller, and a robot that rests all the time, with times, about 60 times.
# A file of some MB that claims more keeps readers busy for minutes.
_LARGEST_COMPRESSION = 50

# Claims below this size are accepted, as they do no harm [bytes].
_HARMLESS = 1 << 26

Pieces = Iterator[dict[str, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Field:
    """What is known of a column before it is read.

    Attributes:
        shape: (time,) for single numbers, (time, dof) for an array; time is −1 if unknown.
        unit: unit of a column of times in seconds, if the format defines it.
    """

    shape: tuple[int, ...] = (-1,)
    unit: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Sheet:
    """Columns that share their rows.

    Attributes:
        source: the file, and the group in it if it holds several.
        kind: `table` for named columns of single numbers, `arrays` for named arrays (time, dof).
        form: expected content of such a file, for error messages.
        fields: columns by name.
        pieces: function of column names and a number of rows; yields that many rows at a time.
        joints: joints of the robot, if the file names them.
        loose: whether an array of one axis may be that of a robot with one joint.
    """

    source: str
    kind: Literal["table", "arrays"]
    form: str
    fields: Mapping[str, Field]
    pieces: Callable[[Sequence[str], int], Pieces] = field(repr=False)
    joints: Joints | None = None
    loose: bool = True


def open_log(path: Path, options: LogOptions, *, gaps: bool = False) -> list[Sheet]:
    """Return the sheets of a log; `gaps` reads empty cells of a table as NaN, not as an error."""
    module = _module_of(path)
    if module is None:
        head = _head(path)
        if not head:
            raise DataError(str(path), f"the file is empty; {KNOWN_FORMS}")
        for magic, packer in _PACKED.items():
            if head.startswith(magic):
                raise DataError(str(path), f"is compressed by {packer}; decompress it first")
        if head.startswith(_MODEL, 8):
            problem = f"is a model file, not a log (`delan describe` shows it); {KNOWN_FORMS}"
            raise DataError(str(path), problem)
        module = _TEXT
    return import_module(module, __package__).read_sheets(path, options, gaps)


def is_log(path: Path) -> bool:
    """Return whether a file or folder is a log, judged by its content, or text by its name."""
    if path.is_dir():
        return is_bag_folder(path)
    return path.suffix.lower() in _TEXT_SUFFIXES or _module_of(path) is not None


def is_bag_folder(path: Path) -> bool:
    """Return whether a folder is a ROS 2 bag, not a folder of logs."""
    return (path / _BAG_FILE).is_file()


def _module_of(path: Path) -> str | None:
    """Return the module that reads a file, None if no known bytes identify it."""
    if isdir(path):
        return ".bags"
    head = _head(path)
    for offset, magic, module in _FORMATS:
        if head.startswith(magic, offset):
            return module
    return None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(1024)
    except FileNotFoundError:
        raise DataError(str(path), "no such file; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(str(path), f"cannot be read: {reason}; give a readable log") from None


@contextmanager
def library_errors(source: str, what: str) -> Iterator[None]:
    """Raise `DataError` for whatever a library raises on a damaged file."""
    try:
        yield
    except DelanError:
        raise
    except MemoryError:
        problem = f"does not fit into memory as {what}; it is damaged, or split it"
        raise DataError(source, problem) from None
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        problem = f"cannot be read as {what}: {_one_line(reason)}; check the file"
        raise DataError(source, problem) from None
    except Exception as error:  # each library has exceptions of its own
        reason = type(error).__name__
        if str(error):
            reason += f": {_one_line(str(error))}"
        problem = f"is no {what} ({reason}); it is damaged or of another format, write it again"
        raise DataError(source, problem) from None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def library(name: str, source: str, what: str) -> Any:
    """Import an optional library, or raise an error that says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        problem = f"is {what}, which needs {name.split('.')[0]}; {installing('logs')}"
        raise DataError(source, problem) from None


class PromisedSize:
    """What a file says that it holds, against the bytes that it has, before anything is read."""

    def __init__(self, path: Path):
        self._source = str(path)
        self._file_bytes = path.stat().st_size
        self._claimed = 0

    def add(self, name: str, claimed: int) -> None:
        """Count the bytes that a part of the file claims; refuse more than it can hold."""
        self._claimed += claimed
        if self._claimed > max(_LARGEST_COMPRESSION * self._file_bytes, _HARMLESS):
            problem = (
                f"claims {self._claimed} bytes in a file of {self._file_bytes}; the file is "
                "damaged, write it again (if the robot did rest all the time: without compression)"
            )
            raise DataError(self._source, problem, column=name)


def row_pieces(columns: Mapping[str, np.ndarray], wanted: Sequence[str], rows: int) -> Pieces:
    """Yield columns that are in memory, `rows` rows at a time."""
    longest = max((len(columns[name]) for name in wanted), default=0)
    for start in range(0, longest, rows):
        yield {name: columns[name][start : start + rows] for name in wanted}


def group_sheets(whole: Sheet, options: LogOptions) -> list[Sheet]:
    """Return one sheet per group that holds positions, or all arrays as one if no group does.

    The array of a group is named `group/array`. Names in `options.map` that are such paths also
    keep all arrays together: the user knows what belongs together.
    """
    mapped = options.mapped_names
    groups: dict[str, dict[str, str]] = {}
    for name in whole.fields:
        group, _, leaf = name.rpartition("/")
        groups.setdefault(group, {})[leaf] = name
    chosen = {}
    for group, names in groups.items():
        if any(leaf in mapped or measures(leaf) == "q" for leaf in names):
            chosen[group] = names
    paths = {name for name in mapped if "/" in name}
    if "" in chosen or not chosen or not paths.isdisjoint(whole.fields):
        return [whole]
    sheets = []
    for group, names in chosen.items():
        sheet = replace(
            whole,
            source=f"{whole.source} [{group}]",
            fields={leaf: whole.fields[name] for leaf, name in names.items()},
            pieces=partial(_renamed_pieces, whole, names),
        )
        sheets.append(sheet)
    return sheets


def _renamed_pieces(
    whole: Sheet, names: Mapping[str, str], wanted: Sequence[str], rows: int
) -> Pieces:
    for piece in whole.pieces([names[leaf] for leaf in wanted], rows):
        yield {leaf: piece[names[leaf]] for leaf in wanted}
