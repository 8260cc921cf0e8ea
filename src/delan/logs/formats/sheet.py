"""Sheets: named columns of numbers that share their rows, read in pieces from any file format."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

import numpy as np

from ...errors import DataError, DelanError, installing
from ...joints import Joints
from ..column_names import measures

# Compression does not make changing numbers this many times smaller: such a claim means damage.
_LARGEST_COMPRESSION = 2000

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


@contextmanager
def foreign(source: str, what: str) -> Iterator[None]:
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


def package(name: str, source: str, what: str) -> Any:
    """Import an optional library, or raise an error that says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        problem = f"is {what}, which needs {name.split('.')[0]}; {installing('logs')}"
        raise DataError(source, problem) from None


def require_believable(
    source: str, name: str, shape: Sequence[int], item_bytes: int, file_bytes: int
) -> None:
    """Refuse an array that its file cannot hold, before memory is allocated for it."""
    claimed = item_bytes * math.prod(shape)
    if claimed > max(_LARGEST_COMPRESSION * file_bytes, _HARMLESS):
        problem = (
            f"claims {claimed} bytes in a file of {file_bytes}; the file is damaged, write it again"
        )
        raise DataError(source, problem, column=name)


def sheets_of(
    source: str,
    form: str,
    fields: Mapping[str, Field],
    pieces: Callable[[Sequence[str], int], Pieces],
    *,
    mapped: Collection[str] = (),
    joints: Joints | None = None,
    loose: bool = False,
) -> list[Sheet]:
    """Return one sheet per group that holds positions, or one of all arrays if no group does.

    Names in `mapped` that are paths into groups also make one sheet of all arrays: the user knows
    what belongs together.
    """
    fields = {name: known for name, known in fields.items() if known.shape}
    groups: dict[str, dict[str, str]] = {}
    for name in fields:
        group, _, leaf = name.rpartition("/")
        groups.setdefault(group, {})[leaf] = name
    chosen = {}
    for group, names in groups.items():
        if any(leaf in mapped or measures(leaf) == "q" for leaf in names):
            chosen[group] = names
    if "" in chosen or not chosen or any("/" in name and name in fields for name in mapped):
        chosen = {"": {name: name for name in fields}}
    sheets = []
    for group, names in chosen.items():
        sheet = Sheet(
            source=f"{source} [{group}]" if group else source,
            kind="arrays",
            form=form,
            fields={leaf: fields[name] for leaf, name in names.items()},
            pieces=_renamed(pieces, names),
            joints=joints,
            loose=loose,
        )
        sheets.append(sheet)
    return sheets


def _renamed(
    pieces: Callable[[Sequence[str], int], Pieces], names: Mapping[str, str]
) -> Callable[[Sequence[str], int], Pieces]:
    def read(wanted: Sequence[str], rows: int) -> Pieces:
        for piece in pieces([names[leaf] for leaf in wanted], rows):
            yield {leaf: piece[names[leaf]] for leaf in wanted}

    return read
