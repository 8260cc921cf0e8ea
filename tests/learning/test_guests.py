"""Models of a user's own under the contest of a fit."""

import csv
import io
import math
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import delan
from delan.errors import ModelError
from delan.joints import Dataset, Joints
from delan.learning.fit import Fit, fit
from delan.learning.fit_settings import FitSettings
from delan.learning.guests import OwnNetwork, enter, standings
from delan.learning.presets import PAPER
from delan.models.dynamics import Normalisation, Promises
from delan.paper.cells import Cell, Results
from delan.paper.tidy import tidy_csv
from delan.solvers.adam import DescentSettings
from delan.solvers.loss import Objective
from delan.solvers.training import TrainingSettings
from tests.support.members import pendulum

TRAINING = TrainingSettings(optimizer="adam", epochs=60)


class Pendulum(eqx.Module):
    """H q̈ + g cos q with two weights, in the units of the data."""

    weights: jax.Array
    units: Normalisation
    joints: Joints = eqx.field(static=True)

    def __init__(self, dataset: Dataset, key: jax.Array):
        self.joints = dataset.joints
        self.units = Normalisation.of(dataset)
        self.weights = jax.random.normal(key, (2,))

    @property
    def promises(self) -> Promises:
        return Promises()

    def inverse_dynamics(self, q, qd, qdd):
        parts = jnp.concatenate([qdd / self.units.qdd_std, jnp.cos(q)])
        return self.units.tau_std * (self.weights @ parts)


@dataclass(frozen=True)
class Mean:
    """A guest without weights: it learns the mean torque, and is asked row by row."""

    name: str = "mean"

    def learn(self, study):
        return Known(study.training.samples.tau.mean(axis=0), study.dataset.joints)


@dataclass(frozen=True, eq=False)
class Known:
    tau: np.ndarray
    joints: Joints

    @property
    def promises(self) -> Promises:
        return Promises()

    def inverse_dynamics(self, q, qd, qdd):
        return self.tau


@pytest.fixture(scope="module")
def result() -> Fit:
    return fit(pendulum(), "feedforward", settings=FitSettings(training=TRAINING))


def test_a_guest_is_trained_without_each_fold_and_stands_in_the_table(result):
    training = replace(TRAINING, epochs=400, descent=DescentSettings(learning_rate=0.05))
    own = enter(OwnNetwork("pendulum", Pendulum, training), result.study)
    assert len(own.models) == len(result.study.split.folds)
    assert own.validation.torque.nmse_mean < 1e-3
    for number, judged in enumerate(own.cross.judged):
        np.testing.assert_array_equal(judged.tau, result.study.without(number).judged.tau)
    table = standings([*result.entries, own, enter(Mean(), result.study)])
    assert table[0].name == "pendulum"
    rows = {row.name: row for row in table}
    # The guest that learns the mean is our constant, scored alike.
    assert rows["mean"].error == pytest.approx(rows["constant"].error, rel=1e-5)
    for row in table:
        low, high = row.interval
        assert math.isnan(low) or low <= row.error <= high


def test_a_guest_may_have_a_loss_of_its_own(result):
    seen = []

    def absolute(model, sample, torque):
        seen.append(type(model))
        return jnp.sum(jnp.abs(torque - sample.tau))

    training = replace(TRAINING, objective=Objective(loss=absolute))
    OwnNetwork("pendulum", Pendulum, training).learn(result.study)
    assert set(seen) == {Pendulum}


@pytest.mark.usefixtures("as_shipped")
def test_what_is_no_guest_is_refused(result):
    with pytest.raises(ModelError, match="learn"):
        enter(Known(np.zeros(1), Joints.revolute(1)), result.study)  # pyright: ignore
    with pytest.raises(ModelError, match="inverse_dynamics"):
        OwnNetwork("odd", lambda dataset, key: jnp.zeros(3)).learn(result.study)


def test_the_preset_is_one_word_of_the_public_fit():
    training = TrainingSettings(epochs=3)
    found = delan.fit(pendulum(), "paper", settings=FitSettings(training=training))
    assert found.options.architecture == PAPER.network
    assert found.options.settings.training.objective.torque == "squared"
    assert found.options.settings.training.epochs == 3
    assert not found.model.promises.energy
    assert found.model.promises.trust


def test_results_are_tidy():
    cells = [Cell.of("toy", "delan", seed=seed, letters=3) for seed in (0, 1)]
    result = {"test": 0.5, "errors": {"1.0": [1, 2]}, "path": list(range(51)), "none": None}
    rows = list(csv.DictReader(io.StringIO(tidy_csv(Results([(cell, result) for cell in cells])))))
    quantities = [row["quantity"] for row in rows if row["seed"] == "1"]
    assert quantities == ["test", "errors.1.0.0", "errors.1.0.1", "none"]
    assert {row["letters"] for row in rows} == {"3"}
    assert rows[0]["value"] == "0.5"
