"""Learning beside the loop: in a process of its own, or, for runs that must repeat, inside the caller.

The loop gives what it measured and takes what was learned; it never waits for either. To the process go rows through a
`Stream`, back come weights through a `Latest`: plain numbers, no pickles. Both learners run the same `OnlineLearner`.
"""

import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import DelanError
from ..learning.online import OnlineLearner, OnlineSettings
from ..models.blueprint import Blueprint
from .channels import Latest, Layout, Stream
from .priority import leave_core

Vector = Float[np.ndarray, " dof"]

RING_SECONDS = 60.0
"""How long the learner may be silent before rows are lost [s]."""
PATIENCE = 300.0
"""How long a learner may take to compile before it counts as failed [s]."""
PUBLISH_PERIOD = 0.1
"""The least time between two sets of weights [s]."""


class LearnerError(DelanError):
    """A learner that did not start."""


class Candidate(NamedTuple):
    """Weights, as `Blueprint.pack` gives them, and their nMSE on samples that the learner never trained on."""

    weights: Float[np.ndarray, " numbers"]
    error: float


@runtime_checkable
class Learner(Protocol):
    """What the loop may ask of a learner."""

    @property
    def blueprint(self) -> Blueprint: ...

    @property
    def lost(self) -> int:
        """Rows that the learner never saw."""
        ...

    @property
    def restarts(self) -> int:
        """How often it died and was started again."""
        ...

    @property
    def alive(self) -> bool: ...

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        """What the learner noticed, with the time of the newest sample then [s]."""
        ...

    def start(self) -> None:
        """Make it ready; returns when everything is compiled. To be called before the first period."""
        ...

    def give(self, t: float, q: Vector, qd: Vector, tau: Vector) -> None:
        """What was measured at the start of a period and the torque applied in it; never waits."""
        ...

    def poll(self, t: float) -> Candidate | None:
        """The newest weights, if there are new ones; t is the time of the loop [s]."""
        ...

    def watch(self) -> None:
        """See to it that the learner lives; to be called about once a second, never waits."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Task:
    """All that a learner must know: plain values, handed over once."""

    blueprint: Blueprint
    dt: float
    settings: OnlineSettings
    seed: int


class SteppedLearner:
    """Learns inside the caller, so many steps a second of the loop's time: the same run, every run."""

    alive, restarts, lost = True, 0, 0

    def __init__(self, task: Task, *, steps_per_second: float = 20.0, period: float = 0.25):
        """Every `period` [s] of the loop's time the steps that are due are made at once."""
        self.blueprint, self._task = task.blueprint, task
        self._learner = OnlineLearner(task.blueprint, task.dt, task.settings, seed=task.seed)
        self._rows: list[np.ndarray] = []
        self._steps, self._period, self._due = steps_per_second * period, period, period
        self._owed = 0.0

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        return tuple(self._learner.events)

    def start(self) -> None:
        self._learner.prepare()

    def give(self, t: float, q: Vector, qd: Vector, tau: Vector) -> None:
        self._rows.append(np.concatenate([[t], q, qd, tau]))

    def poll(self, t: float) -> Candidate | None:
        if t < self._due or not self._rows:
            return None
        self._due = t + self._period
        self._learner.absorb(np.array(self._rows))
        self._rows.clear()
        self._owed += self._steps
        better = [self._learner.improve() for _ in range(int(self._owed))]
        self._owed -= len(better)
        return Candidate(self.blueprint.pack(self._learner.best), self._learner.error) if any(better) else None

    def watch(self) -> None:
        """Nothing to watch: it lives in the caller."""

    def close(self) -> None:
        self._rows.clear()


