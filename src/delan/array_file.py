"""One safe file of arrays: a safetensors archive with a JSON header that describes them.

Reading takes numbers and names and never runs code. A checksum covers header and arrays. Writing
fills a temporary file and renames it, so that no partial file is left.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from .errors import DelanError, ModelFileError

# 2: the checksum covers the header, too.
FORMAT_VERSION = 2
# Characters of the header; that of a fit has 50,000, the history of a checkpoint some millions.
LONGEST_HEADER = 1 << 24
# Types of arrays that are written here, by the names that safetensors has for them.
DTYPES = ("F64", "F32", "I64", "I32", "U64", "U32", "U8", "BOOL")


def _name(key_path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(key_path, simple=True, separator=".")


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a module, each under its path in the module."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {_name(key_path): np.asarray(leaf) for key_path, leaf in leaves}


def with_arrays(tree: Any, arrays: Mapping[str, np.ndarray], path: str) -> Any:
    """The module with the stored arrays, which must all be there, of the same shape, and finite."""

    def stored(key_path: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
            return leaf
        name = _name(key_path)
        array = arrays.get(name)
        _require_shape(name, leaf.shape, None if array is None else array.shape, path)
        assert array is not None
        if array.dtype.kind != np.dtype(leaf.dtype).kind:
            problem = f"the array {name} holds {array.dtype}, expected {leaf.dtype}; save it anew"
            raise ModelFileError(path, problem)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelFileError(
                path, f"the array {name} holds a non-finite number; fit the model anew"
            )
        return jnp.asarray(array)

    return jax.tree_util.tree_map_with_path(stored, tree)


def _require_shape(
    name: str, expected: tuple[int, ...], present: tuple[int, ...] | None, path: str
) -> None:
    """Refuse an array that is not there, or has another shape."""
    if present == expected:
        return
    shown = "none"
    if present is not None:
        shown = f"one of shape {present}"
    problem = f"expected an array {name} of shape {expected}, found {shown}; save it anew"
    raise ModelFileError(path, problem)


def write_arrays(
    path: str | Path, arrays: Mapping[str, np.ndarray], kind: str, header: Mapping[str, Any]
) -> str:
    """Write arrays and a JSON header to one file, whole or not at all; return its checksum."""
    described = {**header, "format": kind, "format_version": FORMAT_VERSION}
    described["checksum"] = checksum(described, arrays)
    text = json.dumps(described, allow_nan=False)
    data = to_bytes(
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        metadata={"delan": text},
    )
    write_whole(path, lambda file: file.write(data))
    return described["checksum"]


def write_whole(path: str | Path, write: Callable[[Any], Any]) -> None:
    """Let `write` fill a file beside `path` and rename it: readers see the old or the new file."""
    path = Path(path)
    aside = ""
    try:
        descriptor, aside = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part"
        )
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; a model is as readable as any other file. The mask can only
        # be read by setting it.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(aside, 0o666 & ~mask)
        os.replace(aside, path)
    except OSError as error:
        problem = (
            f"cannot be written: {error.strerror}; give a path in a folder that exists and has room"
        )
        raise ModelFileError(str(path), problem) from None
    finally:
        if aside and os.path.exists(aside):
            os.unlink(aside)


def read_arrays(path: str | Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the JSON header of a file of the given kind."""
    with opened(path, kind) as file:
        return file.read(), file.header


class ArrayFile:
    """An open file of arrays: its header, and the arrays once somebody asks for them."""

    def __init__(self, source: str, content: Any, header: dict[str, Any]):
        self._source = source
        self._content = content
        self.header = header

    def require_arrays(self, *trees: Any) -> None:
        """Refuse other arrays than those of these shapes, before any of them is read."""
        shapes = {}
        for name in self._content.keys():  # noqa: SIM118 (it is no dict)
            shapes[name] = tuple(self._content.get_slice(name).get_shape())
        for tree in trees:
            for key_path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
                if isinstance(leaf, jax.ShapeDtypeStruct):
                    name = _name(key_path)
                    _require_shape(name, leaf.shape, shapes.pop(name, None), self._source)
        for name in shapes:
            problem = f"holds an array {name} that its model does not have; save it anew"
            raise ModelFileError(self._source, problem)

    def read(self) -> dict[str, np.ndarray]:
        """The arrays, which with the header must give the checksum."""
        arrays = {}
        for name in self._content.keys():  # noqa: SIM118 (it is no dict)
            if self._content.get_slice(name).get_dtype() not in DTYPES:
                problem = f"the array {name} holds numbers of a type that no model has"
                raise ModelFileError(self._source, f"{problem}; save it anew")
            arrays[name] = self._content.get_tensor(name)
        if self.header.get("checksum") != checksum(self.header, arrays):
            raise ModelFileError(
                self._source,
                "its header or its numbers do not match its checksum; the file is damaged, save "
                "it anew",
            )
        return arrays


@contextmanager
def opened(path: str | Path, kind: str) -> Iterator[ArrayFile]:
    """A file of arrays, of the given kind and of this version."""
    source = str(path)
    if not os.path.isfile(path):  # unlike that of a Path, false for names that no file can have
        raise ModelFileError(source, "no such file; check the path")
    foreign = f"is no {kind.removeprefix('delan-')} file of delan; give a file that `delan` wrote"
    begun = _begins(path)
    try:
        with safe_open(source, framework="numpy") as content:
            text = (content.metadata() or {}).get("delan")
            if text is None:
                raise ModelFileError(source, foreign)
            yield ArrayFile(source, content, _header(source, text, kind))
    except DelanError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError):
        problem = foreign
        if begun:
            problem = "was cut off or damaged; copy it again, or write it anew"
        raise ModelFileError(source, problem) from None


def _header(source: str, text: str, kind: str) -> dict[str, Any]:
    """The JSON header in a text, of the given kind and of this version."""
    if len(text) > LONGEST_HEADER:
        raise ValueError(f"a header of {len(text)} characters")
    header = json.loads(text)
    if not isinstance(header, dict) or header.get("format") != kind:
        present = header
        if isinstance(header, dict):
            present = header.get("format")
        raise ModelFileError(
            source, f"expected a {kind} file, found {present!r}; give a file that delan wrote"
        )
    if header.get("format_version") != FORMAT_VERSION:
        problem = (
            f"its format version is {header.get('format_version')!r}, this delan reads "
            f"{FORMAT_VERSION}; write it anew, or install the version of delan that wrote it"
        )
        raise ModelFileError(source, problem)
    return header


def _begins(path: str | Path) -> bool:
    """Whether a file begins as those do that are written here, whatever became of the rest."""
    try:
        with open(path, "rb") as file:
            return b'"delan"' in file.read(64)
    except OSError as error:
        raise ModelFileError(
            str(path), f"cannot be read: {error.strerror}; check its rights"
        ) from None


def checksum(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of everything in a file: the header, in an order of its own, and all arrays."""
    digest = hashlib.sha256()
    fields = {name: value for name, value in header.items() if name != "checksum"}
    text = json.dumps(fields, sort_keys=True, allow_nan=False)
    digest.update(f"{len(text)} {text}".encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.asarray(arrays[name], order="C").tobytes())
    return digest.hexdigest()
