"""How hard each joint is pulled to where it should be: low gains for the arms of the package, and a rule for others."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..errors import SettingsError
from ..joints import JointLimits, Joints
from .description import Arm

Vector = Float[np.ndarray, " dof"]


@dataclass(frozen=True, eq=False)
class Gains:
    """Stiffness Kp [N m/rad or N/m] and damping Kd [N m s/rad or N s/m] of each joint."""

    stiffness: Vector
    damping: Vector

    def __post_init__(self) -> None:
        for name, values in (("stiffness", self.stiffness), ("damping", self.damping)):
            if np.ndim(values) != 1 or np.shape(values) != np.shape(self.stiffness):
                raise SettingsError(
                    f"expected one {name} a joint, as many as stiffnesses, in shape (dof,), got {np.shape(values)}"
                )
            if not (np.isfinite(values).all() and np.min(values, initial=0.0) >= 0):
                raise SettingsError(f"{name} must be finite and not negative, got {np.asarray(values).tolist()}")

    @property
    def dof(self) -> int:
        return len(self.stiffness)


# Damping is critical, 2 √(Kp H), for the mean diagonal H of the inertia over the range of the joints. With no feed-
# forward at all the two-link arm is 0.07 to 0.1 rad off while it writes (root mean square), the WAM up to 0.26 rad.
_WAM_STIFFNESS = np.array([60.0, 100.0, 20.0, 25.0, 2.0, 2.0, 0.5])
_WAM_DAMPING = np.array([16.0, 24.0, 2.6, 3.5, 0.1, 0.1, 0.015])
LOW_GAINS: dict[str, Gains] = {
    "two_link": Gains(np.array([60.0, 15.0]), np.array([10.0, 2.0])),
    "wam4": Gains(_WAM_STIFFNESS[:4], _WAM_DAMPING[:4]),
    "wam7": Gains(_WAM_STIFFNESS, _WAM_DAMPING),
}
"""By the name of the arm; a third of what users of the WAM set, so that the model has to do the work."""

FULL_TORQUE_ANGLE = 1.0
"""The error of a turning joint at which the rule for unknown robots asks for its whole torque [rad]."""


def low_gains(arm: Arm) -> Gains:
    """The gains of a known arm, or those of the rule."""
    return LOW_GAINS[arm.name] if arm.name in LOW_GAINS else gains_within(arm.limits, arm.joints)


def gains_within(limits: JointLimits, joints: Joints) -> Gains:
    """For a robot of which the limits alone are known: Kp = τ_max / e, Kd = τ_max / q̇_max.

    e is 1 rad for a joint that turns and half of the range for one that slides. A joint at its highest speed is then
    braked with its whole torque.
    """
    slides = np.array([kind == "prismatic" for kind in joints.kinds])
    error = np.where(slides, (limits.upper - limits.lower) / 2, FULL_TORQUE_ANGLE)
    for name, values in (("torque", limits.torque), ("velocity", limits.velocity), ("range", error)):
        if not (np.isfinite(values).all() and np.all(values > 0)):
            at = int(np.argmin(np.isfinite(values) & (values > 0)))
            raise SettingsError(
                f"joint {joints.names[at]} has the {name} limit {values[at]}, from which no gains follow; "
                "give positive, finite limits or the gains themselves"
            )
    return Gains(limits.torque / error, limits.torque / limits.velocity)
