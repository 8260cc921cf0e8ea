"""A learned model in motion: implicit steps, replays of logs, a robot and its environment."""

from typing import TYPE_CHECKING, Any

from .learned_robot import LearnedRobot
from .replay import LogReplay, ReplaySettings, replay
from .stepper import Drive, MovingState, at_rest, driven, step

if TYPE_CHECKING:
    from .environment import ReachEnvironment as ReachEnvironment

__all__ = [
    "Drive",
    "LearnedRobot",
    "LogReplay",
    "MovingState",
    "ReplaySettings",
    "at_rest",
    "driven",
    "replay",
    "step",
]


def __getattr__(name: str) -> Any:
    """Import the environment on first use: it needs Gymnasium, which is optional."""
    if name == "ReachEnvironment":
        from .environment import ReachEnvironment  # noqa: PLC0415

        return ReachEnvironment
    raise AttributeError(f"module 'delan.simulation' has no attribute {name!r}")
