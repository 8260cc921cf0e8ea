"""Options of a log as text: words of a command line, and a TOML file beside the log.

`arm.csv.toml` is for the log `arm.csv`, `log.toml` for every log of its folder. The same values are
kept with a model, so that later logs of the robot are read as the log that it was learned from.
"""

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from os.path import isfile  # unlike that of a Path, false for names that no file can have
from pathlib import Path
from typing import Any

from ..errors import DataError, SettingsError
from ..text_file import TextFileError, read_toml
from .options import LogOptions, Numbers

FOLDER_FILE = "log.toml"
# Options of one command, not of a log.
_NOT_KEPT = ("memory", "start", "end")


def options_path(log: Path) -> Path:
    """Return the file that holds the options of a log."""
    return log.with_name(f"{log.name}.toml")


def plain_options(options: LogOptions) -> dict[str, Any]:
    """Return the options that differ from the usual ones, as values that JSON and TOML have."""
    plain = {}
    for each in fields(LogOptions):
        value = getattr(options, each.name)
        if each.name not in _NOT_KEPT and value != _default(each):
            plain[each.name] = _plain(value)
    return plain


def _default(each: Any) -> Any:
    return each.default if each.default is not MISSING else each.default_factory()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def options_of(values: object, source: str) -> LogOptions:
    """Return the options in plain values; refuse unknown names and wrong types."""
    known = {each.name for each in fields(LogOptions)} - set(_NOT_KEPT)
    if not isinstance(values, dict):
        raise DataError(source, "holds no options of a log; write them by `delan check --save`")
    for name in values:
        if name not in known:
            problem = f"knows no option {name!r}; expected some of {', '.join(sorted(known))}"
            raise DataError(source, problem)
    given: dict[str, Any] = {}
    for name, value in values.items():
        given[name] = _typed(name, value, source)
    try:
        return LogOptions(**given)
    except (SettingsError, TypeError, ValueError) as error:
        raise DataError(
            source, f"{error}; fix it, or write it anew by `delan check --save`"
        ) from None


# What the value of each option is made of.
_NUMBERS = ("gain", "kp", "kd", "stiffness")
_NUMBERS_BY_NAME = ("scale", "offset")


def _typed(name: str, value: Any, source: str) -> Any:
    """Return the value of an option with tuples for lists; refuse one of another type."""
    good = False
    if name in _NUMBERS:
        good = _are_numbers(value)
    elif name in _NUMBERS_BY_NAME:
        good = isinstance(value, dict) and all(map(_are_numbers, value.values()))
    elif name == "transmission":
        good = isinstance(value, list) and all(map(_are_numbers, value))
    elif name in ("time_scale", "rate"):
        good = isinstance(value, int | float) and not isinstance(value, bool)
    elif name == "columns":
        good = isinstance(value, int) and not isinstance(value, bool)
    elif name == "degrees":
        good = isinstance(value, bool)
    elif name == "join_by":
        good = isinstance(value, str)
    elif name == "join":
        good = isinstance(value, list) and all(isinstance(item, str) for item in value)
    elif name in ("joints", "sliding"):
        good = isinstance(value, list) and all(isinstance(item, str | int) for item in value)
    else:  # map, flip and exchanged
        good = isinstance(value, dict) and all(isinstance(v, str | list) for v in value.values())
    if not good:
        raise DataError(source, f"{name} is {value!r}, which is no value of this option; fix it")
    if name in (*_NUMBERS, *_NUMBERS_BY_NAME, "transmission", "time_scale", "rate"):
        try:
            return _with_floats(value)
        except OverflowError:
            problem = f"{name} holds an integer that no float can hold; fix it"
            raise DataError(source, problem) from None
    return _with_tuples(value)


def _are_numbers(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)


def _with_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(map(_with_floats, value))
    return float(value)


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_with_tuples(item) for item in value)
    return value


def stored_options(log: Path) -> tuple[LogOptions, Path] | None:
    """Return the options in the file beside a log, and the file; None if there is none."""
    for path in (options_path(log), log.parent / FOLDER_FILE):
        if isfile(path) and path != log:
            return options_of(_read(path), str(path)), path
    return None


def _read(path: Path) -> object:
    try:
        return read_toml(path)
    except TextFileError as error:
        raise DataError(str(path), str(error)) from None


def with_stored(log: Path, options: LogOptions) -> LogOptions:
    """Return the options of a log: those given, and for the rest those in the file beside it."""
    stored = stored_options(log)
    return options if stored is None else merged(stored[0], options)


def merged(base: LogOptions, given: LogOptions) -> LogOptions:
    """Return `base` with all that `given` says otherwise; columns and the like one by one."""
    changed: dict[str, Any] = {}
    for each in fields(LogOptions):
        value = getattr(given, each.name)
        if value == _default(each):
            continue
        if isinstance(value, Mapping):
            value = {**getattr(base, each.name), **value}
        changed[each.name] = value
    if "rate" in changed:
        changed.setdefault("time_scale", None)
    if "time_scale" in changed:
        changed.setdefault("rate", None)
    return replace(base, **changed)


def toml_text(options: LogOptions, comment: str = "") -> str:
    """Return the options as TOML."""
    lines = [f"# {line}" for line in comment.splitlines()]
    tables = []
    for name, value in plain_options(options).items():
        if isinstance(value, dict):
            tables += ["", f"[{name}]"]
            tables += [f"{_key(key)} = {_toml(item)}" for key, item in value.items()]
        else:
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _key(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def option_words(options: LogOptions) -> list[str]:
    """Return the words that give these options to a command, without those of memory."""
    words: list[str] = []
    for quantity, pattern in options.map.items():
        text = pattern if isinstance(pattern, str) else ",".join(pattern)
        words += ["--map", f"{quantity}={text}"]
    for name in options.join:
        words += ["--join", name]
    if options.join_by != "auto":
        words += ["--join-by", options.join_by]
    if options.columns is not None:
        words += ["--columns", str(options.columns)]
    if options.degrees:
        words.append("--degrees")
    for option in ("scale", "offset"):
        for quantity, numbers in getattr(options, option).items():
            words += [f"--{option}", f"{quantity}:{_listed(numbers)}"]
    for option in ("gain", "kp", "kd"):
        if getattr(options, option) is not None:
            words += [f"--{option}", _listed(getattr(options, option))]
    if options.transmission is not None:
        words += ["--transmission", ";".join(map(_listed, options.transmission))]
    for quantity, joints in options.flip.items():
        words += ["--flip", quantity if joints == "all" else f"{quantity}:{_names(joints)}"]
    if options.joints is not None:
        words += ["--joints", _names(options.joints)]
    for option, value in (("--time-scale", options.time_scale), ("--rate", options.rate)):
        if value is not None:
            words += [option, f"{value:g}"]
    for option, value in (("--from", options.start), ("--to", options.end)):
        if value is not None:
            words += [option, f"{value:g}"]
    return words


def typed_options(options: LogOptions) -> str:
    """Return the options as one text that a shell takes."""
    return shlex.join(option_words(options))


def _listed(numbers: Numbers) -> str:
    return ",".join(f"{number:.12g}" for number in numbers)


def _names(joints: Iterable[int | str]) -> str:
    return ",".join(map(str, joints))
