from .guests import Guest, GuestEntry, OwnNetwork, Standing, enter, standings
from .presets import PAPER, Preset
from .study import Study

__all__ = [
    "PAPER",
    "Guest",
    "GuestEntry",
    "OwnNetwork",
    "Preset",
    "Standing",
    "Study",
    "enter",
    "standings",
]
