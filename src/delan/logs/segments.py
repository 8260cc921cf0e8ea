"""Segments of a log: the one rule for a break in time, and recordings that a fit cannot use."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from ..errors import DataError
from ..joints import Recording

# The rule for a break in time: a step of more than this many usual steps has lost a sample. One
# lost sample makes 2, while jitter rarely makes 1.75.
GAP = 1.75

# On a log with jitter, a gap must also exceed the usual step by this many standard deviations of
# the steps, or its longest steps would count as lost samples.
GAP_SPREADS = 8.0

# A changed rate is not a gap: a step belongs to another rate if it differs from the usual one by
# more than this share in either direction, ...
ODD_STEP = 0.5

# ... and a trajectory has two rates, not single bad steps, if more than this share of its steps do.
MIXED_SHARE = 0.1

# The check of a log looks for slightly smaller deviations, so that it reports everything that a fit
# refuses, whatever is rounded in between.
SUSPECT_STEP = 0.9 * ODD_STEP

# A trajectory has another rate if its usual step differs from that of most rows by more than this
# share; it is then resampled.
OTHER_RATE = 0.1

# No robot is logged at less than 2 Hz [s]: longer steps are in ms, µs or ns.
SLOWEST_STEP = 0.5

# Nor at more than 1 MHz [s]: shorter steps are in hours, in days, or damage.
SHORTEST_STEP = 1e-6

# Sizes that a measured value may have, whatever its unit. Squares and products of larger numbers
# are not finite, and those of smaller ones vanish, so that nothing can be computed from them.
LARGEST_VALUE = 1e15
SMALLEST_VALUE = 1e-30

# Gaps up to this time [s], or this many steps if that is longer, are interpolated linearly where a
# low-pass follows: below its cut-off they carry no information of their own.
BRIDGED = 0.02
BRIDGED_STEPS = 5
# Share of the motion that the integrated velocities must explain before their scale is compared:
# below it the ratio is dominated by noise.
FOLLOWS = 0.9
# Ratio of the motion to the integrated velocities that no calibration error explains.
RATIO_HARM = 3.0


@dataclass(frozen=True)
class LogSegment:
    """Rows [start, end) of one trajectory without a break in time, and their usual step [s]."""

    start: int
    end: int
    step: float

    @property
    def rows(self) -> slice:
        return slice(self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start


class _Steps(NamedTuple):
    """The usual step forward in time, and how others differ from it.

    Attributes:
        usual: median of the steps forward, 0 if there are none.
        forward: number of steps forward.
        even: number of those near the usual step.
        jitter: standard deviation of these, in usual steps.
    """

    usual: float
    forward: int
    even: int
    jitter: float

    @property
    def longest(self) -> float:
        """The longest step without a lost sample."""
        return self.usual * max(GAP, 1 + GAP_SPREADS * self.jitter)


def _steps(t: Real[np.ndarray, " time"]) -> _Steps:
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.diff(t)
        forward = steps[np.isfinite(steps) & (steps > 0)]
        if not len(forward):
            return _Steps(0.0, 0, 0, 0.0)
        usual = float(np.median(forward))
        even = forward[np.abs(forward - usual) <= SUSPECT_STEP * usual]
        jitter = float(np.std(even) / usual) if len(even) > 1 else 0.0
    return _Steps(usual, len(forward), len(even), jitter)


def usual_step(t: Real[np.ndarray, " time"]) -> float:
    """Return the median of the steps forward in time, 0 if there are none."""
    return _steps(t).usual


def time_breaks(t: Float[np.ndarray, " time"]) -> Bool[np.ndarray, " time"]:
    """Return the mask of rows before which time does not continue; the first row is one of them.

    This is the rule of `TimeFaults`, for rows whose trajectories may continue each other.
    """
    steps = np.diff(t)
    return np.concatenate([[True], (steps <= 0) | (steps > _steps(t).longest)])


def common_step(steps: Sequence[float], rows: Sequence[int]) -> float:
    """Return the step of most rows, given the step of each trajectory and its number of rows.

    Steps that differ by less than `OTHER_RATE` count as one. Of two rates with equally many rows,
    the faster one is returned; 0 if there are no steps.
    """
    if not len(steps):
        return 0.0
    order = np.argsort(steps)
    ordered = np.asarray(steps, dtype=float)[order]
    before = np.concatenate([[0], np.cumsum(np.asarray(rows)[order])])
    firsts = np.searchsorted(ordered, (1 - OTHER_RATE) * ordered, side="left")
    ends = np.searchsorted(ordered, (1 + OTHER_RATE) * ordered, side="right")
    near = before[ends] - before[firsts]
    best = int(np.argmax(near))
    # The middle row of those near the best step, because jitter makes all steps slightly different.
    middle = (before[ends[best]] + before[firsts[best]]) / 2
    return float(ordered[np.searchsorted(before, middle, side="right") - 1])


def longest_bridged(step: float) -> float:
    """Return the longest gap [s] that a preparation interpolates; it cuts at longer ones."""
    return max(BRIDGED, BRIDGED_STEPS * step)


def trajectory_bounds(trajectory: Int[np.ndarray, " time"]) -> list[int]:
    """Return the rows at which trajectories begin, and the number of rows."""
    return [0, *(np.flatnonzero(np.diff(trajectory)) + 1).tolist(), len(trajectory)]


def spans(rows: Bool[np.ndarray, " time"]) -> tuple[tuple[int, int], ...]:
    """Return the ranges [first, end) in which a mask is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rows, [False]]))).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def cut_out(
    segments: tuple[LogSegment, ...], rows: Bool[np.ndarray, " time"]
) -> tuple[LogSegment, ...]:
    """Return the parts of the segments outside the given rows."""
    remaining = []
    for segment in segments:
        for first, end in spans(~rows[segment.rows]):
            part = LogSegment(segment.start + first, segment.start + end, segment.step)
            remaining.append(part)
    return tuple(remaining)


