"""The log of a run of the loop, and its result: motion, counts, times and tracking error."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..joints import JointState
from .channels import RowLayout

Row = Float[np.ndarray, " columns"]
Rows = Float[np.ndarray, "time dof"]

# What a period is spent on: state, torque and guard; fetching and requesting τ_ff; the robot's
# step; passing rows to the recorder and the learner; judging new weights; the progress callback;
# onlookers.
PARTS = ("control", "feed_forward", "robot", "recorder", "learner", "gate", "progress", "onlooker")
Ending = Literal["finished", "interrupted", "stopped"]


def row_layout(dof: int) -> RowLayout:
    """Return the layout of the rows that the loop logs and records."""
    joint = dict.fromkeys(("q", "qd", "tau", "q_des", "qd_des", "qdd_des", "tau_ff"), dof)
    return RowLayout.of(t=1, **joint, trajectory=1, model=1)


class Percentiles(NamedTuple):
    """Median, 99th percentile and maximum."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Percentiles":
        if len(values) == 0:
            return cls(0.0, 0.0, 0.0)
        p50, p99, largest = np.percentile(values, [50, 99, 100]).tolist()
        return cls(p50, p99, largest)


class Event(NamedTuple):
    """A `swap`, `refusal`, `restart` or `stall`, or what the `learner` reports, at a time t [s]."""

    t: float
    kind: str
    text: str


class LoopProgress(NamedTuple):
    """The state of a run, as given to the progress callback.

    Attributes:
        t: time of the loop [s].
        seconds: planned duration of the run [s].
        label: name of the current motion.
        error: root mean square of q_des − q over the last second, per joint [rad or m].
        missed, late, swaps, refused: as in `LoopStats`.
        model_age: time since the last swap [s]; None before the first.
    """

    t: float
    seconds: float
    label: str
    error: tuple[float, ...]
    missed: int
    late: int
    swaps: int
    refused: int
    model_age: float | None


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Mean square of q_des − q per joint [rad² or m²], and the sum over joints; NaN if empty."""

    mse: tuple[float, ...]
    mse_sum: float

    @classmethod
    def of(cls, error: Rows) -> "Tracking":
        if len(error) == 0:
            return cls(mse=(float("nan"),) * error.shape[1], mse_sum=float("nan"))
        mse = np.mean(error**2, axis=0)
        return cls(mse=tuple(mse.tolist()), mse_sum=float(mse.sum()))


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One reference motion as it was followed; `start` and `seconds` in loop time [s]."""

    label: str
    start: float
    seconds: float
    tracking: Tracking


@dataclass(frozen=True, kw_only=True)
class LoopStats:
    """Counts and times of a run.

    Attributes:
        periods, missed: control periods, and those that began too late to act in.
        stalls: how often the loop stood still for long; the robot was held after each.
        late_feedforward: updates of τ_ff that were not computed in time.
        lost_samples: rows that the learner never read.
        restarts: how often the learner died and was restarted.
        swaps: models taken into use.
        refused: models refused, by cause (`admission.CAUSES`).
        guard: periods in which the guard intervened, by cause (`guard.CAUSES`).
        torque_max: largest absolute torque of each joint [N m or N].
        lateness_us: delay of the periods [µs].
        parts_us: time spent on each of `PARTS` in a period [µs].
        recorded, unrecorded, recording_problem: rows in the recording, rows missing in it, and why.
    """

    periods: int
    missed: int
    late_feedforward: int
    stalls: int = 0
    lost_samples: int = 0
    restarts: int = 0
    swaps: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    guard: Mapping[str, int]
    torque_max: tuple[float, ...]
    lateness_us: Percentiles
    parts_us: Mapping[str, Percentiles]
    recorded: int = 0
    unrecorded: int = 0
    recording_problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the stats for JSON: `refused` as a number, its causes separately."""
        return {
            **asdict(self),
            "refused": sum(self.refused.values()),
            "refused_by_cause": dict(self.refused),
            "lateness_us": self.lateness_us._asdict(),
            "parts_us": {name: values._asdict() for name, values in self.parts_us.items()},
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopResult:
    """A run, row by row and in numbers.

    Attributes:
        t: start of each period [s].
        q, qd: measured state at that time.
        tau, tau_ff: torque applied in the period, and the part of it that comes from the model.
        q_des, qd_des, qdd_des: target at that time.
        piece: index of the motion in `labels`.
        model: number of models taken into use so far.
        labels, scored: name of each motion, and whether it is a reference motion.
        events: swaps, refusals, restarts and reports of the learner.
        ended, reason: `finished`, `interrupted` from outside or `stopped` by the guard, and why.
        state: last state of the robot; pass it as `start` of another run to continue from there.
    """

    t: Float[np.ndarray, " time"]
    q: Rows
    qd: Rows
    tau: Rows
    q_des: Rows
    qd_des: Rows
    qdd_des: Rows
    tau_ff: Rows
    piece: Int[np.ndarray, " time"]
    model: Int[np.ndarray, " time"]
    labels: tuple[str, ...]
    scored: tuple[bool, ...]
    stats: LoopStats
    events: tuple[Event, ...]
    ended: Ending
    reason: str
    state: JointState

    @property
    def interrupted(self) -> bool:
        return self.ended == "interrupted"

    @property
    def error(self) -> Rows:
        """q_des − q in the reference motions [rad or m]."""
        return (self.q_des - self.q)[np.array(self.scored)[self.piece]]

    @property
    def tracking(self) -> Tracking:
        """Tracking error over all reference motions."""
        return Tracking.of(self.error)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The reference motions that were begun, in order."""
        step = 0.0
        if len(self.t) > 1:
            step = float(self.t[1] - self.t[0])
        segments = []
        for piece in np.unique(self.piece).tolist():
            if not self.scored[piece]:
                continue
            rows = self.piece == piece
            t = self.t[rows]
            segments.append(
                Segment(
                    label=self.labels[piece],
                    start=float(t[0]),
                    seconds=len(t) * step,
                    tracking=Tracking.of((self.q_des - self.q)[rows]),
                )
            )
        # The rest of a motion after a stall is a piece with a later number.
        return tuple(sorted(segments, key=lambda segment: segment.start))

    @property
    def first_model_seconds(self) -> float | None:
        """Time from the first period to the first swap [s]; None without a swap."""
        for event in self.events:
            if event.kind == "swap":
                return event.t - float(self.t[0])
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers of the run for JSON; refusals only as counts."""
        segments = [asdict(segment) for segment in self.segments]
        content = {
            "tracking": {**asdict(self.tracking), "segments": segments},
            "loop": self.stats.as_dict(),
            "first_model_seconds": self.first_model_seconds,
            "ended": self.ended,
            "reason": self.reason,
            "events": [event._asdict() for event in self.events if event.kind != "refusal"],
        }
        return finite(content)


def finite(value: Any) -> Any:
    """Return the value with None in place of non-finite numbers, which JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


