"""One safe file for a model: a safetensors archive with a JSON header that describes the arrays.

The arrays of a model's trust stand under `trust.`, their sizes under `trust` in the header. Loading
reads numbers and names and never runs code. Saving writes a temporary file and renames it, so that
no partial file is left.
"""

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from .errors import DelanError, ModelError, ModelFileError
from .model_header import KINDS, RESIDUAL, cleaned, require_header
from .models.dynamics import Normalisation
from .models.model import Model, as_model
from .models.trust import Domain, Sketch, Trust

FORMAT = "delan-model"
# 2: the checksum covers the header, too.
FORMAT_VERSION = 2
UNITS = {
    "q": "rad or m",
    "qd": "rad/s or m/s",
    "qdd": "rad/s² or m/s²",
    "tau": "N m or N",
    "energy": "J",
}
# A model file holds a sketch of the log that the model learned from (`delan.logs.excerpts`). From
# this share of known rows on, a log counts as that one: 20 % are too many for chance.
SEEN_SHARE = 0.2
# Characters of the header; that of a fit has 50,000, the history of a checkpoint some millions.
LONGEST_HEADER = 1 << 24
# Characters of a certificate; the gate writes some thousands.
LONGEST_CERTIFICATE = 1 << 20
# Types of arrays that are written here, by the names that safetensors has for them.
DTYPES = ("F64", "F32", "I64", "I32", "U64", "U32", "U8", "BOOL")
# Weights beyond it come from damage: their squares would not be finite in the C code's floats.
LARGEST_WEIGHT = 1e15
# Spreads below it would make the scale of an input infinite there.
SMALLEST_SPREAD = 1e-30
# The frames of a chain are near rotations after a fit, whose condition number is 1.
MOST_SINGULAR = 1e8


class StoredModel(NamedTuple):
    """A model and the header of its file, of one and the same reading."""

    model: Model
    header: dict[str, Any]


def save(model: Any, path: str | Path, *, provenance: Mapping[str, Any] | None = None) -> None:
    """Write a model, or one part of it, to one file, with the history of its making."""
    model = as_model(model)
    header = {
        **_describe(model),
        "joints": {"names": list(model.joints.names), "kinds": list(model.joints.kinds)},
        "units": UNITS,
        "versions": {name: version(name) for name in ("delan", "jax", "equinox")},
    }
    arrays = arrays_of(model.with_trust(None))
    if model.trust is not None:
        sizes = {"members": model.trust.size, "states": len(model.trust.domain.states)}
        header["trust"] = {"level": model.trust.level, **sizes}
        arrays |= arrays_of({"trust": _trust_arrays(model.trust)})
        if model.trust.sketch is not None:
            header["sketch"] = model.trust.sketch.as_dict()
    header = cleaned({**header, **(provenance or {})})
    try:
        require_header(header)
        _require_sound(model)
    except ModelError as error:
        raise ModelFileError(str(path), f"cannot be written: {error}") from None
    checksum = write_arrays(path, arrays, FORMAT, header)
    _drop_other_certificate(path, checksum)


def _describe(model: Model) -> dict[str, Any]:
    """The structure of a model without its numbers."""
    leading: Any = model.mechanics or model.residual
    kinds = {settings: name for name, settings in KINDS.items()}
    header: dict[str, Any] = {
        "kind": kinds[type(leading.settings)],
        "architecture": dataclasses.asdict(leading.settings),
        "friction": None,
        "normalisation": None,
    }
    if model.friction is not None:
        header["friction"] = dataclasses.asdict(model.friction.settings)
    # A chain has no normalisation.
    numbers = getattr(model.residual or model.mechanics, "normalisation", None)
    if numbers is not None:
        header["normalisation"] = {}
        for field in dataclasses.fields(numbers):
            values = np.asarray(getattr(numbers, field.name))
            header["normalisation"][field.name] = values.tolist()
    if model.mechanics is not None and model.residual is not None:
        header |= {"kind": RESIDUAL, "known": header["kind"]}
        header["residual"] = dataclasses.asdict(model.residual.settings)
    return header


def load(path: str | Path) -> Model:
    """Read a model that `save` wrote.

    A file with the certificate of another one beside it is refused, whoever asks for the model.
    """
    return read_model(path).model


def read_model(path: str | Path) -> StoredModel:
    """Read a model with the header of its file: both are checked before they are returned."""
    source = str(path)
    trust = None
    with _opened(path, FORMAT) as file:
        header = file.header
        with _header_errors(source):
            blueprint = require_header(header)
            # Shapes take no memory: what the header describes is compared with what the file holds.
            shape = blueprint.shape
            if header.get("trust") is not None:
                trust = _trust_shapes(header["trust"], shape, blueprint.joints.dof)
        file.require_arrays(shape, {"trust": trust})
        arrays = file.read()
    _require_own_certificate(path, header["checksum"])
    model = with_arrays(shape, arrays, source)
    try:
        _require_sound(model)
    except ModelError as error:
        raise ModelFileError(source, f"its numbers are damaged ({error}); fit it anew") from None
    if trust is not None:
        stored = with_arrays({"trust": trust}, arrays, source)["trust"]
        model = _with_trust(model, header, stored, source)
    return StoredModel(model, header)


def read_header(path: str | Path) -> dict[str, Any]:
    """Return the header of a model file: architecture, joints, units, scores, seed and versions."""
    return read_model(path).header


