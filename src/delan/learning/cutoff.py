"""How to prepare a log: the cut-off of its filter and the delay of its torques, chosen by what
unseen motion says.

A chain is fitted at a cut-off read from the spectrum of the motion; from there a few iterations at
each other cut-off tell what it is worth. All are judged by the same torques, those of the widest
filter, so that a narrow filter gains nothing by hiding what it takes away: below the best cut-off
motion is lost, above it noise comes in.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import DataError
from ..joints import Dataset, Recording
from ..logs.doctor.motion import cutoff_of
from ..logs.excerpts import excerpt_of
from ..logs.filters import HIGHEST_CUTOFF
from ..logs.preparation import PreparationSettings, stride
from ..logs.preparation import prepare as prepared_by
from ..models.friction_memory import memory_of
from ..models.model import Model
from ..solvers.loss import rigid_slope
from ..solvers.settings import TrainingSettings
from .friction_search import START
from .model_fit import fit_model
from .refinement import refined
from .scores import predict
from .study import Study, TrainingResult, Watcher

LOWEST, STEP, TRIALS = 1.0, 1.5, 12
"""Cut-offs tried: from this many Hz, each so many times the one before."""
MOST_BYTES = 64e6
"""of a recording that the choice is made on; of a larger one, runs evenly over it."""
ROWS = 2000
"""Samples a cut-off is tried on, at most."""
POLISH = 40
"""Iterations of the first fit after its starts."""
WORSE = 1.02
"""The walk over cut-offs ends on either side when the error has grown by this factor twice in a
row.
"""
FIRST_SHARE = 0.6
"""of the seconds that the first fit may take."""
DELAY_STEPS = 4
"""Corrections of a delay: a model fitted to late torques has taken up a part of it."""
DELAY_GAIN, DELAY_SURE = 0.98, 5.0
"""A delay is removed if it brings the error on unseen motion below this share, and is so many
standard errors large.
"""


@dataclass(frozen=True)
class CutoffTrial:
    """What a cut-off [Hz] led to: the error (nMSE) on validation trajectories, in torques of the
    widest filter.
    """

    cutoff: float
    validation: float


@dataclass(frozen=True, eq=False)
class PreparationChoice:
    """How to prepare a log, what else was tried, and the fit it was tried with."""

    settings: PreparationSettings
    trials: tuple[CutoffTrial, ...] = ()
    delay_gain: float = 0.0
    start: Model | None = None


def prepare(
    recording: Recording, settings: PreparationSettings | None = None, *, seed: int = 0
) -> Dataset:
    """Make samples of a recording: filtered, differentiated and cut into trajectories.

    Without settings, cut-off and delay are chosen on held-out motion, as `delan fit` does; a recording
    with accelerations is taken as it is.
    """
    if settings is None:
        settings = choose_preparation(recording, CutoffSearch(jax.random.key(seed))).settings
    return prepared_by(recording, settings)


def choose_preparation(recording: Recording, search: "CutoffSearch") -> PreparationChoice:
    """Choose cut-off and delay on the validation motion.

    A log with measured accelerations is taken as it is. A stop ends the search with the cut-off that
    is best so far.
    """
    if recording.qdd is not None:
        return PreparationChoice(PreparationSettings())
    recording = excerpt_of(recording, MOST_BYTES)
    grid = _grid(recording)
    place = int(np.argmin(np.abs(np.log(grid / _guess(recording)))))
    began = time.perf_counter()

    def over() -> bool:
        late = search.seconds is not None and time.perf_counter() - began >= search.seconds
        return late or search.stop.is_set()

    desk = _Desk(recording, grid, stride(recording, float(grid[place])), search)
    first = desk.fit(place)
    trials = {place: desk.score(place, first.model)}
    for step in (1, -1):
        at = place
        best = trials[place].validation
        worse = 0
        while worse < 2 and 0 <= at + step < len(grid) and not over():
            at += step
            trials[at] = desk.score(at, first.model)
            worse = worse + 1 if trials[at].validation > WORSE * best else 0
            best = min(best, trials[at].validation)
    chosen = min(trials, key=lambda at: trials[at].validation)
    delay, gain = desk.delay(chosen, trials[chosen], over)
    return PreparationChoice(
        PreparationSettings(cutoff=float(grid[chosen]), delay=delay),
        tuple(CutoffTrial(float(grid[at]), trials[at].validation) for at in sorted(trials)),
        gain,
        trials[chosen].model,
    )


@dataclass(frozen=True, eq=False)
class CutoffSearch:
    """The means of a search: randomness, the share held out, time, a stop and who follows it."""

    key: PRNGKeyArray
    validation: float = 0.15
    seconds: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    watch: Watcher | None = None


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
    return cutoff_of(
        [recording.q[recording.trajectory == label] for label in labels], 1 / _rate(recording)
    )


@dataclass(frozen=True, eq=False)
class _Trial:
    """A model fitted at a cut-off, and its error on unseen motion."""

    model: Model
    validation: float


@dataclass(frozen=True, eq=False)
class _Desk:
    """Where cut-offs are tried: all with the same split and the same rows."""

    recording: Recording
    grid: Float[np.ndarray, " cutoffs"]
    every: int
    search: CutoffSearch

    def prepared(self, place: int, delay: float = 0.0) -> Dataset:
        """The log at a cut-off; the rows that count are those of the narrowest filter, whose ends
        are the longest.
        """
        dataset = prepared_by(
            self.recording, PreparationSettings(float(self.grid[place]), delay, self.every)
        )
        return replace(dataset, counted=self.counted)

    @cached_property
    def counted(self) -> np.ndarray | None:
        return prepared_by(
            self.recording, PreparationSettings(float(self.grid[0]), 0.0, self.every)
        ).counted

    @cached_property
    def target(self) -> np.ndarray:
        """The torques of the widest filter."""
        return self.prepared(len(self.grid) - 1).tau

    def split(self, place: int, delay: float = 0.0) -> tuple[Dataset, Dataset]:
        study = self.study(place, delay)
        return study.training, study.validation

    def study(self, place: int, delay: float = 0.0) -> Study:
        """The study of the log at a cut-off; the split is the same for all cut-offs."""
        search = self.search
        seconds = None if search.seconds is None else FIRST_SHARE * search.seconds
        settings = TrainingSettings(seconds=seconds, epochs=POLISH, validation=search.validation)
        return Study.of(
            self.prepared(place, delay),
            settings,
            friction=START,
            key=search.key,
            stop=search.stop,
            watch=search.watch,
        )

    def fit(self, place: int) -> TrainingResult:
        return fit_model(self.study(place), "chain")

    def score(self, place: int, start: Model, delay: float = 0.0) -> _Trial:
        """A few iterations at a cut-off, judged by the torques of the widest filter."""
        training, unseen = self.split(place, delay)
        model = refined(start, training)
        predicted = _torque(model, unseen)
        target = (self.target if delay == 0 else self.prepared(len(self.grid) - 1, delay).tau)[
            unseen.counted
        ]
        deviation = training.samples.tau.std(axis=0)
        error = (predicted - target) / np.where(deviation > 0, deviation, 1.0)
        return _Trial(model, float(np.mean(error**2)))

    def delay(self, place: int, best: _Trial, enough: Callable[[], bool]) -> tuple[float, float]:
        """The delay of the torques [s], 0 if none is sure, and the share of the error that goes
        away with it; what was found until `enough` says so.
        """
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


def _torque(model: Model, dataset: Dataset) -> np.ndarray:
    with jax.enable_x64(True):
        one = dataset.samples
        motions = tuple(jnp.asarray(column) for column in (one.q, one.qd, one.qdd))
        return predict(model, "inverse_dynamics", *motions, memory=memory_of(model, dataset))


def _lag(model: Model, training: Dataset) -> tuple[float, float]:
    """By how much the torques come late, one delay for all joints, and its standard error [s].

    A torque that is late by δ misses δ τ̇; what the links could take up of that is taken out on
    both sides.
    """
    slope = np.gradient(training.tau, training.t, axis=0)
    slope[np.diff(training.t, append=np.inf) <= 0] = 0.0
    one = training.samples
    late = slope[training.counted]
    rows = np.unique(np.linspace(0, len(one) - 1, ROWS).astype(int))
    std = np.where(one.tau.std(axis=0) > 0, one.tau.std(axis=0), 1.0)
    error = ((one.tau - _torque(model, training)) / std)[rows].ravel()
    late = (late / std)[rows].ravel()
    columns = rigid_slope(model.mechanics, one.rows(rows), std)
    basis = np.linalg.qr(columns)[0]
    left = late - basis @ (basis.T @ late)
    error -= basis @ (basis.T @ error)
    seconds = -float(left @ error / (left @ left))
    spread = np.sqrt(np.mean((error + seconds * left) ** 2) / (left @ left))
    return seconds, float(spread)
