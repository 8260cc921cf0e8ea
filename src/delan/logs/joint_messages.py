"""States of joints in ROS 2 messages: measured, and in some messages wanted as well."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

STATE = "sensor_msgs/msg/JointState"
CONTROLLER = "control_msgs/msg/JointTrajectoryControllerState"
DYNAMIC = "control_msgs/msg/DynamicJointState"
TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
# Messages that hold joints; of several topics, those of the first kind that has torques are read.
JOINT_MESSAGES = (STATE, CONTROLLER, DYNAMIC, TRAJECTORY)
# Quantity of each part of a state.
PARTS = {
    "position": "q",
    "velocity": "qd",
    "effort": "tau",
    "wanted_position": "q_des",
    "wanted_velocity": "qd_des",
    "wanted_effort": "tau_des",
}
_POINT_PARTS = {"position": "positions", "velocity": "velocities", "effort": "effort"}


@dataclass(frozen=True, eq=False)
class JointMessage:
    """A state of joints.

    Attributes:
        names: names of the joints, empty if the message has none.
        parts: numbers by the names of `PARTS`, those that the message has.
        stamp: its time [ns], None if it has none.
    """

    names: Sequence[str]
    parts: Mapping[str, np.ndarray]
    stamp: int | None

    def part(self, name: str) -> np.ndarray:
        """Return the numbers of a part, none if the message has not got it."""
        return self.parts.get(name, np.empty(0))


def joint_messages(kind: str, message: Any) -> Iterator[JointMessage]:
    """Yield the states in a message: many in a trajectory, one in all others."""
    stamp = _nanoseconds(message.header.stamp)
    if kind == TRAJECTORY:
        for point in message.points:
            since = _nanoseconds(point.time_from_start)
            yield JointMessage(message.joint_names, _of_point(point), stamp + since)
        return
    if kind == CONTROLLER:
        names = message.joint_names
        parts = _of_controller(message)
    elif kind == DYNAMIC:
        names = message.joint_names
        parts = _of_interfaces(message)
    else:
        names = message.name
        parts = {name: getattr(message, name) for name in _POINT_PARTS}
    yield JointMessage(names, parts, stamp or None)


def _nanoseconds(time: Any) -> int:
    return time.sec * 1_000_000_000 + time.nanosec


def _of_point(point: Any) -> dict[str, np.ndarray]:
    return {part: getattr(point, field) for part, field in _POINT_PARTS.items()}


def _of_controller(message: Any) -> dict[str, np.ndarray]:
    """Return what was measured, and what was wanted; the fields had other names before 2022."""
    parts = _of_point(_filled(message, "feedback", "actual"))
    wanted = _of_point(_filled(message, "reference", "desired"))
    for part, numbers in wanted.items():
        parts[f"wanted_{part}"] = numbers
    return parts


def _filled(message: Any, *names: str) -> Any:
    points = [getattr(message, name) for name in names if hasattr(message, name)]
    for point in points:
        if len(point.positions):
            return point
    return points[0]


def _of_interfaces(message: Any) -> dict[str, np.ndarray]:
    """Return the interfaces of all joints as parts, NaN where a joint lacks one."""
    parts: dict[str, np.ndarray] = {}
    for joint, values in enumerate(message.interface_values):
        for name, number in zip(values.interface_names, values.values, strict=False):
            if name in _POINT_PARTS:
                empty = np.full(len(message.joint_names), np.nan)
                parts.setdefault(name, empty)[joint] = number
    return parts
