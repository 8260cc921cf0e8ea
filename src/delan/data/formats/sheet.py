"""A sheet: named columns of numbers that share their rows, whatever file they lie in, read piece by piece."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

import numpy as np

from ...errors import DataError, DelanError, installing
from ...joints import Joints

_PACKED = 2000
"""No packing of numbers that change makes them so many times smaller: a file that claims it is damaged."""

Pieces = Iterator[dict[str, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Field:
    """What is known of a column before it is read.

    Attributes:
        shape: (time,) for single numbers, (time, dof) for an array; the time is −1 where the file does not tell it.
        unit: seconds in one unit of a column of times, where the format knows it.
    """

    shape: tuple[int, ...] = (-1,)
    unit: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Sheet:
    """Columns that share their rows.

    Attributes:
        source: the file, and the group in it if it holds several.
        kind: `table` for named columns of single numbers, `arrays` for named arrays (time, dof).
        form: what such a file should hold, for errors.
        fields: every column by its name.
        pieces: the wanted columns as they lie in the file, at most so many rows at a time.
        joints: who the joints are, if the file says so.
        loose: whether an array of one axis may stand for a robot of one joint.
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
    """Whatever a library throws at a damaged file is told as what it is: a file that cannot be read."""
    try:
        yield
    except DelanError:
        raise
    except MemoryError:
        raise DataError(source, f"does not fit into memory as {what}; it is damaged, or split it") from None
    except OSError as error:
        said = error.strerror or str(error) or type(error).__name__
        raise DataError(source, f"cannot be read as {what}: {_one_line(said)}; check the file") from None
    except Exception as error:  # parsers of foreign files fail in ways of their own
        said = f"{type(error).__name__}: {_one_line(str(error))}" if str(error) else type(error).__name__
        raise DataError(source, f"is no {what} ({said}); it is damaged or something else, write it anew") from None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def package(name: str, source: str, what: str) -> Any:
    """An optional library, or an error that says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        problem = f"is {what}, which needs {name.split('.')[0]}; {installing('logs')}"
        raise DataError(source, problem) from None


def require_believable(source: str, name: str, shape: Sequence[int], item_bytes: int, file_bytes: int) -> None:
    """Refuse an array that its file cannot hold, before room is made for it."""
    claimed = item_bytes
    for size in shape:
        claimed *= size
    if claimed > max(_PACKED * file_bytes, 1 << 26):
        problem = f"claims {claimed} bytes in a file of {file_bytes}; the file is damaged, write it anew"
        raise DataError(source, problem, column=name)
