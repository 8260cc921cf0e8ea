"""Split into training and validation samples: validation is motion that the model has not seen.

Excitation repeats itself: periods of one motion, the same motion on another day. A model that has
memorised one repeat knows all of them, so that repeats stay on one side of every split. A log is
cut into folds, each left out in turn, so that all of its motion takes part in a choice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from ..errors import DataError
from ..joints import Dataset, evenly_spaced, nonzero_scale
from .segments import usual_step

# The most folds that a log is cut into. Each leaves a fifth of the motion out.
FOLDS = 5
# A fold of a long log is made of up to this many blocks, none shorter than this [s]: motions of one
# log differ, and every fold should hold some of each.
BLOCKS = 3
BLOCK_SECONDS = 4.0
# Unused time on both sides of a block [s]: filters spread information over neighbouring rows.
GUARD = 0.2

# Trajectories repeat one motion if the RMS difference of their positions at this many points is
# less than this share of the motion's standard deviation.
ALIKE = 0.05
POINTS = 100

# The most rows that are compared with each other to find repeats inside a log.
ROWS = 2500
# A state repeats an earlier one that is at least this much older [s], ...
APART = 0.5
# ... if the RMS difference of their coordinates, in standard deviations of the log, is below this,
# or below the distance of its own neighbours in time, up to the following bound.
REPEATED = 0.05
MOST_REPEATED = 0.3
# Blocks shorter than this [s] are noise of that comparison.
FLICKER = 0.5
# Held-out motion is new if it is this many times as far from the training motion as neighbours in
# time are from each other.
NEW = 3.0

Mask = Bool[np.ndarray, " time"]
States = Float[np.ndarray, "rows coordinates"]


class Fold(NamedTuple):
    """One way to leave motion out.

    Attributes:
        training, validation: masks of the rows on either side.
        novelty: median distance of the validation states (q, q̇) from the nearest training state,
            over that of neighbours in time; NaN where it was not measured.
    """

    training: Mask
    validation: Mask
    novelty: float = float("nan")


@dataclass(frozen=True, eq=False)
class Split:
    """The folds of a dataset, and the share of its rows that are not repeats of earlier ones."""

    folds: tuple[Fold, ...]
    distinct: float = 1.0

    @property
    def novelty(self) -> float:
        """The median novelty of the folds."""
        return float(np.median([fold.novelty for fold in self.folds]))

    @property
    def is_new(self) -> bool:
        """Whether the folds leave out motion that is unlike the rest; unknown counts as new."""
        return not self.novelty < NEW


def hold_out(dataset: Dataset, share: float, *, key: PRNGKeyArray) -> tuple[Dataset, Dataset]:
    """Return training and validation samples: the first fold of `split`.

    Both parts of a prepared dataset (`counted`) hold all rows and differ in those that count.
    """
    fold = split(dataset, share, key=key).folds[0]
    return side(dataset, fold.training), side(dataset, fold.validation)


def side(dataset: Dataset, rows: Mask) -> Dataset:
    """Return one side of a fold; a prepared dataset keeps all rows, for friction with memory."""
    return dataset.rows(rows) if dataset.counted is None else counting(dataset, rows)


def counting(dataset: Dataset, rows: Mask) -> Dataset:
    """Return the dataset with only those of the given rows counted that were counted before."""
    if dataset.counted is not None:
        rows = dataset.counted & rows
    return replace(dataset, counted=rows)


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """Return NumPy's random numbers of a key: JAX compiles a program for every shape it draws."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def split_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return the part of a fit's key that chooses the validation motions."""
    return jax.random.split(key, 3)[0]


def split(dataset: Dataset, share: float, *, key: PRNGKeyArray) -> Split:
    """Return the folds of a dataset, each of which leaves about a share of it out.

    A dataset of several motions that was not prepared is split by whole motions, drawn at random;
    one of a single motion gives its end to validation. A prepared log is cut into blocks of time,
    and what repeats a block goes with it.
    """
    if dataset.counted is not None:
        return _split_log(dataset, share)
    motions = _motions(dataset)
    if len(motions) > 1:
        return Split(tuple(_by_motion(dataset, motions, share, key)))
    training = np.zeros(len(dataset), dtype=bool)
    for label in motions[0]:
        rows = np.flatnonzero(dataset.trajectory == label)
        cut = round((1 - share) * len(rows))
        if not 0 < cut < len(rows):
            raise _too_few(dataset, len(rows), share)
        training[rows[:cut]] = True
    return Split((Fold(training, ~training),))


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


def _by_motion(
    dataset: Dataset, motions: list[list[int]], share: float, key: PRNGKeyArray
) -> Iterator[Fold]:
    """Yield folds of whole motions, a share of them in each and at least one."""
    count = min(max(1, round(share * len(motions))), len(motions) - 1)
    order = generator(key).permutation(len(motions))
    for number in range(min(FOLDS, len(motions) // count)):
        labels = []
        for motion in order[number * count : (number + 1) * count]:
            labels += motions[motion]
        held_out = np.isin(dataset.trajectory, labels)
        yield Fold(~held_out, held_out)


def _split_log(dataset: Dataset, share: float) -> Split:
    """Cut a prepared log into blocks of equally much motion, repeats counted once."""
    assert dataset.counted is not None
    places = np.flatnonzero(dataset.counted)
    step = usual_step(dataset.t)
    folds = int(np.clip(round(1 / share), 2, FOLDS))
    guard = round(GUARD / step)
    # Each fold needs at least one sample beyond the guards beside it.
    if len(places) < 2 * folds:
        raise _too_few(dataset, len(places), share)
    rows = places[evenly_spaced(len(places), ROWS)]
    compared = dataset.rows(rows)
    states = state_coordinates(compared)
    spacing = _spacing(compared, states)
    first = _first_occurrence(compared, states, spacing)
    own = first == np.arange(len(rows))
    distinct = float(own.mean())
    seconds = distinct * len(places) * float(np.median(np.diff(dataset.t[places])))
    per_fold = int(np.clip(seconds / (folds * BLOCK_SECONDS), 1, BLOCKS))
    # The rank of each state among those that repeat none; blocks have equally many of these.
    rank = (np.cumsum(own) - 1)[first]
    block = rank * folds * per_fold // (rank.max() + 1)
    width = round(FLICKER / float(np.median(np.diff(dataset.t[rows]))))
    fold = _steady(block, 2 * (width // 2) + 1) % folds
    nearest = np.clip(np.searchsorted(rows, np.arange(len(dataset))), 0, len(rows) - 1)
    of_row = fold[nearest]
    made = []
    for number in range(folds):
        held_out = of_row == number
        guarded = scipy.ndimage.binary_dilation(held_out, iterations=max(1, guard))
        training = ~guarded
        if not ((training & dataset.counted).any() and (held_out & dataset.counted).any()):
            raise _too_few(dataset, len(places), share)
        novelty = _novelty(states, fold == number, training[rows], spacing)
        made.append(Fold(training, held_out, novelty))
    return Split(tuple(made), distinct)


def state_coordinates(dataset: Dataset) -> States:
    """Return (q, q̇) of every row in standard deviations of the dataset.

    An angle without end stops is a point on the circle.
    """
    columns = []
    for joint, turns in enumerate(dataset.joints.continuous):
        angle = dataset.q[:, joint]
        columns += [np.cos(angle), np.sin(angle)] if turns else [angle]
    columns += list(dataset.qd.T)
    states = np.stack(columns, axis=1)
    return (states - states.mean(axis=0)) / nonzero_scale(states.std(axis=0))


def _spacing(dataset: Dataset, states: States) -> Float[np.ndarray, " rows"]:
    """Return the RMS distance of each state from the farther of its neighbours in time."""
    steps = np.sqrt(np.mean(np.diff(states, axis=0) ** 2, axis=1))
    dt = np.diff(dataset.t)
    # Across a break in time neighbours are no neighbours.
    steps[(np.diff(dataset.trajectory) != 0) | (dt <= 0) | (dt > 3 * np.median(dt))] = 0.0
    return np.maximum(np.append(steps, 0.0), np.append(0.0, steps))


def _distances(
    one: Float[np.ndarray, "one coordinates"], other: Float[np.ndarray, "other coordinates"]
) -> Float[np.ndarray, "one other"]:
    """Return the RMS differences of the coordinates of all pairs of states."""
    square = np.sum(one**2, axis=1)[:, None] + np.sum(other**2, axis=1) - 2 * one @ other.T
    return np.sqrt(np.maximum(square, 0.0) / one.shape[1])


def _first_occurrence(
    dataset: Dataset, states: States, spacing: Float[np.ndarray, " rows"]
) -> Int[np.ndarray, " rows"]:
    """Return for each row the first row whose state it repeats; itself if it repeats none."""
    reach = np.clip(spacing, REPEATED, MOST_REPEATED)
    first = np.arange(len(states))
    for row in range(1, len(states)):
        earlier = slice(0, row)
        distance = _distances(states[row : row + 1], states[earlier])[0]
        same = dataset.trajectory[earlier] == dataset.trajectory[row]
        recent = same & (np.abs(dataset.t[earlier] - dataset.t[row]) < APART)
        distance[recent] = np.inf
        nearest = int(np.argmin(distance))
        if distance[nearest] <= reach[row]:
            first[row] = first[nearest]
    return first


def _steady(block: Int[np.ndarray, " rows"], width: int) -> Int[np.ndarray, " rows"]:
    """Return the median block of the rows around each row."""
    return scipy.ndimage.median_filter(block, size=max(1, width), mode="nearest")


def _novelty(
    states: States, held_out: Mask, training: Mask, spacing: Float[np.ndarray, " rows"]
) -> float:
    """Return how far held-out states are from training states, over the distance of neighbours."""
    if not (held_out.any() and training.any()):
        return float("nan")
    nearest = _distances(states[held_out], states[training]).min(axis=1)
    usual = float(np.median(spacing))
    return float(np.median(nearest)) / max(usual, np.finfo(float).tiny)
