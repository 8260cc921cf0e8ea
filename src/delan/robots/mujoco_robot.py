"""A robot in MuJoCo."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mujoco as _mujoco
import numpy as np
from jaxtyping import Float, Int

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
        return self.state()

    def step(self, tau: Vector) -> JointState:
        self.push(safe_torque(tau, self.limits, self.joints))
        return self.state()

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

    def state(self) -> JointState:
        """What the sensors tell now."""
        return JointState(float(self.data.time), self.data.qpos.copy(), self.data.qvel.copy())


class Look(NamedTuple):
    """Something to see that is fixed to a body: triangles in the body's frame [m], and their colour, 0 to 1."""

    body: int
    vertices: Float[np.ndarray, "vertices 3"]
    faces: Int[np.ndarray, "faces 3"]
    colour: tuple[float, float, float]


class Poses(NamedTuple):
    """Where the bodies are for joint positions: origins [m] and quaternions (w, x, y, z) in the world, and the tool."""

    origins: Float[np.ndarray, "bodies 3"]
    quaternions: Float[np.ndarray, "bodies 4"]
    tool: Float[np.ndarray, "3"]


class Mannequin:
    """The visible side of a model: what its bodies look like, and where they are for any joint positions."""

    def __init__(self, model: Any):
        self._model, self._data = model, mujoco.MjData(model)
        self._tool = max(0, mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, "tool")) if model.nsite else None
        self.dof = int(model.nq)

    @classmethod
    def of(cls, arm: Arm) -> "Mannequin":
        return cls(mujoco.MjModel.from_xml_string(arm.mjcf()))

    def at(self, q: Vector) -> Poses:
        """The poses for joint positions [rad or m]."""
        data = self._moved(q)
        return Poses(data.xpos.copy(), data.xquat.copy(), self._tool_of(data))

    def tool_path(self, q: Float[np.ndarray, "time dof"]) -> Float[np.ndarray, "time 3"]:
        """The way of the tool [m] along joint positions."""
        return np.array([self._tool_of(self._moved(row)) for row in q]).reshape(-1, 3)

    def looks(self) -> list[Look]:
        """Every visible solid; planes and other endless shapes are left out."""
        model, found = self._model, []
        for index in range(model.ngeom):
            solid = _solid(model, index)
            if solid is None or model.geom_rgba[index, 3] == 0:
                continue
            turn, place = quaternion_matrix(model.geom_quat[index]), model.geom_pos[index]
            red, green, blue = model.geom_rgba[index, :3].tolist()
            vertices = np.asarray(solid[0] @ turn.T + place, dtype=float)
            found.append(Look(int(model.geom_bodyid[index]), vertices, solid[1], (red, green, blue)))
        return found

    def _moved(self, q: Vector) -> Any:
        self._data.qpos[:] = q
        mujoco.mj_kinematics(self._model, self._data)
        return self._data

    def _tool_of(self, data: Any) -> Float[np.ndarray, "3"]:
        """A place named `tool`, else the first that is marked, else the origin of the last body."""
        return (data.xpos[-1] if self._tool is None else data.site_xpos[self._tool]).copy()


def _solid(model: Any, index: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Vertices and faces of a shape in its own frame; None for what has no end."""
    kind, size = mujoco.mjtGeom(int(model.geom_type[index])), model.geom_size[index]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = int(model.geom_dataid[index])
        first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
        face, faces = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
        return model.mesh_vert[first : first + count].astype(float), model.mesh_face[face : face + faces].astype(int)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        vertices, faces = round_solid(np.array([-1.0, -1.0, 1.0, 1.0]), np.array([0.0, 2**0.5, 2**0.5, 0.0]), 4)
        turn = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2**0.5]]) / 2**0.5
        return vertices @ turn.T * size, faces
    arc = np.linspace(0.0, np.pi / 2, 7)
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        height = np.concatenate([-size[1] - size[0] * np.cos(arc), size[1] + size[0] * np.sin(arc)])
        return round_solid(height, size[0] * np.concatenate([np.sin(arc), np.cos(arc)]))
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return round_solid(size[1] * np.array([-1.0, -1.0, 1.0, 1.0]), size[0] * np.array([0.0, 1.0, 1.0, 0.0]))
    if kind in (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_ELLIPSOID):
        whole = np.linspace(0.0, np.pi, 13)
        vertices, faces = round_solid(-np.cos(whole), np.sin(whole))
        return vertices * (size if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID else size[0]), faces
    return None


def round_solid(
    height: Float[np.ndarray, " rings"], radius: Float[np.ndarray, " rings"], sides: int = 20
) -> tuple[Float[np.ndarray, "vertices 3"], Int[np.ndarray, "faces 3"]]:
    """A solid turned about z: rings of so many vertices at the given heights, from below, faces looking outwards."""
    angle = 2 * np.pi * np.arange(sides) / sides
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rings = [np.column_stack([r * circle, np.full(sides, z)]) for z, r in zip(height, radius, strict=True)]
    here = np.arange(sides)
    after = (here + 1) % sides
    bands = []
    for ring in range(len(rings) - 1):
        low, high = ring * sides, (ring + 1) * sides
        bands.append(np.stack([low + here, low + after, high + after], axis=1))
        bands.append(np.stack([low + here, high + after, high + here], axis=1))
    return np.concatenate(rings), np.concatenate(bands)


def compiled(path: Path, text: str | None = None, meshes: Mapping[str, bytes] | None = None) -> Any:
    """MuJoCo's model of a file, or of a text in its place together with the meshes it names."""
    try:
        if text is None:
            return mujoco.MjModel.from_xml_path(str(path))
        return mujoco.MjModel.from_xml_string(text, dict(meshes or {}))
    except (ValueError, OSError) as error:
        told = " ".join(str(error).split())
        raise RobotError(f"{path}: MuJoCo cannot build it: {told}; mend the element it names") from None


def rest_actuators(model: Any) -> None:
    """Have the actuators of a model push nothing, whatever they are: its joints take torques in their place."""
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)


def actuator_limits(model: Any) -> Float[np.ndarray, " dof"]:
    """The largest torque [N m or N] that the actuators of each joint may give; infinite where none tells.

    A command's range is one of torque only where nothing but the command makes the torque: that of a servo is in
    radians.
    """
    torque = np.full(model.nv, np.inf)
    at_joints = [int(kind) for kind in (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)]
    for actuator in range(model.nu):
        if model.actuator_trntype[actuator] not in at_joints:
            continue
        most = np.inf
        if model.actuator_forcelimited[actuator]:
            most = np.abs(model.actuator_forcerange[actuator]).max()
        commanded = (
            model.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_FIXED
            and model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE
        )
        if model.actuator_ctrllimited[actuator] and commanded:
            gain = abs(model.actuator_gainprm[actuator, 0])
            most = min(most, gain * np.abs(model.actuator_ctrlrange[actuator]).max())
        joint = model.actuator_trnid[actuator, 0]
        torque[joint] = min(torque[joint], abs(model.actuator_gear[actuator, 0]) * most)
    return torque


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
