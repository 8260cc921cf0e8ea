"""How good a model is, in numbers: torque, its parts, acceleration, and motion predicted from
torques.

How sure an error is: the interval in which it would lie had the same robot been recorded on another
day.
"""

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..errors import ModelError
from ..joints import COMPONENTS, Dataset
from ..mechanics.integration import rollout
from ..models.dynamics import DynamicsModel, InverseDynamics, require_same_joints
from ..models.friction_memory import memory_of
from ..models.model import Model, as_model, without_trust
from ..solvers.windows import Windows, mean_torque

VALID_ERROR = 0.1
"""A predicted motion is valid while the root mean square over joints of its error stays below this
[rad or m].
"""
LEAST_ROWS = 2048
"""Fewer rows are computed as so many: that takes milliseconds, and a program of its own for them
takes a second.
"""
ROLLOUT_STEP = 5e-3
"""The step of the integration that predicts a motion, about [s]."""


@dataclass(frozen=True)
class Errors:
    """Errors per joint. nMSE = MSE over the variance of that joint's torque (or acceleration) on
    the scored set.

    Parts of the torque are divided by the variance of the whole torque, so that their nMSE can be
    compared and exists where a part is constant. A joint whose torque is constant has no nMSE and
    no R² (NaN) and is left out of the mean.
    """

    mse: tuple[float, ...]
    mse_sum: float
    rmse: tuple[float, ...]
    nmse: tuple[float, ...]
    nmse_mean: float
    r2: tuple[float, ...]

    @classmethod
    def of(cls, predicted: np.ndarray, true: np.ndarray, variance: np.ndarray) -> "Errors":
        mse = np.mean((predicted - true) ** 2, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            nmse = np.where(variance > 0, mse / variance, np.nan)
            r2 = 1 - np.where(true.var(axis=0) > 0, mse / true.var(axis=0), np.nan)
        mean = float(np.nanmean(nmse)) if np.isfinite(nmse).any() else float("nan")
        return cls(
            mse=tuple(mse.tolist()),
            mse_sum=float(mse.sum()),
            rmse=tuple(np.sqrt(mse).tolist()),
            nmse=tuple(nmse.tolist()),
            nmse_mean=mean,
            r2=tuple(r2.tolist()),
        )


@dataclass(frozen=True)
class Rollouts:
    """Motion predicted from the first state of each trajectory and its torques, by the forward
    model.

    Attributes:
        valid_seconds: per trajectory, how long the error stays below `VALID_ERROR` [s].
        duration_seconds: per trajectory, how long it lasts [s].
        energy_drift: per trajectory, how far the energy strays when the robot is let go from the
            first state for as long, over the largest kinetic energy on the way; None for a model
            without potential energy.
    """

    valid_seconds: tuple[float, ...]
    duration_seconds: tuple[float, ...]
    energy_drift: tuple[float, ...] | None

    @property
    def valid_share(self) -> float:
        return float(np.sum(self.valid_seconds) / np.sum(self.duration_seconds))


@dataclass(frozen=True)
class Scores:
    """The errors of a model on a dataset; what the model or the data cannot tell is None or
    missing.
    """

    torque: Errors
    components: dict[str, Errors]
    acceleration: Errors | None
    rollouts: Rollouts | None
    samples: int

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON, NaN as None; the components stand beside the torque under their
        own names.
        """
        plain: dict[str, Any] = {"torque": asdict(self.torque)}
        plain |= {name: asdict(errors) for name, errors in self.components.items()}
        if self.acceleration is not None:
            plain["acceleration"] = asdict(self.acceleration)
        if self.rollouts is not None:
            plain["rollouts"] = asdict(self.rollouts) | {"valid_share": self.rollouts.valid_share}
        return _without_nan({**plain, "samples": self.samples})


def evaluate(model: InverseDynamics, dataset: Dataset, *, rollouts: bool = True) -> Scores:
    """Score a model on a dataset, in float64 whatever the model was trained in."""
    if not isinstance(model, InverseDynamics):
        raise ModelError(
            f"expected a model, got a {type(model).__name__}; read one from its file with delan.load"
        )
    model = without_trust(model)
    require_same_joints(model.joints, dataset)
    whole, dataset = dataset, dataset.samples
    variance = dataset.tau.var(axis=0)
    acceleration, motion, components = None, None, {}
    with jax.enable_x64(True):
        motions = tuple(jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd))
        memory = memory_of(model, whole)
        torque = Errors.of(
            predict(model, "inverse_dynamics", *motions, memory=memory), dataset.tau, variance
        )
        if model.promises.mechanics:
            parts = predict(model, "components", *motions, memory=memory)
            components = {
                name: Errors.of(getattr(parts, name), dataset.truth[name], variance)
                for name in COMPONENTS
                if name in dataset.truth
            }
            qdd = predict(
                model, "forward_dynamics", *motions[:2], jnp.asarray(dataset.tau), memory=memory
            )
            acceleration = Errors.of(qdd, dataset.qdd, dataset.qdd.var(axis=0))
            motion = _rollouts(model, whole) if rollouts else None
    return Scores(torque, components, acceleration, motion, len(dataset))


def predict(
    model: InverseDynamics, method: str, *columns: Array, memory: np.ndarray | None = None
) -> Any:
    """A method of the model on every row of the columns, as numpy arrays."""
    named = {} if memory is None else {"memory": jnp.asarray(memory)}
    if isinstance(model, eqx.Module):
        # Padded to a power of two, so that data of many lengths share a few compiled programs.
        count = len(columns[0])
        taken = np.minimum(np.arange(max(LEAST_ROWS, 1 << (count - 1).bit_length())), count - 1)
        padded = jax.tree.map(lambda column: np.asarray(column)[taken], (columns, named))
        return jax.tree.map(
            lambda result: np.asarray(result)[:count], _predict(model, method, *padded)
        )
    rows = zip(*map(np.asarray, columns), strict=True)
    extra = [{}] * len(columns[0]) if memory is None else [{"memory": one} for one in memory]
    results = [getattr(model, method)(*row, **more) for row, more in zip(rows, extra, strict=True)]
    return jax.tree.map(lambda *entries: np.stack(entries), *results)


@eqx.filter_jit
def _predict(
    model: InverseDynamics, method: str, columns: tuple[Array, ...], named: dict[str, Array]
) -> Any:
    return jax.vmap(lambda row, named: getattr(model, method)(*row, **named))(columns, named)


def _rollouts(model: Any, dataset: Dataset) -> Rollouts | None:
    """All trajectories at once, the short ones padded with time that stands still."""
    cut = [
        one
        for one in map(dataset.select, ([label] for label in dataset.trajectories))
        if len(one) > 1
    ]
    if not cut:
        return None
    step = float(np.median(np.concatenate([np.diff(one.t) for one in cut])))
    fine = [_Drive.of(one, min(max(1, round(step / ROLLOUT_STEP)), 20)) for one in cut]
    longest = max(len(drive.t) for drive in fine)
    padding = [((0, longest - len(drive.t)), (0, 0)) for drive in fine]
    t, tau = (
        np.stack(
            [np.pad(column, pad, mode="edge") for column, pad in zip(columns, padding, strict=True)]
        )
        for columns in ([drive.t[:, None] for drive in fine], [drive.tau for drive in fine])
    )
    q, qd = (jnp.asarray(np.stack([getattr(one, name)[0] for one in cut])) for name in ("q", "qd"))
    t = jnp.asarray(t[:, :, 0])
    driven, _ = _roll(model, q, qd, jnp.asarray(tau), t)
    free = _roll(model, q, qd, jnp.zeros(tau.shape), t)
    valid = []
    for one, path, drive in zip(cut, np.asarray(driven), fine, strict=True):
        error = np.sqrt(np.mean((path[: len(drive.t) : drive.refined] - one.q) ** 2, axis=1))
        wrong = ~(error < VALID_ERROR)  # a NaN is wrong too
        valid.append(float(one.t[np.argmax(wrong)] if wrong.any() else one.t[-1]) - float(one.t[0]))
    return Rollouts(
        valid_seconds=tuple(valid),
        duration_seconds=tuple(float(one.t[-1] - one.t[0]) for one in cut),
        energy_drift=_energy_drift(model, *free),
    )


@dataclass(frozen=True)
class _Drive:
    """The torques of a trajectory on a grid refined such that integration errors do not count."""

    t: np.ndarray
    tau: np.ndarray
    refined: int

    @classmethod
    def of(cls, one: Dataset, refined: int) -> "_Drive":
        rows = np.arange(len(one.t))
        fine = np.linspace(0, rows[-1], refined * rows[-1] + 1)
        tau = np.stack([np.interp(fine, rows, column) for column in one.tau.T], axis=1)
        return cls(np.interp(fine, rows, one.t), tau, refined)


@eqx.filter_jit
def _roll(model: DynamicsModel, q: Array, qd: Array, tau: Array, t: Array) -> tuple[Array, Array]:
    def forward_dynamics(q: Array, qd: Array, tau: Array) -> Any:
        if isinstance(model, eqx.Module):
            return model.forward_dynamics(q, qd, tau)
        # A known model computes outside of JAX, one state after the other.
        return jax.pure_callback(model.forward_dynamics, tau, q, qd, tau, vmap_method="sequential")

    return jax.vmap(lambda q, qd, tau, t: rollout(forward_dynamics, q, qd, tau, t))(q, qd, tau, t)


def _energy_drift(model: DynamicsModel, q: Array, qd: Array) -> tuple[float, ...] | None:
    """How far the energy of each free motion leaves its start, over the largest kinetic energy on
    the way.
    """
    try:
        energy = predict(
            model, "energy", *(motion.reshape(-1, motion.shape[2]) for motion in (q, qd))
        )
    except ModelError:
        return None
    total, kinetic = (column.reshape(q.shape[:2]) for column in (energy.total, energy.kinetic))
    drift = np.abs(total - total[:, :1]).max(axis=1) / kinetic.max(axis=1)
    return tuple(drift.tolist())


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


SURE = 0.9
"""Share of the resamples that an interval holds."""
RESAMPLES = 1000
BLOCK_SECONDS, MOST_SHARE = 1.0, 1 / 12
"""Length of a block [s], and the share of all motion that it is at most: a few blocks tell nothing
of their spread.
"""
FEWEST = 4
"""Blocks below which there is no interval."""


@dataclass(frozen=True)
class NmseInterval:
    """The lower and the upper end of each joint's nMSE and of their mean, NaN where nothing can be
    said.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    mean_low: float
    mean_high: float


def nmse_interval(
    errors: Float[np.ndarray, "time dof"],
    torque: Float[np.ndarray, "time dof"],
    blocks: Int[np.ndarray, " time"],
    key: PRNGKeyArray,
) -> NmseInterval:
    """A 90 % interval of the nMSE by drawing blocks of rows anew, MSE and variance of the same
    draw.

    Errors of neighbours in time are alike, so that single rows would promise more than they know:
    `blocks` labels the rows that are drawn together, as `time_blocks` gives them.
    """
    labels, block = np.unique(blocks, return_inverse=True)
    dof, count = errors.shape[1], len(labels)
    if count < FEWEST:
        nothing = (float("nan"),) * dof
        return NmseInterval(nothing, nothing, float("nan"), float("nan"))
    centred = torque - torque.mean(axis=0)
    columns = np.concatenate([np.ones((len(errors), 1)), errors**2, centred, centred**2], axis=1)
    sums = np.zeros((count, columns.shape[1]))
    np.add.at(sums, block, columns)
    drawn = np.asarray(jax.random.randint(key, (RESAMPLES, count), 0, count))
    total = np.stack([sums[one].sum(axis=0) for one in drawn])
    squared, mean, power = np.split(total[:, 1:] / total[:, :1], 3, axis=1)
    variance = power - mean**2
    moved = torque.var(axis=0) > 0
    nmse = np.full_like(squared, np.nan)
    np.divide(squared, variance, out=nmse, where=(variance > 0) & moved)
    return NmseInterval(
        *_ends(nmse), *(end[0] for end in _ends(nmse[:, moved].mean(axis=1, keepdims=True)))
    )


def _ends(
    values: Float[np.ndarray, "draws columns"],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    low, high = np.percentile(values, [50 * (1 - SURE), 50 * (1 + SURE)], axis=0)
    return tuple(low.tolist()), tuple(high.tolist())


def time_blocks(dataset: Dataset) -> Int[np.ndarray, " time"]:
    """Labels of about a second of motion each, for the samples of a dataset; no block reaches over
    a break in time.
    """
    one = dataset.samples
    runs = runs_of(one)
    whole = sum(float(one.t[end - 1] - one.t[first]) for first, end in runs)
    length = min(BLOCK_SECONDS, MOST_SHARE * whole)
    labels, last = np.zeros(len(one), dtype=int), 0
    for first, end in runs:
        into = one.t[first:end] - one.t[first]
        parts = max(1, round(float(into[-1]) / length)) if length > 0 else 1
        labels[first:end] = last + np.minimum(
            parts * into / max(float(into[-1]), 1e-12), parts - 0.5
        ).astype(int)
        last = int(labels[end - 1]) + 1
    return labels


def runs_of(samples: Dataset) -> list[tuple[int, int]]:
    """Rows [first, end) in which time runs on evenly inside one trajectory."""
    steps = np.diff(samples.t)
    forward = steps[steps > 0]
    usual = float(np.median(forward)) if len(forward) else 0.0
    broken = (np.diff(samples.trajectory) != 0) | (steps <= 0) | (steps > 2.5 * usual)
    return list(pairwise([0, *(np.flatnonzero(broken) + 1).tolist(), len(samples)]))


def evaluate_windows(model: Any, dataset: Dataset) -> Scores:
    """Score a model by the mean torques of windows; nothing is differentiated or filtered."""
    with jax.enable_x64(True):
        windows = Windows.of(dataset, as_model(model).friction_settings)
        predicted = np.asarray(_predict_windows(model, windows))
    true = np.asarray(windows.tau)
    return Scores(Errors.of(predicted, true, true.var(axis=0)), {}, None, None, len(windows))


_predict_windows = eqx.filter_jit(jax.vmap(mean_torque, in_axes=(None, 0)))


def residual_torques(known: Model, dataset: Dataset) -> Dataset:
    """The dataset with the torques that a model leaves to be explained, at the samples that count.

    Its joints are those of the model, because a URDF may know that a joint turns without end.
    """
    samples = dataset.samples
    memory = memory_of(known, dataset)
    with jax.enable_x64(True):
        motions = tuple(jnp.asarray(column) for column in (samples.q, samples.qd, samples.qdd))
        torque = predict(known, "inverse_dynamics", *motions, memory=memory)
    tau = dataset.tau.copy()
    tau[slice(None) if dataset.counted is None else dataset.counted] -= torque
    return replace(dataset, tau=tau, joints=known.joints)
