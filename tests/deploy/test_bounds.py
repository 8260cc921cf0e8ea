"""Bounds hold wherever a robot is: against Pinocchio, samples and finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delan.deploy.bounds import chain_bound, prove
from delan.deploy.friction_bounds import driving_friction, friction_bound
from delan.deploy.network_bounds import _CURVES, _Interval, largest_number, network_bound
from delan.joints import Joints
from delan.models.chain import LagrangianChain, Slack
from delan.models.friction import Friction, FrictionSettings
from delan.models.geometry import from_rigid_body
from delan.models.networks import LagrangianNetwork, LagrangianNetworkSettings
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK, WAM7
from tests.support.crafted_models import given_power_of, random_friction
from tests.support.members import coupled_chain, parallelogram
from tests.support.random_arms import random_arm, rigid

KINDS = st.lists(st.sampled_from(["revolute", "continuous", "prismatic"]), min_size=1, max_size=6)


def states_in(lower, upper, speed, push, seed, count=400):
    """Random positions at the corners of speeds and accelerations."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], (2, count, len(lower)))
    return rng.uniform(lower, upper, (count, len(lower))), signs[0] * speed, signs[1] * push


@settings(max_examples=15, deadline=None)
@given(KINDS, st.integers(0, 10**6))
def test_bounds_of_a_chain_hold_for_the_arm_of_pinocchio(kinds, seed):
    rng = np.random.default_rng(seed)
    parents = [int(rng.integers(-1, k)) if k else -1 for k in range(len(kinds))]
    bodies, limits = random_arm(kinds, seed=seed, parents=parents)
    arm = rigid(bodies)
    bound = chain_bound(from_rigid_body(arm), limits.lower, limits.upper)
    speed, push = rng.uniform(0, 3, (2, len(kinds)))
    parts = arm.rows(*states_in(limits.lower, limits.upper, speed, push, seed))
    still = np.zeros_like(speed)
    within = 1 + 1e-6
    assert (np.abs(parts.total) <= within * bound.torque(speed, push) + 1e-9).all()
    assert (np.abs(parts.gravity) <= within * bound.gravity + 1e-9).all()
    weightless = bound._replace(gravity=0 * bound.gravity)
    assert (np.abs(parts.inertial) <= within * weightless.torque(still, push) + 1e-9).all()
    assert (np.abs(parts.coriolis) <= within * weightless.torque(speed, still) + 1e-9).all()
    scale = rng.uniform(0.1, 10, len(kinds))
    motors = np.diag(rng.uniform(0, 0.1, len(kinds)))
    scaled = scale[:, None] * scale[None]
    for q in rng.uniform(limits.lower, limits.upper, (50, len(kinds))):
        least = np.linalg.eigvalsh((np.asarray(arm.mass_matrix(q)) + motors) * scaled)[0]
        assert bound.least_eigenvalue(motors, scale)[0] <= within * least + 1e-9


def test_the_inertia_of_links_without_rotors_is_bounded_below():
    arm = from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf()))
    box = np.full(2, np.pi)
    angles = jnp.asarray(states_in(-box, box, box, box, 0)[0])
    least = float(np.linalg.eigvalsh(jax.vmap(arm.mass_matrix)(angles))[:, 0].min())
    bound = chain_bound(arm, -box, box).least_eigenvalue(np.zeros((2, 2)), np.ones(2))[0]
    assert 0.2 * least < bound <= least


def searched_chain() -> LagrangianChain:
    """A chain whose coupling a search has changed, beside what its settings say."""
    chain = coupled_chain()
    slack = Slack(jnp.full((3, 3), 1.5), jnp.ones((3, 3), dtype=bool))
    return eqx.tree_at(lambda item: item.slack, chain, slack, is_leaf=lambda leaf: leaf is None)


