"""From where the joints are and where they should be to the torque that brings them there."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from .joints import JointState, JointTarget
from .robots.gains import Gains as Gains

Vector = Float[np.ndarray, " dof"]


@runtime_checkable
class Controller(Protocol):
    """Knows the torque for a state and a target."""

    def torque(self, state: JointState, target: JointTarget) -> Vector:
        """The joint torque τ [N m or N]."""
        ...


class TrackingController:
    """τ = Kp (q_des − q) + Kd (q̇_des − q̇) + τ_ff, whatever model τ_ff comes from.

    Attributes:
        gains: Kp and Kd.
        feed_forward: τ_ff, as it was last given [N m or N]; zero at the start, which is PD control alone.
    """

    def __init__(self, gains: Gains):
        self.gains = gains
        self.feed_forward = np.zeros(gains.dof)

    def feedback(self, state: JointState, target: JointTarget) -> Vector:
        """The part that needs no model, Kp (q_des − q) + Kd (q̇_des − q̇) [N m or N]."""
        return self.gains.stiffness * (target.q_des - state.q) + self.gains.damping * (target.qd_des - state.qd)

    def torque(self, state: JointState, target: JointTarget) -> Vector:
        return self.feedback(state, target) + self.feed_forward
