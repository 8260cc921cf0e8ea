"""An arm with elastic cable drives, friction on both sides of the cables and motor encoders.

It stands in for a physical cable-driven arm: no rigid-body model describes it exactly, not even
with friction added.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import SettingsError
from ..joints import JointState
from ..mechanics.friction_terms import stribeck
from .arms import DRIVE_INERTIA
from .description import Arm
from .mujoco_robot import MujocoRobot
from .robot import Vector, physics_steps, safe_torque


@dataclass(frozen=True)
class CableSettings:
    """Drive parameters per joint, reflected to the joint; the defaults describe a 7-joint WAM.

    Inertias and encoder resolutions are published; stiffness and friction have the size reported
    for such arms.

    Attributes:
        inertia: of motor and pulleys [kg m²].
        stiffness: of the slack cable [N m/rad].
        stiffening: stretch at which the stiffness has doubled [rad].
        damping: of the cable [N m s/rad].
        coulomb, static: dry friction in motion and at rest, motor and link together [N m].
        viscous: friction proportional to speed, motor and link together [N m s/rad].
        stribeck_speed: speed over which friction falls from static to Coulomb [rad/s].
        motor_share: fraction of the friction on the motor side of the cable.
        encoder_step: resolution of the motor encoder at the joint [rad].
        velocity_cutoff: of the low-pass filter over encoder differences [Hz].
        delay: control periods before a torque takes effect.
    """

    inertia: tuple[float, ...] = DRIVE_INERTIA
    stiffness: tuple[float, ...] = (4000.0, 4000.0, 1500.0, 1200.0, 80.0, 80.0, 15.0)
    stiffening: tuple[float, ...] = (0.01, 0.01, 0.01, 0.01, 0.03, 0.03, 0.05)
    damping: tuple[float, ...] = (3.0, 3.0, 1.0, 0.6, 0.05, 0.05, 0.007)
    coulomb: tuple[float, ...] = (2.0, 2.2, 1.2, 0.9, 0.2, 0.2, 0.04)
    static: tuple[float, ...] = (2.6, 2.9, 1.6, 1.2, 0.27, 0.27, 0.055)
    viscous: tuple[float, ...] = (0.6, 0.6, 0.25, 0.15, 0.02, 0.02, 0.003)
    stribeck_speed: float = 0.08
    motor_share: float = 0.7
    # fmt: off
    encoder_step: tuple[float, ...] = (
        3.65e-5, 5.43e-5, 5.43e-5, 8.52e-5, 1.58e-4, 1.58e-4, 1.03e-4,
    )
    # fmt: on
    velocity_cutoff: float = 30.0
    delay: int = 1

    def __post_init__(self) -> None:
        for name in ("inertia", "stiffness", "stiffening", "encoder_step"):
            values = getattr(self, name)
            if not all(0 < value < float("inf") for value in values):
                raise SettingsError(f"{name} must be positive for every joint, got {values}")
        if not (
            0 <= self.motor_share <= 1
            and self.delay >= 0
            and self.velocity_cutoff > 0
            and self.stribeck_speed > 0
        ):
            raise SettingsError(
                "need 0 ≤ motor_share ≤ 1, delay ≥ 0, velocity_cutoff > 0 and stribeck_speed > 0, "
                f"got {self.motor_share}, {self.delay}, {self.velocity_cutoff} and "
                f"{self.stribeck_speed}"
            )


class _Drive(NamedTuple):
    """The settings as arrays, cut to the joints of the arm."""

    inertia: Vector
    stiffness: Vector
    stiffening: Vector
    damping: Vector
    coulomb: Vector
    static: Vector
    viscous: Vector
    encoder_step: Vector


def _drive(settings: CableSettings, arm: Arm) -> _Drive:
    dof = arm.joints.dof
    columns = []
    for name in _Drive._fields:
        values = getattr(settings, name)
        if len(values) < dof:
            raise SettingsError(f"{name} has {len(values)} entries; {arm.name} has {dof} joints")
        columns.append(np.array(values[:dof]))
    return _Drive(*columns)


class CableDrivenRobot:
    """An arm whose links move in MuJoCo, pulled by motors over cables; encoders give its state."""

    def __init__(
        self,
        arm: Arm,
        settings: CableSettings | None = None,
        *,
        dt: float = 2e-3,
        physics_dt: float = 2.5e-4,
    ):
        self.settings = settings or CableSettings()
        self.joints = arm.joints
        self.limits = arm.limits
        self.dt = dt
        self._drive = _drive(self.settings, arm)
        self._steps = physics_steps(dt, physics_dt)
        self._physics_dt = physics_dt
        self._links = MujocoRobot.of(arm, dt=physics_dt, physics_dt=physics_dt)
        # Semi-implicit Euler suffices: the cable's pull is constant over a step.
        self._links.model.opt.integrator = 0
        self._links.model.dof_damping[:] = (1 - self.settings.motor_share) * self._drive.viscous
        self.reset()

    def reset(self, q: Vector | None = None, qd: Vector | None = None) -> JointState:
        link = self._links.reset(q, qd)
        self._theta = link.q.copy()
        self._omega = link.qd.copy()
        self._pending = [np.zeros(self.joints.dof)] * self.settings.delay
        self._measured_q = self._encoder()
        self._measured_qd = link.qd.copy()
        self._periods = 0
        return JointState(0.0, self._measured_q, self._measured_qd)

    def step(self, tau: Vector) -> JointState:
        self._pending.append(safe_torque(tau, self.limits, self.joints))
        delayed = self._pending.pop(0)
        for _ in range(self._steps):
            self._advance(delayed)
        previous = self._measured_q
        self._measured_q = self._encoder()
        # Exact discretisation of a first-order low-pass filter.
        gain = 1 - np.exp(-2 * np.pi * self.settings.velocity_cutoff * self.dt)
        difference = (self._measured_q - previous) / self.dt
        self._measured_qd = self._measured_qd + gain * (difference - self._measured_qd)
        self._periods += 1
        return JointState(self._periods * self.dt, self._measured_q, self._measured_qd)

    @property
    def link_state(self) -> JointState:
        """The true state of the links, which no encoder measures."""
        return self._links.state()

    def _advance(self, tau: Vector) -> None:
        """Advance cables, motors and links by one physics step."""
        drive = self._drive
        dt = self._physics_dt
        link = self._links.data
        stretch = self._theta - link.qpos
        pull = drive.stiffness * stretch * (1 + np.abs(stretch) / drive.stiffening)
        pull = pull + drive.damping * (self._omega - link.qvel)
        share = self.settings.motor_share
        dry = self._dry_friction(self._omega)
        # Implicit in friction, which can stop the motor within a step but never reverse it.
        free = self._omega + dt * (tau - pull) / drive.inertia
        slowed = np.sign(free) * np.maximum(np.abs(free) - dt * share * dry / drive.inertia, 0)
        self._omega = slowed / (1 + dt * share * drive.viscous / drive.inertia)
        self._theta = self._theta + dt * self._omega
        self._links.model.dof_frictionloss[:] = (1 - share) * self._dry_friction(link.qvel)
        self._links.push(pull)

    def _dry_friction(self, speed: Vector) -> Vector:
        drive = self._drive
        return stribeck(speed, drive.coulomb, drive.static, self.settings.stribeck_speed)

    def _encoder(self) -> Vector:
        return np.round(self._theta / self._drive.encoder_step) * self._drive.encoder_step