@pytest.mark.parametrize("make", [coupled_chain, parallelogram, searched_chain])
def test_bounds_of_coupled_joints_hold_at_random_states(make):
    chain = make()
    lower, upper = np.full(3, -2.0), np.full(3, 3.0)
    speed, push = np.array([[1.0, 2.0, 3.0], [4.0, 1.0, 2.0]])
    bound = chain_bound(chain, lower, upper)
    motion = states_in(lower, upper, speed, push, 0, count=2000)
    torque = jax.jit(jax.vmap(chain.inverse_dynamics))(*motion)
    assert (np.abs(torque) <= bound.torque(speed, push)).all()
    # Not far above either.
    assert (bound.torque(speed, push) <= 30 * np.abs(torque).max(axis=0)).all()


@pytest.mark.parametrize("robot", [TWO_LINK, WAM7], ids=lambda robot: robot.name)
def test_bounds_of_a_known_arm_are_not_far_above_what_it_needs(robot):
    arm = RigidBody.from_urdf(robot.urdf())
    lower, upper = (np.full(robot.joints.dof, sign * np.pi) for sign in (-1, 1))
    bound = chain_bound(from_rigid_body(arm), lower, upper)
    unit = np.ones(robot.joints.dof)
    parts = arm.rows(*states_in(lower, upper, unit, unit, 0, count=20_000))
    still = 0 * unit
    weightless = bound._replace(gravity=0 * bound.gravity)
    # The wrist's last joint carries nothing off its axis: its torques are near zero.
    size = np.abs(parts.total).max()
    for factor, torque, limit in (
        (1.5, parts.gravity, bound.gravity[0]),
        (5, parts.inertial, weightless.torque(still, unit)[0]),
        (12, parts.coriolis, weightless.torque(unit, still)[0]),
    ):
        most = np.abs(torque).max(axis=0)
        assert (most <= limit * (1 + 1e-6) + 1e-9).all()
        assert (limit <= factor * most + 0.02 * size).all()


def test_a_chain_of_frames_that_are_no_rotations_is_bounded_too():
    chain = from_rigid_body(RigidBody.from_urdf(WAM7.urdf()))
    rng = np.random.default_rng(3)
    chain = eqx.tree_at(
        lambda item: item.turn, chain, chain.turn + 0.3 * rng.normal(size=chain.turn.shape)
    )
    lower, upper = np.full(7, -np.pi), np.full(7, np.pi)
    unit = np.ones(7)
    motion = states_in(lower, upper, unit, unit, 0, count=2000)
    torque = jax.vmap(chain.inverse_dynamics)(*map(jnp.asarray, motion))
    assert (np.abs(torque) <= chain_bound(chain, lower, upper).torque(unit, unit)).all()


@pytest.mark.parametrize("name", _CURVES)
def test_ranges_of_activations_hold_their_values(name):
    rng = np.random.default_rng(0)
    middle = rng.uniform(-8, 8, 300)
    reach = 10 ** rng.uniform(-3, 1, 300)
    curve = _CURVES[name]
    places = middle[:, None] + reach[:, None] * np.linspace(-1, 1, 201)
    for order in range(3):
        interval = curve.over(_Interval.around(middle, reach), order)
        values = curve.orders[order](places)
        assert (values >= interval.low[:, None] - 1e-9).all()
        assert (values <= interval.high[:, None] + 1e-9).all()
    if curve.smooth:
        by_jax = jax.vmap(
            jax.grad({"sin": jnp.sin, "tanh": jnp.tanh}.get(name, getattr(jax.nn, name, jnp.tanh)))
        )
        np.testing.assert_allclose(curve.orders[1](middle), by_jax(middle), atol=1e-12)


