"""From samples to those to learn from and those to judge by: motion that the model has not seen."""

from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from ..errors import DataError
from ..joints import Dataset

BLOCKS, GUARD = 3, 0.2
"""A single prepared motion gives so many runs to validation, each with so many seconds [s] on its sides unused."""
ALIKE, PLACES = 0.05, 100
"""Trajectories repeat one motion if their positions, compared in so many places, differ by no more than this share of
the motion's own deviation."""


def hold_out(dataset: Dataset, share: float, *, key: PRNGKeyArray) -> tuple[Dataset, Dataset]:
    """Training and validation samples, split by whole motions chosen at random.

    Trajectories that repeat one motion stay on one side, for a model that has seen one has seen all. At least one
    motion goes to each side. A dataset of one motion gives the last part of it, uncut, to validation; if it is prepared
    (`counted`), three runs of it. The parts of a prepared dataset keep all rows, but count their own.
    """
    training, validation = split_rows(dataset, share, key=key)
    if dataset.counted is None:
        return dataset.rows(training), dataset.rows(validation)
    return counting(dataset, training), counting(dataset, validation)


def split_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """The part of a fit's key that decides which motion is kept apart, the same for all who take part with that key."""
    return jax.random.split(key, 3)[0]


def split_rows(
    dataset: Dataset, share: float, *, key: PRNGKeyArray
) -> tuple[Bool[np.ndarray, " time"], Bool[np.ndarray, " time"]]:
    """The rows of training and of validation, as `hold_out` parts them."""
    motions = _motions(dataset)
    if len(motions) > 1:
        count = min(max(1, round(share * len(motions))), len(motions) - 1)
        order = np.asarray(jax.random.permutation(key, len(motions)))
        held = np.isin(dataset.trajectory, [label for one in order[:count] for label in motions[one]])
        return ~held, held
    seen, unseen = np.zeros(len(dataset), dtype=bool), np.zeros(len(dataset), dtype=bool)
    for label in motions[0]:
        own = dataset.trajectory == label
        rows = np.flatnonzero(own if dataset.counted is None else own & dataset.counted)
        cut = round((1 - share) * len(rows))
        if not 0 < cut < len(rows):
            raise _too_few(dataset, len(rows), share)
        if dataset.counted is None:
            seen[rows[:cut]] = unseen[rows[cut:]] = True
        else:
            held, near = _blocks(dataset, rows, share)
            seen |= own & ~near
            unseen |= own & held
    counted = dataset.counted
    if counted is not None and not ((seen & counted).any() and (unseen & counted).any()):
        raise _too_few(dataset, int(np.count_nonzero(counted)), share)
    return seen, unseen


def _too_few(dataset: Dataset, count: int, share: float) -> DataError:
    return DataError(dataset.source, f"{count} samples are too few to hold out a share of {share}; record more")


def _motions(dataset: Dataset) -> list[list[int]]:
    """The labels of the trajectories with samples, those together that repeat one motion."""
    samples = dataset.samples
    motions: list[list[int]] = []
    paths: list[np.ndarray] = []
    for label in samples.trajectories:
        q = samples.q[samples.trajectory == label]
        path = q[np.linspace(0, len(q) - 1, PLACES).round().astype(int)]
        for motion, other in zip(motions, paths, strict=True):
            spread = other.std(axis=0)
            if (np.sqrt(np.mean((path - other) ** 2, axis=0)) <= ALIKE * spread + np.finfo(float).tiny).all():
                motion.append(label)
                break
        else:
            motions.append([label])
            paths.append(path)
    return motions


def counting(dataset: Dataset, rows: Bool[np.ndarray, " time"]) -> Dataset:
    """The dataset with none but these rows counted, if they were before."""
    return replace(dataset, counted=rows if dataset.counted is None else dataset.counted & rows)


def _blocks(dataset: Dataset, counted: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Some runs of a trajectory to validate by, the last at its end; and the rows that are too near to them to train
    on, theirs included."""
    first, count = counted[0], counted[-1] + 1 - counted[0]
    length = int(share * count / BLOCKS)
    guard = round(GUARD / float(np.median(np.diff(dataset.t))))
    held, near = np.zeros(len(dataset), dtype=bool), np.zeros(len(dataset), dtype=bool)
    for number in range(1, BLOCKS + 1):
        end = first + count * number // BLOCKS
        held[end - length : end] = True
        near[max(0, end - length - guard) : end + guard] = True
    return held, near
