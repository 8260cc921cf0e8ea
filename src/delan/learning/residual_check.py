"""Whether what a model leaves over is noise, or a law that it does not know.

Two questions are put to the residual r = τ − τ̂ on unseen motion. Can each error be told from those
before and after it? Can it be told from the motion, by another mechanical law of no particular
geometry? Noise answers neither.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from ..errors import ModelError
from ..joints import Dataset
from ..models.dynamics import InverseDynamics, require_same_joints
from ..models.friction_memory import memory_of
from ..models.model import without_trust
from .scores import Errors, predict

DOUBTFUL = 1e-4
"""A structured error, as share of the torque's variance, that puts a model in doubt: 1 % of the
torque's spread. It is small where it was measured, but that of a loop or of springs grows tenfold
when the robot moves twice as fast.
"""
LEAST_SHARE = 0.1
"""The share of the error that must have structure beyond chance; a true model misled by noise shows
less.
"""
SIGMAS = 3.0
"""How many standard errors of a share count as chance."""
LEAST_SPREAD, LEAST_ROWS = 0.75, 20
"""The least spread of what is told from row to row, and the fewest rows: a few that happen to agree
are no proof.
"""
STEADY = 0.998
"""Neighbours in time are so many rows apart that the torque keeps this correlation with itself: in
a dense recording sensors repeat their errors from row to row, for they filter.
"""
SCALES = 5
"""Windows of 1, 2, 4, … times as many rows before and after each row, by which it is told."""
ROWS = 400
"""Samples that another law is tried on, at most."""
RUNS = 10
"""Runs of rows; each is told by what was learned from the others."""
RIDGE = 1e-3
"""Damping of the weights of the windows, relative to their curvature."""
NOISES = (1e-4, 1e-2, 1e-1, 1.0, 10.0)
"""Noise that the other law may assume, relative to the variance of its parts."""
MOSTLY = 0.5
"""A cause that explains this share of the error is named."""

Columns = Float[np.ndarray, "rows dof"]
PerJoint = Float[np.ndarray, " dof"]


@dataclass(frozen=True)
class Misfit:
    """How much of the error of a model has structure, per joint.

    Attributes:
        joints: their names.
        nmse: mean squared error over the variance of the torque.
        share: of the squared error, what can be told from its neighbours in time or from the
            motion.
        chance: how uncertain that share is.
        friction: of the squared error, what is odd in the joint's own velocity, as friction is and
            the torque of links is not.
    """

    joints: tuple[str, ...]
    nmse: tuple[float, ...]
    share: tuple[float, ...]
    chance: tuple[float, ...]
    friction: tuple[float, ...]

    @property
    def structured(self) -> tuple[float, ...]:
        """nMSE × share: what no noise accounts for."""
        return tuple(error * share for error, share in zip(self.nmse, self.share, strict=True))

    @property
    def suspects(self) -> tuple[str, ...]:
        """The joints whose error is structured beyond chance, and not small."""
        rows = zip(self.joints, self.structured, self.share, self.chance, strict=True)
        return tuple(
            name
            for name, size, share, chance in rows
            if size > DOUBTFUL and share - chance > LEAST_SHARE
        )

    @property
    def doubtful(self) -> bool:
        """Whether the model misses a law, so that its errors elsewhere may be larger than they were
        here.
        """
        return bool(self.suspects)

    def sentence(self) -> str:
        """What was found, what it may mean and what to do."""
        if self.doubtful:
            return f"{self._finding()}; {self._meaning()}"
        worst = np.nanmax(self.nmse) if np.isfinite(self.nmse).any() else 0.0
        if worst < DOUBTFUL:
            return f"the torque of held-back motion is explained (nMSE at most {worst:.1g})"
        rows = zip(self.nmse, self.chance, strict=True)
        if any(error > DOUBTFUL and chance > MOSTLY for error, chance in rows):
            return f"held-back motion is too short to tell if its errors (nMSE up to {worst:.1g}) are noise; give more"
        return f"the errors on held-back motion (nMSE up to {worst:.1g}) look like noise"

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON, NaN as None."""
        columns = {**asdict(self), "structured": self.structured}
        plain = {
            name: [None if one != one else one for one in column]
            for name, column in columns.items()
        }
        return {**plain, "doubtful": self.doubtful, "sentence": self.sentence()}

    def _finding(self) -> str:
        sizes = dict(zip(self.joints, self.structured, strict=True))
        told = ", ".join(f"{_percent(np.sqrt(sizes[name]))} at {name}" for name in self.suspects)
        return (
            "what the model left of the torque on held-back motion is no noise, but follows a law that it has not: "
            f"{told} of the torque's spread"
        )

    def _meaning(self) -> str:
        odd = [
            share
            for name, share in zip(self.joints, self.friction, strict=True)
            if name in self.suspects
        ]
        if np.median(odd) > MOSTLY:
            told = "they turn with the velocity, as friction does"
            return f"{told}: let friction be 'auto' if it was not, or record more motion at many speeds"
        return (
            "a closed loop, elastic joints, a wrong order, kind or parent of a joint, torques filtered otherwise than "
            "the motion, or a fit that ended too early look like this: check these, and do not expect such errors of "
            "faster motion, which may have larger ones"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"


def diagnose(model: InverseDynamics, dataset: Dataset) -> Misfit:
    """Look for structure in the errors of a model on motion that it was not fitted to."""
    model = without_trust(model)
    require_same_joints(model.joints, dataset)
    whole, dataset = dataset, dataset.samples
    with jax.enable_x64(True):
        motions = tuple(jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd))
        predicted = predict(model, "inverse_dynamics", *motions, memory=memory_of(model, whole))
    residual = dataset.tau - predicted
    if not np.isfinite(residual).all():
        raise ModelError(
            f"the model gives no finite torque for the motion of {dataset.source}; fit it again"
        )
    # On small matrices the threads of a BLAS wait for each other, on a busy machine a hundred times
    # the work itself.
    with threadpool_limits(1, user_api="blas"):
        found = _structure(residual, predicted, dataset)
        friction = _odd_in_velocity(residual, dataset.qd)
    return Misfit(
        joints=dataset.joints.names,
        nmse=Errors.of(predicted, dataset.tau, dataset.tau.var(axis=0)).nmse,
        share=tuple(np.clip(found.share, 0, 1).tolist()),
        chance=tuple(np.clip(found.chance, 0, 1).tolist()),
        friction=tuple(friction.tolist()),
    )


