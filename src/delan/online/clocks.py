"""Clocks, wall or stepped, and periodic deadlines without drift."""

import math
import time
from typing import NamedTuple, Protocol, runtime_checkable

from ..errors import SettingsError


@runtime_checkable
class Clock(Protocol):
    """The time of a loop [s]; only differences have a meaning."""

    def now(self) -> float: ...

    def sleep_until(self, t: float) -> None:
        """Return at the time t, or at once if it has passed."""
        ...


class WallClock:
    """Real time [s], the same in all processes of a machine."""

    def __init__(self, *, spin: float = 200e-6):
        """Busy-wait for the last `spin` seconds: a sleep alone wakes up late."""
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
    """A clock that only advances when it sleeps, for reproducible runs."""

    def __init__(self, start: float = 0.0):
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep_until(self, t: float) -> None:
        self._now = max(self._now, t)


class Tick(NamedTuple):
    """The beginning of a period.

    Attributes:
        number: of the period, counted from 0.
        t: nominal beginning, start + number · dt [s].
        lateness: delay of the actual beginning [s].
    """

    number: int
    t: float
    lateness: float


class Deadlines:
    """Ticks at start + k · dt: a late tick does not delay the next, a passed period is skipped.

    Attributes:
        missed: total number of periods that passed completely.
    """

    def __init__(self, clock: Clock, dt: float):
        """Start with a period of dt [s] now."""
        if not 0 < dt < math.inf:
            raise SettingsError(f"a period must be a positive number of seconds, got {dt}")
        self._clock = clock
        self._dt = dt
        self._start = clock.now()
        self._next = 0
        self.missed = 0

    def wait(self) -> Tick:
        """Sleep until the next period begins, and return its tick."""
        self._clock.sleep_until(self._start + self._next * self._dt)
        now = self._clock.now()
        number = max(self._next, int((now - self._start) / self._dt))
        self.missed += number - self._next
        self._next = number + 1
        t = self._start + number * self._dt
        # The division may round up to the next period; its lateness is then negative, so clip it.
        return Tick(number, t, max(0.0, now - t))
