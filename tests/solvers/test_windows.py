"""The equation of motion in its weak form: an identity for every model, and a way to learn without
accelerations.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.errors import DataError, SettingsError
from delan.identification.identify import IdentifySettings, identify
from delan.joints import Dataset, Joints, Recording
from delan.learning.model_fit import fit_model
from delan.learning.scores import evaluate_windows
from delan.learning.study import Study
from delan.logs.preparation import PreparationSettings, prepare
from delan.models.friction import FrictionSettings
from delan.models.model import as_model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from delan.solvers.loss import SECONDS, Windows, mean_torque
from delan.solvers.training import TrainingSettings
from tests.support.members import DYNAMICS, actuated, friction_in

mean_torques = eqx.filter_jit(jax.vmap(mean_torque, in_axes=(None, 0)))


def swept(joints: Joints, seconds: float = 1.0, rate: float = 1000.0) -> tuple[np.ndarray, ...]:
    """A smooth motion and its exact derivatives."""
    t = np.arange(round(seconds * rate)) / rate
    pace = 2 * np.pi * np.linspace(0.3, 0.8, joints.dof)
    q, qd, qdd = (
        0.4 * pace**n * np.sin(np.outer(t, pace) + np.arange(joints.dof) + n * np.pi / 2)
        for n in range(3)
    )
    return t, q, qd, qdd


def moved(model, *, seconds: float = 1.0, rate: float = 1000.0) -> Dataset:
    """Such a motion with the torques that the model says it takes."""
    t, q, qd, qdd = swept(model.joints, seconds, rate)
    tau = np.asarray(
        jax.jit(jax.vmap(model.inverse_dynamics))(jnp.asarray(q), jnp.asarray(qd), jnp.asarray(qdd))
    )
    return Dataset(
        t=t,
        q=q,
        qd=qd,
        qdd=qdd,
        tau=tau,
        trajectory=np.zeros(len(t), dtype=int),
        joints=model.joints,
    )


def largest_error(tau: Any, windows: Windows) -> float:
    """The largest error of mean torques, relative to the largest torque of each joint."""
    return float(np.max(np.abs(tau - windows.tau) / np.abs(windows.tau).max(axis=0)))


@pytest.mark.parametrize("name", ["chain, 7 joints", "network, mixed joints"])
def test_windows_of_a_models_own_torque_hold_its_mean(name):
    model = as_model(DYNAMICS[name]())
    windows = Windows.of(moved(model))
    # The rest is the error of sums over points, each the mean of twelve rows.
    assert largest_error(mean_torques(model, windows), windows) < 2e-3


def test_where_every_row_is_a_point_the_identity_holds_to_the_fourth_power_of_the_step():
    model = as_model(DYNAMICS["chain, 7 joints"]())
    windows = Windows.of(moved(model, rate=80.0))
    assert windows.q.shape[1] == round(SECONDS * 80)
    assert largest_error(mean_torques(model, windows), windows) < 5e-4


def test_windows_with_half_the_points_hold_the_mean_nearly_as_well():
    model = as_model(DYNAMICS["chain, 7 joints"]())
    windows = Windows.of(moved(model))
    coarse = windows.coarser()
    assert coarse.q.shape[1] == windows.q.shape[1] // 2
    # Four times the error, since steps are twice as long.
    assert largest_error(mean_torques(model, coarse), windows) < 8e-3
    odd = eqx.tree_at(lambda windows: windows.q, windows, windows.q[:, 1:])
    assert odd.coarser() is odd


def test_friction_with_memory_is_in_the_mean():
    model = actuated(Joints.revolute(2), "viscous", "coulomb", "stops", "armature")
    dataset = moved(model)
    memory = np.asarray(friction_in(model).remember(dataset.q))
    rows = (jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd, memory))
    tau = jax.jit(jax.vmap(lambda q, qd, qdd, m: model.inverse_dynamics(q, qd, qdd, memory=m)))(
        *rows
    )
    windows = Windows.of(replace(dataset, tau=np.asarray(tau)), model.friction_settings)
    assert largest_error(mean_torques(model, windows), windows) < 5e-3


def test_noise_in_positions_hurts_windows_less_than_differences():
    model = as_model(DYNAMICS["network, 2 joints"]())
    clean = moved(model, seconds=3.0)
    rng = np.random.default_rng(0)
    noisy = Recording(
        t=clean.t,
        q=clean.q + 1e-5 * rng.standard_normal(clean.q.shape),
        tau=clean.tau,
        trajectory=clean.trajectory,
        joints=clean.joints,
    )
    windows = evaluate_windows(model, prepare(noisy))
    plain = prepare(noisy)
    tau = jax.jit(jax.vmap(model.inverse_dynamics))(
        *map(jnp.asarray, (plain.q, plain.qd, plain.qdd))
    )
    differences = np.mean((np.asarray(tau) - plain.tau) ** 2, axis=0) / plain.tau.var(axis=0)
    assert windows.torque.nmse_mean < 1e-3
    assert windows.torque.nmse_mean < 1e-2 * differences.mean()


def test_windows_keep_to_rows_that_count_and_cross_no_gap():
    model = as_model(DYNAMICS["network, 2 joints"]())
    dataset = moved(model, seconds=2.0)
    counted = dataset.t < 1.0
    part = Windows.of(replace(dataset, counted=counted))
    assert len(part) == len(range(0, 1000 - 192 + 1, 50))
    two = replace(dataset, trajectory=(dataset.t >= 1.1).astype(int))
    assert len(Windows.of(two)) < len(Windows.of(dataset))
    # A lost row is a gap, and so is a time that goes back.
    lost = dataset.rows(np.arange(len(dataset)) != 1000)
    assert len(Windows.of(lost)) == 2 * len(range(0, 1000 - 192, 50))
    restarted = replace(dataset, t=dataset.t - 1.0 * (dataset.t >= 1.0))
    assert len(Windows.of(restarted)) == 2 * len(part)
    with pytest.raises(DataError, match=r"no motion of 0.2 s"):
        Windows.of(replace(dataset, counted=dataset.t < 0.1))


def test_load_friction_is_refused():
    dataset = moved(DYNAMICS["network, 2 joints"]())
    with pytest.raises(SettingsError, match="leave load out"):
        Windows.of(dataset, FrictionSettings(("load",)))


def test_the_settings_of_an_unfiltered_preparation():
    t, q, qd, _ = swept(Joints.revolute(2), seconds=3.0)
    recording = Recording(
        t=t, q=q, qd=qd, tau=q, trajectory=np.zeros(len(t), dtype=int), joints=Joints.revolute(2)
    )
    raw = prepare(recording, PreparationSettings(cutoff=5.0, smooth=False, every=1))
    assert raw.preparation is not None
    assert raw.preparation.cutoff is None
    np.testing.assert_allclose(raw.q, q, atol=1e-12)


def swinging(seconds: float = 6.0, rate: float = 500.0) -> Dataset:
    """The two-link arm on an informative motion; its accelerations are NaN."""
    arm = RigidBody.from_urdf(TWO_LINK.urdf())
    t, q, qd, qdd = swept(arm.joints, seconds, rate)
    pace = np.array([7.0, 11.0])
    more = [0.2 * pace ** (n - 1) * np.sin(np.outer(t, pace) + n * np.pi / 2) for n in range(3)]
    q, qd, qdd = np.array([q, qd, qdd]) + more
    tau = np.stack([arm.inverse_dynamics(*row) for row in zip(q, qd, qdd, strict=True)])
    return Dataset(
        t=t,
        q=q,
        qd=qd,
        qdd=np.full_like(q, np.nan),
        tau=tau,
        trajectory=np.zeros(len(t), dtype=int),
        joints=arm.joints,
    )


def test_identification_on_windows_finds_the_arm_and_never_looks_at_accelerations():
    motion = swinging()
    settings = IdentifySettings(friction=(), armature=False, windows=True)
    model = identify(motion, TWO_LINK.urdf(), settings).model
    true = RigidBody.from_urdf(TWO_LINK.urdf())
    for q, qd, qdd in np.random.default_rng(0).uniform(-2, 2, (20, 3, 2)):
        wanted = true.inverse_dynamics(q, qd, qdd)
        np.testing.assert_allclose(model.inverse_dynamics(q, qd, qdd), wanted, rtol=0.01, atol=0.02)


@pytest.mark.slow
def test_a_chain_learns_without_accelerations_and_chooses_its_friction_so():
    motion = swinging()
    slow = np.abs(motion.qd) < 0.02
    tau = motion.tau + 0.3 * np.sign(motion.qd) * ~slow + 0.1 * motion.qd
    settings = TrainingSettings(accelerations="none", epochs=40)
    result = fit_model(Study.of(replace(motion, tau=tau), settings, friction="auto"), "chain")
    assert result.model.mechanics is not None
    assert result.validation.torque.nmse_mean < 2e-3
    true = RigidBody.from_urdf(TWO_LINK.urdf())
    q, qdd = np.random.default_rng(1).uniform(-1, 1, (2, 2))
    wanted = true.inverse_dynamics(q, np.zeros(2), qdd)
    tau = result.model.mechanics.inverse_dynamics(jnp.asarray(q), jnp.zeros(2), jnp.asarray(qdd))
    np.testing.assert_allclose(tau, wanted, rtol=0.05, atol=0.1)


def test_a_feed_forward_network_cannot_do_without_accelerations():
    with pytest.raises(SettingsError, match="no Lagrangian"):
        fit_model(
            Study.of(swinging(), TrainingSettings(accelerations="none", epochs=1)), "feedforward"
        )
