"""A robot that learns its dynamics while it moves: the session behind command, page and library.

A session owns the controller, the models that can drive the robot, their learners and the
recording. `run` uses it for one model; the host of a page uses it for several.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from ..errors import SettingsError
from ..joints import Joints, JointState, Trajectory
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import InverseDynamics
from ..models.feed_forward import FeedForwardSettings
from ..models.friction import FrictionSettings
from ..models.model import Blueprint
from ..models.network import LagrangianNetworkSettings
from ..robots.robot import Gains, gains_within
from ..robots.robot import Robot as Robot
from ..solvers.plan import SMALL_DOF, SMALL_WIDTH
from .clocks import SteppedClock, WallClock
from .controller import TrackingController
from .learner import Learner, ProcessLearner, SteppedLearner, Task
from .loop import LoopSettings, Observers, Rig, run_loop
from .model_torque import Compiled, FeedForward, NoFeedForward, feed_forward_of
from .online_learner import LearnerSettings
from .process import Granted, kept_awake, raise_priority
from .recorder import Recorder, RecordingFormat
from .stats import LoopResult, LoopStats, Tracking, finite, row_layout

LEARNED = ("feedforward", "delan", "chain")
MOVE_SECONDS = 1.0  # typical duration of the move from one motion to the next [s]


@dataclass(frozen=True)
class SessionSettings:
    """How a session runs.

    Attributes:
        clock: `wall` runs in real time, with the learner in its own process; `stepped` runs as
            fast as possible and is reproducible.
        seconds: repeat the motions for this time [s]; None follows each of them once.
        record: file for the recording; an existing file is replaced.
        friction: friction terms of a learned chain or DeLaN network; None for none.
        optimizer: `auto` learns a network of up to 3 joints by Levenberg–Marquardt, `adam` a
            wider one by Adam.
        seed: random seed of the learner.
        steps_per_second: learning steps per second of the loop's time, with the stepped clock.
        core: processor core of the loop, with the wall clock.
        patient: wait until the learner has compiled before the first period, with the wall clock.
        provenance: what else to write into the recording.
        loop: rates, guard and admission; None for the defaults at the rate of the robot.
        learner: memory and steps of the learner.
    """

    clock: Literal["wall", "stepped"] = "wall"
    seconds: float | None = None
    record: str | Path | None = None
    friction: FrictionSettings | None = None
    optimizer: Literal["auto", "adam"] = "auto"
    seed: int = 0
    steps_per_second: float = 20.0
    core: int = 0
    patient: bool = True
    provenance: Mapping[str, str] = field(default_factory=dict)
    loop: LoopSettings | None = None
    learner: LearnerSettings = field(default_factory=LearnerSettings)

    def __post_init__(self) -> None:
        if self.clock not in ("wall", "stepped"):
            raise SettingsError(f"unknown clock {self.clock!r}; known: wall, stepped")
        if self.optimizer not in ("auto", "adam"):
            raise SettingsError(f"unknown optimizer {self.optimizer!r}; known: auto, adam")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise SettingsError(f"seconds must be positive and finite, got {self.seconds}")


@dataclass(frozen=True, eq=False)
class Driver:
    """A model that can drive the robot: its torque and, if it is learned, its learner."""

    feed_forward: FeedForward
    learner: Learner | None = None

    @property
    def model(self) -> Any:
        """The learned model in use; None if there is none."""
        feed_forward = self.feed_forward
        if self.learner is None or not isinstance(feed_forward, Compiled):
            return None
        if feed_forward.weights is None:
            return None
        weights = jax.numpy.asarray(np.asarray(feed_forward.weights))
        return feed_forward.blueprint.unpack(weights)

    @property
    def engine(self) -> str | None:
        """What computes a learned torque; None for other torques."""
        return self.feed_forward.engine if isinstance(self.feed_forward, Compiled) else None


class Session:
    """A robot under control, from the first motion to the last.

    Attributes:
        drivers: the models that can drive the robot, by name.
        recorder: the recording, if there is one.
        granted: what the system granted to the loop; None with a stepped clock.
        state: last state of the robot; None resets it at the next motion.
    """

    def __init__(self, robot: Robot, gains: Gains, settings: SessionSettings):
        self.robot = robot
        self.settings = settings
        rate = 1 / robot.dt
        self.loop = settings.loop or LoopSettings(
            rate=rate, feed_forward_rate=min(rate, LoopSettings.feed_forward_rate)
        )
        self.drivers: dict[str, Driver] = {}
        self.recorder: Recorder | None = None
        self.granted: Granted | None = None
        self.state: JointState | None = None
        self._controller = TrackingController(gains)
        self._awake = ExitStack()

    @property
    def wall(self) -> bool:
        """Whether the session runs in real time."""
        return self.settings.clock == "wall"

    def add(self, name: str, feed_forward: FeedForward) -> Driver:
        """Add a model; one that is `Compiled` without weights gets a learner."""
        learner = None
        if isinstance(feed_forward, Compiled) and feed_forward.weights is None:
            learner = self._learner(feed_forward.blueprint)
        driver = Driver(feed_forward, learner)
        self.drivers[name] = driver
        return driver

    def _learner(self, blueprint: Blueprint) -> ProcessLearner | SteppedLearner:
        settings = self.settings
        task = Task(blueprint, self.robot.dt, settings.learner, settings.seed)
        if self.wall:
            return ProcessLearner(task, loop_core=settings.core, patient=settings.patient)
        return SteppedLearner(task, steps_per_second=settings.steps_per_second)

    def begin(self) -> None:
        """Ask for real-time priority, open the recording, and keep the cores awake."""
        settings = self.settings
        if self.wall:
            self.granted = raise_priority(core=settings.core)
        if settings.record is not None:
            joints = self.robot.joints
            layout = row_layout(joints.dof)
            content = RecordingFormat(joints, layout, self.robot.dt, settings.provenance)
            self.recorder = Recorder(settings.record, content, overwrite=True)
        if self.granted is not None:
            asleep = self._awake.enter_context(kept_awake())
            self.granted = replace(self.granted, problems=(*self.granted.problems, *asleep))

    def drive(
        self,
        driver: Driver,
        motions: Trajectory | Sequence[Trajectory],
        *,
        training: bool,
        recorded: bool = True,
        observers: Observers | None = None,
    ) -> LoopResult:
        """Follow motions from the current state; without `training` the model is frozen."""
        result = run_loop(
            Rig(
                self.robot,
                self._controller,
                driver.feed_forward,
                learner=driver.learner,
                recorder=self.recorder if recorded else None,
            ),
            motions,
            WallClock() if self.wall else SteppedClock(),
            settings=replace(self.loop, training=training),
            start=self.state,
            observers=observers,
        )
        self.state = result.state
        return result

    def close(self) -> None:
        """Complete the recording, then end the learners."""
        # Callbacks run in reverse order, even if one fails: the recording is completed first.
        with ExitStack() as ending:
            for driver in self.drivers.values():
                if driver.learner is not None:
                    ending.callback(driver.learner.close)
            if self.recorder is not None:
                ending.callback(self.recorder.close)
            ending.callback(self._awake.close)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class OnlineOutcome:
    """The outcome of `run`.

    Attributes:
        train: the run in which the model was learned.
        test: runs with the model frozen, by name.
        model: the learned model in use at the end; None if there is none.
        engine: what computed the learned torques; None if none were learned.
        granted: what the system granted to a loop by the wall clock.
        recording: the recording of the training run, if there is one.
    """

    train: LoopResult
    test: Mapping[str, LoopResult]
    model: Any
    engine: str | None = None
    granted: Granted | None = None
    recording: Path | None = None

    @property
    def results(self) -> tuple[LoopResult, ...]:
        """The training run and the tests, in order."""
        return (self.train, *self.test.values())

    @property
    def interrupted(self) -> bool:
        return any(result.ended != "finished" for result in self.results)

    @property
    def tracking(self) -> dict[str, Tracking]:
        """Tracking errors of the training run, of all tests together, and of each test."""
        tracking = {"train": self.train.tracking}
        if self.test:
            errors = [result.error for result in self.test.values()]
            tracking["test"] = Tracking.of(np.concatenate(errors))
        for name, result in self.test.items():
            tracking[name] = result.tracking
        return tracking

    @property
    def stats(self) -> LoopStats:
        """Counts and times of the training run."""
        return self.train.stats

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers of the outcome for JSON."""
        train = self.train.as_dict()
        tests = {name: result.as_dict() for name, result in self.test.items()}
        tracking = {name: finite(asdict(value)) for name, value in self.tracking.items()}
        tracking["train"] = train["tracking"]
        for name, numbers in tests.items():
            tracking[name] = numbers["tracking"]
        return {
            **train,
            "tracking": tracking,
            "test_loops": {name: numbers["loop"] for name, numbers in tests.items()},
            "engine": self.engine,
            "problems": [] if self.granted is None else list(self.granted.problems),
        }


