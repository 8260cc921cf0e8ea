"""An arm whose motors pull its links by cables: elastic, with friction at both ends, seen through motor encoders.

It stands in for a physical cable-driven arm. No rigid-body model is true of it, not even with friction added.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import SettingsError
from ..joints import JointState
from ..mechanics.friction import stribeck
from .barrett_wam import DRIVE_INERTIA
from .description import Arm
from .mujoco_robot import MujocoRobot
from .robot import Vector, physics_steps, safe_torque


@dataclass(frozen=True)
class CableSettings:
    """The drives, one number a joint, reflected to the joint; the defaults are those of a Barrett WAM's 7 joints.

    Inertias and encoder steps are published; stiffness and friction are of the size reported for such arms.

    Attributes:
        inertia: of motor and pulleys [kg m²].
        stiffness: of the cable when slack [N m/rad].
        stiffening: stretch at which the cable pulls twice as hard as a straight spring would [rad].
        damping: of the cable [N m s/rad].
        coulomb, static: dry friction in motion and at rest, motor and link together [N m].
        viscous: friction that grows with speed, motor and link together [N m s/rad].
        stribeck_speed: speed over which friction falls from static to Coulomb [rad/s].
        motor_share: the part of all friction that sits at the motor, before the cable.
        encoder_step: what the motor encoder can tell apart, at the joint [rad].
        velocity_cutoff: of the filter that makes velocities from encoder differences [Hz].
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
    encoder_step: tuple[float, ...] = (3.65e-5, 5.43e-5, 5.43e-5, 8.52e-5, 1.58e-4, 1.58e-4, 1.03e-4)
    velocity_cutoff: float = 30.0
    delay: int = 1

    def __post_init__(self) -> None:
        for name in ("inertia", "stiffness", "stiffening", "encoder_step"):
            if not all(0 < value < float("inf") for value in getattr(self, name)):
                raise SettingsError(f"{name} must be positive for every joint, got {getattr(self, name)}")
        if not (
            0 <= self.motor_share <= 1 and self.delay >= 0 and self.velocity_cutoff > 0 and self.stribeck_speed > 0
        ):
            raise SettingsError(
                "need 0 ≤ motor_share ≤ 1, delay ≥ 0, velocity_cutoff > 0 and stribeck_speed > 0, got "
                f"{self.motor_share}, {self.delay}, {self.velocity_cutoff} and {self.stribeck_speed}"
            )


class _Drive(NamedTuple):
    """The settings as arrays for the joints that the arm has."""

    inertia: Vector
    stiffness: Vector
    stiffening: Vector
    damping: Vector
    coulomb: Vector
    static: Vector
    viscous: Vector
    encoder_step: Vector


class CableDrivenRobot:
    """The arm's links in MuJoCo, its motors beside them, cables between; the state it tells is that of the encoders."""

    def __init__(
        self, arm: Arm, settings: CableSettings | None = None, *, dt: float = 2e-3, physics_dt: float = 2.5e-4
    ):
        settings = settings or CableSettings()
        n = arm.joints.dof
        short = [name for name in _Drive._fields if len(getattr(settings, name)) < n]
        if short:
            raise SettingsError(f"{short[0]} has {len(getattr(settings, short[0]))} entries; {arm.name} has {n} joints")
        self.settings = settings
        self._drive = _Drive(*(np.array(getattr(settings, name)[:n]) for name in _Drive._fields))
        self._steps, self._physics_dt = physics_steps(dt, physics_dt), physics_dt
        self._links = MujocoRobot.of(arm, dt=physics_dt, physics_dt=physics_dt)
        self._links.model.opt.integrator = 0  # semi-implicit Euler: the cable's pull is constant over a step
        self._links.model.dof_damping[:] = (1 - settings.motor_share) * self._drive.viscous
        self.joints, self.limits, self.dt = arm.joints, arm.limits, dt
        self.reset()

    def reset(self, q: Vector | None = None, qd: Vector | None = None) -> JointState:
        link = self._links.reset(q, qd)
        self._theta, self._omega = link.q.copy(), link.qd.copy()
        self._waiting = [np.zeros(self.joints.dof)] * self.settings.delay
        self._seen, self._speed, self._periods = self._encoder(), link.qd.copy(), 0
        return JointState(0.0, self._seen, self._speed)

    def step(self, tau: Vector) -> JointState:
        self._waiting.append(safe_torque(tau, self.limits, self.joints))
        tau = self._waiting.pop(0)
        for _ in range(self._steps):
            self._advance(tau)
        before, self._seen = self._seen, self._encoder()
        pass_through = 1 - np.exp(-2 * np.pi * self.settings.velocity_cutoff * self.dt)
        self._speed = self._speed + pass_through * ((self._seen - before) / self.dt - self._speed)
        self._periods += 1
        return JointState(self._periods * self.dt, self._seen, self._speed)

    @property
    def link_state(self) -> JointState:
        """Where the links really are, which no encoder tells."""
        data = self._links.data
        return JointState(float(data.time), data.qpos.copy(), data.qvel.copy())

    def _advance(self, tau: Vector) -> None:
        """One physics step: cable, then motor, then links."""
        drive, dt, link = self._drive, self._physics_dt, self._links.data
        stretch = self._theta - link.qpos
        pull = drive.stiffness * stretch * (1 + np.abs(stretch) / drive.stiffening)
        pull = pull + drive.damping * (self._omega - link.qvel)
        share = self.settings.motor_share
        dry = self._dry(self._omega)
        # Implicit in friction: it can stop the motor within a step, never turn it round.
        free = self._omega + dt * (tau - pull) / drive.inertia
        slowed = np.sign(free) * np.maximum(np.abs(free) - dt * share * dry / drive.inertia, 0)
        self._omega = slowed / (1 + dt * share * drive.viscous / drive.inertia)
        self._theta = self._theta + dt * self._omega
        self._links.model.dof_frictionloss[:] = (1 - share) * self._dry(link.qvel)
        self._links.push(pull)

    def _dry(self, speed: Vector) -> Float[np.ndarray, " dof"]:
        return stribeck(speed, self._drive.coulomb, self._drive.static, self.settings.stribeck_speed)

    def _encoder(self) -> Vector:
        return np.round(self._theta / self._drive.encoder_step) * self._drive.encoder_step
