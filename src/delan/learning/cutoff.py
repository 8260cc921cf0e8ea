"""The cut-off of a log's filter, the delay of its torques and the mounting of its arm, by folds.

A chain is fitted at a cut-off read from the spectrum of the motion; from there, a few iterations at
each other cut-off give its error on every fold of the log. All are judged by the same torques, at
the bandwidth that every model is scored at, so that a narrow filter gains nothing by hiding what it
removes: below the best cut-off motion is lost, above it noise comes in.

Where the first joint moves little, a log hardly tells whether its axis is vertical. A tilt of one
degree that explains noise is wrong by much as soon as that joint turns elsewhere, so that an arm
stands upright unless the folds are explained worse by it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import DataError
from ..joints import Dataset, Recording, evenly_spaced, nonzero_scale
from ..logs.doctor.checked_log import cutoff_of
from ..logs.excerpts import excerpt_of
from ..logs.preparation import PreparationSettings, scoring_bandwidth, stride
from ..logs.preparation import prepare as prepared_by
from ..logs.segments import usual_step
from ..logs.split import Split, split, split_key
from ..models.dynamics import on_device
from ..models.model import Model
from ..solvers.linearised import one_blas_thread, rigid_slope
from ..solvers.loss import Objective
from ..solvers.training import TrainingSettings
from .friction_search import START
from .model_fit import fit_model
from .refit import Refit, cross_fit
from .scores import predict_samples
from .study import NOTHING, CrossFit, Study, Watcher

# Cut-offs that are tried: the first [Hz] and the factor from each to the next. The last is the
# bandwidth of the scores: faster motion is in no score.
LOWEST = 1.0
STEP = 1.5
# Cut-offs whose errors are below this multiple of the least are equally good. The middle one of
# them is chosen, far from where motion is lost and from where noise comes in.
EQUALLY_GOOD = 1.05
# The most memory of a recording that the choice is made on [bytes]; of a larger one, segments
# evenly spread over it.
MOST_BYTES = 64e6
# Samples that the choice is made on at least, if the recording has as many rows.
LEAST_ROWS = 1500
# Iterations of the first fit after its starts, and its share of the seconds.
POLISH = 10
FIRST_SHARE = 0.6
# The walk over cut-offs ends on either side when the error was this many times the best twice in a
# row.
WORSE = 1.02
# Corrections of a delay: a model fitted to delayed torques has absorbed a part of the delay. They
# end when one is smaller than this [s].
DELAY_STEPS = 4
DELAY_SMALL = 2e-4
# Friction and elastic drives look like a delay of tens of milliseconds, whose removal takes away a
# tenth of the error; that of a true delay takes away most of it. One is believed if the error falls
# below this share, ...
DELAY_GAIN = 0.5
# ... if the folds agree on it to this share of it, or to this time [s], ...
DELAY_AGREES = 0.1
DELAY_CLOSE = 1.5e-3
# ... and if it is not longer than this many samples, or than this [s], which a bus may take.
DELAY_SAMPLES = 5
DELAY_SECONDS = 0.05
# The most samples of a fold that a delay is computed from.
DELAY_ROWS = 1000
# Iterations at each cut-off, without each fold, and the most samples for them.
TRIAL_ITERATIONS = 3
TRIAL_ROWS = 384
# The weight that holds an arm upright: far more than the torques can pull at it. Iterations in
# which the other weights adapt to that.
UPRIGHT = 100.0
UPRIGHT_ITERATIONS = 15
# With a larger error (nMSE) the arm was not found, or the log hardly tells it: it is searched for
# once more, upright from the start.
UNSURE = 0.1


@dataclass(frozen=True)
class CutoffTrial:
    """A cut-off [Hz] and its validation error (nMSE) in torques at the bandwidth of scores."""

    cutoff: float
    validation: float


@dataclass(frozen=True, eq=False)
class PreparationChoice:
    """How to prepare a log, which cut-offs were tried, and the model that was fitted for that.

    Attributes:
        delay_error: standard error of the delay, from the differences between folds [s].
        delay_gain: the share of the validation error that goes away with the delay.
        at_edge: whether the best cut-off is the first that could be tried.
        split: the folds, the same for every cut-off.
        objective: the loss of a chain, with the tie of an arm that stands upright.
        others: arms that the search met and that explain the log as well as `start`.
    """

    settings: PreparationSettings
    trials: tuple[CutoffTrial, ...] = ()
    delay_error: float = 0.0
    delay_gain: float = 0.0
    start: Model | None = None
    at_edge: bool = False
    split: Split | None = None
    objective: Objective = field(default_factory=Objective)
    others: tuple[Model, ...] = ()


@dataclass(frozen=True, eq=False)
class CutoffSearch:
    """The means of a search: randomness, the share held out, time, a stop and who follows it.

    The arm is searched for up to `searches` times. `first_look` is called with the validation error
    (nMSE) of the first chain.
    """

    key: PRNGKeyArray
    validation: float = 0.15
    seconds: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    watch: Watcher | None = None
    first_look: Callable[[float], None] | None = None
    searches: int = 1


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


@one_blas_thread()
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
    # Slow motion needs few samples, but a chain has hundreds of numbers to find.
    every = min(stride(recording, float(grid[place])), max(1, len(recording.t) // LEAST_ROWS))
    desk = _Desk(recording, grid, every, search)
    trials = desk.walk(place)
    chosen = _middle_of_the_best(trials)
    delay = desk.delay(chosen, trials[chosen])
    tried = [CutoffTrial(float(grid[at]), trials[at].validation) for at in sorted(trials)]
    return PreparationChoice(
        settings=PreparationSettings(cutoff=float(grid[chosen]), delay=delay.seconds),
        trials=tuple(tried),
        delay_error=delay.error,
        delay_gain=delay.gain,
        start=trials[chosen].start,
        at_edge=len(trials) > 1 and chosen == 0,
        split=desk.split,
        objective=trials[chosen].objective,
        others=trials[place].others,
    )


def _rate(recording: Recording) -> float:
    return 1 / float(np.median(np.diff(recording.t)))


def _grid(recording: Recording) -> Float[np.ndarray, " cutoffs"]:
    last = scoring_bandwidth(_rate(recording))
    steps = np.log(last / LOWEST) / np.log(STEP)
    if steps < 0:
        problem = (
            f"is sampled at {_rate(recording):.3g} Hz, too slowly to differentiate; "
            "log at 20 Hz or more, or log qdd"
        )
        raise DataError(recording.source, problem)
    return np.append(LOWEST * STEP ** np.arange(np.ceil(steps)), last)


def _middle_of_the_best(trials: dict[int, "_Trial"]) -> int:
    """Return the middle of the neighbours of the best cut-off that are as good as it."""
    best = min(trials, key=lambda at: trials[at].validation)
    bound = EQUALLY_GOOD * trials[best].validation
    ends = []
    for step in (-1, 1):
        at = best
        while at + step in trials and trials[at + step].validation <= bound:
            at += step
        ends.append(at)
    return sum(ends) // 2


def _guess(recording: Recording) -> float:
    """Four times the frequency below which nearly all motion lies, to begin with [Hz]."""
    labels = np.unique(recording.trajectory)
    motions = [recording.q[recording.trajectory == label] for label in labels]
    return cutoff_of(motions, 1 / _rate(recording))


@dataclass(frozen=True, eq=False)
class _Trial:
    """A model refitted at a cut-off without each fold, and its validation error.

    `start` is the model that all refits began from, `objective` their loss; `others` are arms that
    explain the log as well.
    """

    start: Model
    objective: Objective
    cross: CrossFit
    validation: float
    others: tuple[Model, ...] = ()


class _Delay(NamedTuple):
    """A delay of the torques, its standard error [s], and its share of the validation error."""

    seconds: float = 0.0
    error: float = 0.0
    gain: float = 0.0


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
        # The arm is looked for with all samples. Wrong ones have far larger errors even on what
        # they learned from; how good the right one is, the folds tell.
        result = fit_model(self.study(place).without(NOTHING), "chain")
        first = replace(self.score(place, result.model), others=result.others)
        found = self.upright(place, first)
        trials = {place: found}
        if self.search.first_look is not None:
            self.search.first_look(trials[place].validation)
        for step in (1, -1):
            at = place
            best = trials[place].validation
            worse = 0
            while worse < 2 and 0 <= at + step < len(self.grid) and not self.over:
                at += step
                trials[at] = self.score(at, found.start, objective=found.objective)
                error = trials[at].validation
                worse = worse + 1 if error > WORSE * best else 0
                best = min(best, error)
        return trials

    def upright(self, place: int, free: _Trial) -> _Trial:
        """The trial of the same arm with a vertical first axis, unless it is worse than `free`."""
        chain = free.start.chain
        if self.over or chain is None or chain.joints.sliding[0]:
            return free
        objective = Objective(upright=UPRIGHT)
        study = self.study(place, objective=objective).without(NOTHING)
        others = free.others
        if free.validation > UNSURE:
            result = fit_model(study, "chain")
            start = result.model
            others = result.others
        else:
            start = Refit.of(vertical(free.start), study, iterations=UPRIGHT_ITERATIONS)(study)
        trial = replace(self.score(place, start, objective=objective), others=others)
        return trial if trial.validation <= EQUALLY_GOOD * free.validation else free

    def delay(self, place: int, best: _Trial) -> _Delay:
        """The delay of the torques, none if the folds do not agree on one."""
        trial = best
        seconds = 0.0
        more = np.zeros(1)
        longest = max(DELAY_SECONDS, DELAY_SAMPLES * usual_step(self.recording.t))
        for _ in range(DELAY_STEPS):
            if self.over:
                return _Delay()
            more = self._lags(trial, self.study(place, seconds))
            usual = float(np.median(more))
            if abs(usual) < DELAY_SMALL:
                break
            seconds += usual
            trial = self.score(place, trial.start, seconds, objective=trial.objective)
            if abs(seconds) > longest or trial.validation > DELAY_GAIN * best.validation:
                return _Delay()
        apart = float(np.abs(more - np.median(more)).max())
        if seconds == 0 or apart > max(DELAY_CLOSE, DELAY_AGREES * abs(seconds)):
            return _Delay()
        error = float(np.std(more, ddof=1) / np.sqrt(len(more)))
        return _Delay(seconds, error, 1 - trial.validation / best.validation)

    def _lags(self, trial: _Trial, study: Study) -> Float[np.ndarray, " folds"]:
        """The delay that each fold shows beyond the one that is removed."""
        lags = []
        for number, member in enumerate(trial.cross.members):
            lags.append(_lag(member, study.without(number).validation))
        return np.array(lags)

    def study(self, place: int, delay: float = 0.0, *, objective: Objective | None = None) -> Study:
        """The study of the log at a cut-off; the split is the same for all cut-offs."""
        search = self.search
        seconds = None if search.seconds is None else FIRST_SHARE * search.seconds
        settings = PreparationSettings(float(self.grid[place]), delay, self.every)
        return Study(
            dataset=replace(prepared_by(self.recording, settings), counted=self.counted),
            split=self.split,
            scored=replace(
                prepared_by(self.recording, settings.scored(_rate(self.recording))),
                counted=self.counted,
            ),
            settings=TrainingSettings(
                seconds=seconds,
                epochs=POLISH,
                validation=search.validation,
                searches=search.searches,
                objective=objective or Objective(),
            ),
            friction=START,
            key=search.key,
            stop=search.stop,
            watch=search.watch,
        )

    def score(
        self, place: int, start: Model, delay: float = 0.0, *, objective: Objective | None = None
    ) -> _Trial:
        """A few iterations at a cut-off, judged at the bandwidth of scores."""
        study = self.study(place, delay, objective=objective)
        refit = Refit.of(start, study, iterations=TRIAL_ITERATIONS, count=TRIAL_ROWS)
        cross = cross_fit(study, start, refit)
        return _Trial(start, study.settings.objective, cross, cross.error())

    @cached_property
    def counted(self) -> np.ndarray | None:
        """The rows that count at the narrowest filter: it loses most."""
        return self._narrowest.counted

    @cached_property
    def split(self) -> Split:
        """The folds of the log, by its motion at the narrowest filter."""
        return split(self._narrowest, self.search.validation, key=split_key(self.search.key))

    @cached_property
    def _narrowest(self) -> Dataset:
        return prepared_by(
            self.recording, PreparationSettings(float(self.grid[0]), 0.0, self.every)
        )


def vertical(model: Model) -> Model:
    """The model with gravity along its first axis, the rest as it is."""
    chain = model.chain
    assert chain is not None
    gravity = np.zeros(3)
    gravity[2] = np.copysign(np.linalg.norm(chain.gravity), chain.gravity[2])
    return model.with_mechanics(eqx.tree_at(lambda chain: chain.gravity, chain, on_device(gravity)))


def _lag(model: Model, unseen: Dataset) -> float:
    """The delay of the torques on motion that a model has not seen, the same for all joints [s].

    A torque that is late by δ misses δ τ̇. The part of both that the links can absorb is removed.
    """
    rate = np.gradient(unseen.tau, unseen.t, axis=0)
    rate[np.diff(unseen.t, append=np.inf) <= 0] = 0.0
    samples = unseen.samples
    rows = evenly_spaced(len(samples), DELAY_ROWS)
    std = nonzero_scale(samples.tau.std(axis=0))
    error = ((samples.tau - predict_samples(model, unseen)) / std)[rows].ravel()
    late = (rate[unseen.counted] / std)[rows].ravel()
    basis = np.linalg.qr(rigid_slope(model.mechanics, samples.rows(rows), std))[0]
    late = late - basis @ (basis.T @ late)
    error -= basis @ (basis.T @ error)
    return -float(late @ error / (late @ late))
