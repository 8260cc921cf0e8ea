"""Options for reading a log: what its columns mean, units, signs, and which joints to use."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..errors import SettingsError
from ..joints import COMPONENTS

# Quantities that a log may hold for each joint, by the names of delan.
QUANTITIES = ("q", "qd", "qdd", "tau", "q_motor", "qd_motor", "tau_link", *COMPONENTS)

# What a drive was told: desired position, velocity and additional torque, and its gains.
COMMANDS = ("q_des", "qd_des", "tau_des", "kp", "kd")

# Quantities that `LogOptions.map` accepts.
MAPPED = ("t", "trajectory", *QUANTITIES, "current", *COMMANDS)

# Quantities that `LogOptions.scale` and `LogOptions.offset` accept.
SCALED = (
    *("q", "qd", "qdd", "tau", "q_motor", "qd_motor", "tau_link"),
    *("q_des", "qd_des", "tau_des"),
)

# Quantities that may stand under each other's names.
EXCHANGEABLE = ("q", "qd", "tau")

# Quantities without which nothing can be learned.
REQUIRED = ("t", "q", "tau")

# Numbers inside a name, as in `column{2-8}`, and columns of an array, as in `position[0-2]`.
_RANGE = re.compile(r"\{(\d{1,4})-(\d{1,4})\}")
_ELEMENTS = re.compile(r"\[(\d{1,4})-(\d{1,4})\]$")

Numbers = tuple[float, ...]

# Columns of a text file in which the numbers of a row are spread over several lines, and names of
# columns in all ranges of a map.
MOST_COLUMNS = 10_000

# Condition number from which on a transmission counts as not invertible: gear ratios of 1 and of
# 10,000 may stand beside each other.
_WORST_CONDITION = 1e8


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How to read a log with other names, units or signs than those of delan.

    Attributes:
        map: columns of a quantity of `MAPPED`: a pattern with `{}` for the number or name of the
            joint (`joint_pos_{}`), a range (`column{2-8}`), a list of columns, the name of an
            array, or columns of arrays (`link.pos[0-2],motor.pos[3-5]`). An empty pattern leaves
            the quantity out. With `q_motor`, positions of motors behind elastic joints, a recording
            has a coordinate for each link and one for each motor, in the units of the links.
        join: other files whose columns lie beside those of the log, by row, or by time if both
            have times. `{}` stands for the longest beginning or end of the log's name for which
            there is such a file; a name without a folder is looked up beside the log as well.
        join_by: `row` or `time` for all joined files; `auto` as said above.
        columns: number of columns of text files without a header in which the numbers of a row
            are spread over several lines.
        degrees: positions, velocities and accelerations of turning joints are in degrees.
        scale, offset: factor and then summand of quantities of `SCALED`, one for all joints or one
            per chosen joint, such as rad per count of an encoder.
        gain: torque per current [N m/A], one for all joints or one per chosen joint.
        kp, kd: gains of the drives [N m/rad, N m s/rad], one for all joints or one per chosen
            joint: the torque is kp (q_des − q) + kd (qd_des − qd) + tau_des.
        stiffness: of the sensors that measured `tau_link`, torques of elastic joints at their links
            [N m/rad or N/m], one for all joints or one per chosen joint. Their deflection is that
            torque over the stiffness: it gives the positions of the motors from those of the links,
            or those of the links from `q_motor`.
        transmission: matrix T of the motors in the log, q_motor = T q_joint, row by row. Positions
            and torques of the log are those of the motors; q_joint = T⁻¹ q_motor and
            tau_joint = Tᵀ tau_motor. A single row gives the gear ratios, the diagonal of T. Where
            `q_motor` is mapped, `q` is of the links already.
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
        start, end: rows to use, in seconds since the first row of each file; None uses all.
        memory: memory limit for the values of a log, at least 1 [MB]. Of a larger log, evenly
            spaced segments are read. None reads all of it.
    """

    map: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    join: tuple[str, ...] = ()
    join_by: Literal["auto", "row", "time"] = "auto"
    columns: int | None = None
    degrees: bool = False
    scale: Mapping[str, Numbers] = field(default_factory=dict)
    offset: Mapping[str, Numbers] = field(default_factory=dict)
    gain: Numbers | None = None
    kp: Numbers | None = None
    kd: Numbers | None = None
    stiffness: Numbers | None = None
    transmission: tuple[Numbers, ...] | None = None
    flip: Mapping[str, tuple[int | str, ...] | Literal["all"]] = field(default_factory=dict)
    exchanged: Mapping[str, str] = field(default_factory=dict)
    joints: tuple[int | str, ...] | None = None
    sliding: tuple[int | str, ...] | None = None
    time_scale: float | None = None
    rate: float | None = None
    start: float | None = None
    end: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        for quantity, pattern in self.map.items():
            _require_pattern(quantity, pattern)
        _require_few_columns(self.map)
        _require_files(self.join, self.join_by, self.columns)
        if self.gain is not None:
            _require_gain(self.gain)
        _require_factors(self)
        _require_transmission(self.transmission)
        _require_cut(self.start, self.end)
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
        """Names of all columns and arrays in `map`, with ranges expanded.

        An array of a group is named `group/array` by the formats, and `group.array` by people.
        """
        names: set[str] = set()
        for quantity in self.map:
            for name in self.patterns(quantity) or ():
                array, _ = element_of(name)
                names.update((name, array, name.replace(".", "/"), array.replace(".", "/")))
        return frozenset(names)


def element_of(name: str) -> tuple[str, int | None]:
    """Return the array and the column that a name such as `position[2]` means."""
    match = re.fullmatch(r"(.+)\[(\d{1,4})\]", name)
    if match is None:
        return name, None
    return match[1], int(match[2])


