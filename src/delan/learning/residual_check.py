"""The residual check: whether the torque that a model leaves unexplained is noise or structure.

Two questions are put to the residual r = τ − τ̂ on validation motion. Can each error be predicted
from those before and after it? Can it be predicted from the motion, by another mechanical law of no
particular geometry? For noise both answers are no.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..joints import Dataset, evenly_spaced, nonzero_scale
from ..models.dynamics import InverseDynamics, require_same_joints
from ..models.model import without_trust
from ..solvers.linearised import one_blas_thread
from .scores import Errors, TorqueSize, predict_samples

# A structured error above this share of the torque's variance, 1 % of its standard deviation, puts
# a model in doubt. It is small where it was measured, but the error of a closed loop or of elastic
# joints grows tenfold when the robot moves twice as fast.
DOUBTFUL = 1e-4
# Where a log had to be filtered, so much is always left by sensors, filters and friction: 10 % of
# the standard deviation.
DOUBTFUL_IF_FILTERED = 1e-2
# The share of the error that must have structure beyond chance; a true model that noise misled
# shows less.
LEAST_SHARE = 0.1
# Standard errors of a share that count as chance.
SIGMAS = 3.0
# The least standard deviation of a gain from row to row, and the fewest rows: a few that happen to
# agree prove nothing.
LEAST_SPREAD = 0.75
LEAST_ROWS = 20
# Neighbours in time are as many rows apart as the torque keeps this correlation with itself: in a
# dense recording, sensors that filter repeat their errors from row to row.
STEADY = 0.998
# Windows of 1, 2, 4, … times as many rows before and after a row predict its error.
SCALES = 5
# The most samples for the prediction from the motion, whose cost grows with their cube.
ROWS = 400
# Blocks of rows; each is predicted from the others.
BLOCKS = 10
# Damping of the weights of the windows, relative to their curvature.
RIDGE = 1e-3
# Noise that the prediction from the motion assumes, relative to the variance of its terms.
NOISES = (1e-4, 1e-2, 1e-1, 1.0, 10.0)
# A cause that explains this share of the error is named.
MOSTLY = 0.5

Columns = Float[np.ndarray, "rows dof"]
PerJoint = Float[np.ndarray, " dof"]


@dataclass(frozen=True)
class Misfit:
    """How much of the error of a model has structure, per joint.

    Attributes:
        joints: their names.
        nmse: mean squared error over the variance of the torque.
        share: of the squared error, what can be predicted from its neighbours in time or from the
            motion.
        chance: how uncertain that share is.
        friction: of the squared error, what is odd in the joint's own velocity, as friction is and
            the torque of links is not.
        tolerated: the structured error that puts no model in doubt.
    """

    joints: tuple[str, ...]
    nmse: tuple[float, ...]
    share: tuple[float, ...]
    chance: tuple[float, ...]
    friction: tuple[float, ...]
    tolerated: float = DOUBTFUL

    @property
    def structured(self) -> tuple[float, ...]:
        """nMSE × share: the error that is not noise."""
        return tuple((np.array(self.nmse) * np.array(self.share)).tolist())

    @property
    def suspects(self) -> tuple[str, ...]:
        """The joints whose error is structured beyond chance, and not small."""
        return tuple(np.array(self.joints)[self._suspected].tolist())

    @property
    def doubtful(self) -> bool:
        """Whether the model misses a law, so that its errors on other motion may be larger."""
        return bool(self._suspected.any())

    @property
    def _suspected(self) -> np.ndarray:
        certain = np.array(self.share) - np.array(self.chance) > LEAST_SHARE
        return (np.array(self.structured) > self.tolerated) & certain

    def sentence(self) -> str:
        """The finding, what it may mean and what to do."""
        if self.doubtful:
            return f"{self._finding()}; {self._meaning()}"
        nmse = np.array(self.nmse)
        worst = np.nanmax(nmse) if np.isfinite(nmse).any() else 0.0
        if worst < self.tolerated:
            return f"the torque of held-out motion is explained (nMSE at most {worst:.1g})"
        if ((nmse > self.tolerated) & (np.array(self.chance) > MOSTLY)).any():
            return (
                "held-out motion is too short to say if its errors "
                f"(nMSE up to {worst:.1g}) are noise; give more"
            )
        return f"the errors on held-out motion (nMSE up to {worst:.1g}) look like noise"

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON, NaN as None."""
        plain: dict[str, Any] = {}
        columns = asdict(self)
        del columns["tolerated"]
        for name, column in (*columns.items(), ("structured", self.structured)):
            plain[name] = [None if entry != entry else entry for entry in column]
        return {**plain, "doubtful": self.doubtful, "sentence": self.sentence()}

    def _finding(self) -> str:
        sizes = []
        for name, size in zip(self.joints, self.structured, strict=True):
            if name in self.suspects:
                sizes.append(f"{_percent(np.sqrt(size))} at {name}")
        return (
            "the residual on held-out motion is not noise: it has structure that this model cannot "
            f"represent, {', '.join(sizes)} of the torque's standard deviation"
        )

    def _meaning(self) -> str:
        if np.median(np.array(self.friction)[self._suspected]) > MOSTLY:
            return (
                "it changes sign with the velocity, as friction does: let friction be 'auto' if it "
                "was not, or record more motion at many speeds"
            )
        return (
            "a closed loop, elastic joints, a wrong order, kind or parent of a joint, torques "
            "filtered otherwise than the motion, or a fit that ended too early look like this: "
            "check these, and expect larger errors on faster motion"
        )


