"""The nouns that cross walls: what a robot's joints did, as plain arrays in SI units, last axis the joint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from .errors import DataError, SettingsError

JointKind = Literal["revolute", "continuous", "prismatic"]
"""`revolute` and `continuous` joints turn [rad], `prismatic` ones slide [m]; a continuous joint has no end stop."""

COMPONENTS = ("inertial", "coriolis", "gravity")
"""The torque components a recording may carry as truth, in the order of eq. 4 of Lutter et al. 2019."""


SHAPE_REMEDY = "give one row a time stamp and one column a joint, or cut all arrays to the rows that they share"


class TorqueComponents(NamedTuple):
    """The parts whose sum is the joint torque τ [N m or N], each of shape `(..., dof)`."""

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


@dataclass(frozen=True)
class Joints:
    """Who the joints are: one name and one kind each, in the order of the last axis of every array."""

    names: tuple[str, ...]
    kinds: tuple[JointKind, ...]

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.kinds):
            raise SettingsError(
                f"got {len(self.names)} joint names and {len(self.kinds)} joint kinds; "
                "give one of each for every joint, at least one joint"
            )
        if len(set(self.names)) != len(self.names):
            raise SettingsError(f"joint names must differ from each other, got {', '.join(self.names)}")
        for name, kind in zip(self.names, self.kinds, strict=True):
            if kind not in get_args(JointKind):
                raise SettingsError(f"joint {name} is of kind {kind!r}; known kinds: {', '.join(get_args(JointKind))}")

    @classmethod
    def of(cls, kinds: Sequence[JointKind]) -> "Joints":
        """Joints of the given kinds, named joint0, joint1, …"""
        return cls(tuple(f"joint{i}" for i in range(len(kinds))), tuple(kinds))

    @classmethod
    def revolute(cls, dof: int) -> "Joints":
        return cls.of(("revolute",) * dof)

    @property
    def dof(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False, kw_only=True)
class JointLimits:
    """What the joints can bear: positions [rad or m], speeds [rad/s or m/s] and torques [N m or N]; ∞ for no limit."""

    lower: Float[np.ndarray, " dof"]
    upper: Float[np.ndarray, " dof"]
    velocity: Float[np.ndarray, " dof"]
    torque: Float[np.ndarray, " dof"]

    def __post_init__(self) -> None:
        shapes = {name: np.shape(getattr(self, name)) for name in ("lower", "upper", "velocity", "torque")}
        if len(set(shapes.values())) > 1 or len(shapes["lower"]) != 1:
            told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise SettingsError(f"limits are one number a joint, as many in each; got the shapes {told}")
        # Asked for what is good, not for what is bad: a comparison with NaN says no.
        good = (self.lower <= self.upper) & (self.lower < np.inf) & (self.upper > -np.inf)
        if not good.all():
            at = int(np.argmin(good))
            raise SettingsError(
                f"joint {at} may move from {self.lower[at]} to {self.upper[at]}; every joint needs lower ≤ upper, "
                "−∞ and ∞ for a joint without ends"
            )
        for name in ("velocity", "torque"):
            values = getattr(self, name)
            if not (values > 0).all():
                at = int(np.argmin(values > 0))
                raise SettingsError(
                    f"every joint needs a {name} limit above zero, ∞ for none; that of joint {at} is {values[at]}"
                )


class JointState(NamedTuple):
    """What the sensors of a robot tell at the time t [s]: positions and velocities of its joints."""

    t: float
    q: Float[np.ndarray, " dof"]
    qd: Float[np.ndarray, " dof"]


class JointTarget(NamedTuple):
    """Where the joints should be now, how fast, and how much faster."""

    q_des: Float[np.ndarray, " dof"]
    qd_des: Float[np.ndarray, " dof"]
    qdd_des: Float[np.ndarray, " dof"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Body:
    """A body of a kinematic tree, as any engine describes it: where it hangs, how it moves, what it weighs.

    Attributes:
        parent: index of the body it hangs on, −1 for the world.
        position, rotation: of its frame in the parent's, at joint position zero [m].
        mass: [kg]; centre: of the mass [m]; inertia: about that centre [kg m²], in the body's own frame.
        joint, kind: name and kind of the joint that moves it, None for a body welded to its parent.
        axis, anchor: of that joint, in the body's frame; anchor [m].
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
    """A wanted motion: positions, velocities and accelerations at the times t [s], of joints or of a point."""

    t: Float[np.ndarray, " time"]
    q: Float[np.ndarray, "time dof"]
    qd: Float[np.ndarray, "time dof"]
    qdd: Float[np.ndarray, "time dof"]
    label: str


class Run(NamedTuple):
    """Rows [first, end) of a log, counted from 0, and the label of their trajectory there."""

    first: int
    end: int
    trajectory: int


