"""Check of time stamps and single values: gaps, jitter, clock resets, non-finite values, spikes."""

import numpy as np
from jaxtyping import Bool

from ...joints import Recording
from ..segments import SHORTEST_STEP, LogSegment, TimeFaults, longest_bridged, spans
from . import cases
from .checked_log import (
    CheckedLog,
    Column,
    Columns,
    measured_columns,
    relative_positions,
    row_steps,
)
from .coverage import quantum
from .finding import Finding

Mask = Bool[np.ndarray, " time"]

# Standard deviation of the steps, in usual steps, from which jitter is reported.
JITTER_SEEN = 0.02
# Differences over a step that is wrong by a tenth are wrong by a tenth: a warning.
JITTER_HARM = 0.1
# A second difference takes three rows.
FEWEST_ROWS = 3
TIME_UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}

# No robot reaches this value in any unit: loggers use such fill values for missing numbers.
FILL_VALUE = 1e12
# A full turn [rad, deg], and how it is written.
TURNS = {2 * np.pi: "2π", 360.0: "360"}
# A wrapped step differs from a turn by the motion in that step, at most this share of the turn.
TURN_TOLERANCE = 0.06
# A jump is a wrap only if it is this many times larger than 95 % of the channel's steps.
WRAP_STANDS_OUT = 6.0

# A spike is at most this many rows wide; a longer deviation is not an isolated accident.
WIDEST_SPIKE = 3
# A spike exceeds the prediction of its neighbours by this many times the upper quartile of the
# errors nearby. For Gaussian noise that quartile is 1.15 standard deviations, and 10 times that
# does not occur by chance.
SPIKE_OVER_NOISE = 10.0
# A spike exceeds this share of the channel's range; smaller ones do no harm.
SPIKE_OVER_RANGE = 0.05
# A spike exceeds this many steps of a quantised channel.
SPIKE_OVER_STEPS = 4.0
# A spike exceeds the change in the rows beside it by this factor: the tip of a sharp turn does not.
SPIKE_OVER_SLOPE = 3.0
# More spikes than this share of the rows are noise of the channel.
SPIKE_SHARE = 0.01
# Spikes with less than this share of the channel's variance hardly change a fit. Those of positions
# always do, because positions are differentiated.
SPIKE_ENERGY = 1e-3
# Rows on either side from which the usual error nearby is estimated.
NEIGHBOURS = 30

# A row is in motion if the robot moves faster there than this share of its usual speed.
SLOW_MOTION = 0.1


def examine_time(recording: Recording, faults: TimeFaults) -> list[Finding]:
    """Report faults of the time stamps and of the trajectories' labels."""
    findings = _order(recording, faults)
    if faults.gap.any():
        findings.append(_gaps(recording, faults))
    if faults.other_rate.any():
        findings.append(_mixed_rates(faults))
    if faults.mixed.any():
        measured = {"count": int(np.count_nonzero(faults.mixed)), "total": len(faults.t)}
        rows = spans(faults.mixed)
        findings.append(Finding(cases.MIXED_STEPS, "error", None, "t", measured, rows=rows))
    elif faults.jitter > JITTER_SEEN:
        severity = "warning" if faults.jitter > JITTER_HARM else "note"
        measured = {"jitter": faults.jitter, "step": faults.step / faults.scale}
        findings.append(Finding(cases.JITTER, severity, None, "t", measured))
    if faults.scale != 1.0:
        measured = {
            "step": faults.step,
            "unit": TIME_UNITS[faults.scale],
            "scale": faults.scale,
            "inverse": 1 / faults.scale,
        }
        findings.append(Finding(cases.TIME_UNIT, "error", None, "t", measured))
    if faults.usual_steps and min(step for _, step in faults.usual_steps) < SHORTEST_STEP:
        measured = {"step": min(step for _, step in faults.usual_steps)}
        findings.append(Finding(cases.TOO_FAST, "error", None, "t", measured))
    return findings + _labels(recording, faults)


