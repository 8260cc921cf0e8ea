"""Check of the time stamps: gaps, jitter, repeated times, clock resets and mixed rates."""

from dataclasses import dataclass

import numpy as np

from ...joints import Recording
from ..segments import LogSegment, TimeFaults, longest_bridged, spans
from . import cases
from .finding import Finding

# Standard deviation of the steps, in usual steps, from which jitter is reported.
JITTER_SEEN = 0.02
# Differences over a step that is wrong by a tenth are wrong by a tenth: a warning.
JITTER_HARM = 0.1
# A second difference takes three rows.
FEWEST_ROWS = 3
UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}


@dataclass(frozen=True, eq=False)
class Timing:
    """Findings about the time stamps, and what the other checks need to know about them.

    Attributes:
        segments: rows without a break in time.
        scale: time units per second.
    """

    findings: tuple[Finding, ...]
    segments: tuple[LogSegment, ...]
    scale: float


def examine_time(recording: Recording) -> Timing:
    """Check the time stamps, trajectory by trajectory."""
    faults = TimeFaults(recording.t, recording.trajectory)
    step = faults.step / faults.scale
    findings = _order(recording, faults)
    if faults.gap.any():
        findings.append(_gaps(recording, faults))
    if faults.mixed.any():
        findings.append(_mixed_rates(faults))
    elif faults.jitter > JITTER_SEEN:
        severity = "warning" if faults.jitter > JITTER_HARM else "note"
        measured = {"jitter": faults.jitter, "step": step}
        findings.append(Finding(cases.JITTER, severity, None, "t", measured))
    if faults.scale != 1.0:
        measured = {
            "step": faults.step,
            "unit": UNITS[faults.scale],
            "scale": faults.scale,
            "inverse": 1 / faults.scale,
        }
        findings.append(Finding(cases.TIME_UNIT, "error", None, "t", measured))
    findings += _labels(recording, faults)
    return Timing(tuple(findings), faults.segments, faults.scale)


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
            measured: dict[str, float] = {"count": int(np.count_nonzero(mask))}
            if case is cases.CLOCK_RESET:
                measured["before"] = float(recording.t[row - 1])
                measured["after"] = float(recording.t[row])
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
        "count": int(np.count_nonzero(faults.mixed)),
        "total": len(faults.t),
    }
    case = cases.MIXED_RATES if len(rates) > 1 else cases.MIXED_STEPS
    return Finding(case, "error", None, "t", measured, rows=spans(faults.mixed))


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
