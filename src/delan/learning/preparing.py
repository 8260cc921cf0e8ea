"""How to prepare a log: the cut-off of its filter and the delay of its torques, chosen by what unseen motion says.

A chain is fitted at a cut-off read from the spectrum of the motion; from there a few iterations at each other cut-off
tell what it is worth. All are judged by the same torques, those of the widest filter, so that a narrow filter gains
nothing by hiding what it takes away: below the best cut-off motion is lost, above it noise comes in.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data.doctor.motion import cutoff_of
from ..data.excerpts import excerpt_of
from ..data.preparation import PreparationSettings, prepare, stride
from ..data.smoothing import HIGHEST_CUTOFF
from ..data.splitting import hold_out, split_key
from ..errors import DataError
from ..joints import Dataset, Recording
from ..models.actuated import ActuatedModel
from .evaluate import predict
from .fit import fit
from .fit_result import FitResult
from .planning import FitSettings
from .refining import refined
from .remembering import memory_of
from .selection import START
from .slope import rigid_slope
from .training import Progress

LOWEST, STEP, TRIALS = 1.0, 1.5, 12
"""Cut-offs tried: from this many Hz, each so many times the one before."""
MOST_BYTES = 64e6
"""of a recording that the choice is made on; of a larger one, runs evenly over it."""
ROWS = 2000
"""Samples a cut-off is tried on, at most."""
POLISH = 40
"""Iterations of the first fit after its starts."""
WORSE = 1.02
"""The walk over cut-offs ends on either side when the error has grown by this factor twice in a row."""
FIRST_SHARE = 0.6
"""of the seconds that the first fit may take."""
DELAY_STEPS = 4
"""Corrections of a delay: a model fitted to late torques has taken up a part of it."""
DELAY_GAIN, DELAY_SURE = 0.98, 5.0
"""A delay is removed if it brings the error on unseen motion below this share, and is so many standard errors large."""


@dataclass(frozen=True)
class CutoffTrial:
    """What a cut-off [Hz] led to: the error (nMSE) on validation trajectories, in torques of the widest filter."""

    cutoff: float
    validation: float


@dataclass(frozen=True, eq=False)
class PreparationChoice:
    """How to prepare a log, what else was tried, and the fit it was tried with."""

    settings: PreparationSettings
    trials: tuple[CutoffTrial, ...]
    delay_gain: float
    start: ActuatedModel | None


def choose_preparation(
    recording: Recording,
    *,
    key: PRNGKeyArray,
    validation: float = 0.15,
    seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> PreparationChoice:
    """Choose cut-off and delay on validation trajectories; a log with measured accelerations is taken as it is.

    A stop ends it with the cut-off that is best so far.
    """
    stop = stop or threading.Event()
    if recording.qdd is not None:
        return PreparationChoice(PreparationSettings(), (), 0.0, None)
    recording = excerpt_of(recording, MOST_BYTES)
    grid = _grid(recording)
    place = int(np.argmin(np.abs(np.log(grid / _guess(recording)))))
    until = float("inf") if seconds is None else time.perf_counter() + seconds
    desk = _Desk(recording, grid, stride(recording, float(grid[place])), key, validation)
    first = desk.fit(place, None if seconds is None else FIRST_SHARE * seconds, progress, stop)
    assert isinstance(first.model, ActuatedModel)
    trials = {place: desk.score(place, first.model)}
    for way in (1, -1):
        at, best, worse = place, trials[place].validation, 0
        while worse < 2 and 0 <= at + way < len(grid) and time.perf_counter() < until and not stop.is_set():
            at += way
            trials[at] = desk.score(at, first.model)
            worse = worse + 1 if trials[at].validation > WORSE * best else 0
            best = min(best, trials[at].validation)
    chosen = min(trials, key=lambda at: trials[at].validation)
    delay, gain = desk.delay(chosen, trials[chosen], lambda: stop.is_set() or time.perf_counter() > until)
    return PreparationChoice(
        PreparationSettings(cutoff=float(grid[chosen]), delay=delay),
        tuple(CutoffTrial(float(grid[at]), trials[at].validation) for at in sorted(trials)),
        gain,
        trials[chosen].model,
    )


def _rate(recording: Recording) -> float:
    return 1 / float(np.median(np.diff(recording.t)))


def _grid(recording: Recording) -> Float[np.ndarray, " cutoffs"]:
    grid = LOWEST * STEP ** np.arange(TRIALS)
    grid = grid[grid <= HIGHEST_CUTOFF * _rate(recording)]
    if not len(grid):
        raise DataError(
            recording.source,
            f"is sampled at {_rate(recording):.3g} Hz, too slowly to differentiate; log at 20 Hz or more, or log qdd",
        )
    return grid


def _guess(recording: Recording) -> float:
    """Where to begin: four times the frequency below which nearly all motion lies [Hz]."""
    labels = np.unique(recording.trajectory)
    return cutoff_of([recording.q[recording.trajectory == label] for label in labels], 1 / _rate(recording))


@dataclass(frozen=True, eq=False)
class _Trial:
    """A model fitted at a cut-off, and its error on unseen motion."""

    model: ActuatedModel
    validation: float


@dataclass(frozen=True, eq=False)
class _Desk:
    """Where cut-offs are tried: all with the same split and the same rows."""

    recording: Recording
    grid: Float[np.ndarray, " cutoffs"]
    every: int
    key: PRNGKeyArray
    share: float

    def prepared(self, place: int, delay: float = 0.0) -> Dataset:
        """The log at a cut-off; the rows that count are those of the narrowest filter, whose ends are the longest."""
        dataset = prepare(self.recording, PreparationSettings(float(self.grid[place]), delay, self.every))
        return replace(dataset, counted=self.counted)

    @cached_property
    def counted(self) -> np.ndarray | None:
        return prepare(self.recording, PreparationSettings(float(self.grid[0]), 0.0, self.every)).counted

    @cached_property
    def target(self) -> np.ndarray:
        """The torques of the widest filter."""
        return self.prepared(len(self.grid) - 1).tau

    def split(self, place: int, delay: float = 0.0) -> tuple[Dataset, Dataset]:
        return hold_out(self.prepared(place, delay), self.share, key=split_key(self.key))

    def fit(
        self,
        place: int,
        seconds: float | None,
        progress: Callable[[Progress], None] | None,
        stop: threading.Event,
    ) -> FitResult:
        limits = FitSettings(seconds=seconds, epochs=POLISH, validation=self.share)
        return fit(self.prepared(place), "chain", limits, friction=START, key=self.key, progress=progress, stop=stop)

    def score(self, place: int, start: ActuatedModel, delay: float = 0.0) -> _Trial:
        """A few iterations at a cut-off, judged by the torques of the widest filter."""
        training, unseen = self.split(place, delay)
        model = refined(start, training)
        predicted = _torque(model, unseen)
        target = (self.target if delay == 0 else self.prepared(len(self.grid) - 1, delay).tau)[unseen.counted]
        deviation = training.samples.tau.std(axis=0)
        error = (predicted - target) / np.where(deviation > 0, deviation, 1.0)
        return _Trial(model, float(np.mean(error**2)))

    def delay(self, place: int, best: _Trial, enough: Callable[[], bool]) -> tuple[float, float]:
        """The delay of the torques [s], 0 if none is sure, and the share of the error that goes away with it; what was
        found until `enough` says so."""
        trial, seconds = best, 0.0
        for _ in range(DELAY_STEPS):
            if enough():
                break
            more, error = _lag(trial.model, self.split(place, seconds)[0])
            if abs(more) < DELAY_SURE * error:
                break
            seconds += more
            trial = self.score(place, trial.model, seconds)
        gain = 1 - trial.validation / best.validation
        return (seconds, gain) if trial.validation < DELAY_GAIN * best.validation else (0.0, gain)


def _torque(model: ActuatedModel, dataset: Dataset) -> np.ndarray:
    with jax.enable_x64(True):
        one = dataset.samples
        motions = tuple(jnp.asarray(column) for column in (one.q, one.qd, one.qdd))
        return predict(model, "inverse_dynamics", *motions, memory=memory_of(model, dataset))


def _lag(model: ActuatedModel, training: Dataset) -> tuple[float, float]:
    """By how much the torques come late, one delay for all joints, and its standard error [s].

    A torque that is late by δ misses δ τ̇; what the links could take up of that is taken out on both sides.
    """
    slope = np.gradient(training.tau, training.t, axis=0)
    slope[np.diff(training.t, append=np.inf) <= 0] = 0.0
    one = training.samples
    late = slope[training.counted]
    rows = np.unique(np.linspace(0, len(one) - 1, ROWS).astype(int))
    std = np.where(one.tau.std(axis=0) > 0, one.tau.std(axis=0), 1.0)
    error = ((one.tau - _torque(model, training)) / std)[rows].ravel()
    late = (late / std)[rows].ravel()
    columns = rigid_slope(model.rigid, one.rows(rows), std)
    basis = np.linalg.qr(columns)[0]
    left = late - basis @ (basis.T @ late)
    error -= basis @ (basis.T @ error)
    seconds = -float(left @ error / (left @ left))
    spread = np.sqrt(np.mean((error + seconds * left) ** 2) / (left @ left))
    return seconds, float(spread)
