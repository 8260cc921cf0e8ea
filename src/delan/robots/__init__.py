"""Robots: arms as tables of numbers, and adapters that move them in a simulator.

`ARMS` holds the arms of the package by the names that the command line knows; `from_urdf` and
`from_mjcf` read any other robot.
"""

from typing import TYPE_CHECKING, Any

from ..errors import RobotError
from .arms import TWO_LINK, WAM4, WAM7
from .description import Arm

if TYPE_CHECKING:
    from .robot_files import from_mjcf as from_mjcf
    from .robot_files import from_urdf as from_urdf

ARMS: dict[str, Arm] = {"two-link": TWO_LINK, "wam4": WAM4, "wam7": WAM7}


def arm_named(name: str) -> Arm:
    """Return the arm with this name in `ARMS`."""
    if name not in ARMS:
        raise RobotError(
            f"unknown robot {name!r}; available: {', '.join(ARMS)}; "
            "to use your own robot, see docs/guides/online.md"
        )
    return ARMS[name]


def __getattr__(name: str) -> Any:
    """Import the readers of robot files on first use: they import the simulators, which is slow."""
    if name in ("from_mjcf", "from_urdf"):
        from . import robot_files  # noqa: PLC0415

        return getattr(robot_files, name)
    raise AttributeError(f"module 'delan.robots' has no attribute {name!r}")
