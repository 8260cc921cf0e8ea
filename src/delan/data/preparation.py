"""From a raw recording to samples with velocities and accelerations, cut into trajectories."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy
from jaxtyping import Bool, Float

from ..errors import DataError, SettingsError
from ..joints import Dataset, Preparation, Recording
from . import smoothing
from .checks import require_sound
from .smoothing import FEWEST, derivatives, smoothed
from .stretches import Stretch, TimeFaults, bridged, spans

REST_SECONDS, REST_RANGE = 0.5, 0.002
"""A robot rests while no joint moves by more than this share of its range in so many seconds."""
REST_MARGIN = 0.1
"""So much of a rest stays with the motions beside it [s]: friction is at its most telling where motion begins."""
EDGE = 1.0
"""Periods of the cut-off at both ends of a motion whose filtered values are guesses."""


@dataclass(frozen=True)
class PreparationSettings:
    """What to do to a recording.

    Attributes:
        cutoff: of a zero-phase low-pass over q, q̇ and τ alike [Hz]; None: nothing is filtered, and what was not logged
            is differentiated plainly, fit for clean signals alone, for noise in q grows with 1/dt².
        delay: by which the torques come late [s].
        every: keep one row in so many as a sample; None: ten a period of the cut-off, all without one.
        smooth: False leaves the filter out but does all else, for windows that average the noise themselves.
    """

    cutoff: float | None = None
    delay: float = 0.0
    every: int | None = None
    smooth: bool = True

    def __post_init__(self) -> None:
        if self.cutoff is not None and not 0 < self.cutoff < float("inf"):
            raise SettingsError(f"the cut-off is a positive number of Hz, got {self.cutoff}")
        if not np.isfinite(self.delay):
            raise SettingsError(f"the delay is a number of seconds, got {self.delay}")
        if self.every is not None and self.every < 1:
            raise SettingsError(f"every is a whole number of at least 1, got {self.every}")

    @property
    def unfiltered(self) -> "PreparationSettings":
        """The same cuts and delay, every row, and no filter: what windows are laid over."""
        return replace(self, smooth=False, every=1)


def prepare(recording: Recording, settings: PreparationSettings | None = None) -> Dataset:
    """Samples with velocities and accelerations, cut into trajectories where time has gaps or the robot rests.

    What was done is in the dataset's `preparation`. A measured q̇ is used where the log has one; a measured q̈ only
    where nothing is filtered.
    """
    settings = settings or PreparationSettings()
    require_sound(recording)
    if settings.delay:
        recording = _on_time(recording, settings.delay)
    pieces = tuple(_pieces(recording, settings))
    cuts = {"gaps": len(pieces) - len(np.unique(recording.trajectory))}
    if settings.cutoff is None:
        return _as_logged(recording, settings, pieces, cuts)
    made = [_filtered(recording, piece, settings) for piece in pieces if len(piece) >= FEWEST]
    made = [one for one in made if one is not None]
    if not made:
        raise DataError(
            recording.source,
            f"has no stretch without gaps that is long enough for a cut-off of {settings.cutoff:g} Hz; record longer",
        )
    t, counted = _joined(made, "t"), _joined(made, "counted")
    every = settings.every or stride(recording, settings.cutoff)
    strided = counted & (np.arange(len(counted)) % every == 0)
    if not strided.any():
        raise DataError(recording.source, "holds no motion: the robot rests all the time; record it moving")
    trajectory, pauses = _labels(_joined(made, "label"), t, _joined(made, "moving"))
    return Dataset(
        t=t,
        q=_joined(made, "q"),
        qd=_joined(made, "qd"),
        qdd=_joined(made, "qdd"),
        tau=_joined(made, "tau"),
        trajectory=trajectory,
        counted=strided,
        joints=recording.joints,
        source=recording.source,
        preparation=_told(recording, settings, pieces, made, strided, {**cuts, "pauses": pauses}),
    )


def _as_logged(
    recording: Recording, settings: PreparationSettings, pieces: tuple[Stretch, ...], cuts: dict[str, int]
) -> Dataset:
    """Every row as it is; what was not logged is differentiated inside each stretch."""
    qd, qdd = recording.qd, recording.qdd
    trajectory = recording.trajectory
    if qd is not None and qdd is not None:
        cuts = {}  # nothing is differentiated across a gap, so no trajectory is cut there
    else:
        qd, qdd = np.empty_like(recording.q), np.empty_like(recording.q)
        trajectory = trajectory if not cuts["gaps"] else np.empty_like(trajectory)
        for number, piece in enumerate(pieces):
            if len(piece) < 3:
                raise DataError(
                    recording.source,
                    f"trajectory {recording.trajectory[piece.start]} has fewer than 3 samples without a gap, too few "
                    "to differentiate; log qd and qdd or drop it",
                    row=piece.start,
                )
            logged = None if recording.qd is None else recording.qd[piece.rows]
            qd[piece.rows], qdd[piece.rows] = derivatives(recording.t[piece.rows], recording.q[piece.rows], logged)
            if cuts["gaps"]:
                trajectory[piece.rows] = number
    qdd = qdd if recording.qdd is None else recording.qdd
    told: dict[bool, Literal["logged", "differentiated"]] = {True: "differentiated", False: "logged"}
    every = settings.every or 1
    counted = None if every == 1 else np.arange(len(qd)) % every == 0
    done = Preparation(
        delay=settings.delay,
        velocity=told[recording.qd is None],
        acceleration=told[recording.qdd is None],
        rows=len(qd),
        samples=len(qd) if counted is None else int(np.count_nonzero(counted)),
        cuts={why: count for why, count in cuts.items() if count},
        excerpt=recording.excerpt,
    )
    return Dataset(
        t=recording.t,
        q=recording.q,
        qd=qd,
        qdd=qdd,
        tau=recording.tau,
        trajectory=trajectory,
        truth=recording.truth,
        counted=counted,
        joints=recording.joints,
        source=recording.source,
        preparation=done,
    )


def _pieces(recording: Recording, settings: PreparationSettings) -> Iterator[Stretch]:
    """Rows of one trajectory without gaps, but for those short enough to be bridged where a filter follows."""
    last: Stretch | None = None
    for piece in TimeFaults(recording.t, recording.trajectory).stretches:
        if last is not None and settings.cutoff is not None:
            same = recording.trajectory[last.start] == recording.trajectory[piece.start]
            if same and recording.t[piece.start] - recording.t[last.end - 1] <= bridged(piece.step):
                last = Stretch(last.start, piece.end, last.step)
                continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _on_time(recording: Recording, delay: float) -> Recording:
    """The recording with its torques moved back by their delay; past the end the last one is held."""
    tau = np.empty_like(recording.tau)
    for label in np.unique(recording.trajectory):
        rows = recording.trajectory == label
        t = recording.t[rows]
        tau[rows] = _at(t + delay, t, recording.tau[rows])
    return replace(recording, tau=tau)


def _at(new: np.ndarray, t: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Columns at other times, by straight lines."""
    return np.stack([np.interp(new, t, column) for column in values.T], axis=1)


