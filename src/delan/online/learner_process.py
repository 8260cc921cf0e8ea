"""Learners beside the loop: in their own process, or, for reproducible runs, inside the caller.

The loop gives samples and takes weights, and never waits for either. Rows go to the process through
a `Stream`, weights come back through a `Latest`: plain numbers, no pickles. Both kinds of learner
run the same `OnlineLearner`.
"""

import multiprocessing
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import DelanError
from ..models.model import Blueprint
from .channels import Latest, Stream
from .learner import CHANGED, RETURNED, LearnerSettings, OnlineLearner, sampler_for
from .process import JOIN_SECONDS, Tie, end_process, leave_core, run_tied

Vector = Float[np.ndarray, " dof"]
Numbers = Float[np.ndarray, " numbers"]

RING_SECONDS = 60.0  # how long the learner may be busy before rows are lost [s]
START_SECONDS = 300.0  # how long a learner may take to compile before it counts as failed [s]
PUBLISH_PERIOD = 0.1  # least time between two sets of weights, and between two notes [s]
QUIET_SECONDS = 1.0  # a learner that gets no samples for this time rests until there are some [s]


class LearnerError(DelanError):
    """A learner that did not start."""


class LearnerNote(NamedTuple):
    """The state of a learner.

    Attributes:
        loss: of its last step.
        error: nMSE of its best model on held-out samples.
        samples, steps: samples trained on and steps made.
        changes, changed: how often the robot changed, and when it last did [s].
        returns, returned: the same for changes that were undone, or false alarms.
    """

    loss: float
    error: float
    samples: float
    steps: float
    changes: float
    changed: float
    returns: float = 0.0
    returned: float = 0.0


@runtime_checkable
class Learner(Protocol):
    """A learner as the loop sees it."""

    @property
    def blueprint(self) -> Blueprint: ...

    @property
    def lost(self) -> int:
        """Number of rows that the learner never read."""
        ...

    @property
    def restarts(self) -> int:
        """How often it died and was restarted."""
        ...

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        """What the learner reports, with the time of the newest sample at that moment [s]."""
        ...

    def start(self) -> None:
        """Compile everything; called before the first period."""
        ...

    def give(self, t: float, q: Vector, qd: Vector, tau: Vector) -> None:
        """Give the state at the start of a period and the torque in it; never waits."""
        ...

    def poll(self, t: float) -> Numbers | None:
        """Return the newest weights, in the order of `Blueprint.pack`, if they are new.

        t is the time of the loop [s].
        """
        ...

    def watch(self) -> None:
        """Restart the learner if it died; called about once a second, never waits."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Task:
    """All that a learner must know, as plain values that can be sent to a process."""

    blueprint: Blueprint
    dt: float
    settings: LearnerSettings
    seed: int

    def __post_init__(self) -> None:
        # Refuses here, not in the learner's process, what cannot be learned online.
        sampler_for(self.blueprint, self.dt, self.settings)

    def learner(self, life: int = 0) -> OnlineLearner:
        """Return a new learner; each life has other random weights."""
        return OnlineLearner(self.blueprint, self.dt, self.settings, seed=self.seed + life)


class SteppedLearner:
    """Learns inside the caller, a fixed number of steps per second of the loop's time."""

    restarts = 0
    lost = 0

    def __init__(self, task: Task, *, steps_per_second: float = 20.0, period: float = 0.25):
        """Make the steps that are due every `period` [s] of the loop's time."""
        self.blueprint = task.blueprint
        self._learner = task.learner()
        self._rows: list[np.ndarray] = []
        self._steps = steps_per_second * period
        self._period = period
        self._due = period
        self._owed = 0.0

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        return self._learner.events

    def start(self) -> None:
        self._learner.prepare()

    def give(self, t: float, q: Vector, qd: Vector, tau: Vector) -> None:
        self._rows.append(np.concatenate([[t], q, qd, tau]))

    def poll(self, t: float) -> Numbers | None:
        if t < self._due or not self._rows:
            return None
        self._due = t + self._period
        self._learner.absorb(np.array(self._rows))
        self._rows.clear()
        self._owed += self._steps
        better = [self._learner.improve() for _ in range(int(self._owed))]
        self._owed -= len(better)
        if not any(better):
            return None
        return self.blueprint.pack(self._learner.best)

    def watch(self) -> None:
        """Do nothing: the learner lives in the caller."""

    def close(self) -> None:
        self._rows.clear()


