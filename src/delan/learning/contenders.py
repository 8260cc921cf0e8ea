"""The models that compete in a fit: each contender takes a study and returns its entry."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from ..identification.identify import FrictionTerm, IdentifySettings, identify
from ..joints import Dataset
from ..models.feed_forward import FeedForwardSettings
from ..models.friction import Friction, FrictionSettings
from ..models.geometry import model_of
from ..models.model import Model
from ..models.network import LagrangianNetworkSettings
from ..models.rigid_body import RigidBody
from ..solvers.adam import DescentSettings
from ..solvers.plan import ModelChoice
from .friction_search import START
from .model_fit import FRESH, TrainingResult, TrainingStart, fit_model, score
from .refinement import WindowTrial, without_accelerations
from .scores import Scores, residual_torques
from .study import FrictionChoice, Study

# Weight decays and widths that the networks are tried with, in this order. Real logs are small and
# repetitive, so that networks need far stronger regularisation than usual.
DECAYS = (1e-3, 1e-1, 1e-5)
WIDTHS = (64, 16)
# Steps of Adam that each of these trials gets.
STEPS = 3000
# How firmly a chain is held to a URDF; validation chooses one of them.
ANCHORS = (1e-3, 1e-5)
# Seconds below which a chain is not tried without accelerations.
LEAST_WINDOW_SECONDS = 5.0


@dataclass(frozen=True, eq=False)
class Entry:
    """A model that took part, its scores on the validation motion, and what was chosen for it.

    Attributes:
        model: learned from the training motion, the one that was scored.
        chosen: settings that the validation motion chose, by name.
        training: how the model was trained; None for a constant.
        windows: for a chain, its validation error with and without accelerations.
        relearned: the model after it learned from the validation motion too; None where it did not.
    """

    name: str
    model: Model
    validation: Scores
    seconds: float
    chosen: Mapping[str, Any] = field(default_factory=dict)
    training: TrainingResult | None = None
    windows: WindowTrial | None = None
    relearned: Model | None = None

    @property
    def error(self) -> float:
        """The mean nMSE on the validation motion."""
        return self.validation.torque.nmse_mean

    @property
    def deployed(self) -> Model:
        """The model to use, and to score on motion that is in neither part."""
        return self.model if self.relearned is None else self.relearned

    @property
    def interrupted(self) -> bool:
        """Whether its training was stopped early."""
        return self.training is not None and self.training.interrupted


@runtime_checkable
class Contender(Protocol):
    """Whatever can take part in a fit."""

    @property
    def name(self) -> str: ...

    def fit(self, study: Study) -> Entry:
        """Learn from the training motion; the validation motion chooses and scores."""
        ...


@dataclass(frozen=True)
class Constant:
    """The mean torque of the training motion: what every model must beat."""

    name: str = "constant"

    def fit(self, study: Study) -> Entry:
        joints = study.dataset.joints
        mean = study.training.samples.tau.mean(axis=0)
        offset = Friction.of(joints, FrictionSettings(("offset",), passive=False), mean[None])
        model = Model(friction=jax.tree.map(jnp.asarray, offset))
        return Entry(self.name, model, score(model, study.validation, study.settings), 0.0)


@dataclass(frozen=True, eq=False)
class Chain:
    """A rigid arm of learned geometry with its friction, then tried without accelerations.

    Attributes:
        start: a model to start from, such as that of the search for a cut-off.
        unfiltered: the same motion without a filter, to try windows on; None: not tried.
    """

    start: TrainingStart = FRESH
    unfiltered: Dataset | None = None
    seeds: int = 1
    model: ModelChoice = "chain"
    name: str = "chain"

    def fit(self, study: Study) -> Entry:
        began = time.perf_counter()
        first = study.part("chain").followed(self.name)
        result = fit_model(first, self.model, self.start, seeds=self.seeds)
        trial = None
        after = study.part("windows")
        seconds = after.settings.seconds
        enough = seconds is None or seconds > LEAST_WINDOW_SECONDS
        if self.unfiltered is not None and enough and not result.interrupted:
            result, trial = without_accelerations(after, result, self.unfiltered)
        by_windows = study.settings.accelerations == "none" or (trial is not None and trial.better)
        chosen = {
            "friction": friction_terms(result.model),
            "accelerations": "none" if by_windows else "filtered",
        }
        took = time.perf_counter() - began
        return Entry(self.name, result.model, result.validation, took, chosen, result, trial)


@dataclass(frozen=True, eq=False)
class SingleTraining:
    """One model trained exactly as asked, nothing but the settings given."""

    name: str
    model: ModelChoice
    start: TrainingStart = FRESH
    seeds: int = 1

    def fit(self, study: Study) -> Entry:
        result = fit_model(
            study.part("rivals").followed(self.name), self.model, self.start, seeds=self.seeds
        )
        chosen = {"friction": friction_terms(result.model)}
        return Entry(self.name, result.model, result.validation, result.seconds, chosen, result)


@dataclass(frozen=True)
class Network:
    """A network whose weight decay, width and stopping point the validation motion chooses."""

    name: Literal["delan", "feedforward"]

    def fit(self, study: Study) -> Entry:
        began = time.perf_counter()
        if self.name == "feedforward":
            study = replace(study, friction=None)
        trials = [(WIDTHS[0], decay) for decay in DECAYS]
        remaining = len(trials) + len(WIDTHS) - 1
        until = study.settings.seconds
        best: tuple[TrainingResult, dict[str, Any]] | None = None
        while trials and not study.stop.is_set():
            elapsed = time.perf_counter() - began
            if best is not None and until is not None and elapsed > until:
                break
            width, decay = trials.pop(0)
            seconds = None if until is None else max(1.0, (until - elapsed) / remaining)
            result = self._try(study.within(seconds), width, decay)
            remaining -= 1
            if best is None or _error(result) < _error(best[0]):
                best = result, {"width": width, "weight_decay": decay}
            if not trials and width == WIDTHS[0]:
                trials = [(other, best[1]["weight_decay"]) for other in WIDTHS[1:]]
        assert best is not None
        result, chosen = best
        took = time.perf_counter() - began
        return Entry(self.name, result.model, result.validation, took, chosen, result)

    def _try(self, study: Study, width: int, decay: float) -> TrainingResult:
        kinds = {"delan": LagrangianNetworkSettings, "feedforward": FeedForwardSettings}
        settings = replace(
            study.settings,
            epochs=None,
            optimizer="adam",
            objective=replace(study.settings.objective, weight_decay=decay),
        )
        if settings.seconds is None:
            count = len(study.dataset.samples)
            epochs = max(20, STEPS * min(DescentSettings.batch, count) // count)
            settings = replace(settings, epochs=epochs)
        return fit_model(replace(study, settings=settings), kinds[self.name](width=width))


@dataclass(frozen=True)
class Identified:
    """The arm of a URDF with parameters and friction by least squares."""

    urdf: str | Path
    name: str = "identified"

    def fit(self, study: Study) -> Entry:
        friction = fixed_friction(study.friction) or FrictionSettings(terms=())
        terms: tuple[FrictionTerm, ...] = tuple(
            term for term in friction.terms if term not in ("load", "armature")
        )
        settings = IdentifySettings(
            friction=terms,
            pairs=friction.pairs,
            radii=friction.radii,
            width=friction.width,
            stribeck_speed=friction.stribeck_speed,
            physical=True,
            windows=study.settings.accelerations == "none",
        )
        result = identify(study.training, self.urdf, settings)
        model = model_of(result.model)
        scores = score(model, study.validation, study.settings)
        training = TrainingResult(
            model=model,
            validation=scores,
            optimizer="least squares",
            reason="the links of the URDF and friction are linear in the torque",
            settings=study.settings,
            seed=study.seed,
            seconds=result.seconds,
            samples=result.samples,
            interrupted=False,
            events=result.events,
            trajectories=study.validation.samples.trajectories,
        )
        chosen = {"friction": terms, "rank": result.rank}
        return Entry(self.name, model, scores, result.seconds, chosen, training)


@dataclass(frozen=True)
class ChainNearUrdf:
    """A chain that starts as the arm of a URDF and is held to it, as firmly as validation asks."""

    urdf: str | Path
    name: str = "chain near URDF"

    def fit(self, study: Study) -> Entry:
        began = time.perf_counter()
        arm = model_of(RigidBody.from_urdf(self.urdf))
        assert arm.chain is not None
        friction = fixed_friction(study.friction)
        trials = []
        for anchor in ANCHORS:
            start = TrainingStart(model=arm, anchor=anchor)
            result = fit_model(study, arm.chain.settings, start)
            terms = [] if friction is None else list(friction.terms)
            trials.append((result, {"anchor": anchor, "friction": terms}))
        result, chosen = min(trials, key=lambda trial: _error(trial[0]))
        took = time.perf_counter() - began
        return Entry(self.name, result.model, result.validation, took, chosen, result)


@dataclass(frozen=True, eq=False)
class ResidualNetwork:
    """An arm of the URDF and a feed-forward network trained on the torque that the arm leaves.

    The arm is the identified one or that of the URDF as it is, whichever has the lower validation
    error.
    """

    urdf: str | Path
    identified: Entry
    name: str = "residual"

    def fit(self, study: Study) -> Entry:
        began = time.perf_counter()
        arm = model_of(RigidBody.from_urdf(self.urdf))
        arm_name = "as it is"
        if self.identified.error <= score(arm, study.validation, study.settings).torque.nmse_mean:
            arm = self.identified.model
            arm_name = "identified"
        rest = Network("feedforward").fit(_residual_study(arm, study))
        assert rest.training is not None
        model = Model(arm.mechanics, arm.friction, rest.model.residual)
        scores = score(model, study.validation, study.settings)
        reason = f"on the residual torque of the URDF's arm ({arm_name}): {rest.training.reason}"
        training = replace(rest.training, model=model, validation=scores, reason=reason)
        took = time.perf_counter() - began
        chosen = {"arm": arm_name, **rest.chosen}
        return Entry(self.name, model, scores, took, chosen, training)


def _residual_study(known: Model, study: Study) -> Study:
    """The same study with the torques that a known model leaves to be explained."""
    return replace(
        study,
        dataset=residual_torques(known, study.dataset),
        training=residual_torques(known, study.training),
        validation=residual_torques(known, study.validation),
    )


def fixed_friction(friction: FrictionChoice) -> FrictionSettings | None:
    """The friction of models that do not search for its terms."""
    return START if friction == "auto" else friction


def friction_terms(model: Model) -> list[str]:
    """The terms of a model's friction and the names of its motor pairs."""
    friction = model.friction
    if friction is None:
        return []
    return [*friction.settings.terms, *friction.motors[model.joints.dof :]]


def _error(result: TrainingResult) -> float:
    return result.validation.torque.nmse_mean
