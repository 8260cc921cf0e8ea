"""The arms that come with the package, by the names that the command line knows."""

from ..errors import RobotError
from .barrett_wam import WAM4, WAM7
from .description import Arm
from .two_link import TWO_LINK

ARMS: dict[str, Arm] = {"two-link": TWO_LINK, "wam4": WAM4, "wam7": WAM7}


def arm_named(name: str) -> Arm:
    """The arm of that name."""
    if name not in ARMS:
        raise RobotError(
            f"there is no robot {name!r}; there are {', '.join(ARMS)}; one of yours: docs/guides/online.md"
        )
    return ARMS[name]
