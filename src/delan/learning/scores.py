"""Scores of a model: errors of its torques, components, accelerations and predicted motion.

`nmse_interval` says how certain an error is: the interval in which it would lie if the same robot
had been recorded on another day.
"""

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..errors import ModelError
from ..joints import COMPONENTS, Dataset
from ..logs.actuation import unactuated
from ..logs.segments import usual_step
from ..logs.split import generator
from ..mechanics.integration import rollout
from ..models.dynamics import (
    DynamicsModel,
    InverseDynamics,
    in_precision,
    require_same_joints,
)
from ..models.friction_memory import memory_of
from ..models.model import Model, as_model, without_trust
from ..solvers.linearised import drive_parts, drive_torques
from ..solvers.loss import Samples, Windows, mean_torque

# A predicted motion is valid while the root mean square over joints of its error stays below this
# [rad or m].
VALID_ERROR = 0.1
# The step of the integration that predicts a motion, approximately [s], and how many steps between
# two samples are affordable.
ROLLOUT_STEP = 5e-3
MOST_STEPS = 20
# Fewer rows are padded to this number: that takes milliseconds, while compiling a program for them
# takes a second.
LEAST_ROWS = 2048
# The share of the resamples that an interval holds, and their number.
SURE = 0.9
RESAMPLES = 1000
# Length of a resampled block [s], and the largest share of the motion that it may be: few blocks
# do not show their spread.
BLOCK_SECONDS = 1.0
MOST_SHARE = 1 / 12
# With fewer blocks there is no interval.
FEWEST_BLOCKS = 4
# A step of more than this many usual steps ends a segment of a log.
GAP = 2.5


class TorqueSize(NamedTuple):
    """Variance and range of each joint's torque in a whole log, to measure errors by.

    The variance of a part would not do: of a part at rest it is next to nothing. `free` marks
    joints without a motor, whose torque has neither variance nor range: a model is measured there
    by the inertial torque that it assigns to the joint itself (`for_model`), because a model
    without inertia there needs no torque for any motion.
    """

    variance: Float[np.ndarray, " dof"]
    range: Float[np.ndarray, " dof"]
    free: Bool[np.ndarray, " dof"]

    @classmethod
    def of(cls, dataset: Dataset) -> "TorqueSize":
        tau = dataset.samples.tau
        return cls(tau.var(axis=0), np.ptp(tau, axis=0), unactuated(tau))

    def for_model(self, model: InverseDynamics, dataset: Dataset) -> "TorqueSize":
        """Return the size with the inertial torques of a model at joints without a motor.

        A model that knows no mechanics has none there.
        """
        if not self.free.any() or not model.promises.mechanics:
            return self
        inertial = predict_samples(model, dataset, "components").inertial
        return self._replace(variance=np.where(self.free, inertial.var(axis=0), self.variance))

    @classmethod
    def spread_of(cls, columns: Float[np.ndarray, "rows dof"]) -> "TorqueSize":
        """Variance and range of other columns, such as accelerations."""
        nobody = np.zeros(columns.shape[1], dtype=bool)
        return cls(columns.var(axis=0), np.ptp(columns, axis=0), nobody)

    @property
    def averaged(self) -> Bool[np.ndarray, " dof"]:
        """The joints whose nMSE count in the mean: those with a motor and a torque that varies.

        To say that a torque is zero where there is no motor is no merit of a model; its errors
        there are judged for themselves.
        """
        return (self.variance > 0) & ~self.free

    def nmse(self, error: Float[np.ndarray, "samples dof"]) -> float:
        """The mean nMSE of an error, over the joints that are `averaged`."""
        counted = self.averaged
        return float(np.mean(np.mean(error**2, axis=0)[counted] / self.variance[counted]))


