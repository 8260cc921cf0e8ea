"""The host of a run that is led by its watchers.

It waits to be started and then drives the robot in turns, each one call of the loop. An order that
changes the motion or the model (pause, model, reference, speed, reset) ends a turn with the smooth
stop of the loop and begins the next; a payload or a kick acts at once. All models are compiled
before the first period. The host continues when nobody watches.
"""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from ..joints import Trajectory
from ..robots.mujoco_robot import MujocoRobot
from ..robots.robot import low_gains
from .admission import Admission
from .broadcast import LEARNING, MODES, Broadcast, Orders, ShownPeriod
from .channels import Latest
from .host_process import LEARNED, RATE, LiveSettings, ModelName
from .learner_process import ProcessLearner
from .loop import LoopSettings
from .online_run import DisturbedRobot, OnlineRun, feed_forward_for, training_motions
from .recorder import recording_loss
from .rig import Observers
from .session import Session, blueprint_of

TURN_SECONDS = 60.0  # duration of the motions of a turn [s]
HOLD_SECONDS = 20.0  # duration of a turn that holds a pose, during a pause [s]
LEARNING_PERIOD = 25  # periods between two updates of what the learner reports
# A short stop, so that an order takes effect soon.
LOOP = LoopSettings(rate=RATE, stop=0.15)


def live_run(settings: LiveSettings, model: ModelName) -> OnlineRun:
    """Return the run of one of the models."""
    return OnlineRun(
        robot=settings.robot,
        model=model,
        reference=settings.reference,
        letters=settings.letters,
        speed=settings.speed,
        seed=settings.seed,
        seconds=TURN_SECONDS,
        loop=LOOP,
    )


