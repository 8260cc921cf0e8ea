"""What the joints should do in every period: wanted motions one after the other, and the ways between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from ..data.easing import minimum_jerk
from ..errors import DataError
from ..joints import JointLimits, JointTarget, Trajectory
from .guard import SafeTargets, safe_targets

Vector = Float[np.ndarray, " dof"]
Row = Float[np.ndarray, " columns"]
Rows = Float[np.ndarray, "time columns"]

LEAST_MOVE = 0.5
"""The least time of a move from the end of a motion to the start of the next [s]."""
MOVE_SPEED = 0.3
"""The highest speed in such a move, as a share of the joints' limits."""

SPEED_SLACK = 0.01
"""By which share a wanted speed may exceed the limit: motions are stretched to it, and sampled."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Targets for every control period, inside the joints' range.

    Attributes:
        rows: (q_des, q̇_des, q̈_des) of each period.
        piece: which piece of the plan a period belongs to.
        labels, scored: the name of each piece, and whether it is a wanted motion, not a move between two.
        cut: periods whose wanted target was out of range.
        first: the period of the first row.
    """

    rows: Rows
    piece: Int[np.ndarray, " time"]
    labels: tuple[str, ...]
    scored: tuple[bool, ...]
    cut: Bool[np.ndarray, " time"]
    first: int = 0

    @property
    def end(self) -> int:
        """The period after the last row."""
        return self.first + len(self.rows)

    def row(self, period: int) -> Row:
        return self.rows[period - self.first]

    def target(self, period: int) -> JointTarget:
        row = self.rows[period - self.first]
        n = len(row) // 3
        return JointTarget(row[:n], row[n : 2 * n], row[2 * n :])

    def recent(self, period: int, periods: int, count: int) -> Rows:
        """So many rows, evenly spread over the given number of periods that end with this one."""
        at = period - self.first
        return self.rows[np.linspace(max(0, at - periods), at, count).astype(int)]

    def braked(self, period: int, periods: int, dt: float, limits: JointLimits) -> "Plan":
        """From a period on: within so many more to a smooth stop, and rest for as many."""
        target = self.target(period)
        u = np.minimum(np.arange(2 * periods + 1) / periods, 1.0)[:, None]
        rise, rate, _ = minimum_jerk(u)
        qd, qdd = target.qd_des * (1 - rise), -target.qd_des * rate / (periods * dt)
        q = target.q_des + (np.cumsum(qd, axis=0) - qd[0]) * dt
        safe = safe_targets(q, qd, qdd, limits)
        return Plan(
            rows=np.hstack(safe[:3]),
            piece=np.full(len(q), len(self.labels)),
            labels=(*self.labels, "stop"),
            scored=(*self.scored, False),
            cut=safe.cut,
            first=period,
        )


def plan(
    reference: Trajectory | Sequence[Trajectory], limits: JointLimits, dt: float, *, start: Vector | None = None
) -> Plan:
    """The motions in their order, with a move of minimum jerk wherever one does not begin where the last one ended.

    Args:
        dt: control period [s], at which the motions must be sampled.
        start: where the joints are before the first motion; None: where that one begins.
    """
    motions = [reference] if isinstance(reference, Trajectory) else list(reference)
    if not motions:
        raise DataError("reference", "is empty; give at least one trajectory")
    pieces: list[tuple[str, bool, SafeTargets]] = []
    for motion in motions:
        _require_sampled(motion, dt, limits)
        targets = safe_targets(motion.q, motion.qd, motion.qdd, limits)
        here = start if not pieces else pieces[-1][2].q[-1]
        if here is not None and (here != targets.q[0]).any():
            way = _move(np.clip(here, limits.lower, limits.upper), targets.q[0], limits, dt)
            pieces.append((f"to {motion.label}", False, way))
        pieces.append((motion.label, True, targets))
    return Plan(
        rows=np.concatenate([np.hstack(targets[:3]) for _, _, targets in pieces]),
        piece=np.repeat(np.arange(len(pieces)), [len(targets.q) for _, _, targets in pieces]),
        labels=tuple(label for label, _, _ in pieces),
        scored=tuple(scored for _, scored, _ in pieces),
        cut=np.concatenate([targets.cut for _, _, targets in pieces]),
    )


def _move(begin: Vector, end: Vector, limits: JointLimits, dt: float) -> SafeTargets:
    """From rest at one place to rest at another, without its two ends; the peak speed is 15/8 of the mean."""
    way = end - begin
    seconds = max(LEAST_MOVE, float(np.max(15 / 8 * np.abs(way) / (MOVE_SPEED * limits.velocity))))
    steps = int(np.ceil(seconds / dt))
    rise, rate, rate_rate = minimum_jerk((np.arange(1, steps) / steps)[:, None])
    duration = steps * dt
    still = np.zeros(steps - 1, dtype=bool)
    return SafeTargets(begin + rise * way, rate * way / duration, rate_rate * way / duration**2, still)


def _require_sampled(motion: Trajectory, dt: float, limits: JointLimits) -> None:
    """Refuse a motion that the loop cannot follow row by row, or that the joints cannot."""
    dof = len(limits.lower)
    if motion.q.shape != (len(motion.t), dof) or len(motion.t) == 0:
        raise DataError(motion.label, f"expected positions of shape (time, {dof}), got {motion.q.shape}", column="q")
    steps = np.diff(motion.t)
    if not (np.abs(steps - dt) <= 1e-3 * dt).all():
        row = int(np.argmax(~(np.abs(steps - dt) <= 1e-3 * dt)))
        problem = f"a step of {steps[row]:.6g} s; sample the motion at the control period of {dt:.6g} s"
        raise DataError(motion.label, problem, column="t", row=row + 1)
    for name, values in (("q", motion.q), ("qd", motion.qd), ("qdd", motion.qdd)):
        if not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise DataError(motion.label, "expected finite numbers; mend the reference", column=name, row=row)
    fast = np.abs(motion.qd) > (1 + SPEED_SLACK) * limits.velocity
    if fast.any():  # the guard would take it for a fault of the sensors, once the robot follows
        row, joint = np.argwhere(fast)[0].tolist()
        problem = f"joint {joint} should move at {abs(motion.qd[row, joint]):.3g} rad/s (or m/s) and bears "
        problem += f"{limits.velocity[joint]:.3g}; slow the motion down"
        raise DataError(motion.label, problem, column="qd", row=row)
