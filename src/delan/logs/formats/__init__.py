"""File formats of logs: each is recognised by its content and read as sheets by its own module.

A sheet is a set of named columns that share their rows. A new format needs a module with a function
`read_sheets(path, options, gaps)` that returns the sheets of a file, a row in `_FORMATS`, and its
name in `KNOWN_FORMS`. The function reads the head of the file and returns at once; the numbers are
read by `Sheet.pieces(wanted, rows)`, which may be called several times and yields the columns in
blocks of at most `rows` rows. Integers stay integers, because time stamps in ns exceed a float's
digits. With `gaps`, empty cells become NaN; without, they are refused.
"""

import json
import re
from collections import Counter
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
from ...joints import MOST_JOINTS, Joints
from ...text_file import TextFileError, require_regular
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
    (0, b"\x1f\x8b", ".packed"),
    (0, b"\x28\xb5\x2f\xfd", ".packed"),
    (0, b"BZh", ".packed"),
    (0, b"\xfd7zXZ", ".packed"),
)
# What begins a JSON value that can be a log, and no table.
_JSON = re.compile(rb"(\xef\xbb\xbf)?\s*(\{\s*\"|\[\s*[\[{\d-])")
# A folder is a log, and not a folder of logs, if it holds this file of a ROS 2 bag, or that of a
# LeRobot data set.
_BAG_FILE = "metadata.yaml"
_BAG_SUFFIXES = (".db3", ".mcap")
_DATA_SET_FILE = "meta/info.json"

# Text has no identifying bytes: in a folder it is recognised by name, elsewhere by being readable.
# Settings are written as JSON, too: in a folder, it counts only where there is no other log.
TEXT_SUFFIXES = {".csv", ".tsv", ".txt", ".dat", ".log", ".jsonl", ".ndjson"}
JSON_SUFFIX = ".json"

# A model file of ours after its first 8 bytes, which hold the length of its header.
_MODEL = b'{"__metadata__":{"delan":'

PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}

# End of the name of the index in a torch file, which is a zip archive like an npz file.
TORCH_INDEX = "/data.pkl"

# Where a file that delan has converted says how, by this name.
PROVENANCE = "delan_provenance"

NPZ_FORM = (
    "npz arrays: t (time,), q and tau (time, dof); "
    "optional qd, qdd, inertial, coriolis, gravity, trajectory"
)
CSV_FORM = (
    "CSV columns: t, q0, q1, …, tau0, tau1, …; "
    "optional qd0…, qdd0…, inertial0…, coriolis0…, gravity0…, trajectory"
)
KNOWN_FORMS = (
    f"expected {NPZ_FORM}, or {CSV_FORM}; or Parquet, MAT, HDF5, JSON, a torch file, a ROS 2 bag "
    "or a LeRobot data set"
)

# Compression does not make the numbers of a moving robot this many times smaller: a log without any
# noise becomes 2 times smaller, and a robot that rests all the time, with times, about 60 times.
# A file of some MB that claims more keeps readers busy for minutes.
_LARGEST_COMPRESSION = 50

# Claims below this size are accepted, as they do no harm [bytes].
_HARMLESS = 1 << 26

Pieces = Iterator[dict[str, np.ndarray]]

# Bytes from which a format is recognised.
HEAD_BYTES = 1024

Shape = tuple[int, ...]

