"""The control loop: state in, torque out, once a period, whatever else is late.

It waits for the clock and for nothing else. By a `SteppedClock`, whose time stands still while something is computed,
the same code waits for what it began, and two runs are equal to the last bit.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from ..control import TrackingController
from ..errors import SettingsError
from ..joints import JointState, JointTarget, Trajectory
from ..robots.robot import Robot
from .clocks import Clock, Deadlines, SteppedClock, Tick
from .feed_forward import Compiled, FeedForward, Refresh
from .gate import Gate, GateSettings
from .guard import Guard, GuardSettings
from .intake import Intake
from .learner import Learner
from .live import Counts, Onlooker
from .log import Log
from .plan import Plan, plan
from .priority import no_garbage_collection, workers_follow
from .recorder import Recorder
from .stats import Ending, LoopResult, LoopStats, Progress

Vector = Float[np.ndarray, " dof"]


@dataclass(frozen=True)
class LoopSettings:
    """How the loop runs.

    Attributes:
        rate: control periods a second [Hz]; that of the robot.
        feed_forward_rate: how often τ_ff is computed anew [Hz].
        training: give samples to the learner and take its models; off, the model in use stays.
        progress: time between two calls of the callback [s].
        stop: how long the robot may take to come to a stop when it is told to [s]; it is held for as long again.
        catches_up: step the robot through periods that passed before the loop could act. A simulation must be stepped
            through them; a robot that moves by itself must not.
    """

    rate: float = 500.0
    feed_forward_rate: float = 200.0
    training: bool = True
    progress: float = 0.2
    stop: float = 0.3
    catches_up: bool = True
    gate: GateSettings = field(default_factory=GateSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)

    def __post_init__(self) -> None:
        for name in ("rate", "feed_forward_rate", "progress", "stop"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if self.feed_forward_rate > self.rate:
            raise SettingsError(
                f"feed_forward_rate is {self.feed_forward_rate:g} Hz; it can be at most the control rate, {self.rate:g}"
            )


def run_loop(
    robot: Robot,
    reference: Trajectory | Sequence[Trajectory],
    controller: TrackingController,
    feed_forward: FeedForward,
    clock: Clock,
    *,
    learner: Learner | None = None,
    recorder: Recorder | None = None,
    settings: LoopSettings | None = None,
    start: JointState | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    onlooker: Onlooker | None = None,
) -> LoopResult:
    """Lead the robot along the reference, and tell how it went.

    Ctrl-C, SIGTERM and `stop` end the run early: the robot is braked first, and the result is whole.

    Args:
        learner: gets every sample and gives models to `feed_forward`, which must be `Compiled` of its blueprint. It is
            started here and not closed.
        recorder: gets every row; made with `row_layout`.
        start: where the robot is, if it is to go on from there; without, it is reset to the start of the reference.
        progress: called now and then from inside the loop; keep it short.
        onlooker: is shown every period; it may set `stop`.
    """
    settings, stop = settings or LoopSettings(), stop or threading.Event()
    learner = learner if settings.training else None
    _require_fitting(robot, controller, feed_forward, learner, settings)
    wanted = plan(reference, robot.limits, robot.dt, start=None if start is None else start.q)
    first = wanted.target(0)
    feed_forward.prepare(first.q_des)
    intake = None
    if learner is not None and isinstance(feed_forward, Compiled):
        gate = Gate(feed_forward, robot.limits, robot.dt, settings.gate)
        gate.prepare()
        learner.start()
        intake = Intake(learner, gate, robot.dt)
    if start is None:
        start = robot.reset(first.q_des, first.qd_des)
    run = _Run(robot, wanted, controller, feed_forward, intake, recorder, settings, start)
    run.patient, run.progress, run.stop, run.onlooker = isinstance(clock, SteppedClock), progress, stop, onlooker
    with _interrupts(stop), workers_follow(), nullcontext() if run.patient else no_garbage_collection():
        run.through(clock)
    return run.result()


class _Run:
    """One run of the loop, period by period."""

    patient = False
    progress: Callable[[Progress], None] | None = None
    onlooker: Onlooker | None = None
    stop: threading.Event

    def __init__(
        self,
        robot: Robot,
        wanted: Plan,
        controller: TrackingController,
        feed_forward: FeedForward,
        intake: Intake | None,
        recorder: Recorder | None,
        settings: LoopSettings,
        start: JointState,
    ):
        self._robot, self._plan, self._settings, self._dt = robot, wanted, settings, robot.dt
        self._controller, self._intake, self._recorder = controller, intake, recorder
        self._refresh = Refresh(feed_forward, controller, settings.feed_forward_rate / settings.rate)
        self._guard = Guard(robot.limits, robot.dt, settings.guard)
        self._told = self._state = start
        self._known, self._tau, self._start = False, np.zeros(robot.joints.dof), start.t
        self._stale = False
        self._braking = max(1, round(settings.stop / robot.dt))
        self._log = Log(robot.joints.dof, wanted.end + 2 * self._braking)
        self._done = self._next_progress = 0
        self._ended: Ending = "finished"
        self._reason = "the reference is at its end"

    def through(self, clock: Clock) -> None:
        """The whole plan, or as much of it as comes to pass."""
        self._controller.feed_forward = np.zeros(len(self._tau))
        self._refresh.begin(0, self._ahead)
        self._refresh.collect(0, wait=True)
        deadlines = Deadlines(clock, self._dt)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                while self._done < self._plan.end:
                    tick = deadlines.wait()
                    self._pass(min(tick.number, self._plan.end))
                    if self._done < self._plan.end:
                        self._period(tick)
        except BaseException:  # of a callback, the learner, the robot: to be told, but not while a torque goes on
            with suppress(Exception):
                self._robot.step(np.zeros(len(self._tau)))
            raise

    def _pass(self, period: int) -> None:
        """Up to a period: those before it are over, and the loop was not there."""
        if self._settings.catches_up:
            while self._done < period:
                self._coast()
        elif self._done < period:
            self._skip(period)

    def _skip(self, period: int) -> None:
        """What nobody saw: the last row stands in the log for it, and neither learner nor recorder gets anything."""
        seen = max(self._done - 1, 0)
        row, piece = self._plan.row(seen), self._plan.piece[seen - self._plan.first]
        for k in range(self._done, period):
            feed_forward = self._controller.feed_forward
            self._log.write(k, self._time(k), self._state, self._tau, row, feed_forward, piece, self._swaps)
        self._done, self._stale = period, True

    def _coast(self) -> None:
        """A period that passed before the loop could act: the robot went on under the old torque."""
        self._log.mark()
        self._see()
        self._apply(self._tau)
        self._done += 1

    def _period(self, tick: Tick) -> None:
        k, t = self._done, self._time(self._done)
        self._log.mark()
        self._see()
        self._maybe_end(k)
        self._log.spent("control")
        self._refresh.collect(k, wait=self.patient)
        self._log.spent("feed_forward")
        tau = self._torque(k)
        self._log.spent("control")
        self._apply(tau)
        if k + 1 < self._plan.end:
            self._refresh.begin(k + 1, self._ahead)
        self._log.spent("feed_forward")
        if self._intake is not None:
            self._intake.take(k, t, self._plan, wait=self.patient)
            self._intake.watch(k, t)
        self._log.spent("gate")
        self._tell(k, t)
        self._show(k, tick)
        self._log.acted(tick.lateness)
        self._done = k + 1

    def _see(self) -> None:
        """Take what the robot told at the end of the last period, if it can be believed."""
        before, known = self._state, self._known
        self._state = self._guard.state(self._told)
        self._known, self._stale = self._guard.believed and not self._stale, False  # stale: told before a gap
        if self._intake is not None and self._done:
            window = self._intake.gate.window
            if known and self._known:
                window.add(before, self._tau, self._state)
            else:
                window.cut()

    def _maybe_end(self, k: int) -> None:
        """Turn to stopping if someone asks for it, or if the guard must."""
        if self._ended != "finished":
            return
        if self._guard.stopped is not None:
            self._ended, self._reason = "stopped", self._guard.stopped
        elif self.stop.is_set():
            self._ended, self._reason = "interrupted", "stopped from outside"
        else:
            return
        self._plan = self._plan.braked(k, self._braking, self._dt, self._robot.limits)

    def _torque(self, k: int) -> Vector:
        if self._guard.stopped is not None:
            return self._guard.damped(self._state, self._controller.gains.damping)
        self._guard.counts["target"] += int(self._plan.cut[k - self._plan.first])
        feedback = self._controller.feedback(self._state, self._plan.target(k))
        return self._guard.torque(self._state, feedback, self._controller.feed_forward)

    def _apply(self, tau: Vector) -> None:
        """Move the robot for one period, and write down and pass on what was so."""
        k, state, told = self._done, self._state, self._told
        self._told, self._tau = self._robot.step(tau), tau
        self._log.spent("robot")
        piece, feed_forward = self._plan.piece[k - self._plan.first], self._controller.feed_forward
        row = self._log.write(k, self._time(k), state, tau, self._plan.row(k), feed_forward, piece, self._swaps)
        if self._recorder is not None:  # on disk goes what the robot said, be it as it may
            self._recorder.append(row if self._known else self._log.with_state(row, told))
        self._log.spent("recorder")
        if self._intake is not None and self._known:
            self._intake.learner.give(self._time(k), state.q, state.qd, tau)
        self._log.spent("learner")

    def _tell(self, k: int, t: float) -> None:
        if self.progress is None or k < self._next_progress:
            return
        self._next_progress = k + max(1, round(self._settings.progress / self._dt))
        intake = self._intake
        self.progress(
            Progress(
                t=t,
                seconds=self._plan.end * self._dt,
                label=self._plan.labels[self._plan.piece[k - self._plan.first]],
                error=self._log.recent_error(k, round(1 / self._dt)),
                missed=k - self._log.ticks,
                late=self._refresh.late,
                swaps=self._swaps,
                refused=self._refused,
                model_age=None if intake is None or intake.swapped is None else t - intake.swapped,
            )
        )
        self._log.spent("progress")

    def _show(self, k: int, tick: Tick) -> None:
        if self.onlooker is not None:
            counts = Counts(tick.lateness, k - self._log.ticks, self._refresh.late, self._refused)
            self.onlooker.see(self._log.row(k), self._plan, k, counts)
            self._log.spent("onlooker")

    def _ahead(self, k: int) -> JointTarget:
        """What is wanted in a period to come; the last target goes on after the end."""
        return self._plan.target(min(k, self._plan.end - 1))

    def _time(self, k: int) -> float:
        return self._start + k * self._dt

    @property
    def _swaps(self) -> int:
        return 0 if self._intake is None else self._intake.swaps

    @property
    def _refused(self) -> int:
        return 0 if self._intake is None else sum(self._intake.gate.refused.values())

    def result(self) -> LoopResult:
        recorder, intake, log = self._recorder, self._intake, self._log
        stats = LoopStats(
            periods=self._done,
            missed=self._done - log.ticks,
            late_feedforward=self._refresh.late,
            lost_samples=0 if intake is None else intake.lost,
            restarts=0 if intake is None else intake.restarts,
            swaps=self._swaps,
            refused={} if intake is None else intake.gate.refused,
            guard=self._guard.counts,
            torque_max=log.torque_max(self._done),
            lateness_us=log.lateness_us,
            parts_us=log.parts_us,
            unrecorded=0 if recorder is None else recorder.dropped,
            recording_problem=None if recorder is None else recorder.problem,
        )
        return LoopResult(
            **log.columns(self._done),
            labels=self._plan.labels,
            scored=self._plan.scored,
            stats=stats,
            events=() if intake is None else intake.all_events(),
            ended=self._ended,
            reason=self._reason,
            state=self._told,
        )


@contextmanager
def _interrupts(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask for a stop, where the main thread runs the loop, instead of tearing a period apart.

    A handler of the caller's own for SIGTERM stays: nobody has one who does not mean to use it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [signal.SIGINT] if callable(signal.getsignal(signal.SIGTERM)) else [signal.SIGINT, signal.SIGTERM]
    before = {one: signal.signal(one, lambda *_: stop.set()) for one in taken}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)


def _require_fitting(
    robot: Robot,
    controller: TrackingController,
    feed_forward: FeedForward,
    learner: Learner | None,
    settings: LoopSettings,
) -> None:
    """Refuse what belongs to another robot, or to another rate."""
    if abs(robot.dt * settings.rate - 1) > 1e-6:
        raise SettingsError(
            f"the loop is to run at {settings.rate:g} Hz and the robot at {1 / robot.dt:g} Hz; "
            "give the robot the period dt = 1 / rate, or the loop the robot's rate"
        )
    dof = robot.joints.dof
    for name, given in (("gains", controller.gains.dof), ("feed-forward", feed_forward.joints.dof)):
        if given != dof:
            raise SettingsError(f"the {name} are for {given} joints and the robot has {dof}; give those of this robot")
    if learner is not None and not (isinstance(feed_forward, Compiled) and feed_forward.blueprint == learner.blueprint):
        raise SettingsError(
            "a learner needs a feed-forward that can take its models: give `Compiled(learner.blueprint)`"
        )
