"""A network on what a known arm leaves of the torque: better where the arm is no rigid body, and it says so."""

import threading
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.deploy.c_source import c_source
from delan.errors import ModelError
from delan.joints import Dataset
from delan.learning import contest
from delan.learning.contest import identified
from delan.learning.ensemble import TrustSettings
from delan.learning.evaluate import evaluate
from delan.learning.planning import FitSettings
from delan.learning.remembering import memory_of
from delan.learning.residual import left_over, with_residual
from delan.learning.rivals import rivals
from delan.learning.selection import START
from delan.learning.uncertainty import coverage, trust
from delan.models.actuator import ActuatorSettings
from delan.models.blueprint import Blueprint
from delan.models.dynamics import DynamicsModel, InverseDynamics
from delan.models.feed_forward import FeedForwardNetwork, FeedForwardSettings
from delan.models.residual import ResidualModel
from delan.models.rigid_body import RigidBody
from delan.models.trust import TrustedTorque
from delan.realtime.feed_forward import Compiled
from delan.robots.two_link import TWO_LINK
from delan.robots.urdf import urdf_of

from .members import MIXED, actuated, chain
from .random_arms import swung

BODY = RigidBody.from_urdf(TWO_LINK.urdf())


def wrong_urdf() -> str:
    """Lengths 10 % and masses 30 % too large."""
    bodies = [
        replace(one, position=1.1 * one.position, mass=1.3 * one.mass, inertia=1.3 * one.inertia) for one in BODY.bodies
    ]
    return urdf_of(RigidBody.from_bodies(bodies, gravity=tuple(BODY.gravity.tolist())))


def rippled(seeds: range) -> Dataset:
    """The two-link arm with a torque that depends on the positions and is no gravity, and 0.5 % of noise."""
    data = swung(BODY, TWO_LINK.limits, seeds)
    size = data.tau.std(axis=0)
    ripple = 0.15 * size * np.stack([np.sin(3 * data.q[:, 0]), np.cos(4 * data.q[:, 1])], axis=1)
    noise = 0.005 * size * np.random.default_rng(0).standard_normal(data.tau.shape)
    return replace(data, tau=data.tau + ripple + noise, truth={})


def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "DECAYS", (1e-5,))
    monkeypatch.setattr(contest, "WIDTHS", (32,))
    monkeypatch.setattr(contest, "STEPS", 2000)


def test_it_beats_the_arm_alone_where_no_rigid_body_can_follow(monkeypatch):
    brief(monkeypatch)
    data, unseen, settings, key = rippled(range(12)), rippled(range(50, 53)), FitSettings(), jax.random.key(0)
    known = identified(data, wrong_urdf(), START, settings, key=key)
    entry = with_residual(known, data, wrong_urdf(), settings, key=key)
    assert entry.chosen["arm"] == "identified"
    assert entry.validation.torque.nmse_mean < 0.5 * known.validation.torque.nmse_mean
    alone, both = (evaluate(one.model, unseen, rollouts=False).torque.nmse_mean for one in (known, entry))
    assert both < 0.5 * alone
    assert entry.fit is not None
    assert entry.fit.validation == entry.validation
    assert entry.fit.reason.startswith("on what the URDF's arm (identified) leaves of the torque: ")


def test_the_arm_of_the_urdf_stays_as_it_is_where_that_is_better(monkeypatch):
    brief(monkeypatch)
    monkeypatch.setattr(contest, "STEPS", 20)
    data, settings, key = rippled(range(3)), FitSettings(), jax.random.key(0)
    known = identified(data, TWO_LINK.urdf(), START, settings, key=key)
    poor = replace(known.validation, torque=replace(known.validation.torque, nmse_mean=2.0))
    entry = with_residual(replace(known, validation=poor), data, TWO_LINK.urdf(), settings, key=key)
    assert entry.chosen["arm"] == "as it is"


@pytest.mark.parametrize(("models", "takes_part"), [(("chain", "feedforward"), True), (("delan",), False)])
def test_it_takes_part_where_there_is_a_urdf_and_a_feed_forward_network(models, takes_part, monkeypatch):
    brief(monkeypatch)
    data, settings, asked = rippled(range(3)), FitSettings(), []

    def asking(name):
        def train(*_, key, **__):
            asked.append(name)
            return contest.constant(data, settings, key=key)

        return train

    for name in ("networks", "with_residual"):
        monkeypatch.setattr(f"delan.learning.rivals.{name}", asking(name))
    rivals(
        data,
        models,
        None,
        START,
        settings,
        urdf=TWO_LINK.urdf(),
        key=jax.random.key(0),
        seconds=None,
        watch=lambda _: None,
        stop=threading.Event(),
    )
    assert ("with_residual" in asked) == takes_part


