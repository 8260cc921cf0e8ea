"""The page: the scene in the middle, curves on the left, controls and numbers on the right."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .plots import SECONDS, Plots, time_grid
from .scene import DRAWN, RIVAL, SPACING, SPACINGS, ArmScene, prepare_scene
from .sources import Columns, Source
from .torque_parts import Decompositions

FRAME_RATE = 25.0  # pictures per second
# Widths of the curves and of the controls [pixels].
PLOT_WIDTH = 400
PANEL_WIDTH = 300
# Components of the torque are computed at fewer points than the curves have: they cost more.
PART_POINTS = 128
LEARNED = ("feedforward", "delan", "chain")


class Page:
    """The scene and the curves of one source, or of two side by side.

    Attributes:
        server: the viser server.
        plots: the curves, which show one joint or all.
    """

    def __init__(
        self,
        server: Any,
        source: Source,
        *,
        live: bool,
        rival: Source | None = None,
        rival_name: str | None = None,
    ):
        self.server = server
        self._source = source
        self._rival = rival
        server.gui.configure_theme(
            dark_mode=False, show_logo=False, show_share_button=False, brand_color=DRAWN
        )
        prepare_scene(server, source.arm.name, arms=1 if rival is None else 2)
        self._scenes = [ArmScene(server, "arm", source)]
        if rival is not None:
            origin = (SPACINGS.get(source.arm.name, SPACING), 0.0, 0.0)
            self._scenes.append(ArmScene(server, "rival", rival, origin=origin, drawn=RIVAL))
        joints = source.arm.joints
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
        columns = self._source.recent(SECONDS + 1)
        if len(columns["t"]) == 0:
            return
        rival = None
        if self._rival is not None:
            rival = self._rival.recent(SECONDS + 1)
            if len(rival["t"]) == 0:
                rival = None
        self.plots.update(columns, self._source.dt, rival)

    def draw_parts(self, decompositions: Decompositions, model: str, weights: Any) -> None:
        """Draw the components of a model's torque along the desired motion of the last seconds."""
        columns = self._source.recent(SECONDS)
        if len(columns["t"]) == 0:
            return
        grid = time_grid(columns, points=PART_POINTS)
        decompose = decompositions.of(model) if model != "none" else None
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
