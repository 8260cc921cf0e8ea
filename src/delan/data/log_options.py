"""What the reader of a log cannot know and its owner can: which column is what, units, signs, which joints."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..errors import SettingsError
from ..joints import COMPONENTS

QUANTITIES = ("q", "qd", "qdd", "tau", *COMPONENTS)
"""What a log may tell of each joint, by our names."""

MAPPED = ("t", "trajectory", *QUANTITIES, "current")
"""What `LogOptions.map` may name."""

REQUIRED = ("t", "q", "tau")

_RANGE = re.compile(r"\{(\d{1,4})-(\d{1,4})\}")


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How to read a log whose names, units or signs are not ours.

    Attributes:
        map: the columns of a quantity of `MAPPED`. A pattern with `{}` where the number or the name of the joint
            stands (`joint_pos_{}`), a range (`column{2-8}`), a list of columns, or the name of one array. An empty
            pattern leaves the quantity out.
        degrees: positions, velocities and accelerations of turning joints are in degrees.
        gain: torque of a current [N m/A], one for all joints or one for each joint kept.
        flip: joints whose sign is turned, for `q` (with its rates) or `tau`; `"all"` for every joint.
        joints: the joints to keep, in this order, by name or by number in the log, counted from 0; None keeps all.
        time_scale: seconds in one unit of the log's time; None finds it, or asks.
        rate: samples a second, for a log without time.
        memory: that the numbers of a log may take, 1 or more [MB]; of a larger log, evenly spaced runs that fit are
            read. None: all of it.
    """

    map: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    degrees: bool = False
    gain: tuple[float, ...] | None = None
    flip: Mapping[str, tuple[int | str, ...] | Literal["all"]] = field(default_factory=dict)
    joints: tuple[int | str, ...] | None = None
    time_scale: float | None = None
    rate: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        for quantity, pattern in self.map.items():
            _require_pattern(quantity, pattern)
        if self.gain is not None:
            _require_gain(self.gain)
        for quantity, joints in self.flip.items():
            _require_flip(quantity, joints)
        if self.joints is not None:
            _require_joints("joints", self.joints)
        _require_positive("time_scale", self.time_scale, "seconds in one unit of the log's time, such as 0.001")
        _require_positive("rate", self.rate, "samples a second, such as 500")
        if self.memory is not None and not self.memory >= 1:
            raise SettingsError(f"memory must be at least 1 MB for the numbers of a log, got {self.memory}")
        if self.rate is not None and self.time_scale is not None:
            raise SettingsError("rate makes the time and time_scale reads it from the log; give one of them")

    @property
    def most_bytes(self) -> float:
        """What the numbers of a log may take."""
        return math.inf if self.memory is None else 1e6 * self.memory

    def patterns(self, quantity: str) -> tuple[str, ...] | None:
        """What was given for a quantity, ranges written out; None if nothing, empty if it is to be left out."""
        given = self.map.get(quantity)
        if given is None:
            return None
        listed = given.split(",") if isinstance(given, str) else given
        return tuple(name for part in listed if part.strip() for name in _written_out(part.strip()))


def _written_out(pattern: str) -> list[str]:
    """`q{2-4}` as q2, q3, q4."""
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = int(match[1]), int(match[2])
    return [f"{pattern[: match.start()]}{number}{pattern[match.end() :]}" for number in range(first, last + 1)]


def _require_pattern(quantity: str, pattern: object) -> None:
    if quantity not in MAPPED:
        raise SettingsError(f"map knows no quantity {quantity!r}; give columns for one of {', '.join(MAPPED)}")
    parts = [pattern] if isinstance(pattern, str) else pattern
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        raise SettingsError(f"map of {quantity} must be a column pattern such as {quantity}_{{}}, got {pattern!r}")
    for part in parts:
        match = _RANGE.search(part)
        if match and int(match[1]) > int(match[2]):
            raise SettingsError(f"the range in {part!r} runs backward; write {{{match[2]}-{match[1]}}}")
        if part.count("{}") > 1 or "{" in _RANGE.sub("", part).replace("{}", ""):
            problem = "write one {} where the joint's number or name stands, or a range such as {1-7}"
            raise SettingsError(f"map of {quantity}: {part!r} cannot be understood; {problem}")
    if not any(part.strip() for part in parts) and quantity in ("q", "tau"):
        raise SettingsError(f"{quantity} cannot be left out of a log; give the columns that hold it")


def _require_gain(gain: tuple[float, ...]) -> None:
    if not gain or not all(math.isfinite(value) and value != 0 for value in gain):
        shown = ", ".join(map(str, gain)) or "none"
        raise SettingsError(f"gain must be finite N m per A and not 0, one for all joints or one each; got {shown}")


def _require_flip(quantity: str, joints: object) -> None:
    if quantity not in ("q", "tau"):
        raise SettingsError(f"flip turns the sign of q (with its rates) or tau, got {quantity!r}")
    if joints != "all":
        _require_joints(f"flip of {quantity}", joints)


def _require_joints(what: str, joints: object) -> None:
    form = "give numbers counted from 0, or names, each once"
    if isinstance(joints, str) or not isinstance(joints, Sequence) or not joints:
        raise SettingsError(f"{what} must be a list of joints, got {joints!r}; {form}")
    for joint in joints:
        good = joint != "" if isinstance(joint, str) else isinstance(joint, int) and joint >= 0
        if not good or isinstance(joint, bool):
            raise SettingsError(f"{what}: {joint!r} is no joint; {form}")
    if len(set(joints)) < len(joints):
        raise SettingsError(f"{what}: a joint stands there twice in {', '.join(map(str, joints))}; {form}")


def _require_positive(what: str, value: float | None, form: str) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise SettingsError(f"{what} must be positive and finite, {form}; got {value}")
