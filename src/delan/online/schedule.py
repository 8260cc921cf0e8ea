"""The targets of every control period: reference motions and the moves between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..errors import DataError
from ..joints import JointLimits, JointTarget, Trajectory
from ..motions.cosines import minimum_jerk

Vector = Float[np.ndarray, " dof"]
Rows = Float[np.ndarray, "time columns"]

MIN_MOVE_SECONDS = 0.5  # shortest move between two motions [s]
MOVE_SPEED = 0.3  # peak speed of such a move, as a fraction of the velocity limits
PERIOD_TOLERANCE = 1e-3  # relative deviation of a sampling period from the control period
# Motions may be scaled exactly to the velocity limit, and sampling can then exceed it slightly.
SPEED_SLACK = 0.01


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule:
    """Targets for every control period, inside the position limits.

    Attributes:
        rows: (q_des, q̇_des, q̈_des) of each period.
        piece: index of the motion of each period.
        labels, scored: name of each motion, and whether it is a reference, not a move in between.
        cut: periods whose target was beyond the position limits.
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

    def target(self, period: int) -> JointTarget:
        """Return the target of a period."""
        row = self.rows[period - self.first]
        n = len(row) // 3
        return JointTarget(row[:n], row[n : 2 * n], row[2 * n :])

    def recent(self, period: int, periods: int, count: int) -> Rows:
        """Return `count` rows evenly spaced over the given number of periods before this one."""
        at = period - self.first
        return self.rows[np.linspace(max(0, at - periods), at, count).astype(int)]

    def braked(self, period: int, periods: int, dt: float, limits: JointLimits) -> "Schedule":
        """Return a schedule that stops smoothly in `periods` periods and rests for as many."""
        target = self.target(period)
        u = np.minimum(np.arange(2 * periods + 1) / periods, 1.0)[:, None]
        rise, rate, _ = minimum_jerk(u)
        qd = target.qd_des * (1 - rise)
        qdd = -target.qd_des * rate / (periods * dt)
        q = target.q_des + (np.cumsum(qd, axis=0) - qd[0]) * dt
        targets = safe_targets(q, qd, qdd, limits)
        return Schedule(
            rows=targets.rows,
            piece=np.full(len(q), len(self.labels)),
            labels=(*self.labels, "stop"),
            scored=(*self.scored, False),
            cut=targets.cut,
            first=period,
        )

    def stalled(self, first: int) -> "Schedule":
        """Return the schedule with all periods from `first` on marked as a stall."""
        piece = self.piece.copy()
        piece[first - self.first :] = len(self.labels)
        return replace(
            self, piece=piece, labels=(*self.labels, "stall"), scored=(*self.scored, False)
        )

    def rejoined(
        self, period: int, q: Vector, hold: int, marked: "Schedule", limits: JointLimits, dt: float
    ) -> "Schedule":
        """Return the `marked` schedule with a hold from `period` on and a way back to this one.

        The robot rests at q for `hold` periods. Then its target goes over into the reference, which
        has moved on meanwhile: q + s (r − q), where s rises from 0 to 1 with minimum jerk, so that
        position, speed and acceleration are continuous. If too little of the reference is left for
        that, the robot rests until the end.
        """
        dof = len(q)
        at = period - self.first
        here = np.clip(q, limits.lower, limits.upper)
        rest = np.concatenate([here, np.zeros(2 * dof)])
        rows = self.rows.copy()
        rows[at:] = rest
        cut = self.cut.copy()
        cut[at:] = False
        begin = at + hold
        steps = _move_steps(here, self.rows[begin:, :dof], limits, dt)
        end = begin + steps
        if end >= len(rows):
            return replace(marked, rows=rows, cut=cut)
        rise, rate, rate_rate = minimum_jerk((np.arange(steps) / steps)[:, None])
        rate = rate / (steps * dt)
        rate_rate = rate_rate / (steps * dt) ** 2
        r, rd, rdd = np.split(self.rows[begin:end], 3, axis=1)
        qd = rate * (r - here) + rise * rd
        qdd = rate_rate * (r - here) + 2 * rate * rd + rise * rdd
        targets = safe_targets(here + rise * (r - here), qd, qdd, limits)
        rows[begin:end] = targets.rows
        cut[begin:end] = targets.cut
        rows[end:] = self.rows[end:]
        cut[end:] = self.cut[end:]
        # What is left of the motion is another piece of the same name: the rows of a piece are
        # consecutive in a recording.
        again = int(self.piece[end])
        piece = marked.piece.copy()
        piece[end:] = np.where(self.piece[end:] == again, len(marked.labels), self.piece[end:])
        return replace(
            marked,
            rows=rows,
            cut=cut,
            piece=piece,
            labels=(*marked.labels, self.labels[again]),
            scored=(*marked.scored, self.scored[again]),
        )


