"""The models that compete in a fit: each contender takes a study and returns its entry."""

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp

from ..joints import Dataset
from ..models.feed_forward import FeedForwardSettings
from ..models.friction import Friction, FrictionSettings
from ..models.model import Model
from ..models.network import LagrangianNetworkSettings
from ..solvers.adam import DescentSettings
from ..solvers.plan import ModelChoice
from .model_fit import FRESH, TrainingStart, fit_model, score
from .refinement import without_accelerations
from .study import Entry, Study, TrainingResult

# Weight decays and widths that the networks are tried with, in this order. Real logs are small and
# repetitive, so that networks need far stronger regularisation than usual.
DECAYS = (1e-3, 1e-1, 1e-5)
WIDTHS = (64, 16)
# Steps of Adam that each of these trials gets.
STEPS = 3000
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
            if best is None or result.error < best[0].error:
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


def friction_terms(model: Model) -> list[str]:
    """The terms of a model's friction and the names of its motor pairs."""
    friction = model.friction
    if friction is None:
        return []
    return [*friction.settings.terms, *friction.motors[model.joints.dof :]]
