"""One safe file for a model: its arrays, with a JSON header that describes them (`array_file`).

The arrays of a model's trust stand under `trust.`, their sizes under `trust` in the header.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .array_file import arrays_of as arrays_of
from .array_file import opened, with_arrays
from .array_file import read_arrays as read_arrays
from .array_file import write_arrays as write_arrays
from .array_file import write_whole as write_whole
from .errors import DelanError, ModelError, ModelFileError
from .model_header import KINDS, RESIDUAL, cleaned, require_header
from .models.dynamics import Normalisation
from .models.model import Model, as_model
from .models.trust import Domain, Sketch, Trust

FORMAT = "delan-model"
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
# Characters of a certificate; the gate writes some thousands.
LONGEST_CERTIFICATE = 1 << 20
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
    if model.joints.motor_of:
        header["joints"]["motor_of"] = list(model.joints.motor_of)
    arrays = arrays_of(model.with_trust(None))
    if model.trust is not None:
        sizes = {"members": model.trust.size, "states": len(model.trust.domain.states)}
        header["trust"] = {"level": model.trust.level, **sizes}
        arrays |= arrays_of({"trust": _trust_arrays(model.trust)})
        if model.trust.sketch is not None:
            header["sketch"] = model.trust.sketch.as_dict()
    if model.added_inertia is not None:
        header["added_inertia"] = list(model.added_inertia)
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
    with opened(path, FORMAT) as file:
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
    added = header.get("added_inertia")
    if added is not None:
        model = model.with_added_inertia(tuple(added))
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
        with np.errstate(over="ignore"):
            rotors = np.exp(np.asarray(model.chain.log_armature, dtype=float))
        if not (rotors <= LARGEST_WEIGHT).all():
            name = model.joints.names[int(np.argmax(rotors))]
            raise ModelError(f"the rotor of joint {name} has an inertia beyond 1e15 kg m²")
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