def _structure(residual: Columns, predicted: Columns, dataset: Dataset) -> "_Gain":
    """What is told best, per joint, by neighbours in time or by the motion."""
    if len(residual) < LEAST_ROWS:
        return _Gain(np.zeros(dataset.dof), np.ones(dataset.dof))
    windows = _windows(residual, dataset.trajectory, _spacing(predicted, dataset.trajectory))
    found = [
        _Gain.of(residual, _told_by_windows(residual, windows)),
        *_told_by_motion(residual, dataset),
    ]
    best = np.argmax([one.share - one.chance for one in found], axis=0)
    return _Gain(
        *(np.choose(best, [getattr(one, name) for one in found]) for name in ("share", "chance"))
    )


@dataclass(frozen=True, eq=False)
class _Gain:
    """The share of the squared residual that a prediction of unseen rows takes away, and how
    uncertain that is.
    """

    share: PerJoint
    chance: PerJoint

    @classmethod
    def of(cls, residual: Columns, told: Columns) -> "_Gain":
        size = np.mean(residual**2, axis=0)
        gain = (residual**2 - (residual - told) ** 2) / np.where(size > 0, size, 1.0)
        spread = np.maximum(gain.std(axis=0), LEAST_SPREAD)
        return cls(gain.mean(axis=0), SIGMAS * spread / np.sqrt(len(gain)))


def _runs(count: int) -> list[np.ndarray]:
    return np.array_split(np.arange(count), RUNS)


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
    """Of each row the mean of the rows w to 2w − 1 after it plus that of as many before it, in the
    same trajectory.
    """
    row = np.arange(len(residual))
    starts = np.flatnonzero(np.diff(trajectory, prepend=trajectory[0] - 1))
    own = np.searchsorted(starts, row, side="right") - 1
    first, last = starts[own][:, None], np.append(starts[1:], len(row))[own][:, None]
    width = spacing * 2 ** np.arange(SCALES)
    total = np.concatenate([np.zeros((1, residual.shape[1])), np.cumsum(residual, axis=0)])
    windows = np.zeros((len(row), SCALES, residual.shape[1]))
    for begin, end in ((width, 2 * width), (1 - 2 * width, 1 - width)):
        begin, end = (np.clip(row[:, None] + edge, first, last) for edge in (begin, end))
        windows += (total[end] - total[begin]) / np.maximum(end - begin, 1)[:, :, None]
    return np.moveaxis(windows, 1, 2)


