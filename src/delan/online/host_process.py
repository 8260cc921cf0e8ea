"""The process of a run led by its watchers: `python -m delan.online.host_process`.

It reads `LiveSettings` as JSON from stdin. The models and their compilers are imported after the
run has announced itself, so that the page does not wait for them.
"""

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import SettingsError
from ..robots import arm_named
from .broadcast import MODES, Address, Broadcast, Orders, address_folder, announce
from .process import ENDING, POLL_PERIOD, bind, handled

ModelName = Literal["none", "analytic", "identified", "feedforward", "delan", "chain"]
ReferenceName = Literal["letters", "cosines"]
MODELS: tuple[ModelName, ...] = ("none", "analytic", "identified", "feedforward", "delan", "chain")
LEARNED: tuple[ModelName, ...] = ("feedforward", "delan", "chain")
# Display names of the models.
NAMES: dict[str, str] = {
    "none": "PD alone",
    "analytic": "analytic",
    "identified": "identified",
    "feedforward": "feed-forward net",
    "delan": "DeLaN",
    "chain": "chain",
}
PAGE_SECONDS = 3.0  # how long to wait for the page before the models are imported and compiled [s]
RATE = 500.0  # control rate [Hz]


@dataclass(frozen=True)
class LiveSettings:
    """Settings of a run that is led by its watchers.

    Attributes:
        model, models: source of the feed-forward torque at first, and those that can be chosen.
        seconds: longest time that the robot moves [s].
        core: processor core of the loop.
        record: file for the recording, or None.
    """

    robot: str = "two-link"
    model: ModelName = "delan"
    models: tuple[ModelName, ...] = MODELS
    reference: ReferenceName = "letters"
    letters: str = "adegmnru"
    speed: float = 1.0
    seed: int = 0
    seconds: float = 1800.0
    core: int = 0
    record: str | None = None

    def __post_init__(self) -> None:
        arm_named(self.robot)
        if self.model not in self.models or not set(self.models) <= set(MODELS):
            raise SettingsError(
                f"expected models among {', '.join(MODELS)} that include {self.model}, "
                f"got {', '.join(self.models)}"
            )
        if self.reference not in self.references:
            raise SettingsError(
                f"{self.robot} cannot follow {self.reference}; use {', '.join(self.references)}"
            )
        if not (0 < self.seconds < float("inf") and 0 < self.speed < float("inf")):
            raise SettingsError(
                "seconds and speed must be positive and finite, "
                f"got {self.seconds} and {self.speed}"
            )

    @property
    def references(self) -> tuple[ReferenceName, ...]:
        return ("letters", "cosines") if self.robot == "two-link" else ("cosines",)


def begin(settings: LiveSettings) -> tuple[Broadcast, Address]:
    """Create the channels of a run that waits to be started; return them and their address."""
    dof = arm_named(settings.robot).joints.dof
    first = Orders(
        model=settings.models.index(settings.model),
        reference=settings.references.index(settings.reference),
        speed=settings.speed,
    )
    broadcast = Broadcast(dof, 1 / RATE, first)
    broadcast.stand("preparing", first, done=0, total=1)
    address = Address(
        pid=os.getpid(),
        robot=settings.robot,
        dof=dof,
        dt=1 / RATE,
        **broadcast.names,
        models=settings.models,
        references=settings.references,
        weights={},
        settings=asdict(settings),
    )
    return broadcast, address


@contextmanager
def ended_early(asked: Callable[[], bool], tidy: Callable[[], None]) -> Iterator[threading.Lock]:
    """Let a signal of `ENDING` or `asked` end the process with code 0 after `tidy`.

    Imports and compilations in C delay Python's signal handlers for many seconds. As long as the
    robot has not moved there is nothing to save, so a thread tidies up and ends the process. Both
    callbacks are called by that thread. Yields a lock; what `tidy` must find complete is created
    while it is held. To be used in the main thread; earlier handlers are restored at the end.
    """
    hearing, speaking = os.pipe()
    os.set_blocking(speaking, False)
    over = threading.Event()
    lock = threading.Lock()

    def watch() -> None:
        while not over.is_set():
            heard = select.select([hearing], [], [], POLL_PERIOD)[0]
            if not over.is_set() and (heard or asked()):
                with lock:
                    try:
                        tidy()
                    finally:
                        os._exit(0)

    thread = threading.Thread(target=watch, name="early end", daemon=True)
    try:
        # The handler does nothing: the system writes to the pipe, whatever Python is busy with.
        with handled(ENDING, lambda *_: None):
            wakeup = signal.set_wakeup_fd(speaking, warn_on_full_buffer=False)
            thread.start()
            try:
                yield lock
            finally:
                over.set()
                thread.join()
                signal.set_wakeup_fd(wakeup)
    finally:
        missed = select.select([hearing], [], [], 0)[0]
        os.close(hearing)
        os.close(speaking)
        if missed:  # a signal came while the thread ended
            os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run with the settings on stdin, and announce the address while it lasts."""
    text = sys.stdin.read()
    if not text:
        return  # the page could not be opened
    content = json.loads(text)
    settings = LiveSettings(**{**content, "models": tuple(content["models"])})
    path = address_folder() / f"{os.getpid()}.json"
    parts: list[Any] = []  # the broadcast, then the host

    def stop_ordered() -> bool:
        return len(parts) > 0 and MODES[parts[0].orders().mode] == "stop"

    def tidy() -> None:
        for part in parts:
            part.remove()
        path.unlink(missing_ok=True)

    def ask_stop(*_: Any) -> None:
        for host in parts[1:]:
            host.ask_stop()

    for number in ENDING:
        signal.signal(number, ask_stop)
    try:
        with ended_early(stop_ordered, tidy) as lock:
            _prepare(settings, parts, path, lock)
        parts[1].lead()
    finally:
        for part in reversed(parts):
            part.close()
        path.unlink(missing_ok=True)


def _prepare(settings: LiveSettings, parts: list[Any], path: Path, lock: threading.Lock) -> None:
    """Create and announce the broadcast, then create the host, which imports and compiles."""
    with lock:
        broadcast, address = begin(settings)
        parts.append(broadcast)
        announce(address, path)
    bind({settings.core})  # leave the other cores to the page and the learners
    broadcast.await_audience(PAGE_SECONDS)
    from .host import Host  # noqa: PLC0415 (heavy, see the top)

    parts.append(Host(settings, broadcast))
    parts[1].prepare(lambda weights: announce(replace(address, weights=weights), path), lock)


if __name__ == "__main__":
    main()
