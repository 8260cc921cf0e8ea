"""A run that goes on, on the page: what it does, and buttons that tell it what to do."""

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any

from ..experiments.live_run import NAMES
from ..realtime.addresses import Address
from ..realtime.live import MODES, Audience
from .controls import Controls
from .curves import SECONDS, standstill
from .page import Page, at_pace, error_text
from .parts import Dissection, of_run
from .sources import KEPT_SECONDS, LiveSource

END_SECONDS = 15.0
"""How long it may take to stop the robot and to save [s]."""
STILL_SECONDS = 3.0
"""A learner that did nothing for so long is told of [s]."""
LEARNED = ("feedforward", "delan", "chain")
FACTS_PERIOD = 0.25
PARTS_PERIOD = 0.05


class LivePage:
    """The page of one run, or of two side by side that are told the same."""

    def __init__(self, server: Any, addresses: list[Address], names: tuple[str, str] = ("", "")):
        self._sources = [LiveSource(address) for address in addresses]
        rival = self._sources[1] if len(self._sources) > 1 else None
        self._page = Page(server, self._sources[0], live=True, rival=rival, names=names)
        self._rival_name = names[1]
        self._controls = Controls(server, [source.audience for source in self._sources], rival=names[1] or None)
        first = addresses[0]
        self._dissection = Dissection(lambda name: of_run(first.settings, name))
        self._weights: dict[str, Any] = {}
        self._facts_due = self._parts_due = 0.0
        self._server, self._greeted = server, False

    @property
    def alive(self) -> bool:
        """Whether any of the runs goes on."""
        return any(source.audience.alive for source in self._sources)

    def draw(self) -> None:
        """One picture."""
        if not self._greeted and self._server.get_clients():
            self._greeted = True
            for source in self._sources:
                source.audience.order()  # somebody looks: let it load what is heavy
        fresh = sum(source.poll() for source in self._sources)
        self._controls.update()
        if fresh:
            self._page.draw()
        now = time.monotonic()
        if fresh and now >= self._parts_due and self._server.get_clients():
            self._parts_due = now + PARTS_PERIOD
            self._dissect()
        if now >= self._facts_due:
            self._facts_due = now + FACTS_PERIOD
            warning = self._warning()
            self._page.plots.warn(warning)
            self._controls.facts.content = self._facts() + (f"\n\n{warning}" if warning else "")

    def _dissect(self) -> None:
        audience = self._sources[0].audience
        standing = audience.look()
        if standing is None or not audience.address.models:
            return
        model = audience.address.models[standing.orders.model]
        if model in LEARNED:
            new = audience.weights(model)
            self._weights[model] = self._weights.get(model) if new is None else new
        self._page.dissect(self._dissection, model, self._weights.get(model))

    def _facts(self) -> str:
        """What is so, in a few lines; the browser's tests read them, too."""
        source, audience = self._sources[0], self._sources[0].audience
        phase, standing = audience.phase, audience.look()
        told = [f"**Status** {phase}"]
        if phase == "stopped":
            told.append(ended_text(audience))
        if standing is None:
            return "\n\n".join(told)
        if phase == "preparing":
            told[0] += f": compiling, {standing.done:.0f} of {standing.total:.0f} steps done"
        columns = source.recent(SECONDS)
        if len(columns["t"]):
            if audience.address.models:
                told.append(f"**Leads** {NAMES[audience.address.models[standing.orders.model]]}")
            told.append(f"**Tracking error** {error_text(columns)} rad")
            if len(self._sources) > 1 and len(self._sources[1].recent(1.0)["t"]):
                told.append(f"**{self._rival_name}** {error_text(self._sources[1].recent(1.0))} rad")
            told.append(f"**Time** {columns['t'][-1, 0]:.1f} s")
            counts = {name: int(columns[name][-1, 0]) for name in ("missed", "late", "refused")}
            told.append(
                "**Periods missed** {missed}, **torques late** {late}, **models refused** {refused}".format(**counts)
            )
            if standing.orders.payload:
                told.append(f"**Payload** + {100 * standing.orders.payload:.0f} %")
        if self._dissection.problem:
            told.append(self._dissection.problem)
        return "\n\n".join(told)

    def _warning(self) -> str:
        """What to know of the learner of the model that leads, if something is amiss."""
        audience = self._sources[0].audience
        if audience.phase != "running" or audience.standing is None or not audience.address.models:
            return ""
        model = audience.address.models[audience.standing.orders.model]
        return learner_text(standstill(self._sources[0].recent(KEPT_SECONDS))) if model in LEARNED else ""

    def stop_runs(self) -> None:
        """Have every robot stopped, and wait until its run has ended."""
        for source in self._sources:
            source.audience.order(mode=MODES.index("stop"))
        began = time.monotonic()
        while self.alive and time.monotonic() - began < END_SECONDS:
            time.sleep(0.05)
        for source in self._sources:
            if source.audience.alive:
                with suppress(ProcessLookupError):  # it may end just now
                    os.kill(source.audience.address.pid, signal.SIGTERM)

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def run(self, stop: threading.Event) -> None:
        """Until it is told to end."""
        at_pace(self._server, self.draw, stop)


def learner_text(still: float) -> str:
    """What to say of a learner that has stood still for so long [s]; nothing if that is short."""
    if still < STILL_SECONDS:
        return ""
    if still == float("inf"):
        return "**Learner** not ready: it still compiles. What it learned before, if anything, leads."
    return (
        f"**Learner** stands still: no samples for more than {int(still)} s. The machine is too busy, or its process "
        "died; the robot goes on with the last model."
    )


def ended_text(audience: Audience) -> str:
    """That a run is over, and how to go on."""
    stopped = MODES[audience.wanted.mode] == "stop"
    why = "was stopped" if stopped else "has ended by itself: its time was used up, or its terminal says why"
    command = "view" if audience.address.models else "online"
    return (
        f"The run {why}. This page cannot start it again: end it with Ctrl-C in the terminal, "
        f"then begin a new run with `delan {command} {audience.address.robot}`."
    )