def _order(recording: Recording, faults: TimeFaults) -> list[Finding]:
    """Report times that are missing, decrease or repeat."""
    findings = []
    for case, mask in (
        (cases.NO_TIME, faults.missing),
        (cases.CLOCK_RESET, faults.backward),
        (cases.SAME_TIME, faults.repeated),
    ):
        if mask.any():
            row = int(np.argmax(mask))
            measured = {
                "count": int(np.count_nonzero(mask)),
                "before": float(recording.t[max(row - 1, 0)]),
                "after": float(recording.t[row]),
            }
            findings.append(Finding(case, "error", None, "t", measured, rows=spans(mask)))
    return findings


def _gaps(recording: Recording, faults: TimeFaults) -> Finding:
    rows = np.flatnonzero(faults.gap)
    lengths = recording.t[rows] - recording.t[rows - 1]
    step = faults.step / faults.scale
    measured = {
        "count": len(rows),
        "lost": int(np.sum(np.maximum(np.round(lengths / faults.step) - 1, 1))),
        "longest": float((lengths / faults.scale).max()),
        "step": step,
        "bridged": 1e3 * longest_bridged(step),
    }
    case = cases.GAP if recording.qdd is None else cases.GAP_WITH_ACCELERATIONS
    largest = int(rows[np.argmax(lengths)])
    return Finding(case, "warning", None, "t", measured, rows=spans(faults.gap), row=largest)


def _mixed_rates(faults: TimeFaults) -> Finding:
    # Rounded, so that the rates of trajectories with jitter count as one.
    rates = {float(f"{faults.scale / step:.3g}") for _, step in faults.usual_steps}
    measured = {
        "slowest": min(rates),
        "fastest": max(rates),
        "usual": faults.scale / faults.common_step,
        "count": int(np.count_nonzero(faults.other_rate)),
        "total": len(faults.t),
    }
    return Finding(cases.MIXED_RATES, "note", None, "t", measured, rows=spans(faults.other_rate))


def _labels(recording: Recording, faults: TimeFaults) -> list[Finding]:
    """Report interleaved trajectories, and trajectories too short to differentiate."""
    findings = []
    labels = recording.trajectory
    starts = faults.bounds[:-1]
    begun_again = np.ones(len(starts), dtype=bool)
    begun_again[np.unique(labels[starts], return_index=True)[1]] = False
    if begun_again.any():
        row = int(starts[np.argmax(begun_again)])
        findings.append(interleaved(int(labels[row]), row, faults.end(row)))
    short = np.diff(faults.bounds) < FEWEST_ROWS
    if short.any():
        row = int(starts[np.argmax(short)])
        count = int(np.count_nonzero(short))
        measured = {"count": count, "total": len(short), "fewest": FEWEST_ROWS}
        # Nothing has to be differentiated if velocities and accelerations are logged.
        complete = recording.qd is not None and recording.qdd is not None
        severity = "note" if complete else "error"
        rows = ((row, faults.end(row)),)
        findings.append(Finding(cases.SHORT, severity, None, "trajectory", measured, rows=rows))
    return findings


def interleaved(label: int, row: int, end: int) -> Finding:
    """Return the finding for rows [row, end) of a trajectory that lie behind another trajectory."""
    return Finding(
        cases.INTERLEAVED,
        "error",
        column="trajectory",
        rows=((row, end),),
        row=row,
        trajectory=label,
    )


