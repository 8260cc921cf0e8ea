"""Replays of a log: how far a simulated robot strays from the recorded one.

Open loop, the model starts from a recorded state and is driven by the recorded torques; the error
of its positions after some horizons is compared with that of a robot which holds its speed. Closed
loop, the controller of the log drives the model over the whole log. With its gains, its torque on
the simulated robot is τ + Kp (q − q_sim) + Kd (q̇ − q̇_sim), where τ, q and q̇ are recorded: desired
motion and feed-forward torque cancel out, and need not be known.
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.interpolate import interp1d

from ..errors import DataError, SettingsError
from ..joints import Dataset, Joints, Recording, evenly_spaced
from ..logs.preparation import (
    PreparationSettings,
    at_one_rate,
    prepare,
    scoring_bandwidth,
)
from ..logs.segments import spans, time_breaks, usual_step
from ..models.dynamics import in_precision, require_same_joints
from ..models.friction import FrictionState
from ..models.model import Model, without_trust
from ..robots.robot import Gains
from .stepper import Drive, MovingState, at_rest, driven, require_simulable

Rows = Float[np.ndarray, "time dof"]

# Horizons at which the error of an open-loop replay is stated [s].
HORIZONS = (0.1, 0.5, 1.0, 2.0)
# A log is sampled at most this far apart for a simulation [s]; slower logs are stepped in between.
LONGEST_STEP = 2e-3
# Windows that are simulated together: with a fixed number, logs share a compiled program.
TOGETHER = 10
# Rows without which a trajectory has no motion to compare.
FEWEST_ROWS = 10


@dataclass(frozen=True)
class ReplaySettings:
    """How a log is replayed.

    Attributes:
        horizons: times after the start of a window at which errors are stated [s].
        windows: number of starts, evenly spaced over the log.
        bandwidth: cut-off of the zero-phase low-pass over recorded positions and velocities [Hz];
            None takes that of the scores.
    """

    horizons: tuple[float, ...] = HORIZONS
    windows: int = 40
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if not self.horizons or min(self.horizons) <= 0:
            raise SettingsError(f"horizons must be positive, got {self.horizons}")
        if self.windows < 1:
            raise SettingsError(f"windows must be at least 1, got {self.windows}")


@dataclass(frozen=True)
class HorizonError:
    """Errors of positions at a horizon, per joint.

    Attributes:
        rmse: root mean square over the windows [rad or m].
        over_hold: the same over the error of a robot that holds the speed of the start.
        windows: number of windows that reach this far.
    """

    rmse: tuple[float, ...]
    over_hold: tuple[float, ...]
    windows: int

    def relative(self, still: float) -> Float[np.ndarray, " dof"]:
        """Return the error over that of a robot that holds its speed, or over `still` if larger."""
        rmse = np.array(self.rmse)
        with np.errstate(divide="ignore", invalid="ignore"):
            hold = rmse / np.array(self.over_hold)
        # A model without any error has no ratio either.
        return rmse / np.fmax(hold, still)


@dataclass(frozen=True)
class ClosedLoopError:
    """Errors of positions under the controller of the log, per joint [rad or m]."""

    rmse: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, eq=False)
class LogReplay:
    """A log replayed by a model.

    Attributes:
        open_loop: errors by horizon [s].
        closed_loop: None for a log without a controller.
        starts: times of the starts of the windows [s].
        paths, recorded: positions of every window and those of the log, one row a time step; NaN
            beyond the end of the log.
        step: the time between two rows of them [s].
    """

    joints: Joints
    open_loop: dict[float, HorizonError]
    closed_loop: ClosedLoopError | None
    starts: Float[np.ndarray, " windows"]
    paths: Float[np.ndarray, "windows time dof"]
    recorded: Float[np.ndarray, "windows time dof"]
    step: float

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        closed = None
        if self.closed_loop is not None:
            closed = asdict(self.closed_loop)
        return {
            "open_loop": {f"{at:g}": asdict(error) for at, error in self.open_loop.items()},
            "closed_loop": closed,
        }


class Part(NamedTuple):
    """A part of a motion, and the model that is to move like it.

    Attributes:
        rows: which rows of the dataset; a window that leaves them is not simulated.
    """

    model: Any
    rows: Bool[np.ndarray, " time"]


class _Windows(NamedTuple):
    """Starts of an open-loop replay, with the torques and positions that follow each."""

    t: np.ndarray
    state: MovingState
    tau: np.ndarray
    recorded: np.ndarray


def replay(
    model: Any,
    recording: Recording,
    settings: ReplaySettings | None = None,
    *,
    gains: Gains | None = None,
) -> LogReplay:
    """Replay a log open loop and, with the gains of its controller, closed loop."""
    settings = settings or ReplaySettings()
    require_simulable(model)
    model = without_trust(model)
    with jax.enable_x64(True):
        model = in_precision(model)
        dataset = recorded_motion(recording, settings)
        require_same_joints(model.joints, dataset)
        dt = usual_step(dataset.t)
        windows = _windows(model, dataset, settings, dt)
        paths = _driven(model, windows, dt)
        closed = None
        if gains is not None:
            closed = _closed_loop(model, recording, gains)
    return _judged(model.joints, windows, paths, settings, dt, closed)


def replay_parts(
    parts: Sequence[Part], dataset: Dataset, settings: ReplaySettings | None = None
) -> LogReplay | None:
    """Replay parts of a motion open loop, each by a model of its own; None without a whole window.

    The windows are shared out evenly among the parts, and every one is as long as the longest
    horizon. The rows of the dataset must be evenly spaced in time within a trajectory.
    """
    settings = settings or ReplaySettings()
    dt = usual_step(dataset.t)
    length = round(max(settings.horizons) / dt)
    each = -(-settings.windows // len(parts))
    moved = []
    with jax.enable_x64(True):
        for part in parts:
            starts = _whole_windows(dataset, part.rows, length)
            if not len(starts):
                continue
            chosen = starts[np.linspace(0, len(starts) - 1, each).round().astype(int)]
            model = in_precision(without_trust(part.model))
            windows = _windows_from(model, dataset, chosen, np.full(each, len(dataset)), length)
            moved.append((windows, _driven(model, windows, dt)))
    if not moved:
        return None
    together = jax.tree.map(lambda *each: np.concatenate(each), *[windows for windows, _ in moved])
    paths = np.concatenate([paths for _, paths in moved])
    return _judged(dataset.joints, together, paths, settings, dt, None)


def _whole_windows(
    dataset: Dataset, rows: Bool[np.ndarray, " time"], length: int
) -> Int[np.ndarray, " starts"]:
    """Return the rows from which as many further rows belong to the same part of a trajectory."""
    starts = []
    begins = time_breaks(dataset.t)
    begins[1:] |= np.diff(dataset.trajectory) != 0
    for first, end in spans(rows):
        inner = np.flatnonzero(begins[first + 1 : end]) + first + 1
        for start, stop in itertools.pairwise([first, *inner.tolist(), end]):
            starts.append(np.arange(start, stop - length))
    return np.concatenate([np.zeros(0, dtype=int), *starts])


def _judged(
    joints: Joints,
    windows: "_Windows",
    paths: np.ndarray,
    settings: ReplaySettings,
    dt: float,
    closed: ClosedLoopError | None,
) -> LogReplay:
    """Return the errors of simulated paths at every horizon."""
    errors = {}
    for horizon in settings.horizons:
        errors[horizon] = _error_at(horizon, dt, windows, paths)
    return LogReplay(joints, errors, closed, windows.t, paths, windows.recorded, dt)


def recorded_motion(recording: Recording, settings: ReplaySettings) -> Dataset:
    """Return the motion of a log as a simulation is compared with it: every row, low-passed.

    Its torques are those of the log, not low-passed: the robot itself filters them.
    """
    bandwidth = settings.bandwidth
    if bandwidth is None:
        bandwidth = scoring_bandwidth(1 / usual_step(recording.t))
    filtered = PreparationSettings(cutoff=bandwidth, every=1)
    torques = prepare(recording, filtered.unfiltered).tau
    return replace(prepare(recording, filtered), tau=torques)


def _windows(model: Model, dataset: Dataset, settings: ReplaySettings, dt: float) -> _Windows:
    """Starts evenly spaced over the log, each with as much motion after it as the log has."""
    length = round(max(settings.horizons) / dt)
    least = round(min(settings.horizons) / dt)
    starts = []
    ends = []
    for label in dataset.trajectories:
        rows = np.flatnonzero(dataset.trajectory == label)
        usable = rows[: max(0, len(rows) - least)]
        if dataset.counted is not None:
            # At the ends of a motion the filter leaves no state to start from.
            usable = usable[dataset.counted[usable]]
        starts.extend(usable.tolist())
        ends.extend([int(rows[-1])] * len(usable))
    if not starts:
        raise DataError(
            dataset.source,
            f"has no motion of {min(settings.horizons):g} s without a break; give a longer log",
        )
    # Whole windows are preferred; where the log is short, its windows are as well.
    whole = [k for k, start in enumerate(starts) if ends[k] - start >= length]
    chosen = np.array(whole or range(len(starts)))
    chosen = chosen[evenly_spaced(len(chosen), settings.windows)]
    return _windows_from(model, dataset, np.array(starts)[chosen], np.array(ends)[chosen], length)


def _windows_from(
    model: Model, dataset: Dataset, first: np.ndarray, last: np.ndarray, length: int
) -> _Windows:
    """Windows of so many steps from the rows `first`; beyond the rows `last` the log has ended."""
    rows = first[:, None] + np.arange(length + 1)
    inside = rows <= last[:, None]
    rows = np.minimum(rows, last[:, None])
    tau = dataset.tau[rows]
    recorded = np.where(inside[..., None], dataset.q[rows], np.nan)
    state = MovingState(dataset.q[first], dataset.qd[first], memory_along(model, dataset, first))
    # The torque of a step is that of its middle.
    return _Windows(dataset.t[first], state, (tau[:, :-1] + tau[:, 1:]) / 2, recorded[:, 1:])


def memory_along(model: Model, dataset: Dataset, rows: np.ndarray) -> FrictionState | None:
    """Return the memory of friction at some rows of a log; None without memory."""
    if not model.promises.memory:
        return None
    assert model.friction is not None
    radii = np.array(model.friction.settings.stops)
    stretched = np.zeros((len(rows), len(radii), len(model.friction.motors)))
    for label in dataset.trajectories:
        inside = np.flatnonzero(dataset.trajectory == label)
        here = np.isin(rows, inside)
        if not here.any():
            continue
        along = np.asarray(model.friction.remember(dataset.q[inside])) * radii[:, None]
        stretched[here] = along[rows[here] - inside[0]]
    return FrictionState(dataset.q[rows] @ model.friction.transmission.T, stretched)


def _driven(model: Model, windows: _Windows, dt: float) -> np.ndarray:
    """Return the positions of every window after each step."""
    count = max(1, int(np.ceil(dt / LONGEST_STEP - 1e-9)))
    tau = np.repeat(windows.tau, count, axis=1)
    paths = []
    for first in range(0, len(tau), TOGETHER):
        rows = np.minimum(np.arange(first, first + TOGETHER), len(tau) - 1)
        state = jax.tree.map(jnp.asarray, _rows_of(windows.state, rows))
        drives = Drive.held(jnp.asarray(tau[rows]))
        moved = _all_driven(model, state, drives, jnp.asarray(dt / count))
        paths.append(np.asarray(moved.q)[:, count - 1 :: count])
    return np.concatenate(paths)[: len(tau)]


def _rows_of(state: MovingState, rows: np.ndarray) -> MovingState:
    return jax.tree.map(lambda column: column[rows], state)


@eqx.filter_jit
def _all_driven(
    model: Model, state: MovingState, drives: Drive, dt: Float[Array, ""]
) -> MovingState:
    return jax.vmap(lambda state, drives: driven(model, state, drives, dt))(state, drives)


def _error_at(horizon: float, dt: float, windows: _Windows, paths: np.ndarray) -> HorizonError:
    at = round(horizon / dt) - 1
    recorded = windows.recorded[:, at]
    reached = np.isfinite(recorded).all(axis=1)
    held = windows.state.q + windows.state.qd * horizon
    error = _rms(paths[reached, at] - recorded[reached])
    hold = _rms(held[reached] - recorded[reached])
    with np.errstate(divide="ignore", invalid="ignore"):
        over = error / hold
    return HorizonError(tuple(error.tolist()), tuple(over.tolist()), int(reached.sum()))


def _rms(errors: np.ndarray) -> np.ndarray:
    if not len(errors):
        return np.full(errors.shape[1], np.nan)
    return np.sqrt(np.mean(errors**2, axis=0))


def _closed_loop(model: Model, recording: Recording, gains: Gains) -> ClosedLoopError:
    """The error over every whole trajectory of the log, each from its first state."""
    if gains.dof != recording.joints.dof:
        raise SettingsError(
            f"got gains for {gains.dof} joints, but the log has {recording.joints.dof}; give one "
            "number for each joint"
        )
    squares = []
    seconds = 0.0
    for label in np.unique(recording.trajectory):
        part = at_one_rate(recording.rows(recording.trajectory == label))
        if len(part.t) < FEWEST_ROWS:
            continue
        squares.append((_controlled(model, part, gains) - part.q) ** 2)
        seconds += float(part.t[-1] - part.t[0])
    if not squares:
        raise DataError(recording.source, "has no trajectory long enough for a closed loop")
    rmse = np.sqrt(np.concatenate(squares).mean(axis=0))
    return ClosedLoopError(tuple(rmse.tolist()), seconds)


def _controlled(model: Model, part: Recording, gains: Gains) -> Rows:
    """The simulated positions at the times of a trajectory, under its controller."""
    dt = usual_step(part.t)
    qd = part.qd
    if qd is None:
        qd = np.gradient(part.q, dt, axis=0)
    count = max(1, int(np.ceil(dt / LONGEST_STEP - 1e-9)))
    rows = len(part.t)
    # Steps are padded to a power of two, so that logs of many lengths share a compiled program.
    steps = 1 << (count * (rows - 1) - 1).bit_length()
    at = np.minimum(np.arange(1, steps + 1) / count, rows - 1)

    def between(column: np.ndarray) -> Array:
        return jnp.asarray(interp1d(np.arange(rows), column, axis=0)(at))

    stiffness = jnp.broadcast_to(jnp.asarray(gains.stiffness), (steps, gains.dof))
    damping = jnp.broadcast_to(jnp.asarray(gains.damping), (steps, gains.dof))
    drives = Drive(between(part.tau), stiffness, damping, between(part.q), between(qd))
    start = at_rest(model, jnp.asarray(part.q[0]))._replace(qd=jnp.asarray(qd[0]))
    moved = driven(model, start, drives, jnp.asarray(dt / count))
    later = np.asarray(moved.q)[count - 1 :: count][: rows - 1]
    return np.concatenate([part.q[:1], later])
