"""The models that compete in a fit: each contender takes a study and returns its entry."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..joints import Dataset
from ..models.friction import Friction, FrictionSettings
from ..models.model import Model
from ..models.networks import FeedForwardSettings, LagrangianNetworkSettings
from ..solvers.adam import DescentSettings
from ..solvers.plan import SMALL_DOF, ModelChoice
from .model_fit import FRESH, TrainingStart, fit_model, without_accelerations
from .refit import Refit, cross_fit, known_fit
from .structure_search import CLAIMED, EXACT, search_structure
from .study import LEAST_SECONDS, NOTHING, Contender, CrossFit, Entry, Study, TrainingResult

# Weight decays and widths that the networks are tried with, in this order. Real logs are small and
# repetitive, so that networks need far stronger regularisation than usual.
DECAYS = (1e-3, 1e-1, 1e-5)
WIDTHS = (64, 16)
# Steps of Adam that each of these trials gets, and the fewest passes over a long log. The best
# network gets as many once more, from where it is.
STEPS = 1500
LEAST_EPOCHS = 10
# A network is given up if its error is this many times that of the chain early in a trial, after
# the first trial, and after those of all decays: the rest of a trial or another decay change an
# error by a few times, a width by tens of per cent.
HOPELESS_EARLY = 30.0
HOPELESS_AT_FIRST = 10.0
HOPELESS = 3.0
# Most torques in training, samples × joints, with which a network is trained by the second-order
# method beside other models: two minutes on one core. The fewest seconds for that.
MOST_EXACT_TORQUES = 20_000
LEAST_EXACT_SECONDS = 15.0
# Iterations of a chain on all samples; and without each fold, on as many samples at most.
WHOLE_ITERATIONS = 30
FOLD_ITERATIONS = 8
FOLD_ROWS = 1000
# Seconds below which a structure of a chain is not searched for.
LEAST_STRUCTURE_SECONDS = 10.0
# Seconds below which a chain is not tried without accelerations.
LEAST_WINDOW_SECONDS = 5.0


@dataclass(frozen=True)
class Constant:
    """The mean torque of the training motion: what every model must beat."""

    name: str = "constant"

    def fit(self, study: Study) -> Entry:
        joints = study.dataset.joints
        mean = study.training.samples.tau.mean(axis=0)
        offset = Friction.of(joints, FrictionSettings(("offset",), passive=False), mean[None])
        model = Model(friction=jax.tree.map(jnp.asarray, offset))
        cross = known_fit(study, model)
        return Entry(self.name, model, cross.scores(), 0.0, cross=cross)


@dataclass(frozen=True, eq=False)
class Chain:
    """A rigid arm of learned geometry with its friction, then tried without accelerations.

    Attributes:
        start: a model to start from, such as that of the search for a cut-off.
        unfiltered: the same motion without a filter, to try windows on; None: not tried.
        structured: whether to look for joints that depend on several coordinates: for couplings
            always, and for parallelograms where the plain chain leaves torque unexplained or no two
            searches found the same arm.
        confirmed: whether two searches found the arm of `start`.
    """

    start: TrainingStart = FRESH
    unfiltered: Dataset | None = None
    seeds: int = 1
    model: ModelChoice = "chain"
    structured: bool = False
    confirmed: bool = True
    name: str = "chain"

    @classmethod
    def starting_from(cls, model: Model) -> "Chain":
        """A chain that starts from one, with its tree."""
        assert model.chain is not None
        return cls(start=TrainingStart(model=model), model=model.chain.settings)

    def fit(self, study: Study) -> Entry:
        began = time.perf_counter()
        first = study.part("chain").followed(self.name)
        by_folds = study.dataset.counted is not None and study.settings.accelerations == "given"
        if by_folds:
            first = _of_everything(first)
        result = fit_model(first, self.model, self.start, seeds=self.seeds)
        if self.structured:
            unsure = result.doubtful or not self.confirmed
            result = with_structure(result, first, parallelograms=unsure)
        trial = None
        after = study.part("windows")
        seconds = after.settings.seconds
        enough = seconds is None or seconds > LEAST_WINDOW_SECONDS
        if self.unfiltered is not None and enough and not result.interrupted:
            result, trial = without_accelerations(after, result, self.unfiltered)
        accelerations = "filtered"
        if study.settings.accelerations == "none" or (trial is not None and trial.better):
            accelerations = "none"
        chosen = {"friction": friction_terms(result.model), "accelerations": accelerations}
        chain = result.model.chain
        if chain is not None and chain.settings.coupling is not None:
            chosen["structure"] = list(chain.tree_joints.names)
        if chain is not None and chain.settings.parents is not None:
            chosen["parents"] = list(chain.settings.parents)
        entry = Entry(self.name, result.model, result.validation, 0.0, chosen, result, trial)
        if by_folds and accelerations == "filtered":
            entry = self._without_each_fold(entry, result, study)
        elif accelerations == "filtered":
            entry = replace(entry, cross=known_fit(study, entry.model))
        return replace(entry, seconds=time.perf_counter() - began)

    def _without_each_fold(self, entry: Entry, result: TrainingResult, study: Study) -> Entry:
        """The entry scored on every fold; its model learned from all of them."""
        refit = Refit.of(entry.model, study, iterations=FOLD_ITERATIONS, count=FOLD_ROWS)
        cross = cross_fit(study, entry.model, refit)
        scores = cross.scores()
        return replace(
            entry,
            model=cross.members[0],
            validation=scores,
            relearned=entry.model,
            cross=cross,
            training=replace(result, validation=scores),
        )


@dataclass(frozen=True, eq=False)
class SingleTraining:
    """One model trained exactly as asked, nothing but the settings given."""

    name: str
    model: ModelChoice
    start: TrainingStart = FRESH
    seeds: int = 1

    def fit(self, study: Study) -> Entry:
        study = study.part("rivals").followed(self.name)
        result = fit_model(study, self.model, self.start, seeds=self.seeds)
        chosen = {"friction": friction_terms(result.model)}
        return Entry(
            self.name,
            result.model,
            result.validation,
            result.seconds,
            chosen,
            result,
            cross=_seen_once(study, result.model),
        )


@dataclass(frozen=True)
class Network:
    """A network whose weight decay, width and stopping point the validation motion chooses."""

    name: Literal["delan", "feedforward"]

    def fit(self, study: Study) -> Entry:
        began = time.perf_counter()
        if self.name == "feedforward":
            study = replace(study, friction=None)
        limit = study.settings.seconds
        # Every decay at the first width, then the best decay at the other widths, then the best
        # of all once more.
        remaining = len(DECAYS) + len(WIDTHS)
        best: TrainingResult | None = None
        chosen = {}
        for width in WIDTHS:
            decays = DECAYS
            if best is not None:
                decays = (chosen["weight_decay"],)
            for decay in decays:
                elapsed = time.perf_counter() - began
                late = limit is not None and elapsed > limit
                if study.stop.is_set() or (best is not None and late):
                    break
                seconds = None
                if limit is not None:
                    seconds = max(LEAST_SECONDS, (limit - elapsed) / remaining)
                result = self._try(study.within(seconds), width, decay)
                remaining -= 1
                if best is None or result.error < best.error:
                    best = result
                    chosen = {"width": width, "weight_decay": decay}
                if best.error > HOPELESS_AT_FIRST * study.bar:
                    break
            if best is not None and best.error > HOPELESS * study.bar:
                times = best.error / study.bar
                chosen["stopped"] = f"its error is {times:.0f} times that of the chain"
                break
        assert best is not None
        if not study.stop.is_set() and "stopped" not in chosen:
            best = self._continued(best, study.within(_left(limit, began)), chosen)
        rest = study.within(_left(limit, began))
        if self._may_be_exact(best, rest):
            exact = self._exactly(rest)
            if exact.error < best.error:
                best = exact
                chosen = {"optimizer": exact.optimizer}
        took = time.perf_counter() - began
        cross = _seen_once(study, best.model)
        return Entry(self.name, best.model, best.validation, took, chosen, best, cross=cross)

    def on_every_fold(self, entry: Entry, study: Study) -> Entry:
        """The entry trained without each fold in turn, as it was without the first one."""
        if self.name == "feedforward":
            study = replace(study, friction=None)
        chosen = entry.chosen

        def refit(part: Study) -> Model:
            if part.fold == study.fold:
                return entry.model
            result = self._try(part, chosen["width"], chosen["weight_decay"])
            return self._continued(result, part, chosen).model

        cross = cross_fit(study, entry.model, refit)
        return replace(entry, validation=cross.scores(), cross=cross)

    def _may_be_exact(self, result: TrainingResult, study: Study) -> bool:
        """Whether the second-order method is worth its time: for few joints that are no chain.

        Signals without a filter are clean enough for it. There it makes a Lagrangian network a
        thousand times more exact, so that one that is behind the chain so far may still win.
        """
        seconds = study.settings.seconds
        if study.stop.is_set() or (seconds is not None and seconds < LEAST_EXACT_SECONDS):
            return False
        known = study.training.samples
        small = known.dof <= SMALL_DOF and known.tau.size <= MOST_EXACT_TORQUES
        clean = study.dataset.counted is None and study.settings.accelerations == "given"
        near = result.error < HOPELESS_AT_FIRST * study.bar
        return self.name == "delan" and small and clean and near

    def _exactly(self, study: Study) -> TrainingResult:
        """A small network, trained by the second-order method."""
        settings = replace(study.settings, epochs=None, optimizer="lm")
        return fit_model(replace(study, settings=settings), self.name)

    def _continued(
        self, result: TrainingResult, study: Study, chosen: Mapping[str, Any]
    ) -> TrainingResult:
        """The network after as many steps again, from its best weights, if they improve it."""
        start = TrainingStart(model=result.model)
        after = self._try(study, chosen["width"], chosen["weight_decay"], start)
        if not after.error < result.error:
            return replace(result, interrupted=after.interrupted)
        return replace(after, seconds=after.seconds + result.seconds)

    def _try(
        self, study: Study, width: int, decay: float, start: TrainingStart = FRESH
    ) -> TrainingResult:
        kinds = {"delan": LagrangianNetworkSettings, "feedforward": FeedForwardSettings}
        epochs = None
        if study.settings.seconds is None:
            count = len(study.dataset.samples)
            epochs = max(LEAST_EPOCHS, STEPS * min(DescentSettings.batch, count) // count)
        objective = replace(study.settings.objective, weight_decay=decay)
        settings = replace(study.settings, epochs=epochs, optimizer="adam", objective=objective)
        if np.isfinite(study.bar):
            settings = replace(settings, hopeless=HOPELESS_EARLY * study.bar)
        return fit_model(replace(study, settings=settings), kinds[self.name](width=width), start)


def with_structure(result: TrainingResult, study: Study, *, parallelograms: bool) -> TrainingResult:
    """A chain whose joints depend on several coordinates, if that explains the log better.

    The plain chain stays unless the structure halves its error.
    """
    limit = study.settings.seconds
    left = float("inf") if limit is None else limit - result.seconds
    plain = result.model.chain is not None and result.model.chain.settings.coupling is None
    asked = plain and study.settings.accelerations == "given"
    if not asked or result.interrupted or result.model.joints.dof == 1 or result.error < EXACT:
        return result
    if left < LEAST_STRUCTURE_SECONDS:
        return result
    until = time.perf_counter() + left / 2
    structure = search_structure(
        result.model,
        study,
        parallelograms=parallelograms,
        enough=lambda: study.stop.is_set() or time.perf_counter() > until,
    )
    result = replace(result, structure=structure.steps)
    if structure.model is None or study.stop.is_set():
        return result
    assert structure.model.chain is not None
    start = TrainingStart(model=structure.model)
    rest = study.within(None if limit is None else max(LEAST_SECONDS, left / 2))
    found = fit_model(rest, structure.model.chain.settings, start)
    if not found.error < CLAIMED * result.error:
        return result
    return replace(found, structure=structure.steps, seconds=found.seconds + result.seconds)


def unconfirmed(entry: Entry, chain: Entry) -> Network | None:
    """The network that won on fewer folds than the chain has, if that is what the entry is."""
    for name in ("delan", "feedforward"):
        if entry.name == name and entry.folds < chain.folds:
            return Network(name)
    return None


def _left(limit: float | None, began: float) -> float | None:
    """The seconds that are left of a limit, at least one; None: no limit."""
    if limit is None:
        return None
    return max(LEAST_SECONDS, limit - (time.perf_counter() - began))


def side_by_side(contenders: Sequence[Contender], study: Study) -> list[Entry]:
    """Fit models at the same time, because XLA releases the interpreter while it computes."""
    with ThreadPoolExecutor(max(1, len(contenders))) as pool:
        futures = []
        for contender in contenders:
            futures.append(pool.submit(contender.fit, study.followed(contender.name)))
        try:
            wait(futures)
        except KeyboardInterrupt:
            study.stop.set()
        return [future.result() for future in futures]


def _of_everything(study: Study) -> Study:
    """The study of a training on all samples, for as many iterations as need no stop."""
    settings = study.settings
    if settings.epochs is None:
        settings = replace(settings, epochs=WHOLE_ITERATIONS)
    return replace(study.without(NOTHING), settings=settings)


def _seen_once(study: Study, model: Model) -> CrossFit | None:
    """The errors of a model that was trained without the present fold; None without q̈."""
    if study.settings.accelerations == "none":
        return None
    return known_fit(study, model)


def friction_terms(model: Model) -> list[str]:
    """The terms of a model's friction and the names of its motor pairs."""
    friction = model.friction
    if friction is None:
        return []
    return [*friction.settings.terms, *friction.motors[model.joints.dof :]]
