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

mujoco: Any = _mujoco  # its names are created on import, where a type checker cannot see them

PHYSICS_STEP = 1e-3  # default time step of the simulation [s]


class MujocoRobot:
    """An arm simulated by MuJoCo, with exact sensors."""

    def __init__(
        self, model: Any, limits: JointLimits, *, dt: float = 2e-3, physics_dt: float = PHYSICS_STEP
    ):
        self._steps = physics_steps(dt, physics_dt)
        self.model = model
        self.model.opt.timestep = physics_dt
        self.data = mujoco.MjData(model)
        self.joints = joints_of(model)
        self.limits = limits
        self.dt = dt

    @classmethod
    def of(cls, arm: Arm, *, dt: float = 2e-3, physics_dt: float = PHYSICS_STEP) -> "MujocoRobot":
        """Build the robot that an arm's table describes."""
        model = mujoco.MjModel.from_xml_string(arm.mjcf())
        return cls(model, arm.limits, dt=dt, physics_dt=physics_dt)

    @property
    def home(self) -> Vector:
        """The default pose after a reset [rad or m]: zero, or the nearest position in range."""
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
        """Advance one control period under joint forces without limits, such as a cable's pull."""
        self.data.qfrc_applied[:] = force
        mujoco.mj_step(self.model, self.data, nstep=self._steps)

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """Return the torque by MuJoCo's own inverse dynamics, as an independent reference."""
        scratch = mujoco.MjData(self.model)
        scratch.qpos[:] = q
        scratch.qvel[:] = qd
        scratch.qacc[:] = qdd
        mujoco.mj_inverse(self.model, scratch)
        return scratch.qfrc_inverse.copy()

    def tool_position(self) -> Float[np.ndarray, "3"]:
        """Return the position of the end point [m]."""
        return self.data.site("tool").xpos.copy()

    def energy(self) -> float:
        """Return the total of kinetic and potential energy [J]."""
        mujoco.mj_energyPos(self.model, self.data)
        mujoco.mj_energyVel(self.model, self.data)
        return float(self.data.energy.sum())

    def state(self) -> JointState:
        """Return the present time, positions and velocities."""
        return JointState(float(self.data.time), self.data.qpos.copy(), self.data.qvel.copy())


class BodyMesh(NamedTuple):
    """A visible solid fixed to a body: triangles in its frame [m], and its colour, 0 to 1."""

    body: int
    vertices: Float[np.ndarray, "vertices 3"]
    faces: Int[np.ndarray, "faces 3"]
    colour: tuple[float, float, float]


class Poses(NamedTuple):
    """Origins [m] and quaternions (w, x, y, z) of the bodies in the world, and the tool [m]."""

    origins: Float[np.ndarray, "bodies 3"]
    quaternions: Float[np.ndarray, "bodies 4"]
    tool: Float[np.ndarray, "3"]


class VisualModel:
    """The meshes of a robot's bodies and their poses for any joint positions."""

    def __init__(self, model: Any):
        self._model = model
        self._data = mujoco.MjData(model)
        # The site named `tool`, else the first site, else the origin of the last body.
        self._site = None
        if model.nsite:
            self._site = max(0, mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, "tool"))
        self.dof = int(model.nq)

    @classmethod
    def of(cls, arm: Arm) -> "VisualModel":
        return cls(mujoco.MjModel.from_xml_string(arm.mjcf()))

    def at(self, q: Vector) -> Poses:
        """Return the poses for joint positions [rad or m]."""
        tool = self._tool(q)
        return Poses(self._data.xpos.copy(), self._data.xquat.copy(), tool)

    def tool_path(self, q: Float[np.ndarray, "time dof"]) -> Float[np.ndarray, "time 3"]:
        """Return the tool's positions [m] along joint positions."""
        return np.array([self._tool(row) for row in q]).reshape(-1, 3)

    def meshes(self) -> list[BodyMesh]:
        """Return every visible solid; planes and other unbounded shapes are left out."""
        model = self._model
        meshes = []
        for index in range(model.ngeom):
            solid = _solid(model, index)
            if solid is None or model.geom_rgba[index, 3] == 0:
                continue
            vertices, faces = solid
            rotation = quaternion_matrix(model.geom_quat[index])
            vertices = np.asarray(vertices @ rotation.T + model.geom_pos[index], dtype=float)
            red, green, blue = model.geom_rgba[index, :3].tolist()
            body = int(model.geom_bodyid[index])
            meshes.append(BodyMesh(body, vertices, faces, (red, green, blue)))
        return meshes

    def _tool(self, q: Vector) -> Float[np.ndarray, "3"]:
        """Move the bodies to joint positions and return the tool's position."""
        self._data.qpos[:] = q
        mujoco.mj_kinematics(self._model, self._data)
        if self._site is None:
            return self._data.xpos[-1].copy()
        return self._data.site_xpos[self._site].copy()


