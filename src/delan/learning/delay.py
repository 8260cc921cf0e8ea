"""The delay of a log's torques against its motion, as the folds of the log show it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..joints import Dataset, evenly_spaced
from ..logs.actuation import torque_scale
from ..models.model import Model
from ..solvers.linearised import rigid_slope
from .scores import predict_samples
from .study import CrossFit, Study

# Corrections of a delay: a model fitted to delayed torques has absorbed a part of the delay. They
# end when one is smaller than this [s].
STEPS = 4
SMALL = 2e-4
# Friction and elastic drives look like a delay of tens of milliseconds, whose removal takes away a
# tenth of the error; that of a true delay takes away most of it. One is believed if the error falls
# below this share, ...
GAIN = 0.5
# ... if the folds agree on it to this share of it, or to this time [s], ...
AGREES = 0.1
CLOSE = 1.5e-3
# ... and if it is not longer than this many samples, or than this [s], which a bus may take.
LONGEST_SAMPLES = 5
LONGEST_SECONDS = 0.05
# The most samples of a fold that a delay is computed from.
ROWS = 1000


class Delay(NamedTuple):
    """A delay of the torques, its standard error [s], and its share of the validation error."""

    seconds: float = 0.0
    error: float = 0.0
    gain: float = 0.0


def find_delay(
    study: Study,
    cross: CrossFit,
    tried: Callable[[float], tuple[Study, CrossFit] | None],
    *,
    step: float,
) -> Delay:
    """The delay of the torques, none if the folds do not agree on one.

    Args:
        study, cross: the log without a correction, and the models fitted to it.
        tried: the log with a delay removed [s], and the models fitted to that; None: time is over.
        step: of time between the rows of the log [s].
    """
    before = cross.error()
    seconds = 0.0
    more = np.zeros(1)
    longest = max(LONGEST_SECONDS, LONGEST_SAMPLES * step)
    for _ in range(STEPS):
        more = _lags(cross, study)
        usual = float(np.median(more))
        if abs(usual) < SMALL:
            break
        seconds += usual
        corrected = tried(seconds)
        if corrected is None:
            return Delay()
        study, cross = corrected
        if abs(seconds) > longest or cross.error() > GAIN * before:
            return Delay()
    apart = float(np.abs(more - np.median(more)).max())
    if seconds == 0 or apart > max(CLOSE, AGREES * abs(seconds)):
        return Delay()
    error = float(np.std(more, ddof=1) / np.sqrt(len(more)))
    return Delay(seconds, error, 1 - cross.error() / before)


def _lags(cross: CrossFit, study: Study) -> Float[np.ndarray, " folds"]:
    """The delay that each fold shows beyond the one that is removed."""
    lags = []
    for number, member in enumerate(cross.members):
        lags.append(_lag(member, study.without(number).validation))
    return np.array(lags)


def _lag(model: Model, unseen: Dataset) -> float:
    """The delay of the torques on motion that a model has not seen, the same for all joints [s].

    A torque that is late by δ misses δ τ̇. The part of both that the links can absorb is removed.
    """
    rate = np.gradient(unseen.tau, unseen.t, axis=0)
    rate[np.diff(unseen.t, append=np.inf) <= 0] = 0.0
    samples = unseen.samples
    rows = evenly_spaced(len(samples), ROWS)
    std = torque_scale(samples.qd, samples.tau)
    error = ((samples.tau - predict_samples(model, unseen)) / std)[rows].ravel()
    late = (rate[unseen.counted] / std)[rows].ravel()
    basis = np.linalg.qr(rigid_slope(model.mechanics, samples.rows(rows), std))[0]
    late = late - basis @ (basis.T @ late)
    error -= basis @ (basis.T @ error)
    return -float(late @ error / (late @ late))
