"""Twenty single-stroke letters of our own, drawn through a few points each, as motions of a pen."""

import numpy as np
import scipy
from jaxtyping import Float

from ..errors import DataError
from ..joints import Trajectory
from .easing import minimum_jerk

# fmt: off
POINTS: dict[str, tuple[tuple[float, float], ...]] = {
    "a": ((0.9, 0.8), (0.5, 1), (0.08, 0.5), (0.45, 0.02), (0.85, 0.5),
          (0.95, 0.95), (0.92, 0.4), (1.05, 0.03), (1.35, 0.3)),
    "b": ((0.1, 2), (0.1, 1), (0.1, 0.1), (0.17, 0.55), (0.5, 1), (0.9, 0.5), (0.5, 0), (0.15, 0.2)),
    "c": ((0.9, 0.8), (0.5, 1), (0.05, 0.5), (0.5, 0), (0.95, 0.25)),
    "d": ((0.85, 0.75), (0.45, 1), (0.05, 0.5), (0.4, 0), (0.8, 0.4),
          (0.95, 1.2), (1, 2), (0.97, 1), (1.05, 0.05), (1.35, 0.25)),
    "e": ((0.1, 0.45), (0.6, 0.58), (0.85, 0.85), (0.5, 1.05), (0.08, 0.5), (0.5, 0), (1, 0.3)),
    "g": ((0.85, 0.8), (0.45, 1), (0.05, 0.55), (0.4, 0.1), (0.8, 0.5),
          (0.92, 0.95), (0.92, 0), (0.8, -0.8), (0.4, -1), (0.05, -0.7)),
    "h": ((0.1, 2), (0.1, 1), (0.1, 0), (0.2, 0.6), (0.55, 1), (0.85, 0.6), (0.9, 0.1), (1.2, 0.15)),
    "l": ((0.05, 0.3), (0.45, 1.2), (0.45, 1.9), (0.25, 1.9), (0.2, 1), (0.38, 0.05), (0.8, 0.35)),
    "m": ((0.05, 1), (0.1, 0.5), (0.1, 0), (0.2, 0.6), (0.45, 1), (0.65, 0.6),
          (0.68, 0), (0.78, 0.6), (1.05, 1), (1.28, 0.6), (1.32, 0.1), (1.6, 0.15)),
    "n": ((0.05, 1), (0.1, 0.5), (0.1, 0), (0.2, 0.6), (0.5, 1), (0.8, 0.6), (0.85, 0.1), (1.15, 0.15)),
    "o": ((0.6, 1), (0.1, 0.6), (0.4, 0), (0.9, 0.4), (0.65, 0.98), (0.3, 0.9)),
    "p": ((0.1, 1), (0.1, 0), (0.1, -1), (0.13, 0), (0.25, 0.7), (0.55, 1), (0.9, 0.5), (0.5, 0), (0.15, 0.2)),
    "q": ((0.85, 0.8), (0.45, 1), (0.05, 0.5), (0.4, 0), (0.8, 0.45),
          (0.92, 0.95), (0.92, 0), (0.92, -0.9), (1.08, -0.6), (1.3, -0.2)),
    "r": ((0.1, 1), (0.1, 0.5), (0.1, 0), (0.2, 0.6), (0.5, 0.95), (0.8, 0.85)),
    "s": ((0.85, 0.85), (0.5, 1), (0.15, 0.75), (0.5, 0.5), (0.85, 0.25), (0.45, 0), (0.08, 0.2)),
    "u": ((0.1, 1), (0.1, 0.4), (0.4, 0), (0.8, 0.4), (0.9, 1), (0.9, 0.4), (1, 0.02), (1.3, 0.2)),
    "v": ((0.05, 1), (0.3, 0.4), (0.5, 0), (0.7, 0.5), (0.9, 1)),
    "w": ((0.05, 1), (0.15, 0.3), (0.4, 0), (0.65, 0.4), (0.7, 0.9), (0.75, 0.3), (1, 0), (1.25, 0.4), (1.35, 1)),
    "y": ((0.1, 1), (0.15, 0.45), (0.45, 0.15), (0.8, 0.5), (0.9, 1), (0.88, 0), (0.7, -0.8), (0.35, -1), (0.05, -0.7)),
    "z": ((0.1, 0.95), (0.5, 1), (0.9, 0.95), (0.5, 0.5), (0.1, 0.05), (0.5, 0.05), (0.95, 0.05)),
}
# fmt: on
"""Points of each stroke: x-height 1, ascenders to 2, descenders to −1."""

LETTERS = tuple(POINTS)


def draw_letter(letter: str, *, origin: tuple[float, float], height: float, speed: float, dt: float) -> Trajectory:
    """The pen's motion along a letter, from rest to rest, exact to the second derivative.

    Args:
        letter: one of `LETTERS`.
        origin: where the writing line starts [m].
        height: of a letter without ascender [m].
        speed: mean speed of the pen [m/s]; its peak is 1.9 times that.
        dt: sampling period [s].
    """
    if letter not in POINTS:
        raise DataError("letters", f"there is no letter {letter!r}; there are {' '.join(LETTERS)}")
    path = _path(letter)
    length = height * _length(path)
    count = max(2, round(length / speed / dt))
    share = np.arange(count + 1) / count
    duration = count * dt
    u, ud, udd = minimum_jerk(share)
    ud, udd = ud / duration, udd / duration**2
    slope, bend = path(u, 1), path(u, 2)
    return Trajectory(
        t=share * duration,
        q=np.asarray(origin) + height * path(u),
        qd=height * slope * ud[:, None],
        qdd=height * (bend * ud[:, None] ** 2 + slope * udd[:, None]),
        label=letter,
    )


def _path(letter: str) -> "scipy.interpolate.CubicSpline":
    """A natural cubic spline through the points, knots at centripetal distances, parameter from 0 to 1."""
    points = np.array(POINTS[letter])
    gaps = np.sqrt(np.linalg.norm(np.diff(points, axis=0), axis=1))
    knots = np.concatenate([[0.0], np.cumsum(gaps)])
    return scipy.interpolate.CubicSpline(knots / knots[-1], points, bc_type="natural")


def _length(path: "scipy.interpolate.CubicSpline") -> float:
    fine: Float[np.ndarray, "n 2"] = path(np.linspace(0, 1, 500))
    return float(np.linalg.norm(np.diff(fine, axis=0), axis=1).sum())
