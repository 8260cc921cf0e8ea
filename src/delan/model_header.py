"""What the header of a model file may hold: types, ranges, lengths and depth, checked at the door.

`require_header` runs before anything uses a field: whoever reads a header afterwards finds numbers
that are finite, text that a terminal can show, and lists as long as the robot has joints. Settings
are checked against the types of their own dataclasses, so that a new setting needs no line here.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .errors import ModelError, printable
from .joints import Joints
from .models.chain import LagrangianChainSettings
from .models.friction import FrictionSettings
from .models.model import Blueprint
from .models.networks import FeedForwardSettings, LagrangianNetworkSettings

KINDS: dict[str, type] = {
    "lagrangian_chain": LagrangianChainSettings,
    "lagrangian_network": LagrangianNetworkSettings,
    "feed_forward_network": FeedForwardSettings,
}
# The kind of mechanics with a network beside them; the kind of the mechanics stands under `known`.
RESIDUAL = "residual"

# Networks beyond these sizes come from damaged headers, not from fits.
MOST_UNITS = 10_000
MOST_LAYERS = 100
# Beyond what any fit writes: an ensemble has tens of members, a domain hundreds of states.
MOST_MEMBERS = 1_000
MOST_STATES = 1_000_000
MOST_ROWS = 10_000
# A header of a fit is six levels deep; JSON of a file may be nested until Python gives up.
MOST_DEPTH = 12
# Characters of a text, of the name of a field, and entries of a list or of an object.
LONGEST_TEXT = 10_000
LONGEST_NAME = 200
MOST_ENTRIES = 100_000
# Settings beyond it are infinite in the C code, whose numbers are floats; no unit needs them.
LARGEST_NUMBER = 1e30
# Whole numbers that every reader of JSON keeps exactly.
LARGEST_INTEGER = 2**53


def require_header(header: Mapping[str, Any]) -> Blueprint:
    """Refuse a header that `save` does not write; return the structure of its model."""
    _require_plain(header, "the header", 0)
    joints = _joints(header)
    dof = joints.dof
    for name, check in _FIELDS.items():
        if header.get(name) is not None:
            check(header[name], name, dof)
        elif name in _REQUIRED:
            raise ModelError(f"{name} is missing")
    return _blueprint(header, joints)


def cleaned(value: Any) -> Any:
    """Return a value as a header may hold it: plain JSON, numbers finite or null, printable text.

    A fit must not lose its model because the name of a log holds a control character.
    """
    if isinstance(value, Mapping):
        items = {}
        for name, item in value.items():
            items[printable(str(name), LONGEST_NAME)] = cleaned(item)
        return items
    if isinstance(value, tuple | list):
        return [cleaned(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return printable(value, LONGEST_TEXT)
    return value


def settings_of(record: Any, fields: Any, where: str) -> Any:
    """Return a settings record from JSON, whose values must have the types of the record."""
    if not isinstance(fields, Mapping):
        raise ModelError(f"{where} is {_shown(fields)}; expected an object")
    hints = get_type_hints(record)
    unknown = sorted(set(fields) - set(hints))
    if unknown:
        raise ModelError(f"{where} has an unknown field {unknown[0]}; known: {', '.join(hints)}")
    values = {}
    for name, value in fields.items():
        values[name] = _typed(hints[name], value, f"{where}.{name}")
    try:
        return record(**values)
    except TypeError:  # a field without a default is missing
        raise ModelError(f"{where} lacks one of {', '.join(hints)}") from None


def _typed(hint: Any, value: Any, where: str) -> Any:
    """Return a value of JSON as the type of a field, which it must have."""
    if isinstance(hint, UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        if value is None and len(options) < len(get_args(hint)):
            return None
        return _typed(options[0], value, where)
    if get_origin(hint) is Literal:
        if not isinstance(value, str) or value not in get_args(hint):
            known = ", ".join(map(str, get_args(hint)))
            raise ModelError(f"{where} is {_shown(value)}; expected one of {known}")
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list) or len(value) > LONGEST_NAME:
            raise ModelError(
                f"{where} is {_shown(value)}; expected a list of at most {LONGEST_NAME}"
            )
        inner = get_args(hint)[0]
        return tuple(_typed(inner, item, f"{where}[{at}]") for at, item in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return settings_of(hint, value, where)
    if hint is float:
        return float(_number(value, where))
    if type(value) is not hint:  # a bool is an int for isinstance, and `True` in C code
        raise ModelError(f"{where} is {_shown(value)}; expected {hint.__name__}")
    return value


def _blueprint(header: Mapping[str, Any], joints: Joints) -> Blueprint:
    """Return the structure that a header describes."""
    kind = _choice(header.get("kind"), "kind", (*KINDS, RESIDUAL))
    friction = None
    if header.get("friction") is not None:
        friction = settings_of(FrictionSettings, header["friction"], "friction")
    residual = None
    if kind == RESIDUAL:
        mechanics = [name for name in KINDS if KINDS[name] is not FeedForwardSettings]
        kind = _choice(header.get("known"), "known", mechanics)
        residual = settings_of(FeedForwardSettings, header.get("residual"), "residual")
    settings = settings_of(KINDS[kind], header.get("architecture"), "architecture")
    blueprint = Blueprint.named(joints, settings, friction)
    if residual is not None:
        blueprint = dataclasses.replace(blueprint, residual=residual)
    for part in (blueprint.mechanics, blueprint.residual):
        if getattr(part, "width", 0) > MOST_UNITS or getattr(part, "depth", 0) > MOST_LAYERS:
            raise ModelError("it asks for an impossibly large network")
    return blueprint


def _joints(header: Mapping[str, Any]) -> Joints:
    fields = _object(header.get("joints"), "joints")
    texts = {}
    for name in ("names", "kinds"):
        values = fields.get(name)
        if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
            raise ModelError(f"joints.{name} is {_shown(values)}; expected a list of texts")
        texts[name] = tuple(values)
    motors = _list(fields.get("motor_of", []), "joints.motor_of")
    if any(type(number) is not int for number in motors):
        raise ModelError(f"joints.motor_of is {_shown(motors)}; expected whole numbers")
    return Joints(**texts, motor_of=tuple(motors))


# One check for each field whose content is used: (value, name, number of joints).


def _text(value: Any, name: str, dof: int) -> None:
    if not isinstance(value, str):
        raise ModelError(f"{name} is {_shown(value)}; expected a text")


def _texts(value: Any, name: str, dof: int) -> None:
    for key, item in _object(value, name).items():
        _text(item, f"{name}.{key}", dof)


def _any_object(value: Any, name: str, dof: int) -> None:
    _object(value, name)


def _seed(value: Any, name: str, dof: int) -> None:
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) > LONGEST_NAME:
        raise ModelError(f"{name} has {len(numbers)} numbers; expected one or two")
    for number in numbers:
        if type(number) is not int:
            raise ModelError(f"{name} is {_shown(value)}; expected whole numbers")


def _scores(value: Any, name: str, dof: int) -> None:
    """Errors of each part of the data; a joint whose torque is constant has none, and null."""
    for part, scores in _object(value, name).items():
        torque = _object(_object(scores, f"{name}.{part}").get("torque"), f"{name}.{part}.torque")
        for field in ("nmse", "rmse"):
            where = f"{name}.{part}.torque.{field}"
            for number in _list(torque.get(field), where, dof):
                _error(number, where)
        if "nmse_mean" not in torque:
            raise ModelError(f"{name}.{part}.torque lacks nmse_mean")
        _error(torque["nmse_mean"], f"{name}.{part}.torque.nmse_mean")


def _error(value: Any, where: str) -> None:
    if value is not None and _number(value, where, largest=math.inf) < 0:
        raise ModelError(f"{where} is {_shown(value)}; expected an error of 0 or more")


def _fit(value: Any, name: str, dof: int) -> None:
    fields = _object(value, name)
    if "samples" in fields:
        _count(fields["samples"], f"{name}.samples", LARGEST_INTEGER)
    if "seconds" in fields:
        _number(fields["seconds"], f"{name}.seconds")


def _normalisation(value: Any, name: str, dof: int) -> None:
    for key, numbers in _object(value, name).items():
        for number in _list(numbers, f"{name}.{key}", dof):
            _number(number, f"{name}.{key}")


def _sketch(value: Any, name: str, dof: int) -> None:
    fields = _object(value, name)
    kept = _list(fields.get("kept"), f"{name}.kept")
    if not 0 < len(kept) <= MOST_ROWS:
        raise ModelError(f"{name}.kept has {len(kept)} rows; expected 1 to {MOST_ROWS}")
    if _count(fields.get("rows"), f"{name}.rows", LARGEST_INTEGER) < len(kept):
        raise ModelError(f"{name}.rows is {fields['rows']}, fewer than the {len(kept)} kept rows")
    for row in kept:
        for number in _list(row, f"{name}.kept", 2 * dof):
            _number(number, f"{name}.kept")


def _trust(value: Any, name: str, dof: int) -> None:
    fields = _object(value, name)
    level = _number(fields.get("level"), f"{name}.level")
    if not 0 < level < 1:
        raise ModelError(f"{name}.level is {_shown(level)}; expected a share between 0 and 1")
    _count(fields.get("members"), f"{name}.members", MOST_MEMBERS)
    _count(fields.get("states"), f"{name}.states", MOST_STATES)


def _added_inertia(value: Any, name: str, dof: int) -> None:
    for number in _list(value, name, dof):
        if _number(number, name) < 0:
            raise ModelError(f"{name} holds {_shown(number)}; expected inertias of 0 or more")


_FIELDS: dict[str, Callable[[Any, str, int], None]] = {
    "added_inertia": _added_inertia,
    "units": _texts,
    "versions": _texts,
    "normalisation": _normalisation,
    "trust": _trust,
    "scores": _scores,
    "seed": _seed,
    "fit": _fit,
    "sketch": _sketch,
    "log": _text,
    "name": _text,
    "created": _text,
    "decision": _text,
    "verdict": _text,
    "chosen": _any_object,
    "models": _any_object,
    "preparation": _any_object,
}
_REQUIRED = ("versions",)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ModelError(f"{where} is {_shown(value)}; expected an object")
    return value


def _list(value: Any, where: str, length: int | None = None) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ModelError(f"{where} is {_shown(value)}; expected a list")
    if length is not None and len(value) != length:
        raise ModelError(f"{where} has {len(value)} entries; expected {length}")
    return value


def _choice(value: Any, where: str, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ModelError(f"{where} is {_shown(value)}; expected one of {', '.join(known)}")
    return value


def _number(value: Any, where: str, largest: float = LARGEST_NUMBER) -> float:
    if type(value) not in (int, float) or not abs(value) <= largest or value != value:
        raise ModelError(f"{where} is {_shown(value)}; expected a number up to {largest:g}")
    return value


def _count(value: Any, where: str, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ModelError(f"{where} is {_shown(value)}; expected a whole number from 1 to {most}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None:
        return "missing"
    return printable(repr(value), 60)


def _require_plain(value: Any, where: str, depth: int) -> None:
    """Refuse what is nested too deep or too long, numbers that are not finite, odd characters."""
    if depth > MOST_DEPTH:
        raise ModelError(f"{where} is nested more than {MOST_DEPTH} levels deep")
    if isinstance(value, Mapping | list) and len(value) > MOST_ENTRIES:
        raise ModelError(f"{where} has {len(value)} entries; expected at most {MOST_ENTRIES}")
    if isinstance(value, Mapping):
        for name, item in value.items():
            if len(name) > LONGEST_NAME or not name.isprintable():
                raise ModelError(f"{where} has a field named {_shown(name)}, which is no name")
            _require_plain(item, name, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _require_plain(item, where, depth + 1)
    elif isinstance(value, str):
        if len(value) > LONGEST_TEXT or not value.isprintable():
            raise ModelError(
                f"{where} is {_shown(value)}; expected printable text of at most {LONGEST_TEXT} "
                "characters"
            )
    elif type(value) is int:
        if abs(value) > LARGEST_INTEGER:
            raise ModelError(f"{where} is a whole number beyond {LARGEST_INTEGER}")
    elif type(value) is float:
        if not math.isfinite(value):
            raise ModelError(f"{where} is {value}; expected a finite number")
    elif value is not None and type(value) is not bool:
        raise ModelError(f"{where} is a {type(value).__name__}, which JSON does not have")
