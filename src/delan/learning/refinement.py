"""Refinement: some iterations of Levenberg–Marquardt from a fitted model, on other data."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..joints import Dataset, evenly_spaced
from ..logs.split import counting
from ..models.dynamics import in_precision
from ..models.model import Model
from ..solvers import marquardt
from ..solvers.loss import Objective, Scale
from ..solvers.plan import MOST_PREPARED, MOST_WINDOWS, samples
from ..solvers.stages import SAMPLES, MarquardtStage
from ..solvers.training import Limits, train
from ..solvers.windows import Windows
from .scores import evaluate
from .study import Study, TrainingResult, WindowTrial

# Iterations on other rows, on windows, and on all samples before a model is deployed.
ITERATIONS = 6
WINDOW_ITERATIONS = 12
LAST_ITERATIONS = 25
# Iterations on windows without progress after which they end.
WINDOW_PATIENCE = 10.0
# Damping of the first step, relative to the curvature: the way is short.
DAMPING = 1e-3
# A fit has settled if its last validation loss is below this many times the smallest.
SETTLED = 1.1


def refined(
    model: Any,
    training: Dataset,
    *,
    rows: np.ndarray | None = None,
    iterations: int = ITERATIONS,
    count: int = SAMPLES,
    objective: Objective | None = None,
) -> Any:
    """The model after some iterations on samples of the training data.

    Of the given rows, or of all, `count` are taken evenly, some repeatedly where there are fewer:
    as many as a start of a fit takes, so that one compiled program serves all.
    """
    settings = marquardt.MarquardtSettings()
    objective = objective or Objective()
    with jax.enable_x64(True):
        data = samples(training, model.friction_settings)
        if rows is None:
            rows = np.arange(len(data))
        data = data.rows(rows[np.linspace(0, len(rows) - 1, count).round().astype(int)])
        scale = Scale.of(training, objective)
        state = marquardt.init(in_precision(model), settings)
        damping = jnp.full_like(state.damping, DAMPING)
        state = eqx.tree_at(lambda state: state.damping, state, damping)
        for _ in range(iterations):
            state, _ = marquardt.update(state, data, scale, objective, settings)
    return state.model


def relearned(result: TrainingResult, study: Study) -> Model | None:
    """The model of a settled fit after it learned from all samples, validation included.

    The validation motion holds poses that the training motion has not. None where the fit had not
    settled: validation had to stop it, and nothing could stop it here.
    """
    losses = [row.validation for row in result.history]
    if not losses or losses[-1] > SETTLED * min(losses):
        return None
    model = refined(
        result.model,
        study.dataset,
        iterations=LAST_ITERATIONS,
        # As many samples as the fit took, so that its compiled program serves here as well.
        count=min(len(study.training.samples), MOST_PREPARED),
        objective=result.settings.objective,
    )
    return in_precision(model)


def without_accelerations(
    study: Study, result: TrainingResult, unfiltered: Dataset
) -> tuple[TrainingResult, WindowTrial | None]:
    """Continue on windows over the unfiltered motion; keep the model with the lower error."""
    friction = result.model.friction_settings
    if friction is not None and "load" in friction.terms:
        return result, None  # the load is not known without accelerations
    settings = study.settings
    with jax.enable_x64(True):
        windows = Windows.of(counting(unfiltered, study.training_rows), friction)
        stage = MarquardtStage(
            training=windows.rows(evenly_spaced(len(windows), MOST_WINDOWS)),
            validation=samples(study.validation, friction),
            scale=Scale.of(study.training, settings.objective),
            objective=settings.objective,
            settings=replace(settings.marquardt, damping=DAMPING),
            epochs=WINDOW_ITERATIONS,
            patience=WINDOW_PATIENCE,
        )
        limits = Limits(settings.seconds, settings.retreats, study.stop)
        run = train([stage], in_precision(result.model), limits, key=study.key)
    model = in_precision(run.best_model)
    scores = evaluate(model, study.validation, rollouts=False)
    trial = WindowTrial(result.error, scores.torque.nmse_mean)
    if trial.better:
        result = replace(result, model=model, validation=scores)
    return result, trial
