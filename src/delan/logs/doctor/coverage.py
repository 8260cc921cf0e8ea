"""Check of how much channels tell: dead, stuck, saturated, quantised, too little motion.

A torque that is zero in every row is that of a joint without a motor, or a column that is lost. A
joint without a motor moves as inertia, gravity and friction make it: its acceleration follows from
positions, velocities and the accelerations of the other joints. A joint that a controller moves
along a path of its own does not.
"""

from itertools import combinations

import numpy as np
from jaxtyping import Float

from ...joints import JointLimits, Joints
from ..actuation import unactuated
from ..segments import LogSegment
from . import cases
from .checked_log import (
    CheckedLog,
    Column,
    Columns,
    Motion,
    filtered,
    relative_positions,
    row_steps,
)
from .finding import Case, Finding, Severity, Span
from .lags import Regression

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
DEVICES = {"tau": "drive", "qd": "velocity estimate", "q": "position sensor"}

# Values are quantised if their distances are multiples of a step to within this share of it.
ON_GRID = 0.1
# Quantisation is a warning if its error is this share of the standard deviation of the torque, the
# velocity, or the acceleration computed from the positions, ...
QUANTISATION_HARM = 0.1
# ... and a note from this share on.
QUANTISATION_SEEN = 0.02

# Over less than this [rad or m], gravity and inertia look constant, and every model fits.
SMALL_RANGE = {"revolute": 0.1, "continuous": 0.1, "prismatic": 0.01}
# Shares of a joint's allowed range above this mean other units, or a wrong description: limits in a
# URDF are often a little narrower than end stops.
BEYOND_RANGE = 1.1
# Friction is visible where a joint passes in both directions.
FEWEST_REVERSALS = 1
# A reversal follows a motion of at least this share of the joint's range, so that noise is none.
REVERSAL = 0.02
# Number of cells into which each joint's range is divided.
CELLS = 10

# The share of the acceleration, in parts of the log that were not fitted, that mechanics must
# explain. Of the accelerations of driven joints, positions alone explain half and more, because a
# path that turns back accelerates towards its middle.
EXPLAINED = 0.9
# Samples per weight of the regression.
SAMPLES_PER_WEIGHT = 3.0


