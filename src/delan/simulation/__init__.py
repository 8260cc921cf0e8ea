"""A learned model in motion: implicit steps, and replays of logs in open and closed loop."""

from .replay import LogReplay, ReplaySettings, replay
from .stepper import Drive, MovingState, at_rest, driven, step

__all__ = [
    "Drive",
    "LogReplay",
    "MovingState",
    "ReplaySettings",
    "at_rest",
    "driven",
    "replay",
    "step",
]
