"""A few steps of Levenberg–Marquardt from where a model is, on other rows or other data than it was
fitted to.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..joints import Dataset
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

WINDOW_ITERATIONS = 12
"""of Levenberg–Marquardt on windows."""
ITERATIONS = 6
DAMPING = 1e-3
"""of the first step, relative to the curvature: the way is short."""
LAST_ITERATIONS = 25
"""on all samples, before a model is deployed."""
SETTLED = 1.1
"""A fit has settled if its loss on validation at the end is below this many times the least."""


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

    Of the rows (all, if not given) `count` are taken, evenly, some again where there are fewer: as
    many as a start of a fit takes, so that one compiled program serves all.
    """
    settings, objective = marquardt.MarquardtSettings(), objective or Objective()
    head = model.friction_settings
    with jax.enable_x64(True):
        data = samples(training, head)
        rows = np.arange(len(data)) if rows is None else rows
        data = data.rows(rows[np.linspace(0, len(rows) - 1, count).round().astype(int)])
        scale = Scale.of(training, objective)
        state = marquardt.init(in_precision(model), settings)
        state = eqx.tree_at(lambda one: one.damping, state, jnp.full_like(state.damping, DAMPING))
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
    # As many samples as the fit took, so that its compiled program serves here as well.
    count = min(len(study.training.samples), MOST_PREPARED)
    return in_precision(
        refined(
            result.model,
            study.dataset,
            iterations=LAST_ITERATIONS,
            count=count,
            objective=result.settings.objective,
        )
    )


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
        rows = np.unique(np.linspace(0, len(windows) - 1, MOST_WINDOWS).astype(int))
        stage = MarquardtStage(
            training=windows.rows(rows),
            validation=samples(study.validation, friction),
            scale=Scale.of(study.training, settings.objective),
            objective=settings.objective,
            settings=replace(settings.marquardt, damping=DAMPING),
            epochs=WINDOW_ITERATIONS,
            patience=10.0,
        )
        limits = Limits(settings.seconds, settings.retreats, study.stop)
        run = train([stage], in_precision(result.model), limits, key=study.key)
    model = in_precision(run.best_model)
    scores = evaluate(model, study.validation, rollouts=False)
    trial = WindowTrial(result.validation.torque.nmse_mean, scores.torque.nmse_mean)
    if trial.better:
        result = replace(result, model=model, validation=scores)
    return result, trial