class ProcessLearner:
    """Learns in a process off the core of the loop; restarted with its last weights if it dies."""

    def __init__(self, task: Task, *, loop_core: int | None = None, patient: bool = True):
        """Keep off the given core.

        Not `patient`, `start` does not wait for the compilation, and the process gives way to
        others, such as the page.
        """
        self.blueprint = task.blueprint
        self.note: LearnerNote | None = None
        self.restarts = 0
        self._task = task
        self._loop_core = loop_core
        self._patient = patient
        width = 1 + 3 * task.blueprint.joints.dof  # t, q, q̇, τ
        self._rows = Stream(max(2, int(RING_SECONDS / task.dt)), width)
        # A row: the life in which the weights were learned, then the weights.
        self._weights = Latest(task.blueprint.size + 1)
        self._notes = Latest(len(LearnerNote._fields))
        self._lives = Latest(1)
        self._channels = (self._rows, self._weights, self._notes, self._lives)
        self._life = 0
        self._process: Any = None
        self._failure: Exception | None = None  # why the process could not be started
        self._started = threading.Event()  # clear while a process is being started
        self._started.set()
        self._ended = threading.Event()  # lets the threads go that started processes
        self._changes: list[tuple[float, str]] = []
        self._closing = False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    @property
    def lost(self) -> int:
        return self._rows.lost

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        self.refresh()
        return tuple(self._changes)

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def ready(self) -> bool:
        """Whether everything is compiled."""
        self.refresh()
        return self.note is not None

    def refresh(self) -> None:
        """Read the newest `note`; never waits."""
        row = self._notes.read()
        if row is None:
            return
        self.note = LearnerNote(*row.tolist())
        # Compared by their time, as a restarted learner counts its changes from the beginning.
        latest = []
        if self.note.changes:
            latest.append((self.note.changed, CHANGED))
        if self.note.returns:
            latest.append((self.note.returned, RETURNED))
        self._changes += [event for event in sorted(latest) if event not in self._changes]

    def start(self) -> None:
        if self._process is None:
            self._begin()
            self._started.wait(START_SECONDS)
        if self._failure is not None:
            raise LearnerError(
                f"the process of the learner could not be started ({self._failure}); "
                "end other processes"
            )
        began = time.monotonic()
        while self._patient and not self.ready:
            if not self.alive:
                raise LearnerError(
                    "the learner ended before it was ready; its error is above, unless a signal "
                    "ended it: start the run again"
                )
            if time.monotonic() - began > START_SECONDS:
                raise LearnerError(
                    f"the learner was not ready after {START_SECONDS:.0f} s; "
                    "end other work on this machine"
                )
            time.sleep(0.02)

    def give(self, t: float, q: Vector, qd: Vector, tau: Vector) -> None:
        self._rows.write(np.concatenate([[t], q, qd, tau]))

    def poll(self, t: float) -> Numbers | None:
        row = self._weights.read()
        if row is None or row[0] != self._life:
            return None
        return row[1:]

    def reset(self) -> None:
        """Forget what was learned and begin a new life with other random weights."""
        self._life += 1
        self._lives.write([self._life])

    def watch(self) -> None:
        self.refresh()
        busy = not self._started.is_set()
        if self.alive or busy or self._closing or self._process is None:
            return
        self.restarts += 1
        self._process.join(JOIN_SECONDS)  # it is dead: this only removes the zombie
        self._begin()

    def close(self) -> None:
        self._closing = True
        self._started.wait(JOIN_SECONDS)
        if self._process is not None:
            end_process(self._process)
        self._ended.set()
        for channel in self._channels:
            channel.close()

    def remove(self) -> None:
        """Kill the learner and unlink the channels before this process exits abruptly."""
        self._closing = True
        if self._process is not None:
            self._process.kill()
        for channel in self._channels:
            channel.remove()

    def _begin(self) -> None:
        """Start a process without waiting for it.

        The thread that starts it lives until `close`: the kernel would kill the process with it.
        """
        self._started.clear()
        threading.Thread(target=self._keep, name="learner", daemon=True).start()

    def _keep(self) -> None:
        try:
            self._failure = None
            self._spawn()
        except Exception as error:
            self._failure = error
        finally:
            self._started.set()
        if self._closing and self._process is not None:
            end_process(self._process)
        self._ended.wait()

    def _spawn(self) -> None:
        names = tuple(channel.name for channel in self._channels)
        context = multiprocessing.get_context("spawn")
        place = _Place(names, self._loop_core, os.getpid(), self.restarts > 0, self._patient)
        args = (Tie(), _learn, self._task, place)
        process = context.Process(target=run_tied, args=args, daemon=True)
        process.start()
        self._process = process


