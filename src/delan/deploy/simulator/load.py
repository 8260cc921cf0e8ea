"""The exported robot in MuJoCo, with all of its learned friction.

    import load
    import mujoco

    model = load.load()              # sets `mjcb_passive`, which other models do not notice
    data = mujoco.MjData(model)
    data.ctrl[:] = torque            # of the joints [N m or N]
    mujoco.mj_step(model, data)

`python load.py` compares this machine's MuJoCo with torques of the learned model. What friction
remembers is kept in `data.userdata`, so that it is reset and copied with the rest of a state.

MuJoCo compiles no file while a callback in Python is set: compile other models before `load`, or
call `mujoco.set_mjcb_passive(None)` first and `mujoco.set_mjcb_passive(load.passive)` afterwards.
"""

import json
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import mujoco as _mujoco
import numpy as np

try:
    from . import drives as law  # the folder as a package
except ImportError:
    import drives as law  # the folder on the path  # pyright: ignore[reportMissingImports]

mujoco: Any = _mujoco
HERE = Path(__file__).resolve().parent
# How far torques may be from those of the learned model, relative to the largest of a joint.
TOLERANCE = 1e-6

_drives: "WeakKeyDictionary[Any, law.Drives]" = WeakKeyDictionary()
_inverse = False


def load(folder: str | Path = HERE) -> Any:
    """Return the `mujoco.MjModel`; its damping and friction are replaced by the learned ones."""
    folder = Path(folder)
    facts = json.loads((folder / "drives.json").read_text(encoding="utf-8"))
    # MuJoCo compiles no file while a callback in Python is set.
    mujoco.set_mjcb_passive(None)
    model = mujoco.MjModel.from_xml_path(str(folder / facts["file"]))
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        raise ValueError("friction with memory needs the integrator Euler or implicitfast, not RK4")
    for name in ("dof_damping", "dof_frictionloss", "tendon_damping", "tendon_frictionloss"):
        getattr(model, name)[:] = 0
    _drives[model] = law.read_drives(folder / "drives.json")
    mujoco.set_mjcb_passive(passive)
    return model


def passive(model: Any, data: Any) -> None:
    """Add the friction to `qfrc_passive`: that at the end of the step that MuJoCo makes."""
    drives = _drives.get(model)
    if drives is None:
        return
    memory = _recalled(drives, data)
    bias = np.zeros(model.nv)
    mujoco.mj_rne(model, data, 0, bias)
    if _inverse:
        load = np.zeros(model.nv)
        mujoco.mj_mulM(model, data, load, data.qacc)
        data.qfrc_passive -= law.friction(drives, data.qvel, load + bias, memory)
        return
    mujoco.mj_fwdActuation(model, data)
    tau = data.qfrc_applied + data.qfrc_actuator
    step = law.Step(_mass(model, data), bias, data.qvel.copy(), tau, model.opt.timestep)
    data.qfrc_passive -= law.implicit_friction(drives, step, memory)


def inverse(model: Any, data: Any) -> np.ndarray:
    """Return the torque of the motors for `data.qpos`, `qvel` and `qacc`, friction included."""
    global _inverse
    _inverse = True
    try:
        mujoco.mj_inverse(model, data)
    finally:
        _inverse = False
    return data.qfrc_inverse.copy()


def _mass(model: Any, data: Any) -> np.ndarray:
    """Return the mass matrix, column by column: versions of MuJoCo store it differently."""
    mass = np.zeros((model.nv, model.nv))
    for column, unit in zip(mass, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, column, unit)
    return mass


def _recalled(drives: law.Drives, data: Any) -> law.DriveMemory:
    """Return the memory at the present position, and keep it in the user data.

    The first number tells whether there is a memory: after a reset there is none.
    """
    count = len(drives.turns)
    if data.userdata[0] == 0:
        memory = law.relaxed(drives, data.qpos)
    else:
        stretch = data.userdata[1 + count :].reshape(drives.stops.shape)
        before = law.DriveMemory(data.userdata[1 : 1 + count].copy(), stretch.copy())
        memory = law.remembered(drives, before, data.qpos)
    data.userdata[0] = 1
    data.userdata[1 : 1 + count] = memory.position
    data.userdata[1 + count :] = memory.stretch.ravel()
    return memory


def check(folder: str | Path = HERE) -> float:
    """Return the largest error of MuJoCo's torques, relative to the largest torque of a joint."""
    rows = json.loads((Path(folder) / "drives.json").read_text(encoding="utf-8"))["reference"]
    model = load(folder)
    data = mujoco.MjData(model)
    torques = []
    for q, qd, qdd in zip(rows["q"], rows["qd"], rows["qdd"], strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = q
        data.qvel[:] = qd
        data.qacc[:] = qdd
        torques.append(inverse(model, data))
    wanted = np.array(rows["tau"])
    return float((np.abs(torques - wanted) / np.abs(wanted).max(axis=0)).max())


if __name__ == "__main__":
    error = check()
    print(f"largest error of a torque: {error:.1e} of the joint's largest")
    raise SystemExit(error > TOLERANCE)
