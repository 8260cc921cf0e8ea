"""Preparation: samples with velocities and accelerations from a raw recording.

Trajectories that were sampled at different rates get one rate before (`at_one_rate`).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from ..errors import DataError, SettingsError
from ..joints import Dataset, Preparation, Recording
from . import filters
from .filters import FEWEST, derivatives, smoothed
from .segments import (
    LogSegment,
    TimeFaults,
    fresh_rows,
    require_sound,
    spans,
    time_breaks,
    unbroken_segments,
    usual_step,
)

# A robot rests while no joint moves by more than this share of its range in this time [s].
REST_SECONDS = 0.5
REST_RANGE = 0.002

# Part of a rest that stays with the motions beside it [s]: friction is most informative where
# motion begins.
REST_MARGIN = 0.1

# A trajectory is low-passed before its rate is divided by more than this: what lies above half the
# new rate would come back as slower motion.
DECIMATED = 1.5
# Cut-off of that filter, as a share of the new rate. It is twice the highest cut-off that a
# preparation uses, which therefore notices nothing of it.
DECIMATION_CUTOFF = 0.4
# A cubic needs this many rows; fewer are joined by straight lines.
FEWEST_FOR_CUBIC = 4
# Share of a step by which rounding may shorten a segment.
ROUNDING = 1e-6

# The bandwidth of the torques that every model is scored at [Hz], where the log has it.
BANDWIDTH = 10.0

# Periods of the cut-off at both ends of a motion where the filter extrapolates.
EDGE = 1.0


@dataclass(frozen=True)
class PreparationSettings:
    """Settings of the preparation.

    Attributes:
        cutoff: cut-off of a zero-phase low-pass over q, q̇ and τ [Hz]. None filters nothing and
            differentiates what was not logged, which suits clean signals only: noise in q grows
            with 1/dt².
        delay: lag of the torques behind the positions [s], which is removed.
        every: keep one row in `every` as a sample; None keeps ten per period of the cut-off, or
            all rows without a cut-off.
        smooth: False skips the filter alone, for windows that average the noise themselves.
        bandwidth: cut-off of the torques alone [Hz], where it differs from that of the motion.
    """

    cutoff: float | None = None
    delay: float = 0.0
    every: int | None = None
    smooth: bool = True
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        frequencies = {"cut-off": self.cutoff, "bandwidth": self.bandwidth}
        lowest = filters.LOWEST_CUTOFF
        largest = filters.LARGEST_CUTOFF
        for name, value in frequencies.items():
            if value is not None and not lowest <= value <= largest:
                raise SettingsError(
                    f"the {name} must be positive and finite in Hz, got {value}; expected "
                    f"{lowest:g} to {largest:g}"
                )
        if not np.isfinite(self.delay):
            raise SettingsError(f"the delay must be a finite number of seconds, got {self.delay}")
        if self.every is not None and self.every < 1:
            raise SettingsError(f"every must be a whole number of at least 1, got {self.every}")

    @property
    def unfiltered(self) -> "PreparationSettings":
        """The same cuts and delay with every row and without the filter, as windows need them."""
        return replace(self, smooth=False, every=1)

    def scored(self, rate: float) -> "PreparationSettings":
        """How motion sampled at a rate [Hz] is prepared to score a model on it.

        The torques keep the same bandwidth whatever filter the model was trained with, because
        errors at different bandwidths cannot be compared: a narrow filter hides them.
        """
        if self.cutoff is None:
            return self
        bandwidth = scoring_bandwidth(rate)
        return replace(self, cutoff=min(self.cutoff, bandwidth), bandwidth=bandwidth)


def scoring_bandwidth(rate: float) -> float:
    """Return the bandwidth of the torques that models are scored at, for a sampling rate [Hz]."""
    return min(BANDWIDTH, filters.HIGHEST_CUTOFF * rate)


def prepare(recording: Recording, settings: PreparationSettings | None = None) -> Dataset:
    """Return samples with q̇ and q̈, cut into trajectories at gaps in time and at rests.

    Trajectories of different rates are resampled to the rate of most rows. A logged q̇ is used as
    it is; a logged q̈ only if nothing is filtered. The dataset's `preparation` says what was done.
    """
    settings = settings or PreparationSettings()
    recording = at_one_rate(require_sound(recording))
    if settings.delay:
        recording = _without_delay(recording, settings.delay)
    segments = tuple(unbroken_segments(recording, bridge=settings.cutoff is not None))
    if settings.cutoff is None:
        return _as_logged(recording, settings, segments)
    return _filtered(recording, settings, segments)


def _filtered(
    recording: Recording, settings: PreparationSettings, segments: tuple[LogSegment, ...]
) -> Dataset:
    """Return the segments on even time steps, filtered, with their rests marked and cut at them."""
    assert settings.cutoff is not None
    motions = []
    used = 0
    for segment in segments:
        motion = _filtered_segment(recording, segment, settings)
        if motion is not None:
            motions.append(motion)
            used += len(segment)
    if not motions:
        problem = (
            "has no segment without gaps that is long enough for a cut-off of "
            f"{settings.cutoff:g} Hz; record longer"
        )
        raise DataError(recording.source, problem)
    columns = {}
    for name in motions[0]:
        columns[name] = np.concatenate([motion[name] for motion in motions])
    moving = columns["moving"]
    counted = columns["counted"]
    every = settings.every or stride(recording, settings.cutoff)
    strided = counted & (np.arange(len(counted)) % every == 0)
    if not strided.any():
        problem = "holds no motion: the robot rests all the time; record it moving"
        raise DataError(recording.source, problem)
    columns["trajectory"], pauses = _cut_at_rests(columns["trajectory"], columns["t"], moving)
    dropped = {
        "too short": sum(map(len, segments)) - used,
        "repeated": len(columns["repeated"]),
        "resting": np.count_nonzero(~moving),
        "at the ends": np.count_nonzero(moving & ~counted),
        "between samples": np.count_nonzero(counted & ~strided),
    }
    cuts = {"gaps": _gaps(recording, segments), "pauses": pauses}
    done = Preparation(
        cutoff=(settings.cutoff,) * recording.joints.dof if settings.smooth else None,
        delay=settings.delay,
        velocity=_origin(recording.qd),
        acceleration="differentiated",
        rows=len(recording.t),
        samples=int(np.count_nonzero(strided)),
        dropped=_nonzero(dropped),
        cuts=_nonzero(cuts),
        excerpt=recording.excerpt,
    )
    return _dataset(recording, columns, strided, done)


def _as_logged(
    recording: Recording, settings: PreparationSettings, segments: tuple[LogSegment, ...]
) -> Dataset:
    """Return every row as it is, with what was not logged differentiated inside each segment."""
    qd = recording.qd
    qdd = recording.qdd
    trajectory = recording.trajectory
    gaps = 0
    if qd is None or qdd is None:
        qd, differentiated = _differentiated(recording, segments)
        if qdd is None:
            qdd = differentiated
        gaps = _gaps(recording, segments)
    if gaps:
        trajectory = np.repeat(np.arange(len(segments)), list(map(len, segments)))
    every = settings.every or 1
    counted = None if every == 1 else np.arange(len(qd)) % every == 0
    done = Preparation(
        delay=settings.delay,
        velocity=_origin(recording.qd),
        acceleration=_origin(recording.qdd),
        rows=len(qd),
        samples=-(-len(qd) // every),
        cuts=_nonzero({"gaps": gaps}),
        excerpt=recording.excerpt,
    )
    columns = {**recording.columns, "qd": qd, "qdd": qdd, "trajectory": trajectory}
    return replace(_dataset(recording, columns, counted, done), truth=recording.truth)


def _dataset(
    recording: Recording,
    columns: Mapping[str, np.ndarray],
    counted: Bool[np.ndarray, " time"] | None,
    done: Preparation,
) -> Dataset:
    return Dataset(
        t=columns["t"],
        q=columns["q"],
        qd=columns["qd"],
        qdd=columns["qdd"],
        tau=columns["tau"],
        trajectory=columns["trajectory"],
        counted=counted,
        joints=recording.joints,
        source=recording.source,
        preparation=done,
    )


def _differentiated(
    recording: Recording, segments: tuple[LogSegment, ...]
) -> tuple[Float[np.ndarray, "time dof"], Float[np.ndarray, "time dof"]]:
    """Return q̇, as logged if it was, and its derivative."""
    qd = np.empty_like(recording.q)
    qdd = np.empty_like(recording.q)
    for segment in segments:
        if len(segment) < 3:
            label = recording.trajectory[segment.start]
            problem = (
                f"trajectory {label} has fewer than 3 samples without a gap, too few to "
                "differentiate; log qd and qdd or drop it"
            )
            raise DataError(recording.source, problem, row=segment.start)
        part = recording.rows(segment.rows)
        qd[segment.rows], qdd[segment.rows] = derivatives(part.t, part.q, part.qd)
    return qd, qdd


def _origin(logged: np.ndarray | None) -> Literal["logged", "differentiated"]:
    return "differentiated" if logged is None else "logged"


def _nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    return {reason: int(count) for reason, count in counts.items() if count}


def _gaps(recording: Recording, segments: tuple[LogSegment, ...]) -> int:
    """Return the number of cuts inside trajectories."""
    return len(segments) - len(np.unique(recording.trajectory))


def _without_delay(recording: Recording, delay: float) -> Recording:
    """Shift the torques back by their delay; beyond the end the last one is repeated."""
    tau = np.empty_like(recording.tau)
    for label in np.unique(recording.trajectory):
        rows = recording.trajectory == label
        t = recording.t[rows]
        tau[rows] = _interpolated(t + delay, t, recording.tau[rows])
    return replace(recording, tau=tau)


def _interpolated(new: np.ndarray, t: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return columns at other times, by linear interpolation."""
    return np.stack([np.interp(new, t, column) for column in values.T], axis=1)


