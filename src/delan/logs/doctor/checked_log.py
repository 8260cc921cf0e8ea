"""The log as the checks see it: repaired columns, their filtered motion, and a described robot."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy
from jaxtyping import Float, Int

from ...errors import ModelError
from ...joints import JointLimits, Joints, Recording
from ..excerpts import LogPart
from ..filters import HIGHEST_CUTOFF, ORDER, stride
from ..segments import SHORTEST_STEP, LogSegment
from .finding import Span

Column = Float[np.ndarray, " time"]
Columns = dict[str, Float[np.ndarray, "time dof"]]

# A shorter segment has no samples left once the ends of the filter are cut off.
FEWEST_ROWS = 40
# Motion lies below the frequency that contains this share of the positions' energy, ...
MOTION_ENERGY = 0.995
# ... and the filter passes this many times that frequency: the torque of a sine has harmonics.
BANDWIDTHS = 4.0
# Steps that differ from the common step by less than this share need no interpolation.
EVEN = 1e-3


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
) -> Float[np.ndarray, "time *columns"]:
    """Return the difference of each row from the row before, 0 in the first row of a segment."""
    steps = np.zeros_like(values)
    for segment in segments:
        steps[segment.start + 1 : segment.end] = np.diff(values[segment.rows], axis=0)
    return steps


def relative_positions(q: Float[np.ndarray, "time dof"]) -> Float[np.ndarray, "time dof"]:
    """Return positions in units of each joint's range, so that all joints count alike."""
    return q / np.maximum(np.ptp(q, axis=0), 1e-300)


@dataclass(frozen=True, eq=False)
class Motion:
    """Filtered signals at even time steps, segment after segment.

    Attributes:
        t: time [s].
        q, velocity, acceleration: positions and their derivatives, from the positions alone.
        logged: all other channels of the log through the same filter.
        segment: number of the segment of each sample; starts: first row of each segment in the log.
        step: time between samples [s]; period: time between rows of the log [s].
        cutoff: cut-off of the filter [Hz].
    """

    t: Float[np.ndarray, " samples"]
    q: Float[np.ndarray, "samples dof"]
    velocity: Float[np.ndarray, "samples dof"]
    acceleration: Float[np.ndarray, "samples dof"]
    logged: dict[str, Float[np.ndarray, "samples dof"]]
    segment: Int[np.ndarray, " samples"]
    starts: tuple[int, ...]
    step: float
    period: float
    cutoff: float

    def __len__(self) -> int:
        return len(self.t)

    @property
    def segments(self) -> list[slice]:
        """Samples of each segment."""
        edges = [0, *(np.flatnonzero(np.diff(self.segment)) + 1).tolist(), len(self)]
        return list(itertools.starmap(slice, itertools.pairwise(edges)))

    @property
    def independent(self) -> float:
        """Approximate number of independent samples: two per period of the cut-off."""
        return len(self) * min(1.0, 2 * self.step * self.cutoff)

    def thinned(self, every: int) -> "Motion":
        """Return every n-th sample."""
        logged = {name: values[::every] for name, values in self.logged.items()}
        return replace(
            self,
            t=self.t[::every],
            q=self.q[::every],
            velocity=self.velocity[::every],
            acceleration=self.acceleration[::every],
            segment=self.segment[::every],
            logged=logged,
            step=self.step * every,
        )


def filtered(t: Column, columns: Columns, segments: tuple[LogSegment, ...]) -> Motion | None:
    """Return the motion in all segments that are long enough, None if there is none."""
    usable = []
    for segment in segments:
        if len(segment) >= FEWEST_ROWS and segment.step >= SHORTEST_STEP:
            usable.append(segment)
    if not usable:
        return None
    step = _common_step(usable)
    resampled = []
    starts = []
    for segment in usable:
        if 0.5 < segment.step / step < 2:
            signals = _resampled(t, columns, segment, step)
            if len(signals["t"]) >= FEWEST_ROWS:
                resampled.append(signals)
                starts.append(segment.start)
    if not resampled:
        return None
    cutoff = cutoff_of([signals["q"] for signals in resampled], step)
    every = stride(step, cutoff)
    samples: dict[str, list[np.ndarray]] = {}
    for index, signals in enumerate(resampled):
        count = len(signals["t"])
        # The filter knows nothing beyond the ends: half a period of the cut-off is unreliable.
        edge = min(round(0.5 / (cutoff * step)), count // 4)
        derived = _derived(signals, step, cutoff)
        derived["segment"] = np.full(count, index)
        for name, values in derived.items():
            samples.setdefault(name, []).append(values[edge : count - edge : every])
    joined = {name: np.concatenate(arrays) for name, arrays in samples.items()}
    return Motion(
        t=joined.pop("t"),
        q=joined.pop("q"),
        velocity=joined.pop("velocity"),
        acceleration=joined.pop("acceleration"),
        segment=joined.pop("segment"),
        starts=tuple(starts),
        logged=joined,
        step=step * every,
        period=step,
        cutoff=cutoff,
    )


def _common_step(segments: list[LogSegment]) -> float:
    """Return the median step [s] over the rows of all segments."""
    by_step = sorted(segments, key=lambda segment: segment.step)
    rows = list(itertools.accumulate(map(len, by_step)))
    return by_step[int(np.searchsorted(rows, rows[-1] / 2))].step


def _resampled(
    t: Column, columns: Columns, segment: LogSegment, step: float
) -> dict[str, np.ndarray]:
    """Return time and columns of a segment, interpolated linearly unless its steps are even."""
    times = t[segment.rows]
    signals = {"t": times}
    for name, table in columns.items():
        signals[name] = table[segment.rows]
    if np.abs(np.diff(times) / step - 1).max() < EVEN:
        return signals
    # A segment with a wrong step must not take unlimited memory.
    count = min(int((times[-1] - times[0]) / step) + 1, 4 * len(times))
    new_times = times[0] + step * np.arange(count)
    for name in columns:
        signals[name] = _interpolated(new_times, times, signals[name])
    signals["t"] = new_times
    return signals


def _interpolated(places: np.ndarray, known: np.ndarray, table: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(places, known, column) for column in table.T], axis=1)


