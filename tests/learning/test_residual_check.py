"""A model that misses a law says so, one that only met noise does not; the odd robots against other
derivations.
"""

import json
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from delan.errors import ModelError
from delan.joints import Dataset, Trajectory
from delan.learning.model_fit import fit_model
from delan.learning.residual_check import Misfit, diagnose
from delan.learning.scores import predict
from delan.learning.study import FrictionChoice, Study
from delan.models.friction import Friction, FrictionSettings
from delan.models.friction_memory import remembered
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines
from tests.support.members import actuator, noisy
from tests.support.odd_robots import GRAVITY, ElasticArm, FiveBar, driven
from tests.support.oracles import torque_from_lagrangian
from tests.support.random_arms import random_arm, rigid, scattered, swung

TWO = ("revolute", "revolute")
BODIES, LIMITS = random_arm(TWO, seed=1)
ARM = rigid(BODIES)
TRUTH = from_rigid_body(ARM)


def with_friction(dataset: Dataset, coulomb: float = 0.1) -> Dataset:
    """The dataset with friction of some share of each joint's torque, Coulomb and viscous."""
    size = dataset.tau.std(axis=0)
    rubbing = RigidBody.from_bodies(
        BODIES,
        gravity=GRAVITY,
        friction=Friction.known(
            dataset.joints, {"coulomb": coulomb * size, "viscous": coulomb / 2 * size}
        ),
    )
    return replace(dataset, tau=rubbing.rows(dataset.q, dataset.qd, dataset.qdd).total)


def diagnosed(dataset: Dataset, friction: FrictionChoice = None) -> Misfit:
    """Fit a chain and look at what it leaves over on the trajectories that were held out."""
    result = fit_model(Study.of(dataset, friction=friction), "chain")
    return diagnose(result.model, dataset.select(result.trajectories))


# The truth of the odd robots


def states(robot: FiveBar, count: int) -> Trajectory:
    rng = np.random.default_rng(0)
    q = rng.uniform(robot.limits.lower, robot.limits.upper, (count, 2))
    qd, qdd = rng.normal(0, [[[1.0]], [[3.0]]], (2, count, 2))
    return Trajectory(t=np.arange(count) * 1.0, q=q, qd=qd, qdd=qdd, label="states")


def test_the_five_bar_obeys_its_lagrangian():
    """Against d/dt ∂L/∂q̇ − ∂L/∂q, where L is the energy of the arms whose angles close the loop."""
    robot = FiveBar()
    arms = from_rigid_body(RigidBody.from_bodies(robot.bodies, gravity=GRAVITY))

    def lagrangian(q, qd):
        energy = arms.energy(*jax.jvp(robot.tree, (q,), (qd,)))
        return energy.kinetic - energy.potential

    motion = states(robot, 5)
    oracle = jax.jit(lambda *row: torque_from_lagrangian(lagrangian, *row))
    expected = [
        oracle(*map(jnp.asarray, row)) for row in zip(motion.q, motion.qd, motion.qdd, strict=True)
    ]
    np.testing.assert_allclose(robot.torques(motion), expected, rtol=1e-9, atol=1e-9)


def test_the_five_bar_moves_as_in_mujoco():
    """Against accelerations under its torques, the loop closed by a constraint that is stiff and
    not quite rigid.
    """
    robot = FiveBar()
    frames = []
    for index, body in enumerate(robot.bodies):
        along, sizes = f"{body.centre[0]} 0 0", " ".join(map(str, np.diag(body.inertia)))
        frames.append(
            f'<body pos="{body.position[0]} 0 0"><joint axis="0 -1 0"/><site name="end{index}" '
            f'pos="{2 * body.centre[0]} 0 0"/>'
            f'<inertial pos="{along}" mass="{body.mass}" diaginertia="{sizes}"/>'
        )
    xml = (
        f"<mujoco><worldbody>{frames[0]}{frames[1]}</body></body>{frames[2]}{frames[3]}</body></body></worldbody>"
        '<equality><connect site1="end1" site2="end3" solimp="0.99999 0.99999 0.001 0.5 2"/>'
        "</equality></mujoco>"
    )
    model = mujoco.MjModel.from_xml_string(xml)  # pyright: ignore[reportAttributeAccessIssue]
    data = mujoco.MjData(model)  # pyright: ignore[reportAttributeAccessIssue]
    motion = states(robot, 5)
    for q, qd, qdd, tau in zip(motion.q, motion.qd, motion.qdd, robot.torques(motion), strict=True):
        data.qpos, data.qvel = (
            np.asarray(item) for item in jax.jvp(robot.tree, (jnp.asarray(q),), (jnp.asarray(qd),))
        )
        data.qfrc_applied = [tau[0], 0, tau[1], 0]
        mujoco.mj_forward(model, data)  # pyright: ignore[reportAttributeAccessIssue]
        np.testing.assert_allclose(data.qacc[[0, 2]], qdd, atol=5e-3)


