"""How sure an error is: the interval in which it would lie had the same robot been recorded on another day."""

from dataclasses import dataclass
from itertools import pairwise

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ..joints import Dataset

SURE = 0.9
"""Share of the resamples that an interval holds."""
RESAMPLES = 1000
BLOCK_SECONDS, MOST_SHARE = 1.0, 1 / 12
"""Length of a block [s], and the share of all motion that it is at most: a few blocks tell nothing of their spread."""
FEWEST = 4
"""Blocks below which there is no interval."""


@dataclass(frozen=True)
class NmseInterval:
    """The lower and the upper end of each joint's nMSE and of their mean, NaN where nothing can be said."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    mean_low: float
    mean_high: float


def nmse_interval(
    errors: Float[np.ndarray, "time dof"],
    torque: Float[np.ndarray, "time dof"],
    blocks: Int[np.ndarray, " time"],
    key: PRNGKeyArray,
) -> NmseInterval:
    """A 90 % interval of the nMSE by drawing blocks of rows anew, MSE and variance of the same draw.

    Errors of neighbours in time are alike, so that single rows would promise more than they know: `blocks` labels the
    rows that are drawn together, as `time_blocks` gives them.
    """
    labels, block = np.unique(blocks, return_inverse=True)
    dof, count = errors.shape[1], len(labels)
    if count < FEWEST:
        nothing = (float("nan"),) * dof
        return NmseInterval(nothing, nothing, float("nan"), float("nan"))
    centred = torque - torque.mean(axis=0)
    columns = np.concatenate([np.ones((len(errors), 1)), errors**2, centred, centred**2], axis=1)
    sums = np.zeros((count, columns.shape[1]))
    np.add.at(sums, block, columns)
    drawn = np.asarray(jax.random.randint(key, (RESAMPLES, count), 0, count))
    total = np.stack([sums[one].sum(axis=0) for one in drawn])
    squared, mean, power = np.split(total[:, 1:] / total[:, :1], 3, axis=1)
    variance = power - mean**2
    moved = torque.var(axis=0) > 0
    nmse = np.full_like(squared, np.nan)
    np.divide(squared, variance, out=nmse, where=(variance > 0) & moved)
    return NmseInterval(*_ends(nmse), *(end[0] for end in _ends(nmse[:, moved].mean(axis=1, keepdims=True))))


def _ends(values: Float[np.ndarray, "draws columns"]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    low, high = np.percentile(values, [50 * (1 - SURE), 50 * (1 + SURE)], axis=0)
    return tuple(low.tolist()), tuple(high.tolist())


def time_blocks(dataset: Dataset) -> Int[np.ndarray, " time"]:
    """Labels of about a second of motion each, for the samples of a dataset; no block reaches over a break in time."""
    one = dataset.samples
    runs = runs_of(one)
    whole = sum(float(one.t[end - 1] - one.t[first]) for first, end in runs)
    length = min(BLOCK_SECONDS, MOST_SHARE * whole)
    labels, last = np.zeros(len(one), dtype=int), 0
    for first, end in runs:
        into = one.t[first:end] - one.t[first]
        parts = max(1, round(float(into[-1]) / length)) if length > 0 else 1
        labels[first:end] = last + np.minimum(parts * into / max(float(into[-1]), 1e-12), parts - 0.5).astype(int)
        last = int(labels[end - 1]) + 1
    return labels


def runs_of(samples: Dataset) -> list[tuple[int, int]]:
    """Rows [first, end) in which time runs on evenly inside one trajectory."""
    steps = np.diff(samples.t)
    forward = steps[steps > 0]
    usual = float(np.median(forward)) if len(forward) else 0.0
    broken = (np.diff(samples.trajectory) != 0) | (steps <= 0) | (steps > 2.5 * usual)
    return list(pairwise([0, *(np.flatnonzero(broken) + 1).tolist(), len(samples)]))
