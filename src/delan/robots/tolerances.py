"""An arm as it leaves the workshop: its joints are not quite where the drawing has them.

The general tolerances of ISO 2768-1, class m (medium), bound lengths and angles that a drawing
gives without a tolerance of their own.
"""

from bisect import bisect_left
from dataclasses import replace

import numpy as np

from .description import Arm, triple

# Nominal lengths up to these [m] may deviate by these [m].
LENGTHS = (0.006, 0.030, 0.120, 0.400, 1.000)
DEVIATIONS = (0.0001, 0.0002, 0.0003, 0.0005, 0.0008)
# Angles between faces of up to these lengths [m] may deviate by these [degrees].
LEGS = (0.010, 0.050, 0.120, 0.400)
ANGLES = (1.0, 0.5, 1 / 3, 1 / 6)


def produced(arm: Arm, *, seed: int) -> Arm:
    """Return one arm of the series: each joint is moved and turned within the tolerances.

    Deviations are uniform. A turn about the axis of a joint is the error of its zero position.
    Masses and inertias stay those of the drawing.
    """
    random = np.random.default_rng(seed)
    links = []
    for link in arm.links:
        length = float(np.linalg.norm(link.xyz))
        shift = _bound(length, LENGTHS, DEVIATIONS) * random.uniform(-1, 1, 3)
        # A joint on the axis of the previous one sits in a housing of about twice its radius.
        leg = max(length, 2 * link.radius)
        turn = np.radians(_bound(leg, LEGS, ANGLES)) * random.uniform(-1, 1, 3)
        links.append(
            replace(
                link, xyz=triple(np.array(link.xyz) + shift), rpy=triple(np.array(link.rpy) + turn)
            )
        )
    return replace(arm, links=tuple(links))


def _bound(size: float, sizes: tuple[float, ...], bounds: tuple[float, ...]) -> float:
    """Return the bound of the first size that is not smaller; the last one beyond."""
    return bounds[min(bisect_left(sizes, size), len(bounds) - 1)]