class Host:
    """A session whose turns follow the orders of a broadcast."""

    def __init__(self, settings: LiveSettings, broadcast: Broadcast):
        self._settings = settings
        self._broadcast = broadcast
        run = live_run(settings, settings.model)
        self._robot = DisturbedRobot(MujocoRobot.of(run.arm, dt=1 / LOOP.rate))
        session = replace(run.session, core=settings.core, patient=False, record=settings.record)
        self._session = Session(self._robot, low_gains(run.arm), session)
        self._followed = broadcast.latest
        self._shown: dict[str, Latest] = {}
        self._model = settings.model  # name of the model in use
        self._model_shown = -1  # number of the swap whose weights were shown last
        self._stop = threading.Event()
        self._stop_asked = False
        self._turned = False  # whether an order ended the turn
        self._motions: dict[tuple[int, float], list[Trajectory]] = {}
        self._moved = 0.0
        self._parent = os.getppid()

    def prepare(self, announce: Callable[[dict[str, str]], None], lock: threading.Lock) -> None:
        """Compile every model and wait for the learner of the chosen one.

        `announce` gets the names of the channels of the learned weights. Channels and processes
        are created while the lock is held, so that another thread can call `remove`.
        """
        settings = self._settings
        joints = self._robot.joints
        for name in settings.models:
            if name in LEARNED:
                size = blueprint_of(name, joints, self._session.settings).size
                with lock:
                    self._shown[name] = Latest(size)
        with lock:
            announce({name: channel.name for name, channel in self._shown.items()})
        chosen_first = sorted(settings.models, key=lambda name: name != settings.model)
        total = len(chosen_first) + 1
        for number, name in enumerate(chosen_first):
            self._broadcast.stand("preparing", self._followed, done=number, total=total)
            self._prepare_model(name, lock)
        self._broadcast.stand("preparing", self._followed, done=total - 1, total=total)
        learner = self._learner(settings.model)
        while learner is not None and learner.alive and not learner.ready and not self._over():
            threading.Event().wait(0.02)
        for name in settings.models:
            learner = self._learner(name)
            if learner is not None:
                with lock:
                    learner.start()
        for number, _ in enumerate(settings.references):
            self._motion(self._followed._replace(reference=number))

    def _prepare_model(self, name: ModelName, lock: threading.Lock) -> None:
        feed_forward = feed_forward_for(live_run(self._settings, name))
        with lock:
            rig = self._session.add(name, feed_forward)
            learner = self._learner(name)
            # The chosen learner compiles while the other models are prepared.
            if learner is not None and name == self._settings.model:
                learner.start()
        if rig.compiled is not None:
            robot = self._robot
            Admission(rig.compiled, robot.limits, robot.dt, LOOP.admission).prepare()
        feed_forward.prepare(np.zeros(self._robot.joints.dof))

    def lead(self) -> None:
        """Follow the orders until they say stop, time is up, or nobody can start the run."""
        self._broadcast.stand("ready", self._followed)
        while MODES[self._broadcast.orders().mode] == "wait" and not self._over():
            self._broadcast.stand("ready", self._broadcast.latest)
            threading.Event().wait(0.02)
        self._session.begin(_say)
        while MODES[self._broadcast.orders().mode] != "stop" and not self._over():
            self._turn()

    def _over(self) -> bool:
        """Return whether to end without an order."""
        orphaned = os.getppid() != self._parent
        idle = MODES[self._broadcast.latest.mode] in ("wait", "pause")
        return self._stop_asked or (orphaned and idle) or self._moved > self._settings.seconds

    def ask_stop(self) -> None:
        """Stop the robot, then end; may be called by a signal handler."""
        self._stop_asked = True
        self._stop.set()

    def _learner(self, name: str) -> ProcessLearner | None:
        learner = self._session.rigs[name].learner
        return learner if isinstance(learner, ProcessLearner) else None

    def _turn(self) -> None:
        """Follow motions or hold a pose with one model, until an order changes that."""
        resets = self._followed.resets
        orders = self._broadcast.orders()
        self._followed = orders
        self._model = self._settings.models[orders.model]
        self._robot.load(orders.payload)
        if orders.resets != resets:
            self._reset_weights()
        running = MODES[orders.mode] == "run"
        motions = self._motion(orders) if running else [self._pose()]
        self._stop.clear()
        if self._stop_asked:
            return
        self._model_shown = -1
        self._turned = False
        self._broadcast.learning = np.full(len(LEARNING), np.nan)
        self._broadcast.begin()
        self._broadcast.stand("running" if running else "paused", orders)
        observers = Observers(onlooker=self, stop=self._stop)
        rig = self._session.rigs[self._model]
        result = self._session.drive(rig, motions, training=running, observers=observers)
        if running:
            self._moved += len(result.t) * self._robot.dt
        if result.ended == "interrupted" and not self._turned:
            self._stop_asked = True  # interrupted by Ctrl-C
        if result.ended == "stopped":
            self._session.state = None  # the state is not plausible: reset the robot

    def _reset_weights(self) -> None:
        """Return to random weights."""
        compiled = self._session.rigs[self._model].compiled
        learner = self._learner(self._model)
        if compiled is not None:
            compiled.forget()
        if learner is not None:
            learner.reset()

    def see(self, period: ShownPeriod) -> None:
        """Show a period and read the orders; called by the loop."""
        learner = self._learner(self._model)
        if learner is not None and learner.note is not None:
            self._broadcast.learning = learner.note[: len(LEARNING)]
        self._broadcast.see(period)
        swaps = int(period.row[-1])
        compiled = self._session.rigs[self._model].compiled
        if swaps != self._model_shown and compiled is not None:
            self._model_shown = swaps
            if compiled.weights is not None:
                self._shown[self._model].write(np.asarray(compiled.weights))
        if learner is not None and period.number % LEARNING_PERIOD == 0:
            learner.refresh()
        orders = self._broadcast.orders()
        if orders is not self._followed:
            self._obey(orders)

    def _obey(self, orders: Orders) -> None:
        """Apply what acts at once; end the turn for anything else."""
        if orders.payload != self._followed.payload:
            self._robot.load(orders.payload)
        if orders.kicks != self._followed.kicks:
            self._robot.kick()
        if self._followed._replace(payload=orders.payload, kicks=orders.kicks) == orders:
            self._followed = orders
            phase = "running" if MODES[orders.mode] == "run" else "paused"
            self._broadcast.stand(phase, orders)
        else:
            self._turned = True
            self._stop.set()

    def _motion(self, orders: Orders) -> list[Trajectory]:
        """Return the motions of a turn, made once for each reference and speed."""
        key = (orders.reference, orders.speed)
        if key not in self._motions:
            run = replace(
                live_run(self._settings, "none"),
                reference=self._settings.references[orders.reference],
                speed=orders.speed,
            )
            self._motions[key] = training_motions(run)
        return self._motions[key]

    def _pose(self) -> Trajectory:
        """Return a motion that rests where the robot is."""
        state = self._session.state or self._robot.reset()
        t = np.arange(round(HOLD_SECONDS / self._robot.dt)) * self._robot.dt
        rest = np.zeros((len(t), self._robot.joints.dof))
        return Trajectory(t=t, q=rest + state.q, qd=rest, qdd=rest, label="pause")

    def remove(self) -> None:
        """End learners and unlink channels before the process exits abruptly."""
        for name in tuple(self._session.rigs):
            learner = self._learner(name)
            if learner is not None:
                learner.remove()
        for channel in self._shown.values():
            channel.remove()

    def close(self) -> None:
        """End the session and report what the recording lacks."""
        # Callbacks run in reverse order, even if one fails.
        with ExitStack() as ending:
            for channel in self._shown.values():
                ending.callback(channel.close)
            ending.callback(self._report_loss)
            ending.callback(self._session.close)
            self._broadcast.stand("stopped", self._broadcast.latest)

    def _report_loss(self) -> None:
        recorder = self._session.recorder
        if recorder is None:
            return
        loss = recording_loss(recorder.dropped, recorder.problem)
        if loss is not None:
            _say(loss)


def _say(message: str) -> None:
    print(f"delan: {message}", file=sys.stderr, flush=True)
