"""PD control with a feed-forward torque that is updated at a rate of its own."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..joints import JointState, JointTarget
from ..robots.robot import Gains as Gains
from .model_torque import FeedForward

Vector = Float[np.ndarray, " dof"]


class TrackingController:
    """τ = Kp (q_des − q) + Kd (q̇_des − q̇) + τ_ff.

    Attributes:
        gains: Kp and Kd.
        feed_forward: the current τ_ff [N m or N]; zero at the start, which is PD control alone.
    """

    def __init__(self, gains: Gains):
        self.gains = gains
        self.feed_forward = np.zeros(gains.dof)

    def feedback(self, state: JointState, target: JointTarget) -> Vector:
        """Return Kp (q_des − q) + Kd (q̇_des − q̇) [N m or N]."""
        proportional = self.gains.stiffness * (target.q_des - state.q)
        return proportional + self.gains.damping * (target.qd_des - state.qd)

    def torque(self, state: JointState, target: JointTarget) -> Vector:
        """Return the joint torque τ [N m or N]."""
        return self.feedback(state, target) + self.feed_forward


class Refresh:
    """Updates τ_ff of a controller at a lower rate than control.

    Update n is due in the first period k with k · share ≥ n. As the reference is known in advance,
    it is begun as soon as the last one was collected, and collected when due or, if it is not
    ready by then, in a later period.

    Attributes:
        late: updates that were not ready when due; the controller kept the old torque.
    """

    def __init__(self, feed_forward: FeedForward, controller: TrackingController, share: float):
        """`share` is the update rate divided by the control rate, at most 1."""
        self._feed_forward = feed_forward
        self._controller = controller
        self._share = share
        self._pending: int | None = None
        self._in_use = -1
        self._due = -1
        self.late = 0

    def due(self, k: int) -> int:
        """Return the number of the newest update that is due in period k."""
        return int(k * self._share + 1e-9)

    def begin(self, k: int, target: Callable[[int], JointTarget]) -> None:
        """Begin the next update before period k, unless one is pending."""
        if self._pending is None:
            self._pending = max(self.due(k), self._in_use + 1)
            period = math.ceil(self._pending / self._share - 1e-9)
            self._feed_forward.begin(target(max(k, period)))

    def collect(self, k: int, *, wait: bool = False) -> None:
        """Give the controller the update that is due in period k, if it is ready."""
        due = self.due(k)
        if self._pending is not None and due >= self._pending:
            tau = self._feed_forward.ready(wait=wait)
            if tau is not None:
                self._controller.feed_forward = tau
                self._in_use = self._pending
                self._pending = None
        self.late += due > max(self._due, self._in_use)
        self._due = due
