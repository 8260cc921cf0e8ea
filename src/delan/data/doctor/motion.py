"""The motion behind the noise: positions, their two derivatives and the logged channels, all through one filter."""

import itertools
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from ..smoothing import HIGHEST_CUTOFF, ORDER, stride
from ..stretches import Stretch
from .levels import Columns

FEWEST_ROWS = 40
"""A shorter stretch has no middle left once the filter's ends are cut away."""
MOTION_ENERGY = 0.995
"""Motion is what lies below the frequency that holds this share of the positions' energy,"""
BANDWIDTHS = 4.0
"""and the filter lets so many times that frequency pass: torques of a sine hold its harmonics."""


@dataclass(frozen=True, eq=False)
class Motion:
    """Filtered signals on even time steps, stretch after stretch.

    Attributes:
        t: time [s]; step: between samples of one stretch [s]; period: between rows of the log [s].
        cutoff: of the filter [Hz].
        q, speed, acceleration: positions and their derivatives, from the positions alone.
        logged: every other channel of the log through the same filter.
        stretch: which stretch a sample is of.
    """

    t: Float[np.ndarray, " samples"]
    q: Float[np.ndarray, "samples dof"]
    speed: Float[np.ndarray, "samples dof"]
    acceleration: Float[np.ndarray, "samples dof"]
    logged: dict[str, Float[np.ndarray, "samples dof"]]
    stretch: np.ndarray
    step: float
    period: float
    cutoff: float

    def __len__(self) -> int:
        return len(self.t)

    @property
    def stretches(self) -> list[slice]:
        """The samples of each stretch."""
        edges = np.concatenate([[0], np.flatnonzero(np.diff(self.stretch)) + 1, [len(self)]]).tolist()
        return [slice(start, end) for start, end in itertools.pairwise(edges)]

    @property
    def independent(self) -> float:
        """About how many of the samples tell something new: two a period of the cut-off."""
        return len(self) * min(1.0, 2 * self.step * self.cutoff)


def filtered(t: Float[np.ndarray, " time"], columns: Columns, stretches: tuple[Stretch, ...]) -> Motion | None:
    """The motion of all stretches that are long enough; None if there is none."""
    usable = [piece for piece in stretches if len(piece) >= FEWEST_ROWS and piece.step > 0]
    if not usable:
        return None
    # One step for all: of the stretches that hold most rows.
    order = np.argsort([piece.step for piece in usable])
    rows = np.cumsum([len(usable[index]) for index in order])
    step = usable[order[np.searchsorted(rows, rows[-1] / 2)]].step
    usable = [piece for piece in usable if 0.5 < piece.step / step < 2]
    even = [_resampled(t, columns, piece, step) for piece in usable]
    even = [one for one in even if len(one[0]) >= FEWEST_ROWS]
    if not even:
        return None
    cutoff = cutoff_of([one[1]["q"] for one in even], step)
    every = stride(step, cutoff)
    parts = []
    for index, (times, signals) in enumerate(even):
        part = _derived(times, signals, step, cutoff)
        edge = min(round(0.5 / (cutoff * step)), len(times) // 4)
        kept = slice(edge, len(times) - edge, every)
        part = {name: values[kept] for name, values in part.items()}
        parts.append({**part, "stretch": np.full(len(part["t"]), index)})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    own = ("t", "q", "speed", "acceleration", "stretch")
    logged = {name.removeprefix("logged_"): values for name, values in joined.items() if name not in own}
    return Motion(**{name: joined[name] for name in own}, logged=logged, step=step * every, period=step, cutoff=cutoff)


def _resampled(
    t: np.ndarray, columns: Columns, piece: Stretch, step: float
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A stretch on even steps, by straight lines; as it is if its steps are even already."""
    times = t[piece.rows]
    signals = {name: values[piece.rows] for name, values in columns.items()}
    if np.abs(np.diff(times) / step - 1).max() < 1e-3:
        return times, signals
    count = min(int((times[-1] - times[0]) / step) + 1, 4 * len(times))
    new = times[0] + step * np.arange(count)
    interpolated = {
        name: np.stack([np.interp(new, times, column) for column in values.T], axis=1)
        for name, values in signals.items()
    }
    return new, interpolated


def cutoff_of(positions: list[np.ndarray], step: float) -> float:
    """Of a filter that lets motion pass [Hz], from the spectra of the positions."""
    highest = HIGHEST_CUTOFF / step
    frequencies = np.linspace(0, highest, 400)
    energy = np.zeros((len(frequencies), positions[0].shape[1]))
    for q in positions:
        window = np.hanning(len(q))[:, None]
        centred = (q - q.mean(axis=0)) * window
        spectrum = np.abs(np.fft.rfft(centred, axis=0)) ** 2
        own = np.fft.rfftfreq(len(q), step)
        total = np.cumsum(spectrum, axis=0)
        energy += np.stack([np.interp(frequencies, own, column) for column in total.T], axis=1)
    whole = energy[-1]
    moving = whole > 0
    if not moving.any():
        return highest
    share = energy[:, moving] / whole[moving]
    fastest = float(frequencies[np.argmax(share > MOTION_ENERGY, axis=0)].max())
    longest = max(len(q) for q in positions) * step
    return float(np.clip(BANDWIDTHS * fastest, min(10 / longest, highest), highest))


def _derived(t: np.ndarray, signals: dict[str, np.ndarray], step: float, cutoff: float) -> dict[str, np.ndarray]:
    """Everything through the filter; speed and acceleration as central differences of the filtered positions."""
    sections = scipy.signal.butter(ORDER, cutoff, fs=1 / step, output="sos")
    pad = min(3 * (2 * ORDER + 1) + round(1 / (cutoff * step)), len(t) - 1)
    smooth = {name: scipy.signal.sosfiltfilt(sections, values, axis=0, padlen=pad) for name, values in signals.items()}
    speed = np.gradient(smooth["q"], step, axis=0)
    # The second difference of neighbours, not the first of the first: it blurs less.
    acceleration = np.zeros_like(speed)
    acceleration[1:-1] = (smooth["q"][2:] - 2 * smooth["q"][1:-1] + smooth["q"][:-2]) / step**2
    logged = {f"logged_{name}": values for name, values in smooth.items() if name != "q"}
    return {"t": t, "q": smooth["q"], "speed": speed, "acceleration": acceleration, **logged}
