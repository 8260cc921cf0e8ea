"""Channels that tell too little: dead, stuck, cut off at a limit, or in coarse steps."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...joints import Joints, Recording
from ..stretches import Stretch
from .finding import Finding, plural, spread

Column = Float[np.ndarray, " time"]
Columns = dict[str, Float[np.ndarray, "time dof"]]

STANDS_STILL = {"revolute": 5e-3, "continuous": 5e-3, "prismatic": 1e-3}
"""A joint that moves less than this over the whole log [rad or m] does not move: brakes give so much."""
SHORTEST_STUCK, SHORTEST_CUT = 10, 4
"""Rows of one value that make a channel stuck, or cut off at its largest or smallest value."""
RUNS_LONGER = 5.0
"""A channel in steps repeats values anyway; stuck is what repeats so many times longer than 95 % of its runs."""
MOVES = 0.3
"""The robot moves through a run if it does so at this share of its usual speed or faster."""
CONTRADICTION = 0.01
"""A position contradicts a velocity if they disagree by more than this share of the joint's range."""
KINK = 4.0
"""A joint that halts in one row does what its largest usual second differences, times this, cannot."""
FLANK = 20.0
"""The round top of a channel in steps falls by 9 steps within its own width; a cut-off one by more than this."""
FEWEST_CUT = 8
"""Rows at the limit, over the whole log, that make a channel saturated."""
ON_GRID = 0.1
"""Values are steps if the distances between them are whole multiples to this share of a step."""


