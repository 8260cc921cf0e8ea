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
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from .errors import DelanError, ModelError, ModelFileError
from .joints import Joints
from .models.chain import LagrangianChainSettings
from .models.friction import FrictionSettings, MotorPair
from .models.model import Blueprint, Model, as_model
from .models.networks import FeedForwardSettings, LagrangianNetworkSettings
from .models.trust import Domain, Trust

FORMAT = "delan-model"
FORMAT_VERSION = 1
UNITS = {
    "q": "rad or m",
    "qd": "rad/s or m/s",
    "qdd": "rad/s² or m/s²",
    "tau": "N m or N",
    "energy": "J",
}
KINDS: dict[str, type] = {
    "lagrangian_chain": LagrangianChainSettings,
    "lagrangian_network": LagrangianNetworkSettings,
    "feed_forward_network": FeedForwardSettings,
}
# The kind of mechanics with a network beside them; the kind of the mechanics stands under `known`.
RESIDUAL = "residual"
# A model file holds a sketch of the log that the model learned from (`delan.logs.excerpts`). From
# this share of known rows on, a log counts as that one: 20 % are too many for chance.
SEEN_SHARE = 0.2
# Networks beyond these sizes come from damaged headers, not from fits.
MOST_UNITS = 100_000
MOST_LAYERS = 1_000


def save(model: Any, path: str | Path, *, provenance: Mapping[str, Any] | None = None) -> None:
    """Write a model, or one part of it, to one file, with the history of its making."""
    model = as_model(model)
    header = {
        **_describe(model),
        "joints": {"names": model.joints.names, "kinds": model.joints.kinds},
        "units": UNITS,
        "versions": {name: version(name) for name in ("delan", "jax", "equinox")},
        **(provenance or {}),
    }
    arrays = arrays_of(model.with_trust(None))
    if model.trust is not None:
        sizes = {"members": model.trust.size, "states": len(model.trust.domain.states)}
        header["trust"] = {"level": model.trust.level, **sizes}
        arrays |= arrays_of({"trust": _trust_arrays(model.trust)})
    write_arrays(path, arrays, FORMAT, header)


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


def _blueprint(header: Mapping[str, Any]) -> Blueprint:
    """The structure that a header describes."""
    joints = Joints(tuple(header["joints"]["names"]), tuple(header["joints"]["kinds"]))
    friction = _friction_settings(header.get("friction"))
    kind = header["kind"]
    if kind == RESIDUAL:
        kind = header["known"]
    settings = KINDS[kind](**_with_tuples(header["architecture"]))
    blueprint = Blueprint.named(joints, settings, friction)
    if header["kind"] == RESIDUAL:
        residual = FeedForwardSettings(**header["residual"])
        blueprint = dataclasses.replace(blueprint, residual=residual)
    for part in (blueprint.mechanics, blueprint.residual):
        if getattr(part, "width", 0) > MOST_UNITS or getattr(part, "depth", 0) > MOST_LAYERS:
            raise ModelError("it asks for an impossibly large network")
    return blueprint


def load(path: str | Path) -> Model:
    """Read a model that `save` wrote."""
    arrays, header = read_arrays(path, FORMAT)
    trust = None
    try:
        # Shapes take no memory: what the header describes is compared with what the file holds.
        blueprint = _blueprint(header)
        shape = blueprint.shape
        if header.get("trust") is not None:
            trust = _trust_shapes(header["trust"], shape, blueprint.joints.dof)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        problem = f"its header is damaged ({type(error).__name__}: {error}); save it anew"
        raise ModelFileError(str(path), problem) from None
    except DelanError as error:
        raise ModelFileError(str(path), f"its header is damaged ({error}); save it anew") from None
    model = with_arrays(shape, arrays, str(path))
    if trust is None:
        return model
    stored = with_arrays({"trust": trust}, arrays, str(path))["trust"]
    return _with_trust(model, header["trust"]["level"], stored, str(path))


def read_header(path: str | Path) -> dict[str, Any]:
    """Return the header of a model file: architecture, joints, units, scores, seed and versions."""
    return read_arrays(path, FORMAT)[1]


def _trust_arrays(trust: Trust) -> dict[str, Any]:
    domain = {name: getattr(trust.domain, name) for name in ("states", "spread", "radius")}
    return {"members": trust.members, "floor": trust.floor, "band": trust.band, "domain": domain}


