"""Data types shared by all subpackages, and the choice and scaling of rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from .errors import DataError, SettingsError
from .log_rows import Excerpt, FileRows

# Revolute and continuous joints turn [rad], prismatic joints slide [m]. A continuous joint has no
# end stop, so its position is only known modulo a full turn.
JointKind = Literal["revolute", "continuous", "prismatic"]

# Where the torques of a recording come from: measured by the robot, measured currents times a gain,
# or computed from the commands and gains of its drives.
TorqueSource = Literal["logged", "currents", "commands"]

# Torque components a recording may carry as ground truth, in the order of eq. 4 of Lutter et al.
# 2019.
COMPONENTS = ("inertial", "coriolis", "gravity")

# Advice for arrays of different lengths, also for those of a log that is still being read.
SHAPE_REMEDY = (
    "give one row per time stamp and one column per joint, "
    "or cut all arrays to the rows that they share"
)

# Fields with one row per time stamp, in the order in which tables show them.
COLUMNS = ("t", "q", "qd", "qdd", "tau", "trajectory")


class TorqueComponents(NamedTuple):
    """Components whose sum is the joint torque τ [N m or N], each of shape `(..., dof)`."""

    inertial: Any
    coriolis: Any
    gravity: Any
    friction: Any

    @property
    def total(self) -> Any:
        return self.inertial + self.coriolis + self.gravity + self.friction


class Energy(NamedTuple):
    """Kinetic and potential energy [J]."""

    kinetic: Any
    potential: Any

    @property
    def total(self) -> Any:
        return self.kinetic + self.potential


class JointUnits(NamedTuple):
    """SI units of a joint's position, velocity, acceleration and torque."""

    q: str
    qd: str
    qdd: str
    tau: str


# Joints of a robot, and characters in the name of one; files that claim more are damaged.
MOST_JOINTS = 500
LONGEST_NAME = 200

TURNING_UNITS = JointUnits("rad", "rad/s", "rad/s^2", "N m")
SLIDING_UNITS = JointUnits("m", "m/s", "m/s^2", "N")


@dataclass(frozen=True)
class Joints:
    """Names and kinds of a robot's joints, in the order of the last axis of every array.

    Where joints are elastic and both sides were measured, links and motors have coordinates of
    their own: `motor_of` holds, for each of the last joints, the number of the link's joint that it
    drives through a spring. A link's coordinate has no torque from outside.
    """

    names: tuple[str, ...]
    kinds: tuple[JointKind, ...]
    motor_of: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.kinds):
            raise SettingsError(
                f"got {len(self.names)} joint names and {len(self.kinds)} joint kinds; "
                "give one name and one kind for each joint, and at least one joint"
            )
        if len(self.names) > MOST_JOINTS:
            raise SettingsError(
                f"got {len(self.names)} joints; a robot has at most {MOST_JOINTS} here: choose "
                "those of one arm"
            )
        for name in self.names:
            # Names are shown on terminals and pages, and stand in the comments of C code.
            if not name.isprintable() or len(name) > LONGEST_NAME:
                raise SettingsError(
                    f"a joint is named {name[:LONGEST_NAME]!r}; expected at most {LONGEST_NAME} "
                    "printable characters: give it another name"
                )
        if len(set(self.names)) != len(self.names):
            raise SettingsError(f"joint names must be unique, got {', '.join(self.names)}")
        known = get_args(JointKind)
        for name, kind in zip(self.names, self.kinds, strict=True):
            if kind not in known:
                raise SettingsError(
                    f"joint {name} is of kind {kind!r}; expected one of {', '.join(known)}"
                )
        links = self.dof - len(self.motor_of)
        driven = set(self.motor_of)
        if len(driven) < len(self.motor_of) or not driven <= set(range(links)):
            raise SettingsError(
                f"motor_of is {self.motor_of}; expected the number of another joint below {links} "
                f"for each of the last {len(self.motor_of)} of {self.dof} joints, each once"
            )

    @classmethod
    def of(cls, kinds: Sequence[JointKind]) -> "Joints":
        """Return joints of the given kinds, named joint0, joint1, …"""
        return cls(tuple(f"joint{i}" for i in range(len(kinds))), tuple(kinds))

    @classmethod
    def revolute(cls, dof: int) -> "Joints":
        """Return `dof` revolute joints, named joint0, joint1, …"""
        return cls.of(("revolute",) * dof)

    @property
    def dof(self) -> int:
        return len(self.names)

    @property
    def sliding(self) -> Bool[np.ndarray, " dof"]:
        """Mask of the prismatic joints."""
        return np.array(self.kinds) == "prismatic"

    @property
    def turning(self) -> Bool[np.ndarray, " dof"]:
        """Mask of the revolute and continuous joints."""
        return ~self.sliding

    @property
    def continuous(self) -> Bool[np.ndarray, " dof"]:
        """Mask of the joints that turn without end stops."""
        return np.array(self.kinds) == "continuous"

    @property
    def units(self) -> tuple[JointUnits, ...]:
        """SI units of each joint."""
        return tuple(SLIDING_UNITS if slides else TURNING_UNITS for slides in self.sliding)

    def with_motors(self) -> "Joints":
        """Return these joints and a motor behind a spring for each of them."""
        names = tuple(f"{name} motor" for name in self.names)
        return Joints(self.names + names, 2 * self.kinds, tuple(range(self.dof)))

    @property
    def links(self) -> "Joints":
        """The joints without the motors behind springs."""
        return self.pick(range(self.dof - len(self.motor_of)))

    def pick(self, numbers: Sequence[int]) -> "Joints":
        """Return the joints at the given positions, in the given order.

        A choice of them leaves motors and links behind, and has none of the former.
        """
        if list(numbers) == list(range(self.dof)):
            return self
        names = []
        kinds = []
        for number in numbers:
            names.append(self.names[number])
            kinds.append(self.kinds[number])
        return Joints(tuple(names), tuple(kinds))


