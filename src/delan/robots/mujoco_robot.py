"""A robot in MuJoCo."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mujoco as _mujoco
import numpy as np
from jaxtyping import Float

from ..errors import RobotError
from ..joints import Body, JointKind, JointLimits, Joints, JointState
from .description import Arm
from .robot import Vector, physics_steps, safe_torque

mujoco: Any = _mujoco  # its names are made at import, where a type checker cannot see them

PHYSICS_STEP = 1e-3
"""The usual step of the simulation [s]."""


class MujocoRobot:
    """An arm simulated by MuJoCo, without noise: the sensors tell the truth."""

    def __init__(self, model: Any, limits: JointLimits, *, dt: float = 2e-3, physics_dt: float = PHYSICS_STEP):
        self._steps = physics_steps(dt, physics_dt)
        self.model = model
        self.model.opt.timestep = physics_dt
        self.data = mujoco.MjData(model)
        self.joints = joints_of(model)
        self.limits = limits
        self.dt = dt

    @classmethod
    def of(cls, arm: Arm, *, dt: float = 2e-3, physics_dt: float = PHYSICS_STEP) -> "MujocoRobot":
        """The robot of an arm's table."""
        return cls(mujoco.MjModel.from_xml_string(arm.mjcf()), arm.limits, dt=dt, physics_dt=physics_dt)

    @property
    def home(self) -> Vector:
        """Where a reset puts the joints [rad or m]: at zero, or the nearest position that the joint can take."""
        return np.clip(np.zeros(self.joints.dof), self.limits.lower, self.limits.upper)

    def reset(self, q: Vector | None = None, qd: Vector | None = None) -> JointState:
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.home if q is None else q
        self.data.qvel[:] = 0.0 if qd is None else qd
        mujoco.mj_forward(self.model, self.data)
        return self._state()

    def step(self, tau: Vector) -> JointState:
        self.push(safe_torque(tau, self.limits, self.joints))
        return self._state()

    def push(self, force: Vector) -> None:
        """Advance one control period under forces at the joints that no drive limits, such as the pull of a cable."""
        self.data.qfrc_applied[:] = force
        mujoco.mj_step(self.model, self.data, nstep=self._steps)

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """The torque that MuJoCo's own inverse dynamics gives: an independent truth for models of the same arm."""
        scratch = mujoco.MjData(self.model)
        scratch.qpos[:], scratch.qvel[:], scratch.qacc[:] = q, qd, qdd
        mujoco.mj_inverse(self.model, scratch)
        return scratch.qfrc_inverse.copy()

    def tool_position(self) -> Float[np.ndarray, "3"]:
        """Where the end point is [m]."""
        return self.data.site("tool").xpos.copy()

    def energy(self) -> float:
        """Kinetic and potential energy together [J]."""
        mujoco.mj_energyPos(self.model, self.data)
        mujoco.mj_energyVel(self.model, self.data)
        return float(self.data.energy.sum())

    def _state(self) -> JointState:
        return JointState(float(self.data.time), self.data.qpos.copy(), self.data.qvel.copy())


def compiled(path: Path, text: str | None = None, meshes: Mapping[str, bytes] | None = None) -> Any:
    """MuJoCo's model of a file, or of a text in its place together with the meshes it names."""
    try:
        if text is None:
            return mujoco.MjModel.from_xml_path(str(path))
        return mujoco.MjModel.from_xml_string(text, dict(meshes or {}))
    except (ValueError, OSError) as error:
        told = " ".join(str(error).split())
        raise RobotError(f"{path}: MuJoCo cannot build it: {told}; mend the element it names") from None


def bodies_of(model: Any) -> tuple[Body, ...]:
    """The moving bodies and the fixed ones between them, in the order of MuJoCo's joints."""
    joints, bodies = joints_of(model), []
    for index in range(1, model.nbody):
        count = int(model.body_jntnum[index])
        if count > 1:
            raise RobotError(f"body {model.body(index).name!r} has {count} joints; give each joint a body of its own")
        joint = int(model.body_jntadr[index]) if count else None
        inertia = quaternion_matrix(model.body_iquat[index])
        bodies.append(
            Body(
                parent=int(model.body_parentid[index]) - 1,
                position=model.body_pos[index].copy(),
                rotation=quaternion_matrix(model.body_quat[index]),
                mass=float(model.body_mass[index]),
                centre=model.body_ipos[index].copy(),
                inertia=inertia @ np.diag(model.body_inertia[index]) @ inertia.T,
                joint=None if joint is None else joints.names[joint],
                kind=None if joint is None else joints.kinds[joint],
                axis=np.zeros(3) if joint is None else model.jnt_axis[joint].copy(),
                anchor=np.zeros(3) if joint is None else model.jnt_pos[joint].copy(),
            )
        )
    return tuple(bodies)


def quaternion_matrix(quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)


def joints_of(model: Any) -> Joints:
    """Names and kinds of the joints; what is no hinge or slide is refused by name."""
    names, kinds = [], []
    known: dict[int, JointKind] = {
        int(mujoco.mjtJoint.mjJNT_SLIDE): "prismatic",
        int(mujoco.mjtJoint.mjJNT_HINGE): "revolute",
    }
    for index in range(model.njnt):
        joint = model.joint(index)
        kind = known.get(int(joint.type[0]))
        if kind is None:
            what = "a floating base" if joint.type[0] == mujoco.mjtJoint.mjJNT_FREE else "a ball joint"
            raise RobotError(f"joint {joint.name!r} is {what}; only hinges and slides on a fixed base can be driven")
        limited = bool(model.jnt_limited[index])
        names.append(joint.name or f"joint{index}")
        kinds.append(kind if limited or kind == "prismatic" else "continuous")
    if not names:
        raise RobotError("the model has no joints; give a robot that can move")
    return Joints(tuple(names), tuple(kinds))