def repair(recording: Recording, segments: tuple[LogSegment, ...]) -> tuple[list[Finding], Columns]:
    """Return findings about single values, and the columns without these faults.

    Missing values are interpolated, angles unwrapped, and spikes replaced by predictions.
    """
    findings: list[Finding] = []
    columns: Columns = {}
    for name, logged in measured_columns(recording).items():
        columns[name] = logged.copy()
        for joint in range(recording.joints.dof):
            channel = (joint, name)
            values = columns[name][:, joint]
            missing = _fill(values)
            if missing.any():
                findings.append(_non_finite(channel, logged[:, joint], missing))
            if missing.all():
                continue
            if name == "q" and recording.joints.turning[joint]:
                jumps, turn = _unwrap(values, segments)
                if jumps.any():
                    measured = {"turn": turn, "count": int(np.count_nonzero(jumps))}
                    row = int(np.argmax(jumps))
                    findings.append(
                        Finding(
                            cases.WRAPPED, "error", *channel, measured, rows=spans(jumps), row=row
                        )
                    )
            spikes, predicted = _spikes(values, segments, missing)
            if spikes.any():
                error = np.where(spikes, np.abs(values - predicted), 0.0)
                findings.append(_outliers(channel, logged[:, joint], spikes, error))
                values[spikes] = predicted[spikes]
    return findings, columns


def _fill(values: Column) -> Mask:
    """Interpolate missing values in place (with zeros if all are), and return their rows."""
    missing = ~(np.abs(values) < FILL_VALUE)
    rows = np.arange(len(values))
    if missing.all():
        values[:] = 0.0
    else:
        values[missing] = np.interp(rows[missing], rows[~missing], values[~missing])
    return missing


def _non_finite(channel: tuple[int, str], logged: Column, missing: Mask) -> Finding:
    row = int(np.argmax(missing))
    measured = {
        "count": int(np.count_nonzero(missing)),
        "total": len(missing),
        "value": float(logged[row]),
    }
    case = cases.ALL_NON_FINITE if missing.all() else cases.NON_FINITE
    return Finding(case, "error", *channel, measured, rows=spans(missing), row=row)


def _unwrap(q: Column, segments: tuple[LogSegment, ...]) -> tuple[Mask, str]:
    """Remove jumps of whole turns in place; return their rows, and how a turn is written."""
    steps = row_steps(q, segments)
    usual = np.quantile(np.abs(steps), 0.95)
    for turn, name in TURNS.items():
        jumps = np.abs(np.abs(steps) - turn) < TURN_TOLERANCE * turn
        if jumps.any() and turn > WRAP_STANDS_OUT * usual:
            turns = np.where(jumps, np.sign(steps), 0.0)
            middle = float(np.median(q))
            for segment in segments:
                angle = q[segment.rows] - turn * np.cumsum(turns[segment.rows])
                # Every segment is moved by whole turns to where most of the log lies.
                whole_turns = np.round((np.mean(angle) - middle) / turn)
                q[segment.rows] = angle - turn * whole_turns
            return jumps, name
    return np.zeros(len(q), dtype=bool), ""


def _outliers(channel: tuple[int, str], logged: Column, spikes: Mask, error: Column) -> Finding:
    row = int(np.argmax(error))
    limit = SPIKE_ENERGY * len(logged) * np.var(logged[np.isfinite(logged)])
    harmless = channel[1] != "q" and np.sum(error**2) < limit
    severity = "note" if harmless else "warning"
    rows = spans(spikes)
    measured = {"count": len(rows), "size": float(error[row])}
    return Finding(cases.OUTLIER, severity, *channel, measured, rows=rows, row=row)


def _spikes(values: Column, segments: tuple[LogSegment, ...], missing: Mask) -> tuple[Mask, Column]:
    """Return the rows of isolated spikes, and a prediction for them from two rows on either side.

    A cubic follows smooth motion sampled 20 times a period to 0.2 %, so that a turning point is not
    a spike. A step is not one either, because the rows before and after it disagree.
    """
    spikes = np.zeros(len(values), dtype=bool)
    predicted = values.copy()
    low, high = np.quantile(values, [0.005, 0.995])
    if low == high:
        return spikes, predicted
    least = max(SPIKE_OVER_RANGE * float(high - low), SPIKE_OVER_STEPS * quantum(values))
    for segment in segments:
        x = values[segment.rows]
        change = np.abs(np.diff(x))
        for width in range(1, WIDEST_SPIKE + 1):
            if len(x) < width + 5:
                break
            error, prediction = _prediction_error(x, width)
            size = np.abs(error).min(axis=0)
            apart = np.abs(x[width + 2 : len(x) - 1] - x[1 : len(x) - width - 2])
            slope = np.maximum(change[: len(size)], change[width + 2 :])
            candidates = (size > least) & (apart < size / 2) & (size > SPIKE_OVER_SLOPE * slope)
            for start in np.flatnonzero(candidates).tolist():
                first = segment.start + start + 2
                rows = slice(first, first + width)
                if spikes[rows].any() or missing[rows].any():
                    continue
                if size[start] > _usual_error(error, start, width):
                    spikes[rows] = True
                    predicted[rows] = prediction[:, start]
    if np.count_nonzero(spikes) > max(WIDEST_SPIKE, SPIKE_SHARE * len(values)):
        spikes[:] = False
    return spikes, predicted