def _solid(model: Any, index: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return vertices and faces of a shape in its own frame, or None if it is unbounded."""
    shapes = mujoco.mjtGeom
    kind = shapes(int(model.geom_type[index]))
    size = model.geom_size[index]
    if kind == shapes.mjGEOM_MESH:
        mesh = int(model.geom_dataid[index])
        vertex = int(model.mesh_vertadr[mesh])
        face = int(model.mesh_faceadr[mesh])
        vertices = model.mesh_vert[vertex : vertex + int(model.mesh_vertnum[mesh])]
        faces = model.mesh_face[face : face + int(model.mesh_facenum[mesh])]
        return vertices.astype(float), faces.astype(int)
    # Heights and radii, from below, of a closed prism between −1 and 1.
    ends = np.array([-1.0, -1.0, 1.0, 1.0])
    widths = np.array([0.0, 1.0, 1.0, 0.0])
    if kind == shapes.mjGEOM_BOX:
        # A prism of four sides has its corners on the axes; an eighth of a turn makes it a box.
        vertices, faces = round_solid(ends, 2**0.5 * widths, 4)
        turn = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2**0.5]]) / 2**0.5
        return vertices @ turn.T * size, faces
    if kind == shapes.mjGEOM_CYLINDER:
        return round_solid(size[1] * ends, size[0] * widths)
    if kind == shapes.mjGEOM_CAPSULE:
        arc = np.linspace(0.0, np.pi / 2, 7)
        height = np.concatenate([-size[1] - size[0] * np.cos(arc), size[1] + size[0] * np.sin(arc)])
        return round_solid(height, size[0] * np.concatenate([np.sin(arc), np.cos(arc)]))
    if kind in (shapes.mjGEOM_SPHERE, shapes.mjGEOM_ELLIPSOID):
        arc = np.linspace(0.0, np.pi, 13)
        vertices, faces = round_solid(-np.cos(arc), np.sin(arc))
        return vertices * (size if kind == shapes.mjGEOM_ELLIPSOID else size[0]), faces
    return None


def round_solid(
    height: Float[np.ndarray, " rings"], radius: Float[np.ndarray, " rings"], sides: int = 20
) -> tuple[Float[np.ndarray, "vertices 3"], Int[np.ndarray, "faces 3"]]:
    """Return a solid of revolution about z from its rings, bottom to top, with faces outwards."""
    angle = 2 * np.pi * np.arange(sides) / sides
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rings = []
    for ring_height, ring_radius in zip(height, radius, strict=True):
        rings.append(np.column_stack([ring_radius * circle, np.full(sides, ring_height)]))
    here = np.arange(sides)
    after = (here + 1) % sides
    bands = []
    for ring in range(len(rings) - 1):
        low = ring * sides
        high = low + sides
        bands.append(np.stack([low + here, low + after, high + after], axis=1))
        bands.append(np.stack([low + here, high + after, high + here], axis=1))
    return np.concatenate(rings), np.concatenate(bands)


def compiled(path: Path, text: str | None = None, meshes: Mapping[str, bytes] | None = None) -> Any:
    """Return MuJoCo's model of a file, or of a text with its meshes in place of the file."""
    try:
        if text is None:
            return mujoco.MjModel.from_xml_path(str(path))
        return mujoco.MjModel.from_xml_string(text, dict(meshes or {}))
    except (ValueError, OSError) as error:
        message = " ".join(str(error).split())
        raise RobotError(
            f"{path}: MuJoCo cannot build it: {message}; correct the element it names"
        ) from None


def disable_actuators(model: Any) -> None:
    """Disable all actuators of a model: joint torques are applied in their place."""
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)