def residual_model(known=None) -> ResidualModel:
    known = chain(MIXED) if known is None else known
    return ResidualModel(known, FeedForwardNetwork(MIXED, FeedForwardSettings(width=5), key=jax.random.key(1)))


def test_it_promises_the_sum_and_no_mechanics():
    model, motion = residual_model(), jnp.linspace(-1, 1, 9).reshape(3, 3)
    parts = [one.inverse_dynamics(*motion) for one in (model.known, model.rest)]
    np.testing.assert_allclose(model.inverse_dynamics(*motion), parts[0] + parts[1])
    assert isinstance(model, InverseDynamics)
    assert not isinstance(model, DynamicsModel)


def test_what_friction_remembers_reaches_the_arm():
    known = actuated(MIXED, "coulomb", "stops")
    model = residual_model(known)
    data = swung(BODY, TWO_LINK.limits, range(1))
    assert memory_of(residual_model(), data) is None
    motion, memory = jnp.ones((3, 3)), jnp.full((6, 3), 0.3)
    told = model.inverse_dynamics(*motion, memory=memory)
    np.testing.assert_allclose(
        told - model.rest.inverse_dynamics(*motion), known.inverse_dynamics(*motion, memory=memory)
    )
    assert not np.allclose(told, model.inverse_dynamics(*motion))
    assert model.actuator is known.actuator
    assert residual_model().actuator is None


def test_only_samples_that_count_are_left_over():
    data = swung(BODY, TWO_LINK.limits, range(2))
    counted = np.arange(len(data)) % 3 > 0
    left = left_over(BODY, replace(data, counted=counted))
    assert np.abs(left.tau[counted]).max() < 1e-9
    np.testing.assert_array_equal(left.tau[~counted], data.tau[~counted])


@pytest.mark.slow
def test_its_band_holds_the_torques_and_its_arm_is_not_doubted(monkeypatch):
    brief(monkeypatch)
    monkeypatch.setattr(contest, "STEPS", 300)
    data, settings, key = rippled(range(8)), FitSettings(validation=0.4), jax.random.key(0)
    entry = with_residual(
        identified(data, wrong_urdf(), START, settings, key=key), data, wrong_urdf(), settings, key=key
    )
    training, validation = contest.split(data, settings, key)
    model = trust(entry.model, training, validation, TrustSettings(members=3, steps=50), key=jax.random.key(3))
    assert isinstance(model, TrustedTorque)
    assert (coverage(model, validation) > 0.85).all()
    for leaf in jax.tree.leaves(eqx.filter(model.members.known, eqx.is_array)):
        assert (leaf == leaf[:1]).all()
    assert float(jnp.max(model.torque_std(*(jnp.asarray(column[5]) for column in (data.q, data.qd, data.qdd))))) > 0


def test_a_loop_computes_it_and_c_code_refuses_it():
    model = residual_model()
    with pytest.raises(ModelError, match=r"a ResidualModel cannot be written as C code.*its `known` is one"):
        c_source(model)
    c_source(model.known)
    assert Blueprint.of(model).size == sum(
        leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    )
    loop = Compiled.of(model)
    loop.prepare(np.zeros(3))
    assert loop.engine.startswith("JAX (a ResidualModel cannot")
    torque = loop.ready(wait=True)
    assert torque is not None
    np.testing.assert_allclose(torque, model.inverse_dynamics(*jnp.zeros((3, 3))), rtol=1e-6)


@pytest.mark.usefixtures("as_shipped")
def test_parts_that_do_not_fit_are_refused():
    rest = FeedForwardNetwork(TWO_LINK.joints, key=jax.random.key(0))
    with pytest.raises(ModelError, match="a RigidBody is no JAX model; give it as a chain"):
        ResidualModel(BODY, rest)
    with pytest.raises(ModelError, match="make the network of the arm's joints"):
        ResidualModel(chain(MIXED), rest)
    with pytest.raises(ModelError, match="a feed-forward network learns friction with all the rest; it takes no actu"):
        Blueprint(MIXED, FeedForwardSettings(), ActuatorSettings()).build(key=jax.random.key(0))
