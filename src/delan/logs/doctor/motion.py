"""The motion in a recording through one low-pass filter, and the columns it is made from."""

import itertools
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float, Int

from ...joints import Recording
from ..filters import HIGHEST_CUTOFF, ORDER, stride
from ..segments import LogSegment

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
        return list(itertools.starmap(slice, itertools.pairwise(edges)))

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
