"""The public `fit`: several models under one split, the best given and all told; an identified arm; what it refuses."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import delan
from delan import storage
from delan.errors import SettingsError
from delan.learning import contest
from delan.learning.fit import fit as fit_one
from delan.learning.planning import FitSettings
from delan.models.actuated import ActuatedModel
from delan.models.chain import LagrangianChain
from delan.models.network import LagrangianNetworkSettings
from delan.models.rigid_body import RigidBody
from delan.robots.two_link import TWO_LINK

from .members import noisy, pendulum
from .random_arms import swung

BODY = RigidBody.from_urdf(TWO_LINK.urdf())


@pytest.fixture
def brief(monkeypatch):
    """One small network of each kind, hardly trained."""
    monkeypatch.setattr(contest, "DECAYS", (1e-3,))
    monkeypatch.setattr(contest, "WIDTHS", (8,))
    monkeypatch.setattr(contest, "STEPS", 60)


@pytest.mark.usefixtures("brief")
def test_the_best_on_validation_is_given_and_all_are_told():
    data = noisy(pendulum(), 0.01)
    result = delan.fit(data, "auto", FitSettings(epochs=30), friction=None, key=jax.random.key(2))
    assert isinstance(result.model, LagrangianChain)
    assert set(result.rivals) == {"chain", "delan", "feedforward", "constant"}
    errors = [scores.torque.nmse_mean for scores in result.rivals.values()]
    assert errors == sorted(errors)
    assert result.rivals["chain"] == result.validation
    assert {scores.samples for scores in result.rivals.values()} == {result.validation.samples}
    assert result.validation.torque.nmse_mean < 5e-4  # the noise has 1e-4 of the torque's variance
    assert result.reason.startswith("chain is the best of 4 on validation; ")
    assert list(result.provenance()["fit"]["rivals"]) == list(result.rivals)
    # H = 0.5 kg m², to what 250 samples with 1 % of noise tell of it
    assert np.asarray(result.model.mass_matrix(jnp.array([0.3]))) == pytest.approx(0.5, rel=0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_friction_is_chosen_where_models_compete():
    result = delan.fit(noisy(pendulum(), 0.01), "auto", FitSettings(epochs=30))
    assert result.selection
    assert isinstance(result.model, ActuatedModel)


@pytest.mark.usefixtures("brief")
def test_a_stop_leaves_the_chain_alone():
    stop = threading.Event()
    result = delan.fit(pendulum(), "auto", friction=None, progress=lambda _: stop.set(), stop=stop)
    assert result.interrupted
    assert set(result.rivals) == {"chain", "constant"}


def test_an_identified_arm_is_given_as_a_chain_that_can_be_saved(tmp_path):
    data = swung(BODY, TWO_LINK.limits, range(4))
    result = delan.fit(data, "identified", urdf=TWO_LINK.urdf(), friction=None)
    assert result.optimizer == "least squares"
    assert result.validation.torque.nmse_mean < 1e-8
    storage.save(result.model, tmp_path / "arm.delan", provenance=result.provenance())
    q, qd, qdd = data.q[7], data.qd[7], data.qdd[7]
    torque = storage.load(tmp_path / "arm.delan").inverse_dynamics(jnp.asarray(q), jnp.asarray(qd), jnp.asarray(qdd))
    assert np.asarray(torque) == pytest.approx(BODY.inverse_dynamics(q, qd, qdd), rel=1e-5)


def test_a_single_model_is_what_it_was():
    how = {"settings": FitSettings(optimizer="adam", epochs=10), "key": jax.random.key(5)}
    model = LagrangianNetworkSettings(width=8)
    mine, theirs = delan.fit(pendulum(), model, **how), fit_one(pendulum(), model, **how)
    for a, b in zip(jax.tree.leaves(mine.model), jax.tree.leaves(theirs.model), strict=True):
        assert (np.asarray(a) == np.asarray(b)).all()
    assert not mine.rivals


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("atuo", {}, "unknown model 'atuo'; known: delan, chain, feedforward, identified, auto"),
        ("auto", {"seeds": 2}, "for the training of one model; leave them out, or name a single one instead of 'auto'"),
        ("identified", {}, "identification needs the robot's URDF; give urdf="),
        ("chain", {"urdf": "arm.urdf"}, "leave urdf= out, or name one of them"),
        ("auto", {"settings": "quick"}, "settings must be delan.FitSettings, got str"),
    ],
)
def test_what_makes_no_sense_is_refused(model, arguments, message):
    with pytest.raises(SettingsError, match=message):
        delan.fit(pendulum(), model, **arguments)
