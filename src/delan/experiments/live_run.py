"""The process of a run that can be watched: `python -m delan.experiments.live_run`, settings as JSON on stdin.

Nothing heavy is imported before the run can be found: the page does not wait for JAX.
"""

import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import SettingsError
from ..realtime.addresses import Address, address_folder, announce
from ..realtime.early_end import ended_early
from ..realtime.live import MODES, Broadcast, Orders
from ..realtime.priority import keep_to
from ..robots.arms import arm_named

ModelName = Literal["none", "analytic", "identified", "feedforward", "delan", "chain"]
ReferenceName = Literal["letters", "cosines"]
MODELS: tuple[ModelName, ...] = ("none", "analytic", "identified", "feedforward", "delan", "chain")
NAMES: dict[str, str] = {
    "none": "PD alone",
    "analytic": "analytic",
    "identified": "identified",
    "feedforward": "feed-forward net",
    "delan": "DeLaN",
    "chain": "chain",
}
"""What people call the models."""
PAGE_SECONDS = 3.0
"""How long the page may take to open before the run begins to load and to compile what it needs [s]."""
RATE = 500.0
"""Control periods a second [Hz]."""


@dataclass(frozen=True)
class LiveSettings:
    """What to run.

    Attributes:
        model: whose torque joins PD control at first, of the `models` that can be chosen.
        seconds: how long the robot moves at the most.
        core: the loop's.
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
            raise SettingsError(f"expected models among {', '.join(MODELS)}, {self.model} with them, got {self.models}")
        if self.reference not in self.references:
            raise SettingsError(f"{self.reference} are not for {self.robot}; there are {', '.join(self.references)}")
        if not (0 < self.seconds < float("inf") and 0 < self.speed < float("inf")):
            raise SettingsError(f"seconds and speed must be positive and finite, got {self.seconds} and {self.speed}")

    @property
    def references(self) -> tuple[ReferenceName, ...]:
        return ("letters", "cosines") if self.robot == "two-link" else ("cosines",)


def begin(settings: LiveSettings) -> tuple[Broadcast, Address]:
    """The channels of a run that waits to be started, and where they are."""
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


def main() -> None:
    """Run by the settings on stdin, and leave the address where it can be found."""
    told = sys.stdin.read()
    if not told:
        return  # the page could not be opened
    given = json.loads(told)
    settings = LiveSettings(**{**given, "models": tuple(given["models"])})
    path = address_folder() / f"{os.getpid()}.json"
    made: list[Any] = []  # the broadcast, then the host

    def asked() -> bool:
        return len(made) > 0 and MODES[made[0].orders().mode] == "stop"

    def leave() -> None:
        for one in made:
            one.remove()
        path.unlink(missing_ok=True)

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: [host.ask_stop() for host in made[1:]])
    try:
        with ended_early(asked, leave) as whole:
            _prepare(settings, made, path, whole)
        made[1].lead()
    finally:
        for one in reversed(made):
            one.close()
        path.unlink(missing_ok=True)


def _prepare(settings: LiveSettings, made: list[Any], path: Path, whole: threading.Lock) -> None:
    """Make the broadcast and leave its address, then make the host, which loads and compiles for long."""
    with whole:
        broadcast, address = begin(settings)
        made.append(broadcast)
        announce(address, path)
    keep_to(settings.core)  # what compiles here does not disturb the learner, nor the page
    broadcast.await_audience(PAGE_SECONDS)
    from .live_host import Host  # noqa: PLC0415 (see above)

    made.append(Host(settings, broadcast))
    made[1].prepare(lambda weights: announce(address.with_weights(weights), path), whole)


if __name__ == "__main__":
    main()
