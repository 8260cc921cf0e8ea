"""Online learning on the package's own robots, by name: their motions and models for `run`."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from ..errors import SettingsError
from ..identification.identify import IdentifySettings, identify
from ..joints import Dataset, JointState, Trajectory
from ..models.friction import FrictionSettings
from ..models.rigid_body import RigidBody
from ..motions.cosines import cosines as cosines
from ..motions.letters import LETTERS
from ..robots import arm_named
from ..robots.arms import WAM4_ANALYTIC, WAM7_ANALYTIC, letter_motion
from ..robots.cable_drive import CableDrivenRobot
from ..robots.description import Arm
from ..robots.mujoco_robot import MujocoRobot
from ..robots.robot import Robot, low_gains, safe_torque
from .controller import Direct, FeedForward
from .learner import LearnerSettings
from .loop import LoopSettings
from .rig import Observers
from .session import (
    OnlineOutcome,
    SessionSettings,
    make_feed_forward,
    require_known,
    run,
    take_seconds,
)

ModelName = Literal[
    "none", "gravity", "analytic", "true", "identified", "feedforward", "delan", "chain"
]
# Published parameters of the WAM differ from those of the simulated arm; for the two-link arm the
# analytic model is exact.
ANALYTIC = {"wam4": WAM4_ANALYTIC, "wam7": WAM7_ANALYTIC}
PEN_SPEED = 0.45  # mean speed of the pen at the usual speed [m/s]
# Cosines use this fraction of a joint's range and speed: they stay inside the limits at 2× speed.
COSINE_SHARE = 0.4
UNSEEN = range(1000, 1002)  # numbers of the cosine motions that are never trained on
KICK_SECONDS = 0.1  # duration of a kick [s]
KICK_SHARE = 0.25  # its torque, as a fraction of each joint's limit


@dataclass(frozen=True)
class OnlineRun:
    """A run of one of the package's robots.

    Attributes:
        robot, engine: name of the arm, and its simulator.
        model: source of the feed-forward torque: `none` for PD control alone, `gravity` only,
            `analytic` (what an engineer would use; for the WAM, published parameters that are not
            quite its own), `true` (the simulated parameters), `identified` from an earlier run, or
            `feedforward`, `delan` or `chain`, learned during the run.
        reference: `letters` (two-link arm only) or `cosines`.
        letters, test: letters to learn on, repeatedly, and letters to test the frozen model on.
        speed, test_speeds: factor on the usual speed; factors for the test on cosines.
        motions: number of different cosine motions to learn on; 0 for new ones each time.
        test_on: whether to test on `unseen` cosine motions or on those `seen` in training.
        drive: `rigid`, or `cable`: elastic cables with friction, measured by motor encoders.
        seconds: how long to learn [s]; at least one motion is followed.
        payload: (time [s], fraction) at which the last link becomes heavier; rigid MuJoCo only.
        friction, optimizer, clock, seed, steps_per_second, loop, learner: see `SessionSettings`.
    """

    robot: str = "two-link"
    engine: Literal["mujoco", "pybullet"] = "mujoco"
    model: ModelName = "delan"
    reference: Literal["letters", "cosines"] = "letters"
    letters: str = "adegmnru"
    test: str = ""
    speed: float = 1.0
    test_speeds: tuple[float, ...] = ()
    motions: int = 0
    test_on: Literal["unseen", "seen"] = "unseen"
    drive: Literal["rigid", "cable"] = "rigid"
    friction: FrictionSettings | None = None
    optimizer: Literal["auto", "adam"] = "auto"
    seconds: float = 30.0
    clock: Literal["wall", "stepped"] = "wall"
    seed: int = 0
    payload: tuple[float, float] | None = None
    steps_per_second: float = 20.0
    loop: LoopSettings = field(default_factory=LoopSettings)
    learner: LearnerSettings = field(default_factory=LearnerSettings)

    def __post_init__(self) -> None:
        require_known(self)
        arm_named(self.robot)  # raises if the name is unknown
        if not (0 < self.seconds < float("inf") and 0 < self.speed < float("inf")):
            raise SettingsError(
                f"seconds and speed must be positive and finite, "
                f"got {self.seconds} and {self.speed}"
            )
        self._require_motions()
        self._require_robot()
        if self.friction is not None and self.model not in ("delan", "chain"):
            raise SettingsError(
                f"friction is learned with the model delan or chain, not with {self.model}"
            )
        if self.optimizer == "adam" and self.model == "chain":
            raise SettingsError(
                "a chain is learned by Levenberg–Marquardt; leave the optimizer at auto"
            )

    def _require_motions(self) -> None:
        unknown = sorted(set(self.letters + self.test) - set(LETTERS))
        if unknown:
            raise SettingsError(f"unknown letter {unknown[0]!r}; known: {', '.join(LETTERS)}")
        if self.reference == "letters" and self.robot != "two-link":
            raise SettingsError(
                f"letters are written by the two-link arm only; use cosines for {self.robot}"
            )
        if self.reference == "letters" and not self.letters:
            raise SettingsError("no letters to write; give at least one")
        if self.motions < 0 or (self.test_on == "seen" and self.motions == 0):
            raise SettingsError(f"testing on seen motions needs motions ≥ 1, got {self.motions}")

    def _require_robot(self) -> None:
        if self.payload is not None and (self.engine, self.drive) != ("mujoco", "rigid"):
            raise SettingsError(
                "a payload needs a rigid drive in MuJoCo, "
                f"got a {self.drive} drive in {self.engine}"
            )
        if self.drive == "cable" and (self.engine != "mujoco" or self.robot == "two-link"):
            raise SettingsError(
                f"a cable drive needs a WAM in MuJoCo, got {self.robot} in {self.engine}"
            )

    @property
    def arm(self) -> Arm:
        return arm_named(self.robot)

    @property
    def session(self) -> SessionSettings:
        """The settings of the session."""
        return SessionSettings(
            clock=self.clock,
            friction=self.friction,
            optimizer=self.optimizer,
            seed=self.seed,
            steps_per_second=self.steps_per_second,
            provenance={"robot": self.robot, "feed_forward": self.model},
            loop=self.loop,
            learner=self.learner,
        )


def run_online(
    settings: OnlineRun, *, record: Path | None = None, observers: Observers | None = None
) -> OnlineOutcome:
    """Run a robot of the package while it learns, then with the model frozen."""
    return run(
        make_robot(settings),
        training_motions(settings),
        feed_forward_for(settings),
        test=evaluation_motions(settings),
        gains=low_gains(settings.arm),
        settings=replace(settings.session, record=record),
        observers=observers,
    )


def training_motions(settings: OnlineRun) -> list[Trajectory]:
    """Return motions to learn on, for the given time."""
    return take_seconds(_endless_motions(settings), settings.seconds)


def _endless_motions(settings: OnlineRun) -> Iterator[Trajectory]:
    """Yield letters in random order, or cosine motions."""
    if settings.reference == "letters":
        rng = np.random.default_rng(settings.seed)
        while True:
            for letter in rng.permutation(list(settings.letters)):
                yield _letter(settings, letter)
    for number in count():
        again = number % settings.motions if settings.motions else number
        yield _cosines(settings, again, settings.speed)


def evaluation_motions(settings: OnlineRun) -> dict[str, list[Trajectory]]:
    """Return motions to test on, by name."""
    if settings.reference == "letters":
        motions = [_letter(settings, letter) for letter in settings.test]
        return {"test": motions} if motions else {}
    numbers = range(settings.motions) if settings.test_on == "seen" else UNSEEN
    motions = {}
    for speed in settings.test_speeds:
        motions[f"{speed:g}x"] = [_cosines(settings, number, speed) for number in numbers]
    return motions


def _letter(settings: OnlineRun, letter: str) -> Trajectory:
    return letter_motion(letter, speed=PEN_SPEED * settings.speed, dt=1 / settings.loop.rate)


def _cosines(settings: OnlineRun, number: int, speed: float) -> Trajectory:
    key = jax.random.fold_in(jax.random.key(settings.seed), number)
    motion = cosines(settings.arm.limits, key=key, share=COSINE_SHARE).at_speed(speed)
    return motion.sample(1 / settings.loop.rate)


def make_robot(settings: OnlineRun) -> Robot:
    """Return the simulated robot of a run."""
    dt = 1 / settings.loop.rate
    if settings.engine == "pybullet":
        # Imported here because PyBullet prints a line when it is imported.
        from ..robots.pybullet_robot import PybulletRobot  # noqa: PLC0415

        return PybulletRobot(settings.arm, dt=dt)
    if settings.drive == "cable":
        return CableDrivenRobot(settings.arm, dt=dt)
    robot = MujocoRobot.of(settings.arm, dt=dt)
    return robot if settings.payload is None else DisturbedRobot(robot, settings.payload)


class DisturbedRobot:
    """A MuJoCo robot whose last link can be made heavier, and that can be kicked, while it runs."""

    def __init__(self, robot: MujocoRobot, payload: tuple[float, float] | None = None):
        """With `payload`, from its time [s] on the last link is heavier by its fraction."""
        self._robot = robot
        self._payload = payload
        self.joints = robot.joints
        self.limits = robot.limits
        self.dt = robot.dt
        self._mass = robot.model.body_mass[-1].copy()
        self._inertia = robot.model.body_inertia[-1].copy()
        torque = robot.limits.torque
        self._push = KICK_SHARE * np.where(np.isfinite(torque), torque, 1.0)
        self._kicked = 0  # remaining periods of a kick

    def reset(self, q: Any = None, qd: Any = None) -> JointState:
        return self._robot.reset(q, qd)

    def load(self, share: float) -> None:
        """Set mass and inertia of the last link to 1 + share times the original values."""
        self._robot.model.body_mass[-1] = self._mass * (1 + share)
        self._robot.model.body_inertia[-1] = self._inertia * (1 + share)

    def kick(self) -> None:
        """Push all joints for a moment."""
        self._kicked = round(KICK_SECONDS / self.dt)

    def step(self, tau: Any) -> JointState:
        if self._kicked:
            self._kicked -= 1
            self._robot.push(safe_torque(tau, self.limits, self.joints) + self._push)
            return self._robot.state()
        state = self._robot.step(tau)
        if self._payload is not None and state.t >= self._payload[0]:
            self.load(self._payload[1])
            self._payload = None
        return state


def feed_forward_for(settings: OnlineRun) -> FeedForward:
    """Return the feed-forward torque of a run."""
    arm = settings.arm
    believed = ANALYTIC.get(settings.robot, arm)
    if settings.model == "true":
        return Direct(RigidBody.from_urdf(arm.urdf()))
    if settings.model == "analytic":
        return Direct(RigidBody.from_urdf(believed.urdf()))
    if settings.model == "gravity":
        return Direct(RigidBody.from_urdf(believed.urdf()), at_rest=True)
    if settings.model == "identified":
        return Direct(_identified(settings, believed))
    return make_feed_forward(settings.model, arm.joints, settings.session)


def _identified(settings: OnlineRun, believed: Arm) -> RigidBody:
    """Return the arm identified from an earlier run with the analytic model."""
    earlier = replace(
        settings,
        model="analytic",
        clock="stepped",
        seconds=20.0,
        test="",
        test_speeds=(),
        payload=None,
        friction=None,
        seed=settings.seed + 500,  # other motions than those of the run itself
    )
    log = run_online(earlier).train
    dataset = Dataset(
        t=log.t[:-1],
        q=(log.q[1:] + log.q[:-1]) / 2,
        qd=(log.qd[1:] + log.qd[:-1]) / 2,
        qdd=np.diff(log.qd, axis=0) * settings.loop.rate,
        tau=log.tau[:-1],
        trajectory=np.zeros(len(log.t) - 1, dtype=int),
        joints=settings.arm.joints,
        source="an earlier run",
    )
    return identify(dataset, believed.urdf(), IdentifySettings(friction=(), armature=False)).model