def cutoff_of(positions: list[np.ndarray], step: float) -> float:
    """Return the cut-off [Hz] of a filter that passes the motion, from spectra of the positions."""
    highest = HIGHEST_CUTOFF / step
    frequencies = np.linspace(0, highest, 400)
    energy = np.zeros((len(frequencies), positions[0].shape[1]))
    for q in positions:
        # A window, because the ends of a motion that do not meet would look like fast motion.
        window = np.hanning(len(q))[:, None]
        spectrum = np.abs(np.fft.rfft((q - q.mean(axis=0)) * window, axis=0)) ** 2
        bins = np.fft.rfftfreq(len(q), step)
        energy += _interpolated(frequencies, bins, np.cumsum(spectrum, axis=0))
    whole = energy[-1]
    moving = whole > 0
    if not moving.any():
        return highest
    share = energy[:, moving] / whole[moving]
    fastest = float(frequencies[np.argmax(share > MOTION_ENERGY, axis=0)].max())
    longest = max(map(len, positions)) * step
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


SampleRows = Float[np.ndarray, "samples dof"]
# Torques [N m or N] of rows of positions, velocities and accelerations.
TorqueRows = Callable[[SampleRows, SampleRows, SampleRows], SampleRows]


@dataclass(frozen=True, eq=False)
class DescribedRobot:
    """A robot according to a description, such as a URDF.

    Attributes:
        source: name of the description, for messages.
        joints: names and kinds of the joints, in the order of the log's columns.
        torque: torques of rows of positions, velocities and accelerations.
        limits: limits of the joints.
    """

    source: str
    joints: Joints
    torque: TorqueRows
    limits: JointLimits

    def named(self, recording: Recording) -> Recording:
        """Return the recording with the joints of this robot, whose number must be the same."""
        if self.joints.dof != recording.joints.dof:
            raise ModelError(
                f"{self.source} has {self.joints.dof} joints ({', '.join(self.joints.names)}), the "
                f"log has {recording.joints.dof}; choose the joints of the log with --joints"
            )
        return replace(recording, joints=self.joints)

    def named_part(self, part: LogPart) -> LogPart:
        """Return a part of a log with the joints of this robot."""
        return replace(part, recording=self.named(part.recording))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Logged torques against those of a description, per joint.

    Attributes:
        factor: factor of each joint's positions and derivatives before the description sees them.
        slope: logged torque over described torque.
        explained: share of the variance that the description explains beside friction.
        residual: share of the variance that description and friction leave unexplained.
        unexplained: mean residual of the joints that are not dead.
    """

    factor: Float[np.ndarray, " dof"]
    slope: Float[np.ndarray, " dof"]
    explained: Float[np.ndarray, " dof"]
    residual: Float[np.ndarray, " dof"]
    unexplained: float


@dataclass(frozen=True, eq=False)
class DescriptionMatch:
    """Comparisons with the log as it is, in degrees, and as it agrees best."""

    as_radians: Comparison
    as_degrees: Comparison
    best: Comparison


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckedLog:
    """A log as the checks see it, without the faults that have already been reported.

    Attributes:
        recording: the log as it was read, with exchanged columns in order.
        t: time [s].
        segments: rows without a break in time.
        columns: the logged quantities without missing values, wraps and spikes.
        quanta: quantisation step of each channel, 0 if there is none, by column.
        dead: joints that stand still, or whose velocity or torque never changes.
        motion: the filtered motion, None if no segment is long enough.
        model: torques according to a description of the robot.
        limits: limits of the joints.
        match: agreement of the torques with those of `model`, None if they were not compared.
        part: whether it is a part of a log, which says less than the whole.
    """

    recording: Recording
    t: Column
    segments: tuple[LogSegment, ...]
    columns: Columns
    quanta: dict[str, Float[np.ndarray, " dof"]]
    dead: frozenset[int] = frozenset()
    motion: Motion | None = None
    model: TorqueRows | None = None
    limits: JointLimits | None = None
    match: DescriptionMatch | None = None
    part: bool = False

    @property
    def joints(self) -> Joints:
        return self.recording.joints

    @property
    def alive(self) -> list[int]:
        """Joints that are not dead."""
        return [joint for joint in range(self.joints.dof) if joint not in self.dead]

    @property
    def driven(self) -> list[int]:
        """Joints that are not dead and have a motor: some torque is not zero."""
        return [joint for joint in self.alive if self.columns["tau"][:, joint].any()]

    def labels(self, motion: Motion) -> Int[np.ndarray, " samples"]:
        """Return the trajectory of each sample of its motion, or of a part of it.

        Segments of an excerpt belong to the trajectories of its log.
        """
        labels = self.recording.trajectory[list(motion.starts)]
        if self.recording.excerpt is not None:
            segments = self.recording.excerpt.segments
            labels = np.array([segments[label].trajectory for label in labels])
        return labels[motion.segment]

    def rows_of(self, label: int) -> tuple[Span, ...]:
        """Return the rows of a trajectory, as spans of the recording."""
        spans = []
        for segment in self.segments:
            trajectory = int(self.recording.trajectory[segment.start])
            if self.recording.excerpt is not None:
                trajectory = self.recording.excerpt.segments[trajectory].trajectory
            if trajectory == label:
                spans.append((segment.start, segment.end))
        return ((spans[0][0], spans[-1][1]),)
