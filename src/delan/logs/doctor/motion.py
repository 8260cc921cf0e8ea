"""The motion in a recording through one low-pass filter, and how much of it there is."""

import itertools
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy
from jaxtyping import Float, Int

from ...joints import JointLimits, Joints, Recording
from ..filters import HIGHEST_CUTOFF, ORDER, stride
from ..segments import LogSegment
from . import cases
from .finding import Finding

Column = Float[np.ndarray, " time"]
Columns = dict[str, Float[np.ndarray, "time dof"]]

# A shorter segment has no samples left once the ends of the filter are cut off.
FEWEST_ROWS = 40
# Motion lies below the frequency that contains this share of the positions' energy, ...
MOTION_ENERGY = 0.995
# ... and the filter passes this many times that frequency: the torque of a sine has harmonics.
BANDWIDTHS = 4.0


def measured_columns(recording: Recording) -> Columns:
    """Return the logged quantities with one column per joint, by name."""
    columns = {}
    for name in ("q", "qd", "qdd", "tau"):
        values = getattr(recording, name)
        if values is not None:
            columns[name] = np.asarray(values, dtype=float)
    return columns


def row_steps(
    values: Float[np.ndarray, "time *columns"], segments: tuple[LogSegment, ...]
) -> np.ndarray:
    """Return the difference of each row from the row before, 0 in the first row of a segment."""
    steps = np.zeros_like(values)
    for segment in segments:
        steps[segment.start + 1 : segment.end] = np.diff(values[segment.rows], axis=0)
    return steps


def value_range(values: Float[np.ndarray, "..."]) -> float:
    """Return the distance from the smallest to the largest value, 0 without values."""
    return float(np.ptp(values)) if values.size else 0.0


@dataclass(frozen=True, eq=False)
class Motion:
    """Filtered signals at even time steps, segment after segment.

    Attributes:
        t: time [s].
        q, velocity, acceleration: positions and their derivatives, from the positions alone.
        logged: all other channels of the log through the same filter.
        segment: number of the segment of each sample.
        step: time between samples [s]; period: time between rows of the log [s].
        cutoff: cut-off of the filter [Hz].
    """

    t: Float[np.ndarray, " samples"]
    q: Float[np.ndarray, "samples dof"]
    velocity: Float[np.ndarray, "samples dof"]
    acceleration: Float[np.ndarray, "samples dof"]
    logged: dict[str, Float[np.ndarray, "samples dof"]]
    segment: Int[np.ndarray, " samples"]
    step: float
    period: float
    cutoff: float

    def __len__(self) -> int:
        return len(self.t)

    @property
    def segments(self) -> list[slice]:
        """Samples of each segment."""
        edges = [0, *(np.flatnonzero(np.diff(self.segment)) + 1).tolist(), len(self)]
        return [slice(start, end) for start, end in itertools.pairwise(edges)]

    @property
    def independent(self) -> float:
        """Approximate number of independent samples: two per period of the cut-off."""
        return len(self) * min(1.0, 2 * self.step * self.cutoff)


