"""The page: the scene in the middle, curves on the left, controls and numbers on the right.

`Page` shows any source; `Replay` is the page of a recording, with a slider for the time.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..online.host_process import LEARNED
from .plots import SECONDS, Plots, time_grid
from .scene import DRAWN, RIVAL, SPACING, SPACINGS, ArmScene, prepare_scene
from .sources import Columns, Decompose, Decompositions, ReplaySource, Source, of_file

FRAME_RATE = 25.0  # pictures per second
# Widths of the curves and of the controls [pixels].
PLOT_WIDTH = 400
PANEL_WIDTH = 300
# Components of the torque are computed at fewer points than the curves have: they cost more.
PART_POINTS = 128


class Page:
    """The scene and the curves of one source, or of two side by side.

    Attributes:
        server: the viser server.
        plots: the curves, which show one joint or all.
    """

    def __init__(
        self,
        server: Any,
        sources: Sequence[Source],
        *,
        live: bool,
        rival_name: str | None = None,
    ):
        self.server = server
        self._sources = sources
        server.gui.configure_theme(
            dark_mode=False, show_logo=False, show_share_button=False, brand_color=DRAWN
        )
        arm = sources[0].arm
        prepare_scene(server, arm.name, arms=len(sources))
        self._scenes = [ArmScene(server, "arm", sources[0])]
        for rival in sources[1:]:
            origin = (SPACINGS.get(arm.name, SPACING), 0.0, 0.0)
            self._scenes.append(ArmScene(server, "rival", rival, origin=origin, drawn=RIVAL))
        joints = arm.joints
        self.plots = Plots(server.gui, joints, live=live, rival_name=rival_name)
        panel = server.gui.add_panel()
        with panel.add_tab("Tracking"):
            joint = server.gui.add_dropdown("Joint", joints.names, initial_value=joints.names[0])
            self.plots.add_tracking()
        with panel.add_tab("Learning and loop"):
            self.plots.add_learning()
        panel.dock_left()
        panel.set_width(PLOT_WIDTH)
        server.gui.main_panel.dock_right()
        server.gui.main_panel.set_width(PANEL_WIDTH)

        def choose_joint(_: Any) -> None:
            self.plots.joint = joints.names.index(joint.value)

        joint.on_update(choose_joint)

    def draw(self) -> None:
        """Draw the scene and the curves at the present moment of the sources."""
        for scene in self._scenes:
            scene.update()
        shown = [source.recent(SECONDS + 1) for source in self._sources]
        if len(shown[0]["t"]):
            self.plots.update(shown, self._sources[0].dt)

    def draw_parts(self, decompositions: Decompositions, model: str, weights: Any) -> None:
        """Draw the components of a model's torque along the desired motion of the last seconds."""
        columns = self._sources[0].recent(SECONDS)
        if len(columns["t"]) == 0:
            return
        grid = time_grid(columns, points=PART_POINTS)
        decompose = None
        if model != "none":
            decompose = decompositions.of(model)
        if decompose is None or (weights is None and model in LEARNED):
            self.plots.update_parts(grid.t, None, None)
            return
        q, qd, qdd = (columns[name][grid.rows] for name in ("q_des", "qd_des", "qdd_des"))
        parts, least = decompose(weights, q, qd, qdd)
        hidden = np.where(grid.known, 0.0, np.nan)
        self.plots.update_parts(grid.t, parts + hidden[:, None, None], least + hidden)


def error_text(columns: Columns) -> str:
    """Return the RMS of q_des − q over the last second and all joints, formatted."""
    t = columns["t"][:, 0]
    error = (columns["q_des"] - columns["q"])[t > t[-1] - 1.0]
    return f"{np.sqrt(np.mean(error**2)):.2e}"


def draw_until(
    stop: threading.Event, server: Any, draw: Callable[[], None], rate: float = FRAME_RATE
) -> None:
    """Call `draw` at most `rate` times per second until `stop` is set.

    Each picture is one message: a browser redraws once per message, which is slow without a
    graphics card.
    """
    due = time.monotonic()
    while not stop.is_set():
        with server.atomic():
            draw()
        due = max(due + 1 / rate, time.monotonic() - 1 / rate)
        time.sleep(max(0.0, due - time.monotonic()))


PACES = ("0.25", "0.5", "1", "2", "4")


class Replay:
    """A recording that is played, or moved by the slider."""

    def __init__(self, server: Any, path: Path):
        self._server = server
        self._source = ReplaySource(path)
        self._page = Page(server, [self._source], live=False)
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