@dataclass(frozen=True)
class Excerpt:
    """What of a log a recording holds, where the whole is too large: runs without a break, evenly over the log.

    Attributes:
        rows, trajectories: of the whole log.
        runs: that are held, in their order; each is a trajectory of the recording, labelled by its place here.
        seconds: that a run lasts, in the median [s].
    """

    rows: int
    trajectories: int
    runs: tuple[Run, ...]
    seconds: float

    @property
    def told(self) -> str:
        """`12 % of the log: 31 runs of 60 s`."""
        share = sum(run.end - run.first for run in self.runs) / self.rows
        runs = f"{len(self.runs)} run{'s' * (len(self.runs) != 1)} of {self.seconds:.3g} s"
        return f"{100 * share:.2g} % of the log: {runs}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """What the sensors recorded, raw: time t [s], positions q, torques tau, and velocities and accelerations if logged.

    `trajectory` labels the rows; time runs forward inside each trajectory and may start anew in the next.
    `truth` may hold the torque components that a simulation knows (keys of `COMPONENTS`).
    `excerpt` says which rows of the log these are; None: all of them.
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

    def __post_init__(self) -> None:
        _require_shapes(self, {"q": self.q, "tau": self.tau, "qd": self.qd, "qdd": self.qdd, **self.truth})


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What was done to a recording to make samples of it.

    Attributes:
        cutoff: of the low-pass over q, q̇ and τ, one a joint [Hz]; None: nothing was filtered.
        delay: by which the torques came late and were moved back [s].
        velocity, acceleration: `logged` or `differentiated`.
        rows: of the recording; samples: that are left of them to learn from.
        dropped: rows left out, by why: in stretches too short to filter, repeated, resting, at the ends of the filter,
            between samples.
        cuts: how often a trajectory was cut, by why: gaps and pauses.
        excerpt: which rows of a log the recording was; None: all of them.
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
    """Samples ready to learn from: every row has position, velocity, acceleration and torque; cut into trajectories.

    `counted` marks the rows to learn from and to score (None: all); the others only tell where the joints came from,
    for friction that remembers. `preparation` says how the samples were made.
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
        _require_shapes(self, {"q": self.q, "qd": self.qd, "qdd": self.qdd, "tau": self.tau, **self.truth})
        if self.counted is not None and self.counted.shape != self.t.shape:
            problem = f"expected shape (time,) = {self.t.shape}, got {self.counted.shape}; give one mark a time stamp"
            raise DataError(self.source, problem, column="counted")

    def __len__(self) -> int:
        return len(self.t)

    @property
    def samples(self) -> "Dataset":
        """The rows that count, alone."""
        return self if self.counted is None else replace(self.rows(self.counted), counted=None)

    @property
    def dof(self) -> int:
        return self.joints.dof

    @property
    def trajectories(self) -> tuple[int, ...]:
        """The trajectory labels in order of appearance."""
        labels, first = np.unique(self.trajectory, return_index=True)
        return tuple(int(label) for label in labels[np.argsort(first)])

    def rows(self, chosen: np.ndarray | slice) -> "Dataset":
        """The samples of a boolean mask, an index array or a slice."""
        columns = {name: getattr(self, name)[chosen] for name in ("t", "q", "qd", "qdd", "tau", "trajectory")}
        if self.counted is not None:
            columns["counted"] = self.counted[chosen]
        return replace(self, **columns, truth={name: part[chosen] for name, part in self.truth.items()})

    def select(self, trajectories: Sequence[int]) -> "Dataset":
        """The samples of whole trajectories, by label."""
        unknown = sorted(set(trajectories) - set(self.trajectories))
        if unknown:
            raise DataError(self.source, f"has no trajectory {unknown[0]}; it has {list(self.trajectories)}")
        return self.rows(np.isin(self.trajectory, list(trajectories)))


def _require_shapes(data: "Recording | Dataset", columns: Mapping[str, np.ndarray | None]) -> None:
    """One row a time stamp, one column a joint."""
    if data.t.ndim != 1 or len(data.t) == 0:
        raise DataError(
            data.source, f"expected at least one time stamp in shape (time,), got {data.t.shape}", column="t"
        )
    if data.trajectory.shape != data.t.shape:
        problem = f"expected one label a time stamp, shape {data.t.shape}, got {data.trajectory.shape}"
        raise DataError(data.source, problem, column="trajectory")
    unknown = sorted(set(data.truth) - set(COMPONENTS))
    if unknown:
        raise DataError(data.source, f"unknown torque component {unknown[0]!r}; known: {', '.join(COMPONENTS)}")
    wanted = (len(data.t), data.joints.dof)
    for name, column in columns.items():
        if column is not None and column.shape != wanted:
            problem = f"expected shape (time, dof) = {wanted}, got {column.shape}; {SHAPE_REMEDY}"
            raise DataError(data.source, problem, column=name)
