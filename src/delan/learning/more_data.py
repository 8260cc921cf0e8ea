"""What more data would bring, and which motion to record next."""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..joints import Dataset, JointLimits, Trajectory
from ..models.model import Model
from ..motions.excitation import random_motions
from ..solvers.loss import rigid_slope
from .refinement import refined
from .scores import evaluate

SHARES = (0.25, 0.5, 1.0)
"""Parts of the training data that a model is refitted to."""
BLOCKS = 20
"""Runs that the training data are cut into, of which the parts are made."""
CANDIDATES, CANDIDATE_ROWS = 24, 60
"""Motions that are weighed against each other, and samples of each."""
TRAINING_ROWS = 1000
"""Samples that tell what is known already, at most."""
PRIOR = 1e-8
"""What is known of every weight before the first sample, relative to what the data tell of the
best-known one.
"""


@dataclass(frozen=True)
class LearningCurve:
    """The validation error (nMSE) of the model refitted to parts of the training data.

    `gain` is the share of the error that as much data again would take away, should the curve go on
    as it did.
    """

    shares: tuple[float, ...]
    samples: tuple[int, ...]
    errors: tuple[float, ...]

    @property
    def gain(self) -> float:
        return max(0.0, 1 - self.errors[-1] / self.errors[-2])


@dataclass(frozen=True, eq=False)
class NextMotion:
    """A motion, inside the range and the speeds of the log, that would tell the most of what is
    still uncertain.

    Attributes:
        trajectory: ready to be followed; it starts and ends at rest.
        joint: that gains the most from it; speed: its range of speeds there [rad/s or m/s]; pose:
            of positions.
        gain: how much more it tells than a typical motion of its kind [nats].
    """

    trajectory: Trajectory
    joint: int
    speed: tuple[float, float]
    pose: tuple[float, float]
    gain: float


def learning_curve(
    model: Model, training: Dataset, validation: Dataset, *, key: PRNGKeyArray
) -> LearningCurve:
    """Refit a chain to growing parts of the training data, runs of it drawn at random."""
    rows = len(training.samples)
    runs = np.array_split(np.arange(rows), min(BLOCKS, rows))
    order = np.asarray(jax.random.permutation(key, len(runs)))
    samples, errors = [], []
    for share in SHARES:
        some = np.sort(
            np.concatenate([runs[one] for one in order[: max(1, round(share * len(runs)))]])
        )
        errors.append(
            evaluate(
                refined(model, training, rows=some), validation, rollouts=False
            ).torque.nmse_mean
        )
        samples.append(len(some))
    return LearningCurve(SHARES, tuple(samples), tuple(errors))


def next_motion(model: Model, training: Dataset, *, key: PRNGKeyArray) -> NextMotion | None:
    """The motion, of many at random, whose torques would tell the most; None for a model without
    links to tell of.
    """
    if model.chain is None:
        return None
    seen = training.samples
    speed = np.abs(seen.qd).max(axis=0)
    if not (speed > 0).all():
        return None
    limits = JointLimits(
        lower=seen.q.min(axis=0),
        upper=seen.q.max(axis=0),
        velocity=speed,
        torque=np.full(seen.dof, np.inf),
    )
    std = np.where(seen.tau.std(axis=0) > 0, seen.tau.std(axis=0), 1.0)
    part = seen.rows(np.unique(np.linspace(0, len(seen) - 1, TRAINING_ROWS).astype(int)))
    slope = rigid_slope(model.mechanics, part, std)
    size = np.linalg.norm(slope, axis=0)
    known = slope.T @ slope + PRIOR * (size.max() ** 2) * np.eye(len(size))
    dt = float(np.median(np.diff(training.t)))
    motions = random_motions(limits, CANDIDATES, dt=max(dt, 1e-3), key=key)
    told = [_told(model, motion, seen, std, known) for motion in motions]
    totals = np.array([joints.sum() for joints in told])
    best = int(np.argmax(totals))
    motion, joint = motions[best], int(np.argmax(told[best]))
    pace = np.abs(motion.qd[:, joint])
    return NextMotion(
        trajectory=motion,
        joint=joint,
        speed=(float(np.quantile(pace, 0.1)), float(pace.max())),
        pose=(float(motion.q[:, joint].min()), float(motion.q[:, joint].max())),
        gain=float(totals[best] - np.median(totals)),
    )


def _told(
    model: Model,
    motion: Trajectory,
    like: Dataset,
    std: np.ndarray,
    known: Float[np.ndarray, "weights weights"],
) -> Float[np.ndarray, " dof"]:
    """What the torques of each joint along a motion would tell, ½ log det(1 + J K⁻¹ Jᵀ) [nats]."""
    rows = np.linspace(0, len(motion.t) - 1, CANDIDATE_ROWS).astype(int)
    one = Dataset(
        t=motion.t[rows],
        q=motion.q[rows],
        qd=motion.qd[rows],
        qdd=motion.qdd[rows],
        tau=np.zeros_like(motion.q[rows]),
        trajectory=np.zeros(len(rows), dtype=int),
        joints=like.joints,
    )
    slope = rigid_slope(model.mechanics, one, std).reshape(len(rows), like.dof, -1)
    told = []
    for joint in range(like.dof):
        own = slope[:, joint]
        told.append(
            np.linalg.slogdet(np.eye(len(rows)) + own @ np.linalg.solve(known, own.T))[1] / 2
        )
    return np.array(told)
