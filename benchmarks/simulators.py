"""Exported robots in MuJoCo and Pinocchio against the learned model, and what rigid frames cost.

    python -m benchmarks.simulators [MODEL.delan ...] [--logs LOG ...]

Without model files, a simulated WAM with friction of every kind. Errors are the largest of a torque
over the spread of its joint; with logs, one for each model, the nMSE on them is told.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

from benchmarks.results import write_results
from delan import storage
from delan.cli.log_options import read_for_model
from delan.deploy.simulator import load
from delan.deploy.simulator_files import export_simulator, recorded_limits, robot_text
from delan.identification.rigid_refit import states_of
from delan.logs.options import LogOptions
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import WAM7
from delan.robots.description import Arm
from delan.solvers.linearised import drive_torques, rigid_torques
from delan.solvers.loss import Samples

mj: Any = mujoco


def simulated(arm: Arm) -> Model:
    """Return an arm of the package with friction of every kind."""
    body = RigidBody.from_urdf(arm.urdf())
    settings = FrictionSettings(
        ("armature", "viscous", "asymmetric", "stribeck", "offset", "load", "stops"),
        pairs=(MotorPair(arm.joints.dof - 2, arm.joints.dof - 1, -1.0),),
    )
    shape = Friction(body.joints, settings).weights.value.shape
    sizes = np.random.default_rng(0).uniform(0.02, 0.2, shape)
    return Model(from_rigid_body(body), Friction.of(body.joints, settings, sizes))


def parity(model: Model, arm: Model, folder: Path, urdf_text: str) -> dict[str, float]:
    """Return errors of torque and acceleration over the spread of the learned ones."""
    motion = states_of(model, seed=3)
    rows = motion.rows(np.arange(100))
    memory = None
    if arm.friction is not None and arm.promises.memory:
        count = (len(arm.friction.settings.stops), len(arm.friction.transmission))
        memory = np.zeros((len(rows.q), *count))
    rows = Samples(rows.q, rows.qd, rows.qdd, rows.tau, memory)
    rotors = 0.0 if arm.friction is None else rows.qdd @ np.asarray(arm.friction.armature)
    rigid = rigid_torques(Model(arm.mechanics), rows) + rotors
    full = drive_torques(arm, rows)
    mj.set_mjcb_passive(None)
    plain = mj.MjModel.from_xml_path(str(folder / "robot.xml"))
    for name in ("dof_damping", "dof_frictionloss", "tendon_damping", "tendon_frictionloss"):
        getattr(plain, name)[:] = 0
    # The ranges of the data are stops, which are no part of the comparison.
    learned = load.load(folder)
    for each in (plain, learned):
        each.opt.disableflags |= int(mj.mjtDisableBit.mjDSBL_LIMIT)
    found = []
    found_full = []
    accelerations = []
    for q, qd, qdd, tau in zip(rows.q, rows.qd, rows.qdd, rigid, strict=True):
        data = _at(plain, q, qd, qdd)
        mj.mj_inverse(plain, data)
        found.append(data.qfrc_inverse.copy())
        found_full.append(load.inverse(learned, _at(learned, q, qd, qdd)))
        data = _at(plain, q, qd, 0 * qdd)
        data.qfrc_applied[:] = tau
        mj.mj_forward(plain, data)
        accelerations.append(data.qacc.copy())
    urdf = RigidBody.from_urdf(urdf_text)
    # A URDF has no rotors.
    links = rigid - rotors - rows.qdd * np.asarray(arm.chain.armature)  # pyright: ignore
    columns = [urdf.joints.names.index(name) for name in arm.joints.names]
    motions = (np.asarray(part)[:, columns] for part in (rows.q, rows.qd, rows.qdd))
    read = urdf.rows(*motions)
    pinocchio = (read.inertial + read.coriolis + read.gravity)[:, columns]
    gravity = float(np.linalg.norm(arm.chain.gravity)) / 9.81  # pyright: ignore
    pinocchio = pinocchio + (gravity - 1) * read.gravity[:, columns]
    return {
        "mujoco_rigid": _error(found, rigid),
        "mujoco_with_friction": _error(found_full, full),
        "mujoco_accelerations": _error(accelerations, rows.qdd),
        "pinocchio_urdf": _error(pinocchio, links),
    }


def _at(model: Any, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> Any:
    data = mj.MjData(model)
    data.qpos[:] = q
    data.qvel[:] = qd
    data.qacc[:] = qdd
    return data


def _error(found: Any, wanted: Any) -> float:
    return float((np.abs(np.asarray(found) - wanted) / np.std(wanted, axis=0)).max())


def examine(model: Model, log: Any = None) -> dict[str, Any]:
    """Export a model in both formats and compare them with it."""
    with tempfile.TemporaryDirectory() as temporary, jax.enable_x64(True):
        folder = Path(temporary)
        refit = export_simulator(model, folder, "mjcf", "robot", log=log).refit
        # The same text as that of an export, without another refit.
        urdf = robot_text(refit.model, "urdf", "robot", recorded_limits(model, log))
        facts = parity(model, refit.model, folder, urdf)
    facts |= {"stretch": refit.stretch, "rigid_nmse": float(np.mean(refit.nmse))}
    if refit.log_nmse is not None:
        facts["log_nmse_rigid"] = float(np.mean(refit.log_nmse.rigid))
        facts["log_nmse_chain"] = float(np.mean(refit.log_nmse.chain))
    return {name: float(f"{value:.3g}") for name, value in facts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--logs", nargs="*", type=Path, default=[])
    asked = parser.parse_args()
    results = {"simulated WAM": examine(simulated(WAM7))}
    print(results, flush=True)
    write_results("simulators", results)
    for index, path in enumerate(asked.models):
        with jax.enable_x64(True):
            stored = storage.read_model(path)
        log = None
        if asked.logs:
            _, log = read_for_model(path, stored, [asked.logs[index]], LogOptions())
        results[path.stem] = examine(stored.model, log)
        print(path.stem, results[path.stem], flush=True)
        write_results("simulators", results)


if __name__ == "__main__":
    main()
