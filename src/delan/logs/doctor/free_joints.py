"""Check of torques that are zero in every row: a joint without a motor, or a column that is lost.

A joint without a motor moves as inertia, gravity and friction make it: its acceleration follows
from positions, velocities and the accelerations of the other joints. A joint that a controller
moves along a path of its own does not.
"""

import numpy as np
from jaxtyping import Float

from ...joints import Joints
from ..actuation import unactuated
from .checked_log import CheckedLog, Motion, filtered
from .lags import Regression

# The share of the acceleration, in parts of the log that were not fitted, that mechanics must
# explain. Of the accelerations of driven joints, positions alone explain half and more, because a
# path that turns back accelerates towards its middle.
EXPLAINED = 0.9
# Samples per weight of the regression.
SAMPLES_PER_WEIGHT = 3.0


def joints_without_motor(log: CheckedLog) -> frozenset[int]:
    """Return the joints with zero torque that move as if they had no motor."""
    candidates = np.flatnonzero(unactuated(log.columns["tau"])).tolist()
    if not candidates:
        return frozenset()
    motion = filtered(log.t, log.columns, log.segments)
    if motion is None:
        return frozenset()
    free = []
    for joint in candidates:
        if explained_acceleration(motion, log.joints, joint) > EXPLAINED:
            free.append(joint)
    return frozenset(free)


def explained_acceleration(motion: Motion, joints: Joints, joint: int) -> float:
    """Return the share of a joint's acceleration that mechanics of any shape explains.

    H_kk q̈_k = −Σ H_kj q̈_j − c_k − g_k − friction, with coefficients that are smooth in the
    positions. Where the log is too short for all terms, the last ones are left out.
    """
    features = _features(motion, joints, joint)
    target = motion.acceleration[:, [joint]]
    variation = float(np.sum((target - target.mean()) ** 2))
    if not variation > 0 or len(motion) < 2 * features.shape[1]:
        return 0.0
    residual = Regression(features).fit(target).residual
    return 1 - float(residual.sum()) / variation


def _features(motion: Motion, joints: Joints, joint: int) -> Float[np.ndarray, "samples features"]:
    angle = motion.q[:, joints.turning]
    slide = motion.q[:, joints.sliding]
    slide = (slide - slide.mean(axis=0)) / np.maximum(slide.std(axis=0), 1e-12)
    place = np.concatenate([np.cos(angle), np.sin(angle), slide], axis=1)
    velocity = motion.velocity / np.maximum(motion.velocity.std(axis=0), 1e-12)
    others = np.delete(motion.acceleration, joint, axis=1)
    squares = _all_products(velocity, velocity)
    features = np.concatenate([np.ones((len(place), 1)), place, others, velocity], axis=1)
    for first, second in ((others, place), (place, place), (squares, place)):
        group = _all_products(first, second)
        if SAMPLES_PER_WEIGHT * (features.shape[1] + group.shape[1]) > motion.independent:
            break
        features = np.concatenate([features, group], axis=1)
    return features / np.maximum(np.sqrt(np.mean(features**2, axis=0)), 1e-300)


def _all_products(
    first: Float[np.ndarray, "samples a"], second: Float[np.ndarray, "samples b"]
) -> Float[np.ndarray, "samples ab"]:
    products = first[:, :, None] * second[:, None, :]
    return products.reshape(len(first), first.shape[1] * second.shape[1])
