"""Buttons and sliders that tell a run what to do."""

from typing import Any

from ..experiments.live_run import NAMES
from ..realtime.live import MODES, Audience

PAYLOADS = {"none": 0.0, "+ 30 %": 0.3, "+ 100 %": 1.0}
"""By how much the last link can be made heavier."""


class Controls:
    """What a person can tell a run, or two runs at once; only the first one changes its model.

    Attributes:
        facts: a text below the buttons.
    """

    def __init__(self, server: Any, audiences: list[Audience], *, rival: str | None = None):
        self._audiences, gui, address = audiences, server.gui, audiences[0].address
        gui.set_panel_label(f"{address.robot}" + (f", beside {rival}" if rival else ""))
        self._start = gui.add_button("Start", color="green")
        self._pause = gui.add_button("Pause", disabled=True)
        self._stop = gui.add_button("Stop", color="red")
        self.facts = gui.add_markdown("**Status** waking up")
        self._choices: list[Any] = []
        if address.models:
            self._add_choices(gui, audiences[0])
        self._start.on_click(lambda _: self._order(mode=MODES.index("run")))
        self._pause.on_click(lambda _: self._order(mode=MODES.index("pause")))
        self._stop.on_click(lambda _: self._order(mode=MODES.index("stop")))
        self._shown: tuple[Any, ...] = ()

    def _add_choices(self, gui: Any, audience: Audience) -> None:
        address, wanted = audience.address, audience.wanted
        names = [NAMES[model] for model in address.models]
        model = gui.add_dropdown("Model", names, initial_value=names[wanted.model])
        model.on_update(lambda _: audience.order(model=names.index(model.value)))
        motion = gui.add_dropdown("Motion", address.references, initial_value=address.references[wanted.reference])
        motion.on_update(lambda _: self._order(reference=address.references.index(motion.value)))
        speed = gui.add_slider("Speed", min=0.5, max=2.0, step=0.25, initial_value=wanted.speed)
        speed.on_update(lambda _: self._order(speed=float(speed.value)))
        names_of = {share: name for name, share in PAYLOADS.items()}
        payload = gui.add_dropdown("Payload", tuple(PAYLOADS), initial_value=names_of.get(wanted.payload, "none"))
        payload.on_update(lambda _: self._order(payload=PAYLOADS[payload.value]))
        kick = gui.add_button("Kick the arm")
        kick.on_click(lambda _: self._order(kicks=audience.wanted.kicks + 1))
        reset = gui.add_button("Reset the weights")
        reset.on_click(lambda _: self._order(resets=audience.wanted.resets + 1))
        self._choices = [model, motion, speed, payload, kick, reset]

    def _order(self, **changes: Any) -> None:
        for audience in self._audiences:
            if audience.alive:
                audience.order(**changes)

    def update(self) -> None:
        """Let the buttons say what can be done now."""
        audience = self._audiences[0]
        phase, mode = audience.phase, MODES[audience.wanted.mode]
        if (phase, mode) == self._shown:
            return
        self._shown = (phase, mode)
        ended = phase == "stopped"
        commanded = bool(audience.address.models)
        self._start.disabled = ended or mode in ("run", "stop") or not commanded
        self._start.label = "Starting when ready" if mode == "run" and phase in ("waking up", "preparing") else "Start"
        self._pause.disabled = ended or mode != "run" or not commanded
        self._stop.disabled = ended or mode == "stop"
        self._stop.label = "Stopping" if phase == "stopping" else "Stop"
        for choice in self._choices:
            choice.disabled = ended