def filtered(t: Column, columns: Columns, segments: tuple[LogSegment, ...]) -> Motion | None:
    """Return the motion in all segments that are long enough, None if there is none."""
    usable = [segment for segment in segments if len(segment) >= FEWEST_ROWS and segment.step > 0]
    if not usable:
        return None
    step = _common_step(usable)
    resampled = []
    for segment in usable:
        if 0.5 < segment.step / step < 2:
            signals = _resampled(t, columns, segment, step)
            if len(signals["t"]) >= FEWEST_ROWS:
                resampled.append(signals)
    if not resampled:
        return None
    cutoff = cutoff_of([signals["q"] for signals in resampled], step)
    every = stride(step, cutoff)
    pieces: dict[str, list[np.ndarray]] = {}
    for index, signals in enumerate(resampled):
        count = len(signals["t"])
        # The filter knows nothing beyond the ends: half a period of the cut-off is unreliable.
        edge = min(round(0.5 / (cutoff * step)), count // 4)
        derived = _derived(signals, step, cutoff)
        derived["segment"] = np.full(count, index)
        for name, values in derived.items():
            pieces.setdefault(name, []).append(values[edge : count - edge : every])
    joined = {name: np.concatenate(arrays) for name, arrays in pieces.items()}
    return Motion(
        t=joined.pop("t"),
        q=joined.pop("q"),
        velocity=joined.pop("velocity"),
        acceleration=joined.pop("acceleration"),
        segment=joined.pop("segment"),
        logged=joined,
        step=step * every,
        period=step,
        cutoff=cutoff,
    )


def _common_step(segments: list[LogSegment]) -> float:
    """Return the median step [s] over the rows of all segments."""
    order = np.argsort([segment.step for segment in segments])
    rows = np.cumsum([len(segments[index]) for index in order])
    return segments[order[np.searchsorted(rows, rows[-1] / 2)]].step


def _resampled(
    t: Column, columns: Columns, segment: LogSegment, step: float
) -> dict[str, np.ndarray]:
    """Return time and columns of a segment, interpolated linearly unless its steps are even."""
    times = t[segment.rows]
    signals = {"t": times}
    even = np.abs(np.diff(times) / step - 1).max() < 1e-3
    # A segment with a wrong step must not take unlimited memory.
    count = min(int((times[-1] - times[0]) / step) + 1, 4 * len(times))
    new_times = times[0] + step * np.arange(count)
    for name, table in columns.items():
        values = table[segment.rows]
        if not even:
            values = np.stack([np.interp(new_times, times, column) for column in values.T], axis=1)
        signals[name] = values
    if not even:
        signals["t"] = new_times
    return signals


def cutoff_of(positions: list[np.ndarray], step: float) -> float:
    """Return the cut-off [Hz] of a filter that passes the motion, from spectra of the positions."""
    highest = HIGHEST_CUTOFF / step
    frequencies = np.linspace(0, highest, 400)
    energy = np.zeros((len(frequencies), positions[0].shape[1]))
    for q in positions:
        window = np.hanning(len(q))[:, None]
        centred = (q - q.mean(axis=0)) * window
        spectrum = np.abs(np.fft.rfft(centred, axis=0)) ** 2
        total = np.cumsum(spectrum, axis=0)
        bins = np.fft.rfftfreq(len(q), step)
        energy += np.stack([np.interp(frequencies, bins, column) for column in total.T], axis=1)
    whole = energy[-1]
    moving = whole > 0
    if not moving.any():
        return highest
    share = energy[:, moving] / whole[moving]
    fastest = float(frequencies[np.argmax(share > MOTION_ENERGY, axis=0)].max())
    longest = max(len(q) for q in positions) * step
    return float(np.clip(BANDWIDTHS * fastest, min(10 / longest, highest), highest))


def _derived(signals: dict[str, np.ndarray], step: float, cutoff: float) -> dict[str, np.ndarray]:
    """Return all signals filtered, with velocity and acceleration from the filtered positions."""
    t = signals["t"]
    sections = scipy.signal.butter(ORDER, cutoff, fs=1 / step, output="sos")
    pad = min(3 * (2 * ORDER + 1) + round(1 / (cutoff * step)), len(t) - 1)
    derived = {"t": t}
    for name, values in signals.items():
        if name != "t":
            derived[name] = scipy.signal.sosfiltfilt(sections, values, axis=0, padlen=pad)
    q = derived["q"]
    derived["velocity"] = np.gradient(q, step, axis=0)
    # The second difference of neighbours blurs less than the gradient of the gradient.
    derived["acceleration"] = np.zeros_like(q)
    derived["acceleration"][1:-1] = (q[2:] - 2 * q[1:-1] + q[:-2]) / step**2
    return derived


# Over less than this [rad or m], gravity and inertia look constant, and every model fits.
SMALL_RANGE = {"revolute": 0.1, "continuous": 0.1, "prismatic": 0.01}
# Friction is visible where a joint passes in both directions.
FEWEST_REVERSALS = 1
# A reversal follows a motion of at least this share of the joint's range, so that noise is none.
REVERSAL = 0.02
# Number of cells into which each joint's range is divided.
CELLS = 10


def examine_coverage(
    columns: Columns,
    motion: Motion | None,
    joints: Joints,
    limits: JointLimits | None,
    dead: frozenset[int],
) -> list[Finding]:
    """Report excitation and coverage, with warnings where a joint moves too little to learn."""
    alive = [joint for joint in range(joints.dof) if joint not in dead]
    q = columns["q"]
    findings = []
    if motion is not None:
        findings = [_excitation(q[:, joint], motion, joints, joint) for joint in alive]
    if limits is not None:
        findings += _range_coverage(q, limits, alive)
    if len(alive) > 1:
        findings.append(_pair_coverage(q, alive))
    return findings


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


def _excitation(
    q: Float[np.ndarray, " time"], motion: Motion, joints: Joints, joint: int
) -> Finding:
    distance = float(np.ptp(q))
    count = 0
    for rows in motion.segments:
        count += reversals(motion.q[rows, joint], REVERSAL * distance)
    wanted = []
    if distance < SMALL_RANGE[joints.kinds[joint]]:
        wanted.append("farther")
    if count < FEWEST_REVERSALS:
        wanted.append("back and forth")
    measured = {
        "range": distance,
        "velocity": float(np.abs(motion.velocity[:, joint]).max()),
        "acceleration": float(np.abs(motion.acceleration[:, joint]).max()),
        "unit": joints.units[joint].q,
        "reversals": count,
        "wanted": tuple(wanted),
    }
    if wanted:
        return Finding(cases.TOO_LITTLE_EXCITATION, "warning", joint, "q", measured)
    return Finding(cases.EXCITATION, "note", joint, "q", measured)


def _range_coverage(
    q: Float[np.ndarray, "time dof"], limits: JointLimits, alive: list[int]
) -> list[Finding]:
    """Report the share of each joint's allowed range that the log visits."""
    findings = []
    for joint in alive:
        allowed = float(limits.upper[joint] - limits.lower[joint])
        if not (np.isfinite(allowed) and allowed > 0):
            continue
        low = float(q[:, joint].min())
        high = float(q[:, joint].max())
        measured = {"share": (high - low) / allowed, "lowest": low, "highest": high}
        findings.append(Finding(cases.RANGE_COVERAGE, "note", joint, "q", measured))
    return findings


def _pair_coverage(q: Float[np.ndarray, "time dof"], alive: list[int]) -> Finding:
    """Report the share of cells that the log visits in the planes of all pairs of joints."""
    low = q.min(axis=0)
    size = np.maximum(q.max(axis=0) - low, 1e-300)
    cell = np.minimum(((q - low) / size * CELLS).astype(int), CELLS - 1)
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
