"""What the loop writes down of every period, in memory that is there before it begins."""

import time
from typing import Any

import numpy as np
from jaxtyping import Float

from ..joints import JointState
from .channels import Layout
from .stats import PARTS, Row, Spread, Vector


def row_layout(dof: int) -> Layout:
    """What the loop writes down in every period; a `Recorder` for it is made of the same layout."""
    joint = dict.fromkeys(("q", "qd", "tau", "q_des", "qd_des", "qdd_des", "tau_ff"), dof)
    return Layout.of(t=1, **joint, trajectory=1, model=1)


class Log:
    """What a run writes down as it goes; all memory is taken beforehand.

    Attributes:
        ticks: periods in which the loop acted.
    """

    def __init__(self, dof: int, most: int):
        """Room for so many periods."""
        self._layout = row_layout(dof)
        # Written over at once, so that the system gives the memory now and not in the loop.
        self._rows = np.full((most, self._layout.width), np.nan)
        self._times = np.full((most, len(PARTS)), 0.0)
        self._lateness = np.full(most, 0.0)
        self._place = {part: place for place, part in enumerate(PARTS)}
        self._mark = 0.0
        self.ticks = 0

    def mark(self) -> None:
        """From now on time counts."""
        self._mark = time.perf_counter()

    def spent(self, part: str) -> None:
        """The time since the last call, or since the mark, went into a part of the period."""
        now = time.perf_counter()
        self._times[self.ticks, self._place[part]] += now - self._mark
        self._mark = now

    def acted(self, lateness: float) -> None:
        """A period is done that began late by so much [s]."""
        self._lateness[self.ticks] = lateness
        self.ticks += 1

    def write(
        self,
        k: int,
        t: float,
        state: JointState,
        tau: Vector,
        target: Row,
        feed_forward: Vector,
        piece: Any,
        model: int,
    ) -> Float[np.ndarray, " row"]:
        """Period k; the target as a row (q, q̇, q̈). Gives the row of `row_layout`."""
        row = self._rows[k]
        np.concatenate([(t,), state.q, state.qd, tau, target, feed_forward, (piece, model)], out=row)
        return row

    def row(self, k: int) -> Float[np.ndarray, " row"]:
        """Period k as it was written."""
        return self._rows[k]

    def with_state(self, row: Row, state: JointState) -> Row:
        """A row that tells another state."""
        row = row.copy()
        row[self._layout.slices["q"]], row[self._layout.slices["qd"]] = state.q, state.qd
        return row

    def recent_error(self, k: int, periods: int) -> tuple[float, ...]:
        """Root mean square of q_des − q in the periods up to k, per joint."""
        columns = self._layout.unpack(self._rows[max(0, k + 1 - periods) : k + 1])
        return tuple(np.sqrt(np.mean((columns["q_des"] - columns["q"]) ** 2, axis=0)).tolist())

    def columns(self, periods: int) -> dict[str, Any]:
        """The arrays of a `LoopResult`."""
        found: dict[str, Any] = self._layout.unpack(self._rows[:periods])
        t, piece, model = (found.pop(name)[:, 0] for name in ("t", "trajectory", "model"))
        return {**found, "t": t, "piece": piece.astype(int), "model": model.astype(int)}

    def torque_max(self, periods: int) -> tuple[float, ...]:
        tau = self.columns(periods)["tau"]
        return tuple(np.max(np.abs(tau), axis=0, initial=0.0).tolist())

    @property
    def lateness_us(self) -> Spread:
        return Spread.of(1e6 * self._lateness[: self.ticks])

    @property
    def parts_us(self) -> dict[str, Spread]:
        return {part: Spread.of(1e6 * self._times[: self.ticks, place]) for part, place in self._place.items()}
