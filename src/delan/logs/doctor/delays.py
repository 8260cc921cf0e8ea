"""Lags of signals behind a prediction, to a fraction of a sample, and the lag of the torques."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Bool, Float

from . import cases
from .finding import Finding
from .motion import Motion

# Number of parts into which the log is cut.
PARTS = 8
# Added to the diagonal of the normal equations, in units of its mean, so that linearly dependent
# columns share their weight.
RIDGE = 1e-8


@dataclass(frozen=True, eq=False)
class CrossValidatedFit:
    """Weights of features, for several targets at once.

    Attributes:
        weights: weights fitted to all rows.
        without: weights fitted to all rows except those of each part.
        residual: sum of squared residuals of each part, with the weights fitted without it.
    """

    weights: Float[np.ndarray, "features targets"]
    without: Float[np.ndarray, "parts features targets"]
    residual: Float[np.ndarray, "parts targets"]

    @property
    def errors(self) -> Float[np.ndarray, "features targets"]:
        """Standard errors of the weights, from the jackknife."""
        deviation = self.without - self.without.mean(axis=0)
        return np.sqrt((PARTS - 1) / PARTS * np.sum(deviation**2, axis=0))


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
        target_parts = np.array_split(targets, PARTS)
        pairs = list(zip(self._parts, target_parts, strict=True))
        crosses = np.stack([part.T @ target for part, target in pairs])
        whole = crosses.sum(axis=0)
        without = []
        residual = []
        for inverse, cross, (part, target) in zip(self._inverses, crosses, pairs, strict=True):
            weights = inverse @ (whole - cross)
            without.append(weights)
            residual.append(np.sum((target - part @ weights) ** 2, axis=0))
        return CrossValidatedFit(self._inverse @ whole, np.stack(without), np.stack(residual))


# Longest lag that is searched [s]; a log with a longer one does not show this robot's motion.
LONGEST_LAG = 0.2
# Number of lags tried, from the longest lead to the longest lag.
TRIED = 41

# A lag is reported if it makes the torque wrong by this share of its standard deviation, ...
HARM = 0.03
# ... if shifting removes this share of the residual, ...
GAIN = 0.25
# ... and if it is this many times its standard error.
CERTAINTY = 5.0
# One clock makes one lag: those of the joints then differ by less than this share of it.
ALIKE = 0.3


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


@dataclass(frozen=True, eq=False)
class LagScan:
    """Residual of a signal, as share of its variance, for each part of the log and each lag."""

    lags: Float[np.ndarray, " lags"]
    residual: Float[np.ndarray, "parts lags"]


def scan_lags(
    motion: Motion,
    signal: Float[np.ndarray, " samples"],
    features: Float[np.ndarray, "samples features"],
) -> LagScan | None:
    """Explain the signal by the features at each lag; None if the log is too short for that."""
    longest = min(LONGEST_LAG, 1 / motion.cutoff)
    lags = np.linspace(-longest, longest, TRIED)
    inner = _inner(motion, longest)
    if np.count_nonzero(inner) < 2 * max(features.shape[1], PARTS):
        return None
    shifted = _shifted(motion, signal, lags)[inner]
    whole = np.sum((shifted - shifted.mean(axis=0)) ** 2, axis=0)
    if not whole.min() > 0:
        return None
    return LagScan(lags, Regression(features[inner]).fit(shifted).residual / whole)


def best_lag(scan: LagScan) -> Lag | None:
    """Return the lag that explains the signal best, None if it is longer than those tried."""
    total = scan.residual.sum(axis=0)
    if not 0 < np.argmin(total) < TRIED - 1:
        return None
    of_parts = np.array([_minimum(scan.lags, part) for part in scan.residual])
    unshifted = float(total[TRIED // 2])
    best = float(total.min())
    return Lag(
        seconds=_minimum(scan.lags, total),
        error=float(np.std(of_parts)) / np.sqrt(PARTS),
        gain=1 - best / unshifted if unshifted > 0 else 0.0,
        residual=best,
    )


def lag_error(motion: Motion, values: Float[np.ndarray, " samples"], seconds: float) -> float:
    """Return the error that a lag causes in a signal, as a share of its standard deviation."""
    slopes = []
    for rows in motion.segments:
        if rows.stop - rows.start > 1:
            slopes.append(np.gradient(values[rows], motion.step))
    return abs(seconds) * float(np.std(np.concatenate(slopes)) / np.std(values))


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


def _inner(motion: Motion, margin: float) -> Bool[np.ndarray, " samples"]:
    """Return a mask of the samples farther than a margin [s] from the ends of their segment."""
    inner = np.zeros(len(motion), dtype=bool)
    for rows in motion.segments:
        t = motion.t[rows]
        inner[rows] = (t >= t[0] + margin) & (t <= t[-1] - margin)
    return inner


def _minimum(places: np.ndarray, costs: np.ndarray) -> float:
    """Return the minimum of a curve, by the parabola through the three lowest neighbours."""
    at = int(np.argmin(costs))
    if not 0 < at < len(places) - 1:
        return float(places[at])
    left, middle, right = costs[at - 1 : at + 2]
    bend = left - 2 * middle + right
    offset = 0.5 * (left - right) / bend if bend > 0 else 0.0
    return float(places[at] + (places[1] - places[0]) * offset)


@dataclass(frozen=True, eq=False)
class Explanation:
    """Features of a joint's torque, and the share they must explain for a lag to be believed."""

    features: Float[np.ndarray, "samples features"]
    enough: float


