"""Files of `torch.save`: tensors in a zip archive with an index, read without torch and pickle.

The index is a program for Python's pickle machine, which can call any function. Here its
instructions are interpreted: they build dictionaries, lists and tensors, and nothing is called.
"""

import math
import pickletools
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..options import LogOptions
from . import (
    TORCH_INDEX,
    Field,
    PromisedSize,
    Sheet,
    gain_names,
    group_sheets,
    library_errors,
    row_pieces,
    time_first,
)

TORCH_FORM = "a torch file with a dictionary of tensors: t, q and tau (time × dof)"
_WHAT = "readable torch file"
# Bytes of the index, and tensors in it.
_LARGEST_INDEX = 1 << 20
_MOST_TENSORS = 1000
_MOST_VALUES = 100_000
_DEEPEST = 8
# Types of the storages of tensors. A bfloat16 is the first half of a float32.
_TYPES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "BFloat16Storage": "u2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "u1",
}
_REBUILT = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor")
_WRAPPED = ("torch._utils _rebuild_parameter",)


@dataclass(frozen=True)
class _Named:
    """A function or class that the index names; it is not imported."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """Numbers in a file of the archive."""

    kind: str
    key: str


@dataclass(frozen=True)
class _Tensor:
    """A view of a storage: its first number, lengths and strides, counted in numbers."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheets in a torch file: one, or one per dictionary that holds positions."""
    source = str(path)
    size = PromisedSize(path)
    with library_errors(source, _WHAT), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            size.add(info.filename, info.file_size)
        index = next(name for name in archive.namelist() if name.endswith(TORCH_INDEX))
        if archive.getinfo(index).file_size > _LARGEST_INDEX:
            raise ValueError(f"its index has more than {_LARGEST_INDEX} bytes")
        content = _interpreted(archive.read(index))
        tensors = _tensors(content)
        folder = index.removesuffix(TORCH_INDEX)
        arrays = {name: _values(archive, folder, tensor) for name, tensor in tensors.items()}
    if not arrays:
        raise DataError(source, f"holds no tensors; expected {TORCH_FORM}")
    shapes = {name: values.shape for name, values in arrays.items() if values.ndim <= 2}
    constants = {}
    for name in gain_names(shapes):
        del shapes[name]
        constants[name] = tuple(arrays[name].astype(np.float64).ravel().tolist())
    upright = {}
    for name, shape in time_first({name: shape for name, shape in shapes.items() if shape}).items():
        upright[name] = arrays[name] if arrays[name].shape == shape else arrays[name].T
    whole = Sheet(
        source=source,
        kind="arrays",
        form=TORCH_FORM,
        fields={name: Field(shape=values.shape) for name, values in upright.items()},
        pieces=partial(row_pieces, upright),
        constants=constants,
    )
    return group_sheets(whole, options)


def _tensors(content: Any) -> dict[str, _Tensor]:
    """Return all tensors of a value by their place in it, such as `run/q`."""
    found: dict[str, _Tensor] = {}
    left: list[tuple[str, Any, int]] = [("", content, 0)]
    seen = 0
    while left:
        path, value, depth = left.pop()
        seen += 1
        if seen > _MOST_VALUES or len(found) > _MOST_TENSORS:
            # A value may be in itself many times, so that depth alone is no bound.
            raise ValueError(f"it holds more than {_MOST_TENSORS} tensors or {_MOST_VALUES} values")
        if isinstance(value, _Tensor):
            found[path or "tensor"] = value
        items: list[tuple[Any, Any]] = []
        if isinstance(value, dict):
            items = list(value.items())
        elif isinstance(value, list | tuple):
            items = list(enumerate(value))
        if depth <= _DEEPEST:
            for name, item in reversed(items):
                left.append((f"{path}/{name}" if path else str(name), item, depth + 1))
    return found