class TimeFaults:
    """Rows at which time is faulty, and the segments between them.

    Attributes:
        missing: rows without a finite time.
        backward, repeated, gap: rows whose time is before, equal to or too long after that of the
            row before.
        mixed: rows whose step is of another rate than most steps of their trajectory.
        other_rate: rows of trajectories that have another rate than most rows of the log.
        bounds: rows at which trajectories begin, and the number of rows.
        usual_steps: first row and usual step of each trajectory.
        common_step: usual step of most rows.
        segments: rows between breaks in time.
    """

    def __init__(self, t: Float[np.ndarray, " time"], trajectory: Int[np.ndarray, " time"]):
        self.t = t
        self.missing = ~np.isfinite(t)
        self.backward = np.zeros(len(t), dtype=bool)
        self.repeated = np.zeros(len(t), dtype=bool)
        self.gap = np.zeros(len(t), dtype=bool)
        self.mixed = np.zeros(len(t), dtype=bool)
        self.other_rate = np.zeros(len(t), dtype=bool)
        self.bounds = np.array(trajectory_bounds(trajectory))
        self.usual_steps: list[tuple[int, float]] = []
        # Standard deviation of a trajectory's steps in usual steps, and their number.
        self._jitters: list[tuple[float, int]] = []
        segments: list[LogSegment] = []
        for start, end in itertools.pairwise(self.bounds.tolist()):
            segments += self._examine(start, end)
        self.segments = tuple(segments)
        lengths = [self.end(start) - start for start, _ in self.usual_steps]
        self.common_step = common_step([step for _, step in self.usual_steps], lengths)
        for start, step in self.usual_steps:
            if abs(step - self.common_step) > OTHER_RATE * self.common_step:
                self.other_rate[start : self.end(start)] = True

    def end(self, start: int) -> int:
        """Return the end of the trajectory of a row."""
        return int(self.bounds[np.searchsorted(self.bounds, start, side="right")])

    @property
    def step(self) -> float:
        """Median of the trajectories' usual steps, in the unit of the log."""
        if not self.usual_steps:
            return 0.0
        return float(np.median([step for _, step in self.usual_steps]))

    @property
    def scale(self) -> float:
        """Time units per second, 1, 10³, 10⁶ or 10⁹, derived from the usual step."""
        ratio = self.step / SLOWEST_STEP
        if ratio < 1:
            return 1.0
        return float(10.0 ** (3 * min(3, 1 + np.floor(np.log10(ratio) / 3))))

    @property
    def jitter(self) -> float:
        """Standard deviation of the steps, in usual steps."""
        total = sum(count for _, count in self._jitters)
        if not total:
            return 0.0
        return float(np.sqrt(sum(jitter**2 * count for jitter, count in self._jitters) / total))

    def _examine(self, start: int, end: int) -> list[LogSegment]:
        """Mark the faults of one trajectory and return its segments."""
        t = self.t[start:end]
        # A row without a time is missing; the steps to and from it are neither gaps nor resets.
        steps = np.diff(np.where(np.isfinite(t), t, np.nan))
        known = _steps(t)
        usual = known.usual
        jitter = known.jitter
        rest = slice(start + 1, end)
        self.backward[rest] = steps < 0
        self.repeated[rest] = steps == 0
        if known.forward - known.even > MIXED_SHARE * known.forward:
            self.mixed[rest] = np.abs(steps - usual) > SUSPECT_STEP * usual
            jitter = 0.0
        else:
            self.gap[rest] = steps > known.longest
            # A repeated time stamp makes the next step long without a lost sample.
            self.gap[start + 2 : end] &= ~self.repeated[start + 1 : end - 1]
        if known.forward:
            self.usual_steps.append((start, usual))
            self._jitters.append((jitter, known.even))
        broken = ~np.isfinite(t)
        broken[1:] |= ~(steps > 0) | self.gap[rest]
        cuts = [start, *(start + np.flatnonzero(broken)).tolist(), end]
        segments = []
        for first, last in itertools.pairwise(cuts):
            if last > first and np.isfinite(self.t[first]):
                segments.append(LogSegment(first, last, usual))
        return segments