def _expanded(pattern: str) -> list[str]:
    """Return q2, q3, q4 for `q{2-4}`, and q[2], q[3], q[4] for `q[2-4]`."""
    match = _RANGE.search(pattern)
    form = "{}"
    if match is None:
        match = _ELEMENTS.search(pattern)
        form = "[{}]"
    if match is None:
        return [pattern]
    before = pattern[: match.start()]
    after = pattern[match.end() :]
    names = []
    for number in range(int(match[1]), int(match[2]) + 1):
        names.append(before + form.format(number) + after)
    return names


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
        match = _RANGE.search(part) or _ELEMENTS.search(part)
        if match and int(match[1]) > int(match[2]):
            raise SettingsError(
                f"the range in {part!r} runs backward; write "
                f"{match[0][0]}{match[2]}-{match[1]}{match[0][-1]}"
            )
        if part.count("{}") > 1 or "{" in _RANGE.sub("", part).replace("{}", ""):
            remedy = "write one {} for the joint's number or name, or a range such as {1-7}"
            raise SettingsError(
                f"of {quantity}: {part!r} is not a pattern; {remedy}", setting="map"
            )
    if not "".join(parts).strip() and quantity in ("q", "tau"):
        raise SettingsError(f"{quantity} is required; give the columns that hold it")


def _require_few_columns(patterns: Mapping[str, str | tuple[str, ...]]) -> None:
    """Refuse ranges of more columns than a log has."""
    count = 0
    for pattern in patterns.values():
        for part in pattern.split(",") if isinstance(pattern, str) else pattern:
            match = _RANGE.search(part) or _ELEMENTS.search(part)
            count += 1 + int(match[2]) - int(match[1]) if match else 1
    if count > MOST_COLUMNS:
        raise SettingsError(
            f"names {count} columns, expected at most {MOST_COLUMNS}; give shorter ranges",
            setting="map",
        )


def _require_gain(gain: tuple[float, ...]) -> None:
    if not gain or not all(math.isfinite(value) and value != 0 for value in gain):
        given = ", ".join(map(str, gain)) or "none"
        raise SettingsError(
            "must be finite and nonzero in N m/A, one for all joints or one per joint; "
            f"got {given}",
            setting="gain",
        )


def _require_files(join: object, join_by: object, columns: object) -> None:
    named = isinstance(join, Sequence) and all(isinstance(file, str) and file for file in join)
    if isinstance(join, str) or not named:
        raise SettingsError(f"must be a list of files, got {join!r}", setting="join")
    if join_by not in ("auto", "row", "time"):
        raise SettingsError(f"must be auto, row or time, got {join_by!r}", setting="join_by")
    if columns is not None and not (isinstance(columns, int) and 0 < columns <= MOST_COLUMNS):
        raise SettingsError(
            f"must be a number of columns from 1 to {MOST_COLUMNS}, got {columns!r}",
            setting="columns",
        )


def _require_factors(options: LogOptions) -> None:
    """Refuse factors, summands and gains that are not finite, and factors of zero."""
    for setting in ("scale", "offset"):
        for quantity, numbers in getattr(options, setting).items():
            if quantity not in SCALED:
                raise SettingsError(
                    f"knows no quantity {quantity!r}; give numbers for one of {', '.join(SCALED)}",
                    setting=setting,
                )
            _require_finite(setting, numbers)
            if setting == "scale" and 0.0 in numbers:
                raise SettingsError(f"of {quantity} is 0, which leaves nothing", setting=setting)
    if options.stiffness is not None:
        _require_finite("stiffness", options.stiffness)
        if min(options.stiffness) <= 0:
            raise SettingsError(
                f"must be above zero, got {min(options.stiffness)}", setting="stiffness"
            )
    for setting in ("kp", "kd"):
        numbers = getattr(options, setting)
        if numbers is None:
            continue
        _require_finite(setting, numbers)
        if min(numbers) < 0:
            raise SettingsError(f"must not be negative, got {min(numbers)}", setting=setting)


def _require_finite(setting: str, numbers: Numbers) -> None:
    if not numbers or not all(map(math.isfinite, numbers)):
        given = ", ".join(map(str, numbers)) or "none"
        raise SettingsError(
            f"must be finite, one number for all joints or one per joint; got {given}",
            setting=setting,
        )


def _require_transmission(matrix: tuple[Numbers, ...] | None) -> None:
    if matrix is None:
        return
    widths = set(map(len, matrix))
    if len(widths) != 1 or widths == {0} or (len(matrix) > 1 and widths != {len(matrix)}):
        raise SettingsError(
            "must be one row of gear ratios, or a square matrix with one row per motor; got rows "
            f"of {', '.join(str(len(row)) for row in matrix) or 'nothing'}",
            setting="transmission",
        )
    values = np.array(matrix, dtype=float)
    if len(matrix) == 1:
        values = np.diag(values[0])
    if not np.isfinite(values).all() or np.linalg.cond(values) > _WORST_CONDITION:
        raise SettingsError(
            "must be finite and invertible: q_motor = T q_joint, one row per motor and one column "
            "per joint",
            setting="transmission",
        )


def _require_cut(start: float | None, end: float | None) -> None:
    for setting, value in (("from", start), ("to", end)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise SettingsError(
                f"must be seconds since the first row of a file, at least 0; got {value}",
                setting=setting,
            )
    if start is not None and end is not None and start >= end:
        raise SettingsError(f"must be after --from {start:g}, got {end:g}", setting="to")


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
