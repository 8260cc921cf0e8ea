"""The page of a run, or of two side by side: what the runs do, and the controls that steer them."""

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any

from ..online.broadcast import MODES, Address, Audience
from ..online.host_process import LEARNED, NAMES
from .page import Page, draw_until, error_text
from .plots import SECONDS, idle_seconds
from .sources import HISTORY_SECONDS, Decompositions, LiveSource, of_run

# Increase of the last link's mass and inertia, as a fraction.
PAYLOADS = {"none": 0.0, "+ 30 %": 0.3, "+ 100 %": 1.0}
# Longest time to stop the robot and to close the recording [s].
END_SECONDS = 15.0
# A learner that is idle for longer is reported [s].
IDLE_SECONDS = 3.0
# Time between two updates of the numbers, and of the torque components [s].
FACTS_PERIOD = 0.25
PARTS_PERIOD = 0.05


class Controls:
    """Buttons and menus that steer one run or two; the model can be changed in the first only.

    Attributes:
        facts: a text below the buttons.
    """

    def __init__(self, server: Any, audiences: list[Audience], rival_name: str | None):
        self._audiences = audiences
        gui = server.gui
        title = audiences[0].address.robot
        if rival_name is not None:
            title += f", beside {rival_name}"
        gui.set_panel_label(title)
        self._start = gui.add_button("Start", color="green")
        self._pause = gui.add_button("Pause", disabled=True)
        self._stop = gui.add_button("Stop", color="red")
        self.facts = gui.add_markdown("**Status** waking up")
        self._menus: list[Any] = []
        if audiences[0].address.models:
            self._add_menus(gui, audiences[0])
        self._start.on_click(lambda _: self._order(mode=MODES.index("run")))
        self._pause.on_click(lambda _: self._order(mode=MODES.index("pause")))
        self._stop.on_click(lambda _: self._order(mode=MODES.index("stop")))
        self._shown: tuple[Any, ...] = ()

    def _add_menus(self, gui: Any, audience: Audience) -> None:
        wanted = audience.wanted
        models = [NAMES[model] for model in audience.address.models]
        model = gui.add_dropdown("Model", models, initial_value=models[wanted.model])
        model.on_update(lambda _: audience.order(model=models.index(model.value)))
        motions = audience.address.references
        motion = gui.add_dropdown("Motion", motions, initial_value=motions[wanted.reference])
        motion.on_update(lambda _: self._order(reference=motions.index(motion.value)))
        speed = gui.add_slider("Speed", min=0.5, max=2.0, step=0.25, initial_value=wanted.speed)
        speed.on_update(lambda _: self._order(speed=float(speed.value)))
        loads = {share: name for name, share in PAYLOADS.items()}
        payload = gui.add_dropdown(
            "Payload", tuple(PAYLOADS), initial_value=loads.get(wanted.payload, "none")
        )
        payload.on_update(lambda _: self._order(payload=PAYLOADS[payload.value]))
        kick = gui.add_button("Kick the arm")
        kick.on_click(lambda _: self._order(kicks=audience.wanted.kicks + 1))
        reset = gui.add_button("Reset the weights")
        reset.on_click(lambda _: self._order(resets=audience.wanted.resets + 1))
        self._menus = [model, motion, speed, payload, kick, reset]

    def _order(self, **changes: Any) -> None:
        for audience in self._audiences:
            if audience.alive:
                audience.order(**changes)

    def update(self) -> None:
        """Enable the controls that have an effect in the present phase of the run."""
        audience = self._audiences[0]
        phase = audience.phase
        mode = MODES[audience.wanted.mode]
        if (phase, mode) == self._shown:
            return
        self._shown = (phase, mode)
        ended = phase == "stopped"
        steered = bool(audience.address.models)
        waiting = mode == "run" and phase in ("waking up", "preparing")
        self._start.disabled = ended or mode in ("run", "stop") or not steered
        self._start.label = "Starting when ready" if waiting else "Start"
        self._pause.disabled = ended or mode != "run" or not steered
        self._stop.disabled = ended or mode == "stop"
        self._stop.label = "Stopping" if phase == "stopping" else "Stop"
        for menu in self._menus:
            menu.disabled = ended


