"""Checks that refuse recordings that a fit cannot use, with file, column and row."""

import itertools

import numpy as np

from ..errors import DataError
from ..joints import Recording
from .segments import MIXED_SHARE, ODD_STEP, OTHER_RATE, trajectory_bounds

# Share of the motion that the integrated velocities must explain before their scale is compared:
# below it the ratio is dominated by noise.
FOLLOWS = 0.9

# Ratio of the motion to the integrated velocities that no calibration error explains.
RATIO_HARM = 3.0


def require_sound(recording: Recording) -> Recording:
    """Refuse non-finite values, time that does not increase, mixed rates and wrong velocity units.

    Returns the recording itself.
    """
    _require_finite(recording)
    _require_whole_trajectories(recording)
    _require_steady_time(recording)
    _require_matching_velocity(recording)
    return recording


def _require_finite(recording: Recording) -> None:
    for name, values in recording.columns.items():
        finite = np.isfinite(values)
        if finite.all():
            continue
        row, *joint = np.argwhere(~finite)[0].tolist()
        column = "".join([name, *map(str, joint)])
        value = values[(row, *joint)]
        problem = f"expected a finite number, got {value}; fix the value or remove the row"
        raise DataError(recording.source, problem, column=column, row=row)


def _require_whole_trajectories(recording: Recording) -> None:
    seen = set()
    for row in trajectory_bounds(recording.trajectory)[:-1]:
        label = int(recording.trajectory[row])
        if label in seen:
            problem = (
                f"trajectory {label} continues after another one; "
                "keep the rows of each trajectory together"
            )
            raise DataError(recording.source, problem, column="trajectory", row=row)
        seen.add(label)


def _require_steady_time(recording: Recording) -> None:
    """Refuse time that does not increase, and steps of another rate than the usual one."""
    t = recording.t
    first_step = None
    for start, end in itertools.pairwise(trajectory_bounds(recording.trajectory)):
        steps = np.diff(t[start:end])
        if len(steps) == 0:
            continue
        stuck = start + 1 + np.flatnonzero(steps <= 0)
        if len(stuck):
            row = int(stuck[0])
            verb = "repeats" if t[row] == t[row - 1] else "runs backward"
            problem = (
                f"time {verb}: {t[row]} s after {t[row - 1]} s; "
                "sort the rows, drop repeated ones, or give each trajectory its own label"
            )
            raise DataError(recording.source, problem, column="t", row=row)
        step = float(np.median(steps))
        odd = np.flatnonzero(np.abs(steps - step) > ODD_STEP * step)
        if len(odd) > MIXED_SHARE * len(steps):
            problem = (
                f"mixed sampling rates: {len(odd)} of {len(steps)} steps differ from the usual "
                f"{step:.6g} s by more than {ODD_STEP:.0%}, here {steps[odd[0]]:.6g} s; "
                "split the log by rate or resample it"
            )
            raise DataError(recording.source, problem, column="t", row=int(start + odd[0] + 1))
        first_step = first_step or step
        if abs(step - first_step) > OTHER_RATE * first_step:
            problem = (
                f"mixed sampling rates: steps of {step:.6g} s here, "
                f"{first_step:.6g} s in the first trajectory; resample to one rate"
            )
            raise DataError(recording.source, problem, column="t", row=start)


def _require_matching_velocity(recording: Recording) -> None:
    """Refuse velocities whose integral is far from the motion: wrong time or angle units."""
    if recording.qd is None:
        return
    bounds = trajectory_bounds(recording.trajectory)
    for joint in range(recording.joints.dof):
        positions = []
        integrals = []
        for start, end in itertools.pairwise(bounds):
            q = recording.q[start:end, joint]
            qd = recording.qd[start:end, joint]
            increments = np.diff(recording.t[start:end]) * (qd[1:] + qd[:-1]) / 2
            integral = np.concatenate([[0.0], np.cumsum(increments)])
            positions.append(q - q.mean())
            integrals.append(integral - integral.mean())
        q = np.concatenate(positions)
        path = np.concatenate(integrals)
        if not (q.any() and path.any()):
            continue
        with np.errstate(all="ignore"):  # values too large to square give no ratio to judge
            slope = float(q @ path / (path @ path))
            explained = float((q @ path) ** 2 / ((q @ q) * (path @ path)))
        if explained > FOLLOWS and not 1 / RATIO_HARM < slope < RATIO_HARM:
            problem = (
                f"the joint moves {slope:.3g} times as far as qd{joint} integrated over t; "
                "check the units (s, rad, rad/s)"
            )
            raise DataError(recording.source, problem, column=f"q{joint}")