def stride(recording: Recording, cutoff: float) -> int:
    """Return how many rows apart samples may be to represent signals below the cut-off [Hz]."""
    return filters.stride(usual_step(recording.t), cutoff)


def _filtered_segment(
    recording: Recording, segment: LogSegment, settings: PreparationSettings
) -> dict[str, np.ndarray] | None:
    """Resample a segment evenly and filter it; None if it is too short for the filter.

    Besides the columns of a dataset the result has `moving`, the rows outside rests, and
    `repeated`, the numbers of the logged rows that repeat the row before.
    """
    cutoff = settings.cutoff
    assert cutoff is not None
    if len(segment) < FEWEST:
        return None
    step = segment.step
    rate = 1 / step
    if cutoff >= 0.5 * rate:
        problem = (
            f"is sampled at {rate:.4g} Hz; a cut-off of {cutoff:g} Hz needs more than "
            f"{2 * cutoff:g} Hz: lower the cut-off"
        )
        raise DataError(recording.source, problem, row=segment.start)
    t = recording.t[segment.rows]
    logged = {"q": recording.q[segment.rows], "tau": recording.tau[segment.rows]}
    if recording.qd is not None:
        logged["qd"] = recording.qd[segment.rows]
    fresh = fresh_rows(np.concatenate(list(logged.values()), axis=1))
    new = t[0] + step * np.arange(round((t[-1] - t[0]) / step) + 1)
    if len(new) < FEWEST:
        return None
    even = {}
    for name, values in logged.items():
        even[name] = _interpolated(new, t[fresh], values[fresh])
    moving = ~_resting(even["q"], np.ptp(recording.q, axis=0), step)
    if settings.smooth:
        for name, values in even.items():
            kept = cutoff
            if name == "tau" and settings.bandwidth is not None:
                kept = settings.bandwidth
            even[name] = smoothed(values, rate, kept)
    even["qd"], even["qdd"] = derivatives(new, even["q"], even.get("qd"))
    edge = min(round(EDGE * rate / cutoff), len(new) // 4)
    counted = moving.copy()
    counted[:edge] = False
    counted[len(new) - edge :] = False
    return {
        **even,
        "t": new,
        "trajectory": np.full(len(new), recording.trajectory[segment.start]),
        "moving": moving,
        "counted": counted,
        "repeated": np.flatnonzero(~fresh),
    }


def _resting(
    q: Float[np.ndarray, "time dof"], reach: Float[np.ndarray, " dof"], step: float
) -> Bool[np.ndarray, " time"]:
    """Return the rows where no joint moves, except for margins beside motion."""
    window = max(3, round(REST_SECONDS / step))
    highest = scipy.ndimage.maximum_filter1d(q, window, axis=0)
    lowest = scipy.ndimage.minimum_filter1d(q, window, axis=0)
    still = (highest - lowest <= REST_RANGE * reach).all(axis=1).astype(np.uint8)
    # The window sees motion half its length away, which shortens a rest by that at both ends.
    grow = max(0, window // 2 - round(REST_MARGIN / step))
    return scipy.ndimage.maximum_filter1d(still, 2 * grow + 1).astype(bool)


def _cut_at_rests(
    label: Int[np.ndarray, " time"],
    t: Float[np.ndarray, " time"],
    moving: Bool[np.ndarray, " time"],
) -> tuple[Int[np.ndarray, " time"], int]:
    """Return labels that also change after each rest, and the number of rests inside a trajectory.

    The rows of a rest belong to the motion before it.
    """
    begins = time_breaks(t)
    begins[1:] |= np.diff(label) != 0
    begins[0] = False
    pauses = []
    for first, end in spans(~moving):
        if first > 0 and end < len(t) and not begins[first : end + 1].any():
            pauses.append(end)
    if not pauses and len(np.unique(label)) == np.count_nonzero(begins) + 1:
        return label, 0
    begins[pauses] = True
    return np.cumsum(begins), len(pauses)


def at_one_rate(recording: Recording) -> Recording:
    """Return a recording whose trajectories all have the sampling rate of most rows.

    Trajectories that have this rate stay as they are, and a recording of one rate is returned
    itself. Every column of the others is interpolated inside segments without gaps.
    """
    faults = TimeFaults(recording.t, recording.trajectory)
    if not faults.other_rate.any():
        return recording
    parts: dict[str, list[np.ndarray]] = {}
    for start, end in itertools.pairwise(faults.bounds.tolist()):
        part = recording.rows(slice(start, end))
        columns = part.columns
        if faults.other_rate[start]:
            columns = _resampled(part, faults.common_step)
        for name, values in columns.items():
            parts.setdefault(name, []).append(values)
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    return recording.with_columns(joined)


def _resampled(part: Recording, step: float) -> dict[str, np.ndarray]:
    """Return the columns of one trajectory with another step [s], segment by segment."""
    names = [name for name in part.columns if name not in ("t", "trajectory")]
    times = []
    tables = []
    for segment in unbroken_segments(part, bridge=True):
        rows = part.rows(segment.rows)
        table = np.concatenate([rows.columns[name] for name in names], axis=1)
        new_times, new_table = _resampled_segment(rows.t, table, segment, step)
        times.append(new_times)
        tables.append(new_table)
    t = np.concatenate(times)
    columns: dict[str, np.ndarray] = {"t": t}
    blocks = np.split(np.concatenate(tables), len(names), axis=1)
    columns.update(zip(names, blocks, strict=True))
    columns["trajectory"] = np.full(len(t), part.trajectory[0])
    return columns


def _resampled_segment(
    t: Float[np.ndarray, " time"],
    table: Float[np.ndarray, "time columns"],
    segment: LogSegment,
    step: float,
) -> tuple[Float[np.ndarray, " new"], Float[np.ndarray, "new columns"]]:
    """Return times with another step [s], and the columns at these times.

    The rows are first laid on even steps of their own rate by straight lines, as a preparation
    does with every log; a cubic through uneven steps could overshoot.
    """
    new = t[0] + step * np.arange(_steps_in(t, step) + 1)
    even = t[0] + segment.step * np.arange(_steps_in(t, segment.step) + 1)
    fresh = fresh_rows(table)
    values = np.stack([np.interp(even, t[fresh], column[fresh]) for column in table.T], axis=1)
    if step > DECIMATED * segment.step and len(even) >= FEWEST:
        values = smoothed(values, 1 / segment.step, DECIMATION_CUTOFF / step)
    if len(even) < FEWEST_FOR_CUBIC:
        return new, np.stack([np.interp(new, even, column) for column in values.T], axis=1)
    spline = scipy.interpolate.CubicSpline(even, values)
    return new, spline(np.minimum(new, even[-1]))


def _steps_in(t: Float[np.ndarray, " time"], step: float) -> int:
    """Return the number of whole steps in a segment."""
    return int((t[-1] - t[0]) / step + ROUNDING)
