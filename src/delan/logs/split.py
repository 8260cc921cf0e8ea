"""Split into training and validation samples: validation is motion that the model has not seen."""

from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from ..errors import DataError
from ..joints import Dataset
from .segments import usual_step

# A single prepared motion gives this many blocks to validation: its parts are seldom alike.
BLOCKS = 3

# Unused time on both sides of a block [s]: filters spread information over neighbouring rows.
GUARD = 0.2

# Trajectories repeat one motion if the RMS difference of their positions at this many points is
# less than this share of the motion's standard deviation.
ALIKE = 0.05
POINTS = 100

Mask = Bool[np.ndarray, " time"]


def hold_out(dataset: Dataset, share: float, *, key: PRNGKeyArray) -> tuple[Dataset, Dataset]:
    """Return training and validation samples, split by whole motions chosen at random.

    Trajectories that repeat one motion stay together, because a model that has learned one knows
    all. Each side gets at least one motion. A dataset of one motion gives its last part to
    validation or, if it is prepared (`counted`), three blocks. Both parts of a prepared dataset
    hold all rows and differ in those that count.
    """
    training, validation = split_rows(dataset, share, key=key)
    if dataset.counted is None:
        return dataset.rows(training), dataset.rows(validation)
    return counting(dataset, training), counting(dataset, validation)


def split_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return the part of a fit's key that chooses the validation motions."""
    return jax.random.split(key, 3)[0]


def split_rows(dataset: Dataset, share: float, *, key: PRNGKeyArray) -> tuple[Mask, Mask]:
    """Return the masks of the training and of the validation rows of `hold_out`."""
    motions = _motions(dataset)
    if len(motions) > 1:
        count = min(max(1, round(share * len(motions))), len(motions) - 1)
        order = np.asarray(jax.random.permutation(key, len(motions)))
        labels = []
        for number in order[:count]:
            labels += motions[number]
        held_out = np.isin(dataset.trajectory, labels)
        return ~held_out, held_out
    training = np.zeros(len(dataset), dtype=bool)
    validation = np.zeros(len(dataset), dtype=bool)
    counted = dataset.counted
    for label in motions[0]:
        inside = dataset.trajectory == label
        rows = np.flatnonzero(inside if counted is None else inside & counted)
        cut = round((1 - share) * len(rows))
        if not 0 < cut < len(rows):
            raise _too_few(dataset, len(rows), share)
        if counted is None:
            training[rows[:cut]] = True
            validation[rows[cut:]] = True
        else:
            held_out, guarded = _blocks(dataset, rows, share)
            training |= inside & ~guarded
            validation |= inside & held_out
    if counted is not None and not ((training & counted).any() and (validation & counted).any()):
        raise _too_few(dataset, int(np.count_nonzero(counted)), share)
    return training, validation


def counting(dataset: Dataset, rows: Mask) -> Dataset:
    """Return the dataset with only those of the given rows counted that were counted before."""
    if dataset.counted is not None:
        rows = dataset.counted & rows
    return replace(dataset, counted=rows)


def _too_few(dataset: Dataset, count: int, share: float) -> DataError:
    problem = f"{count} samples are too few to hold out a share of {share}; record more"
    return DataError(dataset.source, problem)


def _motions(dataset: Dataset) -> list[list[int]]:
    """Return the labels of the trajectories with samples, grouped by the motion they repeat."""
    samples = dataset.samples
    motions: list[list[int]] = []
    paths: list[Float[np.ndarray, "points dof"]] = []
    for label in samples.trajectories:
        q = samples.q[samples.trajectory == label]
        path = q[np.linspace(0, len(q) - 1, POINTS).round().astype(int)]
        for motion, other in zip(motions, paths, strict=True):
            difference = np.sqrt(np.mean((path - other) ** 2, axis=0))
            # The smallest float lets joints at rest, which have no deviation, be equal.
            if (difference <= ALIKE * other.std(axis=0) + np.finfo(float).tiny).all():
                motion.append(label)
                break
        else:
            motions.append([label])
            paths.append(path)
    return motions


def _blocks(dataset: Dataset, counted: np.ndarray, share: float) -> tuple[Mask, Mask]:
    """Return the rows of the validation blocks of a trajectory, and these with their guards.

    The last block lies at the end of the trajectory.
    """
    first = counted[0]
    count = counted[-1] + 1 - first
    length = int(share * count / BLOCKS)
    guard = round(GUARD / usual_step(dataset.t))
    held_out = np.zeros(len(dataset), dtype=bool)
    guarded = np.zeros(len(dataset), dtype=bool)
    for number in range(1, BLOCKS + 1):
        end = first + count * number // BLOCKS
        held_out[end - length : end] = True
        guarded[max(0, end - length - guard) : end + guard] = True
    return held_out, guarded