def test_springs_keep_the_books_of_energy():
    """What the motors put in is stored in motors, springs and links, or lost in the damping."""
    robot = ElasticArm.resonant(ARM, LIMITS, 4.0)
    motion = cosines(LIMITS, key=jax.random.key(0), duration=3.0).sample(1e-3)
    q, qd = robot.follow(motion)
    links = [ARM.energy(*row).total for row in zip(q, qd, strict=True)]
    stored = (
        np.sum(robot.inertia * motion.qd**2 + robot.stiffness * (motion.q - q) ** 2, axis=1) / 2
        + links
    )
    power = np.sum(
        robot.torques(motion) * motion.qd - robot.damping * (motion.qd - qd) ** 2, axis=1
    )
    work = np.concatenate([[0.0], np.cumsum(power[1:] + power[:-1]) / 2 * 1e-3])
    assert np.ptp(stored) > 1
    np.testing.assert_allclose(stored - stored[0], work, atol=1e-4)


def test_springs_become_a_rigid_arm_with_the_square_of_their_frequency():
    motion = cosines(LIMITS, key=jax.random.key(0), duration=3.0).sample(0.02)
    errors = []
    for frequency in (15.0, 30.0):
        robot = ElasticArm.resonant(ARM, LIMITS, frequency, damping=0.5)
        stiff = ARM.rows(motion.q, motion.qd, motion.qdd).total + robot.inertia * motion.qdd
        errors.append(np.sqrt(np.mean((robot.torques(motion) - stiff) ** 2)) / stiff.std())
    assert errors[1] < 0.02
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.3)


# Chains fitted to robots that they cannot be


@pytest.mark.slow
def test_a_closed_loop_is_noticed():
    found = diagnosed(driven(FiveBar(), range(4), samples=400))
    assert found.suspects == ("joint0", "joint1")
    assert min(found.share) > 0.9
    assert "at joint0" in found.sentence()
    assert "closed loop" in found.sentence()


@pytest.mark.slow
def test_springs_are_noticed():
    found = diagnosed(driven(ElasticArm.resonant(ARM, LIMITS, 4.0), range(3)))
    assert found.suspects == ("joint0", "joint1")
    assert min(found.share) > 0.8
    assert "elastic joints" in found.sentence()


def test_missing_friction_is_noticed_and_named():
    found = diagnosed(with_friction(swung(ARM, LIMITS, range(4), samples=400)))
    assert found.suspects == ("joint0", "joint1")
    assert min(found.friction) > 0.7
    assert "as friction does: let friction be 'auto' if it was not" in found.sentence()


# Chains fitted to robots that they can be


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.2])
def test_a_rigid_arm_leaves_nothing_but_noise(share):
    found = diagnosed(noisy(swung(ARM, LIMITS, range(4), samples=400), share))
    assert not found.doubtful
    assert max(found.nmse) == pytest.approx(share**2, rel=0.5, abs=1e-8)
    assert ("explained" if share < 0.01 else "noise") in found.sentence()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_friction_of_the_right_kind_leaves_nothing_but_noise(share):
    dataset = noisy(with_friction(swung(ARM, LIMITS, range(4), samples=400)), share)
    found = diagnosed(dataset, FrictionSettings(("viscous", "coulomb", "offset")))
    assert not found.doubtful
    assert max(found.nmse) < 2 * share**2 + 1e-6


# The true model under noise, and under what is no noise


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("rows", [20, 50, 200, 1002])
def test_white_noise_has_no_structure(share, rows):
    clean = swung(ARM, LIMITS, [0, 1], samples=rows)
    alone = replace(clean, trajectory=np.arange(rows))
    for seed in range(10):
        for dataset in (clean, alone):
            assert not diagnose(TRUTH, noisy(dataset, share, seed)).doubtful


