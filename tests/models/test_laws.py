"""The laws of mechanics over all models that promise them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delan.errors import ModelError
from delan.joints import Joints
from delan.mechanics import euler_lagrange
from delan.models.dynamics import DynamicsModel, InverseDynamics
from delan.models.model import Model
from tests.support.members import (
    DYNAMICS,
    INVERSE,
    METHODS,
    MIXED,
    TORQUE_ONLY,
    WITH_FRICTION,
    WITHOUT_ENERGY,
    Compiled,
    network,
)


@pytest.fixture(scope="module", params=DYNAMICS)
def member(request) -> tuple[str, Any]:
    model = DYNAMICS[request.param]()
    without = ("energy", "power") if request.param in WITHOUT_ENERGY else ()
    return request.param, Compiled(model, without) if is_jax(model) else model


def is_jax(model: InverseDynamics) -> bool:
    return isinstance(model, eqx.Module)


def states(model: InverseDynamics, count: int, *, seed: int = 1) -> list[list[jax.Array]]:
    """Random (q, q̇, q̈)."""
    draws = np.random.default_rng(seed).normal(0, 2, (count, 3, model.joints.dof))
    return [list(map(jnp.asarray, draw)) for draw in draws]


@pytest.mark.parametrize("name", DYNAMICS)
def test_members_keep_their_protocol(name):
    model = DYNAMICS[name]()
    assert isinstance(model, DynamicsModel)
    assert model.promises.mechanics
    assert model.promises.energy == (name not in WITHOUT_ENERGY)


@pytest.mark.parametrize("name", TORQUE_ONLY)
def test_models_of_torque_alone_promise_no_more_than_they_can(name):
    model: Any = INVERSE[name]()
    assert isinstance(model, InverseDynamics)
    assert not model.promises.mechanics
    assert not model.promises.energy
    if not isinstance(model, Model):
        assert not isinstance(model, DynamicsModel)
        return
    vector = jnp.ones(model.joints.dof)
    for method, count in METHODS.items():
        if method != "inverse_dynamics":
            with pytest.raises(ModelError, match="knows torques only"):
                getattr(model, method)(*[vector] * count)


def test_forward_dynamics_undoes_inverse_dynamics(member):
    for q, qd, qdd in states(member[1], 5):
        tau = member[1].inverse_dynamics(q, qd, qdd)
        np.testing.assert_allclose(
            member[1].forward_dynamics(q, qd, tau), qdd, rtol=1e-7, atol=1e-7
        )


def test_inertia_is_symmetric_and_positive_definite(member):
    for q, _, _ in states(member[1], 5):
        inertia = np.asarray(member[1].mass_matrix(q))
        np.testing.assert_allclose(inertia, inertia.T, atol=1e-14 * np.abs(inertia).max())
        assert np.linalg.eigvalsh(inertia).min() > 0


def test_parts_sum_to_the_torque(member):
    for motion in states(member[1], 5):
        total = np.asarray(member[1].components(*motion).total)
        np.testing.assert_allclose(
            total, member[1].inverse_dynamics(*motion), rtol=1e-10, atol=1e-10
        )


def test_inertial_part_is_inertia_times_acceleration(member):
    for q, qd, qdd in states(member[1], 5):
        expected = np.asarray(member[1].mass_matrix(q)) @ np.asarray(qdd)
        np.testing.assert_allclose(
            member[1].components(q, qd, qdd).inertial, expected, rtol=1e-10, atol=1e-10
        )


def test_gravity_is_the_torque_at_rest(member):
    for q, qd, qdd in states(member[1], 5):
        at_rest = np.asarray(member[1].inverse_dynamics(q, 0 * qd, 0 * qdd))
        parts = member[1].components(q, 0 * qd, 0 * qdd)
        gravity = np.asarray(member[1].components(q, qd, qdd).gravity)
        np.testing.assert_allclose(
            gravity, at_rest - np.asarray(parts.friction), rtol=1e-10, atol=1e-10
        )


def test_friction_is_there_where_it_is_promised(member):
    name, model = member
    for motion in states(model, 2):
        assert np.any(np.asarray(model.components(*motion).friction)) == (name in WITH_FRICTION)


def test_coriolis_torque_is_quadratic_in_velocity(member):
    for q, qd, qdd in states(member[1], 5):
        once = np.asarray(member[1].components(q, qd, qdd).coriolis)
        np.testing.assert_allclose(
            member[1].components(q, 3 * qd, qdd).coriolis, 9 * once, rtol=1e-9, atol=1e-9
        )


def test_power_balance(member):
    """Energy gains what torques feed in beyond friction: d(T + V)/dt = q̇ᵀ (τ − friction)."""
    name, model = member
    if name in WITHOUT_ENERGY:
        pytest.skip("has no potential energy")
    for q, qd, qdd in states(model, 5):
        lost = np.asarray(model.components(q, qd, qdd).friction)
        fed = float(np.asarray(qd) @ (np.asarray(model.inverse_dynamics(q, qd, qdd)) - lost))
        assert float(model.power(q, qd, qdd)) == pytest.approx(fed, rel=1e-9, abs=1e-9)


def test_kinetic_energy_is_half_the_square_of_velocity_in_the_inertia(member):
    name, model = member
    if name in WITHOUT_ENERGY:
        pytest.skip("has no potential energy")
    for q, qd, _ in states(model, 5):
        velocity = np.asarray(qd)
        expected = velocity @ np.asarray(model.mass_matrix(q)) @ velocity / 2
        assert float(model.energy(q, qd).kinetic) == pytest.approx(expected, rel=1e-9)


def test_gravity_is_the_slope_of_the_potential(member):
    name, model = member
    if name in WITHOUT_ENERGY:
        pytest.skip("has no potential energy")
    for q, qd, qdd in states(model, 2):
        step = 1e-5 * np.eye(model.joints.dof)
        slope = [
            float((model.energy(q + d, qd).potential - model.energy(q - d, qd).potential) / 2e-5)
            for d in step
        ]
        np.testing.assert_allclose(
            model.components(q, qd, qdd).gravity, slope, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("name", sorted(WITHOUT_ENERGY))
def test_a_model_without_potential_says_so(name):
    model = DYNAMICS[name]()
    q, qd, qdd = states(model, 1)[0]
    with pytest.raises(
        ModelError, match=r"gravity as a vector, which has no potential energy; build it with"
    ):
        model.energy(q, qd)
    with pytest.raises(ModelError, match="no potential energy"):
        model.power(q, qd, qdd)


@pytest.mark.parametrize("name", [name for name in INVERSE if not name.startswith("rigid body")])
def test_a_batch_is_its_samples(name):
    """Also with as many samples as joints, where a wrong broadcast would go unseen."""
    model = INVERSE[name]()
    motions = states(model, model.joints.dof)
    single = eqx.filter_jit(model.inverse_dynamics)
    one_by_one = np.stack([single(*motion) for motion in motions])
    columns = (jnp.stack(column) for column in zip(*motions, strict=True))
    together = jax.jit(jax.vmap(model.inverse_dynamics))(*columns)
    np.testing.assert_allclose(together, one_by_one, rtol=1e-9, atol=1e-9)


@given(
    seed=st.integers(0, 2**31 - 1),
    scale=st.floats(0.01, 30),
    offset=st.floats(1e-4, 1),
    q=st.lists(st.floats(-100, 100), min_size=3, max_size=3),
    diagonal=st.sampled_from(["softplus", "relu"]),
)
def test_inertia_is_positive_definite_for_every_weight(seed, scale, offset, q, diagonal):
    """Not only for trained weights: the factor's diagonal never falls below the offset."""
    model = network(MIXED, seed, scale, offset=offset, diagonal=diagonal, width=8)
    chol = euler_lagrange.dense(model._terms(jnp.asarray(q))[0])
    units = model.normalisation
    floor = np.sqrt(units.tau_std / units.qdd_std) * offset
    assert (np.diag(chol) >= floor).all()
    assert np.linalg.svd(np.asarray(chol), compute_uv=False).min() > 0


