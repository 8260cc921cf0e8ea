"""Letters as motions of a pen: twenty drawn through points, and recorded ones of the UCI data set.

The UCI data set 'Character Trajectories' holds strokes of real handwriting, recorded at 200 Hz:
force of the pen tip and pen velocities (x, y), in normalised units.
"""

import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline, make_smoothing_spline
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from ..errors import DataError
from ..joints import Trajectory
from .cosines import minimum_jerk

Stroke = Float[np.ndarray, "time 3"]

# Sampling rate of the recorded strokes [Hz].
STROKE_RATE = 200.0
# Smoothing of recorded strokes, over a parameter from 0 to 1: it removes the tremor of the hand
# from the accelerations and leaves the shape.
SMOOTHING = 1e-8
# Share of a recorded stroke's duration in which the pen starts, and in which it stops.
RAMP = 0.1
# What readers of MATLAB and npz files raise on other files.
NOT_THE_DATA_SET = (
    MatReadError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    NotImplementedError,
    zipfile.BadZipFile,
)

# Points of each letter: x-height 1, ascenders to 2, descenders to −1.
# fmt: off
POINTS: dict[str, tuple[tuple[float, float], ...]] = {
    "a": ((0.9, 0.8), (0.5, 1), (0.08, 0.5), (0.45, 0.02), (0.85, 0.5),
          (0.95, 0.95), (0.92, 0.4), (1.05, 0.03), (1.35, 0.3)),
    "b": ((0.1, 2), (0.1, 1), (0.1, 0.1), (0.17, 0.55), (0.5, 1), (0.9, 0.5), (0.5, 0),
          (0.15, 0.2)),
    "c": ((0.9, 0.8), (0.5, 1), (0.05, 0.5), (0.5, 0), (0.95, 0.25)),
    "d": ((0.85, 0.75), (0.45, 1), (0.05, 0.5), (0.4, 0), (0.8, 0.4),
          (0.95, 1.2), (1, 2), (0.97, 1), (1.05, 0.05), (1.35, 0.25)),
    "e": ((0.1, 0.45), (0.6, 0.58), (0.85, 0.85), (0.5, 1.05), (0.08, 0.5), (0.5, 0), (1, 0.3)),
    "g": ((0.85, 0.8), (0.45, 1), (0.05, 0.55), (0.4, 0.1), (0.8, 0.5),
          (0.92, 0.95), (0.92, 0), (0.8, -0.8), (0.4, -1), (0.05, -0.7)),
    "h": ((0.1, 2), (0.1, 1), (0.1, 0), (0.2, 0.6), (0.55, 1), (0.85, 0.6), (0.9, 0.1),
          (1.2, 0.15)),
    "l": ((0.05, 0.3), (0.45, 1.2), (0.45, 1.9), (0.25, 1.9), (0.2, 1), (0.38, 0.05), (0.8, 0.35)),
    "m": ((0.05, 1), (0.1, 0.5), (0.1, 0), (0.2, 0.6), (0.45, 1), (0.65, 0.6),
          (0.68, 0), (0.78, 0.6), (1.05, 1), (1.28, 0.6), (1.32, 0.1), (1.6, 0.15)),
    "n": ((0.05, 1), (0.1, 0.5), (0.1, 0), (0.2, 0.6), (0.5, 1), (0.8, 0.6), (0.85, 0.1),
          (1.15, 0.15)),
    "o": ((0.6, 1), (0.1, 0.6), (0.4, 0), (0.9, 0.4), (0.65, 0.98), (0.3, 0.9)),
    "p": ((0.1, 1), (0.1, 0), (0.1, -1), (0.13, 0), (0.25, 0.7), (0.55, 1), (0.9, 0.5), (0.5, 0),
          (0.15, 0.2)),
    "q": ((0.85, 0.8), (0.45, 1), (0.05, 0.5), (0.4, 0), (0.8, 0.45),
          (0.92, 0.95), (0.92, 0), (0.92, -0.9), (1.08, -0.6), (1.3, -0.2)),
    "r": ((0.1, 1), (0.1, 0.5), (0.1, 0), (0.2, 0.6), (0.5, 0.95), (0.8, 0.85)),
    "s": ((0.85, 0.85), (0.5, 1), (0.15, 0.75), (0.5, 0.5), (0.85, 0.25), (0.45, 0), (0.08, 0.2)),
    "u": ((0.1, 1), (0.1, 0.4), (0.4, 0), (0.8, 0.4), (0.9, 1), (0.9, 0.4), (1, 0.02), (1.3, 0.2)),
    "v": ((0.05, 1), (0.3, 0.4), (0.5, 0), (0.7, 0.5), (0.9, 1)),
    "w": ((0.05, 1), (0.15, 0.3), (0.4, 0), (0.65, 0.4), (0.7, 0.9), (0.75, 0.3), (1, 0),
          (1.25, 0.4), (1.35, 1)),
    "y": ((0.1, 1), (0.15, 0.45), (0.45, 0.15), (0.8, 0.5), (0.9, 1), (0.88, 0), (0.7, -0.8),
          (0.35, -1), (0.05, -0.7)),
    "z": ((0.1, 0.95), (0.5, 1), (0.9, 0.95), (0.5, 0.5), (0.1, 0.05), (0.5, 0.05), (0.95, 0.05)),
}
# fmt: on