@dataclass(frozen=True, eq=False, kw_only=True)
class JointLimits:
    """Limits of the positions [rad or m], speeds [rad/s or m/s] and torques [N m or N].

    A joint without a limit has ±∞.
    """

    lower: Float[np.ndarray, " dof"]
    upper: Float[np.ndarray, " dof"]
    velocity: Float[np.ndarray, " dof"]
    torque: Float[np.ndarray, " dof"]

    def __post_init__(self) -> None:
        limits = (self.lower, self.upper, self.velocity, self.torque)
        lower, upper, velocity, torque = map(np.shape, limits)
        if len(lower) != 1 or not lower == upper == velocity == torque:
            raise SettingsError(
                "each limit needs one number per joint, shape (dof,); got the shapes "
                f"lower {lower}, upper {upper}, velocity {velocity}, torque {torque}"
            )
        # The test is for valid limits, not for invalid ones: comparisons with NaN are false.
        good = (self.lower <= self.upper) & (self.lower < np.inf) & (self.upper > -np.inf)
        if not good.all():
            at = int(np.argmin(good))
            raise SettingsError(
                f"joint {at} may move from {self.lower[at]} to {self.upper[at]}; every joint needs "
                "lower ≤ upper, with −∞ and ∞ for a joint without end stops"
            )
        for name in ("velocity", "torque"):
            values = getattr(self, name)
            if not (values > 0).all():
                at = int(np.argmin(values > 0))
                raise SettingsError(
                    f"every joint needs a {name} limit above zero (∞ for no limit); "
                    f"that of joint {at} is {values[at]}"
                )


class JointState(NamedTuple):
    """Measured joint positions and velocities at the time t [s]."""

    t: float
    q: Float[np.ndarray, " dof"]
    qd: Float[np.ndarray, " dof"]


