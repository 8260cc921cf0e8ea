"""Any robot a user has: a simulation and a rigid-body model from a URDF or MJCF file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from ..errors import RobotError, SettingsError
from ..joints import JointLimits
from ..models.actuator import Actuator
from ..models.rigid_body import RigidBody
from .mujoco_robot import PHYSICS_STEP, MujocoRobot, actuator_limits, bodies_of, compiled, joints_of, rest_actuators

FRICTION_WIDTH = 0.01
"""Speed over which the model's Coulomb friction changes its sign [rad/s or m/s]."""


class UserRobot(NamedTuple):
    """A robot to move and the model that knows its physics; joint order is the same in both."""

    robot: MujocoRobot
    model: RigidBody


def from_urdf(
    path: str | Path, *, dt: float = 2e-3, physics_dt: float = PHYSICS_STEP, meshes: bool = True
) -> UserRobot:
    """A robot from a URDF file. Meshes are only for looks: `meshes=False` does without them.

    Raises:
        RobotError: names the joint, link or mesh that is broken, missing or of a kind that cannot be driven.
    """
    path = Path(path)
    root = _parsed(path, "robot")
    links = {link.get("name") for link in root.findall("link")}
    for joint in root.findall("joint"):
        _require_known_joint(path, joint)
        for role, verb in (("parent", "hangs on"), ("child", "moves")):
            end = joint.find(role)
            name = None if end is None else end.get("link")
            if name not in links:
                raise RobotError(
                    f"{path}: joint {joint.get('name')} {verb} the link {name!r}, which is not there; "
                    "add the link or mend the name"
                )
    assets = _meshes(path, root) if meshes else {}
    if not meshes:
        for link in root.findall("link"):
            for shape in [*link.findall("visual"), *link.findall("collision")]:
                link.remove(shape)
    text = ElementTree.tostring(root, encoding="unicode")
    return _built(path, compiled(path, text, assets), dt, physics_dt, root)


def from_mjcf(path: str | Path, *, dt: float = 2e-3, physics_dt: float = PHYSICS_STEP) -> UserRobot:
    """A robot from an MJCF file, MuJoCo's own form; its actuators are replaced by torques at the joints."""
    path = Path(path)
    _parsed(path, "mujoco")
    return _built(path, compiled(path), dt, physics_dt)


def _parsed(path: Path, wanted: str) -> ElementTree.Element:
    try:
        root = ElementTree.parse(path).getroot()
    except OSError as error:
        raise RobotError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    except ElementTree.ParseError as error:
        raise RobotError(f"{path}: is no well-formed XML ({error}); mend the file") from None
    if root.tag != wanted:
        raise RobotError(f"{path}: expected the root element <{wanted}>, found <{root.tag}>")
    return root


def _require_known_joint(path: Path, joint: ElementTree.Element) -> None:
    name, kind = joint.get("name", "without a name"), joint.get("type")
    if kind not in ("revolute", "continuous", "prismatic", "fixed"):
        raise RobotError(
            f"{path}: joint {name} is of type {kind!r}; only revolute, continuous, prismatic and fixed joints are known"
        )
    if joint.find("mimic") is not None:
        raise RobotError(f"{path}: joint {name} mimics another joint, which has no torque of its own; make it fixed")


def _meshes(path: Path, root: ElementTree.Element) -> dict[str, bytes]:
    """The meshes that the links name, by bare file name as MuJoCo asks for them; looked for beside the file."""
    found: dict[str, bytes] = {}
    for link in root.findall("link"):
        for mesh in link.iter("mesh"):
            file = mesh.get("filename", "")
            places = (path.parent / file.split("://")[-1], path.parent / Path(file).name)
            here = next((place for place in places if place.is_file()), None)
            if here is None:
                raise RobotError(
                    f"{path}: link {link.get('name')} wants the mesh {file!r}, which is not there; "
                    "put it beside the file or read the robot with meshes=False"
                )
            found[here.name] = here.read_bytes()
    return found


def urdf_limits(root: ElementTree.Element, names: Sequence[str]) -> JointLimits:
    """The limits that a URDF tells of joints; what it does not tell is unlimited, and a speed or torque of zero is too.

    So is the position of a continuous joint, whatever stands there, and of one whose ends are exchanged.
    """
    joints = {joint.get("name"): joint for joint in root.findall("joint")}

    def column(name: str, default: float) -> np.ndarray:
        limits = (joints[joint].find("limit") if joint in joints else None for joint in names)
        return np.array([default if limit is None else float(limit.get(name) or default) for limit in limits])

    endless = np.array([name in joints and joints[name].get("type") == "continuous" for name in names])
    velocity, torque = column("velocity", np.inf), column("effort", np.inf)
    lower, upper = column("lower", -np.inf), column("upper", np.inf)
    endless |= lower > upper
    return JointLimits(
        lower=np.where(endless, -np.inf, lower),
        upper=np.where(endless, np.inf, upper),
        velocity=np.where(velocity == 0, np.inf, velocity),
        torque=np.where(torque == 0, np.inf, torque),
    )


def _built(path: Path, model: Any, dt: float, physics_dt: float, urdf: ElementTree.Element | None = None) -> UserRobot:
    try:
        bodies = bodies_of(model)
        rest_actuators(model)
        robot = MujocoRobot(model, _limits(model, urdf), dt=dt, physics_dt=physics_dt)
    except (RobotError, SettingsError) as error:
        raise RobotError(f"{path}: {error}") from None
    friction = None
    if np.any(model.dof_frictionloss) or np.any(model.dof_damping):
        coulomb, viscous = model.dof_frictionloss.copy(), model.dof_damping.copy()
        friction = Actuator.known(robot.joints, coulomb=coulomb, viscous=viscous, width=FRICTION_WIDTH)
    x, y, z = model.opt.gravity.tolist()
    known = RigidBody.from_bodies(bodies, gravity=(x, y, z), friction=friction, armature=model.dof_armature.copy())
    return UserRobot(robot, known)


def _limits(model: Any, urdf: ElementTree.Element | None) -> JointLimits:
    """From the compiled model, and from the URDF what MuJoCo does not keep; what nobody tells is unlimited."""
    limited = model.jnt_limited.astype(bool)
    all_together = np.where(model.jnt_actfrclimited, np.abs(model.jnt_actfrcrange).max(axis=1), np.inf)
    velocity, torque = np.full(model.nv, np.inf), np.minimum(actuator_limits(model), all_together)
    if urdf is not None:
        told = urdf_limits(urdf, joints_of(model).names)
        velocity, torque = told.velocity, told.torque
    return JointLimits(
        lower=np.where(limited, model.jnt_range[:, 0], -np.inf),
        upper=np.where(limited, model.jnt_range[:, 1], np.inf),
        velocity=velocity,
        torque=torque,
    )
