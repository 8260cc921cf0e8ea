"""What many seeds say together: median and percentiles as in the paper, the interquartile mean and its interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import trim_mean

RESAMPLES = 2000


@dataclass(frozen=True)
class Spread:
    """The spread of a number over seeds.

    Attributes:
        seeds: how many gave a number; of: how many there were. A number that is not finite is no number.
        median, low, high: the 50th, 5th and 95th percentile.
        iqm: the interquartile mean, the mean of the middle half; interval: where it lies with 95 %, None for one seed.
    """

    seeds: int
    of: int
    median: float
    low: float
    high: float
    iqm: float
    interval: tuple[float, float] | None


def spread(values: Float[np.ndarray, " seeds"]) -> Spread | None:
    """Of the finite ones among the values; None if there is none."""
    return pooled([values])


def pooled(strata: Sequence[Float[np.ndarray, "..."]]) -> Spread | None:
    """The spread of several settings together, each a stratum of seeds."""
    finite = [one[np.isfinite(one)] for one in strata]
    values = np.concatenate([np.empty(0), *finite])
    if len(values) == 0:
        return None
    low, median, high = np.percentile(values, (5, 50, 95)).tolist()
    of = sum(len(one) for one in strata)
    return Spread(len(values), of, median, low, high, interquartile_mean(values), bootstrap_interval(finite))


def interquartile_mean(values: Float[np.ndarray, " seeds"]) -> float:
    """The mean without the lowest and the highest quarter, rounded down to whole values."""
    return float(trim_mean(values, 0.25))


def bootstrap_interval(strata: Sequence[Float[np.ndarray, "..."]], *, seed: int = 0) -> tuple[float, float] | None:
    """Where the interquartile mean of all strata together lies with 95 % (Agarwal et al. 2021).

    Seeds are drawn anew within each stratum (a setting, a task), never across: what differs between strata is no
    chance. None if no stratum has a second seed, for then nothing is known of the spread.
    """
    if all(len(one) < 2 for one in strata):
        return None
    random = np.random.default_rng(seed)
    drawn = [one[random.integers(len(one), size=(RESAMPLES, len(one)))] for one in strata if len(one)]
    means = trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1)
    low, high = np.percentile(means, (2.5, 97.5)).tolist()
    return low, high