def quantum(values: Column) -> float:
    """Return the step whose multiples separate the values of a channel, 0 if there is none."""
    levels = np.unique(values)
    steps = np.diff(levels)
    steps = steps[steps > 1e-9 * np.ptp(levels)]
    # Noise never repeats a value: a quantised channel has far fewer values than rows.
    if len(steps) == 0 or len(steps) > 0.9 * len(values):
        return 0.0
    smallest = float(steps.min())
    step = float(steps[steps < 1.5 * smallest].mean())
    near = np.sort(steps)[: max(1, len(steps) // 2)] / step
    if np.quantile(np.abs(near - np.round(near)), 0.95) >= ON_GRID:
        return 0.0
    return step


def quanta(columns: Columns) -> dict[str, Float[np.ndarray, " dof"]]:
    """Return the quantisation steps of positions, velocities and torques."""
    steps = {}
    for name in ("q", "qd", "tau"):
        if name in columns:
            steps[name] = np.array([quantum(values) for values in columns[name].T])
    return steps


def examine_levels(log: CheckedLog) -> list[Finding]:
    """Report dead, stuck and saturated channels."""
    findings = _dead(log)
    dead = {(finding.column, finding.joint) for finding in findings}
    pace = np.abs(row_steps(relative_positions(log.columns["q"]), log.segments)).sum(axis=1)
    usual = float(np.sqrt(np.mean(pace**2)))
    if usual > 0:
        pace = pace / usual
    for joint in range(log.joints.dof):
        for name in log.quanta:
            if not dead & {("q", joint), (name, joint)}:
                findings += _Channel(log, name, joint, pace).plateau_findings()
    return findings


def _dead(log: CheckedLog) -> list[Finding]:
    """Report joints that stand still, and velocities and torques that never change."""
    findings = []
    free = frozenset() if log.joints.motor_of else joints_without_motor(log)
    ranges = np.ptp(log.columns["q"], axis=0)
    still = ranges < [STANDS_STILL[kind] for kind in log.joints.kinds]
    for joint in range(log.joints.dof):
        if still[joint]:
            severity = "error" if still.all() else "warning"
            measured = {"range": float(ranges[joint]), "unit": log.joints.units[joint].q}
            findings.append(Finding(cases.STANDS_STILL, severity, joint, "q", measured))
        for name in ("qd", "tau"):
            if name not in log.columns or (name == "qd" and still[joint]):
                continue
            values = log.columns[name][:, joint]
            # No torque drives a link from outside if its motor is behind a spring.
            if np.ptp(values) > 0.0 or (name == "tau" and joint in log.joints.motor_of):
                continue
            if name == "tau" and joint in free:
                findings.append(Finding(cases.UNACTUATED, "warning", joint, name))
                continue
            measured = {"value": float(values[0])}
            findings.append(Finding(cases.CONSTANT, "error", joint, name, measured))
    return findings


class _Channel:
    """One column of one joint, and the motion that may contradict it."""

    def __init__(self, log: CheckedLog, name: str, joint: int, pace: Column):
        """Take a channel of the log; `pace` is the robot's speed in units of its usual speed."""
        self.log = log
        self.name = name
        self.joint = joint
        self.pace = pace
        self.values = log.columns[name][:, joint]
        self.step = float(log.quanta[name][joint])
        self.jumps = row_steps(self.values, log.segments)
        rates = self.jumps
        if name == "q":
            rates = np.diff(self.jumps)
        # How much the channel's rate usually changes from row to row.
        self.usual = 0.0
        if len(rates):
            self.usual = float(np.quantile(np.abs(rates), 0.98))

    def plateau_findings(self) -> list[Finding]:
        """Report plateaus that the motion contradicts: saturated at the limits, elsewhere stuck."""
        starts, lengths = _plateaus(self.values, self.log.segments)
        if not len(starts):
            return []
        usual = PLATEAU_RATIO * float(np.quantile(lengths, 0.95))
        long = lengths >= np.where(lengths >= SHORTEST_STUCK, usual, SHORTEST_SATURATED)
        limits = (self.values.min(), self.values.max())
        stuck: list[Span] = []
        saturated: list[Span] = []
        for start, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True):
            at_limit = self.values[start] in limits
            plateau = (start, start + length)
            if not (at_limit or length >= SHORTEST_STUCK) or not self._contradicted(*plateau):
                continue
            if not at_limit:
                stuck.append(plateau)
            elif self._flanks(*plateau) > FLANK * self.step:
                saturated.append(plateau)
        # A channel that reaches its limit only once, and stays there, is stuck.
        if len(saturated) == 1 and saturated[0][1] - saturated[0][0] >= SHORTEST_STUCK:
            stuck = sorted(stuck + saturated)
            saturated = []
        findings = []
        if sum(end - start for start, end in saturated) >= FEWEST_SATURATED:
            findings.append(self._plateau_finding(cases.SATURATED, "warning", saturated))
        if stuck:
            findings.append(self._plateau_finding(cases.STUCK, "error", stuck))
        return findings

    def _plateau_finding(self, case: Case, severity: Severity, plateaus: list[Span]) -> Finding:
        measured = {
            "value": float(self.values[plateaus[0][0]]),
            "limits": tuple(sorted({float(self.values[start]) for start, _ in plateaus})),
            "places": len(plateaus),
            "count": sum(end - start for start, end in plateaus),
            "device": DEVICES[self.name],
        }
        rows = tuple(plateaus)
        return Finding(case, severity, self.joint, self.name, measured, rows=rows)

    def _contradicted(self, start: int, end: int) -> bool:
        """Whether the rest of the log shows that the channel changed in rows [start, end)."""
        if self.name == "tau":
            return bool(np.mean(self.pace[start + 1 : end]) > MOVES)
        kink = abs(self.jumps[start])
        if end < len(self.values):
            kink = max(kink, abs(self.jumps[end]))
        if kink > KINK * self.usual + 2 * self._step_near(start, end):
            return True
        if "qd" not in self.log.columns:
            return False
        q = self.log.columns["q"][:, self.joint]
        qd = self.log.columns["qd"][:, self.joint]
        moved = q[start + 1 : end] - q[start]
        integrated = np.cumsum(np.diff(self.log.t[start:end]) * qd[start + 1 : end])
        tolerance = CONTRADICTION * np.ptp(q)
        if self.name == "q":
            tolerance += 2 * self.step
        return bool(np.abs(moved - integrated).max(initial=0.0) > tolerance)

    def _step_near(self, start: int, end: int) -> float:
        """Return the smallest step of the channel near rows [start, end).

        Numbers that are written with six digits, say, have larger steps where they are larger.
        """
        around = 2 * (end - start)
        near = np.abs(self.jumps[max(0, start - around) : end + around])
        steps = near[near > 0]
        if not len(steps):
            return self.step
        return max(self.step, float(steps.min()))

    def _flanks(self, start: int, end: int) -> float:
        """Return how far the channel falls within a plateau's length on either side."""
        before = max(0, 2 * start - end)
        after = min(len(self.values) - 1, 2 * end - start - 1)
        return float(np.abs(self.values[[before, after]] - self.values[start]).max())


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


def examine_quantisation(log: CheckedLog) -> list[Finding]:
    """Report quantisation that is coarse compared with the variation of a channel."""
    if log.motion is None:
        return []
    findings = []
    for name, steps in log.quanta.items():
        for joint, step in enumerate(steps.tolist()):
            if step == 0.0:
                continue
            values = log.columns[name][:, joint]
            if name == "q":
                error = _acceleration_error(step, log.motion, joint)
            else:
                error = step / np.sqrt(12) / float(values.std())
            if error > QUANTISATION_SEEN:
                severity = "warning" if error > QUANTISATION_HARM else "note"
                measured = {
                    "step": step,
                    "unit": getattr(log.joints.units[joint], name),
                    "levels": float(np.ptp(values)) / step,
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
    if not size > 0:
        return 0.0
    band = 1.0
    if speed > 0:
        crossings = min(1 / motion.period, speed / step)
        band = min(1.0, 2 * motion.cutoff / crossings)
    noise = step / np.sqrt(12) * np.sqrt(band) * (2 * np.pi * motion.cutoff) ** 2 / np.sqrt(5)
    return noise / size


def examine_coverage(log: CheckedLog) -> list[Finding]:
    """Report excitation and coverage, with warnings where a joint moves too little to learn."""
    findings = []
    if log.motion is not None:
        for joint in log.alive:
            findings.append(_excitation(log, log.motion, joint))
    if log.limits is not None:
        findings += _range_coverage(log, log.limits)
    if len(log.alive) > 1:
        findings.append(_pair_coverage(log.columns["q"], log.alive))
    return findings


def _excitation(log: CheckedLog, motion: Motion, joint: int) -> Finding:
    distance = float(np.ptp(log.columns["q"][:, joint]))
    count = 0
    for rows in motion.segments:
        count += reversals(motion.q[rows, joint], REVERSAL * distance)
    wanted = []
    if distance < SMALL_RANGE[log.joints.kinds[joint]]:
        wanted.append("farther")
    if count < FEWEST_REVERSALS:
        wanted.append("back and forth")
    measured = {
        "range": distance,
        "velocity": float(np.abs(motion.velocity[:, joint]).max()),
        "acceleration": float(np.abs(motion.acceleration[:, joint]).max()),
        "unit": log.joints.units[joint].q,
        "reversals": count,
        "wanted": tuple(wanted),
    }
    if wanted:
        return Finding(cases.TOO_LITTLE_EXCITATION, "warning", joint, "q", measured)
    return Finding(cases.EXCITATION, "note", joint, "q", measured)


def reversals(q: Float[np.ndarray, " samples"], least: float) -> int:
    """Count how often a position reverses after moving at least this far."""
    count = 0
    direction = 0
    low = float(q[0])
    high = float(q[0])
    for value in q.tolist():
        if direction >= 0 and value < high - least:
            count += direction > 0
            direction = -1
            low = value
        elif direction <= 0 and value > low + least:
            count += direction < 0
            direction = 1
            high = value
        low = min(low, value)
        high = max(high, value)
    return count


def _range_coverage(log: CheckedLog, limits: JointLimits) -> list[Finding]:
    """Report the share of each joint's allowed range that the log visits."""
    findings = []
    for joint in log.alive:
        allowed = float(limits.upper[joint] - limits.lower[joint])
        if not (np.isfinite(allowed) and allowed > 0):
            continue
        low = float(log.columns["q"][:, joint].min())
        high = float(log.columns["q"][:, joint].max())
        measured = {"share": (high - low) / allowed, "lowest": low, "highest": high}
        if measured["share"] > BEYOND_RANGE:
            findings.append(Finding(cases.BEYOND_RANGE, "warning", joint, "q", measured))
        else:
            findings.append(Finding(cases.RANGE_COVERAGE, "note", joint, "q", measured))
    return findings


def _pair_coverage(q: Float[np.ndarray, "time dof"], alive: list[int]) -> Finding:
    """Report the share of cells that the log visits in the planes of all pairs of joints."""
    size = np.maximum(np.ptp(q, axis=0), 1e-300)
    cell = np.minimum(((q - q.min(axis=0)) / size * CELLS).astype(int), CELLS - 1)
    shares = {}
    for first, second in combinations(alive, 2):
        visited = np.unique(CELLS * cell[:, first] + cell[:, second])
        shares[first, second] = len(visited) / CELLS**2
    first, second = min(shares, key=lambda pair: shares[pair])
    measured = {
        "median": float(np.median(list(shares.values()))),
        "least": shares[first, second],
        "first": first,
        "second": second,
    }
    return Finding(cases.PAIR_COVERAGE, "note", measured=measured)


def joints_without_motor(log: CheckedLog) -> frozenset[int]:
    """Return the joints with zero torque that move as if they had no motor."""
    candidates = np.flatnonzero(unactuated(log.columns["tau"])).tolist()
    if not candidates:
        return frozenset()
    motion = filtered(log.t, log.columns, log.segments)
    if motion is None:
        return frozenset()
    free = []
    for joint in candidates:
        if explained_acceleration(motion, log.joints, joint) > EXPLAINED:
            free.append(joint)
    return frozenset(free)


def explained_acceleration(motion: Motion, joints: Joints, joint: int) -> float:
    """Return the share of a joint's acceleration that mechanics of any shape explains.

    H_kk q̈_k = −Σ H_kj q̈_j − c_k − g_k − friction, with coefficients that are smooth in the
    positions. Where the log is too short for all terms, the last ones are left out.
    """
    features = _features(motion, joints, joint)
    target = motion.acceleration[:, [joint]]
    variation = float(np.sum((target - target.mean()) ** 2))
    if not variation > 0 or len(motion) < 2 * features.shape[1]:
        return 0.0
    residual = Regression(features).fit(target).residual
    return 1 - float(residual.sum()) / variation


def _features(motion: Motion, joints: Joints, joint: int) -> Float[np.ndarray, "samples features"]:
    angle = motion.q[:, joints.turning]
    slide = motion.q[:, joints.sliding]
    slide = (slide - slide.mean(axis=0)) / np.maximum(slide.std(axis=0), 1e-12)
    place = np.concatenate([np.cos(angle), np.sin(angle), slide], axis=1)
    velocity = motion.velocity / np.maximum(motion.velocity.std(axis=0), 1e-12)
    others = np.delete(motion.acceleration, joint, axis=1)
    squares = _all_products(velocity, velocity)
    features = np.concatenate([np.ones((len(place), 1)), place, others, velocity], axis=1)
    for first, second in ((others, place), (place, place), (squares, place)):
        group = _all_products(first, second)
        if SAMPLES_PER_WEIGHT * (features.shape[1] + group.shape[1]) > motion.independent:
            break
        features = np.concatenate([features, group], axis=1)
    return features / np.maximum(np.sqrt(np.mean(features**2, axis=0)), 1e-300)


def _all_products(
    first: Float[np.ndarray, "samples a"], second: Float[np.ndarray, "samples b"]
) -> Float[np.ndarray, "samples ab"]:
    products = first[:, :, None] * second[:, None, :]
    return products.reshape(len(first), first.shape[1] * second.shape[1])