LETTERS = tuple(POINTS)


def draw_letter(
    letter: str, *, origin: tuple[float, float], height: float, speed: float, dt: float
) -> Trajectory:
    """Return the motion of a pen along a letter, from rest to rest, with exact derivatives.

    Args:
        letter: one of `LETTERS`.
        origin: start of the writing line [m].
        height: height of a letter without ascender [m].
        speed: mean speed of the pen [m/s]; the peak is 1.9 times that.
        dt: sampling period [s].
    """
    if letter not in POINTS:
        raise DataError("letters", f"unknown letter {letter!r}; give one of {' '.join(LETTERS)}")
    points = np.array(POINTS[letter])
    # Centripetal distances between knots avoid loops at sharp turns.
    gaps = np.sqrt(np.linalg.norm(np.diff(points, axis=0), axis=1))
    knots = np.concatenate([[0.0], np.cumsum(gaps)])
    path = CubicSpline(knots / knots[-1], points, bc_type="natural")
    fine: Float[np.ndarray, "n 2"] = path(np.linspace(0, 1, 500))
    length = height * float(np.linalg.norm(np.diff(fine, axis=0), axis=1).sum())
    count = max(2, round(length / speed / dt))
    duration = count * dt
    share = np.arange(count + 1) / count
    u, ud, udd = minimum_jerk(share)
    ud = (ud / duration)[:, None]
    udd = (udd / duration**2)[:, None]
    slope = path(u, 1)
    return Trajectory(
        t=share * duration,
        q=np.asarray(origin) + height * path(u),
        qd=height * slope * ud,
        qdd=height * (path(u, 2) * ud**2 + slope * udd),
        label=letter,
    )