def run(
    robot: Robot,
    motions: Trajectory | Sequence[Trajectory],
    model: str | InverseDynamics | Blueprint | FeedForward = "chain",
    *,
    test: Mapping[str, Sequence[Trajectory]] | None = None,
    gains: Gains | None = None,
    settings: SessionSettings | None = None,
    observers: Observers | None = None,
) -> OnlineOutcome:
    """Drive a robot along motions while a model of its dynamics is learned, then test the model.

    Args:
        robot: the robot, simulated or real.
        motions: reference motions, sampled at the control period of the robot.
        model: source of the feed-forward torque: "chain", "delan" or "feedforward" for a model
            learned from random weights, "none" for PD control alone, or a model that `delan.load`
            returns, which is used as it is.
        test: motions to follow afterwards with the model frozen, by name.
        gains: PD gains; None derives low gains from the joint limits.
        observers: progress callback, onlooker and stop event.
    """
    settings = settings or SessionSettings()
    observers = observers or Observers()
    gains = gains or gains_within(robot.limits, robot.joints)
    training = [motions] if isinstance(motions, Trajectory) else list(motions)
    if settings.seconds is not None and training:
        training = take_seconds(cycle(training), settings.seconds)
    tests = {}
    with Session(robot, gains, settings) as session:
        driver = session.add("model", make_feed_forward(model, robot.joints, settings))
        session.begin()
        train = session.drive(driver, training, training=True, observers=observers)
        for name, references in (test or {}).items():
            if observers.stop.is_set() or train.ended != "finished":
                break
            tests[name] = session.drive(
                driver, references, training=False, recorded=False, observers=observers
            )
    return OnlineOutcome(
        train=_with_losses(train, session.recorder),
        test=tests,
        model=driver.model,
        engine=driver.engine,
        granted=session.granted,
        recording=None if settings.record is None else Path(settings.record),
    )


