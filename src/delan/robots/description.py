"""An arm as a table of numbers, from which URDF and MJCF files are written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Comment, Element, SubElement, indent, tostring

import numpy as np
import scipy

from ..errors import SettingsError
from ..joints import JointKind, JointLimits, Joints

Triple = tuple[float, float, float]
Moments = tuple[float, float, float, float, float, float]

GRAVITY_ACCELERATION = 9.81  # along −z [m/s²]
# Order of `Moments`, as attributes of a URDF and as rows and columns of the inertia matrix.
MOMENTS = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
MOMENT_PLACES = ((0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2))


@dataclass(frozen=True)
class Link:
    """A joint and the link it moves; lengths are in the frame of the joint.

    Attributes:
        name: of the joint.
        xyz, rpy: pose of the joint in the frame of the previous joint [m], [rad].
        axis, kind: how the joint moves.
        mass: of the link [kg].
        centre: centre of mass [m].
        inertia: about that centre: xx yy zz xy xz yz [kg m²].
        position: lower and upper joint limit [rad or m].
        velocity, torque: largest joint speed [rad/s or m/s] and torque [N m or N].
        radius: of the capsule that is drawn for the link [m].
        armature: inertia of the joint's rotor [kg m² or kg].
        damping, friction: viscous [N m s/rad or N s/m] and dry friction [N m or N] of the joint.
    """

    name: str
    xyz: Triple
    rpy: Triple
    axis: Triple
    mass: float
    centre: Triple
    inertia: Moments
    position: tuple[float, float]
    velocity: float
    torque: float
    kind: JointKind = "revolute"
    radius: float = 0.03
    armature: float = 0.0
    damping: float = 0.0
    friction: float = 0.0


@dataclass(frozen=True)
class Differential:
    """A motor that turns with two joints, q_m = q_first + ratio q_second, by indices of joints.

    `armature`, `damping` and `friction` are as in `Link`.
    """

    first: int
    second: int
    ratio: float
    armature: float
    damping: float
    friction: float


@dataclass(frozen=True)
class Scene:
    """What an MJCF file holds beside joints and links.

    Attributes:
        gravity: its acceleration along −z [m/s²].
        integrator: of MuJoCo.
        user_numbers: length of the user data of a simulation.
        comment: at the top of the file; plain words, for no character is escaped in a comment.
        differentials: motors that turn with two joints.
    """

    gravity: float = GRAVITY_ACCELERATION
    integrator: str = "RK4"
    user_numbers: int = 0
    comment: str = ""
    differentials: tuple[Differential, ...] = ()


@dataclass(frozen=True)
class Arm:
    """A serial arm on a fixed base; `tool` is the end point in the frame of the last joint [m]."""

    name: str
    links: tuple[Link, ...]
    tool: Triple

    @property
    def joints(self) -> Joints:
        names = tuple(link.name for link in self.links)
        return Joints(names, tuple(link.kind for link in self.links))

    @property
    def limits(self) -> JointLimits:
        lower, upper = np.array([link.position for link in self.links]).T
        return JointLimits(
            lower=lower,
            upper=upper,
            velocity=np.array([link.velocity for link in self.links]),
            torque=np.array([link.torque for link in self.links]),
        )

    def locked(self, count: int, *, name: str) -> "Arm":
        """Return the arm with all joints but the first `count` locked at zero."""
        if not 1 <= count <= len(self.links):
            raise SettingsError(
                f"{self.name} can have 1 to {len(self.links)} free joints, got {count}"
            )
        links = list(self.links)
        tool = np.array(self.tool)
        while len(links) > count:
            last = links.pop()
            tool = np.array(last.xyz) + _rotation(last) @ tool
            links[-1] = _welded(links[-1], last)
        return Arm(name, tuple(links), triple(tool))

    def urdf(self, *, for_bullet: bool = False) -> str:
        """Return the arm as URDF text.

        PyBullet rotates inertias to their principal axes with a coarse tolerance and warns about a
        base without mass; `for_bullet` avoids both and describes the same arm.
        """
        parents = range(-1, len(self.links) - 1)
        return tree_urdf(self.name, self.links, parents, for_bullet=for_bullet)

    def mjcf(self) -> str:
        """Return the arm as MJCF text with torque motors, joint stops and capsules to look at."""
        return tree_mjcf(self.name, self.links, range(-1, len(self.links) - 1), tool=self.tool)


def tree_mjcf(
    name: str,
    links: Sequence[Link],
    parents: Sequence[int],
    *,
    tool: Triple | None = None,
    scene: Scene | None = None,
) -> str:
    """Return joints and links as MJCF text, with capsules to look at that touch nothing.

    `parents` holds the index of the link that each joint is attached to, −1 for the base. `tool` is
    the end point of a serial arm in the frame of its last joint. A joint or motor has no limit
    where that is infinite.
    """
    scene = scene or Scene()
    root = _mjcf_scene(name, scene)
    world = SubElement(root, "worldbody")
    SubElement(world, "light", pos="1 -1 3", dir="-0.3 0.3 -1")
    actuator = SubElement(root, "actuator")
    bodies: list[Element] = []
    for link, parent in zip(links, parents, strict=True):
        holder = world
        radius = link.radius
        if parent >= 0:
            holder = bodies[parent]
            radius = links[parent].radius
        _capsule(holder, link.xyz, radius)
        bodies.append(_mjcf_body(holder, link))
        motor = SubElement(actuator, "motor", name=link.name, joint=link.name)
        if np.isfinite(link.torque):
            motor.set("ctrlrange", _numbers((-link.torque, link.torque)))
    for index in set(range(len(links))) - set(parents):
        end = links[index].centre if tool is None else tool
        _capsule(bodies[index], end, links[index].radius)
    if tool is not None:
        SubElement(bodies[-1], "site", name="tool", pos=_numbers(tool), size="0.01")
    if scene.differentials:
        _tendons(SubElement(root, "tendon"), links, scene.differentials)
    return _text(root)


def _mjcf_scene(name: str, scene: Scene) -> Element:
    """Return the root of an MJCF file with everything but the arm."""
    root = Element("mujoco", model=name)
    if scene.comment:
        root.append(Comment(f" {scene.comment} "))
    compiler = {
        "angle": "radian",
        "eulerseq": "XYZ",
        "autolimits": "true",
        "balanceinertia": "false",
    }
    SubElement(root, "compiler", compiler)
    option = SubElement(
        root,
        "option",
        gravity=f"0 0 {-scene.gravity!r}",
        integrator=scene.integrator,
        timestep="0.001",
    )
    SubElement(option, "flag", contact="disable")
    if scene.user_numbers:
        SubElement(root, "size", nuserdata=str(scene.user_numbers))
    visual = SubElement(root, "visual")
    SubElement(visual, "quality", shadowsize="0", offsamples="0")
    return root


def _mjcf_body(parent: Element, link: Link) -> Element:
    pose = {"pos": _numbers(link.xyz), "euler": _numbers(link.rpy)}
    body = SubElement(parent, "body", {"name": f"{link.name}_link", **pose})
    inertial = {
        "pos": _numbers(link.centre),
        "mass": repr(link.mass),
        "fullinertia": _numbers(link.inertia),
    }
    SubElement(body, "inertial", inertial)
    kind = "slide" if link.kind == "prismatic" else "hinge"
    joint = SubElement(body, "joint", name=link.name, type=kind, axis=_numbers(link.axis))
    _set_drive(joint, link)
    if link.kind != "continuous" and np.isfinite(link.position).all():
        joint.set("range", _numbers(link.position))
        joint.set("solreflimit", "0.003 1")  # stops as stiff as the time step allows
    return body


def _set_drive(element: Element, drive: Link | Differential) -> None:
    """Set rotor, damping and friction of a joint or tendon, unless they are zero."""
    values = {
        "armature": drive.armature,
        "damping": drive.damping,
        "frictionloss": drive.friction,
    }
    for name, value in values.items():
        if value:
            element.set(name, repr(value))


def _tendons(parent: Element, links: Sequence[Link], motors: Sequence[Differential]) -> None:
    """Add a tendon for each motor that turns with two joints."""
    for index, motor in enumerate(motors):
        tendon = SubElement(parent, "fixed", name=f"differential{index}")
        _set_drive(tendon, motor)
        SubElement(tendon, "joint", joint=links[motor.first].name, coef="1")
        SubElement(tendon, "joint", joint=links[motor.second].name, coef=repr(motor.ratio))


def _capsule(body: Element, end: Triple, radius: float) -> None:
    """Draw a link from its joint to `end`, without mass or contact; a sphere if both coincide."""
    origin = (0.0, 0.0, 0.0)
    shape = {"type": "sphere"}
    # MuJoCo refuses capsules whose ends are closer.
    if np.linalg.norm(end) > 1e-6:
        shape = {"type": "capsule", "fromto": _numbers((*origin, *end))}
    appearance = {
        "size": repr(radius),
        "contype": "0",
        "conaffinity": "0",
        "density": "0",
        "rgba": "0.75 0.78 0.82 1",
    }
    SubElement(body, "geom", {**shape, **appearance})


def tree_urdf(
    name: str, links: Sequence[Link], parents: Sequence[int], *, for_bullet: bool = False
) -> str:
    """Return joints and links as URDF text.

    `parents` holds the index of the link that each joint is attached to, −1 for the base. The
    limits of a joint are omitted unless all are finite. A prismatic joint must have them; a
    continuous joint has no position limits.
    """
    robot = Element("robot", name=name)
    base = SubElement(robot, "link", name="base")
    if for_bullet:
        _urdf_inertial(base, 1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 0.0, 0.0, 0.0))
    for link, parent in zip(links, parents, strict=True):
        child = f"{link.name}_link"
        body = SubElement(robot, "link", name=child)
        if for_bullet:
            _urdf_principal_inertial(body, link)
        else:
            _urdf_inertial(body, link.mass, link.centre, link.inertia)
        joint = SubElement(robot, "joint", name=link.name, type=link.kind)
        parent_link = f"{links[parent].name}_link" if parent >= 0 else "base"
        SubElement(joint, "parent", link=parent_link)
        SubElement(joint, "child", link=child)
        SubElement(joint, "origin", xyz=_numbers(link.xyz), rpy=_numbers(link.rpy))
        SubElement(joint, "axis", xyz=_numbers(link.axis))
        limits = {}
        if link.kind != "continuous":
            limits = {"lower": link.position[0], "upper": link.position[1]}
        limits |= {"velocity": link.velocity, "effort": link.torque}
        if np.isfinite(list(limits.values())).all():
            SubElement(joint, "limit", {name: repr(value) for name, value in limits.items()})
        if link.damping or link.friction:
            drive = {"damping": repr(link.damping), "friction": repr(link.friction)}
            SubElement(joint, "dynamics", drive)
    return _text(robot)


def _urdf_inertial(
    body: Element, mass: float, centre: Triple, inertia: Moments, rpy: Triple = (0.0, 0.0, 0.0)
) -> None:
    inertial = SubElement(body, "inertial")
    SubElement(inertial, "origin", xyz=_numbers(centre), rpy=_numbers(rpy))
    SubElement(inertial, "mass", value=repr(mass))
    values = map(repr, inertia)
    SubElement(inertial, "inertia", dict(zip(MOMENTS, values, strict=True)))


def _urdf_principal_inertial(body: Element, link: Link) -> None:
    moments, axes = np.linalg.eigh(_inertia_matrix(link.inertia))
    axes = axes * np.sign(np.linalg.det(axes))
    rpy = triple(scipy.spatial.transform.Rotation.from_matrix(axes).as_euler("xyz"))
    _urdf_inertial(body, link.mass, link.centre, (*triple(moments), 0.0, 0.0, 0.0), rpy)


def _text(root: Element) -> str:
    indent(root)
    return tostring(root, encoding="unicode")


def _rotation(link: Link) -> np.ndarray:
    """Return the orientation of a joint in the previous frame: about fixed x, then y, then z.

    Written out because the arms are built on import, and the page should open without loading
    SciPy's rotations.
    """
    cx, cy, cz = np.cos(link.rpy)
    sx, sy, sz = np.sin(link.rpy)
    return np.array(
        [
            [cy * cz, sx * sy * cz - cx * sz, cx * sy * cz + sx * sz],
            [cy * sz, sx * sy * sz + cx * cz, cx * sy * sz - sx * cz],
            [-sy, sx * cy, cx * cy],
        ]
    )


def _welded(link: Link, child: Link) -> Link:
    """Return the link and its child, at joint position zero, as a single rigid body."""
    turn = _rotation(child)
    parts = [
        (link.mass, np.array(link.centre), _inertia_matrix(link.inertia)),
        (
            child.mass,
            np.array(child.xyz) + turn @ child.centre,
            turn @ _inertia_matrix(child.inertia) @ turn.T,
        ),
    ]
    mass = sum(part_mass for part_mass, _, _ in parts)
    centre = sum(part_mass * part_centre for part_mass, part_centre, _ in parts) / mass
    total = np.zeros((3, 3))
    for part_mass, part_centre, inertia in parts:
        offset = part_centre - centre
        # The parallel-axis theorem.
        total += inertia + part_mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))
    return replace(
        link, mass=float(mass), centre=triple(np.asarray(centre)), inertia=moments_of(total)
    )


def _inertia_matrix(inertia: Moments) -> np.ndarray:
    xx, yy, zz, xy, xz, yz = inertia
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def moments_of(inertia: np.ndarray) -> Moments:
    """Return the six moments of a 3 × 3 inertia matrix."""
    xx, yy, zz, xy, xz, yz = inertia[MOMENT_PLACES].tolist()
    return xx, yy, zz, xy, xz, yz


def triple(vector: np.ndarray) -> Triple:
    """Return the three components of a vector as Python numbers."""
    x, y, z = vector.tolist()
    return x, y, z


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(map(repr, values))