def diagnose(model: InverseDynamics, dataset: Dataset) -> Misfit:
    """Look for structure in the errors of a model on motion that it was not fitted to."""
    model = without_trust(model)
    require_same_joints(model.joints, dataset)
    predicted = predict_samples(model, dataset)
    samples = dataset.samples
    residual = samples.tau - predicted
    if not np.isfinite(residual).all():
        raise ModelError(
            f"the model gives no finite torque for the motion of {dataset.source}; fit it again"
        )
    with one_blas_thread():
        best = _structure(residual, predicted, samples)
        friction = _odd_in_velocity(residual, samples.qd)
    size = TorqueSize.of(samples).for_model(model, dataset)
    return Misfit(
        joints=dataset.joints.names,
        nmse=Errors.of(predicted, samples.tau, size).nmse,
        share=tuple(np.clip(best.share, 0, 1).tolist()),
        chance=tuple(np.clip(best.chance, 0, 1).tolist()),
        friction=tuple(friction.tolist()),
        tolerated=DOUBTFUL_IF_FILTERED if _is_filtered(dataset) else DOUBTFUL,
    )


def _is_filtered(dataset: Dataset) -> bool:
    return dataset.preparation is not None and dataset.preparation.cutoff is not None


@dataclass(frozen=True, eq=False)
class _Gain:
    """The share of the squared residual that a prediction takes away, and how uncertain it is."""

    share: PerJoint
    chance: PerJoint

    @classmethod
    def of(cls, residual: Columns, predicted: Columns) -> "_Gain":
        size = nonzero_scale(np.mean(residual**2, axis=0))
        gain = (residual**2 - (residual - predicted) ** 2) / size
        spread = np.maximum(gain.std(axis=0), LEAST_SPREAD)
        return cls(gain.mean(axis=0), SIGMAS * spread / np.sqrt(len(gain)))


def _structure(residual: Columns, torque: Columns, samples: Dataset) -> _Gain:
    """The best prediction per joint, by neighbours in time or by the motion."""
    if len(residual) < LEAST_ROWS:
        return _Gain(np.zeros(samples.dof), np.ones(samples.dof))
    windows = _windows(residual, samples.trajectory, _spacing(torque, samples.trajectory))
    gains = [_Gain.of(residual, _predicted_by_windows(residual, windows))]
    gains += _predicted_by_motion(residual, samples)
    shares = np.stack([gain.share for gain in gains])
    chances = np.stack([gain.chance for gain in gains])
    best = np.argmax(shares - chances, axis=0)
    return _Gain(np.choose(best, shares), np.choose(best, chances))


def _spacing(torque: Columns, trajectory: np.ndarray) -> int:
    """The most rows, as a power of two, over which the torque hardly changes."""
    moved = torque - torque.mean(axis=0)
    size = np.mean(moved**2, axis=0)
    moved = moved[:, size > 0] / np.sqrt(size[size > 0])
    rows = 1
    while 2 * rows < len(moved):
        together = trajectory[2 * rows :] == trajectory[: -2 * rows]
        products = moved[2 * rows :][together] * moved[: -2 * rows][together]
        if not (products.size and products.mean() > STEADY):
            break
        rows *= 2
    return rows