# Quantities without rows: one number, or one per joint.
GAINS = ("kp", "kd")


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
        constants: numbers without rows, one or one per joint, such as gains of the drives.
        provenance: what delan wrote of the log that it converted into this file, None for other
            files. Such a file has SI units and the names of delan.
    """

    source: str
    kind: Literal["table", "arrays"]
    form: str
    fields: Mapping[str, Field]
    pieces: Callable[[Sequence[str], int], Pieces] = field(repr=False)
    joints: Joints | None = None
    loose: bool = True
    constants: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    provenance: Mapping[str, Any] | None = None


def open_log(path: Path, options: LogOptions, *, gaps: bool = False) -> list[Sheet]:
    """Return the sheets of a log; `gaps` reads empty cells of a table as NaN, not as an error."""
    module = _module_of(path)
    if module is None:
        head = _head(path)
        if not head:
            raise DataError(str(path), f"the file is empty; {KNOWN_FORMS}")
        if head.startswith(_MODEL, 8):
            problem = f"is a model file, not a log (`delan describe` shows it); {KNOWN_FORMS}"
            raise DataError(str(path), problem)
        module = ".text_table"
    return import_module(module, __package__).read_sheets(path, options, gaps)


def is_log(path: Path) -> bool:
    """Return whether a file or folder is a log, judged by its content, or text by its name."""
    if path.is_dir():
        return is_log_folder(path)
    if not path.is_file():
        return False  # a pipe, or a link to nothing
    suffix = path.suffix.lower()
    if suffix in TEXT_SUFFIXES:
        return True
    return suffix != JSON_SUFFIX and _module_of(path) not in (None, ".json_log")


def is_log_folder(path: Path) -> bool:
    """Return whether a folder is one log: a ROS 2 bag or a LeRobot data set."""
    return _is_bag(path) or (path / _DATA_SET_FILE).is_file()


def _is_bag(folder: Path) -> bool:
    """Return whether a folder is one ROS 2 bag, and not a folder of bags that were renamed.

    The description of a bag names its files.
    """
    description = folder / _BAG_FILE
    if not description.is_file():
        return False
    names = [file.name for file in folder.iterdir() if file.suffix in _BAG_SUFFIXES]
    text = description.read_text(encoding="utf-8", errors="replace")
    return not names or any(name in text for name in names)


def _module_of(path: Path) -> str | None:
    """Return the module that reads a file, None if no known bytes identify it."""
    if isdir(path):
        return ".lerobot" if (path / _DATA_SET_FILE).is_file() else ".bags"
    return module_of_head(_head(path))


def module_of_head(head: bytes) -> str | None:
    """Return the module that reads a file with these first bytes, None if it may be a table."""
    for offset, magic, module in _FORMATS:
        if head.startswith(magic, offset):
            return module
    return ".json_log" if _JSON.match(head) else None


def _head(path: Path) -> bytes:
    try:
        require_regular(path)
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise DataError(str(path), "no such file; check the path") from None
    except TextFileError as error:
        raise DataError(str(path), str(error)) from None
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

    def __init__(self, path: Path, harmless: int = _HARMLESS):
        self._source = str(path)
        self._most = max(_LARGEST_COMPRESSION * path.stat().st_size, harmless)
        self._file_bytes = path.stat().st_size
        self._claimed = 0

    def add(self, name: str, claimed: int) -> None:
        """Count the bytes that a part of the file claims; refuse more than it can hold."""
        self._claimed += claimed
        if self._claimed > self._most:
            problem = (
                f"claims {self._claimed} bytes in a file of {self._file_bytes}; the file is "
                "damaged, write it again (if the robot did rest all the time: without compression)"
            )
            raise DataError(self._source, problem, column=name)


def read_provenance(text: str) -> dict[str, Any]:
    """Return the provenance in a converted file; refuse what is none."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"{PROVENANCE} is no object of JSON")
    return values


def row_pieces(columns: Mapping[str, np.ndarray], wanted: Sequence[str], rows: int) -> Pieces:
    """Yield columns that are in memory, `rows` rows at a time."""
    longest = max((len(columns[name]) for name in wanted), default=0)
    for start in range(0, longest, rows):
        yield {name: columns[name][start : start + rows] for name in wanted}


