"""What a run of the loop was like: what the joints did, what was late, lost or refused, and how well they were led."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..joints import JointState

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
