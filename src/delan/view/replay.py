"""The page of a recording: a slider for the time, play and pause."""

import threading
import time
from pathlib import Path
from typing import Any

from .page import Page, draw_until, error_text
from .sources import ReplaySource
from .torque_parts import Decompose, Decompositions, of_file

PACES = ("0.25", "0.5", "1", "2", "4")


class Replay:
    """A recording that is played, or moved by the slider."""

    def __init__(self, server: Any, path: Path):
        self._server = server
        self._source = ReplaySource(path)
        self._page = Page(server, self._source, live=False)
        gui = server.gui
        gui.set_panel_label(f"{path.parent.name}/{path.name}")
        length = round(self._source.length, 2)
        self._time = gui.add_slider("Time [s]", min=0.0, max=length, step=0.01, initial_value=0.0)
        self._play = gui.add_button("Play")
        self._pace = gui.add_dropdown("Pace", PACES, initial_value="1")
        self._facts = gui.add_markdown("")
        self._playing = False
        self._last_drawn = time.monotonic()
        self._shown: tuple[Any, ...] = ()
        self._weights: Any = None
        self._decompositions = Decompositions(self._decomposition)
        self._play.on_click(lambda _: self._set_playing(not self._playing))
        self._time.on_update(self._seek)

    def _decomposition(self, _: str) -> Decompose | None:
        if self._source.model is None:
            return None
        decompose, self._weights = of_file(self._source.model)
        return decompose

    def _set_playing(self, playing: bool) -> None:
        if playing and self._source.now >= self._source.length:
            self._source.now = 0.0
        self._playing = playing
        self._play.label = "Pause" if playing else "Play"

    def _seek(self, event: Any) -> None:
        if event.client is not None:  # moved by a person, not by `draw`
            self._source.now = float(self._time.value)

    def draw(self) -> None:
        """Draw one picture, if it differs from the last one."""
        self._advance()
        ready = self._source.model is not None and self._decompositions.of("file") is not None
        shown = (self._source.now, self._page.plots.joint, ready)
        if shown == self._shown:
            return
        self._shown = shown
        self._page.draw()
        if ready:
            self._page.draw_parts(self._decompositions, "file", self._weights)
        self._facts.content = self._facts_text()

    def _advance(self) -> None:
        """Move the present by the time since the last picture, if the recording is played."""
        now = time.monotonic()
        passed = now - self._last_drawn
        self._last_drawn = now
        if not self._playing:
            return
        source = self._source
        source.now = min(source.length, source.now + passed * float(self._pace.value))
        self._time.value = round(source.now, 2)
        if source.now >= source.length:
            self._set_playing(False)

    def _facts_text(self) -> str:
        columns = self._source.recent(1.0)
        lines = [
            f"**Tracking error** {error_text(columns)} rad (last second)",
            f"**Models put into use** {int(columns['model'][-1, 0])}",
        ]
        if self._source.model is None:
            lines.append(
                "No `model.delan` beside the recording: the torque components are unknown."
            )
        if self._decompositions.problem:
            lines.append(self._decompositions.problem)
        return "\n\n".join(lines)

    def run(self, stop: threading.Event) -> None:
        """Serve the page until `stop` is set."""
        draw_until(stop, self._server, self.draw)