def _told_by_windows(residual: Columns, windows: Float[np.ndarray, "rows dof scales"]) -> Columns:
    """Each residual as a weighted sum of its windows, with weights from other runs of rows.

    There are weights for smooth errors and for swinging ones, and none for independent ones.
    """
    told, runs = np.zeros_like(residual), _runs(len(residual))
    curvatures = np.stack([np.einsum("tjk,tjl->jkl", windows[run], windows[run]) for run in runs])
    slopes = np.stack([np.einsum("tjk,tj->jk", windows[run], residual[run]) for run in runs])
    for index, run in enumerate(runs):
        curvature, slope = (
            np.delete(part, index, axis=0).sum(axis=0) for part in (curvatures, slopes)
        )
        damping = RIDGE * np.trace(curvature, axis1=1, axis2=2) / SCALES
        damping = np.where(damping > 0, damping, 1.0)
        weights = np.linalg.solve(
            curvature + damping[:, None, None] * np.eye(SCALES), slope[:, :, None]
        )[:, :, 0]
        told[run] = np.einsum("tjk,jk->tj", windows[run], weights)
    return told


def _told_by_motion(residual: Columns, dataset: Dataset) -> list[_Gain]:
    """Gaussian-process regression of the residual on the motion, across runs of rows; a gain for
    each noise assumed.
    """
    rows = np.unique(np.linspace(0, len(residual) - 1, ROWS).astype(int))
    residual = residual[rows]
    size, modes = np.linalg.eigh(_kernel(dataset.rows(rows)))
    gains = []
    for noise in NOISES:
        left = (modes * (noise / (np.maximum(size, 0) + noise))) @ modes.T
        error = left @ residual
        # What is left of a run when all the others are used to tell it, in closed form.
        unseen = np.concatenate(
            [np.linalg.solve(left[np.ix_(run, run)], error[run]) for run in _runs(len(rows))]
        )
        gains.append(_Gain.of(residual, residual - unseen))
    return gains


def _kernel(dataset: Dataset) -> Float[np.ndarray, "rows rows"]:
    """Covariance of torques that are smooth in q, linear in q̈, quadratic in q̇, and of friction
    beside them.

    k(q, q') (1 + q̈·q̈' + (q̇·q̇')²) + q̇·q̇' + sgn q̇·sgn q̇', each vector in units of its joints'
    own size.
    """
    turning = np.array([kind != "prismatic" for kind in dataset.joints.kinds])
    angle = dataset.q[:, turning]
    place = np.concatenate(
        [
            np.cos(angle),
            np.sin(angle),
            _in_own_size(dataset.q - dataset.q.mean(axis=0))[:, ~turning],
        ],
        axis=1,
    )
    square = np.sum(place**2, axis=1)
    near = np.exp(-(square[:, None] + square[None] - 2 * place @ place.T) / dataset.dof)
    speed, push = _in_own_size(dataset.qd), _in_own_size(dataset.qdd)
    along, pushes = (one @ one.T / dataset.dof for one in (speed, push))
    way = np.sign(speed)
    return near * (1 + pushes + along**2) + along + way @ way.T / dataset.dof


def _in_own_size(columns: Columns) -> Columns:
    size = np.sqrt(np.mean(columns**2, axis=0))
    return columns / np.where(size > 0, size, 1.0)


def _odd_in_velocity(residual: Columns, qd: Columns) -> PerJoint:
    """The share of each joint's squared residual that sgn q̇, q̇ and q̇ |q̇| of that joint explain."""
    shares = []
    for error, speed in zip(residual.T, _in_own_size(qd).T, strict=True):
        curves = np.stack([np.sign(speed), speed, speed * np.abs(speed)], axis=1)
        told = curves @ np.linalg.lstsq(curves, error, rcond=None)[0]
        size = np.sum(error**2)
        shares.append(np.sum(told**2) / size if size > 0 else 0.0)
    return np.array(shares)