class _Place(NamedTuple):
    """Where a learner's process lives.

    Attributes:
        names: of the channels of rows, weights, notes and lives.
        loop_core: the core to keep off.
        parent: process id of the loop.
        resumed: whether to continue from the last weights.
        patient: whether the loop waits for the compilation.
    """

    names: tuple[str, ...]
    loop_core: int | None
    parent: int
    resumed: bool
    patient: bool


def _learn(task: Task, place: _Place) -> None:
    """Run the process until its parent ends or terminates it."""
    if not place.patient and sys.platform != "win32":
        os.nice(2)
    if place.loop_core is not None:
        leave_core(place.loop_core)  # before JAX creates its threads
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = flags + " --xla_cpu_multi_thread_eigen=false"
    _Worker(task, place).work()


class _Worker:
    """The learner inside its process."""

    def __init__(self, task: Task, place: _Place):
        rows, weights, notes, lives = place.names
        self._task = task
        self._parent = place.parent
        self._rows = Stream.attach(rows)
        self._weights = Latest.attach(weights)
        self._notes = Latest.attach(notes)
        self._lives = Latest.attach(lives)
        self._life = self._current_life(0)
        self._changes: list[float] = []  # of earlier lives
        self._returns: list[float] = []
        self._learner = task.learner(self._life)
        self._learner.prepare()
        if place.resumed:
            self._resume()
        self._published = 0.0
        self._noted = 0.0
        self._pending = False  # whether there is a better model than the published one
        self._note()

    def _resume(self) -> None:
        """Continue from the rows still in the ring and from the last weights."""
        self._learner.absorb(self._rows.read(again=True))
        last = self._weights.read()
        if last is not None and last[0] == self._life and np.isfinite(last).all():
            with jax.enable_x64(True):
                self._learner.resume(self._task.blueprint.unpack(jnp.asarray(last[1:])))

    def work(self) -> None:
        """Learn while the parent is alive."""
        fed = time.monotonic()
        while os.getppid() == self._parent:
            life = self._current_life(self._life)
            if life != self._life:
                self._begin(life)
            rows = self._rows.read()
            self._learner.absorb(rows)
            now = time.monotonic()
            if len(rows):
                fed = now
            if now - fed < QUIET_SECONDS:
                self._pending |= self._learner.improve()
            if self._pending and time.monotonic() - self._published > PUBLISH_PERIOD:
                self._publish()
            if time.monotonic() - self._noted > PUBLISH_PERIOD:
                self._note()
            if self._learner.best is None or now - fed >= QUIET_SECONDS:
                time.sleep(0.005)

    def _begin(self, life: int) -> None:
        """Forget everything and start with other random weights."""
        self._life = life
        self._pending = False
        self._changes += self._learner.changes
        self._returns += self._learner.returns
        self._rows.read()
        self._learner = self._task.learner(life)

    def _current_life(self, life: int) -> int:
        row = self._lives.read()
        return life if row is None else int(row[0])

    def _publish(self) -> None:
        learner = self._learner
        assert learner.best is not None  # pending only after an improvement
        weights = self._task.blueprint.pack(learner.best)
        self._weights.write(np.concatenate([[self._life], weights]))
        self._published = time.monotonic()
        self._pending = False

    def _note(self) -> None:
        learner = self._learner
        changes = self._changes + learner.changes
        returns = self._returns + learner.returns
        note = LearnerNote(
            loss=learner.loss,
            error=learner.error,
            samples=learner.trained,
            steps=learner.steps,
            changes=len(changes),
            changed=changes[-1] if changes else 0.0,
            returns=len(returns),
            returned=returns[-1] if returns else 0.0,
        )
        self._notes.write(note)
        self._noted = time.monotonic()
