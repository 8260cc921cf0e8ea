"""One safe file for a model: a safetensors archive whose header tells, in JSON, what the arrays mean.

A trusted model is the file of its model with more arrays, under `trust.`, and their number under `trust` in the header.
Loading reads numbers and names and never runs code. Saving writes aside and renames, so that no half file is left.
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
from .models.actuated import ActuatedModel, links_of
from .models.actuator import ActuatorSettings, MotorPair
from .models.blueprint import Blueprint
from .models.chain import LagrangianChain, LagrangianChainSettings
from .models.dynamics import InverseDynamics, Normalisation
from .models.feed_forward import FeedForwardNetwork, FeedForwardSettings
from .models.network import LagrangianNetwork, LagrangianNetworkSettings
from .models.residual import ResidualModel
from .models.trust import Domain, TrustedModel, bare, trusted

FORMAT = "delan-model"
FORMAT_VERSION = 1
UNITS = {"q": "rad or m", "qd": "rad/s or m/s", "qdd": "rad/s² or m/s²", "tau": "N m or N", "energy": "J"}
KINDS: dict[str, tuple[type, type]] = {
    "lagrangian_chain": (LagrangianChain, LagrangianChainSettings),
    "lagrangian_network": (LagrangianNetwork, LagrangianNetworkSettings),
    "feed_forward_network": (FeedForwardNetwork, FeedForwardSettings),
}

RESIDUAL = "residual"
"""The kind of a model of one of these kinds, under `known`, and a network beside it."""


def save(model: InverseDynamics, path: str | Path, *, provenance: Mapping[str, Any] | None = None) -> None:
    """Write a learned model to one file, with whatever is known of its making (`FitResult.provenance`)."""
    whole, model = model, bare(model)
    header = {
        **_described(model),
        "joints": {"names": model.joints.names, "kinds": model.joints.kinds},
        "units": UNITS,
        "versions": {name: version(name) for name in ("delan", "jax", "equinox")},
        **(provenance or {}),
    }
    arrays = arrays_of(model)
    if isinstance(whole, TrustedModel):
        sizes = {"members": whole.size, "states": len(whole.domain.states)}
        header["trust"] = {"level": whole.level, **sizes}
        arrays |= arrays_of({"trust": _trust_arrays(whole)})
    write_arrays(path, arrays, FORMAT, header)


def _described(model: Any) -> dict[str, Any]:
    """What a model is but for its numbers; one with a residual is told as its arm and the network beside it."""
    if isinstance(model, ResidualModel):
        arm = _described(model.known)
        normalisation = _numbers(model.rest.normalisation)
        told = {"residual": dataclasses.asdict(model.rest.settings), "normalisation": normalisation}
        return {**arm, "kind": RESIDUAL, "known": arm["kind"], **told}
    rigid = links_of(model)
    kind = next((name for name, (model_type, _) in KINDS.items() if type(rigid) is model_type), None)
    if kind is None:
        raise ModelError(
            f"cannot save a {type(rigid).__name__}; can save: {', '.join(t.__name__ for t, _ in KINDS.values())}"
        )
    assert isinstance(rigid, LagrangianNetwork | LagrangianChain | FeedForwardNetwork)
    return {
        "kind": kind,
        "architecture": dataclasses.asdict(rigid.settings),
        "actuator": dataclasses.asdict(model.actuator.settings) if isinstance(model, ActuatedModel) else None,
        "normalisation": None if isinstance(rigid, LagrangianChain) else _numbers(rigid.normalisation),
    }


def _blueprint(header: Mapping[str, Any]) -> Blueprint:
    """The shape that a header promises."""
    with_residual = header["kind"] == RESIDUAL
    kind = header["known"] if with_residual else header["kind"]
    residual = FeedForwardSettings(**header["residual"]) if with_residual else None
    joints = Joints(tuple(header["joints"]["names"]), tuple(header["joints"]["kinds"]))
    settings = KINDS[kind][1](**_with_tuples(_older(kind) | header["architecture"]))
    for one in (settings, residual):
        if getattr(one, "width", 0) > 100_000 or getattr(one, "depth", 0) > 1_000:
            raise ModelError("it asks for an impossibly large network")
    return Blueprint(joints, settings, _actuator_settings(header.get("actuator")), residual)


def load(path: str | Path) -> InverseDynamics:
    """Read a model that `save` wrote."""
    arrays, header = read_arrays(path, FORMAT)
    try:
        # The shapes alone, no memory: what the header promises is compared with what the file holds.
        blueprint = _blueprint(header)
        shape = blueprint.shape
        trust = None if header.get("trust") is None else _trust_shapes(header["trust"], shape, blueprint.joints.dof)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ModelFileError(
            str(path), f"its header is damaged ({type(error).__name__}: {error}); save it anew"
        ) from None
    except DelanError as error:
        raise ModelFileError(str(path), f"its header is damaged ({error}); save it anew") from None
    model = with_arrays(shape, arrays, str(path))
    if trust is None:
        return model
    found = with_arrays({"trust": trust}, arrays, str(path))["trust"]
    return _with_trust(model, header["trust"]["level"], found, str(path))


def read_header(path: str | Path) -> dict[str, Any]:
    """What a model file says of its model: architecture, joints, units, scores, seed and versions."""
    return read_arrays(path, FORMAT)[1]


def _trust_arrays(model: TrustedModel) -> dict[str, Any]:
    """What a trusted model has beside its model."""
    domain = {name: getattr(model.domain, name) for name in ("states", "spread", "radius")}
    return {"members": model.members, "floor": model.floor, "band": model.band, "domain": domain}


def _trust_shapes(fields: Mapping[str, Any], shape: Any, dof: int) -> dict[str, Any]:
    """The same as shapes, from what the header says of them."""
    level, members, states = fields["level"], fields["members"], fields["states"]
    if not (isinstance(level, float) and 0 < level < 1 and type(members) is int and type(states) is int):
        raise ModelError(f"trust at the level {level!r} from {members!r} members and {states!r} states")

    def numbers(*sizes: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, float)

    domain = {"states": numbers(states, 2 * dof), "spread": numbers(2 * dof), "radius": numbers()}
    stacked = jax.tree.map(lambda leaf: numbers(members, *leaf.shape), shape)
    return {"members": stacked, "floor": numbers(dof), "band": numbers(dof), "domain": domain}


def _with_trust(model: InverseDynamics, level: float, found: Mapping[str, Any], path: str) -> TrustedModel:
    domain, floor, band = found["domain"], found["floor"], found["band"]
    if not (domain["spread"] > 0).all() or not domain["radius"] > 0 or (floor < 0).any() or (band < 0).any():
        raise ModelFileError(path, "a spread, radius, floor or band of its trust has a wrong sign; find it anew")
    try:
        domain = Domain(**domain, joints=model.joints)
        return trusted(model, found["members"], floor=floor, band=band, domain=domain, level=level)
    except ModelError as error:
        raise ModelFileError(path, f"its trust is damaged ({error}); save it anew") from None


def _older(kind: str) -> dict[str, Any]:
    """What a file says nothing of, for it is older than that setting."""
    return {"focus": 0.0} if kind == "lagrangian_network" else {}


def _actuator_settings(fields: Mapping[str, Any] | None) -> ActuatorSettings | None:
    """The settings of an actuator from JSON, which knows lists and objects only."""
    if fields is None:
        return None
    pairs = tuple(MotorPair(**pair) for pair in fields["pairs"])
    return ActuatorSettings(**{**_with_tuples(fields), "pairs": pairs})


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _numbers(record: Normalisation) -> dict[str, list[float]]:
    return {field.name: np.asarray(getattr(record, field.name)).tolist() for field in dataclasses.fields(record)}


def _name(key_path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(key_path, simple=True, separator=".")


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a module, each under its path in the module."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {_name(key_path): np.asarray(leaf) for key_path, leaf in leaves}


def with_arrays(tree: Any, arrays: Mapping[str, np.ndarray], path: str) -> Any:
    """The module with each array replaced by the stored one, which must be there, of the same shape, and finite."""

    def stored(key_path: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
            return leaf
        name = _name(key_path)
        array = arrays.get(name)
        if array is None or array.shape != leaf.shape:
            found = "none" if array is None else f"one of shape {array.shape}"
            raise ModelFileError(path, f"expected an array {name} of shape {leaf.shape}, found {found}; save it anew")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelFileError(path, f"the array {name} holds a non-finite number; fit the model anew")
        return jnp.asarray(array)

    return jax.tree_util.tree_map_with_path(stored, tree)


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray], kind: str, header: Mapping[str, Any]) -> None:
    """Write arrays and a JSON header to one file, whole or not at all."""
    described = {**header, "format": kind, "format_version": FORMAT_VERSION, "checksum": _checksum(arrays)}
    text = json.dumps(described, allow_nan=False)
    data = to_bytes({name: np.asarray(array, order="C") for name, array in arrays.items()}, metadata={"delan": text})
    write_whole(path, lambda file: file.write(data))


def write_whole(path: str | Path, write: Callable[[Any], Any]) -> None:
    """Let `write` fill a file beside `path`, then rename it to `path`: readers see the old file or the new one."""
    path = Path(path)
    descriptor, aside = -1, ""
    try:
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(aside, 0o666 & ~mask)  # mkstemp makes private files; a model is as readable as any other file
        os.replace(aside, path)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}; give a path in a folder that exists and has room"
        raise ModelFileError(str(path), problem) from None
    finally:
        if aside and os.path.exists(aside):
            os.unlink(aside)


def read_arrays(path: str | Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the JSON header of a file of the given kind."""
    source = str(path)
    if not os.path.isfile(path):  # unlike that of a Path, false for names that no file can have
        raise ModelFileError(source, "no such file; check the path")
    begun = _begins(path)
    try:
        with safe_open(source, framework="numpy") as file:
            text = (file.metadata() or {}).get("delan")
            if text is None:
                raise ModelFileError(source, f"is {_foreign(kind)}; give a file that `delan` wrote")
            header = json.loads(text)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except ModelFileError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError):
        problem = f"is {_foreign(kind)}; give a file that `delan` wrote"
        if begun:
            problem = "was cut off or damaged; copy it again, or write it anew"
        raise ModelFileError(source, problem) from None
    if not isinstance(header, dict) or header.get("format") != kind:
        found = header.get("format") if isinstance(header, dict) else header
        raise ModelFileError(source, f"expected a {kind} file, found {found!r}; give a file that delan wrote")
    if header.get("format_version") != FORMAT_VERSION:
        problem = (
            f"its format version is {header.get('format_version')}, this delan reads {FORMAT_VERSION}; update delan"
        )
        raise ModelFileError(source, problem)
    if header.get("checksum") != _checksum(arrays):
        raise ModelFileError(source, "its numbers do not match its checksum; the file is damaged, save it anew")
    return arrays, header


def _foreign(kind: str) -> str:
    return f"no {kind.removeprefix('delan-')} file of delan"


def _begins(path: str | Path) -> bool:
    """Whether a file begins as those do that are written here, whatever became of the rest."""
    try:
        with open(path, "rb") as file:
            return b'"delan"' in file.read(64)
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read: {error.strerror}; check its rights") from None


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.asarray(arrays[name], order="C").tobytes())
    return digest.hexdigest()