class SafeTargets(NamedTuple):
    """Targets (q, q̇, q̈) inside the position limits, and the rows that were clipped."""

    rows: Rows
    cut: Bool[np.ndarray, " time"]


def safe_targets(q: Rows, qd: Rows, qdd: Rows, limits: JointLimits) -> SafeTargets:
    """Clip targets to the position limits; a clipped joint rests at its limit."""
    inside = np.clip(q, limits.lower, limits.upper)
    beyond = inside != q
    rows = [inside, np.where(beyond, 0.0, qd), np.where(beyond, 0.0, qdd)]
    return SafeTargets(np.hstack(rows), beyond.any(axis=1))


def make_schedule(
    reference: Trajectory | Sequence[Trajectory],
    limits: JointLimits,
    dt: float,
    *,
    start: Vector | None = None,
) -> Schedule:
    """Return the motions in order, with minimum-jerk moves where one does not continue the last.

    Args:
        dt: control period [s], at which the motions must be sampled.
        start: joint positions before the first motion; None: where that motion begins.
    """
    motions = [reference] if isinstance(reference, Trajectory) else list(reference)
    if not motions:
        raise DataError("reference", "is empty; give at least one trajectory")
    labels: list[str] = []
    scored: list[bool] = []
    pieces: list[SafeTargets] = []
    for motion in motions:
        _require_feasible(motion, dt, limits)
        targets = safe_targets(motion.q, motion.qd, motion.qdd, limits)
        begin = targets.rows[0, : len(limits.lower)]
        if start is not None and (start != begin).any():
            here = np.clip(start, limits.lower, limits.upper)
            labels.append(f"to {motion.label}")
            scored.append(False)
            pieces.append(_move(here, begin, limits, dt))
        labels.append(motion.label)
        scored.append(True)
        pieces.append(targets)
        start = targets.rows[-1, : len(limits.lower)]
    return Schedule(
        rows=np.concatenate([piece.rows for piece in pieces]),
        piece=np.repeat(np.arange(len(pieces)), [len(piece.rows) for piece in pieces]),
        labels=tuple(labels),
        scored=tuple(scored),
        cut=np.concatenate([piece.cut for piece in pieces]),
    )


def _move(begin: Vector, end: Vector, limits: JointLimits, dt: float) -> SafeTargets:
    """Return a move from rest to rest, without its two end points."""
    way = end - begin
    # The peak speed of a minimum-jerk move is 15/8 of its mean speed.
    slowest = float(np.max(15 / 8 * np.abs(way) / (MOVE_SPEED * limits.velocity)))
    steps = int(np.ceil(max(MIN_MOVE_SECONDS, slowest) / dt))
    rise, rate, rate_rate = minimum_jerk((np.arange(1, steps) / steps)[:, None])
    duration = steps * dt
    rows = [begin + rise * way, rate * way / duration, rate_rate * way / duration**2]
    return SafeTargets(np.hstack(rows), np.zeros(steps - 1, dtype=bool))


def _move_steps(begin: Vector, targets: Rows, limits: JointLimits, dt: float) -> int:
    """Return the number of periods of a move to the first targets that they leave time for."""
    steps = 0
    needed = 1
    while steps < needed <= len(targets):
        steps = needed
        way = np.abs(targets[:steps] - begin).max(axis=0)
        slowest = float(np.max(15 / 8 * way / (MOVE_SPEED * limits.velocity)))
        needed = int(np.ceil(max(MIN_MOVE_SECONDS, slowest) / dt))
    return needed


def _require_feasible(motion: Trajectory, dt: float, limits: JointLimits) -> None:
    """Raise if the loop or the joints cannot follow a motion."""
    dof = len(limits.lower)
    if motion.q.shape != (len(motion.t), dof) or len(motion.t) == 0:
        problem = f"expected positions of shape (time, {dof}), got {motion.q.shape}"
        raise DataError(motion.label, problem, column="q")
    steps = np.diff(motion.t)
    even = np.abs(steps - dt) <= PERIOD_TOLERANCE * dt  # False for NaN
    if not even.all():
        row = int(np.argmin(even))
        problem = f"has a step of {steps[row]:.6g} s; sample it at the control period {dt:.6g} s"
        raise DataError(motion.label, problem, column="t", row=row + 1)
    for name, values in (("q", motion.q), ("qd", motion.qd), ("qdd", motion.qdd)):
        if not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            problem = "expected finite numbers; fix the reference"
            raise DataError(motion.label, problem, column=name, row=row)
    # A robot that follows such a motion would look like a sensor fault to the guard.
    fast = np.abs(motion.qd) > (1 + SPEED_SLACK) * limits.velocity
    if fast.any():
        row, joint = np.argwhere(fast)[0].tolist()
        problem = (
            f"joint {joint} should move at {abs(motion.qd[row, joint]):.3g} rad/s (or m/s), above "
            f"its limit of {limits.velocity[joint]:.3g}; slow the motion down"
        )
        raise DataError(motion.label, problem, column="qd", row=row)
