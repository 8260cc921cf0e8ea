"""An arm with elastic cable drives, friction on both sides of the cables and motor encoders.

It stands in for a physical cable-driven arm: no rigid-body model describes it exactly, not even
with friction added. Two motors of a differential move two joints together, so that friction and
stretch of one motor act on both.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

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

    Drive inertias, encoder resolutions, differentials and the viscous friction of the motors are
    published by the maker (the motors of joints 1 to 4: 7.549e-5 N m/rpm behind ratios of 42,
    28.25, 28.25 and 18); stiffness and dry friction have the size reported for such arms. For the
    two joints of a differential, the numbers of the first one count: each motor has half of them.

    Attributes:
        differentials: pairs of joints (i, j) and ratio ρ: the motors move by qᵢ − qⱼ/ρ and
            −qᵢ − qⱼ/ρ.
        inertia: of motor and pulleys [kg m²].
        stiffness: of the slack cable [N m/rad].
        stiffening: stretch at which the stiffness has doubled [rad].
        damping: of the cable [N m s/rad].
        coulomb, static: dry friction in motion and at rest, motor and link together [N m].
        viscous: friction proportional to speed, of the motor [N m s/rad].
        stribeck_speed: speed over which friction falls from static to Coulomb [rad/s].
        motor_share: fraction of the dry friction on the motor side of the cable.
        encoder_step: resolution of the motor encoder behind its ratio [rad].
        velocity_cutoff: of the low-pass filter over encoder differences [Hz].
        delay: control periods before a torque takes effect.
    """

    differentials: tuple[tuple[int, int, float], ...] = ((1, 2, 1.68), (4, 5, 1.0))
    inertia: tuple[float, ...] = DRIVE_INERTIA
    stiffness: tuple[float, ...] = (4000.0, 4000.0, 1500.0, 1200.0, 80.0, 80.0, 15.0)
    stiffening: tuple[float, ...] = (0.01, 0.01, 0.01, 0.01, 0.03, 0.03, 0.05)
    damping: tuple[float, ...] = (3.0, 3.0, 1.0, 0.6, 0.05, 0.05, 0.007)
    coulomb: tuple[float, ...] = (2.0, 2.2, 1.2, 0.9, 0.2, 0.2, 0.04)
    static: tuple[float, ...] = (2.6, 2.9, 1.6, 1.2, 0.27, 0.27, 0.055)
    viscous: tuple[float, ...] = (1.27, 1.15, 0.407, 0.234, 0.016, 0.016, 0.0027)
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
    """The settings as arrays, a number for each motor of the arm.

    `motors` is the matrix of motor angles over joint angles, both behind the ratios.
    """

    motors: Float[np.ndarray, "motor joint"]
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
    pairs = [pair for pair in settings.differentials if max(pair[:2]) < dof]
    columns = {}
    for name in _Drive._fields[1:]:
        values = getattr(settings, name)
        if len(values) < dof:
            raise SettingsError(f"{name} has {len(values)} entries; {arm.name} has {dof} joints")
        columns[name] = np.array(values[:dof])
    motors = np.eye(dof)
    for first, second, ratio in pairs:
        motors[first, [first, second]] = 1.0, -1 / ratio
        motors[second, [first, second]] = -1.0, -1 / ratio
        for name in ("inertia", "stiffness", "damping", "coulomb", "static", "viscous"):
            columns[name][[first, second]] = columns[name][first] / 2
    return _Drive(motors, **columns)


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
        # A torque at the joints, as the motors must give it.
        self._to_motors = np.linalg.inv(self._drive.motors.T)
        self._to_joints = np.linalg.inv(self._drive.motors)
        self.reset()

    def reset(self, q: Vector | None = None, qd: Vector | None = None) -> JointState:
        link = self._links.reset(q, qd)
        self._theta = self._drive.motors @ link.q
        self._omega = self._drive.motors @ link.qd
        self._pending = [np.zeros(self.joints.dof)] * self.settings.delay
        self._measured_q = self._encoder()
        self._measured_qd = link.qd.copy()
        self._periods = 0
        return JointState(0.0, self._measured_q, self._measured_qd)

    def step(self, tau: Vector) -> JointState:
        self._pending.append(safe_torque(tau, self.limits, self.joints))
        delayed = self._to_motors @ self._pending.pop(0)
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
        """Advance cables, motors and links by one physics step; `tau` is that of the motors."""
        drive = self._drive
        dt = self._physics_dt
        link = self._links.data
        stretch = self._theta - drive.motors @ link.qpos
        pull = drive.stiffness * stretch * (1 + np.abs(stretch) / drive.stiffening)
        pull = pull + drive.damping * (self._omega - drive.motors @ link.qvel)
        share = self.settings.motor_share
        dry = stribeck(self._omega, drive.coulomb, drive.static, self.settings.stribeck_speed)
        # Implicit in friction, which can stop the motor within a step but never reverse it.
        free = self._omega + dt * (tau - pull) / drive.inertia
        slowed = np.sign(free) * np.maximum(np.abs(free) - dt * share * dry / drive.inertia, 0)
        self._omega = slowed / (1 + dt * drive.viscous / drive.inertia)
        self._theta = self._theta + dt * self._omega
        # The bearings of the links are those of joints, not of motors.
        dof = self.joints.dof
        dry = stribeck(
            link.qvel,
            np.array(self.settings.coulomb[:dof]),
            np.array(self.settings.static[:dof]),
            self.settings.stribeck_speed,
        )
        self._links.model.dof_frictionloss[:] = (1 - share) * dry
        self._links.push(drive.motors.T @ pull)

    def _encoder(self) -> Vector:
        step = self._drive.encoder_step
        return self._to_joints @ (np.round(self._theta / step) * step)
