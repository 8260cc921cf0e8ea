"""Exported robots against the learned model, in MuJoCo and Pinocchio."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco as _mujoco
import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.simulators import examine, simulated
from delan import storage
from delan.cli.main import app
from delan.deploy.simulator import drives as law
from delan.deploy.simulator import load
from delan.deploy.simulator_files import drives_of, export_simulator
from delan.errors import ModelError
from delan.identification.physical_links import is_physical
from delan.identification.rigid_refit import rigid_refit
from delan.joints import Joints
from delan.models.friction import Friction
from delan.models.geometry import chain_of, from_rigid_body, to_rigid_body
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK, WAM7
from delan.robots.description import Arm
from tests.support.members import network

mujoco: Any = _mujoco


@pytest.fixture(autouse=True)
def _no_callback():
    """Other tests compile files, which MuJoCo does not do while a callback is set."""
    yield
    mujoco.set_mjcb_passive(None)


def two_link(friction: Friction | None = None) -> Model:
    return Model(from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf())), friction)


def bent(model: Model, size: float = 0.03) -> Model:
    """The model with frames that are no rotations."""
    turn = chain_of(model).turn
    noise = size * np.random.default_rng(1).normal(size=turn.shape)
    chain = jax.tree.map(lambda leaf: leaf, chain_of(model))
    object.__setattr__(chain, "turn", turn + jnp.asarray(noise))
    return model.with_mechanics(chain)


@pytest.mark.parametrize("arm", [TWO_LINK, pytest.param(WAM7, marks=pytest.mark.slow)])
def test_every_kind_of_friction_is_the_same_in_mujoco_and_the_links_are_in_pinocchio(arm):
    facts = examine(simulated(arm))
    assert facts["mujoco_rigid"] <= 1e-9
    assert facts["mujoco_accelerations"] <= 1e-9
    assert facts["pinocchio_urdf"] <= 1e-9
    assert facts["mujoco_with_friction"] <= 1e-6
    # The arm is rigid already: what a refit leaves is that of its weakest pull.
    assert facts["rigid_nmse"] < 1e-9


def test_a_bent_chain_becomes_a_rigid_arm_with_physical_links():
    model = bent(two_link())
    with pytest.raises(ModelError, match="rotation"):
        to_rigid_body(model)
    refit = rigid_refit(model)
    body = to_rigid_body(refit.model)
    assert refit.stretch > 0.01
    assert is_physical(body.parameters).all()
    assert max(refit.nmse) < 0.05


def test_a_light_joint_stops_by_friction_and_stays_at_rest(tmp_path):
    arm = Arm("one", TWO_LINK.links[1:], TWO_LINK.tool)
    joints = arm.joints
    friction = Friction.known(joints, {"coulomb": np.array([5.0])}, width=1e-3)
    chain = from_rigid_body(RigidBody.from_urdf(arm.urdf()))
    export_simulator(Model(chain, friction), tmp_path, "mjcf", "one")
    model = load.load(tmp_path)
    model.opt.gravity[:] = 0
    data = mujoco.MjData(model)
    data.qvel[:] = 1.0
    speeds = []
    for _ in range(2000):
        mujoco.mj_step(model, data)
        speeds.append(float(data.qvel[0]))
    assert min(speeds) > -1e-9  # never pushed back
    assert abs(speeds[-1]) < 1e-9


def test_the_implicit_step_is_the_forward_model_for_small_steps_and_equal_in_jax():
    model = simulated(WAM7)
    drives = drives_of(model)
    random = np.random.default_rng(3)
    q, qd, tau = random.uniform(-1, 1, (3, 7))
    memory = law.relaxed(drives, q)
    with jax.enable_x64(True):
        mass = np.asarray(model.mass_matrix(jnp.asarray(q)))
        still = jnp.zeros(7)
        bias = np.asarray(chain_of(model).inverse_dynamics(jnp.asarray(q), jnp.asarray(qd), still))
        wanted = model.forward_dynamics(*map(jnp.asarray, (q, qd, tau)), memory=memory.stretch)
        step = law.Step(mass, bias, qd, tau, 1e-7)
        found = np.linalg.solve(mass, tau - bias - law.implicit_friction(drives, step, memory))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
        step = law.Step(mass, bias, qd, tau, 1e-3)
        arrays = jax.tree.map(jnp.asarray, step)
        with jax.numpy_rank_promotion("allow"):
            again = jax.jit(law.jax_friction)(drives, arrays, jax.tree.map(jnp.asarray, memory))
    torque = law.implicit_friction(drives, step, memory)
    np.testing.assert_allclose(again, torque, rtol=1e-7, atol=1e-9)


def test_memory_is_kept_in_the_user_data_as_the_model_keeps_it(tmp_path):
    model = simulated(TWO_LINK)
    export_simulator(model, tmp_path, "mjcf", "wam")
    robot = load.load(tmp_path)
    robot.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_LIMIT)
    data = mujoco.MjData(robot)
    path = np.cumsum(np.random.default_rng(0).normal(0, 0.01, (30, 2)), axis=0)
    friction = jax.tree.map(np.asarray, model.friction)
    state = friction.init(path[0])
    for q in path:
        data.qpos[:] = q
        mujoco.mj_forward(robot, data)
        state, _ = friction.update(state, q, 0 * q)
    np.testing.assert_allclose(data.userdata[1 + 3 :], state.stops.ravel(), atol=1e-12)
    mujoco.mj_resetData(robot, data)
    assert not data.userdata.any()


def test_names_are_escaped_and_the_folder_runs_without_delan(tmp_path):
    names = ('a"/><body', "b --> &amp; '''")
    chain = chain_of(two_link())
    object.__setattr__(chain, "joints", Joints(names, chain.joints.kinds))
    path = tmp_path / "arm.delan"
    storage.save(Model(chain), path)
    out = tmp_path / "out"
    result = CliRunner().invoke(
        app, ["export", str(path), "--format", "mjcf", "-o", str(out), "--json"]
    )
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["joints"] == list(names)
    assert facts["rigid"]["log_nmse"] is None
    model = mujoco.MjModel.from_xml_path(str(out / facts["file"]))
    assert [model.joint(k).name for k in range(2)] == list(names)
    assert "delan" not in (out / "drives.py").read_text().split('"""', 2)[2]
    subprocess.run([sys.executable, "load.py"], cwd=out, check=True, capture_output=True)


def test_a_network_has_no_arm_and_a_log_is_for_simulators_only(tmp_path):
    with pytest.raises(ModelError, match="chain"):
        export_simulator(network(Joints.revolute(2)), tmp_path / "x", "mjcf", "x")
    assert not Path(tmp_path / "x").exists()
    path = tmp_path / "arm.delan"
    storage.save(two_link(), path)
    result = CliRunner().invoke(app, ["export", str(path), "--log", "nothing.npz"])
    assert result.exit_code != 0
