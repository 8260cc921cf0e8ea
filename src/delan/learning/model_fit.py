"""The training of one model: size, method, friction, the best weights, and their refinement."""

import hashlib
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..errors import SettingsError
from ..joints import Dataset, evenly_spaced
from ..logs.split import counting
from ..models.dynamics import in_precision
from ..models.model import Model, as_model, without_trust
from ..solvers.linearised import one_blas_thread
from ..solvers.loss import Anchor, Scale, Windows
from ..solvers.marquardt import NEARBY
from ..solvers.plan import (
    MOST_WINDOWS,
    ModelChoice,
    Plan,
    build,
    head,
    plan,
    samples,
    stages,
)
from ..solvers.stages import MarquardtStage, StartsStage
from ..solvers.training import (
    Checkpoint,
    Limits,
    Run,
    Stage,
    TrainingSettings,
    require_learned,
    train,
)
from .friction_search import SelectionStep, select_friction
from .residual_check import Misfit, diagnose
from .scores import Scores, TorqueSize, evaluate_windows, predict_samples, torque_scores
from .study import LEAST_SECONDS, Study, TrainingResult, WindowTrial

# Shares of the seconds after which a fit with friction to be chosen turns to that choice, and after
# which the choice ends.
FIRST_SHARE = 0.5
CHOICE_SHARE = 0.75
# A training that took this share of its seconds was ended by them: its next step had been too long.
LATE = 0.9
# Iterations that a model to start from gets before its friction is chosen.
SETTLING = 20
# Iterations on windows, and how many without progress end them.
WINDOW_ITERATIONS = 12
WINDOW_PATIENCE = 10.0


@dataclass(frozen=True, eq=False)
class TrainingStart:
    """Where a training starts and where it is kept.

    Attributes:
        model: a model of this kind to continue from, in place of random weights.
        anchor: how firmly a chain is held to that model; 0: not at all.
        checkpoint: file for the state of an unfinished training, removed when it is done.
        resume: continue from the checkpoint, if there is one, to the result of an unbroken run.
    """

    model: Model | None = None
    anchor: float = 0.0
    checkpoint: Path | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        held = self.anchor > 0
        if not 0 <= self.anchor < float("inf") or (held and self.model is None):
            raise SettingsError(
                f"anchor holds a model to its start, got anchor={self.anchor} and "
                f"model={self.model}; give both, or neither"
            )
        if self.resume and self.checkpoint is None:
            raise SettingsError("resume needs the path of a checkpoint; give checkpoint= as well")

    def stages(self, study: Study, fresh: Model, usual: list[Stage]) -> tuple[Model, list[Stage]]:
        """The model to begin with, and the stages that remain for it."""
        if self.model is None:
            return fresh, usual
        model = _continued(self.model, fresh)
        stage = usual[-1]
        if study.friction == "auto" and isinstance(stage, MarquardtStage):
            stage = replace(stage, epochs=SETTLING)
        if self.anchor > 0:
            stage = _anchored(stage, model, self.anchor)
        return model, [stage]


FRESH = TrainingStart()


@one_blas_thread()
def fit_model(
    study: Study, model: ModelChoice = "delan", start: TrainingStart = FRESH, *, seeds: int = 1
) -> TrainingResult:
    """Train one model on the training motion and keep the weights that are best on validation.

    A stop or an interrupt (Ctrl-C) ends the training early with the best model so far and
    `interrupted` set. With several seeds, as many models are trained in parallel.
    """
    if seeds < 1:
        raise SettingsError(f"seeds must be at least 1, got {seeds}")
    if seeds == 1:
        return _Trainer(study, model, start).run()
    if start.checkpoint is not None:
        raise SettingsError(
            f"a checkpoint holds one training, and {seeds} were asked for; use it with seeds=1"
        )
    return _fit_seeds(study, model, start, seeds)


def score(
    model: Any, dataset: Dataset, settings: TrainingSettings, size: TorqueSize | None = None
) -> Scores:
    """The errors of a model on a motion, with or without accelerations as in its training."""
    if settings.accelerations == "none":
        return evaluate_windows(model, dataset)
    predicted = predict_samples(model, dataset)
    size = (size or TorqueSize.of(dataset)).for_model(model, dataset)
    return torque_scores(predicted, dataset.samples.tau, size)


