"""A robot in PyBullet, the engine of the paper; needs the extra `pybullet`."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RobotError, installing
from ..joints import JointState
from .description import GRAVITY_ACCELERATION, Arm
from .robot import Vector, physics_steps, safe_torque

try:
    import pybullet as _pybullet
except ImportError:
    _pybullet = None
pybullet: Any = _pybullet


class PybulletRobot:
    """An arm simulated by PyBullet, each robot in a world of its own, without damping, friction or noise."""

    def __init__(self, arm: Arm, *, dt: float = 2e-3, physics_dt: float = 1e-4):
        if pybullet is None:
            raise RobotError(f"PyBullet is not installed; {installing('pybullet')}")
        self._steps = physics_steps(dt, physics_dt)
        self.joints, self.limits, self.dt = arm.joints, arm.limits, dt
        self._time = 0.0
        self._world = pybullet.connect(pybullet.DIRECT)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{arm.name}.urdf"
            path.write_text(arm.urdf(for_bullet=True))
            flags = pybullet.URDF_USE_INERTIA_FROM_FILE
            self._body = pybullet.loadURDF(str(path), useFixedBase=True, flags=flags, physicsClientId=self._world)
        self._all = list(range(arm.joints.dof))
        pybullet.setGravity(0, 0, -GRAVITY_ACCELERATION, physicsClientId=self._world)
        pybullet.setTimeStep(physics_dt, physicsClientId=self._world)
        for joint in self._all:
            quiet = {"linearDamping": 0, "angularDamping": 0, "jointDamping": 0}
            speed = {"maxJointVelocity": 1e6}
            pybullet.changeDynamics(self._body, joint, **quiet, **speed, physicsClientId=self._world)
        self._release_motors()

    def reset(self, q: Vector | None = None, qd: Vector | None = None) -> JointState:
        home = np.clip(np.zeros(self.joints.dof), self.limits.lower, self.limits.upper)
        self._place(home if q is None else q, np.zeros(self.joints.dof) if qd is None else qd)
        self._release_motors()
        self._time = 0.0
        return self._state()

    def step(self, tau: Vector) -> JointState:
        tau = safe_torque(tau, self.limits, self.joints)
        for _ in range(self._steps):
            mode = pybullet.TORQUE_CONTROL
            pybullet.setJointMotorControlArray(
                self._body, self._all, mode, forces=tau.tolist(), physicsClientId=self._world
            )
            pybullet.stepSimulation(physicsClientId=self._world)
        self._time += self.dt
        return self._state()

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """The torque that PyBullet's own inverse dynamics gives: an independent truth for models of the same arm."""
        motion = (np.asarray(part, dtype=float).tolist() for part in (q, qd, qdd))
        return np.array(pybullet.calculateInverseDynamics(self._body, *motion, physicsClientId=self._world))

    def close(self) -> None:
        """Let the world go."""
        if pybullet.isConnected(self._world):
            pybullet.disconnect(self._world)

    def _place(self, q: Vector, qd: Vector) -> None:
        for joint, place, speed in zip(self._all, q, qd, strict=True):
            pybullet.resetJointState(self._body, joint, float(place), float(speed), physicsClientId=self._world)

    def _release_motors(self) -> None:
        """PyBullet holds every joint by a velocity motor until told not to."""
        none = [0.0] * len(self._all)
        mode = pybullet.VELOCITY_CONTROL
        pybullet.setJointMotorControlArray(self._body, self._all, mode, forces=none, physicsClientId=self._world)

    def _state(self) -> JointState:
        states = pybullet.getJointStates(self._body, self._all, physicsClientId=self._world)
        return JointState(self._time, np.array([s[0] for s in states]), np.array([s[1] for s in states]))
