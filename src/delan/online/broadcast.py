"""Watching a run from other processes: rows out and orders in, through shared memory.

A run announces its address in a folder of its user and removes it when it ends. Watchers cannot
hold up the loop. Nothing here imports JAX, so that the page opens at once.
"""

import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..errors import DelanError
from .channels import ChannelError, Latest, RowLayout, Stream
from .process import is_alive
from .stats import row_layout

RING_SECONDS = 60.0  # how much of the past a watcher that joins late can still see [s]
AHEAD_SECONDS = 2.4  # how far ahead the reference is shown [s]
AHEAD_POINTS = 80  # in how many points
AHEAD_PERIOD = 0.1  # time between two updates of these points [s]

PHASES = ("preparing", "ready", "running", "paused", "stopped")
MODES = ("wait", "run", "pause", "stop")
# What a learner reports: loss of its last step, held-out nMSE, samples trained on, steps.
LEARNING = ("loss", "error", "samples", "steps")


class WatchError(DelanError):
    """There is no run to watch, or it cannot be reached."""


@dataclass(frozen=True)
class Address:
    """Where a run can be watched, as written to its JSON file.

    Attributes:
        rows, ahead, orders, standing: names of the channels.
        models, references: what a watcher can choose from; empty if it can only stop the run.
        weights: for each learned model, the channel of its weights.
        settings: settings of the run, from which its models can be built.
    """

    pid: int
    robot: str
    dof: int
    dt: float
    rows: str
    ahead: str
    orders: str
    standing: str
    models: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def address_folder() -> Path:
    """Return the folder of addresses, readable by this user only."""
    root = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(tempfile.gettempdir()) / f"delan-{os.getuid()}"
    if root:
        folder = Path(root) / "delan"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise WatchError(
            f"{folder} belongs to another user; set XDG_RUNTIME_DIR to a folder of your own"
        )
    return folder


