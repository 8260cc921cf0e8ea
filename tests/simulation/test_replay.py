"""Replays against logs of engines that know nothing of our integrator."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import delan
from delan.cli.main import app
from delan.errors import SettingsError
from delan.joints import Recording
from delan.models.friction import Friction
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from delan.robots.mujoco_robot import MujocoRobot
from delan.robots.robot import Gains
from delan.simulation.replay import Part, ReplaySettings, recorded_motion, replay, replay_parts

GAINS = Gains(np.array([60.0, 15.0]), np.array([10.0, 2.0]))
SETTINGS = ReplaySettings(horizons=(0.1, 0.5), windows=5)


@pytest.fixture(scope="module")
def log() -> Recording:
    """Three seconds of the two-link arm in MuJoCo under PD control, every 2 ms."""
    robot = MujocoRobot.of(TWO_LINK)
    state = robot.reset(np.array([0.2, -0.4]))
    rows = []
    for number in range(1500):
        t = 0.002 * number
        wanted = np.array([0.2 + 0.6 * np.sin(3 * t), -0.4 + 0.5 * np.sin(4 * t)])
        tau = GAINS.stiffness * (wanted - state.q) - GAINS.damping * state.qd
        rows.append((t, state.q, state.qd, tau))
        state = robot.step(tau)
    t, q, qd, tau = (np.array(column) for column in zip(*rows, strict=True))
    labels = np.zeros(len(t), dtype=int)
    return Recording(t=t, q=q, qd=qd, tau=tau, trajectory=labels, joints=TWO_LINK.joints)


@pytest.fixture(scope="module")
def true() -> Model:
    return Model(from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf())))


def test_the_true_model_moves_like_the_robot(log, true):
    replayed = replay(true, log, SETTINGS, gains=GAINS)
    assert replayed.open_loop[0.5].windows == 5
    assert max(replayed.open_loop[0.5].rmse) < 0.02
    assert max(replayed.open_loop[0.5].over_hold) < 0.03
    assert replayed.closed_loop is not None
    assert max(replayed.closed_loop.rmse) < 1e-3


def test_a_wrong_model_strays(log, true):
    """Friction that the robot has not: the error is that of a torque of 2 N m."""
    friction = Friction.known(true.joints, {"coulomb": np.array([2.0, 2.0])})
    wrong = Model(true.mechanics, jax.tree.map(jnp.asarray, friction))
    right = replay(true, log, SETTINGS)
    strayed = replay(wrong, log, SETTINGS)
    assert min(strayed.open_loop[0.5].rmse) > 10 * max(right.open_loop[0.5].rmse)
    assert right.closed_loop is None


def test_windows_end_where_the_log_does(log, true):
    short = log.rows(slice(0, 400))
    replayed = replay(true, short, ReplaySettings(horizons=(0.1, 2.0), windows=5))
    assert replayed.open_loop[2.0].windows == 0
    assert np.isnan(replayed.open_loop[2.0].rmse).all()
    assert replayed.open_loop[0.1].windows == 5


def test_parts_are_replayed_by_their_own_models(log, true):
    dataset = recorded_motion(log, SETTINGS)
    early = np.arange(len(dataset)) < 700
    both = replay_parts([Part(true, early), Part(true, ~early)], dataset, SETTINGS)
    assert both is not None
    assert both.open_loop[0.5].windows == 6  # three for each part
    assert max(both.open_loop[0.5].over_hold) < 0.03
    assert (both.starts[:3] < log.t[700] - 0.5).all()
    assert (both.starts[3:] >= log.t[700]).all()
    short = np.arange(len(dataset)) < 200
    assert replay_parts([Part(true, short)], dataset, SETTINGS) is None


def test_gains_of_other_joints_are_refused(log, true):
    with pytest.raises(SettingsError, match="3 joints, but the log has 2"):
        replay(true, log, SETTINGS, gains=Gains(np.ones(3), np.ones(3)))


def test_the_command_prints_one_json_object(log, true, tmp_path):
    delan.save(true, tmp_path / "arm.delan")
    np.savez(tmp_path / "log.npz", t=log.t, q=log.q, qd=log.qd, tau=log.tau)
    (tmp_path / "arm.urdf").write_text(TWO_LINK.urdf())
    typed = ["simulate", str(tmp_path / "arm.delan"), "--log", str(tmp_path / "log.npz")]
    typed += ["--kp", "60,15", "--kd", "10,2", "--windows", "3", "--json"]
    typed += ["--urdf", str(tmp_path / "arm.urdf"), "--plot", str(tmp_path / "replay.png")]
    ran = CliRunner().invoke(app, typed)
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert list(result["open_loop"]) == ["0.1", "0.5", "1", "2"]
    assert len(result["open_loop"]["0.5"]["over_hold"]) == 2
    assert max(result["closed_loop"]["rmse"]) < 1e-3
    assert max(result["urdf"]["open_loop"]["0.5"]["over_hold"]) < 0.03
    assert (tmp_path / "replay.png").stat().st_size > 10_000


def test_one_gain_alone_is_refused(log, true, tmp_path):
    delan.save(true, tmp_path / "arm.delan")
    np.savez(tmp_path / "log.npz", t=log.t, q=log.q, qd=log.qd, tau=log.tau)
    typed = ["simulate", str(tmp_path / "arm.delan"), "--log", str(tmp_path / "log.npz")]
    ran = CliRunner().invoke(app, [*typed, "--kp", "60,15"])
    assert ran.exit_code == 1
    assert "both --kp and --kd" in ran.stderr