def group_sheets(whole: Sheet, options: LogOptions) -> list[Sheet]:
    """Return one sheet per group that holds positions, or all arrays as one if no group does.

    The array of a group is named `group/array`. Names in `options.map` that are such paths also
    keep all arrays together: the user knows what belongs together. Times and labels of a group
    around it belong to each group that has none of its own.
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
    if len(chosen) == 1 and not _has_torque(next(iter(chosen.values()))):
        return [whole]  # torques lie in another group than positions
    if "" in chosen or not chosen or not paths.isdisjoint(whole.fields):
        return [whole]
    sheets = []
    for group, names in chosen.items():
        inside = {**_shared(whole, groups, group), **names}
        constants = {}
        for name, numbers in whole.constants.items():
            place, _, leaf = name.rpartition("/")
            if place in ("", group) or group.startswith(f"{place}/"):
                constants[leaf] = numbers
        sheet = replace(
            whole,
            source=f"{whole.source} [{group}]",
            fields={leaf: whole.fields[name] for leaf, name in inside.items()},
            pieces=partial(_renamed_pieces, whole, inside),
            constants=constants,
        )
        sheets.append(sheet)
    return sheets


def _has_torque(names: Mapping[str, str]) -> bool:
    """Return whether an array of a group is a torque, or what torques are computed from."""
    return not {"tau", "current", "q_des"}.isdisjoint(map(measures, names))


def _shared(whole: Sheet, groups: Mapping[str, dict[str, str]], group: str) -> dict[str, str]:
    """Return times and labels around a group that has none of its own."""
    rows = {whole.fields[name].shape[0] for name in groups[group].values()}
    own = set(map(measures, groups[group]))
    shared = {}
    for place, names in groups.items():
        around = place != group and (not place or group.startswith(f"{place}/"))
        for leaf, name in names.items():
            quantity = measures(leaf)
            fits = whole.fields[name].shape[0] in rows
            if around and fits and quantity in ("t", "trajectory") and quantity not in own:
                shared[leaf] = name
    return shared


def _renamed_pieces(
    whole: Sheet, names: Mapping[str, str], wanted: Sequence[str], rows: int
) -> Pieces:
    for piece in whole.pieces([names[leaf] for leaf in wanted], rows):
        yield {leaf: piece[names[leaf]] for leaf in wanted}


@dataclass(frozen=True)
class Content:
    """Bytes that can be read from their beginning any number of times.

    Attributes:
        source: the file, and the name inside it if it is an archive.
        open: function that opens the bytes as a binary file.
    """

    source: str
    open: Callable[[], Any]

    @classmethod
    def of_file(cls, path: Path) -> "Content":
        """Return the content of a file that is not packed."""
        return cls(str(path), partial(path.open, "rb"))

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """Return the first bytes."""
        with self.open() as file:
            return file.read(size)


def time_first(shapes: Mapping[str, Shape], *, vectors: bool = False) -> dict[str, Shape]:
    """Return shapes with time along the first axis, by the lengths of the arrays of each group.

    With `vectors`, n × 1 and 1 × n are columns of single numbers: MATLAB has no arrays of one axis.
    """
    upright = {}
    counts = {}
    for name, shape in shapes.items():
        group = name.rpartition("/")[0]
        if group not in counts:
            counts[group] = _sample_count(shapes, group)
        samples = counts[group]
        upright[name] = shape
        if vectors and len(shape) == 2 and min(shape) == 1 and max(shape) > 1:
            upright[name] = (max(shape),)
        elif len(shape) == 2 and shape[0] != samples and shape[1] == samples:
            upright[name] = shape[::-1]
    return upright


def gain_names(shapes: Mapping[str, Shape]) -> frozenset[str]:
    """Return the arrays that hold gains of the drives and have no rows."""
    names = set()
    for name, shape in shapes.items():
        group, _, leaf = name.rpartition("/")
        if measures(leaf) not in GAINS:
            continue
        lengths = [length for length in shape if length != 1]
        if not lengths:
            names.add(name)
        elif len(lengths) == 1 and lengths[0] <= MOST_JOINTS:
            others = {other: shapes[other] for other in shapes if other != name}
            if lengths[0] != _sample_count(others, group):
                names.add(name)
    return frozenset(names)


def _sample_count(shapes: Mapping[str, Shape], group: str) -> int:
    """Return the number of samples in a group: that of its times, or the commonest length."""
    inside = {}
    outside = {}
    for name, shape in shapes.items():
        place, _, leaf = name.rpartition("/")
        if len(shape) not in (1, 2) or 0 in shape or measures(leaf) in GAINS:
            continue
        if place == group:
            inside[leaf] = shape
        elif group.startswith(f"{place}/") or not place:
            outside[leaf] = shape
    lengths = {length for shape in inside.values() for length in shape}
    for arrays in (inside, outside):
        for leaf, shape in arrays.items():
            is_vector = len(shape) == 1 or min(shape) == 1
            if is_vector and measures(leaf) == "t" and max(shape) in lengths:
                return max(shape)
    votes = Counter(max(shape) for shape in inside.values())
    return max(votes, key=lambda length: (votes[length], length), default=0)
