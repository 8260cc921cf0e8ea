"""What a page can show: a run in another process or a recording, and parts of its torque."""

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..joints import Joints
from ..logs.recording_file import read_rows
from ..online.broadcast import AHEAD_SECONDS, Address, Audience, WatchError
from ..robots import ARMS, arm_named
from ..robots.description import Arm

Columns = Mapping[str, Float[np.ndarray, "time _"]]

# Rows of a run in memory [s]: the curves show 12 s, the check of the learner looks further.
HISTORY_SECONDS = 30.0
# The desired path of a recording is drawn in every tenth row.
AHEAD_STEP = 10
# Columns that a recording needs beside t, q and tau, which every recording has.
REQUIRED_COLUMNS = ("q_des", "qdd_des", "qd_des", "tau_ff", "qd", "model")


@runtime_checkable
class Source(Protocol):
    """An arm in motion and the rows that are known of it."""

    @property
    def arm(self) -> Arm: ...

    @property
    def dt(self) -> float: ...

    def recent(self, seconds: float) -> Columns:
        """Return the rows of the last seconds."""
        ...

    def ahead(self) -> Float[np.ndarray, "points dof"]:
        """Return the desired joint positions from now on."""
        ...


class LiveSource:
    """A run in another process."""

    def __init__(self, address: Address):
        self.audience = Audience(address)
        self.arm = arm_named(address.robot)
        self.dt = address.dt
        self._rows = np.zeros((0, self.audience.layout.width))
        self._ahead = np.zeros((0, address.dof))
        self._most_rows = round(HISTORY_SECONDS / address.dt)

    def poll(self) -> int:
        """Read the new rows of the run and return their number."""
        fresh = self.audience.rows()
        if len(fresh):
            self._rows = np.concatenate([self._rows, fresh])[-self._most_rows :]
        ahead = self.audience.ahead()
        if ahead is not None:
            self._ahead = ahead
        return len(fresh)

    def recent(self, seconds: float) -> Columns:
        rows = self._rows
        if len(rows):
            rows = rows[np.searchsorted(rows[:, 0], rows[-1, 0] - seconds) :]
        return self.audience.layout.unpack(rows)

    def ahead(self) -> Float[np.ndarray, "points dof"]:
        return self._ahead

    def close(self) -> None:
        self.audience.close()


class ReplaySource:
    """A recording with a movable present.

    Attributes:
        now: the moment that is shown, counted from the first row [s].
        length: the duration of the recording [s].
        model: the model file in the same folder, or None.
    """

    def __init__(self, path: Path):
        rows = read_rows(path)
        for name in REQUIRED_COLUMNS:
            if name not in rows.columns:
                raise DataError(
                    str(path),
                    "is missing; only a recording of `delan online` can be shown",
                    column=name,
                )
        self.columns = rows.columns
        self.dt = rows.dt
        self.arm = recorded_arm(rows.joints, rows.header.get("provenance", {}).get("robot"))
        t = self.columns["t"][:, 0]
        self._times = (t - t[0]).tolist()
        self.length = float(self._times[-1])
        self.now = 0.0
        self.model: Path | None = path.with_name("model.delan")
        if not self.model.exists():
            self.model = None

    def recent(self, seconds: float) -> Columns:
        first = bisect_right(self._times, self.now - seconds)
        end = self._rows_until_now()
        return {name: column[first:end] for name, column in self.columns.items()}

    def ahead(self) -> Float[np.ndarray, "points dof"]:
        """Return the desired positions up to the end of the current trajectory at most."""
        now = self._rows_until_now() - 1
        trajectory = self.columns["trajectory"][:, 0]
        end = min(len(trajectory), now + 1 + round(AHEAD_SECONDS / self.dt))
        others = np.flatnonzero(trajectory[now:end] != trajectory[now])
        if len(others):
            end = now + int(others[0])
        return self.columns["q_des"][now:end:AHEAD_STEP]

    def _rows_until_now(self) -> int:
        return max(1, bisect_right(self._times, self.now))


def recorded_arm(joints: Joints, robot: Any = None) -> Arm:
    """Return the arm of a recording, by the name of its robot or else by its joint names."""
    if robot in ARMS:
        return ARMS[robot]
    for arm in ARMS.values():
        if arm.joints.names == joints.names:
            return arm
    raise WatchError(
        f"no arm of the package has the joints {', '.join(joints.names)}; "
        f"give a recording of one of {', '.join(ARMS)}"
    )


