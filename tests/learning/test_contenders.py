"""A network on what a known arm leaves of the torque: better where the arm is no rigid body, and it
says so.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.deploy.c_code import c_source
from delan.errors import ModelError, SettingsError
from delan.joints import Dataset
from delan.learning import contenders
from delan.learning.contenders import Constant, Network
from delan.learning.fit import fit
from delan.learning.friction_search import START
from delan.learning.model_fit import TrainingStart, fit_model
from delan.learning.scores import evaluate, residual_torques
from delan.learning.study import Study
from delan.learning.uncertainty import TrustSettings, coverage, trust
from delan.learning.urdf_contenders import Identified, ResidualNetwork
from delan.models.friction import FrictionSettings
from delan.models.friction_memory import memory_of
from delan.models.geometry import from_rigid_body, model_of
from delan.models.model import Blueprint, Model
from delan.models.networks import FeedForwardNetwork, FeedForwardSettings
from delan.models.rigid_body import RigidBody
from delan.online.controller import Compiled
from delan.robots.arms import TWO_LINK
from delan.robots.robot_files import urdf_of
from delan.solvers.training import TrainingSettings
from tests.support.members import MIXED, actuated, chain, feed_forward, trust_in
from tests.support.random_arms import swung

BODY = RigidBody.from_urdf(TWO_LINK.urdf())


def wrong_urdf() -> str:
    """Lengths 10 % and masses 30 % too large."""
    bodies = [
        replace(
            item, position=1.1 * item.position, mass=1.3 * item.mass, inertia=1.3 * item.inertia
        )
        for item in BODY.bodies
    ]
    return urdf_of(RigidBody.from_bodies(bodies, gravity=tuple(BODY.gravity.tolist())))


def rippled(seeds: range) -> Dataset:
    """The two-link arm with a torque that depends on the positions and is no gravity, and 0.5 % of
    noise.
    """
    data = swung(BODY, TWO_LINK.limits, seeds)
    size = data.tau.std(axis=0)
    ripple = 0.15 * size * np.stack([np.sin(3 * data.q[:, 0]), np.cos(4 * data.q[:, 1])], axis=1)
    noise = 0.005 * size * np.random.default_rng(0).standard_normal(data.tau.shape)
    return replace(data, tau=data.tau + ripple + noise, truth={})


def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "DECAYS", (1e-5,))
    monkeypatch.setattr(contenders, "WIDTHS", (32,))
    monkeypatch.setattr(contenders, "STEPS", 2000)


def test_it_beats_the_arm_alone_where_no_rigid_body_can_follow(monkeypatch):
    brief(monkeypatch)
    unseen = rippled(range(50, 53))
    study = Study.of(rippled(range(12)), friction=START)
    known = Identified(wrong_urdf()).fit(study)
    entry = ResidualNetwork(wrong_urdf(), known, Network("feedforward")).fit(study)
    assert entry.chosen["arm"] == "identified"
    assert entry.validation.torque.nmse_mean < 0.5 * known.validation.torque.nmse_mean
    alone, both = (
        evaluate(item.model, unseen, rollouts=False).torque.nmse_mean for item in (known, entry)
    )
    assert both < 0.5 * alone
    assert entry.training is not None
    assert entry.training.validation == entry.validation
    assert entry.training.reason.startswith("on the residual torque of the URDF's arm (identified)")


def test_the_arm_of_the_urdf_stays_as_it_is_where_that_is_better(monkeypatch):
    brief(monkeypatch)
    monkeypatch.setattr(contenders, "STEPS", 20)
    study = Study.of(rippled(range(3)), friction=START)
    known = Identified(TWO_LINK.urdf()).fit(study)
    poor = replace(known.validation, torque=replace(known.validation.torque, nmse_mean=2.0))
    poorer = replace(known, validation=poor)
    entry = ResidualNetwork(TWO_LINK.urdf(), poorer, Network("feedforward")).fit(study)
    assert entry.chosen["arm"] == "as it is"


@pytest.mark.parametrize(
    ("models", "takes_part"), [(("identified", "feedforward"), True), (("delan",), False)]
)
def test_it_takes_part_where_there_is_a_urdf_and_a_feed_forward_network(
    models, takes_part, monkeypatch
):
    brief(monkeypatch)
    asked = []

    def asking(name):
        def train(contender, study):
            asked.append(name)
            return Constant().fit(study)

        return train

    monkeypatch.setattr(Network, "fit", asking("Network"))
    monkeypatch.setattr(ResidualNetwork, "fit", asking("ResidualNetwork"))
    fit(rippled(range(3)), models, urdf=TWO_LINK.urdf(), friction=START)
    assert ("ResidualNetwork" in asked) == takes_part


def residual_model(known: Model | None = None) -> Model:
    known = Model(chain(MIXED)) if known is None else known
    return replace(known, residual=feed_forward(MIXED))


def test_it_promises_the_sum_and_no_mechanics():
    model, motion = residual_model(), jnp.linspace(-1, 1, 9).reshape(3, 3)
    assert model.mechanics is not None
    assert model.residual is not None
    parts = [item.inverse_dynamics(*motion) for item in (model.mechanics, model.residual)]
    np.testing.assert_allclose(model.inverse_dynamics(*motion), parts[0] + parts[1])
    assert not model.promises.mechanics


def test_what_friction_remembers_reaches_the_arm():
    known = actuated(MIXED, "coulomb", "stops")
    model = residual_model(known)
    data = swung(BODY, TWO_LINK.limits, range(1))
    assert memory_of(residual_model(), data) is None
    motion, memory = jnp.ones((3, 3)), jnp.full((6, 3), 0.3)
    shown = model.inverse_dynamics(*motion, memory=memory)
    rest = feed_forward(MIXED).inverse_dynamics(*motion)
    np.testing.assert_allclose(shown - rest, known.inverse_dynamics(*motion, memory=memory))
    assert not np.allclose(shown, model.inverse_dynamics(*motion))
    assert model.friction is known.friction
    assert residual_model().friction is None


def test_only_samples_that_count_are_left_over():
    data = swung(BODY, TWO_LINK.limits, range(2))
    counted = np.arange(len(data)) % 3 > 0
    left = residual_torques(model_of(BODY), replace(data, counted=counted))
    assert np.abs(left.tau[counted]).max() < 1e-9
    np.testing.assert_array_equal(left.tau[~counted], data.tau[~counted])


@pytest.mark.slow
def test_its_band_holds_the_torques_and_its_arm_is_not_doubted(monkeypatch):
    brief(monkeypatch)
    monkeypatch.setattr(contenders, "STEPS", 300)
    data = rippled(range(8))
    study = Study.of(data, TrainingSettings(validation=0.4), friction=START)
    known = Identified(wrong_urdf()).fit(study)
    entry = ResidualNetwork(wrong_urdf(), known, Network("feedforward")).fit(study)
    validation = study.validation
    model = trust(
        entry.model,
        study.training,
        validation,
        TrustSettings(members=3, steps=50),
        key=jax.random.key(3),
    )
    assert not model.promises.mechanics
    assert (coverage(model, validation) > 0.85).all()
    members = trust_in(model).members
    for leaf in jax.tree.leaves(eqx.filter((members.mechanics, members.friction), eqx.is_array)):
        assert (leaf == leaf[:1]).all()
    assert (
        float(
            jnp.max(
                model.torque_std(
                    *(jnp.asarray(column[5]) for column in (data.q, data.qd, data.qdd))
                )
            )
        )
        > 0
    )


def test_a_loop_computes_it_and_c_code_refuses_it():
    model = residual_model()
    with pytest.raises(ModelError, match="cannot be written as C code; export"):
        c_source(model)
    c_source(Model(model.mechanics, model.friction))
    assert Blueprint.of(model).size == sum(
        leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    )
    loop = Compiled.of(model)
    loop.prepare(np.zeros(3))
    assert loop.engine.startswith("JAX (mechanics with a residual network")
    torque = loop.ready(wait=True)
    assert torque is not None
    np.testing.assert_allclose(torque, model.inverse_dynamics(*jnp.zeros((3, 3))), rtol=1e-6)


def test_a_chain_does_not_start_from_mechanics_with_a_residual():
    data = swung(BODY, TWO_LINK.limits, range(2))
    start = Model(from_rigid_body(BODY), residual=feed_forward(TWO_LINK.joints))
    problem = "cannot start a LagrangianChain from a LagrangianChain with a FeedForwardNetwork"
    with pytest.raises(SettingsError, match=problem):
        fit_model(Study.of(data, TrainingSettings(epochs=1)), "chain", TrainingStart(model=start))


@pytest.mark.usefixtures("as_shipped")
def test_parts_that_do_not_fit_are_refused():
    rest = FeedForwardNetwork(TWO_LINK.joints, key=jax.random.key(0))
    body: Any = BODY
    with pytest.raises(ModelError, match=r"RigidBody cannot be the mechanics .*model_of"):
        Model(body, residual=rest)
    with pytest.raises(ModelError, match=r"the residual is for joints .* for the same joints"):
        Model(chain(MIXED), residual=rest)
    with pytest.raises(ModelError, match="needs mechanics, friction or a residual"):
        Model()
    friction = FrictionSettings()
    blueprint = Blueprint.named(MIXED, FeedForwardSettings(), friction)
    with pytest.raises(ModelError, match="leave friction out, or give mechanics"):
        blueprint.build(key=jax.random.key(0))
