"""What takes the place of robots, learners, models and clocks where a test needs them to fail, or
to be predictable.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from delan.joints import Joints, JointState, JointTarget
from delan.models.chain import LagrangianChain, LagrangianChainSettings
from delan.models.friction import FrictionSettings
from delan.models.geometry import from_rigid_body
from delan.models.model import Blueprint, Model
from delan.models.rigid_body import RigidBody
from delan.online.clocks import SteppedClock
from delan.online.controller import Direct
from delan.online.loop import run_loop
from delan.online.recorder import Recorder, RecordingFormat
from delan.online.rig import Rig
from delan.online.stats import row_layout
from delan.robots.arms import TWO_LINK, letter_motion
from delan.robots.mujoco_robot import MujocoRobot
from delan.robots.robot import Robot, low_gains

Fault = Callable[[JointState], JointState]

TWO_LINK_BODY = RigidBody.from_urdf(TWO_LINK.urdf())
CHAIN = Blueprint(TWO_LINK_BODY.joints, LagrangianChainSettings())


def true_chain(mass: float = 1.0) -> LagrangianChain:
    """The two-link arm as a chain; with `mass` all of it so many times heavier."""
    exact = from_rigid_body(TWO_LINK_BODY)
    log_armature = jnp.full(2, np.log(1e-12))
    return eqx.tree_at(
        lambda item: (item.factor, item.log_armature),
        exact,
        (np.sqrt(mass) * exact.factor, log_armature),
    )


def chain_weights(mass: float = 1.0) -> np.ndarray:
    return CHAIN.pack(Model(true_chain(mass)))


def with_motors(terms: tuple, weights: Mapping[str, float]) -> tuple[Blueprint, np.ndarray]:
    """The two-link arm behind motors whose every weight of a column is as given, and zero if it is
    not.
    """
    blueprint = replace(CHAIN, friction=FrictionSettings(terms=terms))
    model: Any = blueprint.build(key=jax.random.key(0))
    columns = model.friction.settings.columns
    value = np.array([[weights.get(name, 0.0)] * 2 for name in columns])
    model = eqx.tree_at(
        lambda item: (item.mechanics, item.friction.weights.value),
        model,
        (true_chain(), jnp.asarray(value)),
    )
    return blueprint, blueprint.pack(model)


class Witness:
    """A robot that swears that no torque was ever out of bounds; what it tells may be spoilt,
    period by period.
    """

    def __init__(self, robot: Robot, faults: Mapping[int, Fault] | Fault | None = None):
        self.robot, self._faults = robot, faults or {}
        self.joints, self.limits, self.dt = robot.joints, robot.limits, robot.dt
        self.torques: list[np.ndarray] = []
        self.resets = 0

    def reset(self, q: np.ndarray | None = None, qd: np.ndarray | None = None) -> JointState:
        self.resets += 1
        return self.robot.reset(q, qd)

    def step(self, tau: np.ndarray) -> JointState:
        assert tau.shape == self.limits.torque.shape
        assert np.isfinite(tau).all()
        assert (np.abs(tau) <= self.limits.torque).all()
        self.torques.append(tau.copy())
        state = self.robot.step(tau)
        period = len(self.torques)
        fault = self._faults.get(period) if isinstance(self._faults, Mapping) else self._faults
        return state if fault is None else fault(state)


def no_numbers(state: JointState) -> JointState:
    return state._replace(q=np.full_like(state.q, np.nan))


def endless(state: JointState) -> JointState:
    return state._replace(qd=np.full_like(state.qd, np.inf))


def jumped(state: JointState) -> JointState:
    return state._replace(q=state.q + 2.0)


class StandInLearner:
    """Offers the weights it was given, each at its time, and writes down what it is told."""

    def __init__(self, blueprint: Blueprint, offers: Mapping[float, np.ndarray] | None = None):
        self.blueprint, self._offers = (
            blueprint,
            sorted((offers or {}).items(), key=lambda offer: offer[0]),
        )
        self.given: list[tuple[float, np.ndarray, np.ndarray, np.ndarray]] = []
        self.started = self.closed = self.watched = self.polled = 0
        self.lost, self.restarts, self.alive = 0, 0, True
        self.events: tuple[tuple[float, str], ...] = ()

    def start(self) -> None:
        self.started += 1

    def give(self, t: float, q: np.ndarray, qd: np.ndarray, tau: np.ndarray) -> None:
        self.given.append((t, q.copy(), qd.copy(), tau.copy()))

    def poll(self, t: float) -> np.ndarray | None:
        self.polled += 1
        if not (self.alive and self._offers and self._offers[0][0] <= t):
            return None
        return self._offers.pop(0)[1]

    def watch(self) -> None:
        self.watched += 1

    def close(self) -> None:
        self.closed += 1


class SlowFeedForward:
    """Gives a torque of ones times the number of its target, a number of questions after the first
    one.
    """

    def __init__(self, joints: Joints, patience: int = 0):
        self.joints, self._patience = joints, patience
        self.begun: list[JointTarget] = []
        self._asked = 0

    def prepare(self, q: np.ndarray) -> None:
        """Nothing to compile."""

    def begin(self, target: JointTarget) -> None:
        self.begun.append(target)
        self._asked = 0

    def ready(self, *, wait: bool = False) -> np.ndarray | None:
        self._asked += 1
        return (
            0.01 * len(self.begun) * np.ones(self.joints.dof)
            if self._asked > self._patience
            else None
        )


class StallingClock(SteppedClock):
    """A clock whose sleeper oversleeps at given times, by given times."""

    def __init__(self, stalls: Mapping[float, float]):
        super().__init__()
        self._stalls = dict(stalls)

    def sleep_until(self, t: float) -> None:
        late = sum(self._stalls.pop(at) for at in list(self._stalls) if at <= t)
        super().sleep_until(t + late)


def recorded_letter(folder: Path) -> Path:
    """A recording of one letter, led by the true model."""
    path = folder / "recording.run"
    robot = MujocoRobot.of(TWO_LINK, dt=2e-3)
    content = RecordingFormat(TWO_LINK.joints, row_layout(2), 2e-3)
    with Recorder(path, content, overwrite=True) as recorder:
        rig = Rig(robot, low_gains(TWO_LINK), Direct(TWO_LINK_BODY), recorder=recorder)
        run_loop(rig, letter_motion("c", dt=2e-3), SteppedClock())
    return path
