"""From a raw recording to samples, and from samples to training and validation sets."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import DataError
from ..joints import Dataset, Recording
from .checks import require_sound


def prepare(recording: Recording) -> Dataset:
    """Samples with velocities and accelerations; what was not logged is differentiated inside each trajectory.

    The differences are central and plain (second order), fit for clean signals; noise in q grows with 1/dt².
    """
    require_sound(recording)
    qd = _derivative(recording, recording.q) if recording.qd is None else recording.qd
    qdd = _derivative(recording, qd) if recording.qdd is None else recording.qdd
    return Dataset(
        t=recording.t,
        q=recording.q,
        qd=qd,
        qdd=qdd,
        tau=recording.tau,
        trajectory=recording.trajectory,
        truth=recording.truth,
        joints=recording.joints,
        source=recording.source,
    )


def _derivative(recording: Recording, values: np.ndarray) -> np.ndarray:
    result = np.empty_like(values)
    for label in np.unique(recording.trajectory):
        rows = recording.trajectory == label
        if np.count_nonzero(rows) < 3:
            problem = (
                f"trajectory {label} has fewer than 3 samples, too few to differentiate; log qd and qdd or drop it"
            )
            raise DataError(recording.source, problem, row=int(np.flatnonzero(rows)[0]))
        result[rows] = np.gradient(values[rows], recording.t[rows], axis=0, edge_order=2)
    return result


def hold_out(dataset: Dataset, share: float, *, key: PRNGKeyArray) -> tuple[Dataset, Dataset]:
    """Training and validation samples, split by whole trajectories chosen at random.

    At least one trajectory goes to each side. A dataset of one trajectory gives its last part, uncut, to validation.
    """
    labels = np.array(dataset.trajectories)
    if len(labels) > 1:
        count = min(max(1, round(share * len(labels))), len(labels) - 1)
        order = np.asarray(jax.random.permutation(key, len(labels)))
        return dataset.select(labels[order[count:]].tolist()), dataset.select(labels[order[:count]].tolist())
    cut = round((1 - share) * len(dataset))
    if not 0 < cut < len(dataset):
        raise DataError(
            dataset.source, f"{len(dataset)} samples are too few to hold out a share of {share}; record more"
        )
    return dataset.rows(np.arange(cut)), dataset.rows(np.arange(cut, len(dataset)))
