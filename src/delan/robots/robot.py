"""What the control loop may ask of a robot, simulated or real, and the guard in front of its motors."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..errors import RobotError
from ..joints import JointLimits, Joints, JointState

Vector = Float[np.ndarray, " dof"]


@runtime_checkable
class Robot(Protocol):
    """A torque-controlled robot, stepped once a control period `dt` [s]."""

    @property
    def joints(self) -> Joints: ...

    @property
    def dt(self) -> float: ...

    @property
    def limits(self) -> JointLimits: ...

    def reset(self, q: Vector | None = None, qd: Vector | None = None) -> JointState:
        """Back to the time 0 and to a pose, the home pose at rest unless given; tells the state there."""
        ...

    def step(self, tau: Vector) -> JointState:
        """Apply the joint torques [N m or N] for one control period; tells the state at its end.

        Of a real robot it returns when the period is over, and its loop runs with `LoopSettings(catches_up=False)`: a
        late loop steps a simulation through what it missed, and a robot that moved meanwhile must not move again. The
        last torque goes on after a run that ended well, so that another can follow; only a fault sends zero torques. A
        real robot must hold, or brake, by itself when no torque came for some periods.
        """
        ...


def physics_steps(dt: float, physics_dt: float) -> int:
    """How many physics steps make a control period; a period that is no whole number of them is refused."""
    if not (0 < physics_dt <= dt < float("inf")):
        raise RobotError(f"need 0 < physics step ≤ control period, got a step of {physics_dt} s and a period of {dt} s")
    steps = dt / physics_dt
    whole = round(steps)
    if abs(steps - whole) > 1e-6 * whole:
        nearest = whole * physics_dt
        raise RobotError(
            f"a control period of {dt} s is no whole number of physics steps of {physics_dt} s; "
            f"the nearest good period is {nearest:.9g} s"
        )
    return whole


def safe_torque(tau: Vector, limits: JointLimits, joints: Joints) -> Vector:
    """The torque as the drives let it through: cut off at the limits; one that is no number is refused."""
    tau = np.asarray(tau, dtype=float)
    if tau.shape != limits.torque.shape:
        raise RobotError(f"expected one torque for each of {joints.dof} joints, got shape {tau.shape}")
    if not np.isfinite(tau).all():
        at = int(np.argmin(np.isfinite(tau)))
        raise RobotError(f"the torque of joint {joints.names[at]} is {tau[at]}; the robot was not moved")
    return np.clip(tau, -limits.torque, limits.torque)
