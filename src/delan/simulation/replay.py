"""Replays of a log: how far a simulated robot strays from the recorded one.

Open loop, the model starts from a recorded state and is driven by the recorded torques; the error
of its positions after some horizons is compared with that of a robot which holds its speed. Closed
loop, the controller of the log (gains and desired motion) drives the model over the whole log.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError, SettingsError
from ..joints import Dataset, Recording, evenly_spaced
from ..logs.preparation import PreparationSettings, prepare, scoring_bandwidth
from ..logs.segments import usual_step
from ..models.dynamics import in_precision, require_same_joints
from ..models.friction import FrictionState
from ..models.model import Model, without_trust
from .stepper import MovingState, driven, require_simulable, step

Rows = Float[np.ndarray, "time dof"]

# Horizons at which the error of an open-loop replay is stated [s].
HORIZONS = (0.1, 0.5, 1.0, 2.0)
# A log is sampled at most this far apart for a simulation [s]; slower logs are stepped in between.
LONGEST_STEP = 2e-3


@dataclass(frozen=True)
class ReplaySettings:
    """How a log is replayed.

    Attributes:
        horizons: times after the start of a window at which errors are stated [s].
        windows: number of starts, evenly spaced over the log.
        bandwidth: cut-off of the zero-phase low-pass over recorded positions and torques [Hz]; None
            takes that of the scores. It gives the velocity at the start of a window.
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


@dataclass(frozen=True)
class ClosedLoopError:
    """Errors of positions under the controller of the log, per joint [rad or m]."""

    rmse: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, eq=False)
class Replay:
    """A log replayed by a model.

    Attributes:
        open_loop: errors by horizon [s].
        closed_loop: None for a log without a controller.
        starts: times of the starts of the windows [s].
        paths, recorded: positions of every window and those of the log, one row a time step; NaN
            beyond the end of the log.
        step: the time between two rows of them [s].
    """

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


class _Windows(NamedTuple):
    """Starts of an open-loop replay, with the torques and positions that follow each."""

    t: np.ndarray
    state: MovingState
    tau: np.ndarray
    recorded: np.ndarray


def replay(model: Any, recording: Recording, settings: ReplaySettings | None = None) -> Replay:
    """Replay a log open loop, and closed loop where it has the commands of its controller."""
    settings = settings or ReplaySettings()
    require_simulable(model)
    model = without_trust(model)
    require_same_joints(model.joints, recording)
    with jax.enable_x64(True):
        model = in_precision(model)
        dataset = recorded_motion(recording, settings)
        dt = usual_step(dataset.t)
        windows = _windows(model, dataset, settings, dt)
        paths = _driven(model, windows, dt)
    errors = {}
    for horizon in settings.horizons:
        errors[horizon] = _error_at(horizon, dt, windows, paths)
    return Replay(errors, None, windows.t, paths, windows.recorded, dt)


def recorded_motion(recording: Recording, settings: ReplaySettings) -> Dataset:
    """Return the motion of a log as a simulation is compared with it: every row, low-passed."""
    bandwidth = settings.bandwidth
    if bandwidth is None:
        bandwidth = scoring_bandwidth(1 / usual_step(recording.t))
    return prepare(recording, PreparationSettings(cutoff=bandwidth, every=1))


def _windows(model: Model, dataset: Dataset, settings: ReplaySettings, dt: float) -> _Windows:
    """Starts evenly spaced over the log, each with as much motion after it as the log has."""
    length = round(max(settings.horizons) / dt)
    least = round(min(settings.horizons) / dt)
    starts = []
    ends = []
    for label in dataset.trajectories:
        rows = np.flatnonzero(dataset.trajectory == label)
        usable = rows[: max(0, len(rows) - least)]
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
    first = np.array(starts)[chosen]
    last = np.array(ends)[chosen]
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
        along = np.asarray(model.friction.remember(dataset.q[inside])) * radii[:, None]
        here = np.isin(rows, inside)
        stretched[here] = along[rows[here] - inside[0]]
    return FrictionState(dataset.q[rows] @ model.friction.transmission.T, stretched)


def _driven(model: Model, windows: _Windows, dt: float) -> np.ndarray:
    """Return the positions of every window after each step."""
    count = max(1, int(np.ceil(dt / LONGEST_STEP - 1e-9)))
    tau = np.repeat(windows.tau, count, axis=1)
    state = jax.tree.map(jnp.asarray, windows.state)
    moved = _all_driven(model, state, jnp.asarray(tau), jnp.asarray(dt / count))
    return np.asarray(moved.q)[:, count - 1 :: count]


@eqx.filter_jit
def _all_driven(
    model: Model, state: MovingState, tau: Float[Array, "windows time dof"], dt: Float[Array, ""]
) -> MovingState:
    return jax.vmap(lambda state, tau: driven(model, state, tau, dt))(state, tau)


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
