"""The published log of a physical Barrett WAM: a sine motion of 20 s, five runs."""

from pathlib import Path

import numpy as np

from ..joints import Dataset, Recording
from ..logs.filters import low_passed
from ..robots.arms import WAM7

FILE = "wam7_real_neg_500Hz.npz"
# The torque was not logged, but follows from the gains of the controller and its start.
STIFFNESS = np.array([200, 300, 100, 100, 10, 10, 2.5])
DAMPING = np.array([7, 15, 5, 2.5, 0.3, 0.3, 0.05])
START = np.array([0, 0.5876, 0, 1.36, 0, -0.321, -1.57])
PERIOD = 2e-3
# The signals of the log lie below this frequency [Hz].
CUTOFF = 5.0
# Samples are kept at 25 Hz: five per period of the filter.
THINNING = 20


def filtered_log(file: Path) -> Dataset:
    """Read the log of the physical WAM, filtered and thinned."""
    return low_passed(recorded_log(file), CUTOFF).rows(slice(None, None, THINNING))


def recorded_log(file: Path) -> Recording:
    """Read the log of the physical WAM as recorded, with torques from its controller's gains."""
    parts = []
    with np.load(file) as archive:
        names = sorted({name.split("/")[0] for name in archive.files})
        for number, name in enumerate(names):
            q_des = archive[f"{name}/q_des"]
            qd_des = archive[f"{name}/qd_des"]
            count = len(q_des)
            q = archive[f"{name}/q"][:count]
            qd = archive[f"{name}/qd"][:count]
            tau = STIFFNESS * (START + q_des - q) + DAMPING * (qd_des - qd)
            parts.append((np.arange(count) * PERIOD, q, qd, tau, np.full(count, number)))
    t, q, qd, tau, label = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Recording(
        t=t, q=q, qd=qd, tau=tau, trajectory=label, joints=WAM7.joints, source=file.name
    )
