"""An arm as a table of numbers, from which the files of every engine are written."""

from dataclasses import dataclass
from xml.etree import ElementTree

from ..joints import JointKind, Joints

Triple = tuple[float, float, float]


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
    """

    name: str
    xyz: Triple
    rpy: Triple
    axis: Triple
    mass: float
    centre: Triple
    inertia: tuple[float, float, float, float, float, float]
    position: tuple[float, float]
    velocity: float
    torque: float
    kind: JointKind = "revolute"


@dataclass(frozen=True)
class Arm:
    """A serial arm on a fixed base; `tool` is the end point in the frame of the last joint [m]."""

    name: str
    links: tuple[Link, ...]
    tool: Triple

    @property
    def joints(self) -> Joints:
        return Joints(tuple(link.name for link in self.links), tuple(link.kind for link in self.links))

    def urdf(self) -> str:
        """The arm as URDF text."""
        robot = ElementTree.Element("robot", name=self.name)
        ElementTree.SubElement(robot, "link", name="base")
        parent = "base"
        for link in self.links:
            child = f"{link.name}_link"
            body = ElementTree.SubElement(robot, "link", name=child)
            inertial = ElementTree.SubElement(body, "inertial")
            ElementTree.SubElement(inertial, "origin", xyz=_numbers(link.centre), rpy="0 0 0")
            ElementTree.SubElement(inertial, "mass", value=repr(link.mass))
            names = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
            moments = {name: repr(value) for name, value in zip(names, link.inertia, strict=True)}
            ElementTree.SubElement(inertial, "inertia", moments)
            joint = ElementTree.SubElement(robot, "joint", name=link.name, type=link.kind)
            ElementTree.SubElement(joint, "parent", link=parent)
            ElementTree.SubElement(joint, "child", link=child)
            ElementTree.SubElement(joint, "origin", xyz=_numbers(link.xyz), rpy=_numbers(link.rpy))
            ElementTree.SubElement(joint, "axis", xyz=_numbers(link.axis))
            low, high = link.position
            limits = {"lower": low, "upper": high, "velocity": link.velocity, "effort": link.torque}
            ElementTree.SubElement(joint, "limit", {name: repr(value) for name, value in limits.items()})
            parent = child
        ElementTree.indent(robot)
        return ElementTree.tostring(robot, encoding="unicode")


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(repr(value) for value in values)
