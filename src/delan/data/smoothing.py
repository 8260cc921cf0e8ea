"""Take the noise out of a recording without moving it in time."""

import numpy as np
from scipy.signal import butter, sosfiltfilt

from ..errors import DataError
from ..joints import Dataset, Recording

ORDER = 4
"""Of the Butterworth filter; run forwards and backwards it falls twice as steeply and shifts nothing."""


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
        least = 3 * (2 * ORDER + 1)
        if len(t) <= least or not 0 < cutoff < rate / 2:
            raise DataError(
                recording.source,
                f"trajectory {label} has {len(t)} samples at {rate:.4g} Hz; a cut-off of {cutoff:g} Hz needs more than "
                f"{least} samples at more than {2 * cutoff:g} Hz: lower the cut-off or record longer",
                row=int(np.flatnonzero(rows)[0]),
            )
        sections = butter(ORDER, cutoff, fs=rate, output="sos")
        q, tau = (sosfiltfilt(sections, values[rows], axis=0) for values in (recording.q, recording.tau))
        slope = np.gradient(q, t, axis=0, edge_order=2)
        qd = slope if recording.qd is None else sosfiltfilt(sections, recording.qd[rows], axis=0)
        pieces.append((t, q, qd, np.gradient(qd, t, axis=0, edge_order=2), tau, recording.trajectory[rows]))
    t, q, qd, qdd, tau, trajectory = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return Dataset(
        t=t, q=q, qd=qd, qdd=qdd, tau=tau, trajectory=trajectory, joints=recording.joints, source=recording.source
    )
