"""A robot that learns its dynamics while it moves: the session behind command, page and library.

A session owns the controller, the models that can drive the robot, their learners and the
recording. `run` uses it for one model; the host of a page uses it for several.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import jax.numpy as jnp
import numpy as np

from ..errors import SettingsError
from ..joints import Joints, JointState, Trajectory
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import InverseDynamics
from ..models.friction import FrictionSettings
from ..models.model import Blueprint
from ..models.networks import FeedForwardSettings, LagrangianNetworkSettings
from ..robots.robot import Gains, gains_within
from ..robots.robot import Robot as Robot
from ..solvers.plan import SMALL_DOF, SMALL_WIDTH
from .clocks import SteppedClock, WallClock
from .controller import Compiled, FeedForward, NoFeedForward, feed_forward_of
from .learner import LearnerSettings
from .learner_process import ProcessLearner, SteppedLearner
from .learner_worker import Task
from .loop import LoopSettings, run_loop
from .process import Granted, kept_awake, raise_priority
from .recorder import Recorder, RecordingFormat
from .rig import Observers, Rig
from .stats import LoopResult, LoopStats, Tracking, finite, row_layout

# The models that can be learned online, by name.
LEARNED = {
    "feedforward": FeedForwardSettings,
    "delan": LagrangianNetworkSettings,
    "chain": LagrangianChainSettings,
}
MOVE_SECONDS = 1.0  # typical duration of the move from one motion to the next [s]


def require_known(settings: Any) -> None:
    """Raise if a field with a fixed list of values (a `Literal`) has another value."""
    for option in fields(settings):
        value = getattr(settings, option.name)
        known = get_args(option.type)
        if get_origin(option.type) is Literal and value not in known:
            raise SettingsError(f"unknown {option.name} {value!r}; known: {', '.join(known)}")


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
        require_known(self)
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise SettingsError(f"seconds must be positive and finite, got {self.seconds}")


class Session:
    """A robot under control, from the first motion to the last.

    Attributes:
        rigs: the robot with each model that can drive it, by name.
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
        self.rigs: dict[str, Rig] = {}
        self.recorder: Recorder | None = None
        self.granted: Granted | None = None
        self.state: JointState | None = None
        self._gains = gains
        self._awake = ExitStack()

    def add(self, name: str, feed_forward: FeedForward) -> Rig:
        """Add a model; one that is `Compiled` without weights gets a learner."""
        settings = self.settings
        rig = Rig(self.robot, self._gains, feed_forward)
        if rig.compiled is not None and rig.compiled.weights is None:
            blueprint = rig.compiled.blueprint
            task = Task(blueprint, self.robot.dt, settings.learner, settings.seed)
            if settings.clock == "wall":
                learner = ProcessLearner(task, loop_core=settings.core, patient=settings.patient)
            else:
                learner = SteppedLearner(task, steps_per_second=settings.steps_per_second)
            rig = replace(rig, learner=learner)
        self.rigs[name] = rig
        return rig

    def begin(self, warn: Callable[[str], None] | None = None) -> None:
        """Ask for real-time priority, open the recording, and keep the cores awake.

        `warn` gets what ends the recording early, at once and from another thread.
        """
        settings = self.settings
        # The thread of the recorder inherits the core of the loop, so priority comes first.
        if settings.clock == "wall":
            self.granted = raise_priority(core=settings.core)
        if settings.record is not None:
            joints = self.robot.joints
            layout = row_layout(joints.dof)
            content = RecordingFormat(joints, layout, self.robot.dt, settings.provenance)
            self.recorder = Recorder(settings.record, content, overwrite=True, warn=warn)
        if self.granted is not None:
            asleep = self._awake.enter_context(kept_awake())
            self.granted = replace(self.granted, problems=(*self.granted.problems, *asleep))

    def drive(
        self,
        rig: Rig,
        motions: Trajectory | Sequence[Trajectory],
        *,
        training: bool,
        recorded: bool = True,
        observers: Observers | None = None,
    ) -> LoopResult:
        """Follow motions from the current state; without `training` the model is frozen."""
        if recorded:
            rig = replace(rig, recorder=self.recorder)
        result = run_loop(
            rig,
            motions,
            WallClock() if self.settings.clock == "wall" else SteppedClock(),
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
            for rig in self.rigs.values():
                if rig.learner is not None:
                    ending.callback(rig.learner.close)
            if self.recorder is not None:
                ending.callback(self.recorder.close)
            ending.callback(self._awake.close)


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
        content = self.train.as_dict()
        tracking = {"train": content["tracking"]}
        if self.test:
            tracking["test"] = finite(asdict(self.tracking["test"]))
        loops = {}
        for name, result in self.test.items():
            numbers = result.as_dict()
            tracking[name] = numbers["tracking"]
            loops[name] = numbers["loop"]
        problems = []
        if self.granted is not None:
            problems += self.granted.problems
        return {
            **content,
            "tracking": tracking,
            "test_loops": loops,
            "engine": self.engine,
            "problems": problems,
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
    with closing(Session(robot, gains, settings)) as session:
        rig = session.add("model", make_feed_forward(model, robot.joints, settings))
        session.begin(observers.warn)
        train = session.drive(rig, training, training=True, observers=observers)
        for name, references in (test or {}).items():
            if observers.stop.is_set() or train.ended != "finished":
                break
            tests[name] = session.drive(
                rig, references, training=False, recorded=False, observers=observers
            )
    return _with_ending(OnlineOutcome(train, tests, None, granted=session.granted), session, rig)


def _with_ending(outcome: OnlineOutcome, session: Session, rig: Rig) -> OnlineOutcome:
    """Add what a closed session leaves: the model, and what its recording lacks."""
    compiled = rig.compiled
    if compiled is not None:
        outcome = replace(outcome, engine=compiled.engine)
        if rig.learner is not None and compiled.weights is not None:
            weights = jnp.asarray(np.asarray(compiled.weights))
            outcome = replace(outcome, model=compiled.blueprint.unpack(weights))
    if session.recorder is not None:
        # What a recording lacks is known only after it was closed.
        stats = replace(outcome.train.stats, **session.recorder.losses)
        train = replace(outcome.train, stats=stats)
        outcome = replace(outcome, train=train, recording=Path(session.recorder.path))
    return outcome


def make_feed_forward(
    model: str | InverseDynamics | Blueprint | FeedForward,
    joints: Joints,
    settings: SessionSettings,
) -> FeedForward:
    """Return the feed-forward torque of a model; see `run` for its possible values."""
    if isinstance(model, str):
        if model == "none":
            return NoFeedForward(joints)
        model = blueprint_of(model, joints, settings)
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
    network = LEARNED[model]()
    # A chain has no width.
    if model != "chain" and joints.dof <= SMALL_DOF and settings.optimizer == "auto":
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