def _windows(
    residual: Columns, trajectory: np.ndarray, spacing: int
) -> Float[np.ndarray, "rows dof scales"]:
    """For each row, the mean of the rows w to 2w − 1 after it plus that of as many before it.

    Windows end with the trajectory.
    """
    row = np.arange(len(residual))
    starts = np.flatnonzero(np.diff(trajectory, prepend=trajectory[0] - 1))
    own = np.searchsorted(starts, row, side="right") - 1
    first = starts[own][:, None]
    last = np.append(starts[1:], len(row))[own][:, None]
    width = spacing * 2 ** np.arange(SCALES)
    total = np.concatenate([np.zeros((1, residual.shape[1])), np.cumsum(residual, axis=0)])
    windows = np.zeros((len(row), SCALES, residual.shape[1]))
    for near, far in ((width, 2 * width), (1 - 2 * width, 1 - width)):
        begin = np.clip(row[:, None] + near, first, last)
        end = np.clip(row[:, None] + far, first, last)
        windows += (total[end] - total[begin]) / np.maximum(end - begin, 1)[:, :, None]
    return np.moveaxis(windows, 1, 2)


def _blocks(count: int) -> list[np.ndarray]:
    return np.array_split(np.arange(count), BLOCKS)


def _predicted_by_windows(
    residual: Columns, windows: Float[np.ndarray, "rows dof scales"]
) -> Columns:
    """Each residual as a weighted sum of its windows, with weights from the other blocks.

    The weights fit smooth errors as well as swinging ones, and vanish for independent ones.
    """
    predicted = np.zeros_like(residual)
    blocks = _blocks(len(residual))
    curvatures = []
    slopes = []
    for block in blocks:
        curvatures.append(np.einsum("tjk,tjl->jkl", windows[block], windows[block]))
        slopes.append(np.einsum("tjk,tj->jk", windows[block], residual[block]))
    for index, block in enumerate(blocks):
        curvature = np.delete(curvatures, index, axis=0).sum(axis=0)
        slope = np.delete(slopes, index, axis=0).sum(axis=0)
        damping = nonzero_scale(RIDGE * np.trace(curvature, axis1=1, axis2=2) / SCALES)
        damped = curvature + damping[:, None, None] * np.eye(SCALES)
        weights = np.linalg.solve(damped, slope[:, :, None])[:, :, 0]
        predicted[block] = np.einsum("tjk,jk->tj", windows[block], weights)
    return predicted


def _predicted_by_motion(residual: Columns, samples: Dataset) -> list[_Gain]:
    """Gaussian-process regression of the residual on the motion; a gain for each assumed noise."""
    rows = evenly_spaced(len(residual), ROWS)
    residual = residual[rows]
    size, modes = np.linalg.eigh(_kernel(samples.rows(rows)))
    gains = []
    for noise in NOISES:
        left = (modes * (noise / (np.maximum(size, 0) + noise))) @ modes.T
        error = left @ residual
        unseen = np.empty_like(residual)
        for block in _blocks(len(rows)):
            # What remains of a block that is predicted from all others, in closed form.
            unseen[block] = np.linalg.solve(left[np.ix_(block, block)], error[block])
        gains.append(_Gain.of(residual, residual - unseen))
    return gains


def _kernel(samples: Dataset) -> Float[np.ndarray, "rows rows"]:
    """Covariance of torques smooth in q, linear in q̈ and quadratic in q̇, and of friction.

    k(q, q') (1 + q̈·q̈' + (q̇·q̇')²) + q̇·q̇' + sgn q̇·sgn q̇', each joint in its own size.
    """
    angle = samples.q[:, samples.joints.turning]
    slide = _in_own_size(samples.q - samples.q.mean(axis=0))[:, samples.joints.sliding]
    place = np.concatenate([np.cos(angle), np.sin(angle), slide], axis=1)
    square = np.sum(place**2, axis=1)
    near = np.exp(-(square[:, None] + square[None] - 2 * place @ place.T) / samples.dof)
    velocity = _in_own_size(samples.qd)
    along = velocity @ velocity.T / samples.dof
    acceleration = _in_own_size(samples.qdd)
    pushes = acceleration @ acceleration.T / samples.dof
    direction = np.sign(velocity)
    return near * (1 + pushes + along**2) + along + direction @ direction.T / samples.dof


def _in_own_size(columns: Columns) -> Columns:
    return columns / nonzero_scale(np.sqrt(np.mean(columns**2, axis=0)))


def _odd_in_velocity(residual: Columns, qd: Columns) -> PerJoint:
    """The share of each joint's squared residual that its sgn q̇, q̇ and q̇ |q̇| explain."""
    shares = np.zeros(residual.shape[1])
    for joint, (error, speed) in enumerate(zip(residual.T, _in_own_size(qd).T, strict=True)):
        curves = np.stack([np.sign(speed), speed, speed * np.abs(speed)], axis=1)
        explained = curves @ np.linalg.lstsq(curves, error, rcond=None)[0]
        size = np.sum(error**2)
        if size > 0:
            shares[joint] = np.sum(explained**2) / size
    return shares


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"