class ProcessLearner:
    """Learns in a process beside the loop, off its core; if it dies it is started again, with the weights it had."""

    def __init__(self, task: Task, *, loop_core: int | None = None):
        n = task.blueprint.joints.dof
        self.blueprint, self._task, self._loop_core = task.blueprint, task, loop_core
        self.layout = Layout.of(t=1, q=n, qd=n, tau=n)
        self._rows = Stream(max(2, int(RING_SECONDS / task.dt)), self.layout.width)
        self._weights = Latest(task.blueprint.size + 1)
        self._notes = Latest(3)  # 1 when compiled, the number of changes seen, the time of the last one
        self._process: Any = None
        self._starting: threading.Thread | None = None
        self._changes: list[tuple[float, str]] = []
        self.restarts = 0
        self._closing = False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    @property
    def lost(self) -> int:
        return self._rows.lost

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        self._read_notes()
        return tuple(self._changes)

    @property
    def pid(self) -> int | None:
        """Of the process, for those who look after it."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        self._spawn()
        began = time.monotonic()
        while not self._read_notes():
            if not self.alive:
                raise LearnerError("the learner ended before it was ready; its own words are above")
            if time.monotonic() - began > PATIENCE:
                raise LearnerError(f"the learner was not ready after {PATIENCE:.0f} s; the machine is too busy")
            time.sleep(0.02)

    def give(self, t: float, q: Vector, qd: Vector, tau: Vector) -> None:
        self._rows.write(self.layout.pack(t=t, q=q, qd=qd, tau=tau))

    def poll(self, t: float) -> Candidate | None:
        row = self._weights.read()
        return None if row is None else Candidate(row[1:], float(row[0]))

    def watch(self) -> None:
        self._read_notes()
        busy = self._starting is not None and self._starting.is_alive()
        if self.alive or busy or self._closing or self._process is None:
            return
        self.restarts += 1
        self._process.join()  # it is dead: this only clears it away
        self._starting = threading.Thread(target=self._spawn, daemon=True)
        self._starting.start()

    def close(self) -> None:
        self._closing = True
        if self._starting is not None:
            self._starting.join()
        if self._process is not None:
            self._process.terminate()
            self._process.join()
        for channel in (self._rows, self._weights, self._notes):
            channel.close()

    def _spawn(self) -> None:
        names = (self._rows.name, self._weights.name, self._notes.name)
        context = multiprocessing.get_context("spawn")
        resumed = self.restarts > 0
        self._process = context.Process(
            target=_learn, args=(self._task, names, self._loop_core, os.getpid(), resumed), daemon=True
        )
        self._process.start()

    def _read_notes(self) -> bool:
        """Whether the learner has compiled; changes of the robot that it noticed are written down on the way."""
        note = self._notes.read()
        if note is not None and note[1] > len(self._changes):
            self._changes.append((float(note[2]), "the robot has changed; the learner forgot what was before"))
        return self._notes.version > 0


def _learn(task: Task, names: tuple[str, str, str], loop_core: int | None, parent: int, resumed: bool) -> None:
    """The life of the process: until its parent ends or ends it."""
    if loop_core is not None:
        leave_core(loop_core)  # before JAX makes its threads
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    rows, weights, notes = Stream.attach(names[0]), Latest.attach(names[1]), Latest.attach(names[2])
    learner = OnlineLearner(task.blueprint, task.dt, task.settings, seed=task.seed)
    learner.prepare()
    if resumed:
        learner.absorb(rows.read(again=True))
        last = weights.read()
        if last is not None and np.isfinite(last).all():
            with jax.enable_x64(True):
                learner.resume(task.blueprint.unpack(jnp.asarray(last[1:])))
    notes.publish([1.0, 0.0, 0.0])
    published, pending, told = 0.0, False, 0
    while os.getppid() == parent:
        fresh = rows.read()
        learner.absorb(fresh)
        pending |= learner.improve()
        if pending and time.monotonic() - published > PUBLISH_PERIOD:
            weights.publish(np.concatenate([[learner.error], task.blueprint.pack(learner.best)]))
            published, pending = time.monotonic(), False
        if len(learner.events) > told:
            told = len(learner.events)
            notes.publish([1.0, told, learner.events[-1][0]])
        if learner.best is None:
            time.sleep(0.005)