def _trust_shapes(fields: Mapping[str, Any], shape: Model, dof: int) -> dict[str, Any]:
    """The same as shapes, from the sizes in the header."""
    level = fields["level"]
    members = fields["members"]
    states = fields["states"]
    counts = type(members) is int and type(states) is int
    if not (isinstance(level, float) and 0 < level < 1 and counts):
        raise ModelError(f"trust at the level {level!r} of {members!r} members, {states!r} states")

    def numbers(*sizes: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, float)

    domain = {"states": numbers(states, 2 * dof), "spread": numbers(2 * dof), "radius": numbers()}
    stacked = jax.tree.map(lambda leaf: numbers(members, *leaf.shape), shape)
    return {"members": stacked, "floor": numbers(dof), "band": numbers(dof), "domain": domain}


def _with_trust(model: Model, level: float, stored: Mapping[str, Any], path: str) -> Model:
    domain = stored["domain"]
    positive = (domain["spread"] > 0).all() and domain["radius"] > 0
    if not positive or (stored["floor"] < 0).any() or (stored["band"] < 0).any():
        problem = "a spread, radius, floor or band of its trust has a wrong sign; fit it again"
        raise ModelFileError(path, problem)
    try:
        trust = Trust(
            members=stored["members"],
            floor=stored["floor"],
            band=stored["band"],
            domain=Domain(**domain, joints=model.joints),
            level=level,
        )
        return model.with_trust(trust)
    except ModelError as error:
        raise ModelFileError(path, f"its trust is damaged ({error}); save it anew") from None


def _friction_settings(fields: Mapping[str, Any] | None) -> FrictionSettings | None:
    """The settings of friction from JSON, which knows lists and objects only."""
    if fields is None:
        return None
    pairs = tuple(MotorPair(**pair) for pair in fields["pairs"])
    return FrictionSettings(**{**_with_tuples(fields), "pairs": pairs})


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists where settings have tuples."""
    converted = dict(fields)
    for name, value in fields.items():
        if isinstance(value, list):
            converted[name] = tuple(value)
    return converted


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
        if array is None or array.shape != leaf.shape:
            present = "none"
            if array is not None:
                present = f"one of shape {array.shape}"
            problem = f"expected an array {name} of shape {leaf.shape}, found {present}"
            raise ModelFileError(path, f"{problem}; save it anew")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelFileError(
                path, f"the array {name} holds a non-finite number; fit the model anew"
            )
        return jnp.asarray(array)

    return jax.tree_util.tree_map_with_path(stored, tree)


def write_arrays(
    path: str | Path, arrays: Mapping[str, np.ndarray], kind: str, header: Mapping[str, Any]
) -> None:
    """Write arrays and a JSON header to one file, whole or not at all."""
    described = {
        **header,
        "format": kind,
        "format_version": FORMAT_VERSION,
        "checksum": _checksum(arrays),
    }
    text = json.dumps(described, allow_nan=False)
    data = to_bytes(
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        metadata={"delan": text},
    )
    write_whole(path, lambda file: file.write(data))


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
    source = str(path)
    if not os.path.isfile(path):  # unlike that of a Path, false for names that no file can have
        raise ModelFileError(source, "no such file; check the path")
    foreign = f"is no {kind.removeprefix('delan-')} file of delan; give a file that `delan` wrote"
    begun = _begins(path)
    arrays = {}
    try:
        with safe_open(source, framework="numpy") as file:
            text = (file.metadata() or {}).get("delan")
            if text is None:
                raise ModelFileError(source, foreign)
            header = json.loads(text)
            for name in file.keys():  # noqa: SIM118 (it is no dict)
                arrays[name] = file.get_tensor(name)
    except ModelFileError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError):
        problem = foreign
        if begun:
            problem = "was cut off or damaged; copy it again, or write it anew"
        raise ModelFileError(source, problem) from None
    if not isinstance(header, dict) or header.get("format") != kind:
        present = header
        if isinstance(header, dict):
            present = header.get("format")
        raise ModelFileError(
            source, f"expected a {kind} file, found {present!r}; give a file that delan wrote"
        )
    if header.get("format_version") != FORMAT_VERSION:
        problem = (
            f"its format version is {header.get('format_version')}, this delan reads "
            f"{FORMAT_VERSION}; update delan"
        )
        raise ModelFileError(source, problem)
    if header.get("checksum") != _checksum(arrays):
        raise ModelFileError(
            source, "its numbers do not match its checksum; the file is damaged, save it anew"
        )
    return arrays, header


def _begins(path: str | Path) -> bool:
    """Whether a file begins as those do that are written here, whatever became of the rest."""
    try:
        with open(path, "rb") as file:
            return b'"delan"' in file.read(64)
    except OSError as error:
        raise ModelFileError(
            str(path), f"cannot be read: {error.strerror}; check its rights"
        ) from None


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.asarray(arrays[name], order="C").tobytes())
    return digest.hexdigest()
