"""Learners beside the loop: in their own process, or, for reproducible runs, inside the caller.

The loop gives samples and takes weights, and never waits for either. Rows go to the process through
a `Stream`, weights come back through a `Latest`: plain numbers, no pickles. Both kinds of learner
run the same `OnlineLearner`.
"""

import multiprocessing
import os
import threading
import time
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..errors import DelanError
from ..models.model import Blueprint
from .channels import Latest, Stream
from .learner import CHANGED, RETURNED
from .learner_worker import LearnerNote, Place, Task, learn
from .process import JOIN_SECONDS, Tie, end_process, is_stopped, run_tied

Vector = Float[np.ndarray, " dof"]
Numbers = Float[np.ndarray, " numbers"]

RING_SECONDS = 60.0  # how long the learner may be busy before rows are lost [s]
START_SECONDS = 300.0  # how long a learner may take to compile before it counts as failed [s]
START_KILLS = 3  # how often it may be killed meanwhile before the run begins without it
POLL_SECONDS = 0.02  # time between two looks at a learner that starts [s]
# Looks at one that is stopped, as by SIGSTOP, after which it is killed. They are counted and not
# timed: while the caller is stopped as well, as by Ctrl-Z, none are made.
STOPPED_LOOKS = 150


class LearnerError(DelanError):
    """A learner that did not start."""


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
        """Compile everything; called before the first period.

        A learner that is killed meanwhile counts a restart.
        """
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
        """Start the process and, if patient, wait until it is ready.

        One that is killed on its way, as the system does where memory is short, is started again,
        and so is one that is stopped and not continued. After `START_KILLS` nobody waits for it any
        longer: the run begins, and `watch` sees to it.
        """
        if self._process is None:
            self._begin()
        killed = 0
        stopped = 0
        end = time.monotonic() + START_SECONDS
        while True:
            self._started.wait(max(0.0, end - time.monotonic()))
            if self._failure is not None:
                raise LearnerError(
                    f"the process of the learner could not be started ({self._failure}); "
                    "end other processes"
                )
            if not self._patient or self.ready or killed == START_KILLS:
                return
            if time.monotonic() > end:
                raise LearnerError(
                    f"the learner was not ready after {START_SECONDS:.0f} s; "
                    "end other work on this machine"
                )
            stopped = stopped + 1 if is_stopped(self._process.pid) else 0
            if stopped == STOPPED_LOOKS:
                self._process.kill()
                self._process.join(JOIN_SECONDS)
            if not self.alive:
                self._require_killed()
                killed += 1
                self._begin_again()
            time.sleep(POLL_SECONDS)

    def _require_killed(self) -> None:
        """Raise if the process ended by itself: started again, it would do the same."""
        if self._process.exitcode is None or self._process.exitcode >= 0:
            raise LearnerError("the learner ended before it was ready; its error is above")

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
        self._begin_again()

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

    def _begin_again(self) -> None:
        """Start a process in place of a dead one, without waiting for it."""
        self.restarts += 1
        self._process.join(JOIN_SECONDS)  # it is dead: this only removes the zombie
        self._begin()

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
        place = Place(names, self._loop_core, os.getpid(), self.restarts > 0, self._patient)
        args = (Tie(), learn, self._task, place)
        process = context.Process(target=run_tied, args=args, daemon=True)
        process.start()
        self._process = process
