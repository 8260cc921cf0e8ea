"""The arm of the demo: letters, inverse kinematics, and torques against two independent engines."""

from typing import Any

import mujoco as mujoco_module
import numpy as np
import pytest

from delan.errors import DataError, ModelError
from delan.joints import Joints
from delan.models.rigid_body import RigidBody
from delan.motions.letters import LETTERS, draw_letter
from delan.paper.motion_logs import letter_log
from delan.robots.arms import LENGTHS, TWO_LINK, follow, letter_motion, pen_position

mujoco: Any = mujoco_module  # its names are created on import, unseen by a type checker

PEN = {"origin": (0.4, -0.15), "height": 0.2, "speed": 0.45}


@pytest.mark.parametrize("letter", LETTERS)
def test_letters_start_and_end_at_rest_and_their_derivatives_are_exact(letter):
    dt = 1e-4
    pen = draw_letter(letter, **PEN, dt=dt)
    for end in (0, -1):
        np.testing.assert_allclose(pen.qd[end], 0, atol=1e-12)
        np.testing.assert_allclose(pen.qdd[end], 0, atol=1e-9)
    np.testing.assert_allclose(np.gradient(pen.q, dt, axis=0)[1:-1], pen.qd[1:-1], atol=1e-4)
    np.testing.assert_allclose(np.gradient(pen.qd, dt, axis=0)[1:-1], pen.qdd[1:-1], atol=0.05)
    length = np.linalg.norm(np.diff(pen.q, axis=0), axis=1).sum()
    assert length / pen.t[-1] == pytest.approx(PEN["speed"], rel=1e-2)


@pytest.mark.parametrize("letter", LETTERS)
def test_the_arm_follows_its_pen(letter):
    dt = 1e-4
    pen = draw_letter(letter, **PEN, dt=dt)
    joints = follow(pen)
    np.testing.assert_allclose(pen_position(joints.q), pen.q, atol=1e-12)
    np.testing.assert_allclose(np.gradient(joints.q, dt, axis=0)[1:-1], joints.qd[1:-1], atol=1e-3)
    np.testing.assert_allclose(np.gradient(joints.qd, dt, axis=0)[1:-1], joints.qdd[1:-1], atol=0.3)
    assert (joints.q[:, 1] > 0).all(), "the elbow stays on one side"
    limits = np.array([link.position for link in TWO_LINK.links])
    assert (joints.q > limits[:, 0]).all()
    assert (joints.q < limits[:, 1]).all()


def test_a_point_out_of_reach_is_refused():
    with pytest.raises(DataError, match=r"\(1\.\d+, 0\.\d+\) m is out of reach") as caught:
        follow(draw_letter("a", origin=(1.0, 0.0), height=0.2, speed=0.5, dt=0.01))
    assert caught.value.row == 0


def test_a_letter_is_written_within_the_speed_limits_of_the_joints():
    wanted, fast = letter_motion("m", dt=1e-3), letter_motion("m", speed=5.0, dt=1e-3)
    share = (np.abs(fast.qd) / TWO_LINK.limits.velocity).max()
    assert 0.9 < share <= 1
    assert fast.t[-1] < wanted.t[-1]
    np.testing.assert_allclose(fast.q[[0, -1]], wanted.q[[0, -1]], atol=1e-9)  # the same letter


def test_an_unknown_letter_is_refused():
    with pytest.raises(DataError, match="letter 'f'"):
        draw_letter("f", **PEN, dt=0.01)


