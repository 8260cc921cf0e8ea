"""One sampling rate for a recording whose trajectories were sampled at different rates."""

import itertools

import numpy as np
import scipy
from jaxtyping import Float

from ..joints import Recording
from .filters import FEWEST, smoothed
from .segments import LogSegment, TimeFaults, fresh_rows, unbroken_segments

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
