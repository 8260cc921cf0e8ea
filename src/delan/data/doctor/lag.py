"""By how much signals come later than what others foretell, to a fraction of a sample."""

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from .motion import Motion
from .regression import PARTS, Regression

LONGEST_LAG = 0.2
"""The longest delay looked for [s]; a log with a longer one is no log of this robot's motion."""
TRIED = 41
"""Delays tried, from the longest lead to the longest lag."""


@dataclass(frozen=True)
class Lag:
    """A delay and how sure it is.

    Attributes:
        seconds: by which the signal comes late; negative if it comes early.
        error: standard error [s], by how the parts of the log disagree.
        gain: share of what is unexplained, in parts of the log not fitted, that goes away with the delay.
        left: share of the signal's variance that stays unexplained at the best delay.
    """

    seconds: float
    error: float
    gain: float
    left: float


@dataclass(frozen=True, eq=False)
class DelayScan:
    """What is unexplained of one signal, in shares of its variance, for each part of the log and each delay tried."""

    delays: Float[np.ndarray, " delays"]
    left: Float[np.ndarray, "parts delays"]


def scan_delays(
    motion: Motion, signal: Float[np.ndarray, " samples"], features: Float[np.ndarray, "samples features"]
) -> DelayScan | None:
    """How well a combination of features explains the signal at each delay; None if the log is too short to tell."""
    longest = min(LONGEST_LAG, 1 / motion.cutoff)
    delays = np.linspace(-longest, longest, TRIED)
    inner = _inside(motion, longest)
    if np.count_nonzero(inner) < 2 * max(features.shape[1], PARTS):
        return None
    tried = _shifted(motion, signal, delays)[inner]
    whole = np.sum((tried - tried.mean(axis=0)) ** 2, axis=0)
    if not whole.min() > 0:
        return None
    return DelayScan(delays, Regression(features[inner]).fit(tried).left / whole)


def best_lag(scan: DelayScan) -> Lag | None:
    """The delay that explains the signal best; None if it is longer than those tried."""
    delays, left = scan.delays, scan.left
    total = left.sum(axis=0)
    if not 0 < np.argmin(total) < TRIED - 1:
        return None
    seconds = np.array([_minimum(delays, part) for part in left])
    error = float(np.std(seconds)) / np.sqrt(PARTS)
    now, then = float(total[TRIED // 2]), float(total.min())
    return Lag(_minimum(delays, total), error, 1 - then / now if now > 0 else 0.0, then)


def harm(motion: Motion, values: Float[np.ndarray, " samples"], seconds: float) -> float:
    """How wrong a delay makes a signal, as a share of its deviation; its slope is taken inside each stretch."""
    slopes = [np.gradient(values[rows], motion.step) for rows in motion.stretches if rows.stop - rows.start > 1]
    return abs(seconds) * float(np.std(np.concatenate(slopes)) / np.std(values))


def _shifted(
    motion: Motion, signal: Float[np.ndarray, " samples"], delays: Float[np.ndarray, " delays"]
) -> Float[np.ndarray, "samples delays"]:
    """The signal as it is so many seconds later, by cubic interpolation inside each stretch."""
    result = np.empty((len(signal), len(delays)))
    for rows in motion.stretches:
        t, own = motion.t[rows], signal[rows]
        if len(t) < 4:
            result[rows] = own[:, None]
        else:
            result[rows] = scipy.interpolate.CubicSpline(t, own)(np.clip(t[:, None] + delays, t[0], t[-1]))
    return result


def _inside(motion: Motion, margin: float) -> np.ndarray:
    """The samples that are further than a margin [s] from the ends of their stretch."""
    kept = np.zeros(len(motion), dtype=bool)
    for rows in motion.stretches:
        t = motion.t[rows]
        kept[rows] = (t >= t[0] + margin) & (t <= t[-1] - margin)
    return kept


def _minimum(places: np.ndarray, costs: np.ndarray) -> float:
    """Where a curve is lowest, by the parabola through its three lowest neighbours."""
    at = int(np.argmin(costs))
    if not 0 < at < len(places) - 1:
        return float(places[at])
    left, middle, right = costs[at - 1 : at + 2]
    bend = left - 2 * middle + right
    return float(places[at] + (places[1] - places[0]) * (0.5 * (left - right) / bend if bend > 0 else 0.0))
