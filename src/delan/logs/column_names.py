"""Meaning of column names: the words that robot logs use for time, position, torque and others."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_QUANTITY_WORDS = {
    "t": "t time timestamp timestamps stamp stamps secs seconds zeit",
    "q": "q qs pos position positions angle angles theta thetas θ",
    "qd": "qd dq qdot vel velocity velocities speed speeds thetadot dtheta",
    "qdd": "qdd ddq qddot acc accel acceleration accelerations thetaddot ddtheta",
    "tau": "tau taus torque torques trq effort efforts moment moments τ",
    "current": "current currents amperage amps",
    "trajectory": "trajectory traj episode",
}
_QUANTITY = {
    word: quantity for quantity, words in _QUANTITY_WORDS.items() for word in words.split()
}

# Words beside a quantity that do not change its meaning: it was measured, and belongs to a joint.
_NEUTRAL = _words(
    "actual measured meas act real sensed joint joints j state states jointstates robot"
)

# Words before the number of a joint.
_BEFORE_NUMBER = _words("joint j axis ax a dof")

# Words that say that a column is not a measured quantity of a joint.
_OTHER_MEANING = _words(
    "des desired target tgt cmd cmds command commands commanded controller ref reference setpoint "
    "set goal d error err min max lower upper limit limits std cov var ext external contact model "
    "ff fb feedforward friction offset bias temperature voltage force tcp tool ee flange cartesian "
    "pose x y z mean rms hat filtered raw window"
)

_TIME_UNITS = {
    **dict.fromkeys(_words("s sec secs second seconds"), 1.0),
    **dict.fromkeys(_words("ms msec msecs millis millisecond milliseconds"), 1e-3),
    **dict.fromkeys(_words("us µs μs usec usecs micros microsecond microseconds"), 1e-6),
    **dict.fromkeys(_words("ns nsec nsecs nanos nanosec nanosecond nanoseconds"), 1e-9),
}
_DEGREES = _words("deg degs degree degrees °")
_OTHER_UNITS = _words("rad rads radian radians nm n m a amp ampere amperes per")
# Single letters are more often part of a name than a unit, unless they stand in brackets.
_SHORT_UNITS = ("a", "m", "n")
_BESIDE_TIME = _words("header stamp time index log ros elapsed unix epoch")
_BESIDE_TRAJECTORY = _words("index id number no")
_WORD = re.compile(r"[^\W\d_]+|\d+|°")

# A derivative written with dots, such as q_dot or theta_ddot.
_DOTS = re.compile(r"(?<![a-z])(q|theta|θ)[ _]?(dd?)ot(?![a-z])", re.IGNORECASE)

# Inserted where camelCase begins a word, so that it can be removed again.
_SEAM = "\x1f"

_BRACKETED_UNIT = re.compile(r"[\[(<]\s*([^\])>\d]+)[\])>]?\s*$")


@dataclass(frozen=True)
class ColumnName:
    """Meaning of a column name.

    Attributes:
        quantity: one of the names of `LogOptions.map`.
        joint: number or name of the joint as it stands in the name, None for all joints.
        family: the name without the joint. Columns of one quantity and family belong together.
        unit: unit of a time in seconds, if the name says it.
        degrees: whether the name says degrees.
    """

    quantity: str
    joint: int | str | None
    family: str
    unit: float | None = None
    degrees: bool = False


@dataclass(frozen=True)
class _Candidate:
    """A word of a name that may be its quantity, the text around it, and a unit in brackets."""

    word: str
    before: str
    after: str
    other_words: tuple[str, ...]
    bracketed: tuple[str, ...]


def measures(name: str) -> str | None:
    """Return the quantity that a name means, None if it means none."""
    parsed = parse_name(name)
    return None if parsed is None else parsed.quantity


def says_degrees(name: str) -> bool:
    """Return whether a name says degrees, whatever its quantity."""
    return any(word in _DEGREES for word in _lower_words(_with_seams(name)))


def parse_name(name: str) -> ColumnName | None:
    """Return the meaning of a name, None if it is no known quantity."""
    text = name
    bracketed: tuple[str, ...] = ()
    match = _BRACKETED_UNIT.search(name)
    if match and match.start():
        text = name[: match.start()]
        bracketed = _lower_words(match[1])
    text = _DOTS.sub(lambda match: "q" + match[2].lower(), text)
    text = _with_seams(text)
    matches = list(_WORD.finditer(text))
    words = _lower_words(text)
    for at in _quantity_places(words):
        before = text[: matches[at].start()]
        after = text[matches[at].end() :]
        others = (*words[:at], *words[at + 1 :])
        parsed = _meaning(_Candidate(words[at], before, after, others, bracketed))
        if parsed is not None:
            return parsed
    return None


def _lower_words(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(text))


def _with_seams(text: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", _SEAM, text)


def _quantity_places(words: Sequence[str]) -> list[int]:
    """Return where the quantity may stand, the last word first."""
    known = [at for at, word in enumerate(words) if word in _QUANTITY]
    # `current_position` is the position now, `actual_current` is a current.
    certain = [at for at in known if words[at] != "current"]
    return (certain or known)[::-1]


def _meaning(candidate: _Candidate) -> ColumnName | None:
    quantity = _QUANTITY[candidate.word]
    units = [*candidate.bracketed, candidate.word]
    others = []
    for word in candidate.other_words:
        if _is_unit(word, quantity):
            units.append(word)
        elif word != "current":
            others.append(word)
    if any(word in _OTHER_MEANING for word in others):
        return None
    specific = [word for word in others if word not in _NEUTRAL]
    if quantity in ("t", "trajectory"):
        if not set(specific) <= (_BESIDE_TIME if quantity == "t" else _BESIDE_TRAJECTORY):
            return None
        unit = next((_TIME_UNITS[word] for word in units if word in _TIME_UNITS), None)
        return ColumnName(quantity, None, candidate.word, unit)
    degrees = any(word in _DEGREES for word in units)
    family = _without_digits(candidate.before) + candidate.word + _without_digits(candidate.after)
    if not specific:
        return ColumnName(quantity, None, family, degrees=degrees)
    number = _joint_number(quantity, specific)
    if number is not None:
        return ColumnName(quantity, number, family, degrees=degrees)
    joint = _joint_name(candidate.before, candidate.after)
    if not joint:
        return None
    return ColumnName(quantity, joint, candidate.word, degrees=degrees)


def _is_unit(word: str, quantity: str) -> bool:
    if quantity == "t":
        return word in _TIME_UNITS
    return word in _DEGREES or (word in _OTHER_UNITS and word not in _SHORT_UNITS)


def _without_digits(text: str) -> str:
    return re.sub(r"\d+", "", text)


def _joint_number(quantity: str, words: Sequence[str]) -> int | None:
    """Return the number of the joint if the words are only that and what may stand before it."""
    numbers = [word for word in words if word.isdigit()]
    if len(numbers) != 1 or len(numbers[0]) > 3:
        return None
    allowed = {*_BEFORE_NUMBER, numbers[0]}
    if quantity == "current":
        allowed.add("motor")
    return int(numbers[0]) if set(words) <= allowed else None


def _joint_name(before: str, after: str) -> str:
    """Return the name of the joint around the quantity, without path parts that do not name it."""
    uninformative = {*_NEUTRAL, *_TIME_UNITS, *_OTHER_UNITS}
    parts = []
    for part in re.split(r"[/.:\[\]]", f"{before}/{after}"):
        name = part.replace(_SEAM, "").strip(" _-")
        if not set(_lower_words(name)) <= uninformative:
            parts.append(name)
    return "_".join(parts)
