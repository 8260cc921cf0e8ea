"""Scores against numbers worked out by hand, and against a model that is the truth itself."""

import json
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.errors import ModelError
from delan.joints import Dataset, Energy, Joints, TorqueComponents
from delan.learning.scores import Errors, TorqueSize, evaluate
from delan.models.dynamics import Promises
from delan.models.networks import FeedForwardNetwork
from delan.models.rigid_body import RigidBody
from delan.paper.motion_logs import letter_log
from delan.robots.arms import TWO_LINK
from tests.support.members import network, pendulum


class Pendulum(eqx.Module):
    """The truth behind `pendulum`, with an error in gravity of so many N m."""

    error: float = 0.0
    joints: Joints = eqx.field(static=True, default=Joints.revolute(1))
    promises: Promises = eqx.field(static=True, default=Promises(mechanics=True, energy=True))

    def inverse_dynamics(self, q, qd, qdd):
        return self.components(q, qd, qdd).total

    def components(self, q, qd, qdd):
        return TorqueComponents(0.5 * qdd, 0 * qd, 9.81 * jnp.cos(q) + self.error, 0 * qd)

    def forward_dynamics(self, q, qd, tau):
        return 2 * (tau - 9.81 * jnp.cos(q) - self.error)

    def mass_matrix(self, q):
        return 0.5 * jnp.ones((1, 1))

    def energy(self, q, qd):
        return Energy(0.25 * qd[0] ** 2, 9.81 * jnp.sin(q[0]) + self.error * q[0])

    def power(self, q, qd, qdd):
        return qd @ self.inverse_dynamics(q, qd, qdd)


def test_the_truth_scores_full_marks():
    scores = evaluate(Pendulum(), pendulum())
    assert scores.torque.mse_sum < 1e-25
    assert scores.torque.r2 == pytest.approx((1.0,))
    assert all(errors.nmse_mean < 1e-25 for errors in scores.components.values())
    assert scores.acceleration is not None
    assert scores.acceleration.nmse_mean < 1e-25
    assert scores.rollouts is not None
    assert scores.rollouts.valid_share == 1
    assert scores.rollouts.energy_drift is not None
    assert max(scores.rollouts.energy_drift) < 1e-6


def test_a_known_error_scores_what_it_should():
    data = pendulum()
    scores = evaluate(Pendulum(error=0.5), data)
    assert scores.torque.mse == pytest.approx((0.25,))
    assert scores.torque.rmse == pytest.approx((0.5,))
    assert scores.torque.nmse_mean == pytest.approx(0.25 / data.tau.var())
    assert scores.torque.r2[0] == pytest.approx(1 - 0.25 / data.tau.var())
    assert scores.components["gravity"].mse_sum == pytest.approx(0.25)
    assert scores.components["inertial"].mse_sum < 1e-25
    assert scores.acceleration is not None
    assert scores.acceleration.mse_sum == pytest.approx(1.0)  # 0.5 N m on 0.5 kg m²
    assert scores.rollouts is not None
    assert 0 < scores.rollouts.valid_share < 1
    assert all(
        v <= d
        for v, d in zip(
            scores.rollouts.valid_seconds, scores.rollouts.duration_seconds, strict=True
        )
    )


def size_of(torque: np.ndarray) -> TorqueSize:
    return TorqueSize.spread_of(torque)


def test_errors_are_per_joint_and_summed():
    true = np.array([[0.0, 10], [2, 30]])
    errors = Errors.of(true + np.array([1, 2]), true, size_of(true))
    assert errors.mse == (1.0, 4.0)
    assert errors.mse_sum == 5.0
    assert errors.nmse == (1.0, 0.04)
    assert errors.nmse_mean == 0.52
    assert errors.share == (0.5, 0.1)
    assert errors.r2 == pytest.approx((0.0, 0.96))


def test_a_joint_with_constant_torque_has_no_normalised_error():
    true = np.array([[1.0, 10], [1, 30]])
    errors = Errors.of(true + 1, true, size_of(true))
    assert np.isnan(errors.nmse[0])
    assert errors.nmse_mean == errors.nmse[1] == 0.01
    constant = Errors.of(true[:, :1] + 1, true[:, :1], size_of(true[:, :1]))
    assert np.isnan(constant.nmse_mean)


def test_scores_become_json_without_nan():
    flat = replace(pendulum(), tau=np.ones((300, 1)))
    shown = json.loads(json.dumps(evaluate(Pendulum(), flat).as_dict(), allow_nan=False))
    assert shown["torque"]["nmse"] == [None]
    assert shown["torque"]["nmse_mean"] is None
    assert shown["gravity"]["mse_sum"] < 1e-20
    assert shown["samples"] == 300
    assert "valid_share" in shown["rollouts"]


def test_a_model_that_only_knows_torques_is_scored_on_torques_only():
    scores = evaluate(FeedForwardNetwork(Joints.revolute(1), key=jax.random.key(0)), pendulum())
    assert (scores.components, scores.acceleration, scores.rollouts) == ({}, None, None)


def test_without_a_potential_there_is_no_energy_drift():
    scores = evaluate(network(Joints.revolute(1), gravity="vector"), pendulum())
    assert scores.rollouts is not None
    assert scores.rollouts.energy_drift is None


def test_single_moments_have_no_motion_to_predict():
    apart = replace(pendulum(), trajectory=np.arange(300))
    scores = evaluate(Pendulum(), apart)
    assert scores.rollouts is None
    assert scores.torque.nmse_mean < 1e-20


def test_without_truth_there_are_no_component_scores():
    assert evaluate(Pendulum(), replace(pendulum(), truth={})).components == {}


def two_joints(kinds) -> Dataset:
    data = pendulum()
    double = {name: np.repeat(getattr(data, name), 2, axis=1) for name in ("q", "qd", "qdd", "tau")}
    return replace(data, **double, truth={}, joints=Joints.of(kinds))


@pytest.mark.usefixtures("as_shipped")
def test_a_path_is_no_model():
    given: Any = "arm.delan"
    with pytest.raises(
        ModelError, match=r"expected a model, got a str; read one from its file with delan\.load"
    ):
        evaluate(given, pendulum())


def test_other_joints_are_refused():
    with pytest.raises(
        ModelError,
        match="the model has 1 joints and pendulum has 2; use the model's own robot",
    ):
        evaluate(Pendulum(), two_joints(("revolute", "revolute")))
    with pytest.raises(
        ModelError, match="the model has a revolute joint 1 and pendulum has a prismatic one"
    ):
        evaluate(network(Joints.revolute(2)), two_joints(("revolute", "prismatic")))


def test_a_known_model_is_scored_like_a_learned_one():
    """The arm behind the demo's letters, computed outside of JAX, explains its own log."""
    scores = evaluate(RigidBody.from_urdf(TWO_LINK.urdf()), letter_log("ab"))
    assert scores.torque.nmse_mean < 1e-25
    assert scores.components["coriolis"].nmse_mean < 1e-25
    assert scores.rollouts is not None
    assert scores.rollouts.valid_share > 0.5
    assert scores.rollouts.energy_drift is not None
    assert max(scores.rollouts.energy_drift) < 1e-4
