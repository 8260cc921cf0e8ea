"""From a recording to the model worth deploying: prepare, let models compete, choose on unseen motion, say why."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data.preparation import PreparationSettings, prepare
from ..data.smoothing import HIGHEST_CUTOFF
from ..data.splitting import hold_out, split_key
from ..errors import SettingsError
from ..joints import Dataset, Recording
from ..models.actuated import ActuatedModel
from ..models.chain import LagrangianChain
from ..models.dynamics import InverseDynamics
from ..models.trust import TrustedModel, with_model
from .budget import Budget
from .contest import Contender, Entry, as_learned
from .ensemble import TrustSettings
from .fit import fit
from .fit_result import Friction, require_friction
from .more_data import LearningCurve, NextMotion, learning_curve, next_motion
from .objective import Objective
from .planning import FitSettings
from .preparing import PreparationChoice, choose_preparation
from .refining import relearned, without_accelerations
from .rivals import Watch, rivals
from .starts import SAMPLES
from .training import Progress
from .uncertainty import trust
from .weak import SECONDS

Accelerations = Literal["auto", "filtered", "none"]
SHARES = {"preparation": 0.3, "chain": 0.3, "weak": 0.08, "rivals": 0.2, "beyond": 0.12}
"""How the seconds are parted among the steps; the last one also stands for the page."""
WORTH_IT = 5.0
"""Seconds below which a chain is not tried without accelerations."""


@dataclass(frozen=True)
class LogFitSettings:
    """How to go from a log to a model.

    Attributes:
        models: that take part, beside a constant torque.
        friction: of the Lagrangian models, as in `fit`.
        accelerations: `filtered` from filtered motion; `auto`: or without any where unseen motion prefers that; `none`:
            without any from the start, and nothing is filtered (`weak.py`).
        cutoff: of the filter [Hz]; None: chosen.
        seconds: all of it may take, about, for every model gets one try; None: as long as it needs, and the same every
            time.
        fit: how each model is trained; its seconds are set from those above.
        urdf: file of the robot; its arm takes part then, identified and, beside a chain, as a place to begin.
    """

    models: tuple[Contender, ...] = ("chain", "delan", "feedforward")
    friction: Friction = "auto"
    accelerations: Accelerations = "auto"
    cutoff: float | None = None
    seconds: float | None = None
    fit: FitSettings = field(default_factory=FitSettings)
    urdf: Path | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise SettingsError(f"seconds must be positive and finite, got {self.seconds}")
        known = get_args(Contender)
        if not isinstance(self.models, tuple) or not self.models or not set(self.models) <= set(known):
            raise SettingsError(f"models is a tuple of {', '.join(known)}, got {self.models!r}")
        if self.accelerations not in get_args(Accelerations):
            known = get_args(Accelerations)
            raise SettingsError(f"accelerations is one of {', '.join(known)}, got {self.accelerations!r}")
        require_friction(self.friction)
        if self.accelerations == "none" and (self.cutoff is not None or "feedforward" in self.models):
            raise SettingsError(
                "without accelerations there is no cut-off to give, and no feed-forward network, which needs them; "
                "leave them out, or accelerations='none'"
            )


@dataclass(frozen=True, eq=False)
class LogFit:
    """All that came of a log.

    Attributes:
        entries: the models that took part, the best on the validation trajectories first.
        preparation: how cut-off and delay were chosen; `dataset.preparation` says what was done.
        dataset: the samples; training, validation: the parts they were split into. Where the models were learned
            without accelerations, these are filtered ones of the same motion, for pictures and for the band.
        weak: for the chain, its validation error with and without accelerations (None: not tried).
        trusted: the best model with an ensemble, a calibrated band and the domain of its data, as it was before it
            learned from the validation trajectories too; None of a constant.
        curve, motion: what more data would bring and what to record next; None unless the best model is a chain, or
            where the time was over.
    """

    entries: tuple[Entry, ...]
    preparation: PreparationChoice
    dataset: Dataset
    training: Dataset
    validation: Dataset
    weak: tuple[float, float] | None
    trusted: TrustedModel | None
    curve: LearningCurve | None
    motion: NextMotion | None
    settings: LogFitSettings
    seconds: float
    interrupted: bool

    @property
    def best(self) -> Entry:
        return self.entries[0]

    @property
    def model(self) -> InverseDynamics:
        """The best model, with its band and its domain where they were computed: the one to deploy."""
        if self.trusted is None:
            return self.best.deployed
        return with_model(self.trusted, as_learned(self.best))

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


def fit_log(
    recording: Recording,
    settings: LogFitSettings | None = None,
    *,
    key: PRNGKeyArray | None = None,
    progress: Watch = lambda name: None,
    stop: threading.Event | None = None,
) -> LogFit:
    """Prepare a log, train the models, and put the best on the validation trajectories first.

    `progress` is asked, for the name of each step, who watches it.
    """
    settings = settings or LogFitSettings()
    budget = Budget(settings.seconds, SHARES)
    key = jax.random.key(0) if key is None else key
    stop = stop or threading.Event()
    choice = _choice(recording, settings, budget, key, progress, stop)
    dataset = prepare(recording, choice.settings)
    training, validation = hold_out(dataset, settings.fit.validation, key=split_key(key))
    learned_from = dataset
    if settings.accelerations == "none":
        learned_from = prepare(recording, choice.settings.unfiltered)
        settings = replace(settings, fit=replace(settings.fit, accelerations="none"))
    entries, weak = _compete(recording, learned_from, choice, settings, budget, key, progress, stop)
    order = sorted(entries, key=lambda entry: entry.validation.torque.nmse_mean)
    trusted, curve, motion = None, None, None
    if not stop.is_set():
        progress("beyond")
        trusted, curve, motion = _beyond(order[0], training, validation, budget, key)
        order[0] = _relearned(order[0], training, dataset, budget)
    interrupted = stop.is_set() or any(entry.fit is not None and entry.fit.interrupted for entry in entries)
    return LogFit(
        entries=tuple(order),
        preparation=choice,
        dataset=dataset,
        training=training,
        validation=validation,
        weak=weak,
        trusted=trusted,
        curve=curve,
        motion=motion,
        settings=settings,
        seconds=time.perf_counter() - budget.began,
        interrupted=interrupted,
    )


def _compete(
    recording: Recording,
    dataset: Dataset,
    choice: PreparationChoice,
    settings: LogFitSettings,
    budget: Budget,
    key: PRNGKeyArray,
    progress: Watch,
    stop: threading.Event,
) -> tuple[list[Entry], tuple[float, float] | None]:
    """Every model that takes part, and what the chain thinks of accelerations."""
    chain, weak = None, None
    if "chain" in settings.models:
        chain, weak = _chain(recording, dataset, choice, settings, budget, key, progress("chain"), stop)
    others = rivals(
        dataset,
        settings.models,
        chain,
        settings.friction,
        settings.fit,
        urdf=settings.urdf,
        key=key,
        seconds=budget.part("rivals"),
        watch=progress,
        stop=stop,
    )
    return others if chain is None else [*others, chain], weak


def _beyond(
    best: Entry, training: Dataset, validation: Dataset, budget: Budget, key: PRNGKeyArray
) -> tuple[TrustedModel | None, LearningCurve | None, NextMotion | None]:
    """What is to be known of the best model beside its error."""
    if best.name == "constant":
        return None, None, None
    model = as_learned(best)
    keys = jax.random.split(jax.random.fold_in(key, 1), 3)
    objective = Objective() if best.fit is None else best.fit.settings.objective
    trusted = trust(model, training, validation, TrustSettings(rows=SAMPLES, objective=objective), key=keys[0])
    if not (isinstance(model, ActuatedModel) and isinstance(model.rigid, LagrangianChain)) or budget.left == 0:
        return trusted, None, None
    curve = learning_curve(model, training, validation, key=keys[1])
    return trusted, curve, next_motion(model, training, key=keys[2])


def _relearned(best: Entry, training: Dataset, dataset: Dataset, budget: Budget) -> Entry:
    """A chain that was chosen learns from the motion that it was chosen by, as nothing is left to choose."""
    if best.name != "chain" or best.fit is None or best.chosen["accelerations"] != "filtered" or budget.left == 0:
        return best
    return replace(best, relearned=relearned(best.fit, training, dataset))


def _choice(
    recording: Recording,
    settings: LogFitSettings,
    budget: Budget,
    key: PRNGKeyArray,
    progress: Watch,
    stop: threading.Event,
) -> PreparationChoice:
    if settings.accelerations == "none":
        # Nothing learns from what this filters; it sets what of a motion's ends is left out, and is drawn.
        rate = 1 / float(np.median(np.diff(recording.t)))
        return PreparationChoice(PreparationSettings(cutoff=min(1 / SECONDS, HIGHEST_CUTOFF * rate)), (), 0.0, None)
    if settings.cutoff is not None:
        return PreparationChoice(PreparationSettings(cutoff=settings.cutoff), (), 0.0, None)
    return choose_preparation(
        recording,
        key=key,
        validation=settings.fit.validation,
        seconds=budget.part("preparation"),
        progress=progress("preparation"),
        stop=stop,
    )


def _chain(
    recording: Recording,
    dataset: Dataset,
    choice: PreparationChoice,
    settings: LogFitSettings,
    budget: Budget,
    key: PRNGKeyArray,
    progress: Callable[[Progress], None] | None,
    stop: threading.Event,
) -> tuple[Entry, tuple[float, float] | None]:
    """A chain with its friction, then tried without accelerations."""
    began = time.perf_counter()
    limits = replace(settings.fit, seconds=budget.part("chain"))
    result = fit(
        dataset,
        "chain",
        limits,
        friction=settings.friction,
        start=choice.start if settings.friction is not None else None,
        key=key,
        progress=progress,
        stop=stop,
    )
    weak = None
    both = settings.accelerations == "auto" and choice.settings.cutoff is not None
    seconds = budget.part("weak")
    if both and not result.interrupted and (seconds is None or seconds > WORTH_IT):
        result, weak = without_accelerations(recording, dataset, result, choice.settings, limits, seconds, key, stop)
    by_windows = settings.accelerations == "none" or (weak is not None and weak[1] < weak[0])
    chosen = {"friction": _terms(result.model), "accelerations": "none" if by_windows else "filtered"}
    return Entry("chain", result.model, result.validation, time.perf_counter() - began, chosen, result), weak


def _terms(model: InverseDynamics) -> list[str]:
    if not isinstance(model, ActuatedModel):
        return []
    return [*model.actuator.settings.terms, *model.actuator.motors[model.joints.dof :]]
