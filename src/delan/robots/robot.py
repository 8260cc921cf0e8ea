"""The interface between a robot and its control loop, the torque guard, and PD gains."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..errors import RobotError, SettingsError
from ..joints import JointLimits, Joints, JointState
from .description import Arm

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
        """Go back to time 0 and to a pose, by default the home pose at rest; return the state."""
        ...

    def step(self, tau: Vector) -> JointState:
        """Apply joint torques [N m or N] for one control period; return the state at its end.

        On a real robot this call returns when the period is over, and the loop must run with
        `LoopSettings(catches_up=False)`: a loop behind schedule steps a simulation through the
        missed periods, but a real robot has already moved in that time. After a run that ended
        normally the last torque stays applied, so that another run can follow; only a fault sends
        zero torques. A real robot must hold or brake by itself if no torque arrives for several
        periods.
        """
        ...


def physics_steps(dt: float, physics_dt: float) -> int:
    """Return the number of physics steps in a control period, which must be a whole number."""
    if not (0 < physics_dt <= dt < float("inf")):
        raise RobotError(
            "need 0 < physics step ≤ control period, "
            f"got a step of {physics_dt} s and a period of {dt} s"
        )
    steps = dt / physics_dt
    whole = round(steps)
    # The tolerance admits periods that are written with few digits.
    if abs(steps - whole) > 1e-6 * whole:
        raise RobotError(
            f"a control period of {dt} s is not a multiple of the physics step of {physics_dt} s; "
            f"the nearest valid period is {whole * physics_dt:.9g} s"
        )
    return whole


def safe_torque(tau: Vector, limits: JointLimits, joints: Joints) -> Vector:
    """Return the torque clipped to the limits; a non-finite torque raises an error."""
    tau = np.asarray(tau, dtype=float)
    if tau.shape != limits.torque.shape:
        raise RobotError(
            f"expected one torque for each of {joints.dof} joints, got shape {tau.shape}"
        )
    if not np.isfinite(tau).all():
        at = int(np.argmin(np.isfinite(tau)))
        raise RobotError(
            f"the torque of joint {joints.names[at]} is {tau[at]}, expected a finite number; "
            "the robot was not moved"
        )
    return np.clip(tau, -limits.torque, limits.torque)


@dataclass(frozen=True, eq=False)
class Gains:
    """Stiffness Kp [N m/rad or N/m] and damping Kd [N m s/rad or N s/m] of each joint."""

    stiffness: Vector
    damping: Vector

    def __post_init__(self) -> None:
        for name, values in (("stiffness", self.stiffness), ("damping", self.damping)):
            if np.ndim(values) != 1 or np.shape(values) != np.shape(self.stiffness):
                raise SettingsError(
                    f"expected one {name} per joint, as many as stiffnesses, in shape (dof,), "
                    f"got {np.shape(values)}"
                )
            if not (np.isfinite(values).all() and np.min(values, initial=0.0) >= 0):
                raise SettingsError(
                    f"{name} must be finite and not negative, got {np.asarray(values).tolist()}"
                )

    @property
    def dof(self) -> int:
        return len(self.stiffness)


# Low gains: a third of what users of the WAM set, so that the feed-forward model matters. Damping
# is critical, 2 √(Kp H), for the mean diagonal H of the inertia over the range of the joints.
# Without feed-forward the RMS tracking error while writing is 0.07 to 0.1 rad on the two-link arm
# and up to 0.26 rad on the WAM.
_WAM_STIFFNESS = np.array([60.0, 100.0, 20.0, 25.0, 2.0, 2.0, 0.5])
_WAM_DAMPING = np.array([16.0, 24.0, 2.6, 3.5, 0.1, 0.1, 0.015])
LOW_GAINS: dict[str, Gains] = {
    "two_link": Gains(np.array([60.0, 15.0]), np.array([10.0, 2.0])),
    "wam4": Gains(_WAM_STIFFNESS[:4], _WAM_DAMPING[:4]),
    "wam7": Gains(_WAM_STIFFNESS, _WAM_DAMPING),
}

# Error of a revolute joint at which `gains_within` commands its largest torque [rad].
FULL_TORQUE_ANGLE = 1.0


def low_gains(arm: Arm) -> Gains:
    """Return the gains of an arm of the package, or those of `gains_within` for another."""
    if arm.name in LOW_GAINS:
        return LOW_GAINS[arm.name]
    return gains_within(arm.limits, arm.joints)


def gains_within(limits: JointLimits, joints: Joints) -> Gains:
    """Return gains from limits alone: Kp = τ_max / e, Kd = τ_max / q̇_max.

    e is 1 rad for a revolute joint and half the range for a prismatic one. A joint at its highest
    speed is then braked with its largest torque.
    """
    error = np.where(joints.sliding, (limits.upper - limits.lower) / 2, FULL_TORQUE_ANGLE)
    for name, values in {
        "torque": limits.torque,
        "velocity": limits.velocity,
        "range": error,
    }.items():
        valid = np.isfinite(values) & (values > 0)
        if not valid.all():
            at = int(np.argmin(valid))
            raise SettingsError(
                f"joint {joints.names[at]} has the {name} limit {values[at]}, but gains need "
                "positive, finite limits; give such limits or the gains themselves"
            )
    return Gains(limits.torque / error, limits.torque / limits.velocity)
