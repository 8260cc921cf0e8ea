"""A run that is led by those who watch it.

It waits to be started, then leads the robot in stretches. What changes the motion or the model (pause, model, letters,
speed, new weights) ends a stretch by the loop's own smooth stop and begins the next one; a payload or a kick acts at
once. All models are compiled before the first period. It goes on without anybody who watches.
"""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..control import TrackingController
from ..joints import JointState, Trajectory
from ..realtime.channels import Latest
from ..realtime.clocks import WallClock
from ..realtime.feed_forward import Compiled, FeedForward
from ..realtime.gate import Gate
from ..realtime.learner import ProcessLearner, Task
from ..realtime.live import LEARNING, MODES, Broadcast, Counts, Orders
from ..realtime.log import row_layout
from ..realtime.loop import LoopSettings, run_loop
from ..realtime.plan import Plan
from ..realtime.priority import kept_awake, raise_priority
from ..realtime.recorder import Recorder, loss_told
from ..realtime.stats import LoopResult
from ..robots.gains import low_gains
from ..robots.mujoco_robot import MujocoRobot
from ..robots.robot import safe_torque
from .live_run import RATE, LiveSettings, ModelName
from .online import LEARNED, OnlineRun, blueprint_of, build_feed_forward, training_motions

STRETCH = 60.0
"""About how long a stretch of motions is [s]."""
HOLD = 20.0
"""How long a pause is held at a time [s]."""
KICK_SECONDS, KICK_SHARE = 0.1, 0.25
"""A kick: how long it pushes [s], and how hard, as a share of each joint's torque limit."""
LOOP = LoopSettings(rate=RATE, stop=0.15)
LEARNING_PERIOD = 25
"""Periods between two looks at what the learner tells of itself."""


def online_run(settings: LiveSettings, model: ModelName) -> OnlineRun:
    """The same as a run of one model."""
    return OnlineRun(
        robot=settings.robot,
        feed_forward=model,
        reference=settings.reference,
        letters=settings.letters,
        speed=settings.speed,
        seed=settings.seed,
        seconds=STRETCH,
        loop=LOOP,
    )


class ProddedRobot:
    """A robot in MuJoCo whose last link can be made heavier, and that can be kicked, while it runs."""

    def __init__(self, robot: MujocoRobot):
        self._robot = robot
        self.joints, self.limits, self.dt = robot.joints, robot.limits, robot.dt
        self._mass, self._inertia = robot.model.body_mass[-1].copy(), robot.model.body_inertia[-1].copy()
        self._push = KICK_SHARE * np.where(np.isfinite(robot.limits.torque), robot.limits.torque, 1.0)
        self._kicked = 0

    def reset(self, q: Any = None, qd: Any = None) -> JointState:
        return self._robot.reset(q, qd)

    def load(self, share: float) -> None:
        """Mass and inertia of the last link are 1 + share times what they were at first."""
        self._robot.model.body_mass[-1] = self._mass * (1 + share)
        self._robot.model.body_inertia[-1] = self._inertia * (1 + share)

    def kick(self) -> None:
        self._kicked = round(KICK_SECONDS / self.dt)

    def step(self, tau: Any) -> JointState:
        if not self._kicked:
            return self._robot.step(tau)
        self._kicked -= 1
        self._robot.push(safe_torque(tau, self.limits, self.joints) + self._push)
        return self._robot.state()


@dataclass
class Choice:
    """A model that may lead the robot: its feed-forward and, if it is learned, its learner and where it is shown."""

    feed_forward: FeedForward
    learner: ProcessLearner | None = None
    shown: Latest | None = None