inertia = eqx.filter_jit(lambda model, q: model.mass_matrix(q))


@given(
    seed=st.integers(0, 1000),
    q=st.lists(st.floats(-10, 10), min_size=2, max_size=2),
    turns=st.integers(-3, 3),
)
def test_turning_joints_are_periodic(seed, q, turns):
    model = network(Joints.of(("revolute", "continuous")), seed, width=8)
    here, there = jnp.asarray(q), jnp.asarray(q) + 2 * np.pi * turns
    np.testing.assert_allclose(inertia(model, here), inertia(model, there), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("name", ["network, 2 joints", "feed-forward"])
def test_a_model_takes_what_people_have_and_refuses_the_rest(name):
    """Lists, whole numbers and numpy arrays are one sample like any other; a batch needs vmap."""
    model = INVERSE[name]()
    n = model.joints.dof
    expected = model.inverse_dynamics(jnp.zeros(n), jnp.ones(n), jnp.ones(n))
    for make in (lambda x: [x] * n, lambda x: np.full(n, x), lambda x: np.full(n, float(x))):
        given: list[Any] = [make(0), make(1), make(1)]
        np.testing.assert_allclose(model.inverse_dynamics(*given), expected)
    with pytest.raises(
        ModelError,
        match=rf"expected one sample of {n} joints, shape \({n},\), got shape \(5, {n}\)",
    ):
        model.inverse_dynamics(*jnp.zeros((3, 5, n)))
    with pytest.raises(ModelError, match=rf"got shape \({n + 1},\)"):
        model.inverse_dynamics(*jnp.zeros((3, n + 1)))
