"""Where time runs forward without gaps, and where it does not: repeats, clocks set back, gaps, other rates."""

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from .checks import MIXED_SHARE, ODD_STEP, OTHER_RATE

ODD = 0.9 * ODD_STEP
"""A step that differs from the usual one by more than this share is odd: a little less than what a fit refuses."""
GAP = 1.75
"""A step so many times the usual one has lost a sample: one lost sample makes 2, jitter seldom makes 1.75."""
GAP_SPREADS = 8.0
"""Where time jitters, a gap must also stand out by so many standard deviations of the steps."""
SLOWEST_STEP = 0.5
"""No robot is logged at less than 2 Hz [s]: a longer step is one of milliseconds, microseconds or nanoseconds."""
BRIDGED, BRIDGED_STEPS = 0.02, 5
"""Times without samples up to so long [s], or so many steps, are bridged by straight lines where a low-pass follows."""


@dataclass(frozen=True)
class Stretch:
    """Rows [start, end) of one trajectory through which time runs forward without gaps, and their usual step [s]."""

    start: int
    end: int
    step: float

    @property
    def rows(self) -> slice:
        return slice(self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start


def spans(rows: Bool[np.ndarray, " time"]) -> tuple[tuple[int, int], ...]:
    """The stretches in which a mask is true, as (first, after the last)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rows, [False]])))
    return tuple((int(first), int(end)) for first, end in zip(edges[::2], edges[1::2], strict=True))


def without(stretches: tuple[Stretch, ...], rows: np.ndarray) -> tuple[Stretch, ...]:
    """The stretches with some rows cut out."""
    kept = []
    for piece in stretches:
        good = spans(~rows[piece.rows])
        kept += [Stretch(piece.start + first, piece.start + end, piece.step) for first, end in good]
    return tuple(kept)


def bridged(step: float) -> float:
    """The longest time without samples [s] that a preparation bridges; it cuts at longer ones."""
    return max(BRIDGED, BRIDGED_STEPS * step)


class TimeFaults:
    """Rows at which time is at fault, judged trajectory by trajectory.

    Attributes:
        lost, back, again, gap, mixed: masks of rows without a time, with one before that of the row before, with the
            same, behind a gap, and of another rate.
        bounds: the rows at which a trajectory begins, and the end of the last.
        usual: the first row of each trajectory, and its usual step.
        stretches: the rows between the faults.
    """

    def __init__(self, t: Float[np.ndarray, " time"], trajectory: Int[np.ndarray, " time"]):
        self.t = t
        self.lost = ~np.isfinite(t)
        self.back, self.again, self.gap, self.mixed = (np.zeros(len(t), dtype=bool) for _ in range(4))
        self.bounds = np.concatenate([[0], np.flatnonzero(np.diff(trajectory)) + 1, [len(t)]])
        self.usual: list[tuple[int, float]] = []
        self._wobbles: list[tuple[float, int]] = []  # deviation of its steps over the usual one, and how many
        self.stretches = tuple(
            piece for start, end in itertools.pairwise(self.bounds.tolist()) for piece in self._judge(start, end)
        )
        for start, step in self.usual:
            if abs(step - self.usual[0][1]) > OTHER_RATE * self.usual[0][1]:
                self.mixed[start : self.end(start)] = True

    def end(self, start: int) -> int:
        """Where the trajectory of a row ends."""
        return int(self.bounds[np.searchsorted(self.bounds, start, side="right")])

    @property
    def step(self) -> float:
        """The usual step of most trajectories."""
        return float(np.median([step for _, step in self.usual])) if self.usual else 0.0

    @property
    def scale(self) -> float:
        """Time units a second, told by the usual step alone."""
        step = self.step / SLOWEST_STEP
        return 1.0 if step < 1 else float(10.0 ** (3 * min(3, 1 + np.floor(np.log10(step) / 3))))

    @property
    def wobble(self) -> float:
        """Standard deviation of the steps, in usual steps."""
        total = sum(count for _, count in self._wobbles)
        return float(np.sqrt(sum(one**2 * count for one, count in self._wobbles) / total)) if total else 0.0

    def _judge(self, start: int, end: int) -> list[Stretch]:
        """One trajectory; its stretches."""
        t = self.t[start:end]
        steps = np.diff(t)
        good = steps[np.isfinite(steps) & (steps > 0)]
        step = float(np.median(good)) if len(good) else 0.0
        odd = np.abs(good - step) > ODD * step
        even = good[~odd]
        wobble = float(np.std(even) / step) if len(even) > 1 else 0.0
        rest = slice(start + 1, end)
        self.back[rest], self.again[rest] = steps < 0, steps == 0
        if np.count_nonzero(odd) > MIXED_SHARE * len(good):
            self.mixed[rest], wobble = np.abs(steps - step) > ODD * step, 0.0
        else:
            self.gap[rest] = steps > step * max(GAP, 1 + GAP_SPREADS * wobble)
            self.gap[start + 2 : end] &= ~self.again[start + 1 : end - 1]  # a repeated time makes the next step long
        if len(good):
            self.usual.append((start, step))
            self._wobbles.append((wobble, len(even)))
        broken = ~np.isfinite(t)
        broken[1:] |= ~(steps > 0) | self.gap[rest]
        cuts = [start, *(start + np.flatnonzero(broken)).tolist(), end]
        pieces = [Stretch(a, b, step) for a, b in itertools.pairwise(cuts) if b > a]
        return [piece for piece in pieces if np.isfinite(self.t[piece.start])]
