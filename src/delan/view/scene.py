"""The arm as it is and as it should be, and the path of its pen, drawn and wanted, in a 3D scene."""

import time
from typing import Any

import numpy as np
from jaxtyping import Float

from ..robots.mujoco_robot import Mannequin
from .sources import Source

Points = Float[np.ndarray, "points 3"]
Place = tuple[float, float, float]

WANTED, DRAWN, RIVAL, STEEL, GHOST = (172, 182, 193), (11, 110, 153), (217, 116, 43), (120, 132, 146), (11, 110, 153)
"""Colours: the wanted path; the drawn path of our model and of its rival; the arm; the arm where it should be."""
TRAIL_SECONDS, WANTED_SECONDS, TRAIL_RATE = 5.0, 2.0, 30.0
"""How much of the drawn path, and of the wanted one, is kept [s], and their points a second."""
GHOST_OPACITY = 0.22
LINE_PERIOD = 0.2
"""Time between two updates of a path [s]: each builds its geometry anew in the browser, which may be slow at it."""
PEN = {"two_link": {"wanted": (0.0, -0.04, 0.0), "drawn": (0.0, -0.045, 0.0)}}
"""Where paths lie beside the tool [m]: in front of an arm that moves in a plane, lest it hide them."""


class ArmScene:
    """One arm with its ghost and its paths."""

    def __init__(self, server: Any, name: str, source: Source, *, place: Place = (0.0, 0.0, 0.0), drawn: Any = DRAWN):
        self._source, self._mannequin, self._drawn = source, Mannequin.of(source.arm), np.array(drawn)
        self._root, self._server = f"/{name}", server
        server.scene.add_frame(self._root, show_axes=False, position=place)
        looks = self._mannequin.looks()
        self._parts = {"arm": self._frames(looks, "arm", STEEL, None), "ghost": self._frames(looks, "ghost", GHOST, 1)}
        pen = PEN.get(source.arm.name, {})
        self._lines = {
            name: self._line(name, colour, width, pen.get(name, (0.0, 0.0, 0.0)))
            for name, colour, width in (("wanted", WANTED, 6.0), ("drawn", drawn, 3.0))
        }
        self._nib = np.array(pen.get("drawn", (0.0, 0.0, 0.0)))
        self._tip = server.scene.add_icosphere(f"{self._root}/tip", radius=0.012, color=tuple(drawn))
        self._trail = np.zeros((0, 7))  # time, wanted, drawn
        self._seen, self._lines_due = -np.inf, 0.0

    def _frames(self, looks: list, kind: str, colour: Any, ghost: int | None) -> dict[int, Any]:
        scene, frames = self._server.scene, {}
        for number, look in enumerate(looks):
            frame = f"{self._root}/{kind}/{look.body}"
            if look.body not in frames:
                frames[look.body] = scene.add_frame(frame, show_axes=False)
            scene.add_mesh_simple(
                f"{frame}/{number}",
                look.vertices.astype(np.float32),
                look.faces.astype(np.uint32),
                color=colour,
                opacity=GHOST_OPACITY if ghost else None,
                cast_shadow=not ghost,
                receive_shadow=False,
            )
        return frames

    def _line(self, name: str, colour: Any, width: float, place: Place) -> Any:
        nothing, path = np.zeros((1, 2, 3), dtype=np.float32), f"{self._root}/{name}"
        colours = np.full((1, 2, 3), colour, dtype=np.uint8)
        return self._server.scene.add_line_segments(
            path, nothing, colours, thickness=width, thickness_units="screen", position=place, visible=False
        )

    def update(self) -> None:
        """Show the newest rows of the source."""
        columns = self._source.recent(TRAIL_SECONDS)
        if len(columns["t"]) == 0:
            return
        q, q_des = columns["q"][-1], columns["q_des"][-1]
        if not (np.isfinite(q).all() and np.isfinite(q_des).all()):
            return
        self._pose("arm", q)
        self._pose("ghost", q_des)
        self._tip.position = self._mannequin.at(q).tool + self._nib
        t = columns["t"][:, 0]
        self._extend(t, columns["q_des"], columns["q"])
        if time.monotonic() < self._lines_due:
            return
        self._lines_due = time.monotonic() + LINE_PERIOD
        ahead = self._mannequin.tool_path(self._source.ahead())
        past = self._trail[self._trail[:, 0] > t[-1] - WANTED_SECONDS, 1:4]
        wanted = np.vstack([past, ahead])
        self._put("wanted", wanted, np.full((len(wanted), 3), WANTED, dtype=np.uint8))
        age = 0.85 * np.clip((t[-1] - self._trail[:, :1]) / TRAIL_SECONDS, 0.0, 1.0) ** 2
        self._put("drawn", self._trail[:, 4:], (self._drawn * (1 - age) + 255 * age).astype(np.uint8))

    def _pose(self, kind: str, q: Any) -> None:
        poses = self._mannequin.at(q)
        for body, frame in self._parts[kind].items():
            frame.position, frame.wxyz = poses.origins[body], poses.quaternions[body]

    def _extend(self, t: Any, q_des: Any, q: Any) -> None:
        """Add what is new to the trail; after a jump in time, begin it anew."""
        if t[-1] < self._seen or t[0] > self._seen + 1.0:
            self._trail, self._seen = self._trail[:0], -np.inf
        step = max(1, round(1 / (TRAIL_RATE * self._source.dt)))
        new = np.flatnonzero(t > self._seen + (step - 0.5) * self._source.dt)[::step]
        new = new[np.isfinite(q[new]).all(axis=1)]
        if len(new):
            wanted, drawn = self._mannequin.tool_path(q_des[new]), self._mannequin.tool_path(q[new])
            self._trail = np.vstack([self._trail, np.column_stack([t[new], wanted, drawn])])
            self._seen = t[new[-1]]
        self._trail = self._trail[self._trail[:, 0] > t[-1] - TRAIL_SECONDS]

    def _put(self, name: str, path: Points, colours: Any) -> None:
        """A path as segments, each end of its own colour."""
        line = self._lines[name]
        if len(path) > 1:
            with self._server.atomic():
                line.points = np.stack([path[:-1], path[1:]], axis=1).astype(np.float32)
                line.colors = np.stack([colours[:-1], colours[1:]], axis=1)
        line.visible = len(path) > 1