def announce(address: Address, path: Path) -> None:
    """Write an address atomically."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(asdict(address)))
    aside.replace(path)


def read_address(path: Path) -> Address:
    """Return the address in a file."""
    try:
        content = json.loads(path.read_text())
        known = {item.name: content[item.name] for item in fields(Address)}
        known["models"] = tuple(known["models"])
        known["references"] = tuple(known["references"])
        return Address(**known)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise WatchError(f"{path}: not the address of a run ({error})") from None


def running() -> list[Address]:
    """Return the runs of this user, the newest last; addresses of ended runs are removed."""
    addresses = []
    for path in address_folder().glob("*.json"):
        try:
            address = read_address(path)
            written = path.stat().st_mtime
        except (WatchError, OSError):
            continue  # not an address, or its run has just removed it
        if is_alive(address.pid):
            addresses.append((written, address))
        else:
            path.unlink(missing_ok=True)
    addresses.sort(key=lambda found: found[0])
    return [address for _, address in addresses]


class Orders(NamedTuple):
    """What the watcher wants, as numbers that fit into shared memory.

    Attributes:
        mode: index into `MODES`.
        model, reference: index into the lists of the address.
        speed: factor on the usual speed.
        payload: additional mass of the last link, as a fraction of its own.
        kicks, resets: how often the arm was kicked and the weights were reset so far.
    """

    mode: int = 0
    model: int = 0
    reference: int = 0
    speed: float = 1.0
    payload: float = 0.0
    kicks: int = 0
    resets: int = 0

    @classmethod
    def newest(cls, channel: Latest, known: "Orders") -> "Orders":
        """Return the orders in a channel, or the known ones if there are no new finite ones."""
        row = channel.read()
        if row is None or not np.isfinite(row).all():
            return known
        return cls.of(row)

    @classmethod
    def of(cls, row: Any) -> "Orders":
        mode, model, reference, speed, payload, kicks, resets = np.asarray(row).tolist()
        return cls(int(mode), int(model), int(reference), speed, payload, int(kicks), int(resets))


class Standing(NamedTuple):
    """The phase of a run, its progress in that phase, and the orders it follows."""

    phase: int
    done: int
    total: int
    orders: Orders

    @classmethod
    def of(cls, row: Any) -> "Standing":
        return cls(int(row[0]), int(row[1]), int(row[2]), Orders.of(row[3:]))


class ShownPeriod(NamedTuple):
    """A control period as shown to an onlooker.

    Attributes:
        number: of the period, counted from 0.
        row: state, torque and target, in the order of `row_layout`.
        ahead: targets (q, q̇, q̈) from this period on.
        lateness: how late the period began [s].
        missed, late, refused: periods missed, late feed-forward torques and refused models so far.
    """

    number: int
    row: Float[np.ndarray, " row"]
    ahead: Float[np.ndarray, "time columns"]
    lateness: float
    missed: int
    late: int
    refused: int


@runtime_checkable
class Onlooker(Protocol):
    """Sees every period in which the loop acts; must never wait."""

    def see(self, period: ShownPeriod) -> None: ...


def live_layout(dof: int) -> RowLayout:
    """Return the layout of a broadcast row: the logged row, lateness [s], counts, learner."""
    return RowLayout.of(
        **row_layout(dof).sizes, lateness=1, missed=1, late=1, refused=1, learner=len(LEARNING)
    )


class Broadcast:
    """The end of the loop: shows every period and reads the orders.

    Attributes:
        latest: the last orders read.
        learning: the last report of the learner, in the order of `LEARNING`; set by the host.
    """

    def __init__(
        self,
        dof: int,
        dt: float,
        orders: Orders | None = None,
        *,
        stop: threading.Event | None = None,
    ):
        """Create the channels; with `stop`, an order to stop sets that event."""
        self._stop = stop
        self._dof = dof
        self._every = max(1, round(AHEAD_PERIOD / dt))
        self._steps = np.linspace(0, AHEAD_SECONDS / dt, AHEAD_POINTS).astype(int)
        self._rows = Stream(max(2, int(RING_SECONDS / dt)), live_layout(dof).width)
        self._ahead = Latest(AHEAD_POINTS * dof)
        self._standing = Latest(3 + len(Orders._fields))
        self._orders = Latest(len(Orders._fields))
        self._channels = (self._rows, self._ahead, self._standing, self._orders)
        self.latest = orders or Orders()
        self._orders.write(self.latest)
        self._earlier = np.zeros(3)  # counts of earlier runs of the loop
        self._counts = np.zeros(3)  # counts of the current one
        self.learning: Any = np.full(len(LEARNING), np.nan)

    @property
    def names(self) -> dict[str, str]:
        """The names of the channels, as in `Address`."""
        return {
            "rows": self._rows.name,
            "ahead": self._ahead.name,
            "orders": self._orders.name,
            "standing": self._standing.name,
        }

    def orders(self) -> Orders:
        """Return the current orders."""
        self.latest = Orders.newest(self._orders, self.latest)
        return self.latest

    def await_audience(self, seconds: float) -> bool:
        """Wait for a watcher, at most the given time [s]; return whether there is one."""
        end = time.monotonic() + seconds
        # The broadcast itself has written the first row of orders.
        while self._orders.written < 2 and time.monotonic() < end:
            time.sleep(0.02)
        return self._orders.written > 1

    def stand(self, phase: str, orders: Orders, *, done: int = 1, total: int = 1) -> None:
        """Publish the phase of the run."""
        self._standing.write([PHASES.index(phase), done, total, *orders])

    def begin(self) -> None:
        """Start another run of the loop; counts continue from the last one."""
        self._earlier = self._earlier + self._counts
        self._counts = np.zeros(3)

    def see(self, period: ShownPeriod) -> None:
        """Publish a period and, now and then, the reference ahead of it."""
        self._counts = np.array([period.missed, period.late, period.refused], dtype=float)
        counts = self._earlier + self._counts
        self._rows.write(np.concatenate([period.row, [period.lateness], counts, self.learning]))
        if period.number % self._every == 0:
            at = np.minimum(self._steps, len(period.ahead) - 1)
            self._ahead.write(period.ahead[at, : self._dof].ravel())
        if self._stop is not None and MODES[self.orders().mode] == "stop":
            self._stop.set()

    def remove(self) -> None:
        """Unlink the channels before the process exits abruptly."""
        for channel in self._channels:
            channel.remove()

    def close(self) -> None:
        """Close the channels."""
        for channel in self._channels:
            channel.close()


class Audience:
    """The end of a watcher."""

    def __init__(self, address: Address):
        self.address = address
        self.layout = live_layout(address.dof)
        try:
            self._rows = Stream.attach(address.rows)
            self._ahead = Latest.attach(address.ahead)
            self._orders = Latest.attach(address.orders)
            self._standing = Latest.attach(address.standing)
        except ChannelError as error:
            raise WatchError(
                f"the run of process {address.pid} cannot be watched: {error}"
            ) from None
        self._weights: dict[str, Latest] = {}
        self._seen = 0
        self.wanted = Orders.newest(self._orders, Orders())
        self.standing: Standing | None = None

    @property
    def alive(self) -> bool:
        """Whether the process of the run is alive."""
        return is_alive(self.address.pid)

    def rows(self) -> Float[np.ndarray, "time width"]:
        """Return the rows since the last call; on the first call, all that are in the ring."""
        rows, self._seen = self._rows.since(self._seen)
        return rows

    def ahead(self) -> Float[np.ndarray, "points dof"] | None:
        """Return the reference positions from now on, or None if they did not change."""
        row = self._ahead.read()
        return None if row is None else row.reshape(AHEAD_POINTS, self.address.dof)

    def look(self) -> Standing | None:
        """Return the standing of the run, or None before it is published."""
        row = self._standing.read()
        if row is not None:
            self.standing = Standing.of(row)
        return self.standing

    @property
    def phase(self) -> str:
        """One of `PHASES`, "waking up" or "stopping"."""
        standing = self.look()
        if not self.alive:
            return "stopped"
        if MODES[self.wanted.mode] == "stop":
            return "stopping"
        return "waking up" if standing is None else PHASES[standing.phase]

    def weights(self, model: str) -> Float[np.ndarray, " numbers"] | None:
        """Return the weights of a learned model, or None if they are not new or not there."""
        if model not in self._weights:
            try:
                # The channels of the weights are announced later than the others.
                if model not in self.address.weights:
                    self.address = read_address(address_folder() / f"{self.address.pid}.json")
                if model not in self.address.weights:
                    return None
                self._weights[model] = Latest.attach(self.address.weights[model])
            except (ChannelError, WatchError):
                return None
        return self._weights[model].read()

    def order(self, **changes: Any) -> None:
        """Change the orders; the loop reads them in its next period."""
        self.wanted = self.wanted._replace(**changes)
        self._orders.write(self.wanted)

    def close(self) -> None:
        """Detach from the channels."""
        for channel in (self._rows, self._ahead, self._standing, self._orders):
            channel.close()
        for channel in self._weights.values():
            channel.close()
