"""Check of channels that carry too little information: dead, stuck, saturated or quantised."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ...joints import Joints, Recording
from ..segments import LogSegment
from . import cases
from .finding import Finding
from .motion import Column, Columns, Motion, row_steps, value_range

# A joint that moves less than this over the whole log [rad or m] stands still: brakes give as much.
STANDS_STILL = {"revolute": 5e-3, "continuous": 5e-3, "prismatic": 1e-3}
# Rows of equal values that make a channel stuck.
SHORTEST_STUCK = 10
# Rows of equal values at the channel's largest or smallest value that make it saturated, ...
SHORTEST_SATURATED = 4
# ... and the total of such rows in the log.
FEWEST_SATURATED = 8
# A quantised channel repeats values anyway: it is stuck if it repeats one this many times longer
# than 95 % of its plateaus.
PLATEAU_RATIO = 5.0
# The robot moves during a plateau if it does so at this share of its usual speed.
MOVES = 0.3
# Positions and velocities disagree if they differ by more than this share of the joint's range.
CONTRADICTION = 0.01
# A joint that stops within one row changes its velocity by more than this many times what 98 % of
# the rows do.
KINK = 4.0
# The round top of a quantised channel falls by 9 steps within its own width; a saturated channel
# falls by more than this.
FLANK = 20.0
# Values are quantised if their distances are multiples of a step to within this share of it.
ON_GRID = 0.1
# Quantisation is a warning if its error is this share of the standard deviation of the torque, the
# velocity, or the acceleration computed from the positions, ...
QUANTISATION_HARM = 0.1
# ... and a note from this share on.
QUANTISATION_SEEN = 0.02

DEVICES = {"tau": "drive", "qd": "velocity estimate", "q": "position sensor"}


def quantum(values: Column) -> float:
    """Return the step whose multiples separate the values of a channel, 0 if there is none."""
    levels = np.unique(values)
    steps = np.diff(levels)
    steps = steps[steps > 1e-9 * value_range(levels)]
    # Noise never repeats a value: a quantised channel has far fewer values than rows.
    if len(steps) == 0 or len(steps) > 0.9 * len(values):
        return 0.0
    smallest = float(steps.min())
    step = float(steps[steps < 1.5 * smallest].mean())
    near = np.sort(steps)[: max(1, len(steps) // 2)] / step
    on_grid = np.quantile(np.abs(near - np.round(near)), 0.95) < ON_GRID
    return step if on_grid else 0.0


def examine_levels(
    recording: Recording, columns: Columns, segments: tuple[LogSegment, ...]
) -> list[Finding]:
    """Report dead, stuck and saturated channels."""
    joints = recording.joints
    findings = []
    for joint in range(joints.dof):
        findings += _dead(columns, joints, joint)
    dead = {(finding.column, finding.joint) for finding in findings}
    pace = _pace(columns["q"], segments)
    for joint in range(joints.dof):
        if ("q", joint) in dead:
            continue
        for name in ("q", "qd", "tau"):
            if name in columns and (name, joint) not in dead:
                values = columns[name][:, joint]
                jumps = row_steps(values, segments)
                rates = np.diff(jumps) if name == "q" else jumps
                channel = _Channel(
                    name=name,
                    joint=joint,
                    t=recording.t,
                    values=values,
                    q=columns["q"][:, joint],
                    qd=columns["qd"][:, joint] if "qd" in columns else None,
                    pace=pace,
                    step=quantum(values),
                    jumps=jumps,
                    usual=float(np.quantile(np.abs(rates), 0.98)) if len(rates) else 0.0,
                )
                findings += _plateau_findings(channel, segments)
    return findings


def _dead(columns: Columns, joints: Joints, joint: int) -> list[Finding]:
    """Report a joint that stands still, or a velocity or torque that never changes."""
    ranges = np.ptp(columns["q"], axis=0)
    least = np.array([STANDS_STILL[kind] for kind in joints.kinds])
    still = bool(ranges[joint] < least[joint])
    findings = []
    if still:
        severity = "error" if (ranges < least).all() else "warning"
        measured = {"range": float(ranges[joint]), "unit": joints.units[joint].q}
        findings.append(Finding(cases.STANDS_STILL, severity, joint, "q", measured))
    for name in ("qd", "tau"):
        if name not in columns or (name == "qd" and still):
            continue
        values = columns[name][:, joint]
        if value_range(values) == 0.0:
            measured = {"value": float(values[0])}
            findings.append(Finding(cases.CONSTANT, "error", joint, name, measured))
    return findings


def _pace(q: Float[np.ndarray, "time dof"], segments: tuple[LogSegment, ...]) -> Column:
    """Return the speed of the whole robot in each row, in units of its usual speed."""
    pace = np.abs(row_steps(q / np.maximum(np.ptp(q, axis=0), 1e-300), segments)).sum(axis=1)
    usual = float(np.sqrt(np.mean(pace**2)))
    return pace / usual if usual > 0 else pace


@dataclass(frozen=True, eq=False, kw_only=True)
class _Channel:
    """One column of one joint, and the motion that may contradict it.

    Attributes:
        pace: speed of the whole robot, in units of its usual speed.
        step: quantisation step of the values.
        jumps: difference of each row from the row before, 0 in the first row of a segment.
        usual: 98 % quantile of the change of the channel's rate from row to row.
    """

    name: str
    joint: int
    t: Column
    values: Column
    q: Column
    qd: Column | None
    pace: Column
    step: float
    jumps: Column
    usual: float

    def contradicted(self, start: int, end: int) -> bool:
        """Whether the rest of the log shows that the channel changed in rows [start, end)."""
        if self.name == "tau":
            return bool(np.mean(self.pace[start + 1 : end]) > MOVES)
        leaving = self.jumps[end] if end < len(self.values) else 0.0
        if max(abs(self.jumps[start]), abs(leaving)) > KINK * self.usual + 2 * self.step:
            return True
        if self.qd is None:
            return False
        moved = self.q[start + 1 : end] - self.q[start]
        integrated = np.cumsum(np.diff(self.t[start:end]) * self.qd[start + 1 : end])
        resolution = 2 * self.step if self.name == "q" else 0.0
        tolerance = CONTRADICTION * value_range(self.q) + resolution
        return bool(np.abs(moved - integrated).max(initial=0.0) > tolerance)

    def flanks(self, start: int, end: int) -> float:
        """Return how far the channel falls within a plateau's length on either side."""
        before = max(0, 2 * start - end)
        after = min(len(self.values) - 1, 2 * end - start - 1)
        return float(np.abs(self.values[[before, after]] - self.values[start]).max())


