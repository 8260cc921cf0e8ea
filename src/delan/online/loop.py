"""The control loop: state in, torque out, once per period.

The loop waits for its clock and for nothing else. With a `SteppedClock`, whose time stands still
while something is computed, the same code waits for results, so that runs are reproducible
bit for bit.
"""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from ..errors import SettingsError
from ..joints import JointState, JointTarget, Trajectory
from .admission import Admission, AdmissionSettings, Intake
from .broadcast import ShownPeriod
from .clocks import Clock, Deadlines, SteppedClock, Tick
from .controller import TrackingController
from .guard import Guard, GuardSettings
from .process import no_garbage_collection, stopped_by_signals, workers_follow
from .rig import Observers, Rig
from .schedule import Schedule, make_schedule
from .stats import Ending, Event, Log, LoopProgress, LoopResult, LoopStats

Vector = Float[np.ndarray, " dof"]


@dataclass(frozen=True)
class LoopSettings:
    """Rates and behaviour of the loop.

    Attributes:
        rate: control rate [Hz]; must be that of the robot.
        feed_forward_rate: rate at which τ_ff is updated [Hz].
        training: pass samples to the learner and take its models; otherwise the model is frozen.
        progress: time between two calls of the progress callback [s].
        stop: time in which the robot is braked when it has to stop [s]; it is held as long again.
        stall: if the loop stands still for this time [s], the robot is held, for `stop` [s], before
            it returns to the motion.
        require_recording: stop the robot if a row cannot be recorded.
        catches_up: step the robot through periods that passed before the loop could act. True for
            a simulation, False for a real robot, which moves by itself.
        admission: how learned models are judged.
        guard: thresholds on states and torques.
    """

    rate: float = 500.0
    feed_forward_rate: float = 200.0
    training: bool = True
    progress: float = 0.2
    stop: float = 0.3
    stall: float = 0.2
    require_recording: bool = False
    catches_up: bool = True
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)

    def __post_init__(self) -> None:
        for name in ("rate", "feed_forward_rate", "progress", "stop", "stall"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {value}")
        if self.feed_forward_rate > self.rate:
            raise SettingsError(
                f"feed_forward_rate is {self.feed_forward_rate:g} Hz, expected at most the "
                f"control rate of {self.rate:g} Hz"
            )


def run_loop(
    rig: Rig,
    reference: Trajectory | Sequence[Trajectory],
    clock: Clock,
    *,
    settings: LoopSettings | None = None,
    start: JointState | None = None,
    observers: Observers | None = None,
) -> LoopResult:
    """Drive the robot along the reference.

    Ctrl-C, SIGTERM, SIGHUP and `observers.stop` end the run early: the robot is braked first, and
    the result is complete up to there.

    Args:
        start: current state of the robot, to continue from there; None resets the robot to the
            start of the reference.
    """
    settings = settings or LoopSettings()
    observers = observers or Observers()
    robot = rig.robot
    rig.require_matching(settings.rate, training=settings.training)
    here = None if start is None else start.q
    schedule = make_schedule(reference, robot.limits, robot.dt, start=here)
    first = schedule.target(0)
    rig.feed_forward.prepare(first.q_des)
    intake = None
    if settings.training and rig.learner is not None and rig.compiled is not None:
        admission = Admission(rig.compiled, robot.limits, robot.dt, settings.admission)
        admission.prepare()
        intake = Intake(rig.learner, admission, robot.dt)
        intake.start(0.0 if start is None else start.t, observers.warn)
    if start is None:
        start = robot.reset(first.q_des, first.qd_des)
    run = _Run(rig, schedule, intake, settings, start, observers)
    run.patient = isinstance(clock, SteppedClock)
    quiet = no_garbage_collection()
    if run.patient:
        quiet = nullcontext()
    with stopped_by_signals(observers.stop), workers_follow(), quiet:
        run.through(clock)
    return run.result()


class _Run:
    """One run of the loop, period by period."""

    patient = False  # whether to wait for results, as with a stepped clock

    def __init__(
        self,
        rig: Rig,
        schedule: Schedule,
        intake: Intake | None,
        settings: LoopSettings,
        start: JointState,
        observers: Observers,
    ):
        robot = rig.robot
        self._robot = robot
        self._recorder = rig.recorder
        self._schedule = schedule
        self._intake = intake
        self._settings = settings
        self._observers = observers
        self._dt = robot.dt
        share = settings.feed_forward_rate / settings.rate
        self._controller = TrackingController(rig.gains, rig.feed_forward, share)
        self._guard = Guard(robot.limits, robot.dt, settings.guard)
        self._measured = start  # as the robot reported it
        self._state = start  # as the guard let it through
        self._plausible = False
        self._stale = False  # whether the state was measured before a gap
        self._tau = np.zeros(robot.joints.dof)
        self._start = start.t
        self._braking = max(1, round(settings.stop / robot.dt))
        self._stall = max(1, round(settings.stall / robot.dt))
        self._held = 0  # the period until which the robot is held after a stall
        self._events: list[Event] = []
        self._log = Log(robot.joints.dof, schedule.end + 2 * self._braking)
        self._done = 0
        self._swaps = 0
        self._refused = 0
        self._next_progress = 0
        self._ended: Ending = "finished"
        self._reason = "the reference is at its end"

    def through(self, clock: Clock) -> None:
        """Run until the schedule ends."""
        self._controller.begin(0, self._ahead)
        self._controller.collect(0, wait=True)
        deadlines = Deadlines(clock, self._dt)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                while self._done < self._schedule.end:
                    tick = deadlines.wait()
                    if tick.number - self._done >= self._stall:
                        tick = self._resume(tick, deadlines)
                    self._pass(min(tick.number, self._schedule.end))
                    self._guard.holding = self._done < self._held
                    if self._done < self._schedule.end:
                        self._period(tick)
        except BaseException:
            # A callback, the learner or the robot failed: the last torque must not stay applied.
            with suppress(Exception):
                self._robot.step(np.zeros(len(self._tau)))
            raise

    def _resume(self, tick: Tick, deadlines: Deadlines) -> Tick:
        """Hold the robot after a stall, before it returns to the motion; return the next tick."""
        first = self._done
        reference = self._schedule
        self._schedule = reference.stalled(first)
        # Catching up takes time, too.
        while self._done < reference.end and tick.number > self._done + 1:
            self._pass(min(tick.number, reference.end))
            tick = deadlines.wait()
        if not self._settings.catches_up and self._done < reference.end:
            # The last state is of before the stall; a step shows where the robot is now.
            self._guard.holding = True
            self._log.mark()
            self._sense()
            self._apply(self._guard.let_out(np.zeros(len(self._tau))))
            self._done += 1
        seconds = (self._done - first) * self._dt
        text = f"the loop stood still for {seconds:.2f} s; the robot was held before it went on"
        self._events.append(Event(self._time(first), "stall", text))
        if self._done < reference.end:
            plausible = self._guard.plausible(self._measured)
            state = self._measured if plausible else self._state
            self._held = self._done + self._braking
            self._schedule = reference.rejoined(
                self._done, state.q, self._braking, self._schedule, self._robot.limits, self._dt
            )
        return tick

    def _pass(self, period: int) -> None:
        """Account for the periods before the given one, in which the loop did not act."""
        first = self._done
        while self._settings.catches_up and self._done < period:
            # A simulation moves on with the last torque, as a robot would have, and in a stall
            # with a braking one: the watchdog of its drives.
            self._log.mark()
            self._sense()
            tau = self._tau
            if self._done - first >= self._stall:
                tau = self._guard.damped(self._state, self._controller.gains.damping)
            self._apply(tau)
            self._done += 1
        if self._done < period:
            # A robot has moved by itself, unseen: the last row is repeated in the log, and neither
            # learner nor recorder gets anything.
            seen = max(self._done - 1, 0)
            for k in range(self._done, period):
                self._write_row(k, seen)
            self._guard.pass_unseen(period - self._done)
            self._done = period
            self._stale = True

    def _period(self, tick: Tick) -> None:
        k = self._done
        t = self._time(k)
        self._log.mark()
        self._sense()
        self._maybe_end(k)
        self._log.spent("control")
        self._controller.collect(k, wait=self.patient)
        self._log.spent("feed_forward")
        tau = self._torque(k)
        self._log.spent("control")
        self._apply(tau)
        if k + 1 < self._schedule.end:
            self._controller.begin(k + 1, self._ahead)
        self._log.spent("feed_forward")
        if self._intake is not None:
            self._intake.take(k, t, self._schedule, wait=self.patient)
            self._swaps = self._intake.swaps
            self._refused = sum(self._intake.admission.refused.values())
        self._log.spent("gate")
        self._report(k, t)
        self._show(k, tick)
        self._log.acted(tick.lateness)
        self._done = k + 1

    def _sense(self) -> None:
        """Take the state at the end of the last period, if it is plausible."""
        before = self._state
        plausible_before = self._plausible
        self._plausible = False
        if not self._stale:
            self._state = self._guard.state(self._measured)
            self._plausible = self._guard.believed
        self._stale = False
        if self._intake is not None and self._done:
            window = self._intake.admission.window
            if plausible_before and self._plausible:
                window.add(before, self._tau, self._state)
            else:
                window.cut()

    def _maybe_end(self, k: int) -> None:
        """Begin to brake if the guard or somebody outside asks for it."""
        if self._ended != "finished":
            return
        if self._guard.stopped is not None:
            self._ended = "stopped"
            self._reason = self._guard.stopped
        elif self._observers.stop.is_set():
            self._ended = "interrupted"
            self._reason = "stopped from outside"
        elif self._unrecorded():
            self._ended = "stopped"
            self._reason = "the run cannot be recorded, which is required"
        else:
            return
        self._schedule = self._schedule.braked(k, self._braking, self._dt, self._robot.limits)

    def _unrecorded(self) -> bool:
        """Return whether rows are missing in a recording that is required."""
        recorder = self._recorder
        if recorder is None or not self._settings.require_recording:
            return False
        return recorder.problem is not None or recorder.dropped > 0

    def _torque(self, k: int) -> Vector:
        if self._guard.stopped is not None:
            return self._guard.damped(self._state, self._controller.gains.damping)
        self._guard.counts["target"] += int(self._schedule.cut[k - self._schedule.first])
        feedback = self._controller.feedback(self._state, self._schedule.target(k))
        return self._guard.torque(self._state, feedback, self._controller.feed_forward)

    def _apply(self, tau: Vector) -> None:
        """Step the robot for one period, then log the period and pass it on."""
        k = self._done
        measured = self._measured
        self._measured = self._robot.step(tau)
        self._tau = tau
        self._log.spent("robot")
        self._write_row(k, k)
        if self._recorder is not None:
            # The recording has what the robot reported, even if the guard did not believe it.
            self._recorder.append(self._log.with_state(k, measured))
        self._log.spent("recorder")
        if self._intake is not None and self._plausible:
            self._intake.learner.give(self._time(k), self._state.q, self._state.qd, tau)
        self._log.spent("learner")

    def _write_row(self, k: int, target: int) -> None:
        """Log period k with the target of another period."""
        at = target - self._schedule.first
        parts = [
            (self._time(k),),
            self._state.q,
            self._state.qd,
            self._tau,
            self._schedule.rows[at],
            self._controller.feed_forward,
            (self._schedule.piece[k - self._schedule.first], self._swaps),
        ]
        np.concatenate(parts, out=self._log.rows[k])

    def _report(self, k: int, t: float) -> None:
        """Call the progress callback if it is time to."""
        if self._observers.progress is None or k < self._next_progress:
            return
        self._next_progress = k + max(1, round(self._settings.progress / self._dt))
        model_age = None
        if self._intake is not None and self._intake.swapped is not None:
            model_age = t - self._intake.swapped
        progress = LoopProgress(
            t=t,
            seconds=self._schedule.end * self._dt,
            label=self._schedule.labels[self._schedule.piece[k - self._schedule.first]],
            error=self._log.recent_error(k, round(1 / self._dt)),
            missed=k - self._log.ticks,
            late=self._controller.late,
            swaps=self._swaps,
            refused=self._refused,
            model_age=model_age,
        )
        self._observers.progress(progress)
        self._log.spent("progress")

    def _show(self, k: int, tick: Tick) -> None:
        if self._observers.onlooker is None:
            return
        period = ShownPeriod(
            number=k,
            row=self._log.rows[k],
            ahead=self._schedule.rows[k - self._schedule.first :],
            lateness=tick.lateness,
            missed=k - self._log.ticks,
            late=self._controller.late,
            refused=self._refused,
        )
        self._observers.onlooker.see(period)
        self._log.spent("onlooker")

    def _ahead(self, k: int) -> JointTarget:
        """Return the target of a future period; the last target continues after the end."""
        return self._schedule.target(min(k, self._schedule.end - 1))

    def _time(self, k: int) -> float:
        return self._start + k * self._dt

    def result(self) -> LoopResult:
        """Return the result of the run so far."""
        intake = self._intake
        log = self._log
        events = tuple(self._events)
        stats = LoopStats(
            periods=self._done,
            missed=self._done - log.ticks,
            stalls=len(self._events),
            late_feedforward=self._controller.late,
            guard=self._guard.counts,
            torque_max=log.torque_max(self._done),
            lateness_us=log.lateness_us,
            parts_us=log.parts_us,
        )
        if self._recorder is not None:
            stats = replace(stats, **self._recorder.losses)
        if intake is not None:
            events = tuple(sorted((*events, *intake.all_events()), key=lambda event: event.t))
            stats = replace(
                stats,
                lost_samples=intake.lost,
                restarts=intake.restarts,
                swaps=intake.swaps,
                refused=intake.admission.refused,
            )
        return LoopResult(
            **log.columns(self._done),
            labels=self._schedule.labels,
            scored=self._schedule.scored,
            stats=stats,
            events=events,
            ended=self._ended,
            reason=self._reason,
            state=self._measured,
        )