Rows = Float[np.ndarray, "time dof"]
# From the weights of a model and rows of q, q̇, q̈ to torque components, shape (time, 4, dof), and
# smallest eigenvalues of the inertia matrix, shape (time,).
Decompose = Callable[[Any, Rows, Rows, Rows], tuple[np.ndarray, np.ndarray]]

# Samples are computed in blocks of one shape, which is compiled once.
BLOCK = 64
THREAD_NAME = "decomposition"


def rigid_body_decomposition(model: Any) -> Decompose:
    """Return the decomposition of a rigid body, computed in NumPy."""

    def decompose(_: Any, q: Rows, qd: Rows, qdd: Rows) -> tuple[np.ndarray, np.ndarray]:
        parts = np.zeros((len(q), 4, q.shape[1]))
        least = np.zeros(len(q))
        for row in range(len(q)):
            parts[row] = np.stack(model.components(q[row], qd[row], qdd[row]))
            least[row] = np.linalg.eigvalsh(model.mass_matrix(q[row]))[0]
        return parts, least

    return decompose


def learned_decomposition(blueprint: Any) -> Decompose | None:
    """Return the decomposition of the models of a blueprint; None if they have no components."""
    import jax
    import jax.numpy as jnp

    if blueprint.mechanics is None:
        return None

    @jax.jit
    def block(weights: Any, q: Any, qd: Any, qdd: Any) -> Any:
        model = blueprint.unpack(weights)
        parts = jax.vmap(lambda *row: jnp.stack(model.components(*row)))(q, qd, qdd)
        return parts, jnp.linalg.eigvalsh(jax.vmap(model.mass_matrix)(q))[:, 0]

    def decompose(weights: Any, q: Rows, qd: Rows, qdd: Rows) -> tuple[np.ndarray, np.ndarray]:
        count = len(q)
        # The last row fills up the last block.
        rows = np.minimum(np.arange(-(-count // BLOCK) * BLOCK), count - 1)
        parts = []
        least = []
        with jax.enable_x64(True):
            for chosen in rows.reshape(-1, BLOCK):
                results = block(np.asarray(weights), q[chosen], qd[chosen], qdd[chosen])
                parts.append(np.asarray(results[0]))
                least.append(np.asarray(results[1]))
        return np.concatenate(parts)[:count], np.concatenate(least)[:count]

    return decompose


class Decompositions:
    """Decompositions by the name of a model, each built in a thread when it is first requested.

    Attributes:
        problem: why one could not be built, as a sentence; the page continues without its curves.
    """

    def __init__(self, build: Callable[[str], Decompose | None]):
        self._build = build
        self._built: dict[str, Decompose | None] = {}
        self._requested: set[str] = set()
        self.problem: str | None = None

    def of(self, model: str) -> Decompose | None:
        """Return the decomposition of a model; None until it is built, or if there is none."""
        if model not in self._requested:
            self._requested.add(model)
            # Not a daemon: JAX crashes if the process ends while it compiles.
            threading.Thread(target=self._run, args=(model,), name=THREAD_NAME).start()
        return self._built.get(model)

    def _run(self, model: str) -> None:
        try:
            self._built[model] = self._build(model)
        except Exception as error:
            self.problem = f"No components of the torque ({type(error).__name__}: {error})"


def is_building() -> bool:
    """Return whether a thread still builds a decomposition."""
    return any(thread.name == THREAD_NAME for thread in threading.enumerate())


def of_run(settings: Mapping[str, Any], name: str) -> Decompose | None:
    """Return the decomposition of a model of a run, built from the settings in its address."""
    from ..online.controller import Compiled, Direct
    from ..online.host import live_run
    from ..online.host_process import LiveSettings
    from ..online.online_run import feed_forward_for

    run = LiveSettings(**{**settings, "models": tuple(settings["models"])})
    feed_forward = feed_forward_for(live_run(run, name))  # pyright: ignore[reportArgumentType]
    if isinstance(feed_forward, Compiled):
        return learned_decomposition(feed_forward.blueprint)
    if isinstance(feed_forward, Direct):
        return rigid_body_decomposition(feed_forward.model)
    return None


def of_file(path: Path) -> tuple[Decompose | None, Any]:
    """Return the decomposition of a saved model and its weights."""
    import jax

    from ..online.controller import Compiled
    from ..storage import load

    model = load(path)
    feed_forward = Compiled.of(model)
    with jax.enable_x64(True):
        return learned_decomposition(feed_forward.blueprint), np.asarray(feed_forward.weights)
