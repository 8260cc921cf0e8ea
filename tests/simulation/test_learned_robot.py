"""A learned model as a robot, against MuJoCo's, and as a Gymnasium environment."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from delan.errors import RobotError, SettingsError
from delan.joints import JointLimits
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from delan.robots.mujoco_robot import MujocoRobot
from delan.robots.robot import Robot
from delan.simulation import LearnedRobot, ReachEnvironment

LIMITS = TWO_LINK.limits


@pytest.fixture(scope="module")
def robot() -> LearnedRobot:
    model = Model(from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf())))
    return LearnedRobot(model, LIMITS, physics_dt=5e-4)


def test_it_moves_as_in_mujoco(robot):
    assert isinstance(robot, Robot)
    other = MujocoRobot.of(TWO_LINK)
    start = np.array([0.3, -0.5])
    state = robot.reset(start)
    truth = other.reset(start)
    for number in range(150):
        tau = np.array([20.0, 5.0]) + 3 * np.sin(0.05 * number)
        state = robot.step(tau)
        truth = other.step(tau)
    assert state.t == pytest.approx(truth.t)
    assert np.abs(truth.q - start).max() > 0.3
    assert state.q == pytest.approx(truth.q, abs=2e-3)


def test_torques_are_bounded(robot):
    robot.reset()
    bounded = robot.step(1e6 * np.ones(2)).qd
    robot.reset()
    assert robot.step(LIMITS.torque).qd == pytest.approx(bounded)
    with pytest.raises(RobotError, match="finite"):
        robot.step(np.array([np.nan, 0.0]))


def test_limits_of_another_robot_are_refused(robot):
    one = JointLimits(
        lower=LIMITS.lower[:1],
        upper=LIMITS.upper[:1],
        velocity=LIMITS.velocity[:1],
        torque=LIMITS.torque[:1],
    )
    with pytest.raises(SettingsError, match="1 joints for a model of 2"):
        LearnedRobot(robot._model, one)


def test_the_environment_is_one_of_gymnasium(robot):
    check_env(ReachEnvironment(robot, steps=20), skip_render_check=True)


def test_an_episode_is_repeatable_and_ends(robot):
    environment = ReachEnvironment(robot, steps=5)
    assert isinstance(environment, gymnasium.Env)
    first, _ = environment.reset(seed=3)
    again, _ = environment.reset(seed=3)
    assert (first == again).all()
    ends = [environment.step(np.zeros(2, np.float32))[3] for _ in range(5)]
    assert ends == [False, False, False, False, True]
    # Thrown against the end of its range, it ends at a cost that no waiting has.
    environment = ReachEnvironment(robot, steps=500)
    environment.reset(options={"q": LIMITS.upper - 1e-3, "goal": np.zeros(2)})
    rewards = []
    outside = False
    while not outside and len(rewards) < 100:
        _, reward, outside, _, _ = environment.step(np.ones(2, np.float32))
        rewards.append(reward)
    assert outside
    assert rewards[-1] < -300


def test_a_robot_without_end_stops_is_refused(robot):
    free = np.full(2, np.inf)
    limits = JointLimits(lower=-free, upper=free, velocity=LIMITS.velocity, torque=LIMITS.torque)
    endless = LearnedRobot(robot._model, limits)
    with pytest.raises(SettingsError, match="finite limits"):
        ReachEnvironment(endless)
