"""The character data published with the paper's reference implementation: a shortened version of
its benchmark.
"""

import jax
import numpy as np
import pytest

from delan.learning.model_fit import fit_model
from delan.learning.scores import evaluate
from delan.learning.study import Study
from delan.logs.preparation import prepare
from delan.logs.reading import read_log
from delan.solvers.training import TrainingSettings


@pytest.fixture(scope="module")
def split(published_letters):
    data = prepare(read_log(published_letters))
    with np.load(published_letters) as archive:
        letters = archive["labels"].tolist()
    test = [letters.index(letter) for letter in "eqv"]
    return data.select([label for label in data.trajectories if label not in test]), data.select(
        test
    )


@pytest.mark.slow
def test_parts_are_learned_from_the_sum_alone(split):
    """Published: Σ MSE of the torque 2.2e-5, of the parts 3.2e-5, 1.4e-5 and 2.0e-5."""
    training, test = split
    result = fit_model(
        Study.of(training, TrainingSettings(epochs=60), key=jax.random.key(0)), "delan"
    )
    scores = evaluate(result.model, test)
    assert scores.torque.mse_sum < 2e-6
    assert all(
        scores.components[name].mse_sum < 4e-6 for name in ("inertial", "coriolis", "gravity")
    )
    assert scores.acceleration is not None
    assert scores.acceleration.nmse_mean < 1e-5
