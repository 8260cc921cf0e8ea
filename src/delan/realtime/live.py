"""A window into a running loop: rows out and orders in, through shared memory; those who watch cannot hold it up."""

import threading
import time
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from .addresses import Address, WatchError, address_folder, is_alive, read_address
from .channels import ChannelError, Latest, Layout, Stream
from .log import row_layout
from .plan import Plan

RING_SECONDS = 60.0
"""How much of the past somebody who comes late can still see [s]."""
AHEAD_SECONDS, AHEAD_POINTS = 2.4, 80
"""How far ahead the wanted motion is shown [s], and in how many points."""
AHEAD_PERIOD = 0.1
"""Time between two looks ahead [s]."""

PHASES = ("preparing", "ready", "running", "paused", "stopped")
MODES = ("wait", "run", "pause", "stop")
LEARNING = ("loss", "error", "samples", "steps")
"""What a learner tells of itself: the loss of its last step, its nMSE on samples never trained on, and counts."""


class Orders(NamedTuple):
    """What the watcher wants: plain numbers, so that they can lie in shared memory.

    Attributes:
        mode: of `MODES`; model, reference: place in the lists of the run.
        speed: so many times faster than usual.
        payload: by which share the last link is heavier.
        kicks, resets: how often the arm was kicked and the weights were thrown away so far.
    """

    mode: int = 0
    model: int = 0
    reference: int = 0
    speed: float = 1.0
    payload: float = 0.0
    kicks: int = 0
    resets: int = 0

    @classmethod
    def of(cls, row: Any) -> "Orders":
        mode, model, reference, speed, payload, kicks, resets = (float(one) for one in row)
        return cls(int(mode), int(model), int(reference), speed, payload, int(kicks), int(resets))


class Standing(NamedTuple):
    """How the run stands, told at every change: its phase, and the orders that it follows."""

    phase: int
    done: int
    total: int
    orders: Orders

    @classmethod
    def of(cls, row: Any) -> "Standing":
        return cls(int(row[0]), int(row[1]), int(row[2]), Orders.of(row[3:]))


def live_layout(dof: int) -> Layout:
    """What the loop shows of every period: what it writes down, how late it began [s], and counts since the start."""
    return Layout.of(**row_layout(dof).sizes, lateness=1, missed=1, late=1, refused=1, learner=len(LEARNING))


@runtime_checkable
class Onlooker(Protocol):
    """Whom the loop shows every period in which it acted; must not wait for anything."""

    def see(self, row: Float[np.ndarray, " row"], plan: Plan, period: int, counts: "Counts") -> None: ...


class Counts(NamedTuple):
    """How late the period began [s], and how often something was missed, late or refused in this run so far."""

    lateness: float
    missed: int
    late: int
    refused: int