def _values(archive: zipfile.ZipFile, folder: str, tensor: _Tensor) -> np.ndarray:
    """Return the numbers of a tensor, which must lie inside its storage."""
    order = "<"
    if f"{folder}/byteorder" in archive.namelist():
        order = {b"little": "<", b"big": ">"}[archive.read(f"{folder}/byteorder").strip()]
    kind = tensor.storage.kind
    content = archive.read(f"{folder}/data/{tensor.storage.key}")
    width = np.dtype(_TYPES[kind]).itemsize
    stored = np.frombuffer(content[: len(content) // width * width], order + _TYPES[kind])
    last = tensor.offset
    for length, stride in zip(tensor.shape, tensor.strides, strict=True):
        if length < 0 or stride < 0:
            raise ValueError(f"a tensor has lengths {tensor.shape} and strides {tensor.strides}")
        last += max(0, length - 1) * stride
    if math.prod(tensor.shape) > len(stored) or not 0 <= tensor.offset <= last:
        raise ValueError("a tensor has more numbers than its storage")
    if math.prod(tensor.shape) and last >= len(stored):
        raise ValueError("a tensor ends after its storage")
    strides = [stride * width for stride in tensor.strides]
    view = np.lib.stride_tricks.as_strided(stored[tensor.offset :], tensor.shape, strides)
    if kind == "BFloat16Storage":
        return (view.astype(np.uint32) << 16).view(np.float32)
    return view.copy()


def _interpreted(index: bytes) -> Any:
    """Return the value that the instructions of an index build."""
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(index):
        if opcode.name == "STOP":
            break
        machine.step(opcode.name, argument)
    return machine.stack[-1]


# Instructions that push a value: their argument, or one that they stand for.
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_ARGUMENTS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "INT", "FLOAT", "LONG"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"),
    *("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"),
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """The stack and memory of the instructions."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memory: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Follow one instruction; refuse those that no dictionary of tensors needs."""
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _ARGUMENTS:
            self.stack.append(argument)
        elif name in _TUPLES:
            self.stack.append(tuple(self._taken(_TUPLES[name])))
        elif name in ("PROTO", "FRAME"):
            return
        elif hasattr(self, f"_{name.lower()}"):
            getattr(self, f"_{name.lower()}")(argument)
        else:
            raise ValueError(f"its index has the instruction {name}")

    def _taken(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise ValueError("its index takes more than it has")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def _since_mark(self) -> list[Any]:
        return self._taken(len(self.stack) - self._marks.pop())

    def _mark(self, _: Any) -> None:
        self._marks.append(len(self.stack))

    def _empty_dict(self, _: Any) -> None:
        self.stack.append({})

    def _empty_list(self, _: Any) -> None:
        self.stack.append([])

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _pop(self, _: Any) -> None:
        self._taken(1)

    def _binput(self, place: int) -> None:
        self._memory[place] = self.stack[-1]

    _long_binput = _binput

    def _memoize(self, _: Any) -> None:
        self._memory[len(self._memory)] = self.stack[-1]

    def _binget(self, place: int) -> None:
        self.stack.append(self._memory[place])

    _long_binget = _binget

    def _append(self, _: Any) -> None:
        self._extend(self._taken(1))

    def _appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, values: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(values)

    def _setitem(self, _: Any) -> None:
        self._update(self._taken(2))

    def _setitems(self, _: Any) -> None:
        self._update(self._since_mark())

    def _update(self, values: list[Any]) -> None:
        target = self.stack[-1]
        for key, value in zip(values[::2], values[1::2], strict=True):
            if isinstance(target, dict) and isinstance(key, str | int):
                target[key] = value

    def _global(self, name: str) -> None:
        self.stack.append(_Named(name))

    def _stack_global(self, _: Any) -> None:
        self.stack.append(_Named(" ".join(map(str, self._taken(2)))))

    def _binpersid(self, _: Any) -> None:
        """Put a storage in the place of its description: ("storage", type, key, device, count)."""
        (described,) = self._taken(1)
        storage = None
        if isinstance(described, tuple) and len(described) == 5:
            kind = getattr(described[1], "name", "").rpartition(" ")[2]
            if kind in _TYPES:
                storage = _Storage(kind, str(described[2]))
        self.stack.append(storage)

    def _reduce(self, _: Any) -> None:
        """Put what a call would return in its place: a tensor, a dictionary, or nothing."""
        function, arguments = self._taken(2)
        name = getattr(function, "name", "")
        result = None
        if name in _REBUILT and isinstance(arguments, tuple) and len(arguments) >= 4:
            storage, offset, shape, strides = arguments[:4]
            whole = all(isinstance(number, int) for number in (offset, *shape, *strides))
            if isinstance(storage, _Storage) and whole:
                result = _Tensor(storage, offset, tuple(shape), tuple(strides))
        elif name in _WRAPPED and arguments:
            result = arguments[0]
        elif name == "collections OrderedDict":
            result = {}
        self.stack.append(result)

    def _build(self, _: Any) -> None:
        self._taken(1)  # attributes of an object, which has none here
