"""Options of a log as they are typed: the words of a command line."""

import shlex
from collections.abc import Iterable

from .options import LogOptions, Numbers


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
