"""The implicit step against closed forms, other integrators and another engine."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from delan.errors import ModelError
from delan.models.chain import LagrangianChain
from delan.models.friction import Friction, FrictionSettings
from delan.models.geometry import from_rigid_body
from delan.models.model import Model, as_model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK, WAM7
from delan.simulation.stepper import Drive, MovingState, at_rest, driven, require_simulable, step
from tests.support.members import feed_forward

KNOWN = RigidBody.from_urdf(TWO_LINK.urdf())


def arm(**sizes) -> Model:
    """The two-link arm with friction of these sizes."""
    chain = from_rigid_body(KNOWN)
    if not sizes:
        return Model(chain)
    rows: dict[Any, np.ndarray] = {name: np.array(size) for name, size in sizes.items()}
    friction = Friction.known(chain.joints, rows, width=0.01)
    return Model(chain, jax.tree.map(jnp.asarray, friction))


def simulated(model: Model, q, tau, dt: float) -> MovingState:
    start = at_rest(model, jnp.asarray(q))
    return jax.tree.map(
        np.asarray, driven(model, start, Drive.held(jnp.asarray(tau)), jnp.asarray(dt))
    )


def stiff_truth(friction, q, torque, seconds: float) -> np.ndarray:
    """Positions after a time by Radau's method, with Pinocchio's accelerations."""

    def rate(t: float, state: np.ndarray) -> np.ndarray:
        qd = state[2:]
        return np.concatenate([qd, KNOWN.forward_dynamics(state[:2], qd, torque(t) - friction(qd))])

    start = np.concatenate([q, np.zeros(2)])
    solved = solve_ivp(rate, (0, seconds), start, method="Radau", rtol=1e-9, atol=1e-11)
    return solved.y[:2, -1]


def test_smooth_motion_is_of_second_order_and_friction_of_first():
    q = np.array([0.3, -0.5])
    true = stiff_truth(lambda qd: 0.4 * qd, q, lambda t: np.zeros(2), 0.4)
    errors = []
    for count in (50, 100, 200):
        states = simulated(arm(viscous=[0.4, 0.4]), q, np.zeros((count, 2)), 0.4 / count)
        errors.append(np.abs(states.q[-1] - true).max())
    # Viscous friction, taken at the end of a step, is of first order.
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 1, atol=0.2)
    assert errors[2] < 1e-3
    frictionless = []
    true = stiff_truth(lambda qd: 0 * qd, q, lambda t: np.zeros(2), 0.4)
    for count in (50, 100, 200):
        states = simulated(arm(), q, np.zeros((count, 2)), 0.4 / count)
        frictionless.append(np.abs(states.q[-1] - true).max())
    order = np.log2(np.divide(frictionless[:-1], frictionless[1:]))
    np.testing.assert_allclose(order, 2, atol=0.2)


def test_dry_friction_agrees_with_a_stiff_integrator():
    q = np.array([0.3, -0.5])
    dry = np.array([3.0, 1.0])

    def torque(t: float) -> np.ndarray:
        return np.array([8 * np.sin(5 * t), 3 * np.sin(7 * t)])

    true = stiff_truth(lambda qd: dry * np.tanh(qd / 0.01) + 0.2 * qd, q, torque, 1.0)
    model = arm(coulomb=dry, viscous=[0.2, 0.2])
    errors = []
    for count in (500, 1000):
        mids = (np.arange(count) + 0.5) / count
        states = simulated(model, q, np.stack([torque(t) for t in mids]), 1 / count)
        errors.append(np.abs(states.q[-1] - true).max())
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 6e-3


def test_a_joint_that_friction_holds_rests():
    """Gravity of 1.9 N m at the elbow, below its dry friction; the shoulder is held as well."""
    model = arm(coulomb=[30.0, 5.0])
    states = simulated(model, np.zeros(2), np.zeros((500, 2)), 2e-3)
    # What is left is the creep of the smooth step, w artanh(τ/F).
    share = KNOWN.inverse_dynamics(*np.zeros((3, 2))) / np.array([30.0, 5.0])
    np.testing.assert_allclose(states.qd[-1], -0.01 * np.arctanh(share), rtol=0.02)
    # No chatter: speeds approach it from one side.
    assert (np.diff(states.qd, axis=0) < 1e-9).all()


def test_a_light_wrist_is_stable_at_a_millisecond():
    """1e-4 kg m² against 0.3 N m of dry friction: an explicit step would overshoot 30,000 fold."""
    joints = KNOWN.joints
    light = LagrangianChain(joints, key=jax.random.key(0))
    small = jnp.sqrt(1e-4) * jnp.broadcast_to(jnp.eye(4), (2, 4, 4))
    light = eqx.tree_at(lambda chain: (chain.factor, chain.gravity), light, (small, jnp.zeros(3)))
    friction = Friction.known(joints, {"coulomb": np.full(2, 0.3)})
    model = Model(light, jax.tree.map(jnp.asarray, friction))
    start = MovingState(jnp.zeros(2), jnp.array([3.0, -3.0]), None)
    states = driven(model, start, Drive.held(jnp.zeros((100, 2))), jnp.asarray(1e-3))
    assert np.isfinite(states.q).all()
    speed = np.abs(states.qd)
    assert (np.diff(speed, axis=0) <= 1e-12).all()
    assert speed[-1].max() < 1e-3


def test_memory_holds_a_joint_like_a_spring():
    """Stop operators carry a load below their size without any creep."""
    settings = FrictionSettings(("viscous", "stops"), radii=(0.01,))
    weights = np.stack([np.full(2, 0.5), np.array([30.0, 10.0])])
    friction = Friction.of(KNOWN.joints, settings, weights)
    model = Model(from_rigid_body(KNOWN), jax.tree.map(jnp.asarray, friction))
    states = simulated(model, np.zeros(2), np.zeros((4000, 2)), 2e-3)
    load = KNOWN.inverse_dynamics(states.q[-1], *np.zeros((2, 2)))
    np.testing.assert_allclose(states.q[-1], -0.01 * load / weights[1], rtol=1e-3)
    np.testing.assert_allclose(states.qd[-1], 0, atol=1e-6)


def test_the_step_is_the_inverse_of_inverse_dynamics():
    """A step of the WAM under the torque of a known acceleration has that acceleration."""
    body = RigidBody.from_urdf(WAM7.urdf())
    rng = np.random.default_rng(0)
    q, qd, qdd = rng.uniform(-1, 1, (3, 7))
    friction = Friction.known(body.joints, {"coulomb": np.ones(7), "load": np.full(7, 0.1)})
    model = Model(from_rigid_body(body), jax.tree.map(jnp.asarray, friction))
    tau = model.inverse_dynamics(jnp.asarray(q), jnp.asarray(qd), jnp.asarray(qdd))
    dt = 1e-6
    start = MovingState(jnp.asarray(q), jnp.asarray(qd), None)
    state = step(model, start, Drive.held(jnp.asarray(tau)), dt)
    np.testing.assert_allclose((np.asarray(state.qd) - qd) / dt, qdd, atol=2e-3)


def test_derivatives_pass_through_a_step():
    model = arm(coulomb=[3.0, 1.0])
    q = jnp.array([0.3, -0.5])

    def end(size):
        changed = eqx.tree_at(
            lambda model: model.friction.weights.value, model, size * jnp.ones((1, 2))
        )
        drives = Drive.held(jnp.ones((20, 2)))
        return driven(changed, at_rest(changed, q), drives, jnp.asarray(5e-3)).q[-1]

    forward = jax.jacfwd(end)(jnp.asarray(2.0))
    backward = jax.jacrev(end)(jnp.asarray(2.0))
    numeric = (end(jnp.asarray(2.0 + 1e-5)) - end(jnp.asarray(2.0 - 1e-5))) / 2e-5
    np.testing.assert_allclose(forward, backward, rtol=1e-9)
    np.testing.assert_allclose(forward, numeric, rtol=1e-5)


def test_stiff_feedback_is_stable():
    """Gains for which an explicit controller at this step would diverge at once."""
    model = arm(viscous=[0.4, 0.4])
    target = jnp.broadcast_to(jnp.array([0.2, -0.1]), (400, 2))
    stiff = jnp.full((400, 2), 1e6)
    damped = jnp.full((400, 2), 1e3)
    drives = Drive(jnp.zeros((400, 2)), stiff, damped, target, jnp.zeros((400, 2)))
    states = driven(model, at_rest(model, jnp.zeros(2)), drives, jnp.asarray(2e-3))
    np.testing.assert_allclose(states.q[-1], target[0], atol=1e-4)


def test_a_model_of_torques_alone_is_refused():
    with pytest.raises(ModelError, match="computes torques only"):
        require_simulable(as_model(feed_forward(KNOWN.joints)))
