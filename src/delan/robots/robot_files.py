"""Robots from URDF and MJCF files, and rigid bodies as text of such files."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from ..errors import RobotError, SettingsError
from ..joints import Body, JointLimits
from ..models.friction import Friction
from ..models.rigid_body import RigidBody
from ..text_file import TextFileError, read_xml
from .description import Link, Scene, Triple, moments_of, tree_mjcf, tree_urdf, triple
from .mujoco_robot import (
    PHYSICS_STEP,
    MujocoRobot,
    actuator_limits,
    bodies_of,
    compiled,
    disable_actuators,
    joints_of,
)

Point = Float[np.ndarray, "3"]
Matrix = Float[np.ndarray, "3 3"]

# Speed over which the model's Coulomb friction changes its sign [rad/s or m/s].
FRICTION_WIDTH = 0.01
# Stands for an unknown limit, because URDF requires a number [m, rad/s or m/s, N m or N].
WIDE = 1e6


class UserRobot(NamedTuple):
    """A simulated robot and its rigid-body model, with the same order of joints."""

    robot: MujocoRobot
    model: RigidBody


def from_urdf(
    path: str | Path, *, dt: float = 2e-3, physics_dt: float = PHYSICS_STEP, meshes: bool = True
) -> UserRobot:
    """Read a robot from a URDF file; `meshes=False` ignores its meshes, which are only drawn.

    Raises:
        RobotError: names the joint, link or mesh that is broken, missing or not supported.
    """
    path = Path(path)
    root = _parsed(path, "robot")
    links = {link.get("name") for link in root.findall("link")}
    for joint in root.findall("joint"):
        _require_supported(path, joint)
        for role in ("parent", "child"):
            end = joint.find(role)
            name = None if end is None else end.get("link")
            if name not in links:
                raise RobotError(
                    f"{path}: joint {joint.get('name')} has the {role} link {name!r}, which does "
                    "not exist; add the link or correct the name"
                )
    assets = {}
    if meshes:
        assets = _meshes(path, root)
    else:
        for link in root.findall("link"):
            for shape in [*link.findall("visual"), *link.findall("collision")]:
                link.remove(shape)
    text = ElementTree.tostring(root, encoding="unicode")
    return _built(path, compiled(path, text, assets), dt, physics_dt, root)


def from_mjcf(path: str | Path, *, dt: float = 2e-3, physics_dt: float = PHYSICS_STEP) -> UserRobot:
    """Read a robot from an MJCF file; joint torques replace its actuators."""
    path = Path(path)
    _parsed(path, "mujoco")
    return _built(path, compiled(path), dt, physics_dt)


def _parsed(path: Path, expected: str) -> ElementTree.Element:
    try:
        root = read_xml(path)
    except TextFileError as error:
        raise RobotError(f"{path}: {error}") from None
    if root.tag != expected:
        raise RobotError(f"{path}: expected the root element <{expected}>, got <{root.tag}>")
    return root


def _require_supported(path: Path, joint: ElementTree.Element) -> None:
    name = joint.get("name", "without a name")
    kind = joint.get("type")
    if kind not in ("revolute", "continuous", "prismatic", "fixed"):
        raise RobotError(
            f"{path}: joint {name} has the type {kind!r}; supported types are revolute, "
            "continuous, prismatic and fixed"
        )
    if joint.find("mimic") is not None:
        raise RobotError(
            f"{path}: joint {name} mimics another joint and has no torque of its own; make it fixed"
        )


def _meshes(path: Path, root: ElementTree.Element) -> dict[str, bytes]:
    """Return the meshes of the links by bare file name, as MuJoCo expects them."""
    meshes: dict[str, bytes] = {}
    for link in root.findall("link"):
        for mesh in link.iter("mesh"):
            name = mesh.get("filename", "")
            candidates = (path.parent / name.split("://")[-1], path.parent / Path(name).name)
            file = next((candidate for candidate in candidates if candidate.is_file()), None)
            if file is None:
                raise RobotError(
                    f"{path}: link {link.get('name')} needs the mesh {name!r}, which was not "
                    "found; put it next to the file or read the robot with meshes=False"
                )
            meshes[file.name] = file.read_bytes()
    return meshes


def described_limits(path: Path, names: Sequence[str]) -> JointLimits:
    """Return the limits of the named joints in a URDF file."""
    try:
        return urdf_limits(_parsed(path, "robot"), names)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def urdf_limits(root: ElementTree.Element, names: Sequence[str]) -> JointLimits:
    """Return the limits of the named joints in a URDF, infinite where it has none.

    A speed or torque of zero counts as no limit. The position of a joint is unlimited if it is
    continuous or if its upper limit is below its lower one.
    """
    joints = {joint.get("name"): joint for joint in root.findall("joint")}
    # lower, upper, velocity, effort
    rows = np.tile([-np.inf, np.inf, np.inf, np.inf], (len(names), 1))
    endless = np.zeros(len(names), dtype=bool)
    for index, name in enumerate(names):
        if name not in joints:
            continue
        endless[index] = joints[name].get("type") == "continuous"
        limit = joints[name].find("limit")
        if limit is None:
            continue
        for column, attribute in enumerate(("lower", "upper", "velocity", "effort")):
            rows[index, column] = float(limit.get(attribute) or rows[index, column])
    lower, upper, velocity, torque = rows.T
    endless |= lower > upper
    return JointLimits(
        lower=np.where(endless, -np.inf, lower),
        upper=np.where(endless, np.inf, upper),
        velocity=np.where(velocity == 0, np.inf, velocity),
        torque=np.where(torque == 0, np.inf, torque),
    )


def _built(
    path: Path, model: Any, dt: float, physics_dt: float, urdf: ElementTree.Element | None = None
) -> UserRobot:
    try:
        bodies = bodies_of(model)
        disable_actuators(model)
        robot = MujocoRobot(model, _limits(model, urdf), dt=dt, physics_dt=physics_dt)
    except (RobotError, SettingsError) as error:
        raise RobotError(f"{path}: {error}") from None
    friction = None
    coulomb = model.dof_frictionloss.copy()
    viscous = model.dof_damping.copy()
    if np.any(coulomb) or np.any(viscous):
        friction = Friction.known(
            robot.joints, {"coulomb": coulomb, "viscous": viscous}, width=FRICTION_WIDTH
        )
    known = RigidBody.from_bodies(
        bodies,
        gravity=triple(model.opt.gravity),
        friction=friction,
        armature=model.dof_armature.copy(),
    )
    return UserRobot(robot, known)


def _limits(model: Any, urdf: ElementTree.Element | None) -> JointLimits:
    """Return the limits of the compiled model; speeds and torques of a URDF, which MuJoCo drops."""
    limited = model.jnt_limited.astype(bool)
    if urdf is None:
        velocity = np.full(model.nv, np.inf)
        total = np.abs(model.jnt_actfrcrange).max(axis=1)
        torque = np.minimum(
            actuator_limits(model), np.where(model.jnt_actfrclimited, total, np.inf)
        )
    else:
        limits = urdf_limits(urdf, joints_of(model).names)
        velocity = limits.velocity
        torque = limits.torque
    return JointLimits(
        lower=np.where(limited, model.jnt_range[:, 0], -np.inf),
        upper=np.where(limited, model.jnt_range[:, 1], np.inf),
        velocity=velocity,
        torque=torque,
    )


class JointDrives(NamedTuple):
    """What every joint's own motor adds, in the words of simulators.

    Attributes:
        armature: inertia of the rotors [kg m² or kg].
        damping, friction: viscous [N m s/rad or N s/m] and dry friction [N m or N].
    """

    armature: Float[np.ndarray, " dof"]
    damping: Float[np.ndarray, " dof"]
    friction: Float[np.ndarray, " dof"]


def urdf_of(
    body: RigidBody,
    *,
    name: str = "arm",
    limits: JointLimits | None = None,
    drives: JointDrives | None = None,
) -> str:
    """Return the links and joints of a rigid body as URDF text, without its rotors.

    Damping and friction are those of the drives, if given. A URDF has no gravity vector and
    simulators assume −z: the base is rotated so that the gravity of this model points there. A
    revolute joint without limits is written as continuous. Joints keep their names; in a tree,
    readers may change their order.
    """
    parents = [part.parent for part in body.bodies]
    return tree_urdf(name, list(_links(body, limits, drives)), parents)


def mjcf_of(
    body: RigidBody,
    *,
    name: str = "arm",
    limits: JointLimits | None = None,
    drives: JointDrives | None = None,
    radius: float = 0.03,
    scene: Scene | None = None,
) -> str:
    """Return a rigid body as MJCF text, turned like a URDF (`urdf_of`), in a scene.

    `radius` is that of the capsules which are drawn [m].
    """
    links = []
    for link, part in zip(_links(body, limits, drives), body.bodies, strict=True):
        # Only a URDF has continuous joints; a hinge of MuJoCo has a range or none.
        assert part.kind is not None
        links.append(replace(link, kind=part.kind, radius=radius))
    scene = replace(scene or Scene(), gravity=float(np.linalg.norm(body.gravity)))
    return tree_mjcf(name, links, [part.parent for part in body.bodies], scene=scene)


def _links(
    body: RigidBody, limits: JointLimits | None, drives: JointDrives | None
) -> Iterator[Link]:
    """Yield joints and links, upright."""
    upright = _upright(body.gravity)
    for index, part in enumerate(body.bodies):
        base = upright if part.parent < 0 else np.eye(3)
        link = _link(part, index, base, limits)
        if drives is not None:
            link = replace(
                link,
                armature=float(drives.armature[index]),
                damping=float(drives.damping[index]),
                friction=float(drives.friction[index]),
            )
        yield link


def _upright(gravity: Point) -> Matrix:
    """Return the smallest rotation that turns gravity to −z, or none without gravity."""
    if not gravity.any():
        return np.eye(3)
    return Rotation.align_vectors([[0.0, 0.0, -1.0]], [gravity])[0].as_matrix()


def _link(body: Body, index: int, base: Matrix, limits: JointLimits | None) -> Link:
    assert body.joint is not None
    assert body.kind is not None
    kind = body.kind
    lower = -np.inf
    upper = speed = torque = np.inf
    if limits is not None:
        lower = float(limits.lower[index])
        upper = float(limits.upper[index])
        speed = float(limits.velocity[index])
        torque = float(limits.torque[index])
    if kind == "prismatic":
        lower = max(lower, -WIDE)
        upper = min(upper, WIDE)
    elif not np.isfinite([lower, upper]).all():
        kind = "continuous"
    # A continuous joint may have no limits at all, but readers reject speed without torque.
    if kind != "continuous" or min(speed, torque) < np.inf:
        speed = min(speed, WIDE)
        torque = min(torque, WIDE)
    return Link(
        name=body.joint,
        xyz=triple(base @ body.position),
        rpy=_roll_pitch_yaw(base @ body.rotation),
        axis=triple(body.axis),
        mass=body.mass,
        centre=triple(body.centre),
        inertia=moments_of(body.inertia),
        position=(lower, upper),
        velocity=speed,
        torque=torque,
        kind=kind,
    )


def _roll_pitch_yaw(rotation: Matrix) -> Triple:
    """Return angles about fixed x, y, z [rad], exact also at a pitch of ±90°."""
    yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
    # With the yaw taken away the rest is a pitch and a roll, whatever rounding did to the yaw.
    sine = np.sin(yaw)
    cosine = np.cos(yaw)
    pitch = np.arctan2(-rotation[2, 0], cosine * rotation[0, 0] + sine * rotation[1, 0])
    roll = np.arctan2(
        sine * rotation[0, 2] - cosine * rotation[1, 2],
        cosine * rotation[1, 1] - sine * rotation[0, 1],
    )
    return float(roll), float(pitch), float(yaw)
