"""Fit a model to a dataset: choose size and method, hold out validation trajectories, train, keep the best."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data.splitting import hold_out, split_key
from ..errors import DataError, SettingsError
from ..joints import Dataset
from ..models.actuated import ActuatedModel, links_of
from ..models.blueprint import LearnedModel
from ..models.chain import LagrangianChain, LagrangianChainSettings
from ..models.dynamics import DynamicsModel, in_precision
from ..models.trust import TrustedModel, bare
from .evaluate import Scores, evaluate
from .fit_result import FitResult, Friction, require_friction
from .misfit import diagnose
from .objective import Anchor
from .planning import FitSettings, ModelChoice, Plan, build, head, plan, stages
from .selection import START, SelectionStep, select_friction
from .stages import MarquardtStage, Stage
from .training import Checkpoint, Limits, Progress, Run, require_learned, train
from .weak import evaluate_windows

FIRST_SHARE, CHOICE_SHARE = 0.5, 0.75
"""The share of `seconds` after which a fit with friction to be chosen turns to the choice, and by which it is made."""

SETTLING = 20
"""Iterations that a model to start from gets before its friction is chosen."""


def fit(
    dataset: Dataset,
    model: ModelChoice = "delan",
    settings: FitSettings | None = None,
    *,
    friction: Friction = None,
    start: LearnedModel | TrustedModel | None = None,
    anchor: float = 0.0,
    key: PRNGKeyArray | None = None,
    seeds: int = 1,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    stop: threading.Event | None = None,
) -> FitResult:
    """Learn one model of the dataset's dynamics; the arguments are those of the public `choosing.fit`."""
    settings = checked(dataset, settings)
    key = jax.random.key(0) if key is None else key
    if seeds < 1:
        raise SettingsError(f"seeds must be at least 1, got {seeds}")
    require_friction(friction)
    if not 0 <= anchor < float("inf") or (anchor > 0 and start is None):
        raise SettingsError(
            f"anchor holds a model to its start, got {anchor} with start={start}; give both, or neither"
        )
    if resume and checkpoint is None:
        raise SettingsError("resume needs the path of a checkpoint; give checkpoint=, or leave resume out")
    begin = None if start is None else Begin(start, anchor)
    if seeds > 1:
        if checkpoint is not None:
            raise SettingsError(f"a checkpoint holds one fit, and {seeds} were asked for; use it with seeds=1")
        return _fit_seeds(dataset, model, settings, friction, begin, key, seeds, progress, stop or threading.Event())
    where = None if checkpoint is None else Path(checkpoint)
    return _fit_one(dataset, model, settings, friction, begin, key, progress, where, resume, stop)


def checked(dataset: Dataset, settings: FitSettings | None) -> FitSettings:
    """The settings, or the usual ones; refuses what stands in the wrong place."""
    settings = settings or FitSettings()
    if not isinstance(dataset, Dataset):
        raise DataError("fit", f"expected a Dataset, got a {type(dataset).__name__}; make one with delan.prepare")
    if not isinstance(settings, FitSettings):
        raise SettingsError(f"settings must be delan.FitSettings, got {type(settings).__name__}")
    return settings


@dataclass(frozen=True, eq=False)
class Begin:
    """A model to go on from, and how firmly a chain is held to it."""

    model: LearnedModel | TrustedModel
    anchor: float

    def stages(self, network: LearnedModel, usual: list[Stage], friction: Friction) -> tuple[LearnedModel, list[Stage]]:
        """The model to begin with, and the stages that are left to it."""
        network, stage = _begun(self.model, network), usual[-1]
        if friction == "auto" and isinstance(stage, MarquardtStage):
            stage = replace(stage, epochs=SETTLING)
        return network, [_anchored(stage, network, self.anchor) if self.anchor > 0 else stage]


