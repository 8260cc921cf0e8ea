"""A recording on the page: a slider for the time, play and pause."""

import threading
import time
from pathlib import Path
from typing import Any

from .page import Page, at_pace, error_text
from .parts import Dissection, Dissector, of_file
from .sources import ReplaySource

PACES = ("0.25", "0.5", "1", "2", "4")


class Replay:
    """Moves now along a recording, by itself or by the slider."""

    def __init__(self, server: Any, path: Path):
        self._source = ReplaySource(path)
        self._page = Page(server, self._source, live=False)
        gui, length = server.gui, self._source.length
        gui.set_panel_label(f"{path.parent.name}/{path.name}")
        self._time = gui.add_slider("Time [s]", min=0.0, max=round(length, 2), step=0.01, initial_value=0.0)
        self._play = gui.add_button("Play")
        self._pace = gui.add_dropdown("Pace", PACES, initial_value="1")
        self._facts = gui.add_markdown("")
        self._playing, self._last = False, time.monotonic()
        self._drawn = (-1.0, -1)
        self._weights: Any = None
        self._dissection = Dissection(self._dissector)
        self._play.on_click(lambda _: self._turn(not self._playing))
        self._time.on_update(lambda event: self._seek(event))

    def _dissector(self, _: str) -> Dissector | None:
        if self._source.model is None:
            return None
        dissector, self._weights = of_file(self._source.model)
        return dissector

    def _turn(self, playing: bool) -> None:
        if playing and self._source.now >= self._source.length:
            self._source.now = 0.0
        self._playing = playing
        self._play.label = "Pause" if playing else "Play"

    def _seek(self, event: Any) -> None:
        if event.client is not None:  # by a hand, not by ourselves
            self._source.now = float(self._time.value)

    def draw(self) -> None:
        """One picture."""
        now = time.monotonic()
        if self._playing:
            self._source.now = min(self._source.length, self._source.now + (now - self._last) * float(self._pace.value))
            self._time.value = round(self._source.now, 2)
            if self._source.now >= self._source.length:
                self._turn(False)
        self._last = now
        state = (self._source.now, self._page.plots.joint)
        ready = self._source.model is not None and self._dissection.of("file") is not None
        if (*state, ready) == self._drawn:
            return
        self._drawn = (*state, ready)
        self._page.draw()
        if ready:
            self._page.dissect(self._dissection, "file", self._weights)
        columns = self._source.recent(1.0)
        told = f"**Tracking error** {error_text(columns)} rad (last second)\n\n"
        told += f"**Models taken into use** {int(columns['model'][-1, 0])}"
        if self._source.model is None:
            told += "\n\nNo `model.delan` beside the recording: parts of the torque are not known."
        self._facts.content = told + (f"\n\n{self._dissection.problem}" if self._dissection.problem else "")

    def run(self, stop: threading.Event) -> None:
        """Until it is told to end."""
        at_pace(self._page.server, self.draw, stop)