def _with_losses(train: LoopResult, recorder: Recorder | None) -> LoopResult:
    """Return the result with what a closed recording lacks, which is known only after closing."""
    if recorder is None:
        return train
    stats = replace(train.stats, unrecorded=recorder.dropped, recording_problem=recorder.problem)
    return replace(train, stats=stats)


def make_feed_forward(
    model: str | InverseDynamics | Blueprint | FeedForward,
    joints: Joints,
    settings: SessionSettings,
) -> FeedForward:
    """Return the feed-forward torque of a model; see `run` for its possible values."""
    if isinstance(model, str):
        if model == "none":
            return NoFeedForward(joints)
        return Compiled(blueprint_of(model, joints, settings))
    if isinstance(model, Blueprint):
        return Compiled(model)
    return model if isinstance(model, FeedForward) else feed_forward_of(model)


def blueprint_of(model: str, joints: Joints, settings: SessionSettings) -> Blueprint:
    """Return the blueprint of a learned model, of a size that suits the number of joints."""
    if model not in LEARNED:
        raise SettingsError(f"unknown model {model!r}; known: none, {', '.join(LEARNED)}")
    if settings.friction is not None and model == "feedforward":
        raise SettingsError(
            "friction terms are learned with the model chain or delan, not with feedforward"
        )
    if model == "chain":
        return Blueprint(joints, LagrangianChainSettings(), settings.friction)
    small = joints.dof <= SMALL_DOF and settings.optimizer == "auto"
    network = LagrangianNetworkSettings() if model == "delan" else FeedForwardSettings()
    if small:
        network = replace(network, width=SMALL_WIDTH)
    return Blueprint.named(joints, network, settings.friction)


def take_seconds(motions: Iterable[Trajectory], seconds: float) -> list[Trajectory]:
    """Return the first motions that last for the given time, moves in between included."""
    chosen = []
    spent = 0.0
    for motion in motions:
        chosen.append(motion)
        spent += float(motion.t[-1]) + MOVE_SECONDS
        if spent >= seconds:
            break
    return chosen