def _fit_one(
    dataset: Dataset,
    model: ModelChoice,
    settings: FitSettings,
    friction: Friction,
    begin: Begin | None,
    key: PRNGKeyArray,
    progress: Callable[[Progress], None] | None,
    checkpoint: Path | None,
    resume: bool,
    stop: threading.Event | None,
    shared_split: PRNGKeyArray | None = None,
) -> FitResult:
    _, model_key, train_key = jax.random.split(key, 3)  # the first is that of `split_key`
    kept_apart = split_key(key) if shared_split is None else shared_split
    training, validation = hold_out(dataset, settings.validation, key=kept_apart)
    chosen = plan(model, training, settings, START if friction == "auto" else friction)
    kept = None
    if checkpoint is not None:
        kept = Checkpoint(checkpoint, _fingerprint(dataset, chosen, settings, friction, begin, key), resume)
    with jax.enable_x64(True) if chosen.optimizer == "lm" else nullcontext():
        network = build(chosen.network, training, model_key, chosen.actuator)
        steps = stages(chosen, training, validation, settings, key=model_key, stop=stop)
        if begin is not None:
            network, steps = begin.stages(network, steps, friction)
        limits = Limits(settings.seconds, settings.retreats, stop)
        first = limits
        if friction == "auto" and settings.seconds is not None:
            first = replace(limits, seconds=FIRST_SHARE * settings.seconds)
        run = train(steps, network, first, key=train_key, checkpoint=kept, watch=progress)
        require_learned(run, dataset.source)
        selection: tuple[SelectionStep, ...] = ()
        if friction == "auto" and not run.interrupted:
            chosen, selection = _add_friction(run, chosen, training, validation, settings, limits, train_key, progress)
    if checkpoint is not None and not run.interrupted:
        checkpoint.unlink(missing_ok=True)
    # A float64 fit hands its weights over in the caller's precision, so that they mix with the caller's arrays.
    fitted = in_precision(run.best_model)
    told = settings.accelerations == "given"  # what is left over at single moments is noise where nothing is filtered
    misfit = diagnose(fitted, validation) if told and isinstance(chosen.network, LagrangianChainSettings) else None
    if misfit is not None and misfit.doubtful:
        if settings.seconds is not None and run.seconds >= settings.seconds:
            run.events.append(f"{settings.seconds:g} s were over before the fit had settled; give it more")
        run.events.append(misfit.sentence())
    return FitResult(
        model=fitted,
        validation=score(fitted, validation, settings),
        optimizer=chosen.optimizer,
        reason=chosen.reason,
        settings=settings,
        seed=tuple(np.asarray(jax.random.key_data(key)).tolist()),
        seconds=run.seconds,
        samples=len(training.samples),
        interrupted=run.interrupted,
        history=tuple(run.history),
        events=tuple(run.events),
        trajectories=validation.samples.trajectories,
        selection=selection,
        misfit=misfit,
    )


def score(model: Any, dataset: Dataset, settings: FitSettings) -> Scores:
    """The errors of a model on motion it has not seen, as the fit sees motion."""
    if settings.accelerations == "none":
        return evaluate_windows(model, dataset)
    return evaluate(model, dataset, rollouts=False)


def _begun(start: LearnedModel | TrustedModel, fresh: LearnedModel) -> LearnedModel:
    """The model to go on from, in the precision of a fresh one, with the fresh one's friction where it is another."""
    start = bare(start)
    links: Any = links_of(start)
    wanted = links_of(fresh)
    if type(links) is not type(wanted):
        names = type(wanted).__name__, type(links).__name__
        raise SettingsError(f"cannot start a {names[0]} from a {names[1]}; give a model of its kind")
    if not isinstance(fresh, ActuatedModel):
        return in_precision(links)
    same = isinstance(start, ActuatedModel) and start.actuator.settings == fresh.actuator.settings
    begun = start if same else ActuatedModel(cast(DynamicsModel, links), fresh.actuator)
    return in_precision(begun)


def _anchored(stage: Stage, start: LearnedModel, firmness: float) -> Stage:
    chain = links_of(start)
    if not isinstance(stage, MarquardtStage) or not isinstance(chain, LagrangianChain):
        raise SettingsError("only a chain trained by Levenberg–Marquardt can be held to its start; leave anchor out")
    return replace(stage, scale=replace(stage.scale, anchor=Anchor.of(chain, firmness)))


