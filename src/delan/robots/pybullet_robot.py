"""A robot in PyBullet, the simulator of the paper; needs the extra `pybullet`."""

import tempfile
from functools import partial
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
    """An arm simulated by PyBullet in its own world, without damping, friction or noise."""

    def __init__(self, arm: Arm, *, dt: float = 2e-3, physics_dt: float = 1e-4):
        if pybullet is None:
            raise RobotError(f"PyBullet is not installed; {installing('pybullet')}")
        self._steps = physics_steps(dt, physics_dt)
        self.joints = arm.joints
        self.limits = arm.limits
        self.dt = dt
        self._time = 0.0
        self._world = pybullet.connect(pybullet.DIRECT)
        self._indices = list(range(arm.joints.dof))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{arm.name}.urdf"
            path.write_text(arm.urdf(for_bullet=True))
            self._body = pybullet.loadURDF(
                str(path),
                useFixedBase=True,
                flags=pybullet.URDF_USE_INERTIA_FROM_FILE,
                physicsClientId=self._world,
            )
        pybullet.setGravity(0, 0, -GRAVITY_ACCELERATION, physicsClientId=self._world)
        pybullet.setTimeStep(physics_dt, physicsClientId=self._world)
        for joint in self._indices:
            pybullet.changeDynamics(
                self._body,
                joint,
                linearDamping=0,
                angularDamping=0,
                jointDamping=0,
                maxJointVelocity=1e6,  # the default of 100 rad/s would clip fast wrists
                physicsClientId=self._world,
            )
        self._set_motors = partial(
            pybullet.setJointMotorControlArray,
            self._body,
            self._indices,
            physicsClientId=self._world,
        )
        self._release_motors()

    def reset(self, q: Vector | None = None, qd: Vector | None = None) -> JointState:
        still = np.zeros(self.joints.dof)
        if q is None:
            q = np.clip(still, self.limits.lower, self.limits.upper)
        if qd is None:
            qd = still
        for joint, position, velocity in zip(self._indices, q, qd, strict=True):
            pybullet.resetJointState(
                self._body, joint, float(position), float(velocity), physicsClientId=self._world
            )
        self._release_motors()
        self._time = 0.0
        return self._state()

    def step(self, tau: Vector) -> JointState:
        forces = safe_torque(tau, self.limits, self.joints).tolist()
        for _ in range(self._steps):
            # PyBullet clears applied torques after every physics step.
            self._set_motors(pybullet.TORQUE_CONTROL, forces=forces)
            pybullet.stepSimulation(physicsClientId=self._world)
        self._time += self.dt
        return self._state()

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """Return the torque by PyBullet's own inverse dynamics, as an independent reference."""
        motion = np.array([q, qd, qdd], dtype=float).tolist()
        return np.array(
            pybullet.calculateInverseDynamics(self._body, *motion, physicsClientId=self._world)
        )

    def close(self) -> None:
        """Disconnect from the world of this robot; the worlds of other robots stay."""
        if pybullet.isConnected(self._world):
            pybullet.disconnect(self._world)

    def _release_motors(self) -> None:
        # PyBullet holds every joint by a velocity motor unless its force is set to zero.
        self._set_motors(pybullet.VELOCITY_CONTROL, forces=[0.0] * self.joints.dof)

    def _state(self) -> JointState:
        states = pybullet.getJointStates(self._body, self._indices, physicsClientId=self._world)
        q, qd, *_ = zip(*states, strict=True)
        return JointState(self._time, np.array(q), np.array(qd))
