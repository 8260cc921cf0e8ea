"""What friction with memory remembers at every sample of a dataset."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..joints import Dataset
from ..logs.filters import FEWEST, smoothed
from ..mechanics.friction_curves import stop
from .friction import Friction


def memory_of(model: Any, dataset: Dataset) -> np.ndarray | None:
    """What the stop operators in a model's friction remember at every sample; None for a model
    without.
    """
    return remembered(model.friction, dataset) if model.promises.memory else None


def remembered(actuator: Friction, dataset: Dataset) -> np.ndarray | None:
    """What the stop operators of an actuator remember at every sample; None if it has none.

    They begin relaxed where time does not go on. Where the torque went through a filter, so does
    the memory.
    """
    if not actuator.settings.stops:
        return None
    memory = _along(
        dataset.q @ actuator.transmission.T, _begins(dataset), np.array(actuator.settings.stops)
    )
    if dataset.preparation is not None and dataset.preparation.cutoff is not None:
        memory = _filtered(memory, dataset, dataset.preparation.cutoff[0])
    return memory if dataset.counted is None else memory[dataset.counted]


def _along(position: np.ndarray, begins: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """s/r of stop operators along the motions of motors, as `Friction.remember` has it but compiled
    once for many.
    """
    count = len(position)
    more = max(256, 1 << (count - 1).bit_length()) - count
    position = np.pad(position, ((0, more), (0, 0)), mode="edge")
    with jax.enable_x64(True):
        rows = (jnp.asarray(position), jnp.asarray(np.pad(begins, (0, more))))
        return np.asarray(_scan(*rows, jnp.asarray(radii)))[:count]


@jax.jit
def _scan(position: Array, begins: Array, radii: Array) -> Array:
    def step(
        state: tuple[Array, Array], row: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        before, stretched = state
        now, begins = row
        moved = jnp.where(begins, 0.0, stop(stretched, (now - before)[None], radii[:, None]))
        return (now, moved), moved / radii[:, None]

    start = (position[0], jnp.zeros_like(position, shape=(len(radii), position.shape[1])))
    return jax.lax.scan(step, start, (position, begins))[1]


def _begins(dataset: Dataset) -> np.ndarray:
    """The rows before which nothing is known: a trajectory begins, and time does not run on from
    the row before.
    """
    steps = np.diff(dataset.t)
    usual = np.median(steps) if len(steps) else 0.0
    apart = (steps <= 0) | (steps > 1.5 * usual)
    return np.concatenate([[True], (np.diff(dataset.trajectory) != 0) & apart])


def _filtered(memory: np.ndarray, dataset: Dataset, cutoff: float) -> np.ndarray:
    edges = [*np.flatnonzero(_begins(dataset)).tolist(), len(dataset)]
    rate = 1 / float(np.median(np.diff(dataset.t)))
    pieces = [memory[first:end] for first, end in itertools.pairwise(edges)]
    return np.concatenate(
        [smoothed(one, rate, cutoff) if len(one) >= FEWEST else one for one in pieces]
    )