def by_hand(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    """The textbook torque of two rods in a vertical plane."""
    (m1, m2), (l1, l2) = (link.mass for link in TWO_LINK.links), LENGTHS
    i1, i2 = (link.inertia[1] for link in TWO_LINK.links)
    a = i1 + m1 * l1**2 / 4 + m2 * l1**2
    b = i2 + m2 * l2**2 / 4
    coupling = m2 * l1 * l2 / 2
    cosine, sine = np.cos(q[1]), np.sin(q[1])
    h11, h12 = a + b + 2 * coupling * cosine, b + coupling * cosine
    gravity2 = m2 * 9.81 * l2 / 2 * np.cos(q[0] + q[1])
    gravity1 = (m1 / 2 + m2) * 9.81 * l1 * np.cos(q[0]) + gravity2
    c1, c2 = -coupling * sine * (2 * qd[0] * qd[1] + qd[1] ** 2), coupling * sine * qd[0] ** 2
    return np.array(
        [h11 * qdd[0] + h12 * qdd[1] + c1 + gravity1, h12 * qdd[0] + b * qdd[1] + c2 + gravity2]
    )


def test_torques_agree_with_the_textbook_and_with_mujoco():
    """Pinocchio, MuJoCo and the closed form: three derivations for one arm."""
    arm = RigidBody.from_urdf(TWO_LINK.urdf())
    spec = mujoco.MjSpec.from_string(TWO_LINK.urdf())
    spec.compiler.balanceinertia = False
    model = spec.compile()
    data = mujoco.MjData(model)
    for q, qd, qdd in np.random.default_rng(0).normal(0, 2, (200, 3, 2)):
        torque = arm.inverse_dynamics(q, qd, qdd)
        np.testing.assert_allclose(torque, by_hand(q, qd, qdd), atol=1e-9)
        data.qpos[:], data.qvel[:], data.qacc[:] = q, qd, qdd
        mujoco.mj_inverse(model, data)
        # Joint stops push back in MuJoCo: compare inside them only.
        if (np.abs(q) < [link.position[1] for link in TWO_LINK.links]).all():
            np.testing.assert_allclose(torque, data.qfrc_inverse, atol=1e-9)


def test_a_continuous_joint_has_the_torques_of_a_revolute_one():
    urdf = TWO_LINK.urdf().replace('name="elbow" type="revolute"', 'name="elbow" type="continuous"')
    turning, limited = RigidBody.from_urdf(urdf), RigidBody.from_urdf(TWO_LINK.urdf())
    assert turning.joints == Joints(("shoulder", "elbow"), ("revolute", "continuous"))
    motion = np.random.default_rng(0).normal(0, 3, (3, 2))
    np.testing.assert_allclose(
        turning.inverse_dynamics(*motion), limited.inverse_dynamics(*motion), atol=1e-9
    )


def test_a_urdf_of_thousands_of_joints_is_refused_before_its_matrices_are_made():
    parts = ['<robot name="long"><link name="l0"/>']
    for joint in range(1, 2000):
        parts.append(
            f'<link name="l{joint}"/><joint name="j{joint}" type="revolute">'
            f'<parent link="l{joint - 1}"/><child link="l{joint}"/><axis xyz="0 0 1"/>'
            '<limit effort="1" velocity="1"/></joint>'
        )
    with pytest.raises(ModelError, match="got 1999 joints; a robot has at most 500"):
        RigidBody.from_urdf("".join([*parts, "</robot>"]))


def test_a_broken_urdf_is_refused():
    with pytest.raises(ModelError, match="the URDF cannot be read"):
        RigidBody.from_urdf("<robot>")
    floating = TWO_LINK.urdf().replace(
        'name="shoulder" type="revolute"', 'name="shoulder" type="floating"'
    )
    with pytest.raises(ModelError, match="joint shoulder is a JointModelFreeFlyer"):
        RigidBody.from_urdf(floating)


def test_the_demo_log_has_the_torques_of_the_closed_form():
    data = letter_log("ab", dt=0.02)
    assert data.trajectories == (0, 1)
    np.testing.assert_allclose(sum(data.truth.values()), data.tau, atol=1e-12)
    for row in (0, 40, len(data) - 1):
        np.testing.assert_allclose(
            data.tau[row], by_hand(data.q[row], data.qd[row], data.qdd[row]), atol=1e-9
        )