class Host:
    """The run: robot, models and learners, led by the orders that come in."""

    def __init__(self, settings: LiveSettings, broadcast: Broadcast):
        self._settings, self._broadcast = settings, broadcast
        self._arm = online_run(settings, "none").arm
        self._robot = ProddedRobot(MujocoRobot.of(self._arm, dt=1 / LOOP.rate))
        self._dof = self._robot.joints.dof
        self._followed = broadcast.told
        self._choices: dict[str, Choice] = {}
        self._shown: dict[str, Latest] = {}
        self._state: JointState | None = None
        self._stop, self._stop_asked, self._turned = threading.Event(), False, False
        self._motions: dict[tuple[int, float], list[Trajectory]] = {}
        self._recorder: Recorder | None = None
        self._moved, self._models_shown = 0.0, -1
        self._parent = os.getppid()

    def prepare(self, tell: Callable[[dict[str, str]], None], whole: threading.Lock) -> None:
        """Build and compile every model; the learner of the chosen one is waited for, the others follow.

        `tell` gets the names of the channels on which learned models are shown. Channels and processes are made while
        the lock is held, so that `remove` can be called by another thread.
        """
        for name in self._settings.models:
            if name in LEARNED:
                size = blueprint_of(online_run(self._settings, name)).size
                with whole:
                    self._shown[name] = Latest(size)
        with whole:
            tell({name: channel.name for name, channel in self._shown.items()})
        order = sorted(self._settings.models, key=lambda name: name != self._settings.model)
        for number, name in enumerate(order):
            self._broadcast.stand("preparing", self._followed, done=number, total=len(order) + 1)
            online = online_run(self._settings, name)
            feed_forward = build_feed_forward(online)
            choice = self._choices[name] = Choice(feed_forward, shown=self._shown.get(name))
            if isinstance(feed_forward, Compiled):
                task = Task(feed_forward.blueprint, self._robot.dt, online.online, self._settings.seed)
                with whole:
                    choice.learner = ProcessLearner(task, loop_core=self._settings.core, patient=False)
                    if name == self._settings.model:
                        choice.learner.start()
                Gate(feed_forward, self._robot.limits, self._robot.dt, LOOP.gate).prepare()
            feed_forward.prepare(np.zeros(self._dof))
        self._broadcast.stand("preparing", self._followed, done=len(order), total=len(order) + 1)
        chosen = self._choices[self._settings.model].learner
        while chosen is not None and chosen.alive and not chosen.ready and not self._over():
            threading.Event().wait(0.02)
        for choice in self._choices.values():
            if choice.learner is not None:
                with whole:
                    choice.learner.start()
        for number, _ in enumerate(self._settings.references):
            self._motion(self._followed._replace(reference=number))

    def lead(self) -> None:
        """Follow the orders until they say stop, the time is used up, or nobody is left to start a run."""
        raise_priority(core=self._settings.core)
        self._broadcast.stand("ready", self._followed)
        while MODES[self._broadcast.orders().mode] == "wait" and not self._over():
            self._broadcast.stand("ready", self._broadcast.told)
            threading.Event().wait(0.02)
        if self._settings.record is not None:
            layout, joints = row_layout(self._dof), self._robot.joints
            told = {"robot": self._settings.robot, "feed_forward": self._settings.model}
            self._recorder = Recorder(
                self._settings.record, joints, layout, dt=self._robot.dt, overwrite=True, provenance=told
            )
        with ExitStack() as awake:
            awake.enter_context(kept_awake())
            while MODES[self._broadcast.orders().mode] != "stop" and not self._over():
                self._stretch()

    def _over(self) -> bool:
        """Whether to end without being told to."""
        unwatched = os.getppid() != self._parent and MODES[self._broadcast.told.mode] in ("wait", "pause")
        return self._stop_asked or unwatched or self._moved > self._settings.seconds

    def ask_stop(self) -> None:
        """Stop the robot, then end; may come from a signal."""
        self._stop_asked = True
        self._stop.set()

    def _stretch(self) -> None:
        """One run of the loop: motions or a held pose, with one model, until something else is wanted."""
        before, self._followed = self._followed, self._broadcast.orders()
        wanted = self._followed
        choice = self._choices[self._settings.models[wanted.model]]
        self._robot.load(wanted.payload)
        if wanted.resets != before.resets and isinstance(choice.feed_forward, Compiled):
            choice.feed_forward.forget()
            if choice.learner is not None:
                choice.learner.reset()
        running = MODES[wanted.mode] == "run"
        motions = self._motion(wanted) if running else [self._pose()]
        self._stop.clear()
        if self._stop_asked:
            return
        self._in_use, self._models_shown, self._turned = choice, -1, False
        self._broadcast.learning = np.full(len(LEARNING), np.nan)
        self._broadcast.begin()
        self._broadcast.stand("running" if running else "paused", wanted)
        result = self._loop(choice, motions, training=running)
        self._state = result.state
        self._moved += len(result.t) * self._robot.dt if running else 0.0
        if result.ended == "interrupted" and not self._turned:
            self._stop_asked = True  # by Ctrl-C, which the loop took
        if result.ended == "stopped":
            self._state = None  # the guard no longer believed the robot: begin anew

    def _loop(self, choice: Choice, motions: list[Trajectory], *, training: bool) -> LoopResult:
        return run_loop(
            self._robot,
            motions,
            TrackingController(low_gains(self._arm)),
            choice.feed_forward,
            WallClock(),
            learner=choice.learner if training else None,
            recorder=self._recorder,
            settings=replace(LOOP, training=training),
            start=self._state,
            stop=self._stop,
            onlooker=self,
        )

    def see(self, row: Any, plan: Plan, period: int, counts: Counts) -> None:
        """Called by the loop in every period: show it, and look whether something else is wanted."""
        choice = self._in_use
        if choice.learner is not None and choice.learner.note is not None:
            self._broadcast.learning = choice.learner.note[:4]
        self._broadcast.see(row, plan, period, counts)
        model = int(row[-1])
        if model != self._models_shown and choice.shown is not None and isinstance(choice.feed_forward, Compiled):
            self._models_shown = model
            if choice.feed_forward.weights is not None:
                choice.shown.publish(np.asarray(choice.feed_forward.weights))
        if period % LEARNING_PERIOD == 0 and choice.learner is not None:
            choice.learner.refresh()
        wanted = self._broadcast.orders()
        if wanted is not self._followed:
            self._obey(wanted)

    def _obey(self, wanted: Orders) -> None:
        """What acts at once; the rest ends the stretch."""
        if wanted.payload != self._followed.payload:
            self._robot.load(wanted.payload)
        if wanted.kicks != self._followed.kicks:
            self._robot.kick()
        same = self._followed._replace(payload=wanted.payload, kicks=wanted.kicks)
        if same == wanted:
            self._followed = wanted
            self._broadcast.stand("running" if MODES[wanted.mode] == "run" else "paused", wanted)
        else:
            self._turned = True
            self._stop.set()

    def _motion(self, wanted: Orders) -> list[Trajectory]:
        """The motions of a stretch; made once for each reference and speed."""
        key = (wanted.reference, wanted.speed)
        if key not in self._motions:
            online = replace(
                online_run(self._settings, "none"),
                reference=self._settings.references[wanted.reference],
                speed=wanted.speed,
            )
            self._motions[key] = training_motions(online)
        return self._motions[key]

    def _pose(self) -> Trajectory:
        """To stand still where the robot is."""
        q = self._robot.reset().q if self._state is None else self._state.q
        t = np.arange(round(HOLD / self._robot.dt)) * self._robot.dt
        still = np.zeros((len(t), self._dof))
        return Trajectory(t=t, q=still + q, qd=still, qdd=still, label="pause")

    def remove(self) -> None:
        """Before the process ends at once, while it prepares: leave no learner and no channel behind."""
        for choice in tuple(self._choices.values()):
            if choice.learner is not None:
                choice.learner.remove()
        for channel in self._shown.values():
            channel.remove()

    def close(self) -> None:
        with ExitStack() as ending:  # in reverse: whatever becomes of the learners, the recording is whole by then
            for channel in self._shown.values():
                ending.callback(channel.close)
            for choice in self._choices.values():
                if choice.learner is not None:
                    ending.callback(choice.learner.close)
            if self._recorder is not None:
                ending.callback(self._close_recording, self._recorder)
            self._broadcast.stand("stopped", self._broadcast.told)

    def _close_recording(self, recorder: Recorder) -> None:
        """End the recording, and say what it lacks."""
        recorder.close()
        loss = loss_told(recorder.dropped, recorder.problem)
        if loss is not None:
            print(f"delan: {loss}", file=sys.stderr, flush=True)
