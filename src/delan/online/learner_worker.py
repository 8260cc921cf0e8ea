"""The learner inside its process: rows in, weights and notes out, until its parent ends."""

import os
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..models.model import Blueprint
from .channels import ChannelError, Latest, Stream
from .learner import LearnerSettings, OnlineLearner, sampler_for
from .process import leave_core

PUBLISH_PERIOD = 0.1  # least time between two sets of weights, and between two notes [s]
QUIET_SECONDS = 1.0  # a learner that gets no samples for this time rests until there are some [s]


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


class Place(NamedTuple):
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


def learn(task: Task, place: Place) -> None:
    """Run the process until its parent ends or terminates it."""
    if not place.patient and sys.platform != "win32":
        os.nice(2)
    if place.loop_core is not None:
        leave_core(place.loop_core)  # before JAX creates its threads
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = flags + " --xla_cpu_multi_thread_eigen=false"
    try:
        worker = _Worker(task, place)
    except ChannelError:
        # The run was ended at once while this process started, and has removed its channels.
        return
    worker.work()


class _Worker:
    """The learner inside its process."""

    def __init__(self, task: Task, place: Place):
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