def _plateau_findings(channel: _Channel, segments: tuple[LogSegment, ...]) -> list[Finding]:
    """Report plateaus that the motion contradicts: saturated at the limits, elsewhere stuck."""
    values = channel.values
    starts, lengths = _plateaus(values, segments)
    if not len(starts):
        return []
    usual = PLATEAU_RATIO * float(np.quantile(lengths, 0.95))
    long = lengths >= np.where(lengths >= SHORTEST_STUCK, usual, SHORTEST_SATURATED)
    limits = (values.min(), values.max())
    stuck = []
    saturated = []
    for start, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True):
        at_limit = values[start] in limits
        plateau = (start, start + length)
        if not (at_limit or length >= SHORTEST_STUCK) or not channel.contradicted(*plateau):
            continue
        if not at_limit:
            stuck.append(plateau)
        elif channel.flanks(*plateau) > FLANK * channel.step:
            saturated.append(plateau)
    # A channel that reaches its limit only once, and stays there, is stuck.
    if len(saturated) == 1 and saturated[0][1] - saturated[0][0] >= SHORTEST_STUCK:
        stuck = sorted(stuck + saturated)
        saturated = []
    findings = []
    if sum(end - start for start, end in saturated) >= FEWEST_SATURATED:
        measured = _plateau_measures(values, saturated) | {"device": DEVICES[channel.name]}
        rows = tuple(saturated)
        findings.append(
            Finding(cases.SATURATED, "warning", channel.joint, channel.name, measured, rows=rows)
        )
    if stuck:
        measured = _plateau_measures(values, stuck)
        rows = tuple(stuck)
        findings.append(
            Finding(cases.STUCK, "error", channel.joint, channel.name, measured, rows=rows)
        )
    return findings


def _plateaus(values: Column, segments: tuple[LogSegment, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first rows and lengths of all spans of equal values."""
    new = np.ones(len(values), dtype=bool)
    new[1:] = np.diff(values) != 0
    inside = np.zeros(len(values) + 1, dtype=bool)
    for segment in segments:
        new[segment.start] = True
        inside[segment.rows] = True
    edges = np.flatnonzero(np.append(new | ~inside[:-1], True))
    starts = edges[:-1]
    lengths = np.diff(edges)
    return starts[inside[starts]], lengths[inside[starts]]


def _plateau_measures(values: Column, plateaus: list[tuple[int, int]]) -> dict[str, Any]:
    levels = {float(values[start]) for start, _ in plateaus}
    return {
        "value": float(values[plateaus[0][0]]),
        "limits": tuple(sorted(levels)),
        "places": len(plateaus),
        "count": sum(end - start for start, end in plateaus),
    }


def examine_quantisation(columns: Columns, motion: Motion, joints: Joints) -> list[Finding]:
    """Report quantisation that is coarse compared with the variation of a channel."""
    findings = []
    for name in ("q", "qd", "tau"):
        if name not in columns:
            continue
        for joint in range(joints.dof):
            values = columns[name][:, joint]
            step = quantum(values)
            if step == 0.0 or value_range(values) == 0.0:
                continue
            if name == "q":
                error = _acceleration_error(step, motion, joint)
            else:
                error = step / np.sqrt(12) / float(values.std())
            if error > QUANTISATION_SEEN:
                severity = "warning" if error > QUANTISATION_HARM else "note"
                measured = {
                    "step": step,
                    "unit": getattr(joints.units[joint], name),
                    "levels": value_range(values) / step,
                    "error": float(error),
                }
                findings.append(Finding(cases.COARSE[name], severity, joint, name, measured))
    return findings


def _acceleration_error(step: float, motion: Motion, joint: int) -> float:
    """Return the error of the filtered acceleration, in its standard deviations.

    Rounding is noise of variance step²/12, spread evenly up to half the rate at which steps are
    crossed, of which the filter passes its band. A second derivative weights each frequency f by
    (2π f)², whose mean over the band is (2π cutoff)² / √5.
    """
    speed = float(motion.velocity[:, joint].std())
    size = float(motion.acceleration[:, joint].std())
    crossings = min(1 / motion.period, speed / step) if speed > 0 else 0.0
    band = min(1.0, 2 * motion.cutoff / crossings) if crossings > 0 else 1.0
    noise = step / np.sqrt(12) * np.sqrt(band) * (2 * np.pi * motion.cutoff) ** 2 / np.sqrt(5)
    return noise / size if size > 0 else 0.0
