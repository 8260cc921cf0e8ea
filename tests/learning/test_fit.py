"""The public `fit`: models under one split, one verdict, band and domain for every fit."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import delan
from delan import storage
from delan.errors import SettingsError
from delan.learning import contenders
from delan.learning.fit_settings import FitSettings
from delan.learning.model_fit import fit_model
from delan.learning.study import Study
from delan.logs.excerpts import share_known
from delan.models.networks import LagrangianNetworkSettings
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from delan.solvers.training import TrainingSettings
from tests.support.members import noisy, pendulum
from tests.support.random_arms import swung

BODY = RigidBody.from_urdf(TWO_LINK.urdf())


@pytest.fixture
def brief(monkeypatch):
    """One small network of each kind, hardly trained."""
    monkeypatch.setattr(contenders, "DECAYS", (1e-3,))
    monkeypatch.setattr(contenders, "WIDTHS", (8,))
    monkeypatch.setattr(contenders, "STEPS", 60)


@pytest.mark.usefixtures("brief")
def test_the_best_on_validation_is_chosen_and_all_are_scored(tmp_path):
    result = delan.fit(noisy(pendulum(), 0.01), friction=None, seed=2)
    assert result.best.name == "chain"
    assert {entry.name for entry in result.entries} == {"chain", "delan", "feedforward", "constant"}
    errors = [entry.error for entry in result.entries]
    assert errors == sorted(errors)
    assert len({entry.validation.samples for entry in result.entries}) == 1
    assert result.best.error < 5e-4  # the noise has 1e-4 of the torque's variance
    assert result.verdict.decision == "deploy"
    assert result.verdict.model == "chain"
    assert result.verdict.judged_on == "validation"
    # H = 0.5 kg m², as exact as 250 samples with 1 % of noise allow
    inertia = np.asarray(result.model.mass_matrix(jnp.array([0.3])))
    assert inertia == pytest.approx(0.5, rel=0.02)
    # A model that is saved by itself still says what it learned from.
    delan.save(result.model, tmp_path / "m.delan")
    known = storage.read_header(tmp_path / "m.delan")["sketch"]
    assert share_known(known, result.dataset) > 0.9


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_friction_is_chosen_where_models_compete():
    result = delan.fit(noisy(pendulum(), 0.01))
    assert result.chosen.training is not None
    assert result.chosen.training.selection
    assert result.model.promises.trust


@pytest.mark.usefixtures("brief")
def test_a_stop_leaves_the_chain_alone():
    stop = threading.Event()
    result = delan.fit(
        pendulum(), friction=None, listen=lambda step: lambda progress: stop.set(), stop=stop
    )
    assert result.interrupted
    assert {entry.name for entry in result.entries} == {"chain", "constant"}
    assert result.trusted is None


def test_an_identified_arm_is_a_chain_that_can_be_saved(tmp_path):
    data = swung(BODY, TWO_LINK.limits, range(4))
    result = delan.fit(data, "identified", urdf=TWO_LINK.urdf(), friction=None)
    training = result.chosen.training
    assert training is not None
    assert training.optimizer == "least squares"
    assert result.chosen.error < 1e-8
    storage.save(result.model, tmp_path / "arm.delan", provenance=training.provenance())
    q, qd, qdd = data.q[7], data.qd[7], data.qdd[7]
    torque = storage.load(tmp_path / "arm.delan").inverse_dynamics(
        jnp.asarray(q), jnp.asarray(qd), jnp.asarray(qdd)
    )
    assert np.asarray(torque) == pytest.approx(BODY.inverse_dynamics(q, qd, qdd), rel=1e-5)


def test_a_single_model_is_trained_as_asked_and_has_band_and_domain():
    training = TrainingSettings(optimizer="adam", epochs=10)
    shape = LagrangianNetworkSettings(width=8)
    result = delan.fit(pendulum(), shape, settings=FitSettings(training=training), seed=5)
    alone = fit_model(Study.of(pendulum(), training, key=jax.random.key(5)), shape)
    assert {entry.name for entry in result.entries} == {"delan", "constant"}
    plain = result.model.with_trust(None)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(alone.model), strict=True):
        assert (np.asarray(a) == np.asarray(b)).all()
    assert result.model.promises.trust


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    ("models", "arguments", "message"),
    [
        ("atuo", {}, "unknown model 'atuo'; known: auto, chain"),
        ((), {}, "name at least one"),
        ("auto", {"settings": FitSettings(seeds=2)}, "name a single model instead of chain"),
        ("identified", {}, "identification needs the robot's URDF; give urdf="),
        ("auto", {"settings": "quick"}, "settings must be delan.FitSettings, got str"),
        ("auto", {"friction": "atuo"}, "got 'atuo'"),
        (
            "feedforward",
            {"settings": FitSettings(accelerations="none")},
            "a feed-forward network needs accelerations",
        ),
        ("auto", {"seconds": -1.0}, "seconds must be positive"),
    ],
)
def test_what_makes_no_sense_is_refused(models, arguments, message):
    with pytest.raises(SettingsError, match=message):
        delan.fit(pendulum(), models, **arguments)


@pytest.mark.usefixtures("as_shipped")
def test_misspelt_settings_are_refused():
    with pytest.raises(SettingsError, match="auto, filtered, none, got 'filterd'"):
        FitSettings(accelerations="filterd")  # pyright: ignore[reportArgumentType]
    with pytest.raises(SettingsError, match="leave cutoff out"):
        FitSettings(accelerations="none", cutoff=5.0)


def test_a_tree_is_learned_as_one():
    """Two pendulums side by side do not feel each other."""
    twins = twin_pendulums()
    settings = FitSettings(parents=(-1, -1), training=TrainingSettings(epochs=20))
    result = delan.fit(twins, "chain", settings=settings)
    chain = result.model.chain
    assert chain is not None
    assert chain.tree.parents == (-1, -1)
    assert jnp.abs(chain.mass_matrix(jnp.array([0.3, 1.2]))[0, 1]) < 1e-12
    assert result.verdict.error < 1e-10
    with pytest.raises(SettingsError, match="parents"):
        delan.fit(twins, "delan", settings=FitSettings(parents=(-1, -1)))


def twin_pendulums() -> delan.Dataset:
    one = pendulum()
    shift = len(one) // 2
    columns = {}
    for name in ("q", "qd", "qdd", "tau"):
        column = getattr(one, name)
        columns[name] = np.concatenate([column, np.roll(column, shift, axis=0)], axis=1)
    return delan.Dataset(
        t=one.t, **columns, trajectory=one.trajectory, joints=delan.Joints.revolute(2)
    )