@dataclass(eq=False)
class _Trainer:
    """One training, from its plan to its result."""

    study: Study
    choice: ModelChoice
    start: TrainingStart
    selection: tuple[SelectionStep, ...] = field(default=(), init=False)
    others: tuple[Model, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        study = self.study
        settings = study.settings
        # The first key is the one of the split.
        _, self.model_key, self.train_key = jax.random.split(study.key, 3)
        self.plan = plan(self.choice, study.training, settings, study.fixed_friction)
        self.limits = Limits.of(settings, study.stop)

    def run(self) -> TrainingResult:
        study = self.study
        with jax.enable_x64(True) if self.plan.optimizer == "lm" else nullcontext():
            run = self._first_run()
            require_learned(run, study.dataset.source)
            if study.friction == "auto" and not run.interrupted:
                self._choose_friction(run)
        if self.start.checkpoint is not None and not run.interrupted:
            self.start.checkpoint.unlink(missing_ok=True)
        return self._result(run)

    def _first_run(self) -> Run:
        study = self.study
        network = build(self.plan.network, study.training, self.model_key, self.plan.friction)
        usual = stages(
            self.plan,
            study.training,
            study.validation,
            study.settings,
            key=self.model_key,
            stop=study.stop,
            partner=study.partner,
        )
        network, steps = self.start.stages(study, network, usual)
        limits = self.limits
        if study.friction == "auto" and limits.seconds is not None:
            limits = replace(limits, seconds=FIRST_SHARE * limits.seconds)
        checkpoint = None
        if self.start.checkpoint is not None:
            fingerprint = _fingerprint(study, self.plan, self.start)
            checkpoint = Checkpoint(self.start.checkpoint, fingerprint, self.start.resume)
        run = train(
            steps, network, limits, key=self.train_key, checkpoint=checkpoint, watch=study.watch
        )
        if isinstance(steps[0], StartsStage):
            self.others = tuple(steps[0].others)
        return run

    def _choose_friction(self, run: Run) -> None:
        """Choose the friction that the robot has beyond the usual, and continue with it."""
        study = self.study
        began = time.perf_counter() - run.seconds
        until = float("inf")
        if self.limits.seconds is not None:
            until = began + CHOICE_SHARE * self.limits.seconds
        try:
            friction, self.selection = select_friction(
                run.best_model,
                study.parts,
                windows=study.settings.accelerations == "none",
                enough=lambda: study.stop.is_set() or time.perf_counter() > until,
            )
        except KeyboardInterrupt:
            run.interrupted = True
            return
        run.seconds = time.perf_counter() - began
        if time.perf_counter() > until:
            run.events.append(
                "the time was over before all terms of friction were tried; give it more seconds"
            )
        run.interrupted |= study.stop.is_set()
        if run.interrupted or friction == self.plan.friction:
            return
        self.plan = replace(self.plan, friction=friction)
        self._continue_with_friction(run)

    def _continue_with_friction(self, run: Run) -> None:
        study = self.study
        assert self.plan.friction is not None
        model = Model(run.best_model.mechanics, head(self.plan.friction, study.training))
        last = stages(
            self.plan, study.training, study.validation, study.settings, key=self.train_key
        )[-1]
        limits = self.limits
        if limits.seconds is not None:
            limits = replace(limits, seconds=max(limits.seconds - run.seconds, LEAST_SECONDS))
        after = train([last], model, limits, key=self.train_key, watch=study.watch)
        for row in after.history:
            run.history.append(replace(row, seconds=row.seconds + run.seconds))
        run.events += after.events
        run.seconds += after.seconds
        run.interrupted = after.interrupted
        if after.best < run.best:
            run.best = after.best
            run.best_model = after.best_model
            return
        terms = ", ".join(run.best_model.friction.settings.terms)
        run.events.append(
            "a fit with all chosen terms of friction was no better on validation; "
            f"the model has {terms}"
        )

    def _result(self, run: Run) -> TrainingResult:
        study = self.study
        # A float64 fit returns its weights in the caller's precision, so that they mix with the
        # caller's arrays.
        fitted = in_precision(run.best_model)
        misfit = self._misfit(run, fitted)
        return TrainingResult(
            model=fitted,
            validation=score(fitted, study.judged, study.settings, study.torque_size),
            optimizer=self.plan.optimizer,
            reason=self.plan.reason,
            settings=study.settings,
            seed=study.seed,
            seconds=run.seconds,
            samples=len(study.training.samples),
            interrupted=run.interrupted,
            misfit=misfit,
            history=tuple(run.history),
            events=tuple(run.events),
            trajectories=study.validation.samples.trajectories,
            selection=self.selection,
            settled=not self._is_late(run),
            others=self.others,
        )

    def _is_late(self, run: Run) -> bool:
        """Whether time was over before the training came to its own end."""
        seconds = self.study.settings.seconds
        return seconds is not None and run.seconds >= LATE * seconds

    def _misfit(self, run: Run, fitted: Model) -> Misfit | None:
        """Whether the residual of a chain is noise."""
        settings = self.study.settings
        # Where nothing is filtered, single moments are too noisy to ask.
        if settings.accelerations == "none" or fitted.chain is None:
            return None
        misfit = diagnose(fitted, self.study.validation)
        if misfit.doubtful:
            if self._is_late(run):
                run.events.append(
                    f"{settings.seconds:g} s were over before the fit had settled; give it more"
                )
            run.events.append(misfit.sentence())
        return misfit


def _continued(start: Model, fresh: Model) -> Model:
    """The model to continue from, in the precision of a fresh one.

    Its friction stays if it has the terms of the fresh one, and starts anew otherwise.
    """
    start = without_trust(as_model(start)).with_added_inertia(None)
    if _kind(start) != _kind(fresh):
        raise SettingsError(
            f"cannot start a {_kind(fresh)} from a {_kind(start)}; give a model of its kind"
        )
    if start.friction_settings != fresh.friction_settings:
        start = Model(start.mechanics, fresh.friction)
    return in_precision(start)


def _kind(model: Model) -> str:
    """The classes of the parts that a fit does not choose, such as `LagrangianChain`."""
    names = []
    for part in (model.mechanics, model.residual):
        if part is not None:
            names.append(type(part).__name__)
    return " with a ".join(names)


def _anchored(stage: Stage, start: Model, firmness: float) -> Stage:
    if not isinstance(stage, MarquardtStage) or start.chain is None:
        raise SettingsError(
            "only a chain trained by Levenberg–Marquardt can be held to its start; leave anchor out"
        )
    return replace(stage, scale=replace(stage.scale, anchor=Anchor.of(start.chain, firmness)))


def _fit_seeds(
    study: Study, model: ModelChoice, start: TrainingStart, seeds: int
) -> TrainingResult:
    """Train in one thread per core, because XLA releases the interpreter while it computes."""
    workers = min(os.cpu_count() or 1, seeds)
    _, *keys = jax.random.split(study.key, seeds + 1)
    if study.settings.seconds is not None:
        rounds = -(-seeds // workers)
        study = study.within(study.settings.seconds / rounds)
    with ThreadPoolExecutor(workers) as pool:
        futures = []
        watch = study.watch
        for key in keys:
            member = replace(study, key=key, watch=watch)
            futures.append(pool.submit(_Trainer(member, model, start).run))
            watch = None  # whoever follows the training sees the first seed alone
        try:
            wait(futures)
        except KeyboardInterrupt:
            study.stop.set()
        members = tuple(future.result() for future in futures)
    best = min(members, key=lambda member: member.error)
    return replace(best, members=members)


def _fingerprint(study: Study, chosen: Plan, start: TrainingStart) -> str:
    """A digest of data, network, method, settings, start and seed."""
    digest = hashlib.sha256()
    dataset = study.dataset
    columns = [dataset.t, dataset.q, dataset.qd, dataset.qdd, dataset.tau, dataset.trajectory]
    if dataset.counted is not None:
        columns.append(dataset.counted)
    columns += jax.tree.leaves(eqx.filter(start.model, eqx.is_array))
    for column in columns:
        digest.update(np.ascontiguousarray(column).tobytes())
    described: Mapping[str, Any] = {
        "plan": asdict(chosen),
        "friction": "auto" if study.friction == "auto" else "given",
        "anchor": start.anchor,
        "settings": study.settings.described(),
        "joints": asdict(dataset.joints),
    }
    digest.update(repr((described, study.seed)).encode())
    return digest.hexdigest()


def without_accelerations(
    study: Study, result: TrainingResult, unfiltered: Dataset
) -> tuple[TrainingResult, WindowTrial | None]:
    """Continue on windows over the unfiltered motion; keep the model with the lower error."""
    friction = result.model.friction_settings
    if friction is not None and "load" in friction.terms:
        return result, None  # the load is not known without accelerations
    settings = study.settings
    with jax.enable_x64(True):
        windows = Windows.of(counting(unfiltered, study.left_out.training), friction)
        stage = MarquardtStage(
            training=windows.rows(evenly_spaced(len(windows), MOST_WINDOWS)),
            validation=samples(study.validation, friction),
            scale=Scale.of(study.training, settings.objective),
            objective=settings.objective,
            settings=NEARBY,
            epochs=WINDOW_ITERATIONS,
            patience=WINDOW_PATIENCE,
        )
        limits = Limits.of(settings, study.stop)
        run = train([stage], in_precision(result.model), limits, key=study.key)
    model = in_precision(run.best_model)
    scores = score(model, study.judged, settings, study.torque_size)
    trial = WindowTrial(result.error, scores.torque.nmse_mean)
    if trial.better:
        result = replace(result, model=model, validation=scores)
    return result, trial