@pytest.mark.parametrize(
    ("activation", "gravity", "inputs"),
    [
        *((name, "potential", "circular") for name in ("silu", "tanh", "softplus", "relu", "sin")),
        *((name, "vector", "circular") for name in ("silu", "tanh", "softplus", "relu", "sin")),
        ("relu", "vector", "raw"),
        ("silu", "potential", "normalised"),
    ],
)
def test_bounds_of_a_network_hold_in_every_box(activation, gravity, inputs):
    last = "continuous" if inputs == "circular" else "revolute"
    joints = Joints(("a", "b", "c"), ("revolute", "prismatic", last))
    shape = LagrangianNetworkSettings(
        width=12, activation=activation, gravity=gravity, inputs=inputs
    )
    network = LagrangianNetwork(joints, shape, key=jax.random.key(5))
    rng = np.random.default_rng(0)
    middle = rng.uniform(-3, 3, (40, 3))
    reach = 10 ** rng.uniform(-3, 0, (40, 3))
    bound = network_bound(network, middle, reach)
    speed, push = np.array([1.0, 2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    limit = bound.torque(speed, push)
    q = middle[:, None] + reach[:, None] * rng.uniform(-1, 1, (40, 60, 3))
    signs = rng.choice([-1.0, 1.0], (2, 40, 60, 3))
    each = jax.vmap(jax.vmap(network.inverse_dynamics))
    torque = np.abs(each(*map(jnp.asarray, (q, signs[0] * speed, signs[1] * push))))
    assert (torque <= limit[:, None] * (1 + 1e-9)).all()
    inertia = jax.vmap(jax.vmap(network.mass_matrix))(jnp.asarray(q))
    assert bound.middle is not None
    assert bound.spread is not None
    assert (np.abs(inertia - bound.middle[:, None]) <= bound.spread[:, None] + 1e-9).all()
    # In small boxes the bound is the value.
    tiny = network_bound(network, q[:, 0], np.full((40, 3), 1e-6)).torque(speed, push)
    assert (tiny <= 8 * torque.max() + 1e-9).all()
    assert largest_number(network, np.full(3, -3.0), np.full(3, 3.0)) < 1e4


def test_a_proof_ends_with_a_bound_or_with_the_boxes_that_are_open():
    lower, upper = np.full(2, -1.0), np.full(2, 1.0)

    def cone(middle, reach):
        # A narrow cone of height 2, with its Lipschitz constant.
        away = np.linalg.norm(middle - 0.3, axis=1) * 1e4
        return 2 - away + 1e4 * np.linalg.norm(reach, axis=1)

    assert prove(cone, 1.0, lower, upper).bound is None
    np.testing.assert_allclose(prove(cone, 1.0, lower, upper).open, 0.3, atol=2e-4)
    proof = prove(cone, 2.5, lower, upper)
    assert proof.bound is not None
    assert 2 <= proof.bound <= 2.5
    assert prove(lambda middle, reach: middle[:, 0] * np.nan, 1.0, lower, upper).bound is None


@pytest.mark.parametrize("seed", range(20))
def test_friction_that_gives_power_at_any_speed_is_known_by_its_weights(seed):
    friction = random_friction(Joints.revolute(2), seed)
    reason = driving_friction(friction)
    if given_power_of(friction) > 1e-9:
        assert reason is not None
    if (np.asarray(friction.weights.value)[friction.acting] >= 0).all():
        assert reason is None
    speed = np.array([0.5, 2.0])
    bound = friction_bound(friction, speed)
    rng = np.random.default_rng(seed)
    qd = speed * rng.uniform(-1, 1, (500, 2)) * 10 ** rng.uniform(-5, 0, (500, 1))
    load = rng.normal(size=(500, 2))
    torque = jax.vmap(friction.torque)(jnp.asarray(qd), jnp.asarray(load))
    assert (np.abs(torque) <= bound.torque + bound.share * np.abs(load) + 1e-9).all()


def test_a_stribeck_bump_below_coulomb_friction_is_passive():
    """Weights may be negative where others outweigh them at every speed."""
    settings = FrictionSettings(("viscous", "coulomb", "stribeck"), passive=False)
    blank = Friction(Joints.revolute(2), settings)
    for dry, driving in ((1.0, False), (0.4, True)):
        weights = jnp.array([[0.1, 0.1], [dry, 1.0], [-0.5, -0.5]])
        friction = eqx.tree_at(lambda item: item.weights.value, blank, weights)
        assert (driving_friction(friction) is not None) == driving
        assert (given_power_of(friction) > 1e-9) == driving
