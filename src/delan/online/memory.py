"""What a learner remembers of the robot, and whether the robot still behaves like that."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..joints import nonzero_scale

Rows = Float[np.ndarray, "rows columns"]
# Returns the torques that a model predicts for rows (q, q̇, q̈, τ).
Predict = Callable[[Any, Rows], Float[np.ndarray, "rows dof"]]

# Rows of the last LAG_SECONDS are not yet part of the past: those after a change must not be
# found to agree with each other while the test is still running.
LAG_SECONDS = 5.0
REFERENCE = 3000  # rows of the past, spread evenly over it, among which neighbours are searched
LEAST_REFERENCE = 100  # rows of the past before the first block is judged
HISTORY = 400  # blocks of the past to which a new one is compared
# A block is compared to past blocks that were at least as far from the rows known then, up to this
# factor; to the COMPARED nearest ones in this respect, as errors grow with the distance. With fewer
# than LEAST of them its motion counts as new, and it says nothing.
SIMILAR = 1.5
COMPARED = 100
LEAST = 20
# An error counts as unusual if it is MARGIN times those it is compared to, or times FLOOR, a
# fraction of the variance of the torque, if they are below that.
MARGIN = 4.0
FLOOR = 1e-3
# A block counts if the mean square of its torque, after removal of the usual torque, is at least
# this fraction of the variance of the torque. Every model explains a robot at rest.
INFORMATIVE = 0.1
# Exponent of the bet κ p^(κ − 1), whose mean over uniform p is 1. About 1 / ln(blocks compared)
# finds a change soonest.
BET = 0.2
# Beyond all past errors p falls with this power of the error: errors are taken to have a tail that
# is no heavier than that of a distribution without a mean. No single block counts for less than
# LEAST_P, so that a change must last for four blocks.
TAIL = 0.5
LEAST_P = 1 / 400
SUSPICIOUS = 10.0  # evidence from which on the model that is tested no longer changes
USUAL = 0.05  # a p-value above this is no evidence of a change
QUIET_SECONDS = 3.0  # usual errors for this time show that the past is valid after all


class Memory:
    """The newest samples, and a reservoir in which every sample of the run is equally likely."""

    def __init__(self, columns: int, recent: int, reservoir: int, *, seed: int):
        self._recent = np.zeros((recent, columns))
        self._reservoir = np.zeros((reservoir, columns))
        self._rng = np.random.default_rng(seed)
        self.seen = 0

    def add(self, rows: Rows) -> None:
        """Add samples, in order of time."""
        for row in rows:
            self._recent[self.seen % len(self._recent)] = row
            place = self.seen
            if place >= len(self._reservoir):
                place = int(self._rng.integers(self.seen + 1))
            if place < len(self._reservoir):
                self._reservoir[place] = row
            self.seen += 1

    def newest(self, count: int) -> Rows:
        """Return the last `count` samples, oldest first, or all if there are fewer."""
        count = min(count, self.seen, len(self._recent))
        return self._recent[(self.seen - count + np.arange(count)) % len(self._recent)]

    def draw(self, count: int) -> Rows:
        """Return `count` random samples with repetition, half of them from the newest."""
        half = count // 2
        newest = self._rng.integers(min(self.seen, len(self._recent)), size=half)
        whole = self._rng.integers(min(self.seen, len(self._reservoir)), size=count - half)
        return np.vstack([self._recent[newest], self._reservoir[whole]])

    def all(self) -> Rows:
        """Return the samples in the reservoir."""
        return self._reservoir[: min(self.seen, len(self._reservoir))]


class _Block(NamedTuple):
    """Consecutive samples, judged before they were learned.

    Attributes:
        rows: the samples.
        distance: median distance to the nearest row of the past, in standard deviations; None if
            the block was not judged.
        error: mean square of what the past does not explain, over the variance of the torque.
    """

    rows: Rows
    distance: float | None = None
    error: float = float("nan")


class DriftWatch:
    """A sequential test of whether the robot has changed, with a stated rate of false alarms.

    Time is cut into blocks. The error of a block is taken before the model learns from it, and it
    is the least that the past can explain: by the model; by the model, corrected by its residual
    at the nearest row of the past (a model that still learns has the same residual there, a robot
    that has changed has not); and, once a change is suspected, by the newest model, if that also
    explains the past (new motion can be learned along with the past, a changed robot cannot).

    The error is compared to those of past blocks whose motion was at least as new. Their ranks give
    a p-value, which is turned into a bet κ p^(κ − 1) against an unchanged robot. The bets b
    accumulate as in the test of Shiryaev and Roberts, M ← (1 + M) b. As bets have a mean of at most
    1 while nothing changes, M − n is a supermartingale over n blocks, and the mean time to a false
    alarm at M ≥ A is at least A blocks (Shin, Ramdas & Rinaldo 2023, e-detectors). This supposes
    that each p-value is valid given the blocks before it. Errors that are correlated over blocks
    violate it, for which `MARGIN` makes up; `tests/online/test_memory.py` measures the rate.

    Attributes:
        evidence: M.
        model: the model that is tested.
        quiet: samples that the past must explain before it counts as valid again.
    """

    def __init__(
        self, dof: int, predict: Predict, *, window: int, rate: float, hours: float, seed: int
    ):
        """Test blocks of `window` samples at `rate` [Hz], with a false alarm in `hours` or more."""
        self._dof = dof
        self._predict = predict
        self._window = window
        self._lag = max(1, round(LAG_SECONDS * rate / window))
        self._threshold = hours * 3600 * rate / window
        self.quiet = round(QUIET_SECONDS * rate)
        self._reference = Memory(4 * dof, 1, REFERENCE, seed=seed)
        self._rng = np.random.default_rng(seed)
        self._pending = np.zeros((0, 4 * dof))
        self._waiting: deque[_Block] = deque()
        self._history: deque[_Block] = deque(maxlen=HISTORY)
        self._since = 0  # blocks since the change was first suspected
        self.model: Any = None
        self.evidence = 0.0
        self._explained = 0  # consecutive informative blocks that the past explains as usual
        self._stopped = False

    @property
    def changed(self) -> bool:
        """Whether the robot has changed."""
        return self.evidence >= self._threshold

    @property
    def valid_again(self) -> bool:
        """Whether the past has explained the newest blocks for some time."""
        return self._explained * self._window >= self.quiet

    @property
    def after_change(self) -> int:
        """Number of the newest samples that were certainly taken after the suspected change."""
        # The change lies in the first suspicious block or just before it.
        return max(0, self._since - 1) * self._window + len(self._pending)

    def add(self, samples: Rows, model: Any) -> None:
        """Add samples, before the model is trained on them; the model may be None.

        After an alarm, blocks wait until `stop` or `resume` is called.
        """
        if self.model is None:
            self.model = model
        self._pending = np.vstack([self._pending, samples])
        while len(self._pending) >= self._window and (self._stopped or not self.changed):
            rows = self._pending[: self._window]
            self._pending = self._pending[self._window :]
            self._judge(rows, model)
            if self.evidence < SUSPICIOUS and not self._stopped:
                self.model = model

    def stop(self) -> None:
        """Keep the past as it is from now on, and count only what it explains."""
        self._stopped = True
        self._explained = 0

    def resume(self) -> None:
        """Test again, as if there had been no samples since the alarm."""
        self._stopped = False
        self._waiting.clear()
        self.evidence = 0.0

    def _judge(self, rows: Rows, newest: Any) -> None:
        """Judge one block and make the one that is old enough part of the past."""
        block = _Block(rows)
        suspected = self.evidence >= SUSPICIOUS
        self._since = self._since + 1 if suspected else 0
        newest = newest if suspected and not self._stopped else None
        if self.model is not None and self._reference.seen >= LEAST_REFERENCE:
            block = self._measured(rows, newest)
        if block.distance is not None and np.isfinite(block.error):
            self._weigh(block)
        else:
            block = _Block(rows)
        if self._stopped:
            return
        if not suspected and self.evidence >= SUSPICIOUS:
            self._since = 1
        self._waiting.append(block)
        if len(self._waiting) > self._lag:
            past = self._waiting.popleft()
            self._reference.add(past.rows)
            if past.distance is not None:
                self._history.append(past)

    def _weigh(self, block: _Block) -> None:
        """Bet on the rank of the error among those of past blocks."""
        assert block.distance is not None
        least = block.distance / SIMILAR
        similar = [past for past in reversed(self._history) if (past.distance or 0.0) >= least]
        similar.sort(key=lambda past: past.distance or 0.0)
        errors = [past.error for past in similar[:COMPARED]]
        if len(errors) < LEAST:
            return
        usual = MARGIN * np.maximum(errors, FLOOR)
        p = (1 + np.count_nonzero(usual >= block.error)) / (1 + len(errors))
        p *= min(1.0, float(usual.max() / max(block.error, FLOOR)) ** TAIL)
        p = max(p, LEAST_P)
        self._explained = self._explained + 1 if p > USUAL else 0
        if not self._stopped:
            self.evidence = float((1 + self.evidence) * BET * p ** (BET - 1))

    def _measured(self, rows: Rows, newest: Any) -> _Block:
        """Return a block with its distance and error; without them if it is not informative."""
        past = self._reference.all()
        variance = nonzero_scale(past[:, -self._dof :].var(axis=0))
        excited = rows[:, -self._dof :] - past[:, -self._dof :].mean(axis=0)
        if np.mean(excited**2 / variance) < INFORMATIVE:
            return _Block(rows)
        neighbours, distance = self._nearest(rows, past)
        residual = self._residual(self.model, rows)
        there = self._residual(self.model, neighbours)
        explanations = [residual**2, (residual - there) ** 2]
        error = min(float(np.mean(square / variance)) for square in explanations)
        if newest is not None:
            sample = past[self._rng.integers(len(past), size=self._window)]
            squares = [self._residual(newest, part) ** 2 for part in (rows, sample)]
            error = min(error, max(float(np.mean(square / variance)) for square in squares))
        return _Block(rows, distance, error)

    def _nearest(self, rows: Rows, past: Float[np.ndarray, "past columns"]) -> tuple[Rows, float]:
        """Return the nearest row of the past for each row, and the median distance."""
        scale = np.sqrt(nonzero_scale(past[:, : -self._dof].var(axis=0)) * 3 * self._dof)
        here = rows[:, : -self._dof] / scale
        there = past[:, : -self._dof] / scale
        squares = np.sum(here**2, axis=1)[:, None] + np.sum(there**2, axis=1) - 2 * here @ there.T
        places = squares.argmin(axis=1)
        least = np.maximum(squares[np.arange(len(rows)), places], 0)
        return past[places], float(np.sqrt(np.median(least)))

    def _residual(self, model: Any, rows: Rows) -> Float[np.ndarray, "rows dof"]:
        return rows[:, -self._dof :] - self._predict(model, rows)