def quantum(values: Column) -> float:
    """The step in whose multiples a channel's values differ, 0 if there is none."""
    levels = np.unique(values)
    steps = np.diff(levels)
    steps = steps[steps > 1e-9 * spread(levels)]
    # Noise hits no value twice: a channel in steps has far fewer values than rows.
    if len(steps) == 0 or len(steps) > 0.9 * len(values):
        return 0.0
    smallest = float(steps.min())
    step = float(steps[steps < 1.5 * smallest].mean())
    near = np.sort(steps)[: max(1, len(steps) // 2)] / step
    return step if np.quantile(np.abs(near - np.round(near)), 0.95) < ON_GRID else 0.0


def examine_levels(recording: Recording, columns: Columns, stretches: tuple[Stretch, ...]) -> list[Finding]:
    """Dead, stuck and saturated channels."""
    joints = recording.joints
    dead = [finding for joint in range(joints.dof) for finding in _dead(columns, joints, joint)]
    silent = {(finding.column, finding.joint) for finding in dead}
    found = list(dead)
    pace = _pace(columns["q"], stretches)
    for joint in (joint for joint in range(joints.dof) if ("q", joint) not in silent):
        q = columns["q"][:, joint]
        qd = columns["qd"][:, joint] if "qd" in columns else None
        for name in ("q", "qd", "tau"):
            if name in columns and (name, joint) not in silent:
                values = columns[name][:, joint]
                jumps = steps_of(values, stretches)
                rates = np.diff(jumps) if name == "q" else jumps
                usual = float(np.quantile(np.abs(rates), 0.98)) if len(rates) else 0.0
                channel = _Channel(name, recording.t, values, q, qd, pace, quantum(values), jumps, usual)
                found += _held(recording, channel, joint, stretches)
    return found


def steps_of(values: Float[np.ndarray, "time *columns"], stretches: tuple[Stretch, ...]) -> np.ndarray:
    """What each row differs from the row before, 0 at the first row of a stretch."""
    steps = np.zeros_like(values)
    for piece in stretches:
        steps[piece.start + 1 : piece.end] = np.diff(values[piece.rows], axis=0)
    return steps


def _dead(columns: Columns, joints: Joints, joint: int) -> list[Finding]:
    """A joint that stands still, a torque that never changes, a velocity of zero while the joint moves."""
    ranges = np.ptp(columns["q"], axis=0)
    least = np.array([STANDS_STILL[kind] for kind in joints.kinds])
    still = bool(ranges[joint] < least[joint])
    found = []
    if still:
        nobody = bool((ranges < least).all())
        unit = "m" if joints.kinds[joint] == "prismatic" else "rad"
        found.append(
            Finding(
                kind="dead",
                severity="error" if nobody else "warning",
                joint=joint,
                column="q",
                text=f"the joint does not move: {ranges[joint]:.2g} {unit} over the whole log",
                remedy="record motions of this joint, or leave it out (--joints) and treat it as locked",
            )
        )
    for name in ("qd", "tau"):
        if name in columns and spread(columns[name][:, joint]) == 0.0 and not (name == "qd" and still):
            value = columns[name][0, joint]
            found.append(
                Finding(
                    kind="dead",
                    severity="error",
                    joint=joint,
                    column=name,
                    text=f"is {value:g} in every row" + ("" if still else " while the joint moves"),
                    remedy="check the column and its cable; leave the column or the joint out",
                )
            )
    return found


def _pace(q: Float[np.ndarray, "time dof"], stretches: tuple[Stretch, ...]) -> Column:
    """How fast the whole robot moves in each row, in units of its usual speed."""
    pace = np.abs(steps_of(q / np.maximum(np.ptp(q, axis=0), 1e-300), stretches)).sum(axis=1)
    usual = float(np.sqrt(np.mean(pace**2)))
    return pace / usual if usual > 0 else pace


@dataclass(frozen=True, eq=False)
class _Channel:
    """One column of one joint, and the motion that may contradict it.

    Attributes:
        step: in which the values differ; pace: of the whole robot, in units of its usual speed.
        jumps: from the row before to each row, 0 at the first row of a stretch; usual: nearly the largest of what
            the channel's rate changes from row to row.
    """

    name: str
    t: Column
    values: Column
    q: Column
    qd: Column | None
    pace: Column
    step: float
    jumps: Column
    usual: float

    def contradicted(self, start: int, end: int) -> bool:
        """Whether the rest of the log says that the channel did change in rows [start, end)."""
        if self.name == "tau":
            return bool(np.mean(self.pace[start + 1 : end]) > MOVES)
        leave = self.jumps[end] if end < len(self.values) else 0.0
        if max(abs(self.jumps[start]), abs(leave)) > KINK * self.usual + 2 * self.step:
            return True
        if self.qd is None:
            return False
        moved = self.q[start + 1 : end] - self.q[start]
        led = np.cumsum(np.diff(self.t[start:end]) * self.qd[start + 1 : end])
        coarse = 2 * self.step if self.name == "q" else 0.0
        return bool(np.abs(moved - led).max(initial=0.0) > CONTRADICTION * spread(self.q) + coarse)

    def flanks(self, start: int, end: int) -> float:
        """How far the channel falls away within a run's own length on either side."""
        before, after = max(0, 2 * start - end), min(len(self.values) - 1, 2 * end - start - 1)
        return float(np.abs(self.values[[before, after]] - self.values[start]).max())


def _held(recording: Recording, channel: _Channel, joint: int, stretches: tuple[Stretch, ...]) -> list[Finding]:
    """Runs of one value that the motion contradicts: at the channel's limits it is saturated, elsewhere stuck."""
    values, name = channel.values, channel.name
    starts, lengths = _runs(values, stretches)
    if not len(starts):
        return []
    usual = RUNS_LONGER * float(np.quantile(lengths, 0.95))
    long = lengths >= np.where(lengths >= SHORTEST_STUCK, usual, SHORTEST_CUT)
    at_limit = np.isin(values[starts], [values.min(), values.max()])
    stuck, cut = [], []
    for start, length, limit in zip(
        starts[long].tolist(), lengths[long].tolist(), at_limit[long].tolist(), strict=True
    ):
        run = (start, start + length)
        if not (limit or length >= SHORTEST_STUCK) or not channel.contradicted(*run):
            continue
        if not limit:
            stuck.append(run)
        elif channel.flanks(*run) > FLANK * channel.step:
            cut.append(run)
    if len(cut) == 1 and cut[0][1] - cut[0][0] >= SHORTEST_STUCK:
        stuck, cut = sorted(stuck + cut), []  # a channel that meets its limit but once is stuck there
    found = []
    rows = sum(end - start for start, end in cut)
    if rows >= FEWEST_CUT:
        found.append(_saturated(recording, name, joint, values, cut, rows))
    if stuck:
        found.append(_stuck(recording, name, joint, values, stuck))
    return found


def _runs(values: Column, stretches: tuple[Stretch, ...]) -> tuple[np.ndarray, np.ndarray]:
    """First rows and lengths of all runs of one value."""
    new = np.ones(len(values), dtype=bool)
    new[1:] = np.diff(values) != 0
    inside = np.zeros(len(values) + 1, dtype=bool)
    for piece in stretches:
        new[piece.start] = True
        inside[piece.rows] = True
    edges = np.flatnonzero(np.append(new | ~inside[:-1], True))
    starts, lengths = edges[:-1], np.diff(edges)
    return starts[inside[starts]], lengths[inside[starts]]


def _saturated(
    recording: Recording, name: str, joint: int, values: Column, cut: list[tuple[int, int]], rows: int
) -> Finding:
    bounds = " and ".join(f"{value:.4g}" for value in sorted({float(values[start]) for start, _ in cut}))
    what = {"tau": "drive", "qd": "velocity estimate", "q": "position sensor"}[name]
    return Finding(
        kind="saturated",
        severity="warning",
        joint=joint,
        column=name,
        trajectory=int(recording.trajectory[cut[0][0]]),
        rows=tuple(cut),
        text=f"flat at {bounds} in {plural(len(cut), 'place')}, {rows} rows: the {what} is at its limit",
        remedy="move more gently so that the limit is not met, or leave these rows out",
    )


def _stuck(recording: Recording, name: str, joint: int, values: Column, stuck: list[tuple[int, int]]) -> Finding:
    rows = sum(end - start for start, end in stuck)
    return Finding(
        kind="stuck",
        severity="error",
        joint=joint,
        column=name,
        trajectory=int(recording.trajectory[stuck[0][0]]),
        rows=tuple(stuck),
        text=f"stays at {values[stuck[0][0]]:.4g} for {rows} rows while the robot moves",
        remedy="leave these rows out; check the sensor, its cable and the logger",
    )