def stride(recording: Recording, cutoff: float) -> int:
    """One row in so many says all that is left below the cut-off [Hz]."""
    return smoothing.stride(_step(recording.t), cutoff)


@dataclass(frozen=True, eq=False)
class _Motion:
    """One motion without gaps on even time steps, filtered."""

    t: Float[np.ndarray, " time"]
    q: Float[np.ndarray, "time dof"]
    qd: Float[np.ndarray, "time dof"]
    qdd: Float[np.ndarray, "time dof"]
    tau: Float[np.ndarray, "time dof"]
    label: np.ndarray
    moving: Bool[np.ndarray, " time"]
    counted: Bool[np.ndarray, " time"]
    rows: int
    repeated: int


def _filtered(recording: Recording, piece: Stretch, settings: PreparationSettings) -> _Motion | None:
    """A stretch through the filter; None if it is too short for that."""
    assert settings.cutoff is not None
    t = recording.t[piece.rows]
    logged = {"q": recording.q, "tau": recording.tau} | ({} if recording.qd is None else {"qd": recording.qd})
    table = np.concatenate([values[piece.rows] for values in logged.values()], axis=1)
    fresh = np.concatenate([[True], (table[1:] != table[:-1]).any(axis=1)])
    fresh[-1] = True
    step = piece.step
    new = t[0] + step * np.arange(round((t[-1] - t[0]) / step) + 1)
    rate = 1 / step
    if settings.cutoff >= 0.5 * rate:
        raise DataError(
            recording.source,
            f"is sampled at {rate:.4g} Hz; a cut-off of {settings.cutoff:g} Hz needs more than {2 * settings.cutoff:g} "
            "Hz: lower the cut-off",
            row=piece.start,
        )
    if len(new) < FEWEST:
        return None
    edge = min(round(EDGE * rate / settings.cutoff), len(new) // 4)
    even = {name: _at(new, t[fresh], values[piece.rows][fresh]) for name, values in logged.items()}
    moving = ~_resting(even["q"], np.ptp(recording.q, axis=0), step)
    if settings.smooth:
        even = {name: smoothed(values, rate, settings.cutoff) for name, values in even.items()}
    qd, qdd = derivatives(new, even["q"], even.get("qd"))
    counted = moving.copy()
    counted[:edge] = counted[len(new) - edge :] = False
    return _Motion(
        t=new,
        q=even["q"],
        qd=qd,
        qdd=qdd,
        tau=even["tau"],
        label=np.full(len(new), recording.trajectory[piece.start]),
        moving=moving,
        counted=counted,
        rows=len(piece),
        repeated=int(np.count_nonzero(~fresh)),
    )


def _joined(made: list[_Motion], name: str) -> np.ndarray:
    return np.concatenate([getattr(one, name) for one in made])


def _told(
    recording: Recording,
    settings: PreparationSettings,
    pieces: tuple[Stretch, ...],
    made: list[_Motion],
    strided: Bool[np.ndarray, " time"],
    cuts: dict[str, int],
) -> Preparation:
    """What was done with a filter, and what became of every row."""
    assert settings.cutoff is not None
    counted, moving = _joined(made, "counted"), _joined(made, "moving")
    dropped = {
        "too short": sum(len(piece) for piece in pieces) - sum(one.rows for one in made),
        "repeated": sum(one.repeated for one in made),
        "resting": int(np.count_nonzero(~moving)),
        "at the ends": int(np.count_nonzero(moving & ~counted)),
        "between samples": int(np.count_nonzero(counted & ~strided)),
    }
    return Preparation(
        cutoff=(settings.cutoff,) * recording.joints.dof if settings.smooth else None,
        delay=settings.delay,
        velocity="differentiated" if recording.qd is None else "logged",
        acceleration="differentiated",
        rows=len(recording.t),
        samples=int(np.count_nonzero(strided)),
        dropped={why: count for why, count in dropped.items() if count},
        cuts={why: count for why, count in cuts.items() if count},
        excerpt=recording.excerpt,
    )


def _resting(q: np.ndarray, reach: np.ndarray, step: float) -> Bool[np.ndarray, " time"]:
    """Where no joint moves, but for the margins beside motion."""
    window = max(3, round(REST_SECONDS / step))
    moved = scipy.ndimage.maximum_filter1d(q, window, axis=0) - scipy.ndimage.minimum_filter1d(q, window, axis=0)
    still = (moved <= REST_RANGE * reach).all(axis=1).astype(np.uint8)
    # The window sees motion half its length ahead, so a rest shows late and ends early by as much.
    grow = max(0, window // 2 - round(REST_MARGIN / step))
    return scipy.ndimage.maximum_filter1d(still, 2 * grow + 1).astype(bool)


def _labels(original: np.ndarray, t: np.ndarray, moving: np.ndarray) -> tuple[np.ndarray, int]:
    """Labels of the motions between gaps and pauses, and how many pauses part one; the rows of a rest go before it."""
    broken = np.concatenate([[False], (np.diff(original) != 0) | (np.diff(t) <= 0) | (np.diff(t) > 1.5 * _step(t))])
    rests = [span for span in spans(~moving) if span[0] > 0 and span[1] < len(t)]
    pauses = np.array([end for first, end in rests if not broken[first : end + 1].any()], dtype=int)
    if not len(pauses) and len(np.unique(original)) == np.count_nonzero(broken) + 1:
        return original, 0
    broken[pauses] = True
    return np.cumsum(broken), len(pauses)


def _step(t: np.ndarray) -> float:
    return float(np.median(np.diff(t)))