def read_pen_strokes(path: str | Path) -> dict[str, list[Stroke]]:
    """Return the strokes of each letter, in the order of the file.

    The file is the original `mixoutALL_shifted.mat`, or an npz of arrays named `a_0`, `a_1`, …,
    with the columns tip force, x velocity and y velocity.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(
            str(path), "no such file; the file of the data set is called mixoutALL_shifted.mat"
        )
    try:
        strokes = _from_npz(path) if zipfile.is_zipfile(path) else _from_mat(path)
    except NOT_THE_DATA_SET as error:
        raise DataError(
            str(path),
            f"is not the data set 'Character Trajectories' ({error}); "
            "expected mixoutALL_shifted.mat",
        ) from None
    for letter, strokes_of_letter in strokes.items():
        for number, stroke in enumerate(strokes_of_letter):
            table = stroke.ndim == 2 and stroke.shape[1] == 3 and len(stroke) >= 10
            if not (table and np.isfinite(stroke).all()):
                raise DataError(
                    str(path),
                    "expected at least 10 finite rows of force, x and y velocity, "
                    f"got shape {stroke.shape}",
                    column=f"{letter}_{number}",
                )
    return strokes


def _from_mat(path: Path) -> dict[str, list[Stroke]]:
    content = loadmat(path, squeeze_me=True, struct_as_record=False)
    consts = content["consts"]
    letters = [str(letter) for letter in consts.key]
    strokes: dict[str, list[Stroke]] = {letter: [] for letter in letters}
    for label, stroke in zip(consts.charlabels, content["mixout"], strict=True):
        strokes[letters[int(label) - 1]].append(np.asarray(stroke, dtype=float).T)
    return strokes


def _from_npz(path: Path) -> dict[str, list[Stroke]]:
    strokes: dict[str, list[Stroke]] = {}
    with np.load(path, allow_pickle=False) as archive:
        numbered = []
        for name in archive.files:
            letter, number = name.split("_")[:2]
            numbered.append((letter, int(number), name))
        for letter, _, name in sorted(numbered):
            strokes.setdefault(letter, []).append(archive[name].astype(float))
    return strokes


def draw_stroke(
    stroke: Stroke,
    *,
    origin: tuple[float, float],
    size: float,
    duration: float,
    dt: float,
    label: str,
) -> Trajectory:
    """Return a pen motion along a recorded stroke, from rest to rest, smooth in its accelerations.

    The timing of the recorded pen is kept between start and stop.

    Args:
        origin: lower left corner of the letter [m]; size: length of its longer side [m].
        duration: duration of the motion [s]; dt: sampling period [s].
    """
    drawn = np.concatenate([np.zeros((1, 2)), np.cumsum(stroke[:, 1:], axis=0) / STROKE_RATE])
    drawn = (drawn - drawn.min(axis=0)) / max(float(np.ptp(drawn, axis=0).max()), 1e-9)
    knots = np.linspace(0, 1, len(drawn))
    count = max(2, round(duration / dt))
    share = np.arange(count + 1) / count
    length = count * dt
    u, ud, udd = _rest_to_rest(share, length)
    q = np.empty((count + 1, 2))
    qd = np.empty_like(q)
    qdd = np.empty_like(q)
    for axis in range(2):
        path = make_smoothing_spline(knots, drawn[:, axis], lam=SMOOTHING)
        slope = path.derivative(1)(u)
        q[:, axis] = origin[axis] + size * path(u)
        qd[:, axis] = size * slope * ud
        qdd[:, axis] = size * (path.derivative(2)(u) * ud**2 + slope * udd)
    return Trajectory(t=share * length, q=q, qd=qd, qdd=qdd, label=label)


def _rest_to_rest(s: np.ndarray, duration: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a time from 0 to 1 that starts and stops smoothly, with derivatives [1/s, 1/s²]."""
    rise = np.clip(np.minimum(s, 1 - s) / RAMP, 0, 1)
    speed, rate, _ = (part / (1 - RAMP) for part in minimum_jerk(rise))
    # The integral of the minimum-jerk rise r is RAMP (2.5 r⁴ − 3 r⁵ + r⁶), half a ramp at r = 1.
    inside = RAMP * (2.5 * rise**4 - 3 * rise**5 + rise**6) / (1 - RAMP)
    starting = s < RAMP
    stopping = s > 1 - RAMP
    u = np.where(starting, inside, (s - RAMP / 2) / (1 - RAMP))
    u = np.where(stopping, 1 - inside, u)
    sign = starting * 1.0 - stopping * 1.0
    return u, speed / duration, rate * sign / RAMP / duration**2