@dataclass(frozen=True)
class Errors:
    """Errors per joint; nMSE = MSE over the variance of the joint's torque (or acceleration).

    `share` is the RMSE over the range of the joint's torque. Variance and range are those of the
    whole log, of which the scored samples may be a part. Components of the torque are divided by
    the variance of the whole torque, so that their nMSE can be compared and exists where a
    component is constant. A joint whose torque is constant has no nMSE and no R² (NaN) and is left
    out of the mean. `free` marks joints without a motor: their nMSE is relative to the inertial
    torque that the model assigns to them, and not in the mean.
    """

    mse: tuple[float, ...]
    mse_sum: float
    rmse: tuple[float, ...]
    nmse: tuple[float, ...]
    nmse_mean: float
    r2: tuple[float, ...]
    share: tuple[float, ...]
    free: tuple[bool, ...] = ()

    @property
    def free_nmse(self) -> float:
        """The largest nMSE of joints without a motor; 0 if all have one."""
        errors = [nmse for nmse, free in zip(self.nmse, self.free, strict=True) if free]
        return max(errors, default=0.0)

    @classmethod
    def of(cls, predicted: np.ndarray, true: np.ndarray, size: TorqueSize) -> "Errors":
        mse = np.mean((predicted - true) ** 2, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            nmse = np.where(size.variance > 0, mse / size.variance, np.nan)
            share = np.where(size.range > 0, np.sqrt(mse) / size.range, np.nan)
            r2 = 1 - np.where(true.var(axis=0) > 0, mse / true.var(axis=0), np.nan)
        mean = float(nmse[size.averaged].mean()) if size.averaged.any() else float("nan")
        return cls(
            mse=tuple(mse.tolist()),
            mse_sum=float(mse.sum()),
            rmse=tuple(np.sqrt(mse).tolist()),
            nmse=tuple(nmse.tolist()),
            nmse_mean=mean,
            r2=tuple(r2.tolist()),
            share=tuple(share.tolist()),
            free=tuple(size.free.tolist()),
        )


@dataclass(frozen=True)
class Rollouts:
    """Motion predicted from the first state of each trajectory and its torques.

    Attributes:
        valid_seconds: per trajectory, how long the error stays below `VALID_ERROR` [s].
        duration_seconds: per trajectory, its duration [s].
        energy_drift: per trajectory, how far the energy strays when the robot is let go from the
            first state for as long, over the largest kinetic energy; None for a model without
            potential energy.
    """

    valid_seconds: tuple[float, ...]
    duration_seconds: tuple[float, ...]
    energy_drift: tuple[float, ...] | None

    @property
    def valid_share(self) -> float:
        return float(np.sum(self.valid_seconds) / np.sum(self.duration_seconds))


@dataclass(frozen=True)
class Scores:
    """The errors of a model on a dataset; what the model or the data cannot give is None."""

    torque: Errors
    components: dict[str, Errors]
    acceleration: Errors | None
    rollouts: Rollouts | None
    samples: int

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON, NaN as None; components stand beside the torque."""
        plain: dict[str, Any] = {"torque": asdict(self.torque)}
        for name, errors in self.components.items():
            plain[name] = asdict(errors)
        if self.acceleration is not None:
            plain["acceleration"] = asdict(self.acceleration)
        if self.rollouts is not None:
            plain["rollouts"] = asdict(self.rollouts) | {"valid_share": self.rollouts.valid_share}
        return _without_nan({**plain, "samples": self.samples})


def evaluate(
    model: InverseDynamics,
    dataset: Dataset,
    *,
    rollouts: bool = True,
    size: TorqueSize | None = None,
) -> Scores:
    """Score a model on a dataset, in float64 whatever the model was trained in.

    `size` is that of the torques in the whole log, where the dataset is a part of one.
    """
    if not isinstance(model, InverseDynamics):
        problem = f"expected a model, got a {type(model).__name__}"
        raise ModelError(f"{problem}; read one from its file with delan.load")
    model = without_trust(model)
    require_same_joints(model.joints, dataset)
    samples = dataset.samples
    size = (size or TorqueSize.of(dataset)).for_model(model, dataset)
    components = {}
    acceleration = None
    motion = None
    torque = Errors.of(predict_samples(model, dataset), samples.tau, size)
    if model.promises.mechanics:
        parts = predict_samples(model, dataset, "components")
        for name in COMPONENTS:
            if name in samples.truth:
                components[name] = Errors.of(getattr(parts, name), samples.truth[name], size)
        with jax.enable_x64(True):
            columns = (samples.q, samples.qd, samples.tau)
            memory = memory_of(model, dataset)
            qdd = predict(model, "forward_dynamics", *columns, memory=memory)
            acceleration = Errors.of(qdd, samples.qdd, TorqueSize.spread_of(samples.qdd))
            if rollouts:
                motion = _rollouts(model, dataset)
    return Scores(torque, components, acceleration, motion, len(samples))


def evaluate_windows(model: Any, dataset: Dataset) -> Scores:
    """Score a model by the mean torques of windows; nothing is differentiated or filtered."""
    with jax.enable_x64(True):
        windows = Windows.of(dataset, as_model(model).friction_settings)
        predicted = np.asarray(_predict_windows(model, windows))
    true = np.asarray(windows.tau)
    size = TorqueSize.spread_of(true)._replace(free=unactuated(true))
    return Scores(Errors.of(predicted, true, size), {}, None, None, len(windows))


def torque_scores(predicted: np.ndarray, measured: np.ndarray, size: TorqueSize) -> Scores:
    """The scores of predicted torques alone."""
    return Scores(Errors.of(predicted, measured, size), {}, None, None, len(measured))


# Methods of a model that share one compiled program.
_COMPILED_ONCE = {"inverse_dynamics": drive_torques, "components": drive_parts}


def predict_samples(model: Any, dataset: Dataset, method: str = "inverse_dynamics") -> Any:
    """A method of (q, q̇, q̈) at every sample of a dataset, in float64, as numpy arrays."""
    samples = dataset.samples
    memory = memory_of(model, dataset)
    if isinstance(model, Model) and method in _COMPILED_ONCE:
        with jax.enable_x64(True):
            data = Samples.of(samples, memory)
            return _COMPILED_ONCE[method](in_precision(without_trust(model)), data)
    with jax.enable_x64(True):
        return predict(model, method, samples.q, samples.qd, samples.qdd, memory=memory)


def predict(
    model: InverseDynamics,
    method: str,
    *columns: Array | np.ndarray,
    memory: np.ndarray | None = None,
) -> Any:
    """A method of the model on every row of the columns, as numpy arrays."""
    named = {} if memory is None else {"memory": memory}
    count = len(columns[0])
    if isinstance(model, eqx.Module):
        # Padded to a power of two, so that data of many lengths share a few compiled programs.
        rows = np.minimum(np.arange(max(LEAST_ROWS, 1 << (count - 1).bit_length())), count - 1)
        padded = jax.tree.map(lambda column: np.asarray(column)[rows], (columns, named))
        results = _predict(model, method, *padded)
        return jax.tree.map(lambda result: np.asarray(result)[:count], results)
    answer = getattr(model, method)
    results = []
    for row, arguments in enumerate(zip(*map(np.asarray, columns), strict=True)):
        if memory is None:
            results.append(answer(*arguments))
        else:
            results.append(answer(*arguments, memory=memory[row]))
    return jax.tree.map(lambda *entries: np.stack(entries), *results)


def residual_torques(known: Model, dataset: Dataset) -> Dataset:
    """The dataset with the torques that a model leaves unexplained, at the samples that count.

    Its joints are those of the model, because a URDF may know that a joint turns without end.
    """
    counted = dataset.counted
    if counted is None:
        counted = np.ones(len(dataset), dtype=bool)
    tau = dataset.tau.copy()
    tau[counted] -= predict_samples(known, dataset)
    return replace(dataset, tau=tau, joints=known.joints)


@dataclass(frozen=True)
class NmseInterval:
    """The ends of the intervals of each joint's nMSE and of their mean, NaN where unknown."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    mean_low: float
    mean_high: float


def nmse_interval(
    errors: Float[np.ndarray, "time dof"],
    size: TorqueSize,
    blocks: Int[np.ndarray, " time"],
    key: PRNGKeyArray,
) -> NmseInterval:
    """A 90 % interval of the nMSE over torques of a given size, by resampling blocks of rows.

    Errors of neighbours in time are alike, so that resampled single rows would give too narrow an
    interval: `blocks` labels the rows that are drawn together, as `time_blocks` gives them.
    """
    labels, block = np.unique(blocks, return_inverse=True)
    count = len(labels)
    if count < FEWEST_BLOCKS:
        unknown = (float("nan"),) * errors.shape[1]
        return NmseInterval(unknown, unknown, float("nan"), float("nan"))
    columns = np.concatenate([np.ones((len(errors), 1)), errors**2], axis=1)
    sums = np.zeros((count, columns.shape[1]))
    np.add.at(sums, block, columns)
    drawn = generator(key).integers(count, size=(RESAMPLES, count))
    total = np.stack([sums[rows].sum(axis=0) for rows in drawn])
    squared = total[:, 1:] / total[:, :1]
    nmse = np.full_like(squared, np.nan)
    np.divide(squared, size.variance, out=nmse, where=size.variance > 0)
    ends = [50 * (1 - SURE), 50 * (1 + SURE)]
    low, high = np.percentile(nmse, ends, axis=0)
    mean_low, mean_high = np.percentile(nmse[:, size.averaged].mean(axis=1), ends)
    return NmseInterval(
        tuple(low.tolist()), tuple(high.tolist()), float(mean_low), float(mean_high)
    )


def time_blocks(dataset: Dataset) -> Int[np.ndarray, " time"]:
    """Labels of about a second of motion each, for the samples of a dataset.

    No block reaches over a break in time.
    """
    samples = dataset.samples
    runs = runs_of(samples)
    whole = sum(float(samples.t[end - 1] - samples.t[first]) for first, end in runs)
    length = min(BLOCK_SECONDS, MOST_SHARE * whole)
    labels = np.zeros(len(samples), dtype=int)
    last = 0
    for first, end in runs:
        into = samples.t[first:end] - samples.t[first]
        duration = float(into[-1])
        parts = max(1, round(duration / length)) if length > 0 else 1
        # The end of a run belongs to its last block.
        place = np.minimum(parts * into / max(duration, 1e-12), parts - 0.5)
        labels[first:end] = last + place.astype(int)
        last = int(labels[end - 1]) + 1
    return labels


def runs_of(samples: Dataset) -> list[tuple[int, int]]:
    """Rows [first, end) of one trajectory in which time continues evenly."""
    steps = np.diff(samples.t)
    broken = (np.diff(samples.trajectory) != 0) | (steps <= 0)
    broken |= steps > GAP * usual_step(samples.t)
    return list(pairwise([0, *(np.flatnonzero(broken) + 1).tolist(), len(samples)]))


_predict_windows = eqx.filter_jit(jax.vmap(mean_torque, in_axes=(None, 0)))


@eqx.filter_jit
def _predict(
    model: InverseDynamics, method: str, columns: tuple[Array, ...], named: dict[str, Array]
) -> Any:
    return jax.vmap(lambda row, named: getattr(model, method)(*row, **named))(columns, named)


def _rollouts(model: Any, dataset: Dataset) -> Rollouts | None:
    """All trajectories at once, the short ones padded with time that stands still."""
    trajectories = []
    for label in dataset.trajectories:
        trajectory = dataset.select([label])
        if len(trajectory) > 1:
            trajectories.append(trajectory)
    if not trajectories:
        return None
    step = float(np.median(np.concatenate([np.diff(trajectory.t) for trajectory in trajectories])))
    substeps = min(max(1, round(step / ROLLOUT_STEP)), MOST_STEPS)
    longest = substeps * (max(map(len, trajectories)) - 1) + 1
    # With few binary digits, data of many lengths share compiled programs; 1/8 more at most.
    unit = 1 << max(0, longest.bit_length() - 4)
    longest = -(-longest // unit) * unit
    times = []
    torques = []
    for trajectory in trajectories:
        rows = np.arange(len(trajectory))
        # Beyond the end of a short trajectory its last row is repeated.
        fine = np.linspace(0, rows[-1], substeps * rows[-1] + 1)
        fine = np.append(fine, np.full(longest - len(fine), fine[-1]))
        times.append(np.interp(fine, rows, trajectory.t))
        columns = [np.interp(fine, rows, column) for column in trajectory.tau.T]
        torques.append(np.stack(columns, axis=1))
    q = jnp.asarray(np.stack([trajectory.q[0] for trajectory in trajectories]))
    qd = jnp.asarray(np.stack([trajectory.qd[0] for trajectory in trajectories]))
    t = jnp.asarray(np.stack(times))
    tau = jnp.asarray(np.stack(torques))
    driven, _ = _roll(model, q, qd, tau, t)
    valid = []
    duration = []
    for trajectory, path in zip(trajectories, np.asarray(driven), strict=True):
        predicted = path[::substeps][: len(trajectory)]
        error = np.sqrt(np.mean((predicted - trajectory.q) ** 2, axis=1))
        wrong = ~(error < VALID_ERROR)  # true for NaN as well
        end = int(np.argmax(wrong)) if wrong.any() else -1
        valid.append(float(trajectory.t[end]) - float(trajectory.t[0]))
        duration.append(float(trajectory.t[-1] - trajectory.t[0]))
    drift = None
    if model.promises.energy:
        drift = _energy_drift(model, *_roll(model, q, qd, jnp.zeros(tau.shape), t))
    return Rollouts(tuple(valid), tuple(duration), drift)


@eqx.filter_jit
def _roll(model: DynamicsModel, q: Array, qd: Array, tau: Array, t: Array) -> tuple[Array, Array]:
    def forward_dynamics(q: Array, qd: Array, tau: Array) -> Any:
        if isinstance(model, eqx.Module):
            return model.forward_dynamics(q, qd, tau)
        # A known model computes outside of JAX, one state after the other.
        return jax.pure_callback(model.forward_dynamics, tau, q, qd, tau, vmap_method="sequential")

    return jax.vmap(lambda q, qd, tau, t: rollout(forward_dynamics, q, qd, tau, t))(q, qd, tau, t)


def _energy_drift(model: DynamicsModel, q: Array, qd: Array) -> tuple[float, ...]:
    """How far the energy of each free motion strays, over its largest kinetic energy."""
    states = (q.reshape(-1, q.shape[2]), qd.reshape(-1, qd.shape[2]))
    energy = predict(model, "energy", *states)
    total = energy.total.reshape(q.shape[:2])
    kinetic = energy.kinetic.reshape(q.shape[:2])
    drift = np.abs(total - total[:, :1]).max(axis=1) / kinetic.max(axis=1)
    return tuple(drift.tolist())


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
