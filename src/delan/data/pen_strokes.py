"""Real handwriting: the pen strokes of the UCI data set 'Character Trajectories', from a file the user has.

Each stroke is a recording at 200 Hz of pen tip force and pen velocities (x, y), in units that were normalised.
"""

import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.interpolate import make_smoothing_spline
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from ..errors import DataError
from ..joints import Trajectory
from .easing import minimum_jerk

RATE = 200.0
"""Samples a second of the recordings."""
Stroke = Float[np.ndarray, "time 3"]


def read_pen_strokes(path: str | Path) -> dict[str, list[Stroke]]:
    """The strokes of each letter, in the order of the file: the original `mixoutALL_shifted.mat`, or an npz of
    arrays named `a_0`, `a_1`, …, each of columns tip force, x velocity, y velocity."""
    path = Path(path)
    if not path.is_file():
        raise DataError(str(path), "no such file; the data set's file is called mixoutALL_shifted.mat")
    try:
        strokes = _from_npz(path) if path.read_bytes()[:2] == b"PK" else _from_mat(path)
    except (
        MatReadError,
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        NotImplementedError,
        zipfile.BadZipFile,
    ) as error:
        problem = f"is not the data set 'Character Trajectories' ({error}); expected mixoutALL_shifted.mat"
        raise DataError(str(path), problem) from None
    for letter, found in strokes.items():
        for number, stroke in enumerate(found):
            if stroke.ndim != 2 or stroke.shape[1] != 3 or len(stroke) < 10 or not np.isfinite(stroke).all():
                problem = f"expected at least 10 finite rows of force, x and y velocity, got shape {stroke.shape}"
                raise DataError(str(path), problem, column=f"{letter}_{number}")
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
        for name in sorted(archive.files, key=lambda name: (name.split("_")[0], int(name.split("_")[1]))):
            strokes.setdefault(name.split("_")[0], []).append(archive[name].astype(float))
    return strokes


def draw_stroke(
    stroke: Stroke, *, origin: tuple[float, float], size: float, duration: float, dt: float, label: str
) -> Trajectory:
    """A pen motion along a recorded stroke, smooth enough that its accelerations can be used, at rest at both ends.

    Args:
        origin: the lower left corner of the letter [m]; size: of its longer side [m].
        duration: how long the pen takes [s]; dt: sampling period [s].
    """
    drawn = np.concatenate([np.zeros((1, 2)), np.cumsum(stroke[:, 1:], axis=0) / RATE])
    drawn = (drawn - drawn.min(axis=0)) / max(float(np.ptp(drawn, axis=0).max()), 1e-9)
    # The pen's own timing is kept; a smoothing spline over it takes the tremor out of the accelerations.
    share = np.linspace(0, 1, len(drawn))
    paths = [make_smoothing_spline(share, column, lam=1e-8) for column in drawn.T]
    count = max(2, round(duration / dt))
    s = np.arange(count + 1) / count
    length = count * dt
    u, ud, udd = _rest_to_rest(s, length)
    place, slope, bend = (
        np.stack([path.derivative(order)(u) if order else path(u) for path in paths], 1) for order in (0, 1, 2)
    )
    return Trajectory(
        t=s * length,
        q=np.asarray(origin) + size * place,
        qd=size * slope * ud[:, None],
        qdd=size * (bend * ud[:, None] ** 2 + slope * udd[:, None]),
        label=label,
    )


def _rest_to_rest(s: np.ndarray, duration: float, ramp: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A clock that starts and stops smoothly within the first and the last tenth, and runs evenly between."""
    rise = np.clip(np.minimum(s, 1 - s) / ramp, 0, 1)
    speed, rate, _ = (part / (1 - ramp) for part in minimum_jerk(rise))
    # ∫ of the minimum-jerk rise over a ramp is half of it; inside the ramp it is r (2.5 r³ − 3 r⁴ + r⁵) of the ramp.
    inside = ramp * (2.5 * rise**4 - 3 * rise**5 + rise**6) / (1 - ramp)
    early = np.where(s < ramp, inside, (s - ramp / 2) / (1 - ramp))
    u = np.where(s > 1 - ramp, 1 - inside, early)
    sign = np.where(s < ramp, 1.0, np.where(s > 1 - ramp, -1.0, 0.0))
    return u, speed / duration, rate * sign / ramp / duration**2
