"""The equation of motion against a closed form, and its integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.joints import Joints
from delan.mechanics import euler_lagrange
from delan.mechanics.integration import rollout
from tests.support.members import network


@pytest.mark.parametrize("dof", [1, 2, 4, 7])
def test_entries_multiply_as_their_matrix(dof):
    key, other = jax.random.split(jax.random.key(dof))
    chol, v = jnp.tril(jax.random.normal(key, (dof, dof))), jax.random.normal(other, (dof,))
    entries = chol[euler_lagrange.places(dof)]
    np.testing.assert_array_equal(euler_lagrange.dense(entries), chol)
    np.testing.assert_array_equal(entries[:dof], np.diag(chol))
    np.testing.assert_allclose(euler_lagrange.times(entries, v), chol @ v, atol=1e-14)
    np.testing.assert_allclose(euler_lagrange.transposed_times(entries, v), chol.T @ v, atol=1e-14)


def published_arm(q):
    """Return inertia and potential of the arm of the published character data."""
    off = 0.5176145833 + 0.5 * jnp.cos(q[1])
    inertia = jnp.array([[1.3727291667 + jnp.cos(q[1]), off], [off, 0.5176145833]])
    potential = 2.625 * jnp.sin(q[0]) + 1.5 * jnp.sin(q[0] + q[1])
    return jnp.linalg.cholesky(inertia)[euler_lagrange.places(2)], potential


def test_against_a_closed_form():
    """Coriolis and gravity torques of the published two-link arm, derived by hand."""
    components = jax.jit(lambda *motion: euler_lagrange.components(published_arm, *motion))
    for key in jax.random.split(jax.random.key(0), 10):
        q, qd, qdd = 2 * jax.random.normal(key, (3, 2))
        parts = components(q, qd, qdd)
        coriolis = jnp.sin(q[1]) * jnp.array([-0.5 * qd[1] ** 2 - qd[0] * qd[1], 0.5 * qd[0] ** 2])
        gravity = 1.5 * jnp.cos(q[0] + q[1]) + jnp.array([2.625 * jnp.cos(q[0]), 0])
        np.testing.assert_allclose(parts.coriolis, coriolis, atol=1e-12)
        np.testing.assert_allclose(parts.gravity, gravity, atol=1e-12)


def swing(step: float) -> tuple[np.ndarray, np.ndarray]:
    """Release the arm from a stretched pose for half a second."""
    t = jnp.arange(round(0.5 / step) + 1) * step
    start = jnp.array([0.3, 0.5])

    def forward(q, qd, tau):
        return euler_lagrange.forward_dynamics(published_arm, q, qd, tau)

    q, qd = jax.jit(lambda t: rollout(forward, start, 0 * start, jnp.zeros((len(t), 2)), t))(t)
    return np.asarray(q), np.asarray(qd)


def test_integration_is_of_fourth_order():
    truth = swing(0.05 / 32)[0][-1]
    errors = [np.abs(swing(step)[0][-1] - truth).max() for step in (0.05, 0.025, 0.0125)]
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(orders, 4, atol=0.35)


def test_a_torque_that_grows_with_time_is_followed_exactly():
    """Unit masses driven by τ = a + b t move by v t + a t² / 2 + b t³ / 6, whatever the steps."""
    t = jnp.array([0.0, 0.1, 0.35, 0.4, 1.0])
    start, v, a, b = np.array([[0.3, -0.7], [0.5, -1.0], [2.0, 3.0], [-4.0, 6.0]])
    time = np.array(t)[:, None]
    q, qd = rollout(
        lambda q, qd, tau: tau, jnp.asarray(start), jnp.asarray(v), jnp.asarray(a + b * time), t
    )
    np.testing.assert_allclose(q, start + v * time + a * time**2 / 2 + b * time**3 / 6, rtol=1e-12)
    np.testing.assert_allclose(qd, v + a * time + b * time**2 / 2, rtol=1e-12, atol=1e-12)


def test_a_free_arm_keeps_its_energy():
    q, qd = swing(0.005)
    energy = jax.jit(jax.vmap(lambda q, qd: euler_lagrange.energy(published_arm, q, qd).total))
    assert np.ptp(energy(jnp.asarray(q), jnp.asarray(qd))) < 1e-8
    assert np.ptp(q) > 0.3  # it did move


def test_a_user_can_plan_through_the_model():
    """The end of a predicted motion has exact derivatives in the torques."""
    model = network(Joints.revolute(2), width=8)
    t = jnp.linspace(0, 0.2, 11)

    @jax.jit
    def miss(tau):
        q, _ = rollout(model.forward_dynamics, jnp.zeros(2), jnp.zeros(2), tau, t)
        return jnp.sum((q[-1] - jnp.array([0.1, -0.1])) ** 2)

    tau = jnp.zeros((11, 2))
    slope = jax.jit(jax.grad(miss))(tau)
    along = slope / jnp.linalg.norm(slope)
    difference = (miss(tau + 1e-5 * along) - miss(tau - 1e-5 * along)) / 2e-5
    assert float(difference) == pytest.approx(float(jnp.linalg.norm(slope)), rel=1e-5)
    assert float(miss(tau - 1e-2 * along)) < float(miss(tau))
