"""The page: the scene in the middle, curves on the left, what can be told and what is so on the right."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .curves import SECONDS, grid
from .parts import Dissection
from .plots import Plots
from .scene import DRAWN, RIVAL, ArmScene
from .sources import Columns, Source

FRAME_RATE = 25.0
"""Pictures a second."""
PLOT_WIDTH, PANEL_WIDTH = 400, 300
SIDE_BY_SIDE = {"two_link": 0.85}
"""How far apart two arms stand [m]; others:"""
APART = 1.4
FLOOR, METRE = (228, 231, 235), (196, 200, 206)


class Page:
    """What every page has, of one source or of two side by side.

    Attributes:
        facts: a text for numbers; server: viser's.
    """

    def __init__(self, server: Any, source: Source, *, live: bool, rival: Source | None = None, names: Any = ("", "")):
        self.server, self._source, self._rival = server, source, rival
        theme = server.gui.configure_theme
        theme(dark_mode=False, show_logo=False, show_share_button=False, brand_color=DRAWN)
        _light(server, source, two=rival is not None)
        self._scenes = [ArmScene(server, "arm", source)]
        if rival is not None:
            place = (SIDE_BY_SIDE.get(source.arm.name, APART), 0.0, 0.0)
            self._scenes.append(ArmScene(server, "rival", rival, place=place, drawn=RIVAL))
        self.plots = Plots(server.gui, source.arm.joints, live=live, rival=names[1] or None)
        panel = server.gui.add_panel()
        with panel.add_tab("Tracking"):
            chosen = server.gui.add_dropdown("Joint", source.arm.joints.names, initial_value=source.arm.joints.names[0])
            self.plots.tracking()
        with panel.add_tab("Learning and loop"):
            self.plots.learning()
        panel.dock_left()
        panel.set_width(PLOT_WIDTH)
        server.gui.main_panel.dock_right()
        server.gui.main_panel.set_width(PANEL_WIDTH)
        chosen.on_update(lambda _: self._choose(chosen.value))

    def _choose(self, joint: str) -> None:
        self.plots.joint = self._source.arm.joints.names.index(joint)

    def draw(self) -> None:
        """Scene and curves as the sources are now."""
        columns = self._source.recent(SECONDS + 1)
        rival = None if self._rival is None else self._rival.recent(SECONDS + 1)
        for scene in self._scenes:
            scene.update()
        if len(columns["t"]):
            self.plots.update(columns, self._source.dt, rival if rival is not None and len(rival["t"]) else None)

    def dissect(self, dissection: Dissection, model: str, weights: Any) -> None:
        """The parts of the torque by a model, along the wanted motion of the last seconds."""
        columns = self._source.recent(SECONDS)
        if len(columns["t"]) == 0:
            return
        at = grid(columns, points=128)
        dissector = dissection.of(model) if model != "none" else None
        if dissector is None or (weights is None and model in ("delan", "chain", "feedforward")):
            self.plots.anatomy(at.t, None, None)
            return
        q, qd, qdd = (columns[name][at.rows] for name in ("q_des", "qd_des", "qdd_des"))
        parts, least = dissector(weights, q, qd, qdd)
        hidden = np.where(at.there, 0.0, np.nan)
        self.plots.anatomy(at.t, parts + hidden[:, None, None], least + hidden)


def _light(server: Any, source: Source, *, two: bool) -> None:
    """Floor, light and where the eye is."""
    scene, planar = server.scene, source.arm.name == "two_link"
    scene.set_up_direction("+z")
    scene.configure_environment_map(None)  # reflections and shadows cost seconds where no graphics card draws
    scene.configure_default_lights(cast_shadow=False)
    scene.add_light_ambient("/light", intensity=2.4)
    middle = SIDE_BY_SIDE.get(source.arm.name, APART) / 2 if two else 0.0
    camera = server.initial_camera
    if planar:
        camera.position, camera.look_at = (0.28 + middle, -1.15 - 0.5 * two, 0.1), (0.28 + middle, 0.0, -0.12)
        _floor(scene, 4.0, height=-0.55)
    else:
        camera.position, camera.look_at = (1.7 + middle, -2.0 - 0.8 * two, 1.3), (middle, 0.0, 0.55)
        _floor(scene, 6.0, height=0.0)


def _floor(scene: Any, width: float, *, height: float) -> None:
    """Lines each half metre, darker ones each metre.

    Viser's own grid computes light and shadow at each of its pixels: a fifth of a picture's time where no graphics card
    draws, and one more program to compile before the page can be used.
    """
    there = np.arange(-width / 2, width / 2 + 0.25, 0.5)
    edge, level = np.full_like(there, width / 2), np.zeros_like(there)
    along_x, along_y = [[-edge, there, level], [edge, there, level]], [[there, -edge, level], [there, edge, level]]
    lines = np.concatenate([along_x, along_y], axis=2).transpose(2, 0, 1)
    shades = np.where((there % 1 == 0)[:, None], METRE, FLOOR)
    scene.add_line_segments(
        "/floor",
        lines.astype(np.float32),
        np.tile(shades[:, None], (2, 2, 1)).astype(np.uint8),
        thickness=1.5,
        thickness_units="screen",
        position=(0.0, 0.0, height),
    )


def error_text(columns: Columns) -> str:
    """Root mean square of q_des − q in the last second over all joints, as the page tells it."""
    t = columns["t"][:, 0]
    rows = t > t[-1] - 1.0
    error = (columns["q_des"] - columns["q"])[rows]
    return f"{np.sqrt(np.mean(error**2)):.2e}"


def at_pace(server: Any, draw: Callable[[], None], stop: threading.Event, rate: float = FRAME_RATE) -> None:
    """Draw again and again, so many times a second at the most, until told to end.

    Each picture is one message: a browser does all its work once for each, and where no graphics card helps it that
    is what takes its time.
    """
    due = time.monotonic()
    while not stop.is_set():
        with server.atomic():
            draw()
        due = max(due + 1 / rate, time.monotonic() - 1 / rate)
        time.sleep(max(0.0, due - time.monotonic()))