def actuator_limits(model: Any) -> Float[np.ndarray, " dof"]:
    """Return the largest torque [N m or N] of each joint's actuators, infinite where unknown.

    The control range is a range of torques only if the torque depends on the control alone: that
    of a position servo is in radians.
    """
    torque = np.full(model.nv, np.inf)
    transmissions = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
    for actuator in range(model.nu):
        if model.actuator_trntype[actuator] not in transmissions:
            continue
        force = np.inf
        if model.actuator_forcelimited[actuator]:
            force = np.abs(model.actuator_forcerange[actuator]).max()
        is_motor = (
            model.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_FIXED
            and model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE
        )
        if model.actuator_ctrllimited[actuator] and is_motor:
            gain = abs(model.actuator_gainprm[actuator, 0])
            force = min(force, gain * np.abs(model.actuator_ctrlrange[actuator]).max())
        joint = model.actuator_trnid[actuator, 0]
        torque[joint] = min(torque[joint], abs(model.actuator_gear[actuator, 0]) * force)
    return torque


def bodies_of(model: Any) -> tuple[Body, ...]:
    """Return all bodies, moving and fixed, in the order of MuJoCo's joints."""
    joints = joints_of(model)
    bodies = []
    for index in range(1, model.nbody):
        count = int(model.body_jntnum[index])
        if count > 1:
            raise RobotError(
                f"body {model.body(index).name!r} has {count} joints; give each joint its own body"
            )
        name = kind = None
        axis = anchor = np.zeros(3)
        if count:
            joint = int(model.body_jntadr[index])
            name = joints.names[joint]
            kind = joints.kinds[joint]
            axis = model.jnt_axis[joint].copy()
            anchor = model.jnt_pos[joint].copy()
        principal = quaternion_matrix(model.body_iquat[index])
        body = Body(
            parent=int(model.body_parentid[index]) - 1,
            position=model.body_pos[index].copy(),
            rotation=quaternion_matrix(model.body_quat[index]),
            mass=float(model.body_mass[index]),
            centre=model.body_ipos[index].copy(),
            inertia=principal @ np.diag(model.body_inertia[index]) @ principal.T,
            joint=name,
            kind=kind,
            axis=axis,
            anchor=anchor,
        )
        bodies.append(body)
    return tuple(bodies)


def quaternion_matrix(quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    """Return the rotation matrix of a quaternion (w, x, y, z)."""
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)


def joints_of(model: Any) -> Joints:
    """Return names and kinds of the joints, which must be hinges or slides."""
    names = []
    kinds: list[JointKind] = []
    for index in range(model.njnt):
        joint = model.joint(index)
        if joint.type[0] == mujoco.mjtJoint.mjJNT_SLIDE:
            kinds.append("prismatic")
        elif joint.type[0] == mujoco.mjtJoint.mjJNT_HINGE:
            kinds.append("revolute" if model.jnt_limited[index] else "continuous")
        else:
            floating = joint.type[0] == mujoco.mjtJoint.mjJNT_FREE
            raise RobotError(
                f"joint {joint.name!r} is a {'floating base' if floating else 'ball joint'}; "
                "only hinges and slides on a fixed base are supported"
            )
        names.append(joint.name or f"joint{index}")
    if not names:
        raise RobotError("the model has no joints; give a robot that can move")
    return Joints(tuple(names), tuple(kinds))