def _prediction_error(x: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return errors and predictions of `width` rows by the cubic through two rows on either side.

    Column i is about the rows from i + 2 on.
    """
    nodes = np.array([-2.0, -1.0, width, width + 1.0])
    count = len(x) - width - 3
    offsets = (0, 1, width + 2, width + 3)
    outside = np.stack([x[offset : offset + count] for offset in offsets])
    places = np.arange(width, dtype=float)
    weights = np.empty((width, len(nodes)))
    for column, node in enumerate(nodes):
        others = nodes[nodes != node][:, None]
        weights[:, column] = np.prod((places - others) / (node - others), axis=0)
    prediction = weights @ outside
    inside = np.stack([x[2 + place : 2 + place + count] for place in range(width)])
    return inside - prediction, prediction


def _usual_error(error: np.ndarray, start: int, width: int) -> float:
    """Return what the error of a spike must exceed: several times the errors around it."""
    reach = width + 2
    first = max(0, start - NEIGHBOURS)
    size = np.abs(error[:, first : start + NEIGHBOURS]).max(axis=0)
    before = size[: max(0, start - reach) - first]
    after = size[start + reach + 1 - first :]
    near = np.concatenate([before, after])
    if not len(near):
        return np.inf
    return SPIKE_OVER_NOISE * _upper_quartile(near)


def _upper_quartile(values: np.ndarray) -> float:
    """Return `np.quantile(values, 0.75)` to the last bit.

    For a few dozen numbers np.quantile takes twenty times as long.
    """
    place = 0.75 * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    share = place - low
    ordered = np.partition(values, (low, high))
    below = float(ordered[low])
    above = float(ordered[high])
    # numpy interpolates from the nearer side.
    if share >= 0.5:
        return above - (above - below) * (1 - share)
    return below + (above - below) * share


def examine_repeats(log: CheckedLog) -> list[Finding]:
    """Report rows that repeat all values of the row before while the robot moves.

    A robot at rest repeats values for long; a logger faster than its sensor repeats a few rows.
    """
    count = len(log.t)
    same = np.zeros(count, dtype=bool)
    same[1:] = True
    for name in ("q", "qd", "tau"):
        if name in log.columns:
            table = log.columns[name]
            same[1:] &= (table[1:] == table[:-1]).all(axis=1)
    q = relative_positions(log.columns["q"])
    pace = np.zeros(count)
    for segment in log.segments:
        if len(segment) > 4:
            inside = q[segment.rows]
            middle = slice(segment.start + 2, segment.end - 2)
            pace[middle] = np.abs(inside[4:] - inside[:-4]).sum(axis=1)
    if not (same.any() and (pace > 0).any()):
        return []
    moving = pace > SLOW_MOTION * np.median(pace[pace > 0])
    rows = same & moving
    if not rows.any():
        return []
    repeated = int(np.count_nonzero(rows))
    measured = {"count": repeated, "share": repeated / int(np.count_nonzero(moving))}
    case = cases.REPEATED_ROWS
    if "qdd" in log.columns:
        case = cases.REPEATED_ROWS_WITH_ACCELERATIONS
    return [Finding(case, "warning", measured=measured, rows=spans(rows))]
