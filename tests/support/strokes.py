"""Recorded strokes of all letters, as a file of the UCI data set would have them."""

from pathlib import Path

import numpy as np

from delan.motions.letters import LETTERS


def circle(samples: int = 150) -> np.ndarray:
    """Return force and velocities of a pen that draws a circle of radius 1 at 200 Hz."""
    angle = np.linspace(0, 2 * np.pi, samples)
    rate = 2 * np.pi / (samples / 200)
    return np.stack([np.ones(samples), -rate * np.sin(angle), rate * np.cos(angle)], axis=1)


def write_strokes(path: Path, letters: str = "".join(LETTERS)) -> Path:
    """Write two strokes of each letter: a circle, and a slower one."""
    strokes = {}
    for letter in letters:
        strokes[f"{letter}_0"] = circle(150)
        strokes[f"{letter}_1"] = circle(200)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **strokes)
    return path
