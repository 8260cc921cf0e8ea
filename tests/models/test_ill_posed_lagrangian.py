"""Which part of L′ = α L + β the data leave open (section 4 of Lutter et al. 2019).

β, a constant of the potential, changes no torque: it is free whatever is measured. α scales every
torque: it is free only where none is measured, because the robot moves by itself.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.joints import Joints
from delan.models.dynamics import lagrangian
from delan.models.networks import LagrangianNetwork, output_scale
from delan.solvers.loss import Objective, Samples, Scale, loss
from tests.support.members import network

ALPHA = 1.7
BETA = 5.0


@pytest.fixture(scope="module")
def model() -> LagrangianNetwork:
    return network(Joints.revolute(2), width=8)


def scaled(model: LagrangianNetwork, alpha) -> LagrangianNetwork:
    """The network of α L: the units of its inertia and of its potential are α times larger."""
    units = replace(model.normalisation, tau_std=alpha * model.normalisation.tau_std)
    return eqx.tree_at(lambda model: model.normalisation, model, units)


def shifted(model: LagrangianNetwork, beta) -> LagrangianNetwork:
    """The network of L + β: a constant less in its potential."""
    unit = output_scale(model, model.normalisation).gravity
    return eqx.tree_at(lambda model: model.gravity.bias, model, model.gravity.bias - beta / unit)


@pytest.fixture(scope="module")
def samples(model) -> dict[str, Samples]:
    """Motion with its measured torques, and the motion of the robot that nothing drives."""
    rng = np.random.default_rng(0)
    q, qd, qdd = jnp.asarray(rng.normal(0, 1, (3, 20, 2)))
    driven = jax.vmap(model.inverse_dynamics)(q, qd, qdd)
    free = jax.vmap(model.forward_dynamics)(q, qd, jnp.zeros_like(q))
    return {
        "driven": Samples(q, qd, qdd, driven),
        "free": Samples(q, qd, free, jnp.zeros_like(driven)),
    }


def error(model, samples: Samples, weight_decay: float = 0.0) -> jax.Array:
    objective = Objective("squared", weight_decay=weight_decay, decayed="all")
    unit = jnp.ones(2)
    decay = jnp.asarray(weight_decay)
    nothing = jnp.zeros(())
    scale = Scale(unit, jnp.ones(()), nothing, nothing, decay, decay)
    return loss(model, samples, scale, objective)


def test_alpha_and_beta_are_those_of_the_lagrangian(model):
    q, qd, qdd = jnp.asarray([[0.3, -0.8], [1.2, 0.4], [-0.5, 2.0]])
    value = float(lagrangian(model, q, qd, qdd).value)
    other = lagrangian(shifted(scaled(model, ALPHA), BETA), q, qd, qdd)
    assert float(other.value) == pytest.approx(ALPHA * value + BETA)
    torque = model.inverse_dynamics(q, qd, qdd)
    found = shifted(scaled(model, ALPHA), BETA).inverse_dynamics(q, qd, qdd)
    np.testing.assert_allclose(found, ALPHA * torque, rtol=1e-12)


@pytest.mark.parametrize("motion", ["driven", "free"])
def test_beta_is_free_whatever_is_measured(model, samples, motion):
    assert float(error(shifted(model, BETA), samples[motion])) == pytest.approx(0, abs=1e-20)
    slope = jax.grad(lambda beta: error(shifted(model, beta), samples[motion]))(BETA)
    assert float(slope) == pytest.approx(0, abs=1e-20)


def test_alpha_is_free_only_where_no_torque_is_measured(model, samples):
    assert float(error(scaled(model, ALPHA), samples["free"])) == pytest.approx(0, abs=1e-20)
    driven = samples["driven"]
    expected = (ALPHA - 1) ** 2 * float(jnp.mean(driven.tau**2))
    assert float(error(scaled(model, ALPHA), driven)) == pytest.approx(expected)
    assert expected > 0.1


def test_the_penalty_of_the_weights_settles_beta(model, samples):
    """λ Ω over all weights has one best constant; the data alone have none."""

    def slope(beta: float) -> float:
        decayed = jax.grad(lambda beta: error(shifted(model, beta), samples["driven"], 1e-3))
        return float(decayed(beta))

    # Ω is quadratic in the bias of the gravity head, which is all that β changes.
    rest = float(output_scale(model, model.normalisation).gravity[0] * model.gravity.bias[0])
    assert slope(rest) == pytest.approx(0, abs=1e-12)
    assert slope(rest + 1) > 1e-7 > -1e-7 > slope(rest - 1)
