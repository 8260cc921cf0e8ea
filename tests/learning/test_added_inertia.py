"""Inertia that forward dynamics add where a log does not tell that of a joint."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import mujoco as _mujoco
import numpy as np
import pytest

import delan
from delan import storage
from delan.deploy.simulator_files import export_simulator
from delan.errors import ModelError, ModelFileError
from delan.learning.added_inertia import choose_added_inertia
from delan.learning.refit import REPLAYED
from delan.logs.preparation import PreparationSettings, prepare
from delan.models.geometry import chain_of, from_rigid_body
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.paper.motion_logs import cosine_motion
from delan.robots.arms import TWO_LINK
from delan.simulation.replay import Part
from tests.support.members import network
from tests.support.simulated_logs import recorded

mujoco: Any = _mujoco
ADDED = (0.0, 0.4)


@pytest.fixture(scope="module")
def plain() -> Model:
    return Model(from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf())))


@pytest.fixture(scope="module")
def heavy(plain) -> Model:
    return plain.with_added_inertia(ADDED)


def states(count: int = 5) -> list:
    return list(jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (3, count, 2))))


def test_forward_dynamics_alone_have_it(plain, heavy):
    q, qd, qdd = (column[0] for column in states())
    tau = plain.inverse_dynamics(q, qd, qdd)
    np.testing.assert_array_equal(heavy.inverse_dynamics(q, qd, qdd), tau)
    np.testing.assert_array_equal(heavy.mass_matrix(q), plain.mass_matrix(q))
    found = heavy.forward_dynamics(q, qd, tau)
    inertia = plain.mass_matrix(q)
    wanted = jnp.linalg.solve(inertia + jnp.diag(jnp.asarray(ADDED)), inertia @ qdd)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_as_rotors_it_is_in_all_dynamics(heavy):
    rotors = heavy.with_added_rotors()
    assert rotors.added_inertia is None
    q, qd, tau = (column[0] for column in states())
    qdd = heavy.forward_dynamics(q, qd, tau)
    np.testing.assert_allclose(rotors.forward_dynamics(q, qd, tau), qdd, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rotors.inverse_dynamics(q, qd, qdd), tau, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("added", [(1.0,), (0.0, -1.0), (0.0, float("nan"))])
def test_other_numbers_are_refused(plain, added):
    with pytest.raises(ModelError, match=r"added inertia is .* 2 finite numbers"):
        plain.with_added_inertia(added)


def test_a_file_keeps_it_and_a_damaged_one_is_refused(heavy, tmp_path):
    path = tmp_path / "arm.delan"
    delan.save(heavy, path)
    assert delan.load(path).added_inertia == ADDED
    with pytest.raises(ModelFileError, match="added_inertia holds -1"):
        storage.save(heavy, path, provenance={"added_inertia": [0.0, -1.0]})


def test_compiled_code_has_it(heavy):
    rows = np.stack(states(), axis=1)
    for model in (heavy, Model(network(TWO_LINK.joints), added_inertia=ADDED)):
        compiled = delan.compile(model, precision="double")
        with jax.enable_x64(True):
            for q, qd, tau in rows:
                wanted = model.forward_dynamics(*map(jnp.asarray, (q, qd, tau)))
                found = compiled.forward_dynamics(q, qd, tau)
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_an_exported_robot_has_it_in_its_rotors(heavy, tmp_path):
    export_simulator(heavy, tmp_path, "mjcf", "arm")
    facts = json.loads((tmp_path / "drives.json").read_text())
    assert facts["added_inertia"] == list(ADDED)
    robot = mujoco.MjModel.from_xml_path(str(tmp_path / "arm.xml"))
    rotors = np.asarray(chain_of(heavy).armature) + ADDED
    np.testing.assert_allclose(robot.dof_armature, rotors, atol=5e-3)
    assert "add an inertia that its log does not tell" in (tmp_path / "README.md").read_text()


def test_it_is_chosen_for_a_joint_whose_torque_is_mostly_noise_and_for_no_other():
    """The torque of the second joint is wrong by a slow sinusoid, as friction is."""
    light = RigidBody.from_urdf(TWO_LINK.urdf())
    links = light.parameters
    links[1] *= 1e-3
    light = light.with_parameters(links)
    log = recorded(TWO_LINK, noise=0.0)
    motions = [cosine_motion(TWO_LINK.limits, seed, 1.5, 0.01) for seed in (0, 1, 2)]
    rows = [light.rows(motion.q, motion.qd, motion.qdd).total for motion in motions]
    tau = np.concatenate(rows)
    model = Model(from_rigid_body(light))
    chosen = {}
    for size in (0.0, 0.05):
        wrong = tau.copy()
        wrong[:, 1] += size * np.sin(9 * log.t)
        object.__setattr__(log, "tau", wrong)
        motion = prepare(log, PreparationSettings(cutoff=10.0))
        half = np.arange(len(motion)) < len(motion) // 2
        parts = [Part(model, half), Part(model, ~half)]
        chosen[size] = choose_added_inertia(parts, motion, motion, REPLAYED)
    assert chosen[0.0].inertia is None
    added = chosen[0.05].inertia
    assert added is not None
    assert added[0] == 0
    assert added[1] > 10 * float(chain_of(model).mass_matrix(jnp.zeros(2))[1, 1])
    assert chosen[0.05].replay is not None
