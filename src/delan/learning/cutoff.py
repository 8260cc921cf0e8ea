"""The cut-off of a log's filter and the delay of its torques, chosen on validation motion.

A chain is fitted at a cut-off read from the spectrum of the motion; from there, a few iterations at
each other cut-off give its validation error. All are judged by the same torques, those of the
widest filter, so that a narrow filter gains nothing by hiding what it removes: below the best
cut-off motion is lost, above it noise comes in.
"""

import threading
import time
from dataclasses import dataclass, field, replace
from functools import cached_property

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import DataError
from ..joints import Dataset, Recording, evenly_spaced, nonzero_scale
from ..logs.doctor.checked_log import cutoff_of
from ..logs.excerpts import excerpt_of
from ..logs.filters import HIGHEST_CUTOFF
from ..logs.preparation import PreparationSettings, stride
from ..logs.preparation import prepare as prepared_by
from ..models.model import Model
from ..solvers.loss import rigid_slope
from ..solvers.training import TrainingSettings
from .friction_search import START
from .model_fit import fit_model, refined
from .scores import predict_samples
from .study import Study, Watcher

# Cut-offs that are tried: the first [Hz], the factor from each to the next, and their number.
LOWEST = 1.0
STEP = 1.5
TRIALS = 12
# The most memory of a recording that the choice is made on [bytes]; of a larger one, segments
# evenly spread over it.
MOST_BYTES = 64e6
# Iterations of the first fit after its starts, and its share of the seconds.
POLISH = 40
FIRST_SHARE = 0.6
# The walk over cut-offs ends on either side when the error was this many times the best twice in a
# row.
WORSE = 1.02
# Corrections of a delay: a model fitted to delayed torques has absorbed a part of the delay.
DELAY_STEPS = 4
# A delay is removed if it brings the validation error below this share, and if it is this many
# standard errors large.
DELAY_GAIN = 0.98
DELAY_SURE = 5.0
# The most samples that a delay is computed from.
DELAY_ROWS = 2000


@dataclass(frozen=True)
class CutoffTrial:
    """A cut-off [Hz] and its validation error (nMSE) in torques of the widest filter."""

    cutoff: float
    validation: float


@dataclass(frozen=True, eq=False)
class PreparationChoice:
    """How to prepare a log, which cut-offs were tried, and the model that was fitted for that.

    `delay_gain` is the share of the validation error that goes away with the delay.
    """

    settings: PreparationSettings
    trials: tuple[CutoffTrial, ...] = ()
    delay_gain: float = 0.0
    start: Model | None = None


@dataclass(frozen=True, eq=False)
class CutoffSearch:
    """The means of a search: randomness, the share held out, time, a stop and who follows it."""

    key: PRNGKeyArray
    validation: float = 0.15
    seconds: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    watch: Watcher | None = None


def prepare(
    recording: Recording, settings: PreparationSettings | None = None, *, seed: int = 0
) -> Dataset:
    """Make samples of a recording: filtered, differentiated and cut into trajectories.

    Without settings, cut-off and delay are chosen on held-out motion, as `delan fit` does; a
    recording with accelerations is taken as it is.
    """
    if settings is None:
        settings = choose_preparation(recording, CutoffSearch(jax.random.key(seed))).settings
    return prepared_by(recording, settings)


def choose_preparation(recording: Recording, search: CutoffSearch) -> PreparationChoice:
    """Choose cut-off and delay on the validation motion.

    A log with measured accelerations is taken as it is. A stop ends the search with the cut-off
    that is best so far.
    """
    if recording.qdd is not None:
        return PreparationChoice(PreparationSettings())
    recording = excerpt_of(recording, MOST_BYTES)
    grid = _grid(recording)
    place = int(np.argmin(np.abs(np.log(grid / _guess(recording)))))
    desk = _Desk(recording, grid, stride(recording, float(grid[place])), search)
    trials = desk.walk(place)
    chosen = min(trials, key=lambda at: trials[at].validation)
    delay, gain = desk.delay(chosen, trials[chosen])
    tried = [CutoffTrial(float(grid[at]), trials[at].validation) for at in sorted(trials)]
    settings = PreparationSettings(cutoff=float(grid[chosen]), delay=delay)
    return PreparationChoice(settings, tuple(tried), gain, trials[chosen].model)


def _rate(recording: Recording) -> float:
    return 1 / float(np.median(np.diff(recording.t)))


def _grid(recording: Recording) -> Float[np.ndarray, " cutoffs"]:
    grid = LOWEST * STEP ** np.arange(TRIALS)
    grid = grid[grid <= HIGHEST_CUTOFF * _rate(recording)]
    if not len(grid):
        problem = (
            f"is sampled at {_rate(recording):.3g} Hz, too slowly to differentiate; "
            "log at 20 Hz or more, or log qdd"
        )
        raise DataError(recording.source, problem)
    return grid


