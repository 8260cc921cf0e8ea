"""The paper's Lagrangian layer against finite differences and against three passes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.errors import ModelError, SettingsError
from delan.joints import Joints
from delan.models.dynamics import lagrangian, trainable
from delan.models.layers import ACTIVATIONS, Affine, LagrangianLayer, Sensitive, chained
from delan.models.networks import LagrangianNetworkSettings
from tests.support.members import MIXED, chain, network
from tests.support.oracles import differences, torque_from_lagrangian


def motion_of(dof: int, seed: int = 0) -> jax.Array:
    return 2 * jax.random.normal(jax.random.key(seed), (3, dof))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_layer_carries_the_jacobian_of_its_output(activation):
    layer = LagrangianLayer(Affine(3, 5, key=jax.random.key(0)), ACTIVATIONS[activation])
    q = jnp.array([0.3, -0.7, 1.1])
    given = Sensitive.of(lambda q: jnp.tanh(2 * q), q)
    out = layer(given)
    np.testing.assert_allclose(
        out.slope,
        differences(lambda q: layer(Sensitive.of(lambda q: jnp.tanh(2 * q), q)).value, q).T,
        atol=1e-8,
    )
    np.testing.assert_allclose(out.slope, layer.jacobian(given.value) @ given.slope, atol=1e-14)


def test_chained_layers_are_the_trunk_and_its_jacobian():
    trunk = network(Joints.revolute(2), depth=3, width=8, inputs="raw").trunk
    q = jnp.array([0.4, -1.3])
    out = chained(trunk, Sensitive(q, jnp.eye(2)))
    np.testing.assert_allclose(out.value, trunk(q), atol=1e-14)
    np.testing.assert_allclose(out.slope, differences(trunk, q).T, atol=1e-8)


@pytest.mark.parametrize("dof", [1, 2, 7])
def test_factor_and_its_rates_against_finite_differences(dof):
    """L, ∂L/∂q_i, and dL/dt as the change of L along the motion."""
    model = network(Joints.revolute(dof))
    q, qd, _ = motion_of(dof)
    found = model.factor(q, qd)
    np.testing.assert_allclose(found.value @ found.value.T, model.mass_matrix(q), atol=1e-12)
    assert np.all(np.triu(np.asarray(found.value), 1) == 0)

    def factor(q):
        return model.factor(q, qd).value

    np.testing.assert_allclose(found.slope, differences(factor, q), atol=1e-8)
    along = (factor(q + 1e-6 * qd) - factor(q - 1e-6 * qd)) / 2e-6
    np.testing.assert_allclose(found.rate, along, atol=1e-7)


@pytest.mark.parametrize(
    ("dof", "settings"),
    [
        (1, {}),
        (2, {"activation": "tanh", "depth": 3}),
        (4, {"activation": "softplus"}),
        (7, {}),
        (3, {"activation": "relu", "diagonal": "relu", "gravity": "vector", "inputs": "raw"}),
    ],
)
def test_both_engines_give_the_same_numbers(dof, settings):
    passes = network(Joints.revolute(dof), width=16, **settings)
    layers = network(Joints.revolute(dof), width=16, engine="layers", **settings)
    motion = motion_of(dof, seed=dof)

    @jax.jit
    def everything(q, qd, qdd):
        results = []
        for model in (passes, layers):
            tau = model.inverse_dynamics(q, qd, qdd)
            results.append((tau, model.components(q, qd, qdd), model.forward_dynamics(q, qd, tau)))
        return results

    first, second = everything(*motion)
    for ours, papers in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(papers, ours, rtol=0, atol=1e-12 * max(1, np.abs(ours).max()))


def test_both_engines_have_the_same_gradient():
    """End-to-end training passes through every derivative of the layers."""
    motion = motion_of(2)

    def gradient(engine):
        weights, fixed = trainable(network(Joints.revolute(2), width=8, engine=engine))

        def loss(weights):
            return jnp.sum(eqx.combine(weights, fixed).inverse_dynamics(*motion) ** 2)

        return jax.tree.leaves(jax.jit(jax.grad(loss))(weights))

    for ours, papers in zip(gradient("passes"), gradient("layers"), strict=True):
        np.testing.assert_allclose(papers, ours, rtol=0, atol=1e-12 * max(1, np.abs(ours).max()))


@pytest.mark.parametrize("model", [network(MIXED, width=8), chain(MIXED)], ids=["net", "chain"])
def test_the_lagrangian_gives_the_torque_and_its_own_rate(model):
    q, qd, qdd = motion_of(3)

    def value(q, qd):
        return lagrangian(model, q, qd, qdd).value

    @jax.jit
    def everything(q, qd):
        torque = torque_from_lagrangian(value, q, qd, qdd)
        return lagrangian(model, q, qd, qdd), model.energy(q, qd), torque

    at, energy, torque = everything(q, qd)
    assert float(at.value) == pytest.approx(float(energy.kinetic - energy.potential))
    np.testing.assert_allclose(at.by_qd, model.mass_matrix(q) @ qd, rtol=1e-10)
    by_q = differences(lambda q: everything(q, qd)[0].value, q)
    np.testing.assert_allclose(at.by_q, by_q, rtol=1e-5, atol=1e-5)
    ends = []
    for step in (1e-5, -1e-5):
        ends.append(everything(q + step * qd + step**2 / 2 * qdd, qd + step * qdd)[0].value)
    assert float(at.rate) == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-5)
    np.testing.assert_allclose(model.inverse_dynamics(q, qd, qdd), torque, atol=1e-9)


def test_a_vector_of_gravity_has_no_lagrangian():
    q, qd, qdd = motion_of(3)
    with pytest.raises(ModelError, match="gravity='potential'"):
        lagrangian(network(Joints.revolute(3), gravity="vector"), q, qd, qdd)


@pytest.mark.usefixtures("as_shipped")
def test_raw_positions_of_an_endless_joint_are_refused():
    with pytest.raises(SettingsError, match="inputs='circular'"):
        network(MIXED, inputs="raw")
    with pytest.raises(SettingsError, match="unknown engine 'magic'; known: passes, layers"):
        LagrangianNetworkSettings(engine="magic")  # pyright: ignore