@contextmanager
def _header_errors(source: str) -> Iterator[None]:
    """Report what is wrong with a header as an error of its file."""
    try:
        yield
    except DelanError as error:
        raise ModelFileError(source, f"its header is damaged ({error}); save it anew") from None


def _require_sound(model: Model) -> None:
    """Refuse numbers that are finite and still make no model: huge, singular, spreads of zero."""
    for name, array in arrays_of(model.with_trust(None)).items():
        if not (np.abs(array) <= LARGEST_WEIGHT).all():
            raise ModelError(f"{name} holds a number that is not finite, or beyond 1e15")
    for part in (model.mechanics, model.residual):
        numbers = getattr(part, "normalisation", None)
        if isinstance(numbers, Normalisation):
            for name in ("q_std", "qd_std", "qdd_std", "tau_std"):
                if not (np.asarray(getattr(numbers, name)) >= SMALLEST_SPREAD).all():
                    raise ModelError(f"the spread {name} of its normalisation is not positive")
    if model.chain is not None:
        for number, frame in enumerate(np.asarray(model.chain.turn, dtype=float), start=1):
            values = np.linalg.svd(frame, compute_uv=False)
            if not values[0] <= MOST_SINGULAR * values[-1]:
                name = model.chain.tree_joints.names[number]
                raise ModelError(f"the frame of joint {name} is singular: it has no axis")


def certificate_path(model: str | Path) -> Path:
    """Return where the gate keeps the certificate of a model file."""
    return Path(model).with_suffix(".gate.json")


def read_certificate(model: str | Path) -> dict[str, Any] | None:
    """Return the certificate beside a model file, None without one, empty if it is damaged."""
    try:
        with certificate_path(model).open(encoding="utf-8") as file:
            text = file.read(LONGEST_CERTIFICATE + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    if len(text) > LONGEST_CERTIFICATE:
        return {}
    try:
        certificate = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(certificate, dict) or not isinstance(certificate.get("checksum"), str):
        return {}
    return certificate


def _require_own_certificate(path: str | Path, checksum: str) -> None:
    """Refuse a file beside the certificate of another: somebody changed one of the two."""
    certificate = read_certificate(path)
    if certificate and certificate["checksum"] != checksum:
        raise ModelFileError(
            str(path),
            f"{certificate_path(path).name} beside it is the certificate of another file: the "
            "model was changed after it was examined; take the model that was examined, or remove "
            "the certificate and run `delan gate`",
        )


def _drop_other_certificate(path: str | Path, checksum: str) -> None:
    """Remove the certificate of the model that was replaced by this one."""
    certificate = read_certificate(path)
    if certificate and certificate["checksum"] != checksum:
        certificate_path(path).unlink(missing_ok=True)


def _trust_arrays(trust: Trust) -> dict[str, Any]:
    domain = {name: getattr(trust.domain, name) for name in ("states", "spread", "radius")}
    return {"members": trust.members, "floor": trust.floor, "band": trust.band, "domain": domain}


def _trust_shapes(fields: Mapping[str, Any], shape: Model, dof: int) -> dict[str, Any]:
    """The same as shapes, from the sizes in the header."""
    members = fields["members"]
    states = fields["states"]

    def numbers(*sizes: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, float)

    domain = {"states": numbers(states, 2 * dof), "spread": numbers(2 * dof), "radius": numbers()}
    stacked = jax.tree.map(lambda leaf: numbers(members, *leaf.shape), shape)
    return {"members": stacked, "floor": numbers(dof), "band": numbers(dof), "domain": domain}


def _with_trust(
    model: Model, header: Mapping[str, Any], stored: Mapping[str, Any], path: str
) -> Model:
    domain = stored["domain"]
    positive = (domain["spread"] >= SMALLEST_SPREAD).all() and domain["radius"] >= SMALLEST_SPREAD
    if not positive or (stored["floor"] < 0).any() or (stored["band"] < 0).any():
        problem = "a spread, radius, floor or band of its trust has a wrong sign; fit it again"
        raise ModelFileError(path, problem)
    try:
        trust = Trust(
            members=stored["members"],
            floor=stored["floor"],
            band=stored["band"],
            domain=Domain(**domain, joints=model.joints),
            level=float(header["trust"]["level"]),
            sketch=Sketch.of(header.get("sketch")),
        )
        return model.with_trust(trust)
    except ModelError as error:
        raise ModelFileError(path, f"its trust is damaged ({error}); save it anew") from None


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
    described["checksum"] = _checksum(described, arrays)
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
    with _opened(path, kind) as file:
        return file.read(), file.header


class _ArrayFile:
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
        if self.header.get("checksum") != _checksum(self.header, arrays):
            raise ModelFileError(
                self._source,
                "its header or its numbers do not match its checksum; the file is damaged, save "
                "it anew",
            )
        return arrays


@contextmanager
def _opened(path: str | Path, kind: str) -> Iterator[_ArrayFile]:
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
            yield _ArrayFile(source, content, _header(source, text, kind))
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


def _checksum(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of everything in a file: the header, in an order of its own, and all arrays."""
    digest = hashlib.sha256()
    fields = {name: value for name, value in header.items() if name != "checksum"}
    text = json.dumps(fields, sort_keys=True, allow_nan=False)
    digest.update(f"{len(text)} {text}".encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.asarray(arrays[name], order="C").tobytes())
    return digest.hexdigest()
