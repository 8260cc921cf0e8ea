"""From rows of a run to curves that can be drawn: few points, evenly in time."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..realtime.live import LEARNING
from .sources import Columns

Curve = Float[np.ndarray, " points"]
Rows = Float[np.ndarray, "time joints"]

SECONDS, POINTS = 12.0, 240
"""How much of the past curves show [s], in how many points: 20 a second."""
ERROR_SECONDS = 0.25
"""Over so long the tracking error is averaged [s]."""
LEAST_ERROR = 1e-6


class Grid(NamedTuple):
    """Moments to draw at [s], the row that each one shows, and whether there is such a row."""

    t: Curve
    rows: np.ndarray
    there: Bool[np.ndarray, " points"]


def grid(columns: Columns, seconds: float = SECONDS, points: int = POINTS) -> Grid:
    """So many moments up to the last row; before the first row there is nothing to see."""
    t = columns["t"][:, 0]
    if len(t) == 0:
        return Grid(np.linspace(-seconds, 0, points), np.zeros(points, dtype=int), np.zeros(points, dtype=bool))
    moments = t[-1] - seconds + seconds * np.arange(1, points + 1) / points
    rows = np.searchsorted(t, moments + 1e-9, side="right") - 1
    return Grid(moments, np.maximum(rows, 0), rows >= 0)


def shown(values: Float[np.ndarray, " time"], at: Grid) -> Curve:
    """A column at the moments of a grid, NaN where there is nothing."""
    if len(values) == 0:
        return np.full(len(at.t), np.nan)
    return np.where(at.there, values[at.rows], np.nan)


def known(t: Curve, *lines: Curve) -> tuple[np.ndarray, ...]:
    """Curves without the moments at which one of them knows nothing: a browser finds no range for an axis among NaN."""
    there = np.isfinite(lines).all(axis=0)
    return (t[there], *(line[there] for line in lines)) if there.any() else (t, *lines)


def tracking_error(columns: Columns, dt: float) -> Rows:
    """Root mean square of q_des − q over the last moment, at every row and for every joint [rad or m]."""
    error = columns["q_des"] - columns["q"]
    width = max(1, round(ERROR_SECONDS / dt))
    total = np.vstack([np.zeros((1, error.shape[1])), np.cumsum(error**2, axis=0)])
    end = np.arange(1, len(error) + 1)
    start = np.maximum(0, end - width)
    return np.sqrt(np.maximum((total[end] - total[start]) / (end - start)[:, None], LEAST_ERROR**2))


def most(values: Float[np.ndarray, " time"], at: Grid) -> Curve:
    """The largest of the rows between two moments of a grid: what is rare is not overlooked."""
    found = np.full(len(at.t), np.nan)
    starts = np.concatenate([[max(0, at.rows[0])], at.rows[:-1] + 1])
    for place in np.flatnonzero(at.there):
        part = values[starts[place] : at.rows[place] + 1]
        if len(part):
            found[place] = part.max()
    return found


def swaps(columns: Columns) -> Float[np.ndarray, " swaps"]:
    """When a new model was taken into use [s]."""
    model = columns["model"][:, 0]
    return columns["t"][1:, 0][np.diff(model) > 0] if len(model) else np.zeros(0)


def rate(count: Float[np.ndarray, " time"], t: Float[np.ndarray, " time"], at: Grid, seconds: float = 1.0) -> Curve:
    """How much a count grew in the second before each moment."""
    if len(count) == 0:
        return np.full(len(at.t), np.nan)
    before = np.maximum(np.searchsorted(t, at.t - seconds), 0)
    before = np.minimum(before, at.rows)
    span = np.maximum(t[at.rows] - t[before], 1e-9)
    grown = (count[at.rows] - count[before]) / span
    return np.where(at.there & (t[at.rows] - t[before] > 0.5 * seconds) & (grown >= 0), grown, np.nan)


def standstill(columns: Columns) -> float:
    """For how long the learner has not trained on a sample [s]; infinite if it told nothing yet."""
    t, trained = columns["t"][:, 0], columns["learner"][:, LEARNING.index("samples")]
    if len(t) == 0 or not np.isfinite(trained[-1]):
        return np.inf
    before = np.flatnonzero(trained != trained[-1])
    return float(t[-1] - t[before[-1] + 1 if len(before) else 0])