class LivePage:
    """The page of one run, or of two side by side that get the same orders."""

    def __init__(self, server: Any, addresses: list[Address], rival_name: str | None = None):
        self._server = server
        self._sources = [LiveSource(address) for address in addresses]
        self._audience = self._sources[0].audience
        self._rival_name = rival_name
        self._page = Page(server, self._sources, live=True, rival_name=rival_name)
        audiences = [source.audience for source in self._sources]
        self._controls = Controls(server, audiences, rival_name)
        settings = addresses[0].settings
        self._decompositions = Decompositions(lambda name: of_run(settings, name))
        self._weights: dict[str, Any] = {}
        self._facts_due = 0.0
        self._parts_due = 0.0
        self._visited = False

    @property
    def alive(self) -> bool:
        """Whether the process of any run is there."""
        return any(source.audience.alive for source in self._sources)

    def draw(self) -> None:
        """Draw one picture."""
        if not self._visited and self._server.get_clients():
            self._visited = True
            for source in self._sources:
                # Any order tells the run that the page is open, so that it starts to compile.
                source.audience.order()
        fresh = sum(source.poll() for source in self._sources)
        self._controls.update()
        if fresh:
            self._page.draw()
        now = time.monotonic()
        if fresh and now >= self._parts_due and self._server.get_clients():
            self._parts_due = now + PARTS_PERIOD
            self._draw_parts()
        if now >= self._facts_due:
            self._facts_due = now + FACTS_PERIOD
            warning = self._warning()
            self._page.plots.warn(warning)
            facts = self._facts()
            if warning:
                facts.append(warning)
            self._controls.facts.content = "\n\n".join(facts)

    def _model(self) -> str | None:
        """Return the model in use; None if the run has not reported it, or takes no orders."""
        standing = self._audience.look()
        if standing is None or not self._audience.address.models:
            return None
        return self._audience.address.models[standing.orders.model]

    def _draw_parts(self) -> None:
        model = self._model()
        if model is None:
            return
        if model in LEARNED:
            new = self._audience.weights(model)
            if new is not None:
                self._weights[model] = new
        self._page.draw_parts(self._decompositions, model, self._weights.get(model))

    def _facts(self) -> list[str]:
        """Return the numbers of the run, a paragraph each."""
        phase = self._audience.phase
        standing = self._audience.look()
        facts = [f"**Status** {phase}"]
        if phase == "stopped":
            facts.append(ended_text(self._audience))
        if standing is None:
            return facts
        if phase == "preparing":
            facts[0] += f": compiling, {standing.done:.0f} of {standing.total:.0f} steps done"
        columns = self._sources[0].recent(SECONDS)
        if len(columns["t"]):
            model = self._model()
            if model is not None:
                facts.append(f"**Model in use** {NAMES[model]}")
            facts.append(f"**Tracking error** {error_text(columns)} rad")
            for source in self._sources[1:]:
                rival = source.recent(1.0)
                if len(rival["t"]):
                    facts.append(f"**{self._rival_name}** {error_text(rival)} rad")
            facts.append(f"**Time** {columns['t'][-1, 0]:.1f} s")
            facts.append(
                f"**Missed periods** {columns['missed'][-1, 0]:.0f}, "
                f"**late torques** {columns['late'][-1, 0]:.0f}, "
                f"**rejected models** {columns['refused'][-1, 0]:.0f}"
            )
            if standing.orders.payload:
                facts.append(f"**Payload** + {100 * standing.orders.payload:.0f} %")
        if self._decompositions.problem:
            facts.append(self._decompositions.problem)
        return facts

    def _warning(self) -> str:
        """Return a warning about the learner of the model in use, if it is idle."""
        if self._audience.phase != "running" or self._model() not in LEARNED:
            return ""
        return learner_text(idle_seconds(self._sources[0].recent(HISTORY_SECONDS)))

    def stop_runs(self) -> None:
        """Stop every robot and wait until its run has ended."""
        for source in self._sources:
            source.audience.order(mode=MODES.index("stop"))
        began = time.monotonic()
        while self.alive and time.monotonic() - began < END_SECONDS:
            time.sleep(0.05)
        for source in self._sources:
            if source.audience.alive:
                with suppress(ProcessLookupError):  # it may have ended in the meantime
                    os.kill(source.audience.address.pid, signal.SIGTERM)

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def run(self, stop: threading.Event) -> None:
        """Serve the page until `stop` is set."""
        draw_until(stop, self._server, self.draw)


def learner_text(idle: float) -> str:
    """Return a warning about a learner that is idle for this time [s]; empty if that is short."""
    if idle < IDLE_SECONDS:
        return ""
    if idle == float("inf"):
        return "**Learner** not ready: it is compiling. The robot uses the last model, if any."
    return (
        f"**Learner** idle: no new samples for more than {int(idle)} s. The machine is too busy, "
        "or the learner's process died. The robot continues with the last model."
    )


def ended_text(audience: Audience) -> str:
    """Return why a run has ended and how to start a new one."""
    reason = "has ended: its time is over, or its terminal shows the reason"
    if MODES[audience.wanted.mode] == "stop":
        reason = "was stopped"
    command = "view" if audience.address.models else "online"
    return (
        f"The run {reason}. This page cannot start it again: press Ctrl-C in the terminal, "
        f"then start a new run with `delan {command} {audience.address.robot}`."
    )