def _add_friction(
    run: Run,
    chosen: Plan,
    training: Dataset,
    validation: Dataset,
    settings: FitSettings,
    limits: Limits,
    key: PRNGKeyArray,
    progress: Callable[[Progress], None] | None,
) -> tuple[Plan, tuple[SelectionStep, ...]]:
    """Choose the friction that the robot has beyond the usual, and go on with it; the run is carried forward."""
    began = time.perf_counter() - run.seconds
    until = float("inf") if limits.seconds is None else began + CHOICE_SHARE * limits.seconds
    stop = limits.stop or threading.Event()
    try:
        actuator, selection = select_friction(
            run.best_model,
            training,
            validation,
            windows=settings.accelerations == "none",
            enough=lambda: stop.is_set() or time.perf_counter() > until,
        )
    except KeyboardInterrupt:
        run.interrupted = True
        return chosen, ()
    run.seconds = time.perf_counter() - began
    if time.perf_counter() > until:
        run.events.append("the time was over before all terms of friction were tried; give it more seconds")
    run.interrupted |= stop.is_set()
    if run.interrupted:
        return chosen, selection
    if actuator == chosen.actuator:
        return chosen, selection
    chosen = replace(chosen, actuator=actuator)
    model = ActuatedModel(run.best_model.rigid, head(actuator, training))
    last = stages(chosen, training, validation, settings, key=key)[-1]
    left = None if limits.seconds is None else max(limits.seconds - run.seconds, 1.0)
    after = train([last], model, replace(limits, seconds=left), key=key, watch=progress)
    run.history += [replace(row, seconds=row.seconds + run.seconds) for row in after.history]
    run.events += after.events
    run.seconds += after.seconds
    run.interrupted = after.interrupted
    if after.best < run.best:
        run.best, run.best_model = after.best, after.best_model
    else:
        kept = ", ".join(run.best_model.actuator.settings.terms)
        run.events.append(f"a fit with all chosen terms of friction was no better on validation; the model has {kept}")
    return chosen, selection


def _fit_seeds(
    dataset: Dataset,
    model: ModelChoice,
    settings: FitSettings,
    friction: Friction,
    begin: Begin | None,
    key: PRNGKeyArray,
    seeds: int,
    progress: Callable[[Progress], None] | None,
    stop: threading.Event,
) -> FitResult:
    """One thread a core, for XLA lets go of the interpreter while it computes; all hold out the same trajectories."""
    workers = min(os.cpu_count() or 1, seeds)
    if settings.seconds is not None:
        settings = replace(settings, seconds=settings.seconds / -(-seeds // workers))
    with ThreadPoolExecutor(workers) as pool:
        shared, *keys = jax.random.split(key, seeds + 1)
        futures = [
            pool.submit(_fit_one, dataset, model, settings, friction, begin, one, watch, None, False, stop, shared)
            for one, watch in zip(keys, [progress, *[None] * (seeds - 1)], strict=True)
        ]
        try:
            members = tuple(future.result() for future in futures)
        except KeyboardInterrupt:
            stop.set()
            members = tuple(future.result() for future in futures)
    best = min(members, key=lambda member: member.validation.torque.nmse_mean)
    return replace(best, members=members)


def _fingerprint(
    dataset: Dataset, chosen: Plan, settings: FitSettings, friction: Friction, begin: Begin | None, key: PRNGKeyArray
) -> str:
    """Tells one fit from another: data, network, method, settings, where it began and seed."""
    digest = hashlib.sha256()
    columns = [dataset.t, dataset.q, dataset.qd, dataset.qdd, dataset.tau, dataset.trajectory]
    columns += [] if dataset.counted is None else [dataset.counted]
    weights = [] if begin is None else [leaf for leaf in jax.tree.leaves(begin.model) if eqx.is_array(leaf)]
    for column in (*columns, *weights):
        digest.update(np.ascontiguousarray(column).tobytes())
    settled: Mapping[str, Any] = {
        "plan": asdict(chosen),
        "friction": "auto" if friction == "auto" else "given",
        "anchor": None if begin is None else begin.anchor,
        "settings": asdict(settings),
        "joints": asdict(dataset.joints),
    }
    digest.update(repr((settled, np.asarray(jax.random.key_data(key)).tolist())).encode())
    return digest.hexdigest()