def _guess(recording: Recording) -> float:
    """Four times the frequency below which nearly all motion lies, to begin with [Hz]."""
    labels = np.unique(recording.trajectory)
    motions = [recording.q[recording.trajectory == label] for label in labels]
    return cutoff_of(motions, 1 / _rate(recording))


@dataclass(frozen=True, eq=False)
class _Trial:
    """A model fitted at a cut-off, and its validation error."""

    model: Model
    validation: float


@dataclass(frozen=True, eq=False)
class _Desk:
    """Where cut-offs, by their places in the grid, are tried with the same split and rows."""

    recording: Recording
    grid: Float[np.ndarray, " cutoffs"]
    every: int
    search: CutoffSearch
    began: float = field(default_factory=time.perf_counter)

    @property
    def over(self) -> bool:
        """Whether time is over or the search was stopped."""
        seconds = self.search.seconds
        late = seconds is not None and time.perf_counter() - self.began >= seconds
        return late or self.search.stop.is_set()

    def walk(self, place: int) -> dict[int, _Trial]:
        """Fit a chain at a place, and try the cut-offs on both sides as far as they pay."""
        first = fit_model(self.study(place), "chain").model
        trials = {place: self.score(place, first)}
        for step in (1, -1):
            at = place
            best = trials[place].validation
            worse = 0
            while worse < 2 and 0 <= at + step < len(self.grid) and not self.over:
                at += step
                trials[at] = self.score(at, first)
                error = trials[at].validation
                worse = worse + 1 if error > WORSE * best else 0
                best = min(best, error)
        return trials

    def delay(self, place: int, best: _Trial) -> tuple[float, float]:
        """The delay of the torques [s], 0 if none is certain, and its share of the error."""
        trial = best
        seconds = 0.0
        for _ in range(DELAY_STEPS):
            if self.over:
                break
            more, error = _lag(trial.model, self.study(place, seconds).training)
            if abs(more) < DELAY_SURE * error:
                break
            seconds += more
            trial = self.score(place, trial.model, seconds)
        gain = 1 - trial.validation / best.validation
        if not trial.validation < DELAY_GAIN * best.validation:
            seconds = 0.0
        return seconds, gain

    def study(self, place: int, delay: float = 0.0) -> Study:
        """The study of the log at a cut-off; the split is the same for all cut-offs."""
        search = self.search
        seconds = None if search.seconds is None else FIRST_SHARE * search.seconds
        return Study.of(
            self.prepared(place, delay),
            TrainingSettings(seconds=seconds, epochs=POLISH, validation=search.validation),
            friction=START,
            key=search.key,
            stop=search.stop,
            watch=search.watch,
        )

    def score(self, place: int, start: Model, delay: float = 0.0) -> _Trial:
        """A few iterations at a cut-off, judged by the torques of the widest filter."""
        study = self.study(place, delay)
        model = refined(start, study.training)
        target = self.target
        if delay != 0:
            target = self.prepared(len(self.grid) - 1, delay).tau
        predicted = predict_samples(model, study.validation)
        std = nonzero_scale(study.training.samples.tau.std(axis=0))
        error = (predicted - target[study.validation.counted]) / std
        return _Trial(model, float(np.mean(error**2)))

    def prepared(self, place: int, delay: float = 0.0) -> Dataset:
        """The log at a cut-off, with the rows that count at the narrowest filter: it loses most."""
        return replace(self._filtered(place, delay), counted=self.counted)

    @cached_property
    def counted(self) -> np.ndarray | None:
        """The rows that count at the narrowest filter."""
        return self._filtered(0).counted

    @cached_property
    def target(self) -> np.ndarray:
        """The torques of the widest filter."""
        return self.prepared(len(self.grid) - 1).tau

    def _filtered(self, place: int, delay: float = 0.0) -> Dataset:
        settings = PreparationSettings(float(self.grid[place]), delay, self.every)
        return prepared_by(self.recording, settings)


def _lag(model: Model, training: Dataset) -> tuple[float, float]:
    """The delay of the torques, the same for all joints, and its standard error [s].

    A torque that is late by δ misses δ τ̇. The part of both that the links can absorb is removed.
    """
    rate = np.gradient(training.tau, training.t, axis=0)
    rate[np.diff(training.t, append=np.inf) <= 0] = 0.0
    samples = training.samples
    rows = evenly_spaced(len(samples), DELAY_ROWS)
    std = nonzero_scale(samples.tau.std(axis=0))
    error = ((samples.tau - predict_samples(model, training)) / std)[rows].ravel()
    late = (rate[training.counted] / std)[rows].ravel()
    basis = np.linalg.qr(rigid_slope(model.mechanics, samples.rows(rows), std))[0]
    late = late - basis @ (basis.T @ late)
    error -= basis @ (basis.T @ error)
    seconds = -float(late @ error / (late @ late))
    spread = np.sqrt(np.mean((error + seconds * late) ** 2) / (late @ late))
    return seconds, float(spread)
