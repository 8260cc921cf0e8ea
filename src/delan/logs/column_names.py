"""Meaning of column names: the words that robot logs use for time, position, torque and others."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The words for each quantity of `LogOptions.map`.
_QUANTITY_WORDS = {
    "t": "t time timestamp timestamps stamp stamps secs seconds zeit",
    "q": "q qs pos position positions angle angles theta thetas θ",
    "qd": "qd dq qdot vel velocity velocities speed speeds thetadot dtheta",
    "qdd": "qdd ddq qddot acc accel acceleration accelerations thetaddot ddtheta",
    "tau": "tau taus torque torques trq effort efforts moment moments τ",
    "current": "current currents amperage amps",
    "kp": "kp stiffness",
    "kd": "kd damping",
    "trajectory": "trajectory traj episode",
}
_QUANTITY: dict[str, str] = {}
for _quantity, _text in _QUANTITY_WORDS.items():
    _QUANTITY.update(dict.fromkeys(_text.split(), _quantity))

# Words beside a quantity that do not change its meaning: it was measured, and belongs to a joint.
_NEUTRAL = _words(
    "actual measured meas act real sensed joint joints j state states jointstates robot"
)

# Words before the number of a joint.
_BEFORE_NUMBER = _words("joint j axis ax a dof motor")

# Words that say that a quantity is what a drive was told, not what was measured.
_WANTED = _words(
    "des desired target tgt cmd cmds command commands commanded ref reference setpoint goal"
)
# Quantities that drives are told.
_TOLD = ("q", "qd", "tau")

# Words that say that a column is not a measured quantity of a joint.
_OTHER_MEANING = _words(
    "des desired target tgt cmd cmds command commands commanded controller ref reference setpoint "
    "set goal d error err min max lower upper limit limits std cov var ext external contact model "
    "ff fb feedforward friction offset bias temperature voltage force tcp tool ee flange cartesian "
    "pose x y z mean rms hat filtered filt raw window fric con ctrl control enable enabled status "
    "mode"
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
# Words that may stand beside the time or the trajectory, which are not of a joint.
_BESIDE = {
    "t": _words("header stamp time index log ros elapsed unix epoch"),
    "trajectory": _words("index id number no"),
}
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
    """

    quantity: str
    joint: int | str | None
    family: str
    unit: float | None = None


def measures(name: str) -> str | None:
    """Return the quantity that a name means, None if it means none."""
    parsed = parse_name(name)
    return None if parsed is None else parsed.quantity


def says_degrees(name: str) -> bool:
    """Return whether a name says degrees, whatever its quantity."""
    return not _DEGREES.isdisjoint(_lower_words(_with_seams(name)))


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
        around = (text[: matches[at].start()], text[matches[at].end() :])
        others = (*words[:at], *words[at + 1 :])
        parsed = _meaning(words[at], around, others, bracketed)
        if parsed is not None:
            return parsed
    return None


def _lower_words(text: str) -> tuple[str, ...]:
    return tuple(map(str.lower, _WORD.findall(text)))


def _with_seams(text: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", _SEAM, text)


def _quantity_places(words: Sequence[str]) -> list[int]:
    """Return where the quantity may stand, the last word first."""
    certain = []
    uncertain = []
    for place in reversed(range(len(words))):
        # `current_position` is the position now, `actual_current` is a current.
        if words[place] == "current":
            uncertain.append(place)
        elif words[place] in _QUANTITY:
            certain.append(place)
    return certain or uncertain


def _meaning(
    word: str, around: tuple[str, str], others: Sequence[str], bracketed: Sequence[str]
) -> ColumnName | None:
    """Return the meaning of a name if this word is its quantity.

    The text before and after the word is `around` it, `others` are the other words of the name, and
    `bracketed` those of a unit in brackets.
    """
    quantity = _QUANTITY[word]
    units = [*bracketed, word]
    specific = []
    for other in others:
        if _is_unit(other, quantity):
            units.append(other)
        elif other != "current" and other not in _NEUTRAL:
            specific.append(other)
    if quantity in _TOLD and not _WANTED.isdisjoint(specific):
        quantity += "_des"
        specific = [other for other in specific if other not in _WANTED]
    if not _OTHER_MEANING.isdisjoint(specific):
        return None
    if quantity in _BESIDE:
        if not _BESIDE[quantity].issuperset(specific):
            return None
        known = filter(None, map(_TIME_UNITS.get, units))
        return ColumnName(quantity, None, word, next(known, None))
    family = word.join(map(_without_digits, around))
    if not specific:
        return ColumnName(quantity, None, family)
    number = _joint_number(specific)
    if number is not None:
        return ColumnName(quantity, number, family)
    joint = _joint_name(around)
    return ColumnName(quantity, joint, word) if joint else None


def _is_unit(word: str, quantity: str) -> bool:
    if quantity == "t":
        return word in _TIME_UNITS
    return word in _DEGREES or (word in _OTHER_UNITS and word not in _SHORT_UNITS)


def _without_digits(text: str) -> str:
    return re.sub(r"\d+", "", text)


def _joint_number(words: Sequence[str]) -> int | None:
    """Return the number of the joint if the words are only that and what may stand before it."""
    numbers = list(filter(str.isdigit, words))
    if len(numbers) != 1 or len(numbers[0]) > 3:
        return None
    allowed = {*_BEFORE_NUMBER, numbers[0]}
    return int(numbers[0]) if allowed.issuperset(words) else None


def _joint_name(around: tuple[str, str]) -> str:
    """Return the name of the joint around the quantity, without path parts that do not name it."""
    uninformative = {*_NEUTRAL, *_TIME_UNITS, *_OTHER_UNITS}
    parts = []
    for part in re.split(r"[/.:\[\]]", "/".join(around)):
        name = part.replace(_SEAM, "")
        # A joint has one name in what it was told and in what was measured.
        name = re.sub(rf"(?i)(^|[ _-])({'|'.join(_WANTED)})(?=[ _-]|$)", "", name).strip(" _-")
        if not set(_lower_words(name)) <= uninformative:
            parts.append(name)
    return "_".join(parts)
