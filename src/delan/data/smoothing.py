"""Take the noise out of a recording without moving it in time."""

import numpy as np
import scipy
from jaxtyping import Float

from ..errors import DataError
from ..joints import Dataset, Recording

ORDER = 4
"""Of the Butterworth filter; run forwards and backwards it falls twice as steeply and shifts nothing."""
FEWEST = 3 * (2 * ORDER + 1) + 1
"""Rows that the filter needs at least."""
HIGHEST_CUTOFF = 0.2
"""of the sampling rate at most: higher, differences are no derivatives."""
SAMPLES_A_PERIOD = 10
"""of the cut-off are kept; more would say the same again."""


def smoothed(values: Float[np.ndarray, "time *rest"], rate: float, cutoff: float) -> Float[np.ndarray, "time *rest"]:
    """Rows at an even rate [Hz] without what is faster than the cut-off [Hz]: a zero-phase Butterworth filter."""
    return scipy.signal.sosfiltfilt(scipy.signal.butter(ORDER, cutoff, fs=rate, output="sos"), values, axis=0)


def stride(step: float, cutoff: float) -> int:
    """One row in so many, a step [s] apart, says all that is left below the cut-off [Hz]."""
    return max(1, int(1 / (SAMPLES_A_PERIOD * cutoff * step) + 1e-6))  # 10 by rounding is no 9


def low_passed(recording: Recording, cutoff: float) -> Dataset:
    """Samples without what is faster than a cut-off [Hz]: a zero-phase Butterworth over q, q̇ and τ of each trajectory.

    q̈ is the central difference of the filtered q̇; q̇, where it was not logged, that of the filtered q. The torque goes
    through the same filter, so that both sides of the equation of motion lose the same.
    """
    pieces = []
    for label in np.unique(recording.trajectory):
        rows = recording.trajectory == label
        t = recording.t[rows]
        rate = (len(t) - 1) / (t[-1] - t[0]) if len(t) > 1 else 0.0
        if len(t) < FEWEST or not 0 < cutoff < rate / 2:
            raise DataError(
                recording.source,
                f"trajectory {label} has {len(t)} samples at {rate:.4g} Hz; a cut-off of {cutoff:g} Hz needs at least "
                f"{FEWEST} samples at more than {2 * cutoff:g} Hz: lower the cut-off or record longer",
                row=int(np.flatnonzero(rows)[0]),
            )
        q, tau = (smoothed(values[rows], rate, cutoff) for values in (recording.q, recording.tau))
        qd = None if recording.qd is None else smoothed(recording.qd[rows], rate, cutoff)
        qd, qdd = derivatives(t, q, qd)
        pieces.append((t, q, qd, qdd, tau, recording.trajectory[rows]))
    t, q, qd, qdd, tau, trajectory = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return Dataset(
        t=t, q=q, qd=qd, qdd=qdd, tau=tau, trajectory=trajectory, joints=recording.joints, source=recording.source
    )


def derivatives(t: np.ndarray, q: np.ndarray, qd: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """q̇ and q̈ of one uncut motion by central differences, q̇ as it is where it was logged."""
    speed = np.asarray(np.gradient(q, t, axis=0, edge_order=2)) if qd is None else qd
    return speed, np.asarray(np.gradient(speed, t, axis=0, edge_order=2))
