"""Elasticity that one encoder shows: the frequency at which a joint swings against its motor.

A rigid joint answers its torque in phase: what is left of it after gravity, Coriolis torque and
friction is an inertia times the acceleration, at every frequency. Behind a spring, the ratio
depends on the frequency as

    τ / (H q̈) = (1 − f² / f_r²) / (1 − f² / f_a²)

where f_r is the resonance of link and motor and f_a that of the link while its motor stands still;
the second factor is there where the motor's side was measured. The ratio becomes negative beyond
the first of them: the acceleration is opposed to the torque. Nothing in a rigid robot does that
where torque and acceleration are coherent. Friction that the model lacks, and the noise of both,
make the ratio smaller or turn its phase by a quarter of a period, so that smaller deviations count
for nothing. A resonance that the motion did not excite is not seen.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Complex, Float

from ..errors import DataError
from ..joints import Dataset, Recording
from ..logs.excerpts import excerpt_of
from ..logs.filters import HIGHEST_CUTOFF
from ..logs.preparation import PreparationSettings, prepare
from ..logs.segments import spans, usual_step
from ..models.model import Model
from .scores import predict_samples

# The duration of a window [s], and how many of them a log needs; they overlap by three quarters.
SECONDS = (1.0, 4.0)
WINDOWS = 10
OVERLAP = 4
# The most memory of a recording that is looked at [bytes].
MOST_BYTES = 32e6
# Torque and acceleration belong together at a frequency where their coherence is larger than that
# of unrelated signals would be with this probability.
CHANCE = 1e-4
# Windows of this kind that do not share their motion, in the duration of one.
INDEPENDENT = 2.0
# A joint is elastic where its ratio is below minus this share of that at low frequencies, at this
# many neighbouring frequencies.
REVERSED = 0.3
NEIGHBOURS = 3
# The log is cut into this many parts, each of which is left out once to find the uncertainty; a
# frequency whose standard error is above this share of itself is not told.
PARTS = 5
UNCERTAIN = 0.15
# The ratio is fitted up to this multiple of the first frequency at which it is reversed, with at
# least this relative error.
FARTHEST = 2.5
LEAST_ERROR = 0.02
ITERATIONS = 5
# A lag of the torque up to this [s], in this many steps, must leave this many times the squared
# error that a resonance leaves.
LONGEST_LAG = 0.02
LAGS = 41
EXPLAINED = 1.5
# Lowest frequency that is looked at, in bins: the main lobe of the window hides what is below.
FIRST_BIN = 4


@dataclass(frozen=True)
class Resonance:
    """The resonance of a joint [Hz] and its standard error.

    Attributes:
        joint: its number.
        fixed: the frequency with the motor at rest, which only the motor's side shows; None where
            the ratio does not have it.
    """

    joint: int
    frequency: float
    error: float
    fixed: float | None = None


class _Spectra(NamedTuple):
    """Spectra of a joint in every window: of the acceleration as a torque, and of the torque."""

    inertial: Complex[np.ndarray, "windows bins"]
    torque: Complex[np.ndarray, "windows bins"]

    @property
    def ratio(self) -> Complex[np.ndarray, " bins"]:
        """The torque over that of the acceleration, as far as both belong together."""
        across = np.mean(self.torque * self.inertial.conj(), axis=0)
        return across / np.mean(np.abs(self.inertial) ** 2, axis=0)

    @property
    def coherence(self) -> Float[np.ndarray, " bins"]:
        """The squared coherence of both."""
        across = np.abs(np.mean(self.torque * self.inertial.conj(), axis=0)) ** 2
        power = np.mean(np.abs(self.torque) ** 2, axis=0)
        power = power * np.mean(np.abs(self.inertial) ** 2, axis=0)
        return across / np.maximum(power, np.finfo(float).tiny)

    @property
    def independent(self) -> float:
        """The number of windows that share no motion."""
        return max(2.0, len(self.torque) / OVERLAP * INDEPENDENT)

    @property
    def coherent(self) -> Bool[np.ndarray, " bins"]:
        """Where both belong together, by more than chance."""
        # Of unrelated signals, a squared coherence above c has the probability (1 − c)^(count − 1).
        return self.coherence > 1 - CHANCE ** (1 / (self.independent - 1))

    @property
    def ratio_error(self) -> Float[np.ndarray, " bins"]:
        """The standard error of the ratio."""
        coherence = np.maximum(self.coherence, np.finfo(float).eps)
        share = (1 - coherence) / (2 * coherence * self.independent)
        return np.abs(self.ratio) * np.sqrt(share)


def resonances(
    recording: Recording | Dataset, model: Model, delay: float = 0.0
) -> tuple[Resonance, ...]:
    """Return the resonances that a log shows beside its rigid model, none for a rigid robot.

    Args:
        recording: the log as recorded; a dataset was filtered and thinned, and tells none.
        delay: lag of the torques behind the positions that is removed [s].
    """
    if not isinstance(recording, Recording):
        return ()
    if not model.promises.mechanics or model.joints.motor_of:
        return ()
    rate = 1 / usual_step(recording.t)
    recording = excerpt_of(recording, MOST_BYTES)
    settings = PreparationSettings(cutoff=HIGHEST_CUTOFF * rate, delay=delay, every=1)
    try:
        dataset = prepare(recording, settings)
    except DataError:  # too short for a window, too
        return ()
    total = predict_samples(model, dataset)
    still = replace(dataset, qdd=np.zeros_like(dataset.qdd))
    bias = predict_samples(model, still)
    samples = dataset.samples
    pieces = _pieces(dataset)
    length = _window_length(pieces, rate)
    if length is None:
        return ()
    found = []
    frequencies = np.fft.rfftfreq(length, 1 / rate)
    # q̈ is a central difference of q̇, and q̇ one of q where it was not logged.
    loss = np.sinc(2 * frequencies / rate)
    if recording.qd is None:
        loss = loss**2
    used = np.arange(FIRST_BIN, int(np.searchsorted(frequencies, HIGHEST_CUTOFF * rate)))
    for joint in range(samples.dof):
        inertial = _windows((total - bias)[:, joint], pieces, length)
        torque = _windows(samples.tau[:, joint] - bias[:, joint], pieces, length)
        spectra = _Spectra(inertial[:, used] / loss[used], torque[:, used])
        resonance = _resonance(joint, spectra, frequencies[used])
        if resonance is not None:
            found.append(resonance)
    return tuple(found)


def _pieces(dataset: Dataset) -> list[slice]:
    """Return the samples of each unbroken motion, by their places among the samples."""
    counted = dataset.counted
    if counted is None:
        counted = np.ones(len(dataset), dtype=bool)
    place = np.cumsum(counted) - 1
    pieces = []
    for label in dataset.trajectories:
        for first, end in spans(counted & (dataset.trajectory == label)):
            pieces.append(slice(int(place[first]), int(place[end - 1]) + 1))
    return pieces


def _window_length(pieces: list[slice], rate: float) -> int | None:
    """Return the rows of a window; None if the log is too short for enough of them."""
    rows = sum(piece.stop - piece.start for piece in pieces)
    seconds = min(SECONDS[1], rows / rate / WINDOWS)
    if seconds < SECONDS[0]:
        return None
    length = int(seconds * rate)
    whole = sum((piece.stop - piece.start) // length for piece in pieces)
    return length if whole >= WINDOWS // 2 else None


def _windows(
    signal: Float[np.ndarray, " samples"], pieces: list[slice], length: int
) -> Complex[np.ndarray, "windows bins"]:
    """Return the spectra of overlapping windows, whose ends are faded out deeply.

    The main motion is many orders of magnitude stronger than a resonance and must not leak into it.
    """
    fade = scipy.signal.windows.blackmanharris(length)
    step = max(1, length // OVERLAP)
    spectra = []
    for piece in pieces:
        values = signal[piece]
        for first in range(0, len(values) - length + 1, step):
            spectra.append(np.fft.rfft(values[first : first + length] * fade))
    return np.array(spectra)


def _resonance(
    joint: int, spectra: _Spectra, frequencies: Float[np.ndarray, " bins"]
) -> Resonance | None:
    """Return the resonance of a joint, None where its ratio does not turn round."""
    reversed_at = _first_reversed(spectra)
    if reversed_at is None:
        return None
    # Far above, the noise of the positions makes the ratio too small.
    used = spectra.coherent & (frequencies < FARTHEST * frequencies[reversed_at])
    whole = _fitted(spectra, frequencies, used)
    if whole is None or _is_lag(spectra, frequencies, used, whole.error):
        return None
    part = np.arange(len(spectra.torque)) * PARTS // len(spectra.torque)
    others = []
    for number in range(PARTS):
        left = _Spectra(*(values[part != number] for values in spectra))
        others.append(_fitted(left, frequencies, used))
    each = np.array([other.frequency for other in others if other is not None])
    if len(each) < PARTS:
        return None
    # Of the jackknife; windows at the border of two parts overlap, which hardly matters.
    error = float(np.sqrt((PARTS - 1) / PARTS * np.sum((each - each.mean()) ** 2)))
    frequency = whole.frequency
    inside = frequencies[used].min() < frequency < frequencies[used].max()
    if error > UNCERTAIN * frequency or not inside:
        return None
    return Resonance(joint, frequency, error, whole.fixed)


def _first_reversed(spectra: _Spectra) -> int | None:
    """Return the first frequency at which acceleration and torque are opposed, by its number.

    None if they never are, or do not agree at lower frequencies.
    """
    along_torque = np.real(spectra.ratio)
    across = np.abs(np.imag(spectra.ratio))
    along = spectra.coherent & (along_torque > across)
    if not along.any():
        return None
    usual = float(np.median(along_torque[along]))
    bound = -np.maximum(REVERSED * usual, across)
    first = _first_run(spectra.coherent & (along_torque < bound))
    if first is None or _first_run(along[:first]) is None:
        return None
    return first


def _first_run(mask: Bool[np.ndarray, " bins"]) -> int | None:
    """Return where enough neighbours are in a mask for the first time."""
    for first, end in spans(mask):
        if end - first >= NEIGHBOURS:
            return first
    return None


def _fitted(
    spectra: _Spectra, frequencies: Float[np.ndarray, " bins"], used: Bool[np.ndarray, " bins"]
) -> "_Fitted | None":
    """Return f_r and f_a [Hz] of the ratio g (1 − f²/f_r²) / (1 − f²/f_a²) by least squares.

    f_a is None where the ratio does without it.
    """
    ratio = spectra.ratio[used]
    square = frequencies[used] ** 2
    weight = 1 / np.maximum(spectra.ratio_error[used], LEAST_ERROR * np.abs(ratio))
    single = _solved([np.ones_like(ratio), -square + 0j], ratio, weight)
    # The equation times the denominator is linear; divided by that of the last solution, it has
    # the errors of the ratio itself (Sanathanan and Koerner 1963).
    double = single
    scale = weight
    for _ in range(ITERATIONS):
        double = _solved([np.ones_like(ratio), -square + 0j, square * ratio], ratio, scale)
        scale = weight / np.maximum(np.abs(1 - double.weights[2] * square), LEAST_ERROR)
    gain, slope, inverse = double.weights
    if inverse > 0 and gain > 0 and slope > 0 and double.error < single.error / 2:
        fixed = float(np.sqrt(1 / inverse))
        return _Fitted(float(np.sqrt(gain / slope)), fixed, double.error)
    gain, slope = single.weights
    if gain > 0 and slope > 0:
        return _Fitted(float(np.sqrt(gain / slope)), None, single.error)
    return None


def _is_lag(
    spectra: _Spectra,
    frequencies: Float[np.ndarray, " bins"],
    used: Bool[np.ndarray, " bins"],
    error: float,
) -> bool:
    """Whether a delay and a low-pass of the torque explain the ratio nearly as well.

    They turn its phase step by step, while a resonance turns it where the ratio is very small or
    very large.
    """
    ratio = spectra.ratio[used]
    angle = 2 * np.pi * frequencies[used]
    weight = 1 / np.maximum(spectra.ratio_error[used], LEAST_ERROR * np.abs(ratio))
    for delay in np.linspace(-1, 1, LAGS) * LONGEST_LAG:
        for low_pass in np.linspace(0, 1, LAGS // 4) * LONGEST_LAG:
            lagged = np.exp(-1j * angle * delay) / (1 + 1j * angle * low_pass)
            if _solved([lagged], ratio, weight).error < EXPLAINED * error:
                return True
    return False


class _Fitted(NamedTuple):
    """Both frequencies [Hz], and the mean squared error of the ratio in units of its own."""

    frequency: float
    fixed: float | None
    error: float


class _Solution(NamedTuple):
    weights: Float[np.ndarray, " weights"]
    error: float


def _solved(columns: list[np.ndarray], target: np.ndarray, weight: np.ndarray) -> _Solution:
    """Return real weights by least squares of complex columns, and the mean squared error."""
    stacked = np.stack(columns, axis=1) * weight[:, None]
    rows = np.concatenate([np.real(stacked), np.imag(stacked)])
    wanted = np.concatenate([np.real(target), np.imag(target)]) * np.tile(weight, 2)
    weights = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    return _Solution(weights, float(np.mean((rows @ weights - wanted) ** 2)))
