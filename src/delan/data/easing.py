"""How motions start and stop."""

import numpy as np


def minimum_jerk(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rise from 0 to 1 over u in [0, 1], without speed or acceleration at either end, and its two derivatives."""
    rise = u**3 * (10 - 15 * u + 6 * u**2)
    return rise, 30 * u**2 * (1 - u) ** 2, 60 * u * (1 - u) * (1 - 2 * u)
