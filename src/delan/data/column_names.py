"""What a column is, by its name: the words that robots' logs use for time, position, velocity, torque and current."""

import re
from dataclasses import dataclass


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORDS = {
    "t": "t time timestamp timestamps stamp stamps secs seconds zeit",
    "q": "q qs pos position positions angle angles theta thetas θ",
    "qd": "qd dq qdot vel velocity velocities speed speeds thetadot dtheta",
    "qdd": "qdd ddq qddot acc accel acceleration accelerations thetaddot ddtheta",
    "tau": "tau taus torque torques trq effort efforts moment moments τ",
    "current": "current currents amperage amps",
    "trajectory": "trajectory traj episode",
}
_QUANTITY = {word: quantity for quantity, words in _WORDS.items() for word in words.split()}

_SAID_OF_ANY = _words("actual measured meas act real sensed joint joints j state states jointstates robot")
"""Words beside a quantity that change nothing: the log says what was measured, and it is of the joints."""

_NUMBERED = _words("joint j axis ax a dof")
"""Words before the number of a joint."""

_SOMETHING_ELSE = _words(
    "des desired target tgt cmd cmds command commands commanded controller ref reference setpoint set goal d error err "
    "min max lower upper limit limits std cov var ext external contact model ff fb feedforward friction offset bias "
    "temperature voltage force tcp tool ee flange cartesian pose x y z mean rms hat filtered raw window"
)
"""Words by which a column is no measured quantity of a joint."""

_UNITS = {
    **dict.fromkeys(_words("s sec secs second seconds"), 1.0),
    **dict.fromkeys(_words("ms msec msecs millis millisecond milliseconds"), 1e-3),
    **dict.fromkeys(_words("us µs μs usec usecs micros microsecond microseconds"), 1e-6),
    **dict.fromkeys(_words("ns nsec nsecs nanos nanosec nanosecond nanoseconds"), 1e-9),
}
_DEGREES = _words("deg degs degree degrees °")
_OTHER_UNITS = _words("rad rads radian radians nm n m a amp ampere amperes per")
_BESIDE_TIME = _words("header stamp time index log ros elapsed unix epoch")
_BESIDE_TRAJECTORY = _words("index id number no")
_WORD = re.compile(r"[^\W\d_]+|\d+|°")
_DOTS = re.compile(r"(?<![a-z])(q|theta|θ)[ _]?(dd?)ot(?![a-z])", re.IGNORECASE)
"""A rate written by its dots: q_dot, theta_ddot."""

_SEAM = "\x1f"
"""Stands where camelCase begins a word."""

_BRACKETED_UNIT = re.compile(r"[\[(<]\s*([^\])>\d]+)[\])>]?\s*$")


@dataclass(frozen=True)
class ColumnName:
    """What the name of a column says.

    Attributes:
        quantity: one of `LogOptions.map`'s names.
        joint: the number of the joint as it stands in the name, its name, or None where the column is of all.
        family: the name without the joint: columns of one quantity belong together if this is the same.
        unit: seconds in one unit of a time, if the name says it.
        degrees: whether the name says degrees.
    """

    quantity: str
    joint: int | str | None
    family: str
    unit: float | None = None
    degrees: bool = False


def measures(name: str) -> str | None:
    """The quantity that a name says, None if it says none."""
    parsed = parse_name(name)
    return None if parsed is None else parsed.quantity


def says_degrees(name: str) -> bool:
    """Whether a name says degrees, of whatever quantity it is."""
    return any(word.lower() in _DEGREES for word in _WORD.findall(_seamed(name)))


def parse_name(name: str) -> ColumnName | None:
    """What a name says; None if it is not known to be of any quantity."""
    text, bracketed = name, []
    match = _BRACKETED_UNIT.search(name)
    if match and match.start():
        text, bracketed = name[: match.start()], [word.lower() for word in _WORD.findall(match[1])]
    text = _DOTS.sub(lambda match: "q" + match[2].lower(), text)
    spaced = _seamed(text)
    spans = [(match.start(), match.end(), match[0].lower()) for match in _WORD.finditer(spaced)]
    words = [word for _, _, word in spans]
    for at in _places(words):
        rest = [*words[:at], *words[at + 1 :]]
        before, after = spaced[: spans[at][0]], spaced[spans[at][1] :]
        parsed = _of(_QUANTITY[words[at]], words[at], rest, before, after, bracketed)
        if parsed is not None:
            return parsed
    return None


def _seamed(text: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", _SEAM, text)


def _places(words: list[str]) -> list[int]:
    """Where the quantity may stand, likeliest first: at the end, at the start, between."""
    known = [at for at, word in enumerate(words) if word in _QUANTITY]
    certain = [at for at in known if words[at] != "current"]
    # `current_position` is the position now, `actual_current` a current
    return certain[::-1] if certain else known[::-1]


def _of(quantity: str, word: str, rest: list[str], before: str, after: str, bracketed: list[str]) -> ColumnName | None:
    units = [*bracketed, word, *(other for other in rest if _is_unit(other, quantity))]
    rest = [other for other in rest if other != "current" and not _is_unit(other, quantity)]
    if any(other in _SOMETHING_ELSE for other in rest):
        return None
    left = [other for other in rest if other not in _SAID_OF_ANY]
    if quantity in ("t", "trajectory"):
        beside = _BESIDE_TIME if quantity == "t" else _BESIDE_TRAJECTORY
        unit = next((_UNITS[each] for each in units if each in _UNITS), None)
        return ColumnName(quantity, None, word, unit) if set(left) <= beside else None
    degrees = any(each in _DEGREES for each in units)
    family = f"{_stem(before)}{word}{_stem(after)}"
    if not left:
        return ColumnName(quantity, None, family, None, degrees)
    numbers = [other for other in left if other.isdigit()]
    silent = _NUMBERED | {"motor"} if quantity == "current" else _NUMBERED
    if len(numbers) == 1 and len(numbers[0]) <= 3 and all(other in silent for other in left if other != numbers[0]):
        return ColumnName(quantity, int(numbers[0]), family, None, degrees)
    joint = _joint_name(before, after)
    return ColumnName(quantity, joint, word, None, degrees) if joint else None


def _is_unit(word: str, quantity: str) -> bool:
    if quantity == "t":
        return word in _UNITS
    return word in _DEGREES or (word in _OTHER_UNITS and word not in ("a", "m", "n"))


def _stem(text: str) -> str:
    """Text without its numbers, to tell families of columns apart."""
    return re.sub(r"\d+", "", text)


def _joint_name(before: str, after: str) -> str:
    """The name of the joint in what stands beside the quantity: path pieces that say nothing of it fall away."""
    kept = []
    for piece in re.split(r"[/.:\[\]]", f"{before}/{after}"):
        bare = piece.replace(_SEAM, "").strip(" _-")
        words = [word.lower() for word in _WORD.findall(bare)]
        if words and not all(word in _SAID_OF_ANY or word in _UNITS or word in _OTHER_UNITS for word in words):
            kept.append(bare)
    return "_".join(kept)
