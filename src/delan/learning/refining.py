"""A few steps of Levenberg–Marquardt from where a model is, on other rows or other data than it was fitted to."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..joints import Dataset
from ..models.actuator import ActuatedModel
from . import levenberg_marquardt
from .fit import in_precision
from .objective import Objective, Scale
from .planning import samples
from .starts import SAMPLES

ITERATIONS = 6
DAMPING = 1e-3
"""of the first step, relative to the curvature: the way is short."""


def refined(
    model: Any, training: Dataset, *, rows: np.ndarray | None = None, iterations: int = ITERATIONS, count: int = SAMPLES
) -> Any:
    """The model after some iterations on samples of the training data.

    Of the rows (all, if not given) `count` are taken, evenly, some again where there are fewer: as many as a start of a
    fit takes, so that one compiled program serves all.
    """
    settings, objective = levenberg_marquardt.MarquardtSettings(), Objective()
    head = model.actuator.settings if isinstance(model, ActuatedModel) else None
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
