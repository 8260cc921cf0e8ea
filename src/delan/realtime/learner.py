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
from .priority import give_way, leave_core

Vector = Float[np.ndarray, " dof"]

RING_SECONDS = 60.0
"""How long the learner may be silent before rows are lost [s]."""
PATIENCE = 300.0
"""How long a learner may take to compile before it counts as failed [s]."""
PUBLISH_PERIOD = 0.1
"""The least time between two sets of weights, and between two notes [s]."""
QUIET_SECONDS = 1.0
"""A learner that was given nothing for so long rests until there is something new [s]."""


class LearnerError(DelanError):
    """A learner that did not start."""


class LearnerNote(NamedTuple):
    """How a learner stands: the loss of its last step, its nMSE on samples never trained on, samples trained on and
    steps so far; how often it saw the robot change, and when it last did [s]."""

    loss: float
    error: float
    samples: float
    steps: float
    changes: float
    changed: float


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

    def __init__(self, task: Task, *, loop_core: int | None = None, patient: bool = True):
        """Off the given core. Not `patient`, `start` does not wait until all is compiled: models come when they
        can, and the learner gives way to ordinary processes, such as the page of those who watch."""
        n = task.blueprint.joints.dof
        self._patient = patient
        self.blueprint, self._task, self._loop_core = task.blueprint, task, loop_core
        self.layout = Layout.of(t=1, q=n, qd=n, tau=n)
        self._rows = Stream(max(2, int(RING_SECONDS / task.dt)), self.layout.width)
        self._weights = Latest(task.blueprint.size + 2)  # number of the life they are of, their error, themselves
        self._notes = Latest(len(LearnerNote._fields))
        self._lives = Latest(1)
        self._life = 0
        self.note: LearnerNote | None = None
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

    def refresh(self) -> None:
        """Read the newest `note`; never waits."""
        self._read_notes()

    @property
    def ready(self) -> bool:
        """Whether it has compiled all."""
        return self._read_notes()

    def start(self) -> None:
        if self._process is None:
            self._spawn()
        began = time.monotonic()
        while self._patient and not self._read_notes():
            if not self.alive:
                raise LearnerError("the learner ended before it was ready; its own words are above")
            if time.monotonic() - began > PATIENCE:
                raise LearnerError(f"the learner was not ready after {PATIENCE:.0f} s; the machine is too busy")
            time.sleep(0.02)

    def give(self, t: float, q: Vector, qd: Vector, tau: Vector) -> None:
        self._rows.write(self.layout.pack(t=t, q=q, qd=qd, tau=tau))

    def poll(self, t: float) -> Candidate | None:
        row = self._weights.read()
        return None if row is None or row[0] != self._life else Candidate(row[2:], float(row[1]))

    def reset(self) -> None:
        """Forget all that was learned, and begin a new life with other random weights."""
        self._life += 1
        self._lives.publish([self._life])

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
        for channel in (self._rows, self._weights, self._notes, self._lives):
            channel.close()

    def remove(self) -> None:
        """Before this process ends at once: end the learner's, and leave nothing behind."""
        self._closing = True
        if self._process is not None:
            self._process.kill()
        for channel in (self._rows, self._weights, self._notes, self._lives):
            channel.remove()

    def _spawn(self) -> None:
        names = (self._rows.name, self._weights.name, self._notes.name, self._lives.name)
        context = multiprocessing.get_context("spawn")
        resumed = self.restarts > 0
        self._process = context.Process(
            target=_learn, args=(self._task, names, self._loop_core, os.getpid(), resumed, self._patient), daemon=True
        )
        self._process.start()

    def _read_notes(self) -> bool:
        """Whether the learner has compiled; changes of the robot that it noticed are written down on the way."""
        row = self._notes.read()
        if row is not None:
            self.note = LearnerNote(*row.tolist())
            told = self._changes[-1][0] if self._changes else None
            if self.note.changes and self.note.changed != told:  # by its time: a process that died counts anew
                self._changes.append((self.note.changed, "the robot has changed; the learner forgot what was before"))
        return self._notes.version > 0


def _learn(
    task: Task, names: tuple[str, str, str, str], loop_core: int | None, parent: int, resumed: bool, patient: bool
) -> None:
    """The life of the process: until its parent ends or ends it."""
    if not patient:
        give_way()
    if loop_core is not None:
        leave_core(loop_core)  # before JAX makes its threads
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    rows, weights, notes, lives = Stream.attach(names[0]), *(Latest.attach(name) for name in names[1:])
    life = _life_told(lives, 0)
    learner = OnlineLearner(task.blueprint, task.dt, task.settings, seed=task.seed + life)
    learner.prepare()
    if resumed:
        learner.absorb(rows.read(again=True))
        last = weights.read()
        if last is not None and last[0] == life and np.isfinite(last).all():
            with jax.enable_x64(True):
                learner.resume(task.blueprint.unpack(jnp.asarray(last[2:])))
    notes.publish(_note(learner, ()))
    published, noted, pending, fed = 0.0, 0.0, False, time.monotonic()
    events: tuple[tuple[float, str], ...] = ()
    while os.getppid() == parent:
        told = _life_told(lives, life)
        if told != life:
            life, pending, events = told, False, (*events, *learner.events)
            rows.read()
            learner = OnlineLearner(task.blueprint, task.dt, task.settings, seed=task.seed + life)
        fresh = rows.read()
        learner.absorb(fresh)
        now = time.monotonic()
        fed = now if len(fresh) else fed
        if now - fed < QUIET_SECONDS:
            pending |= learner.improve()
        if pending and time.monotonic() - published > PUBLISH_PERIOD:
            weights.publish(np.concatenate([[life, learner.error], task.blueprint.pack(learner.best)]))
            published, pending = time.monotonic(), False
        if time.monotonic() - noted > PUBLISH_PERIOD:
            notes.publish(_note(learner, events))
            noted = time.monotonic()
        if learner.best is None or now - fed >= QUIET_SECONDS:
            time.sleep(0.005)


def _life_told(lives: Latest, life: int) -> int:
    row = lives.read()
    return life if row is None else int(row[0])


def _note(learner: OnlineLearner, before: tuple[tuple[float, str], ...]) -> LearnerNote:
    """How the learner stands, with what lives before this one noticed."""
    seen = (*before, *learner.events)
    changed = seen[-1][0] if seen else 0.0
    return LearnerNote(learner.loss, learner.error, learner.trained, learner.steps, len(seen), changed)