class Broadcast:
    """The loop's end: shows what happens, and knows what is wanted.

    Attributes:
        told: the last orders seen; learning: what the learner told last, kept up by whoever leads the run.
    """

    def __init__(self, dof: int, dt: float, orders: Orders | None = None, *, stop: threading.Event | None = None):
        """With `stop`, the order to stop sets it, and other orders are nobody's business."""
        self._stop = stop
        self._dof, self._every = dof, max(1, round(AHEAD_PERIOD / dt))
        self._steps = np.linspace(0, AHEAD_SECONDS / dt, AHEAD_POINTS).astype(int)
        self._rows = Stream(max(2, int(RING_SECONDS / dt)), live_layout(dof).width)
        self._ahead = Latest(AHEAD_POINTS * dof)
        self._standing = Latest(3 + len(Orders._fields))
        self._orders = Latest(len(Orders._fields))
        self.told = orders or Orders()
        self._orders.publish(self.told)
        self._before = np.zeros(3)
        self._last = np.zeros(3)
        self.learning: Any = np.full(len(LEARNING), np.nan)

    @property
    def names(self) -> dict[str, str]:
        """Of the channels, for the `Address`."""
        channels = {"rows": self._rows, "ahead": self._ahead, "orders": self._orders, "standing": self._standing}
        return {kind: channel.name for kind, channel in channels.items()}

    def orders(self) -> Orders:
        """What is wanted now."""
        row = self._orders.read()
        if row is not None and np.isfinite(row).all():
            self.told = Orders.of(row)
        return self.told

    def await_audience(self, seconds: float) -> bool:
        """Wait until somebody looks, so long at the most [s]; whether he does."""
        end = time.monotonic() + seconds
        while self._orders.written < 2 and time.monotonic() < end:  # the first row is our own
            time.sleep(0.02)
        return self._orders.written > 1

    def stand(self, phase: str, orders: Orders, *, done: int = 1, total: int = 1) -> None:
        """Tell how the run stands."""
        self._standing.publish([PHASES.index(phase), done, total, *orders])

    def begin(self) -> None:
        """A new run of the loop follows, whose counts go on from those of the last."""
        self._before, self._last = self._before + self._last, np.zeros(3)

    def see(self, row: Float[np.ndarray, " row"], plan: Plan, period: int, counts: Counts) -> None:
        self._last = np.array(counts[1:], dtype=float)
        self._rows.write(np.concatenate([row, (counts.lateness,), self._before + self._last, self.learning]))
        if period % self._every == 0:
            at = np.minimum(period - plan.first + self._steps, len(plan.rows) - 1)
            self._ahead.publish(plan.rows[at, : self._dof].ravel())
        if self._stop is not None and MODES[self.orders().mode] == "stop":
            self._stop.set()

    def remove(self) -> None:
        """Before the process ends at once: leave nothing behind."""
        for channel in (self._rows, self._ahead, self._standing, self._orders):
            channel.remove()

    def close(self) -> None:
        for channel in (self._rows, self._ahead, self._standing, self._orders):
            channel.close()


class Audience:
    """The watcher's end of a run."""

    def __init__(self, address: Address):
        self.address, self.layout = address, live_layout(address.dof)
        try:
            self._rows, self._ahead = Stream.attach(address.rows), Latest.attach(address.ahead)
            self._orders, self._standing = Latest.attach(address.orders), Latest.attach(address.standing)
        except ChannelError as error:
            raise WatchError(f"the run of process {address.pid} cannot be watched: {error}") from None
        self._weights: dict[str, Latest] = {}
        self._seen = 0
        given = self._orders.read()
        self.wanted = Orders() if given is None or not np.isfinite(given).all() else Orders.of(given)
        self.standing: Standing | None = None

    @property
    def alive(self) -> bool:
        """Whether the process of the run is there."""
        return is_alive(self.address.pid)

    def rows(self) -> Float[np.ndarray, "time width"]:
        """What happened since the last call; at the first call all that is still there."""
        rows, self._seen = self._rows.since(self._seen)
        return rows

    def ahead(self) -> Float[np.ndarray, "points dof"] | None:
        """The wanted positions from now on, if they are told anew."""
        row = self._ahead.read()
        return None if row is None else row.reshape(AHEAD_POINTS, self.address.dof)

    def look(self) -> Standing | None:
        """How the run stands; None before it told."""
        row = self._standing.read()
        if row is not None:
            self.standing = Standing.of(row)
        return self.standing

    @property
    def phase(self) -> str:
        """How the run stands in one word, of `PHASES`, or before and between them: waking up, stopping."""
        standing = self.look()
        if not self.alive:
            return "stopped"
        if MODES[self.wanted.mode] == "stop":
            return "stopping"
        return "waking up" if standing is None else PHASES[standing.phase]

    def weights(self, model: str) -> Float[np.ndarray, " numbers"] | None:
        """The numbers of a learned model in use, if they are new; None, too, of a run that just ended."""
        if model not in self._weights:
            try:
                if model not in self.address.weights:  # they are told later than the rest
                    self.address = read_address(address_folder() / f"{self.address.pid}.json")
                if model not in self.address.weights:
                    return None
                self._weights[model] = Latest.attach(self.address.weights[model])
            except (ChannelError, WatchError):
                return None
        return self._weights[model].read()

    def order(self, **changes: Any) -> None:
        """Want something else; the loop sees it in its next period."""
        self.wanted = self.wanted._replace(**changes)
        self._orders.publish(self.wanted)

    def close(self) -> None:
        for channel in (self._rows, self._ahead, self._standing, self._orders, *self._weights.values()):
            channel.close()
