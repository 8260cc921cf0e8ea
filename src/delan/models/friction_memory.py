"""The memory of friction at every sample of a dataset: the stop operators along its motions."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..joints import Dataset
from ..logs.filters import FEWEST, smoothed
from ..mechanics.friction_terms import stop
from .friction import Friction

StopRows = Float[np.ndarray, "time stops motors"]

# A trajectory continues the one before it if the step of time between them is at most this many
# usual steps. `logs.segments.GAP` is larger: it judges the steps inside a trajectory, which jitter.
CONTINUES = 1.5
# Rows are padded to a power of two, at least to this one, so that datasets of many lengths share
# few compiled programs.
FEWEST_ROWS = 256


def memory_of(model: Any, dataset: Dataset) -> StopRows | None:
    """Return the memory of a model's friction at every sample; None for friction without memory."""
    if not model.promises.memory:
        return None
    return remembered(model.friction, dataset)


def remembered(friction: Friction, dataset: Dataset) -> StopRows | None:
    """Return s/r of the stop operators at every sample; None for friction without them.

    They begin relaxed where time does not continue. If the torque was filtered, so is the memory.
    """
    radii = np.array(friction.settings.stops)
    if not len(radii):
        return None
    begins = _begins(dataset)
    memory = _along(dataset.q @ friction.transmission.T, begins, radii)
    if dataset.preparation is not None and dataset.preparation.cutoff is not None:
        memory = _smoothed(memory, begins, dataset.t, dataset.preparation.cutoff[0])
    if dataset.counted is None:
        return memory
    return memory[dataset.counted]


def _begins(dataset: Dataset) -> Bool[np.ndarray, " time"]:
    """Return the mask of rows whose past is unknown: a trajectory begins after a break in time."""
    steps = np.diff(dataset.t)
    usual = 0.0
    if len(steps):
        usual = np.median(steps)
    apart = (steps <= 0) | (steps > CONTINUES * usual)
    return np.concatenate([[True], (np.diff(dataset.trajectory) != 0) & apart])


def _along(position: np.ndarray, begins: np.ndarray, radii: np.ndarray) -> StopRows:
    """Return s/r along motor positions, like `Friction.remember` but compiled once for many."""
    count = len(position)
    more = max(FEWEST_ROWS, 1 << (count - 1).bit_length()) - count
    position = np.pad(position, [[0, more], [0, 0]], mode="edge")
    with jax.enable_x64(True):
        return np.asarray(_scan(position, np.pad(begins, (0, more)), radii))[:count]


@jax.jit
def _scan(
    position: Float[Array, "time motors"],
    begins: Bool[Array, " time"],
    radii: Float[Array, " stops"],
) -> Float[Array, "time stops motors"]:
    def step(
        state: tuple[Array, Array], row: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        before, stretched = state
        now, begins = row
        moved = jnp.where(begins, 0.0, stop(stretched, (now - before)[None], radii[:, None]))
        return (now, moved), moved / radii[:, None]

    start = (position[0], jnp.zeros_like(position, shape=(len(radii), position.shape[1])))
    return jax.lax.scan(step, start, (position, begins))[1]


def _smoothed(memory: StopRows, begins: np.ndarray, t: np.ndarray, cutoff: float) -> StopRows:
    """Return the memory after the filter of the torque, each motion by itself."""
    rate = 1 / float(np.median(np.diff(t)))
    edges = [*np.flatnonzero(begins).tolist(), len(t)]
    memory = memory.copy()
    for first, end in itertools.pairwise(edges):
        # A motion with fewer rows is too short for the filter and stays as it is.
        if end - first >= FEWEST:
            memory[first:end] = smoothed(memory[first:end], rate, cutoff)
    return memory
