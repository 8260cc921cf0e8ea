"""An arm as a table of numbers, from which the files of every engine are written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree

import numpy as np
import scipy

from ..errors import SettingsError
from ..joints import JointKind, JointLimits, Joints

Triple = tuple[float, float, float]
Moments = tuple[float, float, float, float, float, float]
MOMENTS = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
GRAVITY_ACCELERATION = 9.81
"""Along −z [m/s²]."""


@dataclass(frozen=True)
class Link:
    """A joint and the link behind it; lengths in the frame of the joint.

    Attributes:
        name: of the joint; kind, axis: how it moves.
        xyz, rpy: where the joint sits in the frame of the joint before it [m], [rad].
        mass: of the link [kg]; centre: of its mass [m].
        inertia: about that centre: xx yy zz xy xz yz [kg m²].
        position: lowest and highest joint position [rad or m].
        velocity, torque: largest joint speed [rad/s or m/s] and torque [N m or N].
        radius: how thick the link is drawn [m].
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


@dataclass(frozen=True)
class Arm:
    """A serial arm on a fixed base; `tool` is the end point in the frame of the last joint [m]."""

    name: str
    links: tuple[Link, ...]
    tool: Triple

    @property
    def joints(self) -> Joints:
        return Joints(tuple(link.name for link in self.links), tuple(link.kind for link in self.links))

    @property
    def limits(self) -> JointLimits:
        return JointLimits(
            lower=np.array([link.position[0] for link in self.links]),
            upper=np.array([link.position[1] for link in self.links]),
            velocity=np.array([link.velocity for link in self.links]),
            torque=np.array([link.torque for link in self.links]),
        )

    def locked(self, count: int, *, name: str) -> "Arm":
        """The arm with all joints but the first `count` locked at zero, their links welded to the last free one."""
        if not 1 <= count <= len(self.links):
            raise SettingsError(f"can keep 1 to {len(self.links)} joints of {self.name}, got {count}")
        links, tool = list(self.links), np.array(self.tool)
        while len(links) > count:
            last = links.pop()
            tool = np.array(last.xyz) + _turn(last) @ tool
            links[-1] = _welded(links[-1], last)
        return Arm(name, tuple(links), (float(tool[0]), float(tool[1]), float(tool[2])))

    def with_payload(self, mass: float) -> "Arm":
        """The arm with a point mass [kg] at its tool."""
        point = Link(
            name="payload",
            xyz=self.tool,
            rpy=(0.0, 0.0, 0.0),
            axis=(0.0, 0.0, 1.0),
            mass=mass,
            centre=(0.0, 0.0, 0.0),
            inertia=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            position=(0.0, 0.0),
            velocity=0.0,
            torque=0.0,
        )
        return replace(self, links=(*self.links[:-1], _welded(self.links[-1], point)))

    def urdf(self, *, for_bullet: bool = False) -> str:
        """The arm as URDF text.

        PyBullet turns inertias to their principal axes with a coarse tolerance and complains of a base without mass;
        `for_bullet` spares it both. The arm is the same.
        """
        return tree_urdf(self.name, self.links, range(-1, len(self.links) - 1), for_bullet=for_bullet)

    def mjcf(self) -> str:
        """The arm as MJCF text, for MuJoCo: torque motors, joint stops, and capsules for a person to see."""
        root = ElementTree.Element("mujoco", model=self.name)
        ElementTree.SubElement(
            root, "compiler", angle="radian", eulerseq="XYZ", autolimits="true", balanceinertia="false"
        )
        gravity = f"0 0 {-GRAVITY_ACCELERATION!r}"
        option = ElementTree.SubElement(root, "option", gravity=gravity, integrator="RK4", timestep="0.001")
        ElementTree.SubElement(option, "flag", contact="disable")
        visual = ElementTree.SubElement(root, "visual")
        ElementTree.SubElement(visual, "quality", shadowsize="0", offsamples="0")
        body = ElementTree.SubElement(root, "worldbody")
        ElementTree.SubElement(body, "light", pos="1 -1 3", dir="-0.3 0.3 -1")
        _capsule(body, (0.0, 0.0, 0.0), self.links[0].xyz, self.links[0].radius)
        actuator = ElementTree.SubElement(root, "actuator")
        ends = [*(link.xyz for link in self.links[1:]), self.tool]
        for link, end in zip(self.links, ends, strict=True):
            body = ElementTree.SubElement(
                body, "body", name=f"{link.name}_link", pos=_numbers(link.xyz), euler=_numbers(link.rpy)
            )
            moments = _numbers(link.inertia)
            ElementTree.SubElement(
                body, "inertial", pos=_numbers(link.centre), mass=repr(link.mass), fullinertia=moments
            )
            kind = "slide" if link.kind == "prismatic" else "hinge"
            joint = ElementTree.SubElement(body, "joint", name=link.name, type=kind, axis=_numbers(link.axis))
            if link.kind != "continuous":
                joint.set("range", _numbers(link.position))
                joint.set("solreflimit", "0.003 1")  # stops as hard as the step allows
            _capsule(body, (0.0, 0.0, 0.0), end, link.radius)
            limits = _numbers((-link.torque, link.torque))
            ElementTree.SubElement(actuator, "motor", name=link.name, joint=link.name, ctrlrange=limits)
        ElementTree.SubElement(body, "site", name="tool", pos=_numbers(self.tool), size="0.01")
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode")