def unbroken_segments(recording: Recording, *, bridge: bool) -> Iterator[LogSegment]:
    """Yield rows of one trajectory without gaps; `bridge` joins segments across short gaps."""
    last: LogSegment | None = None
    for segment in TimeFaults(recording.t, recording.trajectory).segments:
        if last is not None and bridge:
            same = recording.trajectory[last.start] == recording.trajectory[segment.start]
            gap = recording.t[segment.start] - recording.t[last.end - 1]
            if same and gap <= longest_bridged(segment.step):
                last = LogSegment(last.start, segment.end, last.step)
                continue
        if last is not None:
            yield last
        last = segment
    if last is not None:
        yield last


def fresh_rows(table: Float[np.ndarray, "time columns"]) -> Bool[np.ndarray, " time"]:
    """Return the mask of rows that differ from the row before, and of the first and last row.

    Rows that repeat the one before are stale readings, which interpolation replaces.
    """
    fresh = np.concatenate([[True], (table[1:] != table[:-1]).any(axis=1)])
    fresh[-1] = True
    return fresh


def measurable(recording: Recording) -> Recording:
    """Return the recording with infinity for values that are too large to have been measured.

    Those that are too small for it become zero. Nothing else changes.
    """
    columns = {}
    for name, values in recording.columns.items():
        columns[name] = values
        size = np.abs(values)
        large = (size > LARGEST_VALUE) & np.isfinite(values)
        small = (size < SMALLEST_VALUE) & (size > 0)
        if name != "trajectory" and (large.any() or small.any()):
            columns[name] = np.where(
                small, 0.0, np.where(large, np.copysign(np.inf, values), values)
            )
    return recording.with_columns(columns)


def require_sound(recording: Recording) -> Recording:
    """Refuse non-finite values, time that does not increase, mixed rates inside a trajectory and
    wrong velocity units.

    Returns the recording itself. Trajectories may have different rates: they are resampled.
    """
    _require_finite(recording)
    _require_whole_trajectories(recording)
    _require_steady_time(recording)
    _require_matching_velocity(recording)
    return recording


