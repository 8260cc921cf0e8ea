"""Least squares with cross-validation, and lags of signals to a fraction of a sample."""

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Bool, Float

from .checked_log import Motion

# Number of parts into which the log is cut for cross-validation.
PARTS = 8
# Added to the diagonal of the normal equations, in units of its mean, so that linearly dependent
# columns share their weight.
RIDGE = 1e-8
# Longest lag that is searched [s]; a log with a longer one does not show this robot's motion.
LONGEST_LAG = 0.2
# Number of lags tried, from the longest lead to the longest lag.
TRIED = 41


@dataclass(frozen=True, eq=False)
class CrossValidatedFit:
    """Weights of features, for several targets at once.

    Attributes:
        weights: weights fitted to all rows.
        errors: standard errors of the weights, from the jackknife.
        residual: sum of squared residuals of each part, with the weights fitted without it.
    """

    weights: Float[np.ndarray, "features targets"]
    errors: Float[np.ndarray, "features targets"]
    residual: Float[np.ndarray, "parts targets"]


class Regression:
    """Normal equations of a set of features, to be solved for any targets."""

    def __init__(self, features: Float[np.ndarray, "samples features"]):
        count = features.shape[1]
        self._parts = np.array_split(features, PARTS)
        grams = np.stack([part.T @ part for part in self._parts])
        whole = grams.sum(axis=0)
        ridge = RIDGE * float(np.trace(whole)) / count * np.eye(count)
        self._inverse = np.linalg.pinv(whole + ridge, hermitian=True)
        self._inverses = [np.linalg.pinv(whole - gram + ridge, hermitian=True) for gram in grams]

    @property
    def unique(self) -> Float[np.ndarray, " features"]:
        """Sum of squares of each feature that no combination of the others explains."""
        return 1 / np.maximum(np.diag(self._inverse), 1e-300)

    def fit(self, targets: Float[np.ndarray, "samples targets"]) -> CrossValidatedFit:
        """Fit the weights to all rows, and to all rows but those of each part."""
        pairs = list(zip(self._parts, np.array_split(targets, PARTS), strict=True))
        crosses = np.stack([part.T @ target for part, target in pairs])
        whole = crosses.sum(axis=0)
        without = []
        residual = []
        for inverse, cross, (part, target) in zip(self._inverses, crosses, pairs, strict=True):
            weights = inverse @ (whole - cross)
            without.append(weights)
            residual.append(np.sum((target - part @ weights) ** 2, axis=0))
        deviation = np.stack(without) - np.mean(without, axis=0)
        errors = np.sqrt((PARTS - 1) / PARTS * np.sum(deviation**2, axis=0))
        return CrossValidatedFit(self._inverse @ whole, errors, np.stack(residual))


class RidgeSolver:
    """Normal equations of features, solved for any penalty of the weights."""

    def __init__(self, gram: Float[np.ndarray, "features features"], count: int):
        values, self._vectors = np.linalg.eigh(gram)
        self._values = np.maximum(values, 0.0)
        self._count = count

    def solve(self, cross: np.ndarray, ridge: float) -> np.ndarray:
        """Return the weights for products of features and targets."""
        scaled = (self._vectors.T @ cross).T / (self._values + ridge * self._count)
        return self._vectors @ scaled.T


@dataclass(frozen=True)
class Lag:
    """Lag of a signal, and its certainty.

    Attributes:
        seconds: the lag [s], negative for a lead.
        error: standard error [s], from the differences between parts of the log.
        gain: share of the residual, in parts of the log not fitted, that shifting removes.
        residual: share of the signal's variance that is unexplained at the best lag.
    """

    seconds: float
    error: float
    gain: float
    residual: float

    def certain(self, *, gain: float, errors: float) -> bool:
        """Whether the lag removes this share and is this many times its standard error."""
        return self.gain > gain and abs(self.seconds) > errors * self.error


def find_lag(
    motion: Motion,
    signal: Float[np.ndarray, " samples"],
    features: Float[np.ndarray, "samples features"],
) -> Lag | None:
    """Return the lag at which the features explain a signal best.

    None if the log is too short for that, or if the lag is longer than those tried.
    """
    longest = min(LONGEST_LAG, 1 / motion.cutoff)
    lags = np.linspace(-longest, longest, TRIED)
    inner = _inner(motion, longest)
    if np.count_nonzero(inner) < 2 * max(features.shape[1], PARTS):
        return None
    shifted = _shifted(motion, signal, lags)[inner]
    variation = np.sum((shifted - shifted.mean(axis=0)) ** 2, axis=0)
    if not variation.min() > 0:
        return None
    residual = Regression(features[inner]).fit(shifted).residual / variation
    total = residual.sum(axis=0)
    if not 0 < np.argmin(total) < TRIED - 1:
        return None
    of_parts = np.array([_minimum(lags, part) for part in residual])
    unshifted = float(total[TRIED // 2])
    best = float(total.min())
    gain = 0.0
    if unshifted > 0:
        gain = 1 - best / unshifted
    error = float(np.std(of_parts) / np.sqrt(PARTS))
    return Lag(_minimum(lags, total), error, gain, best)


def lag_error(motion: Motion, values: Float[np.ndarray, " samples"], seconds: float) -> float:
    """Return the error that a lag causes in a signal, as a share of its standard deviation."""
    slopes = []
    for rows in motion.segments:
        if rows.stop - rows.start > 1:
            slopes.append(np.gradient(values[rows], motion.step))
    return abs(seconds) * float(np.std(np.concatenate(slopes)) / np.std(values))


def _inner(motion: Motion, margin: float) -> Bool[np.ndarray, " samples"]:
    """Return a mask of the samples farther than a margin [s] from the ends of their segment."""
    inner = np.zeros(len(motion), dtype=bool)
    for rows in motion.segments:
        t = motion.t[rows]
        inner[rows] = (t >= t[0] + margin) & (t <= t[-1] - margin)
    return inner


def _shifted(
    motion: Motion, signal: Float[np.ndarray, " samples"], lags: Float[np.ndarray, " lags"]
) -> Float[np.ndarray, "samples lags"]:
    """Return the signal at times shifted by each lag, by cubic interpolation inside segments."""
    result = np.empty((len(signal), len(lags)))
    for rows in motion.segments:
        t = motion.t[rows]
        if len(t) < 4:  # too few for a cubic
            result[rows] = signal[rows][:, None]
        else:
            spline = scipy.interpolate.CubicSpline(t, signal[rows])
            result[rows] = spline(np.clip(t[:, None] + lags, t[0], t[-1]))
    return result


def _minimum(places: np.ndarray, costs: np.ndarray) -> float:
    """Return the minimum of a curve, by the parabola through the three lowest neighbours."""
    at = int(np.argmin(costs))
    if not 0 < at < len(places) - 1:
        return float(places[at])
    left, middle, right = costs[at - 1 : at + 2]
    bend = left - 2 * middle + right
    if not bend > 0:
        return float(places[at])
    offset = 0.5 * (left - right) / bend
    return float(places[at] + (places[1] - places[0]) * offset)
