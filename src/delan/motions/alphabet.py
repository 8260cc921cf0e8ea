"""An alphabet: the letters that an arm can write, drawn by us or recorded from a hand.

Where an option takes an alphabet, it is a word: `own` for the letters of the package, `uci=FILE`
for the recorded strokes of a file that `read_pen_strokes` takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..errors import SettingsError
from ..joints import Trajectory
from .letters import LETTERS, Stroke, draw_letter, draw_stroke, read_pen_strokes

OWN = "own"
RECORDED = "uci="
# Longer side of a recorded letter, in heights of a drawn letter without ascender: the mean over the
# letters of the package is 1.46.
STROKE_SIZE = 1.5


@dataclass(frozen=True, eq=False)
class Alphabet:
    """The twenty letters by which an arm is driven.

    Attributes:
        name: the word that asks for this alphabet, `own` or `uci=FILE`.
        strokes: recorded strokes of each letter; None: letters are drawn through points.
    """

    name: str = OWN
    # Strokes have different lengths, which one shape annotation cannot say.
    strokes: Mapping[str, Sequence[Any]] | None = None

    @property
    def description(self) -> str:
        """Where the letters come from, in a few words."""
        if self.strokes is None:
            return "the package's own alphabet"
        count = sum(len(strokes) for strokes in self.strokes.values())
        return f"{count} recorded pen strokes of the UCI data set 'Character Trajectories'"

    def pen(
        self,
        letter: str,
        *,
        origin: tuple[float, float],
        height: float,
        speed: float,
        dt: float,
        sample: int = 0,
    ) -> Trajectory:
        """Return the motion of the pen along a letter, from rest to rest.

        Args:
            origin, height: place and size of the writing line [m], as in `draw_letter`.
            speed: mean speed of the pen [m/s].
            sample: which of the recorded strokes of the letter; larger numbers begin anew.
        """
        if self.strokes is None:
            return draw_letter(letter, origin=origin, height=height, speed=speed, dt=dt)
        recorded = self.strokes[letter]
        stroke = recorded[sample % len(recorded)]
        size = STROKE_SIZE * height
        duration = size * _length(stroke) / speed
        return draw_stroke(stroke, origin=origin, size=size, duration=duration, dt=dt, label=letter)


def _length(stroke: Stroke) -> float:
    """Return the length of a recorded path over the longer side of the letter."""
    path = np.cumsum(stroke[:, 1:], axis=0)
    side = float(np.ptp(path, axis=0).max())
    return float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum()) / max(side, 1e-9)


@cache
def alphabet_named(name: str) -> Alphabet:
    """Return the alphabet of a word, `own` or `uci=FILE`; raise if it lacks a letter."""
    if name == OWN:
        return Alphabet()
    if not name.startswith(RECORDED):
        raise SettingsError(f"unknown letters {name!r}; give {OWN}, or {RECORDED}FILE")
    file = name.removeprefix(RECORDED)
    strokes = read_pen_strokes(file)
    missing = [letter for letter in LETTERS if not strokes.get(letter)]
    if missing:
        raise SettingsError(
            f"{file} has no stroke of {', '.join(missing)}; all twenty letters are needed: "
            f"{' '.join(LETTERS)}"
        )
    return Alphabet(name, strokes)