class JointTarget(NamedTuple):
    """Desired joint positions, velocities and accelerations."""

    q_des: Float[np.ndarray, " dof"]
    qd_des: Float[np.ndarray, " dof"]
    qdd_des: Float[np.ndarray, " dof"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Body:
    """A body of a kinematic tree: its frame, inertia and joint.

    Attributes:
        parent: index of the parent body, −1 for the world.
        position, rotation: pose of the body frame in the parent frame at joint position zero [m].
        mass: mass [kg].
        centre: centre of mass in the body frame [m].
        inertia: inertia about the centre of mass, in the body frame [kg m²].
        joint, kind: name and kind of the joint to the parent, None for a welded body.
        axis, anchor: axis of that joint and a point on it [m], in the body frame.
    """

    parent: int
    position: Float[np.ndarray, "3"]
    rotation: Float[np.ndarray, "3 3"]
    mass: float
    centre: Float[np.ndarray, "3"]
    inertia: Float[np.ndarray, "3 3"]
    joint: str | None
    kind: JointKind | None
    axis: Float[np.ndarray, "3"]
    anchor: Float[np.ndarray, "3"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Trajectory:
    """A desired motion of joints or of a point, sampled at the times t [s]."""

    t: Float[np.ndarray, " time"]
    q: Float[np.ndarray, "time dof"]
    qd: Float[np.ndarray, "time dof"]
    qdd: Float[np.ndarray, "time dof"]
    label: str


class DriveGains(NamedTuple):
    """Stiffness [N m/rad or N/m] and damping [N m s/rad or N s/m] of each joint's controller."""

    kp: Float[np.ndarray, " dof"]
    kd: Float[np.ndarray, " dof"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """Raw sensor data: time t [s], positions q, torques tau and, if logged, q̇ and q̈.

    `trajectory` labels the rows. Time increases inside each trajectory and may restart in the next.
    `truth` may hold torque components known from a simulation (keys of `COMPONENTS`).
    `excerpt` says which rows of a larger log these are; None means all of them. `files` are those
    of the whole log; none are known of chosen rows. `torque_source` says where the torques come
    from; `gains` are those of the controller, if the torques were computed with them.
    """

    t: Float[np.ndarray, " time"]
    q: Float[np.ndarray, "time dof"]
    tau: Float[np.ndarray, "time dof"]
    qd: Float[np.ndarray, "time dof"] | None = None
    qdd: Float[np.ndarray, "time dof"] | None = None
    trajectory: Int[np.ndarray, " time"]
    truth: Mapping[str, Float[np.ndarray, "time dof"]] = field(default_factory=dict)
    joints: Joints
    source: str = "recording"
    excerpt: Excerpt | None = None
    files: tuple[FileRows, ...] = ()
    torque_source: TorqueSource = "logged"
    gains: DriveGains | None = None

    def __post_init__(self) -> None:
        _require_shapes(self)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Every array with one row per time stamp, by its name; those of `truth` come last."""
        return _present(self, COLUMNS) | dict(self.truth)

    @property
    def nbytes(self) -> int:
        """Memory taken by the arrays [bytes]."""
        return sum(values.nbytes for values in self.columns.values())

    def with_columns(self, columns: Mapping[str, np.ndarray]) -> "Recording":
        """Return the recording with other arrays, named as in `columns`."""
        fields = dict(columns)
        truth = {name: fields.pop(name) for name in self.truth}
        return replace(self, **fields, truth=truth)

    def rows(self, chosen: np.ndarray | slice) -> "Recording":
        """Return the rows of a boolean mask, an index array or a slice."""
        return replace(self, **_chosen(self, COLUMNS, chosen), files=())


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How samples were made from a recording.

    Attributes:
        cutoff: cut-off of the low-pass over q, q̇ and τ, per joint [Hz]; None if nothing was
            filtered.
        delay: lag of the torques that was removed [s].
        velocity, acceleration: `logged` or `differentiated`.
        rows: number of rows of the recording.
        samples: number of samples to learn from.
        dropped: number of rows left out, by reason: in segments too short to filter, repeated,
            resting, at the ends of the filter, between samples.
        cuts: number of cuts inside trajectories, by reason: gaps and pauses.
        excerpt: which rows of a larger log the recording holds; None means all of them.
    """

    cutoff: tuple[float, ...] | None = None
    delay: float = 0.0
    velocity: Literal["logged", "differentiated"]
    acceleration: Literal["logged", "differentiated"]
    rows: int
    samples: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    cuts: Mapping[str, int] = field(default_factory=dict)
    excerpt: Excerpt | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """Samples with position, velocity, acceleration and torque, cut into trajectories.

    `counted` marks the rows to learn from and to score; None means all. The other rows only provide
    the history of the motion, which friction with memory needs. `preparation` says how the samples
    were made.
    """

    t: Float[np.ndarray, " time"]
    q: Float[np.ndarray, "time dof"]
    qd: Float[np.ndarray, "time dof"]
    qdd: Float[np.ndarray, "time dof"]
    tau: Float[np.ndarray, "time dof"]
    trajectory: Int[np.ndarray, " time"]
    truth: Mapping[str, Float[np.ndarray, "time dof"]] = field(default_factory=dict)
    counted: Bool[np.ndarray, " time"] | None = None
    joints: Joints
    source: str = "dataset"
    preparation: Preparation | None = None

    def __post_init__(self) -> None:
        _require_shapes(self)
        if self.counted is not None and self.counted.shape != self.t.shape:
            problem = (
                f"expected shape (time,) = {self.t.shape}, got {self.counted.shape}; "
                "give one mark per time stamp"
            )
            raise DataError(self.source, problem, column="counted")

    def __len__(self) -> int:
        return len(self.t)

    @property
    def samples(self) -> "Dataset":
        """The counted rows alone."""
        if self.counted is None:
            return self
        return replace(self.rows(self.counted), counted=None)

    @property
    def dof(self) -> int:
        return self.joints.dof

    @property
    def trajectories(self) -> tuple[int, ...]:
        """Trajectory labels in order of appearance."""
        labels, first = np.unique(self.trajectory, return_index=True)
        return tuple(labels[np.argsort(first)].tolist())

    def rows(self, chosen: np.ndarray | slice) -> "Dataset":
        """Return the samples of a boolean mask, an index array or a slice."""
        return replace(self, **_chosen(self, (*COLUMNS, "counted"), chosen))

    def select(self, trajectories: Sequence[int]) -> "Dataset":
        """Return the samples of whole trajectories, by label."""
        unknown = sorted(set(trajectories) - set(self.trajectories))
        if unknown:
            raise DataError(
                self.source, f"has no trajectory {unknown[0]}; it has {list(self.trajectories)}"
            )
        return self.rows(np.isin(self.trajectory, list(trajectories)))


def _present(data: Recording | Dataset, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the named columns that are not None."""
    columns = {}
    for name in names:
        values = getattr(data, name)
        if values is not None:
            columns[name] = values
    return columns


def _chosen(
    data: Recording | Dataset, names: Sequence[str], rows: np.ndarray | slice
) -> dict[str, Any]:
    """Return the fields of a recording or dataset that change with the choice of rows."""
    fields: dict[str, Any] = {"truth": {}}
    for name, values in _present(data, names).items():
        fields[name] = values[rows]
    for name, values in data.truth.items():
        fields["truth"][name] = values[rows]
    return fields


def _require_shapes(data: Recording | Dataset) -> None:
    """Refuse arrays without one row per time stamp and one column per joint."""
    if data.t.ndim != 1 or len(data.t) == 0:
        problem = f"expected at least one time stamp in shape (time,), got {data.t.shape}"
        raise DataError(data.source, problem, column="t")
    if data.trajectory.shape != data.t.shape:
        problem = (
            f"expected one label per time stamp, shape {data.t.shape}, got {data.trajectory.shape}"
        )
        raise DataError(data.source, problem, column="trajectory")
    unknown = sorted(set(data.truth) - set(COMPONENTS))
    if unknown:
        problem = f"unknown torque component {unknown[0]!r}; expected {', '.join(COMPONENTS)}"
        raise DataError(data.source, problem)
    expected = (len(data.t), data.joints.dof)
    columns = _present(data, ("q", "qd", "qdd", "tau")) | dict(data.truth)
    for name, column in columns.items():
        if column.shape != expected:
            problem = f"expected shape (time, dof) = {expected}, got {column.shape}; {SHAPE_REMEDY}"
            raise DataError(data.source, problem, column=name)


def evenly_spaced(count: int, most: int) -> Int[np.ndarray, " rows"]:
    """Return at most `most` of the row numbers 0 … count − 1, evenly spaced, both ends included."""
    # `unique` drops rows that rounding repeats.
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))


def nonzero_scale(scale: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return the scale with 1 in place of zeros, so that constant columns can be divided by it."""
    # A NaN is not above zero and becomes 1 as well.
    return np.where(scale > 0, scale, 1.0)