def examine_delays(motion: Motion, explanations: Mapping[int, Explanation]) -> list[Finding]:
    """Report lags of the torques behind the motion.

    Drives and sensors of a robot share a bus, so a lag of most joints is one of all joints. Lags
    that differ between joints do not come from a clock: joints that stick and elastic drives
    separate torque and motion, too.
    """
    lags: dict[int, Lag] = {}
    for joint, explanation in explanations.items():
        lag = _certain_lag(motion, joint, explanation)
        if lag is not None:
            lags[joint] = lag
    if not lags:
        return []
    seconds = np.array([lag.seconds for lag in lags.values()])
    usual = float(np.median(seconds))
    if np.abs(seconds - usual).max() > ALIKE * abs(usual):
        measured = {"milliseconds": {joint: 1e3 * lag.seconds for joint, lag in lags.items()}}
        return [Finding(cases.SCATTERED_LAGS, "note", None, "tau", measured)]
    if 1 < len(explanations) < 2 * len(lags):
        return [_torque_lag(motion, None, usual, lags)]
    return [_torque_lag(motion, joint, lag.seconds, {joint: lag}) for joint, lag in lags.items()]


def _certain_lag(motion: Motion, joint: int, explanation: Explanation) -> Lag | None:
    """Return the lag of a joint's torque if it is harmful and certain."""
    tau = motion.logged["tau"][:, joint]
    scan = scan_lags(motion, tau, explanation.features)
    lag = None if scan is None else best_lag(scan)
    if lag is None or lag.residual > 1 - explanation.enough:
        return None
    if lag.gain <= GAIN or abs(lag.seconds) <= CERTAINTY * lag.error:
        return None
    return lag if lag_error(motion, tau, lag.seconds) > HARM else None


def _torque_lag(
    motion: Motion, joint: int | None, seconds: float, lags: Mapping[int, Lag]
) -> Finding:
    errors = [lag_error(motion, motion.logged["tau"][:, number], seconds) for number in lags]
    lagging = seconds > 0
    measured = {
        "verb": "lags" if lagging else "leads",
        "direction": "earlier" if lagging else "later",
        "milliseconds": 1e3 * abs(seconds),
        "error": max(errors),
        "gain": max(lag.gain for lag in lags.values()),
    }
    return Finding(cases.TORQUE_LAG, "warning", joint, "tau", measured)
