"""The guard between loop and robot: checks every state, target and torque.

Whatever comes in, the torque that goes out is finite, inside the limits and rate-limited. Every
intervention is counted.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..errors import SettingsError
from ..joints import JointLimits, JointState

Vector = Float[np.ndarray, " dof"]

# Interventions that are counted: an implausible state; a target clipped to the position limits; a
# joint near its limit, or a feed-forward torque beyond its bound (both leave PD control alone); a
# torque that is non-finite, too large or changes too fast.
CAUSES = (
    "state",
    "target",
    "near_limit",
    "feed_forward",
    "not_finite",
    "torque_limit",
    "torque_rate",
)


@dataclass(frozen=True)
class GuardSettings:
    """Thresholds of the guard.

    Attributes:
        torque_rate: largest change of a torque, in torque limits per second [1/s].
        hold_rate: the same while the robot is held after a stall [1/s].
        margin: distance from a position limit that counts as near, as a fraction of the range.
        horizon: a joint that would come near within this time at its speed is near, too [s].
        feed_forward: largest feed-forward torque, in torque limits.
        slack: a state is implausible above this multiple of the velocity limit.
        patience: consecutive implausible states before the robot is stopped.
    """

    torque_rate: float = 50.0
    hold_rate: float = 5.0
    margin: float = 0.01
    horizon: float = 0.03
    feed_forward: float = 1.0
    slack: float = 3.0
    patience: int = 10

    def __post_init__(self) -> None:
        for name in ("torque_rate", "hold_rate", "feed_forward", "slack", "patience"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {value}")
        if not (0 <= self.margin < 0.5 and 0 <= self.horizon < float("inf")):
            raise SettingsError(
                f"need 0 ≤ margin < 0.5 and horizon ≥ 0, got {self.margin} and {self.horizon}"
            )


class Guard:
    """Checks one state and one torque per period.

    Attributes:
        counts: interventions by cause, in periods.
        stopped: why the robot has to be stopped; None otherwise.
        holding: whether torques change as slowly as after a stall.
    """

    def __init__(self, limits: JointLimits, dt: float, settings: GuardSettings | None = None):
        settings = settings or GuardSettings()
        self._limits = limits
        self._settings = settings
        self._speed = settings.slack * limits.velocity
        self._step = self._speed * dt
        reach = limits.upper - limits.lower
        margin = settings.margin * np.where(np.isfinite(reach), reach, 0.0)
        self._lower = limits.lower + margin
        self._upper = limits.upper - margin
        self._change = settings.torque_rate * limits.torque * dt
        self._hold_change = settings.hold_rate * limits.torque * dt
        self._last = np.zeros_like(limits.torque)
        self._good: JointState | None = None
        self._bad = 0
        self._unseen = 0  # periods in which the robot moved unseen since the last plausible state
        self.holding = False
        self.counts: dict[str, int] = dict.fromkeys(CAUSES, 0)
        self.stopped: str | None = None

    def state(self, measured: JointState) -> JointState:
        """Return the measured state or, if it is implausible, the last plausible one."""
        if self.plausible(measured):
            self._good = measured
            self._bad = 0
            self._unseen = 0
            return measured
        self._bad += 1
        self.counts["state"] += 1
        if self._bad >= self._settings.patience and self.stopped is None:
            self.stopped = (
                f"{self._bad} consecutive states were not finite or jumped; "
                "check the robot's sensors"
            )
        if self._good is None:
            rest = np.zeros_like(self._last)
            q = np.clip(rest, self._limits.lower, self._limits.upper)
            return JointState(measured.t, q, rest)
        return self._good

    def pass_unseen(self, periods: int) -> None:
        """Allow for the way that the robot made in periods in which it was not measured."""
        self._unseen += periods

    @property
    def believed(self) -> bool:
        """Whether the last measured state was plausible."""
        return self._bad == 0

    def torque(self, state: JointState, feedback: Vector, feed_forward: Vector) -> Vector:
        """Return feedback + feed-forward, or feedback alone where the model cannot be trusted."""
        # A comparison with NaN is False; an infinite torque would pass an infinite limit.
        inside = np.abs(feed_forward) <= self._settings.feed_forward * self._limits.torque
        if not (np.isfinite(feed_forward).all() and inside.all()):
            self.counts["feed_forward"] += 1
            return self.let_out(feedback)
        ahead = state.q + self._settings.horizon * state.qd
        high = np.maximum(state.q, ahead) > self._upper
        near = high | (np.minimum(state.q, ahead) < self._lower)
        if near.any():
            self.counts["near_limit"] += 1
            return self.let_out(feedback + np.where(near, 0.0, feed_forward))
        return self.let_out(feedback + feed_forward)

    def damped(self, state: JointState, damping: Vector) -> Vector:
        """Return the braking torque −Kd q̇; zero while the velocity is unknown."""
        if not self.believed:
            return self.let_out(np.zeros_like(self._last))
        return self.let_out(-damping * state.qd)

    def let_out(self, tau: Vector) -> Vector:
        """Return the nearest torque that is finite, within limits and rate-limited."""
        finite = np.isfinite(tau)
        if not finite.all():
            self.counts["not_finite"] += 1
            tau = np.where(finite, tau, 0.0)
        inside = np.clip(tau, -self._limits.torque, self._limits.torque)
        if (inside != tau).any():
            self.counts["torque_limit"] += 1
        change = self._hold_change if self.holding else self._change
        gentle = np.clip(inside, self._last - change, self._last + change)
        if (gentle != inside).any():
            self.counts["torque_rate"] += 1
        self._last = gentle
        return gentle

    def plausible(self, measured: JointState) -> bool:
        """Return whether the robot can be in a state, given the last plausible one."""
        if not (np.isfinite(measured.q).all() and np.isfinite(measured.qd).all()):
            return False
        slow = np.abs(measured.qd) <= self._speed
        if self._good is None:
            return bool(slow.all())
        near = np.abs(measured.q - self._good.q) <= (self._unseen + self._bad + 1) * self._step
        return bool((near & slow).all())
