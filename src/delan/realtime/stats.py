"""What a run of the loop was like: what the joints did, what was late, lost or refused, and how well they were led."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..joints import JointState
from .channels import Layout

Vector = Float[np.ndarray, " dof"]
Row = Float[np.ndarray, " columns"]
Rows = Float[np.ndarray, "time dof"]

PARTS = ("control", "feed_forward", "robot", "recorder", "learner", "gate", "progress", "onlooker")
"""What a period is spent on: the state, the torque and its guard; picking up and beginning τ_ff; the robot's step;
handing over to the recorder and to the learner; asking for new weights and judging them; the caller's own callback;
those who watch."""
Ending = Literal["finished", "interrupted", "stopped"]


class Spread(NamedTuple):
    """Median, 99 % quantile and maximum."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Spread":
        if len(values) == 0:
            return cls(0.0, 0.0, 0.0)
        p50, p99, largest = np.percentile(values, [50, 99, 100]).tolist()
        return cls(p50, p99, largest)


class Event(NamedTuple):
    """What happened at a time of the loop [s]: a `swap`, a `refusal`, a `restart`, or what the `learner` noticed."""

    t: float
    kind: str
    text: str


class Progress(NamedTuple):
    """How the run stands, for those who watch it.

    Attributes:
        t: of the loop [s]; seconds: that it will last in all.
        label: of the motion that is followed.
        error: root mean square of q_des − q over the last second, per joint [rad or m].
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
    """Mean square of q_des − q over the scored periods, per joint [rad² or m²], and its sum; NaN without any."""

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
    """A wanted motion as it was followed, from `start` on for so many `seconds`."""

    label: str
    start: float
    seconds: float
    tracking: Tracking


@dataclass(frozen=True, kw_only=True)
class LoopStats:
    """Counts and times of a run.

    Attributes:
        periods: control periods; missed: those among them that began too late to act in.
        late_feedforward: refreshes of τ_ff that were not there in time.
        lost_samples: rows that the learner never saw; restarts: how often it had to be started again.
        swaps: models taken into use; refused: models refused, by cause (`gate.CAUSES`).
        guard: periods in which the guard stepped in, by cause (`guard.CAUSES`).
        torque_max: the largest torque of each joint [N m or N].
        lateness_us: how late periods began [µs]; parts_us: how long each of `PARTS` took in a period [µs].
        unrecorded: rows that the recorder could not bring to the disk, and why.
    """

    periods: int
    missed: int
    late_feedforward: int
    lost_samples: int
    restarts: int
    swaps: int
    refused: Mapping[str, int]
    guard: Mapping[str, int]
    torque_max: tuple[float, ...]
    lateness_us: Spread
    parts_us: Mapping[str, Spread]
    unrecorded: int
    recording_problem: str | None

    def as_dict(self) -> dict[str, Any]:
        """As JSON can say it: `refused` as a number, its causes beside it."""
        spreads = {"lateness_us": self.lateness_us._asdict()}
        parts = {name: spread._asdict() for name, spread in self.parts_us.items()}
        refused = {"refused": sum(self.refused.values()), "refused_by_cause": dict(self.refused)}
        return {**asdict(self), **refused, **spreads, "parts_us": parts}


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopResult:
    """A run, row by row and in numbers.

    Attributes:
        t: start of each period [s]; q, qd: as measured then; tau: applied in it; tau_ff: the model's part of that.
        q_des, qd_des, qdd_des: wanted then.
        piece: which of the `labels` a row belongs to; scored: whether that is a wanted motion.
        model: how many models had been taken into use.
        events: swaps, refusals, and what the learner noticed.
        ended: `finished`, `interrupted` from outside, or `stopped` by the guard; `reason` says why.
        state: where the robot is now; give it as `start` of another run to go on from there.
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
        """q_des − q in the scored periods [rad or m]."""
        return (self.q_des - self.q)[np.array(self.scored)[self.piece]]

    @property
    def tracking(self) -> Tracking:
        """Over all wanted motions."""
        return Tracking.of(self.error)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Each wanted motion that was begun, in order."""
        found = []
        for piece in np.unique(self.piece).tolist():
            rows = self.piece == piece
            if self.scored[piece]:
                t, error = self.t[rows], (self.q_des - self.q)[rows]
                step = float(self.t[1] - self.t[0]) if len(self.t) > 1 else 0.0
                tracking = Tracking.of(error)
                found.append(
                    Segment(label=self.labels[piece], start=float(t[0]), seconds=len(t) * step, tracking=tracking)
                )
        return tuple(found)

    @property
    def first_model_seconds(self) -> float | None:
        """From the first period to the first model in use [s]; None if there was none."""
        times = [event.t for event in self.events if event.kind == "swap"]
        return times[0] - float(self.t[0]) if times else None

    def as_dict(self) -> dict[str, Any]:
        """The numbers of the run as JSON can say them; of the refusals the counts alone."""
        content = {
            "tracking": {**asdict(self.tracking), "segments": [asdict(segment) for segment in self.segments]},
            "loop": self.stats.as_dict(),
            "first_model_seconds": self.first_model_seconds,
            "ended": self.ended,
            "reason": self.reason,
            "events": [event._asdict() for event in self.events if event.kind != "refusal"],
        }
        return finite(content)


def finite(value: Any) -> Any:
    """The same with None in place of numbers that JSON does not know."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def row_layout(dof: int) -> Layout:
    """What the loop writes down in every period; a `Recorder` for it is made of the same layout."""
    joint = dict.fromkeys(("q", "qd", "tau", "q_des", "qd_des", "qdd_des", "tau_ff"), dof)
    return Layout.of(t=1, **joint, trajectory=1, model=1)


