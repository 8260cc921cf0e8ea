"""Options for reading a log: what its columns mean, units, signs, and which joints to use."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..errors import SettingsError
from ..joints import COMPONENTS

# Quantities that a log may hold for each joint, by the names of delan.
QUANTITIES = ("q", "qd", "qdd", "tau", *COMPONENTS)

# Quantities that `LogOptions.map` accepts.
MAPPED = ("t", "trajectory", *QUANTITIES, "current")

# Quantities that may stand under each other's names.
EXCHANGEABLE = ("q", "qd", "tau")

# Quantities without which nothing can be learned.
REQUIRED = ("t", "q", "tau")

_RANGE = re.compile(r"\{(\d{1,4})-(\d{1,4})\}")


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How to read a log with other names, units or signs than those of delan.

    Attributes:
        map: columns of a quantity of `MAPPED`: a pattern with `{}` for the number or name of the
            joint (`joint_pos_{}`), a range (`column{2-8}`), a list of columns, or the name of an
            array. An empty pattern leaves the quantity out.
        degrees: positions, velocities and accelerations of turning joints are in degrees.
        gain: torque per current [N m/A], one for all joints or one per chosen joint.
        flip: joints whose sign is inverted, for `q` (with its derivatives) or `tau`; `"all"` for
            every joint.
        exchanged: quantities that stand under each other's names, such as `{"q": "qd", "qd": "q"}`:
            each is read from the columns of the other.
        joints: joints to use, in this order, by name or by number in the log, counted from 0; None
            uses all.
        sliding: joints that slide, with positions in metres, by name or by number among those used;
            a log that does not say otherwise has turning joints.
        time_scale: unit of the log's time in seconds; None derives it, or asks.
        rate: sampling rate of a log without time [Hz].
        memory: memory limit for the values of a log, at least 1 [MB]. Of a larger log, evenly
            spaced segments are read. None reads all of it.
    """

    map: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    degrees: bool = False
    gain: tuple[float, ...] | None = None
    flip: Mapping[str, tuple[int | str, ...] | Literal["all"]] = field(default_factory=dict)
    exchanged: Mapping[str, str] = field(default_factory=dict)
    joints: tuple[int | str, ...] | None = None
    sliding: tuple[int | str, ...] | None = None
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
        _require_exchange(self.exchanged)
        if self.joints is not None:
            _require_joints("joints", self.joints)
        if self.sliding is not None:
            _require_joints("sliding", self.sliding)
        _require_positive(
            "time_scale", self.time_scale, "seconds in one unit of the log's time, such as 0.001"
        )
        _require_positive("rate", self.rate, "samples per second, such as 500")
        if self.memory is not None and not self.memory >= 1:
            raise SettingsError(f"must be at least 1 MB, got {self.memory}", setting="memory")
        if self.rate is not None and self.time_scale is not None:
            raise SettingsError(
                "replaces the time of the log, which time_scale converts; give one of them",
                setting="rate",
            )

    @property
    def most_bytes(self) -> float:
        """Memory limit for the values of a log [bytes]."""
        return math.inf if self.memory is None else 1e6 * self.memory

    def patterns(self, quantity: str) -> tuple[str, ...] | None:
        """Return the patterns of a quantity with ranges expanded.

        None if none were given; empty if the quantity is to be left out.
        """
        given = self.map.get(quantity)
        if given is None:
            return None
        if isinstance(given, str):
            given = given.split(",")
        names = []
        for pattern in given:
            if pattern.strip():
                names += _expanded(pattern.strip())
        return tuple(names)

    @property
    def mapped_names(self) -> frozenset[str]:
        """Names of all columns in `map`, with ranges expanded."""
        names: set[str] = set()
        for quantity in self.map:
            names.update(self.patterns(quantity) or ())
        return frozenset(names)


def _expanded(pattern: str) -> list[str]:
    """Return q2, q3, q4 for `q{2-4}`."""
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    before = pattern[: match.start()]
    after = pattern[match.end() :]
    return [f"{before}{number}{after}" for number in range(int(match[1]), int(match[2]) + 1)]


def _require_pattern(quantity: str, pattern: object) -> None:
    if quantity not in MAPPED:
        raise SettingsError(
            f"knows no quantity {quantity!r}; give columns for one of {', '.join(MAPPED)}",
            setting="map",
        )
    parts = [pattern] if isinstance(pattern, str) else pattern
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        raise SettingsError(
            f"of {quantity} must be a column pattern such as {quantity}_{{}}, got {pattern!r}",
            setting="map",
        )
    for part in parts:
        match = _RANGE.search(part)
        if match and int(match[1]) > int(match[2]):
            raise SettingsError(
                f"the range in {part!r} runs backward; write {{{match[2]}-{match[1]}}}"
            )
        if part.count("{}") > 1 or "{" in _RANGE.sub("", part).replace("{}", ""):
            remedy = "write one {} for the joint's number or name, or a range such as {1-7}"
            raise SettingsError(
                f"of {quantity}: {part!r} is not a pattern; {remedy}", setting="map"
            )
    if not "".join(parts).strip() and quantity in ("q", "tau"):
        raise SettingsError(f"{quantity} is required; give the columns that hold it")


def _require_gain(gain: tuple[float, ...]) -> None:
    if not gain or not all(math.isfinite(value) and value != 0 for value in gain):
        given = ", ".join(map(str, gain)) or "none"
        raise SettingsError(
            "must be finite and nonzero in N m/A, one for all joints or one per joint; "
            f"got {given}",
            setting="gain",
        )


def _require_flip(quantity: str, joints: object) -> None:
    if quantity not in ("q", "tau"):
        raise SettingsError(
            f"inverts the sign of q (with its derivatives) or tau, got {quantity!r}",
            setting="flip",
        )
    if joints != "all":
        _require_joints("flip", joints, f"of {quantity} ")


def _require_exchange(exchanged: Mapping[str, str]) -> None:
    names = set(exchanged)
    if names != set(exchanged.values()) or not names <= set(EXCHANGEABLE):
        raise SettingsError(
            f"must read each of {', '.join(sorted(names))} from one of "
            f"{', '.join(EXCHANGEABLE)}, every one once; got {dict(exchanged)}",
            setting="exchanged",
        )


def _require_joints(setting: str, joints: object, of: str = "") -> None:
    form = "give numbers counted from 0, or names, each once"
    if isinstance(joints, str) or not isinstance(joints, Sequence) or not joints:
        raise SettingsError(
            f"{of}must be a list of joints, got {joints!r}; {form}", setting=setting
        )
    for joint in joints:
        name = isinstance(joint, str) and joint != ""
        number = isinstance(joint, int) and not isinstance(joint, bool) and joint >= 0
        if not name and not number:
            raise SettingsError(f"{of}has {joint!r}, which is not a joint; {form}", setting=setting)
    if len(set(joints)) < len(joints):
        given = ", ".join(map(str, joints))
        raise SettingsError(f"{of}repeats a joint in {given}; {form}", setting=setting)


def _require_positive(setting: str, value: float | None, form: str) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise SettingsError(f"must be positive and finite, {form}; got {value}", setting=setting)
