"""The paper's main experiment: a robot that starts with random weights, moves, and learns its dynamics on the way."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import jax
import numpy as np

from ..control import TrackingController
from ..data.cosines import cosines
from ..data.letters import LETTERS
from ..errors import SettingsError
from ..joints import Dataset, JointState, Trajectory
from ..learning.identify import IdentifySettings, identify
from ..learning.online import OnlineSettings
from ..learning.planning import SMALL_DOF, SMALL_WIDTH
from ..models.actuator import ActuatorSettings
from ..models.blueprint import Blueprint
from ..models.chain import LagrangianChainSettings
from ..models.feed_forward import FeedForwardSettings
from ..models.network import LagrangianNetworkSettings
from ..models.rigid_body import RigidBody
from ..realtime.clocks import SteppedClock, WallClock
from ..realtime.feed_forward import Compiled, Direct, FeedForward, Gravity, NoFeedForward
from ..realtime.learner import ProcessLearner, SteppedLearner, Task
from ..realtime.live import Onlooker
from ..realtime.log import row_layout
from ..realtime.loop import LoopSettings, run_loop
from ..realtime.priority import Granted, kept_awake, raise_priority
from ..realtime.recorder import Recorder
from ..realtime.stats import LoopResult, Progress, Tracking, finite
from ..robots.arms import arm_named
from ..robots.barrett_wam import WAM4_ANALYTIC, WAM7_ANALYTIC
from ..robots.cable_drive import CableDrivenRobot
from ..robots.description import Arm
from ..robots.gains import low_gains
from ..robots.mujoco_robot import MujocoRobot
from ..robots.robot import Robot
from ..robots.two_link import letter_motion

FeedForwardName = Literal["none", "gravity", "analytic", "true", "identified", "feedforward", "delan", "chain"]
LEARNED = ("feedforward", "delan", "chain")
ANALYTIC = {"wam4": WAM4_ANALYTIC, "wam7": WAM7_ANALYTIC}
"""What an engineer believes of an arm, where that is not the truth."""
LOOP_CORE = 0


@dataclass(frozen=True)
class OnlineRun:
    """What to run.

    Attributes:
        robot, engine: the arm, and what simulates it.
        feed_forward: whose torque is added to PD control: nobody's, gravity alone, the believed arm's (`analytic`; for
            the WAM a published set of numbers that is not quite its own), the simulated arm's own (`true`), that of an
            arm identified on an earlier run, or a model that is learned on the way.
        reference: `letters` (two-link arm) or `cosines`; speed: so many times faster than usual.
        letters, test: what is written while learning, over and over, and what is written after that with the model
            frozen; for cosines, `test_speeds` of motions never seen.
        seconds: how long it learns; at least one motion is made.
        clock: `wall` holds the simulation to real time, with the learner in a process of its own; `stepped` runs as
            fast as it can, with so many steps of learning for each second.
        motions: how many different cosine motions there are to learn on, over and over; 0: always new ones.
        test_on: cosines to be tested on: motions never seen, or those learned on.
        drive: `rigid`, or `cable`: the links pulled by elastic cables, with friction, seen through motor encoders.
        friction: the terms of friction that a learned model has beside its rigid part.
        optimizer: `auto` learns a network of up to 3 joints by Levenberg–Marquardt; `adam` a wider one by Adam alone.
        payload: at (time [s], share) the last link becomes heavier by that share; MuJoCo alone.
    """

    robot: str = "two-link"
    engine: Literal["mujoco", "pybullet"] = "mujoco"
    feed_forward: FeedForwardName = "delan"
    reference: Literal["letters", "cosines"] = "letters"
    letters: str = "adegmnru"
    test: str = ""
    speed: float = 1.0
    test_speeds: tuple[float, ...] = ()
    motions: int = 0
    test_on: Literal["unseen", "seen"] = "unseen"
    drive: Literal["rigid", "cable"] = "rigid"
    friction: ActuatorSettings | None = None
    optimizer: Literal["auto", "adam"] = "auto"
    seconds: float = 30.0
    clock: Literal["wall", "stepped"] = "wall"
    seed: int = 0
    payload: tuple[float, float] | None = None
    steps_per_second: float = 20.0
    loop: LoopSettings = field(default_factory=LoopSettings)
    online: OnlineSettings = field(default_factory=OnlineSettings)

    def __post_init__(self) -> None:
        for one in fields(self):
            known, given = get_args(one.type), getattr(self, one.name)
            if get_origin(one.type) is Literal and given not in known:
                raise SettingsError(f"there is no {one.name} {given!r}; there are {', '.join(known)}")
        arm_named(self.robot)  # refuses a name that it does not know
        unknown = sorted(set(self.letters + self.test) - set(LETTERS))
        if unknown:
            raise SettingsError(f"there is no letter {unknown[0]!r} to write; there are {', '.join(LETTERS)}")
        if self.reference == "letters" and self.robot != "two-link":
            raise SettingsError(f"letters are written by the two-link arm, not by {self.robot}; use cosines for it")
        if self.reference == "letters" and not self.letters:
            raise SettingsError("there is nothing to write; name at least one letter")
        if not (0 < self.seconds < float("inf") and 0 < self.speed < float("inf")):
            raise SettingsError(f"seconds and speed must be positive and finite, got {self.seconds} and {self.speed}")
        if self.payload is not None and (self.engine, self.drive) != ("mujoco", "rigid"):
            raise SettingsError(
                f"a payload can be changed on a rigid drive in MuJoCo, not on a {self.drive} drive in {self.engine}"
            )
        if self.drive == "cable" and (self.engine != "mujoco" or self.robot == "two-link"):
            raise SettingsError(f"cables drive a WAM in MuJoCo, not {self.robot} in {self.engine}")
        if self.friction is not None and self.feed_forward not in ("delan", "chain"):
            raise SettingsError(f"friction is learned beside delan or chain, not beside {self.feed_forward}")
        if self.optimizer == "adam" and self.feed_forward == "chain":
            raise SettingsError("a chain is learned by Levenberg–Marquardt; leave the optimizer to auto")
        if self.motions < 0 or (self.test_on == "seen" and self.motions == 0):
            raise SettingsError(f"testing on motions that were seen needs motions ≥ 1, got {self.motions}")

    @property
    def arm(self) -> Arm:
        return arm_named(self.robot)


@dataclass(frozen=True, eq=False)
class OnlineOutcome:
    """What came of it: the run that learned, the runs after it with the model frozen, and the learned model, if any.

    `granted` tells what the system allowed to a loop by the wall clock, `engine` who computed a learned torque.
    """

    settings: OnlineRun
    train: LoopResult
    test: dict[str, LoopResult]
    model: Any
    granted: Granted | None
    engine: str | None = None

    @property
    def interrupted(self) -> bool:
        return any(one.ended != "finished" for one in (self.train, *self.test.values()))

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        train = self.train.as_dict()
        tracking = {"train": train["tracking"]}
        tests = {name: one.as_dict() for name, one in self.test.items()}
        if tests:
            whole = np.concatenate([one.error for one in self.test.values()])
            tracking["test"] = asdict(Tracking.of(whole))  # over all speeds; letters have but one
            tracking |= {name: one["tracking"] for name, one in tests.items()}
        return {
            **train,
            "tracking": finite(tracking),
            "test_loops": {name: one["loop"] for name, one in tests.items()},
            "engine": self.engine,
            "problems": [] if self.granted is None else list(self.granted.problems),
        }


def run_online(
    settings: OnlineRun,
    *,
    record: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    onlooker: Onlooker | None = None,
) -> OnlineOutcome:
    """Run the robot while it learns, then with the model frozen."""
    robot, wall = _robot(settings), settings.clock == "wall"
    stop = stop or threading.Event()
    feed_forward = build_feed_forward(settings)
    learner = _learner(settings, feed_forward, robot.dt)
    controller, recorder = TrackingController(low_gains(settings.arm)), None

    def lead(motions: Sequence[Trajectory], start: JointState | None, *, training: bool) -> LoopResult:
        return run_loop(
            robot,
            motions,
            controller,
            feed_forward,
            WallClock() if wall else SteppedClock(),
            learner=learner if training else None,
            recorder=recorder if training else None,
            settings=replace(settings.loop, training=training),
            start=start,
            progress=progress,
            stop=stop,
            onlooker=onlooker,
        )

    with ExitStack() as ending:  # in reverse: whatever becomes of the learner, the recording is whole by then
        if learner is not None:
            ending.callback(learner.close)
        granted = raise_priority(core=LOOP_CORE) if wall else None
        if record is not None:
            recorder = ending.enter_context(_recorder(settings, record, robot))
        if granted is not None:
            granted = replace(granted, problems=(*granted.problems, *ending.enter_context(kept_awake())))
        train = lead(training_motions(settings), None, training=True)
        tests, state = {}, train.state
        for name, motions in unseen_motions(settings).items():
            if stop.is_set() or train.ended != "finished":
                break
            tests[name] = lead(motions, state, training=False)
            state = tests[name].state
    if recorder is not None:  # what failed in the last rows is known only now
        stats = replace(train.stats, unrecorded=recorder.dropped, recording_problem=recorder.problem)
        train = replace(train, stats=stats)
    engine = feed_forward.engine if isinstance(feed_forward, Compiled) else None
    return OnlineOutcome(settings, train, tests, _model(feed_forward, learner), granted, engine)


def _recorder(settings: OnlineRun, path: Path, robot: Robot) -> Recorder:
    layout = row_layout(robot.joints.dof)
    provenance = {"robot": settings.robot, "feed_forward": settings.feed_forward}
    return Recorder(path, robot.joints, layout, dt=robot.dt, overwrite=True, provenance=provenance)


def training_motions(settings: OnlineRun) -> list[Trajectory]:
    """Motions to learn from, in random order, until the time is used up."""
    rng, dt, motions, spent = np.random.default_rng(settings.seed), 1 / settings.loop.rate, [], 0.0
    while spent < settings.seconds:
        if settings.reference == "letters":
            batch = [
                letter_motion(letter, speed=0.45 * settings.speed, dt=dt)
                for letter in rng.permutation(list(settings.letters))
            ]
        else:
            number = len(motions) % settings.motions if settings.motions else len(motions)
            batch = [_cosines(settings, number, settings.speed)]
        for motion in batch:
            if spent < settings.seconds:
                motions.append(motion)
                spent += float(motion.t[-1]) + 1.0  # about a second to go from one to the next
    return motions


def unseen_motions(settings: OnlineRun) -> dict[str, list[Trajectory]]:
    """Motions to be tested on, by name."""
    dt = 1 / settings.loop.rate
    if settings.reference == "letters":
        written = [letter_motion(letter, speed=0.45 * settings.speed, dt=dt) for letter in settings.test]
        return {"test": written} if written else {}
    numbers = range(settings.motions) if settings.test_on == "seen" else range(1000, 1002)
    return {f"{speed:g}x": [_cosines(settings, number, speed) for number in numbers] for speed in settings.test_speeds}


def _cosines(settings: OnlineRun, number: int, speed: float) -> Trajectory:
    key = jax.random.fold_in(jax.random.key(settings.seed), number)
    motion = cosines(settings.arm.limits, key=key, share=0.4).at_speed(speed)
    return motion.sample(1 / settings.loop.rate)


def _robot(settings: OnlineRun) -> Robot:
    dt = 1 / settings.loop.rate
    if settings.engine == "pybullet":
        from ..robots.pybullet_robot import PybulletRobot  # noqa: PLC0415 (it prints a line when it is imported)

        return PybulletRobot(settings.arm, dt=dt)
    if settings.drive == "cable":
        return CableDrivenRobot(settings.arm, dt=dt)
    robot = MujocoRobot.of(settings.arm, dt=dt)
    return robot if settings.payload is None else LoadedRobot(robot, *settings.payload)


class LoadedRobot:
    """A robot in MuJoCo whose last link becomes heavier while it runs."""

    def __init__(self, robot: MujocoRobot, at: float, share: float):
        """From the time `at` [s] on, mass and inertia of the last link are 1 + share times what they were."""
        self._robot, self._at, self._factor, self._clean = robot, at, 1 + share, True
        self.joints, self.limits, self.dt = robot.joints, robot.limits, robot.dt

    def reset(self, q: Any = None, qd: Any = None) -> JointState:
        return self._robot.reset(q, qd)

    def step(self, tau: Any) -> JointState:
        state = self._robot.step(tau)
        if self._clean and state.t >= self._at:
            self._robot.model.body_mass[-1] *= self._factor
            self._robot.model.body_inertia[-1] *= self._factor
            self._clean = False
        return state


def blueprint_of(settings: OnlineRun) -> Blueprint:
    """The model that is learned, at the size that suits the number of joints."""
    joints = settings.arm.joints
    small = {"width": SMALL_WIDTH} if joints.dof <= SMALL_DOF and settings.optimizer == "auto" else {}
    networks = {"delan": LagrangianNetworkSettings, "feedforward": FeedForwardSettings}
    if settings.feed_forward == "chain":
        return Blueprint(joints, LagrangianChainSettings(), settings.friction)
    return Blueprint(joints, networks[settings.feed_forward](**small), settings.friction)


def build_feed_forward(settings: OnlineRun) -> FeedForward:
    """Whose torque joins the PD control."""
    arm, name = settings.arm, settings.feed_forward
    believed = ANALYTIC.get(settings.robot, arm)
    if name == "none":
        return NoFeedForward(arm.joints)
    if name in LEARNED:
        return Compiled(blueprint_of(settings))
    if name == "identified":
        return Direct(_identified(settings, believed))
    whole = Direct(RigidBody.from_urdf((arm if name == "true" else believed).urdf()))
    return Gravity(whole) if name == "gravity" else whole


def _learner(settings: OnlineRun, feed_forward: FeedForward, dt: float) -> ProcessLearner | SteppedLearner | None:
    if not isinstance(feed_forward, Compiled):
        return None
    task = Task(feed_forward.blueprint, dt, settings.online, settings.seed)
    if settings.clock == "stepped":
        return SteppedLearner(task, steps_per_second=settings.steps_per_second)
    return ProcessLearner(task, loop_core=LOOP_CORE)


def _identified(settings: OnlineRun, believed: Arm) -> RigidBody:
    """The arm identified from a run of its own, before, led by the model that is believed in."""
    before = replace(
        settings,
        feed_forward="analytic",
        clock="stepped",
        seconds=20.0,
        test="",
        test_speeds=(),
        payload=None,
        friction=None,
        seed=settings.seed + 500,
    )
    run = run_online(before).train
    dataset = Dataset(
        t=run.t[:-1],
        q=(run.q[1:] + run.q[:-1]) / 2,
        qd=(run.qd[1:] + run.qd[:-1]) / 2,
        qdd=np.diff(run.qd, axis=0) * settings.loop.rate,
        tau=run.tau[:-1],
        trajectory=np.zeros(len(run.t) - 1, dtype=int),
        joints=settings.arm.joints,
        source="a run before",
    )
    return identify(dataset, believed.urdf(), IdentifySettings(friction=(), armature=False)).model


def _model(feed_forward: FeedForward, learner: Any) -> Any:
    """The learned model that was in use at the end; None if none was."""
    if learner is None or not isinstance(feed_forward, Compiled) or feed_forward.weights is None:
        return None
    return feed_forward.blueprint.unpack(jax.numpy.asarray(np.asarray(feed_forward.weights)))
