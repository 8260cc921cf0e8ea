"""Time behind one interface, the wall's or one that moves when told, and ticks at a steady period without drift."""

import math
import time
from typing import NamedTuple, Protocol, runtime_checkable

from ..errors import SettingsError


@runtime_checkable
class Clock(Protocol):
    """What a loop may ask of time [s]; only differences mean something."""

    def now(self) -> float: ...

    def sleep_until(self, t: float) -> None:
        """Return at the time t, at once if it has passed."""
        ...


class WallClock:
    """The time of the wall [s]; all processes of a machine read the same.

    Sleeping wakes up late by the whim of the scheduler: the last `spin` seconds before the goal are spent awake.
    """

    def __init__(self, *, spin: float = 200e-6):
        self._spin = spin

    def now(self) -> float:
        return time.perf_counter()

    def sleep_until(self, t: float) -> None:
        rest = t - time.perf_counter() - self._spin
        if rest > 0:
            time.sleep(rest)
        while time.perf_counter() < t:
            pass


class SteppedClock:
    """A time that stands still between sleeps and sleeps in no time: the same run, every run."""

    def __init__(self, start: float = 0.0):
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep_until(self, t: float) -> None:
        self._now = max(self._now, t)


class Tick(NamedTuple):
    """The beginning of a period.

    Attributes:
        number: of the period; the first is 0.
        t: when it should begin [s]; start + number · dt.
        lateness: how much later it began [s].
        missed: periods that passed entirely between the last tick and this one.
    """

    number: int
    t: float
    lateness: float
    missed: int


class Deadlines:
    """Ticks at start + k · dt: a late one delays none of the next, and a period that has passed is skipped.

    Attributes:
        missed: periods that passed entirely, in all.
    """

    def __init__(self, clock: Clock, dt: float):
        """Periods of dt [s] by the given clock; the first begins now."""
        if not 0 < dt < math.inf:
            raise SettingsError(f"a period must be a positive number of seconds, got {dt}")
        self._clock, self._dt = clock, dt
        self._start = clock.now()
        self._next = 0
        self.missed = 0

    def wait(self) -> Tick:
        """Sleep until the next period begins, or tell how late it is."""
        self._clock.sleep_until(self._start + self._next * self._dt)
        now = self._clock.now()
        number = max(self._next, int((now - self._start) / self._dt))
        missed = number - self._next
        t = self._start + number * self._dt
        self._next = number + 1
        self.missed += missed
        # The division may round up to a period that is a rounding error away: that one is on time.
        return Tick(number, t, max(0.0, now - t), missed)