def tree_urdf(name: str, links: Sequence[Link], parents: Sequence[int], *, for_bullet: bool = False) -> str:
    """Joints and links as URDF text; `parents` names, by index, the one that each hangs on, −1 for the base.

    The limits of a joint are left out if one is not finite; a prismatic joint must have them, a continuous one has none
    of its position.
    """
    robot = ElementTree.Element("robot", name=name)
    base = ElementTree.SubElement(robot, "link", name="base")
    if for_bullet:
        _urdf_inertial(base, 1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 0.0, 0.0, 0.0), principal=False)
    for link, parent in zip(links, parents, strict=True):
        child = f"{link.name}_link"
        body = ElementTree.SubElement(robot, "link", name=child)
        _urdf_inertial(body, link.mass, link.centre, link.inertia, principal=for_bullet)
        joint = ElementTree.SubElement(robot, "joint", name=link.name, type=link.kind)
        ElementTree.SubElement(joint, "parent", link=f"{links[parent].name}_link" if parent >= 0 else "base")
        ElementTree.SubElement(joint, "child", link=child)
        ElementTree.SubElement(joint, "origin", xyz=_numbers(link.xyz), rpy=_numbers(link.rpy))
        ElementTree.SubElement(joint, "axis", xyz=_numbers(link.axis))
        position = {} if link.kind == "continuous" else dict(zip(("lower", "upper"), link.position, strict=True))
        limits = position | {"velocity": link.velocity, "effort": link.torque}
        if np.isfinite(list(limits.values())).all():
            ElementTree.SubElement(joint, "limit", {name: repr(value) for name, value in limits.items()})
    ElementTree.indent(robot)
    return ElementTree.tostring(robot, encoding="unicode")


def _urdf_inertial(
    body: ElementTree.Element, mass: float, centre: Triple, inertia: Moments, *, principal: bool
) -> None:
    turn = (0.0, 0.0, 0.0)
    if principal:
        moments, axes = np.linalg.eigh(_matrix(inertia))
        axes = axes * np.sign(np.linalg.det(axes))
        angles = scipy.spatial.transform.Rotation.from_matrix(axes).as_euler("xyz")
        turn = (float(angles[0]), float(angles[1]), float(angles[2]))
        inertia = (float(moments[0]), float(moments[1]), float(moments[2]), 0.0, 0.0, 0.0)
    inertial = ElementTree.SubElement(body, "inertial")
    ElementTree.SubElement(inertial, "origin", xyz=_numbers(centre), rpy=_numbers(turn))
    ElementTree.SubElement(inertial, "mass", value=repr(mass))
    named = {name: repr(value) for name, value in zip(MOMENTS, inertia, strict=True)}
    ElementTree.SubElement(inertial, "inertia", named)


def _turn(link: Link) -> np.ndarray:
    """The frame of the joint in that of the joint before it: about fixed x, then y, then z.

    By hand, as the arms are made whenever they are imported, and a page that opens should not wait for SciPy.
    """
    (cx, cy, cz), (sx, sy, sz) = np.cos(link.rpy), np.sin(link.rpy)
    return np.array(
        [
            [cy * cz, sx * sy * cz - cx * sz, cx * sy * cz + sx * sz],
            [cy * sz, sx * sy * sz + cx * cz, cx * sy * sz - sx * cz],
            [-sy, sx * cy, cx * cy],
        ]
    )


def _welded(link: Link, child: Link) -> Link:
    """The link with its child, at joint position zero, as one body: masses, centres and moments added up."""
    turn, place = _turn(child), np.array(child.xyz)
    parts = [
        (link.mass, np.array(link.centre), _matrix(link.inertia)),
        (child.mass, place + turn @ child.centre, turn @ _matrix(child.inertia) @ turn.T),
    ]
    mass = sum(part[0] for part in parts)
    centre = sum(part[0] * part[1] for part in parts) / mass
    total = np.zeros((3, 3))
    for part_mass, part_centre, inertia in parts:
        away = part_centre - centre
        total += inertia + part_mass * (away @ away * np.eye(3) - np.outer(away, away))  # parallel axes
    at = (0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2)
    xx, yy, zz, xy, xz, yz = total[at].tolist()
    x, y, z = np.asarray(centre).tolist()
    return replace(link, mass=float(mass), centre=(x, y, z), inertia=(xx, yy, zz, xy, xz, yz))


def _matrix(inertia: Moments) -> np.ndarray:
    xx, yy, zz, xy, xz, yz = inertia
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _capsule(body: ElementTree.Element, start: Triple, end: Triple, radius: float) -> None:
    """Something to see, without mass or contact; a ball where the next joint sits in the same place."""
    shape = {"type": "capsule", "fromto": _numbers((*start, *end))} if start != end else {"type": "sphere"}
    looks = {"size": repr(radius), "contype": "0", "conaffinity": "0", "density": "0", "rgba": "0.75 0.78 0.82 1"}
    ElementTree.SubElement(body, "geom", {**shape, **looks})


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(repr(value) for value in values)