def _require_finite(recording: Recording) -> None:
    for name, values in recording.columns.items():
        finite = np.abs(values) <= LARGEST_VALUE  # false for NaN
        if finite.all():
            continue
        row, *joint = np.argwhere(~finite)[0].tolist()
        column = "".join([name, *map(str, joint)])
        value = values[(row, *joint)]
        problem = f"expected a finite number, got {value}; fix the value or remove the row"
        if np.isfinite(value):
            problem = f"{value:g} is no measured value in any unit; fix it or remove the row"
        raise DataError(recording.source, problem, column=column, row=row)


def _require_whole_trajectories(recording: Recording) -> None:
    seen = set()
    for row in trajectory_bounds(recording.trajectory)[:-1]:
        label = int(recording.trajectory[row])
        if label in seen:
            problem = (
                f"trajectory {label} continues after another one; "
                "keep the rows of each trajectory together"
            )
            raise DataError(recording.source, problem, column="trajectory", row=row)
        seen.add(label)


def _require_steady_time(recording: Recording) -> None:
    """Refuse time that does not increase, and trajectories with steps of several rates."""
    t = recording.t
    for start, end in itertools.pairwise(trajectory_bounds(recording.trajectory)):
        steps = np.diff(t[start:end])
        if len(steps) == 0:
            continue
        stuck = start + 1 + np.flatnonzero(steps <= 0)
        if len(stuck):
            row = int(stuck[0])
            verb = "repeats" if t[row] == t[row - 1] else "runs backward"
            problem = (
                f"time {verb}: {t[row]} s after {t[row - 1]} s; "
                "sort the rows, drop repeated ones, or give each trajectory its own label"
            )
            raise DataError(recording.source, problem, column="t", row=row)
        step = float(np.median(steps))
        if step < SHORTEST_STEP:
            problem = (
                f"the usual step is {step:.6g} s, and no robot is logged that fast; "
                "give --time-scale, the seconds in one unit of the log's time"
            )
            raise DataError(recording.source, problem, column="t", row=start)
        odd = np.flatnonzero(np.abs(steps - step) > ODD_STEP * step)
        if len(odd) > MIXED_SHARE * len(steps):
            problem = (
                f"mixed sampling rates: {len(odd)} of {len(steps)} steps differ from the usual "
                f"{step:.6g} s by more than {ODD_STEP:.0%}, here {steps[odd[0]]:.6g} s; "
                "split the log by rate or resample it"
            )
            raise DataError(recording.source, problem, column="t", row=int(start + odd[0] + 1))


def _require_matching_velocity(recording: Recording) -> None:
    """Refuse velocities whose integral is far from the motion: wrong time or angle units."""
    if recording.qd is None:
        return
    bounds = trajectory_bounds(recording.trajectory)
    for joint in range(recording.joints.dof):
        positions = []
        integrals = []
        for start, end in itertools.pairwise(bounds):
            q = recording.q[start:end, joint]
            qd = recording.qd[start:end, joint]
            increments = np.diff(recording.t[start:end]) * (qd[1:] + qd[:-1]) / 2
            integral = np.concatenate([[0.0], np.cumsum(increments)])
            positions.append(q - q.mean())
            integrals.append(integral - integral.mean())
        q = np.concatenate(positions)
        path = np.concatenate(integrals)
        if not (q.any() and path.any()):
            continue
        with np.errstate(all="ignore"):  # values too large to square give no ratio to judge
            slope = float(q @ path / (path @ path))
            explained = float((q @ path) ** 2 / ((q @ q) * (path @ path)))
        if explained > FOLLOWS and not 1 / RATIO_HARM < slope < RATIO_HARM:
            problem = (
                f"the joint moves {slope:.3g} times as far as qd{joint} integrated over t; "
                "check the units (s, rad, rad/s)"
            )
            raise DataError(recording.source, problem, column=f"q{joint}")
