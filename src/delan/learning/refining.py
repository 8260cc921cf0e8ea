"""A few steps of Levenberg–Marquardt from where a model is, on other rows or other data than it was fitted to."""

import threading
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data.preparation import PreparationSettings, prepare
from ..data.splitting import counting, split_key, split_rows
from ..joints import Dataset, Recording
from ..models.actuated import friction_of
from ..models.dynamics import in_precision
from . import levenberg_marquardt
from .evaluate import Scores, evaluate
from .fit_result import FitResult
from .objective import Objective, Scale
from .planning import MOST_PREPARED, MOST_WINDOWS, FitSettings, samples
from .stages import MarquardtStage
from .starts import SAMPLES
from .training import Limits, train
from .weak import Windows

WEAK_ITERATIONS = 12
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

    Of the rows (all, if not given) `count` are taken, evenly, some again where there are fewer: as many as a start of a
    fit takes, so that one compiled program serves all.
    """
    settings, objective = levenberg_marquardt.MarquardtSettings(), objective or Objective()
    head = friction_of(model)
    with jax.enable_x64(True):
        data = samples(training, head)
        rows = np.arange(len(data)) if rows is None else rows
        data = data.rows(rows[np.linspace(0, len(rows) - 1, count).round().astype(int)])
        scale = Scale.of(training, objective)
        state = levenberg_marquardt.init(in_precision(model), settings)
        state = eqx.tree_at(lambda one: one.damping, state, jnp.full_like(state.damping, DAMPING))
        for _ in range(iterations):
            state, _ = levenberg_marquardt.update(state, data, scale, objective, settings)
    return state.model


def relearned(result: FitResult, training: Dataset, dataset: Dataset) -> Any | None:
    """The model of a settled fit after it learned from all samples of the dataset, validation included.

    What was held back to choose by holds poses that the rest has not. None where the fit had not settled: where
    validation had to stop it, nothing could stop it here.
    """
    losses = [row.validation for row in result.history]
    if not losses or losses[-1] > SETTLED * min(losses):
        return None
    # As many samples as the fit took, so that its program serves here as well.
    count = min(len(training.samples), MOST_PREPARED)
    objective = result.settings.objective
    return in_precision(refined(result.model, dataset, iterations=LAST_ITERATIONS, count=count, objective=objective))


def without_accelerations(
    recording: Recording,
    dataset: Dataset,
    result: FitResult,
    prepared: PreparationSettings,
    limits: FitSettings,
    seconds: float | None,
    key: PRNGKeyArray,
    stop: threading.Event,
) -> tuple[FitResult, tuple[float, float] | None]:
    """Go on with windows over the unfiltered motion; keep what unseen motion likes better."""
    head = friction_of(result.model)
    if head is not None and "load" in head.terms:
        return result, None
    raw = prepare(recording, prepared.unfiltered)
    training, held = split_rows(dataset, limits.validation, key=split_key(key))
    validation = counting(dataset, held)
    with jax.enable_x64(True):
        windows = Windows.of(counting(raw, training), head)
        windows = windows.rows(np.unique(np.linspace(0, len(windows) - 1, MOST_WINDOWS).astype(int)))
        stage = MarquardtStage(
            training=windows,
            validation=samples(validation, head),
            scale=Scale.of(counting(dataset, training), limits.objective),
            objective=limits.objective,
            settings=replace(limits.marquardt, damping=DAMPING),
            epochs=WEAK_ITERATIONS,
            patience=10.0,
        )
        run = train([stage], in_precision(result.model), Limits(seconds, limits.retreats, stop), key=key)
    model = in_precision(run.best_model)
    scores: Scores = evaluate(model, validation, rollouts=False)
    before, after = result.validation.torque.nmse_mean, scores.torque.nmse_mean
    better = replace(result, model=model, validation=scores) if after < before else result
    return better, (before, after)
