"""What more data would bring, and which motion to record next."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..joints import Dataset, JointLimits, Trajectory, evenly_spaced
from ..logs.actuation import torque_scale, unactuated
from ..logs.split import generator
from ..models.model import Model
from ..motions.excitation import random_motions
from ..solvers.linearised import rigid_slope
from .refit import refined
from .scores import TorqueSize, predict_samples, torque_scores

# Shares of the training data that a model is refitted to.
SHARES = (0.25, 0.5, 1.0)
# Blocks that the training data are cut into, of which the shares are made.
BLOCKS = 20
# Motions that are compared, and samples of each.
CANDIDATES = 24
CANDIDATE_ROWS = 60
# The most training samples that count as known.
TRAINING_ROWS = 1000
# Information on every weight before the first sample, relative to that of the data on the weight
# that they determine best.
PRIOR = 1e-8


@dataclass(frozen=True)
class LearningCurve:
    """The validation error (nMSE) of the model refitted to shares of the training data."""

    shares: tuple[float, ...]
    samples: tuple[int, ...]
    errors: tuple[float, ...]

    @property
    def gain(self) -> float:
        """The share of the error that twice the data would remove, if the curve continued."""
        return max(0.0, 1 - self.errors[-1] / self.errors[-2])


@dataclass(frozen=True, eq=False)
class NextMotion:
    """The most informative motion inside the range and the speeds of the log.

    Attributes:
        trajectory: ready to be followed; it starts and ends at rest.
        joint: the joint that gains the most from it.
        speed, pose: range of speeds [rad/s or m/s] and of positions [rad or m] of that joint.
        gain: information beyond that of a typical motion of its kind [nats].
    """

    trajectory: Trajectory
    joint: int
    speed: tuple[float, float]
    pose: tuple[float, float]
    gain: float


def more_data(
    model: Model, training: Dataset, validation: Dataset, keys: Sequence[PRNGKeyArray]
) -> tuple[LearningCurve | None, NextMotion | None]:
    """What more data would bring, for a chain with friction; `keys` are those of both answers."""
    if model.chain is None or model.friction is None:
        return None, None
    curve_key, motion_key = keys
    curve = learning_curve(model, training, validation, key=curve_key)
    return curve, next_motion(model, training, key=motion_key)


def learning_curve(
    model: Model, training: Dataset, validation: Dataset, *, key: PRNGKeyArray
) -> LearningCurve:
    """Refit a chain to growing shares of the training data, in blocks drawn at random."""
    count = len(training.samples)
    blocks = np.array_split(np.arange(count), min(BLOCKS, count))
    order = generator(key).permutation(len(blocks))
    samples = []
    errors = []
    for share in SHARES:
        drawn = order[: max(1, round(share * len(blocks)))]
        rows = np.sort(np.concatenate([blocks[place] for place in drawn]))
        refitted = refined(model, training, rows=rows)
        scores = torque_scores(
            predict_samples(refitted, validation), validation.samples.tau, TorqueSize.of(training)
        )
        errors.append(scores.torque.nmse_mean)
        samples.append(len(rows))
    return LearningCurve(SHARES, tuple(samples), tuple(errors))


def next_motion(model: Model, training: Dataset, *, key: PRNGKeyArray) -> NextMotion | None:
    """The most informative of many random motions.

    None for a model without links, and for a robot that cannot follow any motion, because a joint
    has no motor.
    """
    samples = training.samples
    if model.chain is None or unactuated(samples.tau).any():
        return None
    speed = np.abs(samples.qd).max(axis=0)
    if not (speed > 0).all():
        return None
    limits = JointLimits(
        lower=samples.q.min(axis=0),
        upper=samples.q.max(axis=0),
        velocity=speed,
        torque=np.full(samples.dof, np.inf),
    )
    std = torque_scale(samples.qd, samples.tau)
    seen = samples.rows(evenly_spaced(len(samples), TRAINING_ROWS))
    slope = rigid_slope(model.mechanics, seen, std)
    size = np.linalg.norm(slope, axis=0)
    known = slope.T @ slope + PRIOR * (size.max() ** 2) * np.eye(len(size))
    dt = float(np.median(np.diff(training.t)))
    motions = random_motions(limits, CANDIDATES, dt=max(dt, 1e-3), key=key)
    information = np.stack([_information(model, motion, std, known) for motion in motions])
    totals = information.sum(axis=1)
    best = int(np.argmax(totals))
    motion = motions[best]
    joint = int(np.argmax(information[best]))
    position = motion.q[:, joint]
    pace = np.abs(motion.qd[:, joint])
    return NextMotion(
        trajectory=motion,
        joint=joint,
        speed=(float(np.quantile(pace, 0.1)), float(pace.max())),
        pose=(float(position.min()), float(position.max())),
        gain=float(totals[best] - np.median(totals)),
    )


def _information(
    model: Model,
    motion: Trajectory,
    std: np.ndarray,
    known: Float[np.ndarray, "weights weights"],
) -> Float[np.ndarray, " dof"]:
    """Information in the torques of each joint along a motion, ½ log det(1 + J K⁻¹ Jᵀ) [nats]."""
    # Rows of a short motion may repeat, so that one compiled program serves all motions.
    rows = np.linspace(0, len(motion.t) - 1, CANDIDATE_ROWS).astype(int)
    dof = len(std)
    picked = Dataset(
        t=motion.t[rows],
        q=motion.q[rows],
        qd=motion.qd[rows],
        qdd=motion.qdd[rows],
        tau=np.zeros((len(rows), dof)),
        trajectory=np.zeros(len(rows), dtype=int),
        joints=model.joints,
    )
    slope = rigid_slope(model.mechanics, picked, std).reshape(len(rows), dof, -1)
    information = np.empty(dof)
    for joint in range(dof):
        own = slope[:, joint]
        gained = np.eye(len(rows)) + own @ np.linalg.solve(known, own.T)
        information[joint] = np.linalg.slogdet(gained)[1] / 2
    return information
