"""Springs and cables: torque and energy against closed forms, and against MuJoCo's springs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.mechanisms import Mechanism, Part
from delan.deploy.friction_bounds import spring_bound
from delan.errors import ModelError
from delan.joints import Joints
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from tests.support.members import MIXED, actuator


def test_a_spring_between_joints_has_the_torque_of_its_energy():
    settings = FrictionSettings(("spring",), pairs=(MotorPair(0, 1, -2.0),))
    head = Friction.of(Joints.revolute(2), settings, np.array([[3.0, 0.0, 5.0]]))
    q = np.array([0.4, 0.1])
    between = 5.0 * (0.4 - 2 * 0.1)
    np.testing.assert_allclose(head.potential_torque(q), [3 * 0.4 + between, -2 * between])
    assert float(head.potential(q)) == pytest.approx(1.5 * 0.4**2 + 2.5 * 0.2**2)


def test_torque_is_the_slope_of_the_energy_and_cables_leave_sliding_joints_alone():
    head = jax.tree.map(jnp.asarray, actuator(MIXED, "spring", "viscous", "periodic"))
    q = jnp.array([0.7, 0.2, -1.3])
    np.testing.assert_allclose(head.potential_torque(q), jax.grad(head.potential)(q), rtol=1e-12)
    cables = jax.tree.map(jnp.asarray, actuator(MIXED, "periodic"))
    assert cables.potential_torque(q)[1] == 0


def test_the_spring_of_mujoco_is_a_spring_and_an_offset():
    stiffness, rest = 7.0, 0.3
    part = Part(-1, (0, 0, 0), (0, 0, 1), {0: 1.0}, 2.0, (0, 0, 0.1), (0.1, 0.1, 0.1))
    sprung = replace(part, stiffness=stiffness, rest=rest)
    q = np.linspace(-1, 1, 5)[:, None]
    torques = []
    for each in (part, sprung):
        torques.append(Mechanism((each,), ("revolute",), (1.0,)).torques(q, 0 * q, 0 * q))
    head = Friction.of(Joints.revolute(1), FrictionSettings(("spring",)), np.array([[stiffness]]))
    ours = np.stack([np.asarray(head.potential_torque(row)) for row in q]) - stiffness * rest
    np.testing.assert_allclose(torques[1] - torques[0], ours, atol=1e-9)


def test_the_bound_of_springs_holds_in_a_box():
    head = actuator(MIXED, "spring", "periodic", pairs=(MotorPair(0, 2, 0.5),))
    lower, upper = np.array([-1.0, 0.0, -2.0]), np.array([0.5, 0.3, 1.0])
    bound = spring_bound(head, lower, upper)
    for q in np.random.default_rng(0).uniform(lower, upper, (200, 3)):
        assert (np.abs(head.potential_torque(q)) <= bound).all()


def test_a_rigid_body_has_no_springs():
    with pytest.raises(ModelError, match="spring or periodic"):
        RigidBody.from_urdf(TWO_LINK.urdf(), friction=actuator(TWO_LINK.joints, "spring"))
