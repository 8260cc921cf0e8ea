"""Between the loop and the robot: no state that cannot be, no target out of reach, no torque that joints cannot bear.

Whatever comes in, the torque that goes out is finite and inside the limits. What had to be changed is counted.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..errors import SettingsError
from ..joints import JointLimits, JointState

Vector = Float[np.ndarray, " dof"]
Rows = Float[np.ndarray, "time dof"]

CAUSES = ("state", "target", "near_limit", "feed_forward", "not_finite", "torque_limit", "torque_rate")
"""What is counted: a state not believed, a target cut off at the joints' range, a joint near the end of its range or a
feed-forward torque out of range (both leave PD control alone), a torque that is no number, too large, or too sudden."""


@dataclass(frozen=True)
class GuardSettings:
    """How careful to be.

    Attributes:
        torque_rate: the most that a torque may change in a second, in torque limits [1/s].
        margin: how near to its end a joint is near, as a share of its range.
        horizon: a joint that would get there within this time at its speed is near, too [s].
        feed_forward: the most that a model may ask for, in torque limits.
        slack: a state is a jump if it means more than so many times the speed limit.
        patience: states in a row that may be bad before the robot is stopped.
    """

    torque_rate: float = 50.0
    margin: float = 0.01
    horizon: float = 0.03
    feed_forward: float = 1.0
    slack: float = 3.0
    patience: int = 10

    def __post_init__(self) -> None:
        for name in ("torque_rate", "feed_forward", "slack", "patience"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if not (0 <= self.margin < 0.5 and 0 <= self.horizon < float("inf")):
            raise SettingsError(f"need 0 ≤ margin < 0.5 and horizon ≥ 0, got {self.margin} and {self.horizon}")


class Guard:
    """Looks at every state that comes in and at every torque that goes out, one of each a period.

    Attributes:
        counts: how often each of `CAUSES` was there, in periods.
        stopped: why the robot has to be stopped, as a sentence; None while it need not be.
    """

    def __init__(self, limits: JointLimits, dt: float, settings: GuardSettings | None = None):
        settings = settings or GuardSettings()
        self._limits, self._settings = limits, settings
        self._speed = settings.slack * limits.velocity
        self._step = self._speed * dt
        reach = limits.upper - limits.lower
        margin = settings.margin * np.where(np.isfinite(reach), reach, 0.0)
        self._lower, self._upper = limits.lower + margin, limits.upper - margin
        self._change = settings.torque_rate * limits.torque * dt
        self._last = np.zeros_like(limits.torque)
        self._good: JointState | None = None
        self._bad = 0
        self.counts: dict[str, int] = dict.fromkeys(CAUSES, 0)
        self.stopped: str | None = None

    def state(self, told: JointState) -> JointState:
        """What the robot told, or, if that cannot be, the last state that could; `believed` says which."""
        if self._possible(told):
            self._good, self._bad = told, 0
            return told
        self._bad += 1
        self.counts["state"] += 1
        if self._bad >= self._settings.patience and self.stopped is None:
            self.stopped = f"{self._bad} states in a row were no numbers or jumped; check the robot's sensors"
        if self._good is None:
            still = np.zeros_like(self._last)
            return JointState(told.t, np.clip(still, self._limits.lower, self._limits.upper), still)
        return self._good

    @property
    def believed(self) -> bool:
        """Whether the last state was as the robot told it."""
        return self._bad == 0

    def torque(self, state: JointState, feedback: Vector, feed_forward: Vector) -> Vector:
        """The torque to apply: feedback + feed-forward, or feedback alone where the latter cannot be trusted."""
        ahead = state.q + self._settings.horizon * state.qd
        near = (np.maximum(state.q, ahead) > self._upper) | (np.minimum(state.q, ahead) < self._lower)
        inside = np.abs(feed_forward) <= self._settings.feed_forward * self._limits.torque  # not so for NaN
        if not (np.isfinite(feed_forward).all() and inside.all()):  # ∞ is inside a limit of ∞
            self.counts["feed_forward"] += 1
            return self.let_out(feedback)
        if near.any():
            self.counts["near_limit"] += 1
            return self.let_out(feedback + np.where(near, 0.0, feed_forward))
        return self.let_out(feedback + feed_forward)

    def damped(self, state: JointState, damping: Vector) -> Vector:
        """The torque that brakes, −Kd q̇; zero while the speed is not known."""
        return self.let_out(-damping * state.qd if self.believed else np.zeros_like(self._last))

    def let_out(self, tau: Vector) -> Vector:
        """The torque nearest to the wanted one that is finite, inside the limits and not too far from the last."""
        finite = np.isfinite(tau)
        if not finite.all():
            self.counts["not_finite"] += 1
            tau = np.where(finite, tau, 0.0)
        inside = np.clip(tau, -self._limits.torque, self._limits.torque)
        if (inside != tau).any():
            self.counts["torque_limit"] += 1
        gentle = np.clip(inside, self._last - self._change, self._last + self._change)
        if (gentle != inside).any():
            self.counts["torque_rate"] += 1
        self._last = gentle
        return gentle

    def _possible(self, told: JointState) -> bool:
        if not (np.isfinite(told.q).all() and np.isfinite(told.qd).all()):
            return False
        if self._good is None:
            return bool((np.abs(told.qd) <= self._speed).all())
        way = np.abs(told.q - self._good.q) <= (self._bad + 1) * self._step
        return bool((way & (np.abs(told.qd) <= self._speed)).all())


class SafeTargets(NamedTuple):
    """Targets inside the joints' range, and the rows that were not."""

    q: Rows
    qd: Rows
    qdd: Rows
    cut: Bool[np.ndarray, " time"]


def safe_targets(q: Rows, qd: Rows, qdd: Rows, limits: JointLimits) -> SafeTargets:
    """Targets beyond a joint's range are put to its end, where the joint stands still."""
    inside = np.clip(q, limits.lower, limits.upper)
    beyond = inside != q
    return SafeTargets(inside, np.where(beyond, 0.0, qd), np.where(beyond, 0.0, qdd), beyond.any(axis=1))
