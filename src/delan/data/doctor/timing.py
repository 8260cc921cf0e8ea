"""What the time stamps tell: gaps, jitter, repeats, clocks that were set back, and rates that change."""

from dataclasses import dataclass

import numpy as np

from ...joints import Recording
from ..stretches import Stretch, TimeFaults, bridged, spans
from .finding import Finding, Kind, plural

JITTER_SEEN, JITTER_HARM = 0.02, 0.1
"""Standard deviation of the steps, in usual steps: told of, and warned of. Differences over a step that is wrong by a
tenth are wrong by a tenth."""
FEWEST_ROWS = 3
"""A second difference takes three rows."""

PARTS = "save the parts as files of their own, or number them in a column `trajectory`; or sort the rows by time"


@dataclass(frozen=True, eq=False)
class Timing:
    """What was found, the stretches to work on, and by how much time is to be divided to be in seconds."""

    findings: tuple[Finding, ...]
    stretches: tuple[Stretch, ...]
    scale: float


def examine_time(recording: Recording) -> Timing:
    """Judge the time stamps, trajectory by trajectory."""
    faults = TimeFaults(recording.t, recording.trajectory)
    found = [*_order(recording, faults), *_gaps(recording, faults), *_rates(recording, faults), *_jitter(faults)]
    if faults.scale != 1.0:
        found.append(_unit(faults.step, faults.scale))
    return Timing((*found, *_labels(recording, faults)), faults.stretches, faults.scale)


def _order(recording: Recording, faults: TimeFaults) -> list[Finding]:
    """Times that are missing, run backward or repeat."""
    t, found = recording.t, []

    def tell(kind: Kind, rows: np.ndarray, text: str, remedy: str) -> None:
        if rows.any():
            label = int(recording.trajectory[np.argmax(rows)])
            place = spans(rows)
            found.append(
                Finding(kind=kind, severity="error", column="t", trajectory=label, rows=place, text=text, remedy=remedy)
            )

    lost, back, again = (np.count_nonzero(rows) for rows in (faults.lost, faults.back, faults.again))
    tell("non_finite", faults.lost, f"{plural(lost, 'row')} without a time", "drop these rows")
    row = int(np.argmax(faults.back))
    text = f"time runs backward {plural(back, 'time')}, first from {t[row - 1]:.6g} to {t[row]:.6g}"
    tell("clock_reset", faults.back, text, PARTS)
    text = f"{plural(again, 'row')} with the time of the row before"
    tell("duplicate", faults.again, text, "drop the repeats, or log a finer time")
    return found


def _gaps(recording: Recording, faults: TimeFaults) -> list[Finding]:
    rows = np.flatnonzero(faults.gap)
    if not len(rows):
        return []
    lengths = recording.t[rows] - recording.t[rows - 1]
    lost = int(np.sum(np.maximum(np.round(lengths / faults.step) - 1, 1)))
    step, seconds = faults.step / faults.scale, lengths / faults.scale
    longest = 1e3 * bridged(step)
    does = (
        f"bridges gaps of up to {longest:.3g} ms and cuts the motion at longer ones"
        if recording.qdd is None
        else "takes the logged accelerations and differentiates nothing across a gap"
    )
    largest = f"the largest is {seconds.max():.4g} s before row {rows[np.argmax(lengths)]}"
    return [
        Finding(
            kind="gap",
            severity="warning",
            column="t",
            trajectory=int(recording.trajectory[rows[0]]),
            rows=spans(faults.gap),
            text=f"{plural(len(rows), 'gap')}, about {plural(lost, 'sample')} lost; {largest}, "
            f"the usual step {step:.4g} s",
            remedy=f"nothing by hand: `delan fit` {does}; next time, give the logger a buffer, so that no sample "
            "is lost",
        )
    ]


def _rates(recording: Recording, faults: TimeFaults) -> list[Finding]:
    if not faults.mixed.any():
        return []
    rates = sorted({float(f"{faults.scale / step:.3g}") for _, step in faults.usual})
    told = f"trajectories at {rates[0]:g} to {rates[-1]:g} Hz" if len(rates) > 1 else "steps of other lengths inside"
    return [
        Finding(
            kind="mixed_rates",
            severity="error",
            column="t",
            trajectory=int(recording.trajectory[np.argmax(faults.mixed)]),
            rows=spans(faults.mixed),
            text=f"mixed sampling rates: {told}; {np.count_nonzero(faults.mixed)} of {len(faults.t)} rows differ",
            remedy="cut the log by rate, or resample it to one",
        )
    ]


def _jitter(faults: TimeFaults) -> list[Finding]:
    if faults.wobble <= JITTER_SEEN or faults.mixed.any():
        return []
    return [
        Finding(
            kind="jitter",
            severity="warning" if faults.wobble > JITTER_HARM else "note",
            column="t",
            text=f"steps scatter by {faults.wobble:.0%} of the usual {faults.step / faults.scale:.4g} s",
            remedy="stamp samples where they are taken; if the robot samples evenly, replace t by even steps",
        )
    ]


def _unit(step: float, scale: float) -> Finding:
    unit = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}[scale]
    return Finding(
        kind="units",
        severity="error",
        column="t",
        text=f"the usual step is {step:.4g}: time looks like {unit}, not seconds",
        remedy=f"divide t by {scale:g} (--time-scale {1 / scale:g})",
    )


def _labels(recording: Recording, faults: TimeFaults) -> list[Finding]:
    """Trajectories in pieces, and trajectories too short to differentiate."""
    found = []
    labels, starts = recording.trajectory, faults.bounds[:-1]
    again = np.ones(len(starts), dtype=bool)
    again[np.unique(labels[starts], return_index=True)[1]] = False
    if again.any():
        row = int(starts[np.argmax(again)])
        found.append(begun_again(int(labels[row]), row, faults.end(row)))
    short = np.diff(faults.bounds) < FEWEST_ROWS
    if short.any():
        row = int(starts[np.argmax(short)])
        complete = recording.qd is not None and recording.qdd is not None
        found.append(
            Finding(
                kind="short",
                severity="note" if complete else "error",
                column="trajectory",
                trajectory=int(labels[row]),
                rows=((row, faults.end(row)),),
                text=f"{np.count_nonzero(short)} of {len(short)} trajectories have fewer than {FEWEST_ROWS} rows",
                remedy="nothing, if qd and qdd are measured; else record longer motions",
            )
        )
    return found


def begun_again(label: int, row: int, end: int) -> Finding:
    """A trajectory some rows of which stand behind another."""
    return Finding(
        kind="interleaved",
        severity="error",
        column="trajectory",
        trajectory=label,
        rows=((row, end),),
        text=f"trajectory {label} begins again at row {row} after another",
        remedy="keep the rows of a trajectory together, or give the parts labels of their own",
    )
