"""The preparation of a log by its folds: its arm, the cut-off of its filter, its delay.

A search for the arm can end in a wrong one, and a log of little motion may be explained by several.
Both show when searches from other random arms do not agree on motion that the log does not have.
The best arm that two searches found is taken; where there is none, the one that explains the folds
best, and the rest are its rivals. Where the first joint moves little, a log hardly tells whether
its axis is vertical. A tilt of one degree that explains noise is wrong by much as soon as that
joint turns elsewhere, so that an arm stands upright unless the folds are explained worse by it.

The search is made at a cut-off read from the spectrum of the motion; from there, a few iterations
at each other cut-off give its error on every fold of the log. All are judged by the same torques,
at the bandwidth that every model is scored at, so that a narrow filter gains nothing by hiding what
it removes: below the best cut-off motion is lost, above it noise comes in.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import DataError
from ..joints import Dataset, Recording
from ..logs.doctor.checked_log import cutoff_of
from ..logs.excerpts import excerpt_of
from ..logs.preparation import PreparationSettings, scoring_bandwidth, stride
from ..logs.preparation import prepare as prepared_by
from ..logs.segments import usual_step
from ..logs.split import Split, split, split_key
from ..models.dynamics import on_device
from ..models.model import Model
from ..solvers.linearised import one_blas_thread
from ..solvers.loss import Objective
from ..solvers.pair import Pair, Seat
from ..solvers.plan import ModelChoice
from ..solvers.training import SEARCHES, TrainingSettings
from .delay import Delay, find_delay
from .friction_search import START
from .model_fit import fit_model
from .refit import Refit, cross_fit, other_motion, torques_of
from .study import NOTHING, CrossFit, Study, Watcher

# Cut-offs that are tried: the first [Hz] and the factor from each to the next. The last is the
# bandwidth of the scores: faster motion is in no score.
LOWEST = 1.0
STEP = 1.5
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
# Searches that run at the same time, and end when they agree; fixed, so that a seed gives the same
# result everywhere.
TOGETHER = 2
# Arms whose errors on the folds are below this multiple of the least may be the robot's: another
# search can confirm them, and where none does, they are rivals.
RIVAL = 2.0
# Errors on the folds below this multiple of each other are equally good.
EQUALLY_GOOD = 1.05
# Iterations of an arm without each fold, and the most samples for them.
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
        confirmed: whether two searches ended in the arm of `start`.
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
    confirmed: bool = True


@dataclass(frozen=True, eq=False)
class CutoffSearch:
    """The means of a search: randomness, the share held out, time, a stop and who follows it.

    The arm, a `chain` with its tree, is searched for up to `searches` times, until two searches
    agree. `first_look` is called with the validation error (nMSE) of the first chain.
    """

    key: PRNGKeyArray
    validation: float = 0.15
    seconds: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    watch: Watcher | None = None
    first_look: Callable[[float], None] | None = None
    searches: int = SEARCHES
    chain: ModelChoice = "chain"


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
        confirmed=trials[place].confirmed,
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


def _middle_of_the_best(trials: dict[int, "ArmTrial"]) -> int:
    """Return the middle of the neighbours of the best cut-off that are as good as it.

    There it is far from where motion is lost and from where noise comes in.
    """
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
class ArmTrial:
    """An arm refitted without each fold, and its validation error.

    Attributes:
        start: the arm that all refits began from.
        objective: their loss.
        others: arms that explain the log as well.
        confirmed: whether another search ended in the same arm.
    """

    start: Model
    objective: Objective
    cross: CrossFit
    validation: float
    others: tuple[Model, ...] = ()
    confirmed: bool = False

    @classmethod
    def of(cls, start: Model, study: Study) -> "ArmTrial":
        """A few iterations without each fold, judged at the bandwidth of the scores."""
        refit = Refit.of(start, study, iterations=TRIAL_ITERATIONS, count=TRIAL_ROWS)
        cross = cross_fit(study, start, refit)
        return cls(start, study.settings.objective, cross, cross.error())


@dataclass(frozen=True, eq=False)
class ArmSearch:
    """Searches for the arm of a study's log.

    Attributes:
        model: the chain to search with, which has the tree of the arm.
        most: the most searches.
        over: whether time is over or the search was stopped.
        first_look: called with the error of the first arm, while other searches go on.
    """

    study: Study
    model: ModelChoice
    most: int
    over: Callable[[], bool]
    first_look: Callable[[float], None] = field(default=lambda error: None)

    def run(self) -> ArmTrial:
        """The best arm that two searches found, or the one that explains the folds best.

        Arms that explain the folds better than a confirmed one stay its rivals.
        """
        trials: list[ArmTrial] = []
        confirmed = None
        while not trials or (len(trials) < self.most and confirmed is None and not self.over()):
            numbers = range(len(trials), min(self.most, len(trials) + TOGETHER))
            seats: list[Seat | None] = [None]
            if len(numbers) == TOGETHER:
                pair = Pair(self._apart)
                seats = [pair.seat(0), pair.seat(1)]
            with ThreadPoolExecutor(TOGETHER) as pool:
                trials += pool.map(self._searched, numbers, seats)
            trials.sort(key=lambda trial: trial.validation)
            confirmed = self._confirmed(trials)
        if confirmed is None:
            best = trials[0]
            rivals = [each for each in trials[1:] if each.validation < RIVAL * best.validation]
        else:
            best = replace(trials[confirmed], confirmed=True)
            rivals = trials[:confirmed]
        return replace(best, others=(*best.others, *(rival.start for rival in rivals)))

    def _confirmed(self, trials: Sequence[ArmTrial]) -> int | None:
        """The place of the first arm that gives the same torques as another one on other motion.

        They are the same if they differ by less than both err on the folds together. An arm far
        behind the best one counts for nothing, although it may be found twice.
        """
        torques = torques_of([trial.start for trial in trials], self._other_motion)
        bound = RIVAL * trials[0].validation
        for place, trial in enumerate(trials):
            for later in range(place + 1, len(trials)):
                apart = self.study.torque_size.nmse(torques[later] - torques[place])
                agrees = apart < trial.validation + trials[later].validation
                if agrees and trial.validation < bound:
                    return place
        return None

    @cached_property
    def _other_motion(self) -> Dataset:
        key = jax.random.fold_in(self.study.key, 0)
        return other_motion(self.study.dataset, key=key)

    def _apart(self, first: Model, second: Model) -> float:
        """The nMSE by which two arms differ on motion that the log does not have."""
        torques = torques_of([first, second], self._other_motion)
        return self.study.torque_size.nmse(torques[1] - torques[0])

    def _searched(self, number: int, partner: Seat | None) -> ArmTrial:
        """The end of one search; the first one has the key of the study."""
        study = replace(self.study, partner=partner)
        if number > 0:
            key = jax.random.fold_in(study.key, number)
            study = replace(study, key=key, watch=None)
        # The arm is looked for with all samples. Wrong ones have far larger errors even on what
        # they learned from; how good the right one is, the folds tell.
        try:
            result = fit_model(study.without(NOTHING), self.model)
        finally:
            if partner is not None:
                partner.leave()
        study = replace(study, partner=None)
        trial = replace(ArmTrial.of(result.model, study), others=result.others)
        trial = self._upright(trial, study)
        if number == 0:
            self.first_look(trial.validation)
        return trial

    def _upright(self, free: ArmTrial, study: Study) -> ArmTrial:
        """The trial of the same arm with a vertical first axis, unless it is worse than `free`."""
        chain = free.start.chain
        if self.over() or chain is None or chain.joints.sliding[0]:
            return free
        settings = replace(study.settings, objective=Objective(upright=UPRIGHT))
        study = replace(study, settings=settings)
        everything = study.without(NOTHING)
        others = free.others
        if free.validation > UNSURE:
            result = fit_model(everything, self.model)
            start = result.model
            others = result.others
        else:
            refit = Refit.of(vertical(free.start), everything, iterations=UPRIGHT_ITERATIONS)
            start = refit(everything)
        trial = replace(ArmTrial.of(start, study), others=others)
        return trial if trial.validation <= EQUALLY_GOOD * free.validation else free


def vertical(model: Model) -> Model:
    """The model with gravity along its first axis, the rest as it is."""
    chain = model.chain
    assert chain is not None
    gravity = np.zeros(3)
    gravity[2] = np.copysign(np.linalg.norm(chain.gravity), chain.gravity[2])
    return model.with_mechanics(eqx.tree_at(lambda chain: chain.gravity, chain, on_device(gravity)))


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

    def walk(self, place: int) -> dict[int, ArmTrial]:
        """Search for the arm at a place, and try the cut-offs on both sides as far as they pay."""
        search = self.search
        arms = ArmSearch(self.study(place), search.chain, search.searches, lambda: self.over)
        if search.first_look is not None:
            arms = replace(arms, first_look=search.first_look)
        found = arms.run()
        trials = {place: found}
        for step in (1, -1):
            at = place
            best = found.validation
            worse = 0
            while worse < 2 and 0 <= at + step < len(self.grid) and not self.over:
                at += step
                trials[at] = self.score(at, found)
                error = trials[at].validation
                worse = worse + 1 if error > WORSE * best else 0
                best = min(best, error)
        return trials

    def delay(self, place: int, best: ArmTrial) -> Delay:
        """The delay of the torques, none if the folds do not agree on one."""

        def tried(seconds: float) -> tuple[Study, CrossFit] | None:
            if self.over:
                return None
            study = self.study(place, seconds, objective=best.objective)
            return study, ArmTrial.of(best.start, study).cross

        study = self.study(place, objective=best.objective)
        return find_delay(study, best.cross, tried, step=usual_step(self.recording.t))

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
                objective=objective or Objective(),
            ),
            friction=START,
            key=search.key,
            stop=search.stop,
            watch=search.watch,
        )

    def score(self, place: int, arm: ArmTrial) -> ArmTrial:
        """The same arm at another cut-off."""
        return ArmTrial.of(arm.start, self.study(place, objective=arm.objective))

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
