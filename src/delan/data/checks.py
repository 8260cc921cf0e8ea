"""The door for recordings: what a fit cannot use is refused here, with file, column and row."""

import numpy as np

from ..errors import DataError
from ..joints import Recording

ODD_STEP = 0.5
"""A step that differs from the usual one by more than this share is of another rate,"""
MIXED_SHARE = 0.1
"""and more of them than this share of a trajectory are a second rate and no accidents."""
OTHER_RATE = 0.1
"""Trajectories whose usual steps differ by more than this share are of two rates."""
FOLLOWS = 0.9
"""Share of a motion that the velocities must explain for its size against them to mean something."""
RATIO_HARM = 3.0
"""No calibration explains that a joint moves so many times as far as its velocities say, or as little."""


def require_sound(recording: Recording) -> Recording:
    """Refuse non-finite values, times that do not run forward, mixed sampling rates, and velocities in other units."""
    _require_finite(recording)
    _require_whole_trajectories(recording)
    _require_steady_time(recording)
    _require_matching_velocity(recording)
    return recording


def _require_finite(recording: Recording) -> None:
    columns = {"t": recording.t, "q": recording.q, "qd": recording.qd, "qdd": recording.qdd, "tau": recording.tau}
    for name, values in {**columns, **recording.truth}.items():
        if values is None or np.isfinite(values).all():
            continue
        row, *joint = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        column = f"{name}{joint[0]}" if joint else name
        problem = f"expected a finite number, got {values[(row, *joint)]}; remove the row or mend the log"
        raise DataError(recording.source, problem, column=column, row=row)


def _starts(recording: Recording) -> np.ndarray:
    """The rows at which a trajectory begins."""
    return np.concatenate([[0], np.flatnonzero(np.diff(recording.trajectory)) + 1])


def _require_whole_trajectories(recording: Recording) -> None:
    starts = _starts(recording)
    labels, first = np.unique(recording.trajectory[starts], return_index=True)
    if len(labels) < len(starts):
        again = sorted(set(range(len(starts))) - set(first.tolist()))[0]
        row = int(starts[again])
        label = recording.trajectory[row]
        problem = f"trajectory {label} begins again after another; keep the rows of a trajectory together"
        raise DataError(recording.source, problem, column="trajectory", row=row)


def _require_steady_time(recording: Recording) -> None:
    usual: list[tuple[int, float]] = []
    starts = _starts(recording)
    for start, end in zip(starts, [*starts[1:], len(recording.t)], strict=True):
        steps = np.diff(recording.t[start:end])
        if len(steps) == 0:
            continue
        backward = np.flatnonzero(steps <= 0)
        if len(backward):
            row = int(start + backward[0] + 1)
            what = "repeats" if steps[backward[0]] == 0 else "runs backward"
            what = f"time {what}: {recording.t[row]} s after {recording.t[row - 1]} s"
            problem = f"{what}; sort the rows, drop repeats, or label trajectories apart"
            raise DataError(recording.source, problem, column="t", row=row)
        step = float(np.median(steps))
        odd = np.flatnonzero(np.abs(steps - step) > ODD_STEP * step)
        if len(odd) > MIXED_SHARE * len(steps):
            row = int(start + odd[0] + 1)
            problem = (
                f"mixed sampling rates: {len(odd)} of {len(steps)} steps differ from the usual {step:.6g} s "
                f"by more than {ODD_STEP:.0%}, here {steps[odd[0]]:.6g} s; cut the log by rate or resample it"
            )
            raise DataError(recording.source, problem, column="t", row=row)
        usual.append((int(start), step))
    for row, step in usual:
        if abs(step - usual[0][1]) > OTHER_RATE * usual[0][1]:
            rates = f"steps of {step:.6g} s here, {usual[0][1]:.6g} s in the first trajectory"
            problem = f"mixed sampling rates: {rates}; resample to one rate"
            raise DataError(recording.source, problem, column="t", row=row)


def _require_matching_velocity(recording: Recording) -> None:
    """Positions must go where the logged velocities lead: milliseconds, degrees and flipped signs show here."""
    if recording.qd is None:
        return
    starts = _starts(recording)
    for joint in range(recording.joints.dof):
        gone, led = [], []
        for start, end in zip(starts, [*starts[1:], len(recording.t)], strict=True):
            t, q, qd = recording.t[start:end], recording.q[start:end, joint], recording.qd[start:end, joint]
            path = np.concatenate([[0.0], np.cumsum(np.diff(t) * (qd[1:] + qd[:-1]) / 2)])
            gone.append(q - q.mean())
            led.append(path - path.mean())
        q, path = np.concatenate(gone), np.concatenate(led)
        if not (q.any() and path.any()):
            continue
        with np.errstate(all="ignore"):  # numbers too large to square are no units that could be told
            slope = float(q @ path / (path @ path))
            explained = float((q @ path) ** 2 / ((q @ q) * (path @ path)))
        if explained > FOLLOWS and not 1 / RATIO_HARM < slope < RATIO_HARM:
            problem = (
                f"the joint moves {slope:.3g} times as far as qd{joint} says over t; check the units (s, rad, rad/s)"
            )
            raise DataError(recording.source, problem, column=f"q{joint}")
