"""Limbs of a robot, such as the legs of a walking one: joints in a row that feel each other alone.

A joint feels another one if the motion of that one helps to predict its torque on motion that was
held out. Nothing is fitted for that but a regression with a kernel that holds the torques of every
mechanism: trigonometric polynomials of the positions times accelerations, times squares of the
velocities, and alone, with friction added.

Neighbours in the order of the columns are joined while a joint of either side feels the other side.
Two sides are apart if no torque is predicted better with the motion of the other side than without,
nor much better than with the same motion at other moments. Where little is told by positions and
accelerations, or all joints move alike, sides are not apart.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from ..joints import Dataset, Recording, evenly_spaced, nonzero_scale
from ..logs.doctor.checked_log import cutoff_of
from ..logs.excerpts import excerpt_of
from ..logs.preparation import PreparationSettings, prepare
from ..logs.segments import usual_step

# The most memory of a recording that is looked at [bytes].
MOST_BYTES = 16e6
# Samples that the regression is made on; half of them predict the other half.
ROWS = 400
# Parts of a single motion, every second of which predicts the others.
PARTS = 6
# Joints of a limb at least: a joint that no other one feels, such as a round tool, is none.
LEAST_JOINTS = 2
# A motion at other moments is shifted by these shares of the log.
SHIFTS = (0.2, 0.4, 0.6, 0.8)
# A torque is felt if its error falls below this share of that with the motion at other moments.
FELT = 0.7
# Inside a limb the error of a torque must fall below this share for each joint that joins: the sign
# that the log tells such things at all.
TELLS = 0.9
# A smaller error is none: that of a joint without a motor, whose torque is always zero.
EXACT = 1e-12
# Weights of the ridge that are tried, relative to the number of samples.
RIDGES = 10.0 ** np.arange(-8, 1)
# The speed at which friction turns, relative to the usual speed.
SLOW = 0.1

Errors = Float[np.ndarray, " joints"]


def find_limbs(data: Recording | Dataset) -> tuple[int, ...] | None:
    """Return the parent of each joint, if the robot has limbs that do not feel each other.

    The limbs branch off the base; None for a serial arm, and where the log does not tell.
    """
    dof = data.joints.dof
    if dof < 2 * LEAST_JOINTS:
        return None
    limbs = _Search(_Moments.of(_dataset(data))).run()
    if len(limbs) == 1 or min(map(len, limbs)) < LEAST_JOINTS:
        return None
    parents = list(range(-1, dof - 1))
    for limb in limbs:
        parents[limb[0]] = -1
    return tuple(parents)


def _dataset(data: Recording | Dataset) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if data.qdd is not None:
        return prepare(data, PreparationSettings())
    data = excerpt_of(data, MOST_BYTES)
    step = usual_step(data.t)
    motions = [data.q[data.trajectory == label] for label in np.unique(data.trajectory)]
    return prepare(data, PreparationSettings(cutoff=cutoff_of(motions, step)))


@dataclass(frozen=True, eq=False)
class _Moments:
    """Some samples, in units of their spread.

    Attributes:
        alike: how alike each joint's positions are at every two samples, from 0 to 1.
        speed, push, drag: velocities, accelerations and the sign of the motion.
        half: whether a sample belongs to the first half of the motions.
    """

    alike: Float[np.ndarray, "joints rows rows"]
    speed: Float[np.ndarray, "rows joints"]
    push: Float[np.ndarray, "rows joints"]
    drag: Float[np.ndarray, "rows joints"]
    torque: Float[np.ndarray, "rows joints"]
    half: Bool[np.ndarray, " rows"]

    @classmethod
    def of(cls, dataset: Dataset) -> "_Moments":
        known = dataset.samples
        rows = evenly_spaced(len(known), ROWS)
        part = known.rows(rows)
        labels = np.unique(part.trajectory)
        if len(labels) > 1:
            half = np.isin(part.trajectory, labels[::2])
        else:
            half = np.arange(len(part)) * PARTS // len(part) % 2 == 0
        apart = part.q.T[:, :, None] - part.q.T[:, None, :]
        spread = nonzero_scale(part.q.std(axis=0))[:, None, None]
        turning = part.joints.turning[:, None, None]
        # The square holds the second harmonic too, that of inertias.
        alike = np.where(
            turning, ((1 + np.cos(apart)) / 2) ** 2, np.exp(-((apart / spread) ** 2) / 8)
        )
        speed = part.qd / nonzero_scale(part.qd.std(axis=0))
        return cls(
            alike=alike,
            speed=speed,
            push=part.qdd / nonzero_scale(part.qdd.std(axis=0)),
            drag=np.tanh(speed / SLOW),
            torque=(part.tau - part.tau.mean(axis=0)) / nonzero_scale(part.tau.std(axis=0)),
            half=half,
        )

    def errors(self, joints: Sequence[int], others: Sequence[int] = (), shift: int = 0) -> Errors:
        """The errors (nMSE) of the torques of some joints, by their motion and that of others.

        The motion of the others is that of other moments, if there is a shift.
        """
        rows = np.arange(len(self.torque))
        late = np.roll(rows, shift)
        alike = np.prod(self.alike[list(joints)], axis=0)
        for other in others:
            alike = alike * self.alike[other][np.ix_(late, late)]

        def together(values: np.ndarray) -> np.ndarray:
            own = values[:, list(joints)]
            both = np.hstack([own, values[late][:, list(others)]])
            return both @ both.T / both.shape[1]

        speed = together(self.speed)
        kernel = alike * (1 + together(self.push) + speed**2) + speed + together(self.drag)
        torque = self.torque[:, list(joints)]
        errors = np.zeros((len(RIDGES), len(joints)))
        for known in (self.half, ~self.half):
            errors += _ridge_errors(kernel, torque, known) / 2
        return errors.min(axis=0)


def _ridge_errors(
    kernel: np.ndarray, torque: np.ndarray, known: Bool[np.ndarray, " rows"]
) -> Float[np.ndarray, "ridges joints"]:
    """The errors on the samples that are not known, for every ridge."""
    sizes, vectors = np.linalg.eigh(kernel[np.ix_(known, known)])
    turned = vectors.T @ torque[known]
    across = kernel[np.ix_(~known, known)] @ vectors
    sizes = np.maximum(sizes, 0)
    errors = []
    for ridge in RIDGES:
        predicted = across @ (turned / (sizes + ridge * len(sizes))[:, None])
        errors.append(np.mean((torque[~known] - predicted) ** 2, axis=0))
    return np.array(errors)


@dataclass(eq=False)
class _Search:
    """Neighbours that are joined one after the other."""

    moments: _Moments
    known: dict[tuple[int, ...], Errors] = field(default_factory=dict)

    @cached_property
    def dof(self) -> int:
        return self.moments.torque.shape[1]

    def run(self) -> list[list[int]]:
        """The limbs, in the order of the columns."""
        limbs = [[joint] for joint in range(self.dof)]
        while len(limbs) > 1:
            gains = [self._gain(*pair) for pair in itertools.pairwise(limbs)]
            at = int(np.argmin(gains))
            if gains[at] > TELLS:
                break
            limbs[at : at + 2] = [limbs[at] + limbs[at + 1]]
        # What is left is joined unless it is clearly apart, the most likely neighbours first.
        while len(limbs) > 1:
            pairs = list(itertools.pairwise(limbs))
            joined = [at for at, pair in enumerate(pairs) if not self._are_apart(*pair)]
            if not joined:
                break
            at = min(joined, key=lambda at: self._gain(*pairs[at]))
            limbs[at : at + 2] = [limbs[at] + limbs[at + 1]]
        return limbs

    def _gain(self, left: list[int], right: list[int]) -> float:
        """The least share that the motion of the other side leaves of a torque's error."""
        alone = np.concatenate([self._errors(left), self._errors(right)])
        return float(np.min(self._errors(left + right) / np.maximum(alone, EXACT)))

    def _are_apart(self, left: list[int], right: list[int]) -> bool:
        """Whether no torque of either side is better predicted with the motion of the other."""
        if self._gain(left, right) < 1:
            return False
        both = self._errors(left + right)
        rows = len(self.moments.torque)
        shifts = [round(share * rows) for share in SHIFTS]
        for side, other, errors in (
            (left, right, both[: len(left)]),
            (right, left, both[len(left) :]),
        ):
            moved = [self.moments.errors(side, other, shift) for shift in shifts]
            if (errors < FELT * np.mean(moved, axis=0)).any():
                return False
        return True

    def _errors(self, joints: list[int]) -> Errors:
        key = tuple(joints)
        if key not in self.known:
            self.known[key] = self.moments.errors(joints)
        return self.known[key]