class Log:
    """The rows and times of a run, in memory allocated before it begins.

    Attributes:
        rows: a row for each period, in the order of `row_layout`; written by the loop.
        ticks: number of periods in which the loop acted.
    """

    def __init__(self, dof: int, periods: int):
        """Allocate memory for at most the given number of periods."""
        self._layout = row_layout(dof)
        # `full` writes every page, so that the system provides the memory now, not in the loop.
        self.rows = np.full((periods, self._layout.width), np.nan)
        self._times = np.full((periods, len(PARTS)), 0.0)
        self._lateness = np.full(periods, 0.0)
        self._columns = {part: column for column, part in enumerate(PARTS)}
        self._mark = 0.0
        self.ticks = 0

    def mark(self) -> None:
        """Start measuring time."""
        self._mark = time.perf_counter()

    def spent(self, part: str) -> None:
        """Attribute the time since the last call, or the mark, to a part of the period."""
        now = time.perf_counter()
        self._times[self.ticks, self._columns[part]] += now - self._mark
        self._mark = now

    def acted(self, lateness: float) -> None:
        """Finish a period that began with the given delay [s]."""
        self._lateness[self.ticks] = lateness
        self.ticks += 1

    def with_state(self, k: int, state: JointState) -> Row:
        """Return a copy of the row of period k with another state."""
        row = self.rows[k].copy()
        row[self._layout.slices["q"]] = state.q
        row[self._layout.slices["qd"]] = state.qd
        return row

    def recent_error(self, k: int, periods: int) -> tuple[float, ...]:
        """Return the root mean square of q_des − q over the periods up to k, per joint."""
        columns = self._layout.unpack(self.rows[max(0, k + 1 - periods) : k + 1])
        return tuple(np.sqrt(np.mean((columns["q_des"] - columns["q"]) ** 2, axis=0)).tolist())

    def columns(self, periods: int) -> dict[str, Any]:
        """Return the arrays of a `LoopResult`."""
        columns: dict[str, Any] = self._layout.unpack(self.rows[:periods])
        columns["t"] = columns["t"][:, 0]
        columns["piece"] = columns.pop("trajectory")[:, 0].astype(int)
        columns["model"] = columns["model"][:, 0].astype(int)
        return columns

    def torque_max(self, periods: int) -> tuple[float, ...]:
        """Return the largest absolute torque of each joint."""
        tau = self._layout.unpack(self.rows[:periods])["tau"]
        return tuple(np.max(np.abs(tau), axis=0, initial=0.0).tolist())

    @property
    def lateness_us(self) -> Percentiles:
        return Percentiles.of(1e6 * self._lateness[: self.ticks])

    @property
    def parts_us(self) -> dict[str, Percentiles]:
        times = 1e6 * self._times[: self.ticks]
        return {part: Percentiles.of(times[:, column]) for part, column in self._columns.items()}
