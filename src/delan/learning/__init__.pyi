from .guests import ContestRow, Guest, GuestEntry, OwnNetwork, enter, standings
from .presets import PAPER, Preset
from .study import Study

__all__ = [
    "PAPER",
    "ContestRow",
    "Guest",
    "GuestEntry",
    "OwnNetwork",
    "Preset",
    "Study",
    "enter",
    "standings",
]