class Log:
    """What a run writes down as it goes; all memory is taken beforehand.

    Attributes:
        ticks: periods in which the loop acted.
    """

    def __init__(self, dof: int, most: int):
        """Room for so many periods."""
        self._layout = row_layout(dof)
        # Written over at once, so that the system gives the memory now and not in the loop.
        self._rows = np.full((most, self._layout.width), np.nan)
        self._times = np.full((most, len(PARTS)), 0.0)
        self._lateness = np.full(most, 0.0)
        self._place = {part: place for place, part in enumerate(PARTS)}
        self._mark = 0.0
        self.ticks = 0

    def mark(self) -> None:
        """From now on time counts."""
        self._mark = time.perf_counter()

    def spent(self, part: str) -> None:
        """The time since the last call, or since the mark, went into a part of the period."""
        now = time.perf_counter()
        self._times[self.ticks, self._place[part]] += now - self._mark
        self._mark = now

    def acted(self, lateness: float) -> None:
        """A period is done that began late by so much [s]."""
        self._lateness[self.ticks] = lateness
        self.ticks += 1

    def write(
        self,
        k: int,
        t: float,
        state: JointState,
        tau: Vector,
        target: Row,
        feed_forward: Vector,
        piece: Any,
        model: int,
    ) -> Float[np.ndarray, " row"]:
        """Period k; the target as a row (q, q̇, q̈). Gives the row of `row_layout`."""
        row = self._rows[k]
        np.concatenate([(t,), state.q, state.qd, tau, target, feed_forward, (piece, model)], out=row)
        return row

    def row(self, k: int) -> Float[np.ndarray, " row"]:
        """Period k as it was written."""
        return self._rows[k]

    def with_state(self, row: Row, state: JointState) -> Row:
        """A row that tells another state."""
        row = row.copy()
        row[self._layout.slices["q"]], row[self._layout.slices["qd"]] = state.q, state.qd
        return row

    def recent_error(self, k: int, periods: int) -> tuple[float, ...]:
        """Root mean square of q_des − q in the periods up to k, per joint."""
        columns = self._layout.unpack(self._rows[max(0, k + 1 - periods) : k + 1])
        return tuple(np.sqrt(np.mean((columns["q_des"] - columns["q"]) ** 2, axis=0)).tolist())

    def columns(self, periods: int) -> dict[str, Any]:
        """The arrays of a `LoopResult`."""
        found: dict[str, Any] = self._layout.unpack(self._rows[:periods])
        t, piece, model = (found.pop(name)[:, 0] for name in ("t", "trajectory", "model"))
        return {**found, "t": t, "piece": piece.astype(int), "model": model.astype(int)}

    def torque_max(self, periods: int) -> tuple[float, ...]:
        tau = self.columns(periods)["tau"]
        return tuple(np.max(np.abs(tau), axis=0, initial=0.0).tolist())

    @property
    def lateness_us(self) -> Spread:
        return Spread.of(1e6 * self._lateness[: self.ticks])

    @property
    def parts_us(self) -> dict[str, Spread]:
        return {part: Spread.of(1e6 * self._times[: self.ticks, place]) for part, place in self._place.items()}
