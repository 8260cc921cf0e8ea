"""Joints without a motor: their zero torque is an equation to learn from, checked by MuJoCo."""

from dataclasses import replace

import numpy as np
import pytest

import delan
from delan.joints import Recording
from delan.learning.fit_settings import FitSettings
from delan.learning.scores import Errors, TorqueSize
from delan.logs.actuation import natural_torque, torque_scale, torque_variance, unactuated
from delan.solvers.training import TrainingSettings
from tests.support.mechanisms import CART_POLE, UNDERACTUATED, driven


def quick() -> FitSettings:
    return FitSettings(training=TrainingSettings(epochs=30))


def as_logged(dataset: delan.Dataset) -> Recording:
    return Recording(
        t=dataset.t + 100.0 * dataset.trajectory,
        q=dataset.q,
        qd=dataset.qd,
        tau=dataset.tau,
        trajectory=dataset.trajectory,
        joints=dataset.joints,
    )


@pytest.mark.parametrize("name", UNDERACTUATED)
def test_the_log_check_knows_a_joint_without_a_motor(name):
    mechanism = UNDERACTUATED[name]
    findings = delan.examine(as_logged(driven(mechanism, 1200, seed=3)))
    serious = {(item.kind, item.joint) for item in findings if item.severity != "note"}
    free = ({0, 1} - set(mechanism.motors)).pop()
    assert serious == {("unactuated", free)}


def test_a_chain_learns_a_cart_pole_from_the_force_at_the_cart_alone():
    result = delan.fit(driven(CART_POLE, 400, seed=0), "chain", settings=quick())
    scores = delan.evaluate(result.model, driven(CART_POLE, 300, seed=1))
    assert scores.torque.free == (False, True)
    assert scores.torque.nmse_mean < 1e-8
    assert scores.torque.free_nmse < 1e-8
    assert scores.acceleration is not None
    assert max(scores.acceleration.nmse) < 1e-8
    assert result.verdict.decision == "deploy"
    assert result.motion is None  # a free pole follows no motion


def test_a_lost_torque_column_makes_the_fit_doubtful():
    log = driven(CART_POLE, 400, seed=0)
    # A motor at the pole whose torque is not in the log.
    arm = delan.RigidBody.from_urdf(CART_POLE.arm.urdf())
    rng = np.random.default_rng(0)
    qdd = 20 * np.stack([np.sin(rate * log.t) for rate in rng.uniform(3, 9, 2)], axis=1)
    torques = np.stack([arm.inverse_dynamics(*row) for row in zip(log.q, log.qd, qdd, strict=True)])
    torques[:, 1] = 0.0
    result = delan.fit(replace(log, qdd=qdd, tau=torques), "chain", settings=quick())
    assert result.verdict.free_error > 0.1
    assert "unactuated" in {doubt.kind for doubt in result.verdict.doubts}


def test_the_natural_torque_does_not_depend_on_units():
    log = driven(CART_POLE, 200, seed=0)
    natural = natural_torque(log.qd, log.tau)
    in_degrees = natural_torque(np.degrees(log.qd), log.tau / np.degrees(1))
    np.testing.assert_allclose(in_degrees, natural / np.degrees(1))
    scale = torque_scale(log.qd, log.tau)
    np.testing.assert_allclose(scale, [log.tau[:, 0].std(), natural[1]])
    np.testing.assert_allclose(torque_variance(log.qd, log.tau), scale**2)
    # Without any torque there is no motor whose power could be compared.
    assert not unactuated(np.zeros((5, 2))).any()


def test_joints_without_a_motor_are_not_in_the_mean():
    size = TorqueSize(np.array([4.0, 1.0]), np.array([5.0, 0.0]), np.array([False, True]))
    measured = np.zeros((10, 2))
    errors = Errors.of(np.tile([1.0, 0.5], (10, 1)), measured, size)
    assert errors.nmse == (0.25, 0.25)
    assert errors.nmse_mean == 0.25
    constant = Errors.of(np.tile([2.0, 0.0], (10, 1)), measured, size)
    assert (constant.nmse_mean, constant.free_nmse) == (1.0, 0.0)