def test_noise_that_a_filter_smoothed_has_no_structure():
    """A torque sensor with a filter of 50 Hz, logged at 1 kHz: its errors repeat over some ten
    rows.
    """
    motion = cosines(LIMITS, key=jax.random.key(0), duration=3.0).sample(1e-3)
    dataset = Dataset(
        t=motion.t,
        q=motion.q,
        qd=motion.qd,
        qdd=motion.qdd,
        tau=ARM.rows(motion.q, motion.qd, motion.qdd).total,
        trajectory=np.zeros(len(motion.t), dtype=int),
        joints=ARM.joints,
    )
    filtered = butter(2, 50.0, fs=1e3, output="sos")
    for seed in range(3):
        noise = sosfiltfilt(filtered, noisy(dataset, 0.3, seed).tau - dataset.tau, axis=0)
        found = diagnose(TRUTH, replace(dataset, tau=dataset.tau + noise))
        assert max(found.nmse) > 3e-3
        assert not found.doubtful


def test_without_the_order_of_time_the_motion_tells():
    clean = scattered(ARM, LIMITS, 200, seed=0)
    assert not diagnose(TRUTH, noisy(clean, 0.05)).doubtful
    found = diagnose(TRUTH, noisy(with_friction(clean), 0.02))
    assert found.suspects == ("joint0", "joint1")
    heavier = replace(BODIES[1], mass=1.2 * BODIES[1].mass)
    wrong = from_rigid_body(rigid([BODIES[0], heavier]))
    assert diagnose(wrong, noisy(clean, 0.02)).doubtful


def test_a_constant_error_is_no_noise():
    dataset = swung(ARM, LIMITS, [0], samples=100)
    lifted = replace(
        dataset, tau=dataset.tau + 0.1 * dataset.tau.std(axis=0) * np.array([0.0, 1.0])
    )
    found = diagnose(TRUTH, noisy(lifted, 0.02))
    assert found.suspects == ("joint1",)
    assert found.structured[1] == pytest.approx(0.01, rel=0.3)


def test_the_rate_of_recording_does_not_matter():
    """Friction takes the same share of the torque with 100, 250 or 1000 rows in the same time."""
    found = [
        diagnose(TRUTH, noisy(with_friction(swung(ARM, LIMITS, [0, 1], samples=rows)), 0.03))
        for rows in (100, 250, 1000)
    ]
    for item in found:
        assert item.suspects == ("joint0", "joint1")
        np.testing.assert_allclose(item.structured, found[-1].structured, rtol=0.3)


def test_too_few_rows_tell_nothing():
    found = diagnose(TRUTH, with_friction(swung(ARM, LIMITS, [0], samples=15)))
    assert not found.doubtful
    assert "too short" in found.sentence()
    item = diagnose(TRUTH, swung(ARM, LIMITS, [0], samples=1))
    assert not item.doubtful
    assert np.isnan(item.nmse).all()


def test_what_friction_remembers_is_heard():
    head = jax.tree.map(jnp.asarray, actuator(ARM.joints, "stops", "viscous"))
    model = Model(TRUTH, head)
    dataset = swung(ARM, LIMITS, [0, 1], samples=200)
    columns = (jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd))
    tau = predict(model, "inverse_dynamics", *columns, memory=remembered(head, dataset))
    assert max(diagnose(model, replace(dataset, tau=tau)).nmse) < 1e-20
    assert diagnose(TRUTH, replace(dataset, tau=tau)).doubtful


def test_known_and_learned_models_are_judged_alike():
    dataset = noisy(with_friction(swung(ARM, LIMITS, [0], samples=100)), 0.05)
    known, learned = diagnose(ARM, dataset), diagnose(TRUTH, dataset)
    np.testing.assert_allclose(known.share, learned.share, rtol=1e-6)
    assert known == diagnose(ARM, dataset)


def test_a_motionless_joint_is_not_accused():
    dataset = swung(ARM, LIMITS, [0], samples=50)
    still = replace(dataset, qd=0 * dataset.qd, qdd=0 * dataset.qdd, tau=np.ones_like(dataset.tau))
    found = diagnose(TRUTH, still)
    assert not found.doubtful
    assert json.loads(json.dumps(found.as_dict()))["nmse"] == [None, None]
    assert found.as_dict()["doubtful"] is False


def test_a_model_without_finite_torques_is_refused():
    broken = eqx.tree_at(lambda item: item.gravity, TRUTH, TRUTH.gravity * np.nan)
    with pytest.raises(
        ModelError, match="no finite torque for the motion of random arm; fit it again"
    ):
        diagnose(broken, swung(ARM, LIMITS, [0], samples=50))
