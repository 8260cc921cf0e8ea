"""The 3D scene: the arm, a ghost at its desired position, and the drawn and desired tool paths."""

import time
from typing import Any

import numpy as np
from jaxtyping import Float

from ..robots.mujoco_robot import VisualModel
from .sources import Source

Points = Float[np.ndarray, "points 3"]
Position = tuple[float, float, float]
Colour = tuple[int, int, int]

DESIRED: Colour = (172, 182, 193)
DRAWN: Colour = (11, 110, 153)
RIVAL: Colour = (217, 116, 43)
STEEL: Colour = (120, 132, 146)
FLOOR: Colour = (228, 231, 235)
METRE: Colour = (196, 200, 206)
GHOST_OPACITY = 0.22

# How much of each path is drawn [s], and the points of a path per second.
TRAIL_SECONDS = 5.0
DESIRED_SECONDS = 2.0
TRAIL_RATE = 30.0
# Time between two updates of a path [s]: the browser rebuilds its geometry each time, which is
# slow without a graphics card.
LINE_PERIOD = 0.2
# Offsets of the paths from the tool [m]: in front of a planar arm, which would hide them.
PATH_OFFSETS = {"two_link": {"desired": (0.0, -0.04, 0.0), "drawn": (0.0, -0.045, 0.0)}}
# Distance between two arms side by side [m]: by arm, and of all others.
SPACINGS = {"two_link": 0.85}
SPACING = 1.4
ORIGIN: Position = (0.0, 0.0, 0.0)


class ArmScene:
    """One arm with its ghost and its paths."""

    def __init__(
        self,
        server: Any,
        name: str,
        source: Source,
        *,
        origin: Position = ORIGIN,
        drawn: Colour = DRAWN,
    ):
        self._server = server
        self._source = source
        self._visual = VisualModel.of(source.arm)
        self._colour = np.array(drawn)
        self._root = f"/{name}"
        server.scene.add_frame(self._root, show_axes=False, position=origin)
        self._arm = self._add_arm("arm", STEEL, opacity=None)
        self._ghost = self._add_arm("ghost", DRAWN, opacity=GHOST_OPACITY)
        offsets = PATH_OFFSETS.get(source.arm.name, {"desired": ORIGIN, "drawn": ORIGIN})
        self._desired_line = self._add_line("wanted", DESIRED, 6.0, offsets["desired"])
        self._drawn_line = self._add_line("drawn", drawn, 3.0, offsets["drawn"])
        self._tip_offset = np.array(offsets["drawn"])
        self._tip = server.scene.add_icosphere(f"{self._root}/tip", radius=0.012, color=drawn)
        self._trail = np.zeros((0, 7))  # time, desired tool position, drawn tool position
        self._trail_end = -np.inf
        self._lines_due = 0.0

    def _add_arm(self, kind: str, colour: Colour, opacity: float | None) -> dict[int, Any]:
        """Add the meshes of the arm and return the frame of each body."""
        scene = self._server.scene
        frames: dict[int, Any] = {}
        for number, mesh in enumerate(self._visual.meshes()):
            frame = f"{self._root}/{kind}/{mesh.body}"
            if mesh.body not in frames:
                frames[mesh.body] = scene.add_frame(frame, show_axes=False)
            scene.add_mesh_simple(
                f"{frame}/{number}",
                mesh.vertices.astype(np.float32),
                mesh.faces.astype(np.uint32),
                color=colour,
                opacity=opacity,
                cast_shadow=opacity is None,
                receive_shadow=False,
            )
        return frames

    def _add_line(self, name: str, colour: Colour, width: float, offset: Position) -> Any:
        return self._server.scene.add_line_segments(
            f"{self._root}/{name}",
            np.zeros((1, 2, 3), dtype=np.float32),
            np.full((1, 2, 3), colour, dtype=np.uint8),
            thickness=width,
            thickness_units="screen",
            position=offset,
            visible=False,
        )

    def update(self) -> None:
        """Show the newest rows of the source."""
        columns = self._source.recent(TRAIL_SECONDS)
        if len(columns["t"]) == 0:
            return
        q = columns["q"][-1]
        q_des = columns["q_des"][-1]
        if not (np.isfinite(q).all() and np.isfinite(q_des).all()):
            return
        self._pose(self._arm, q)
        self._pose(self._ghost, q_des)
        self._tip.position = self._visual.at(q).tool + self._tip_offset
        t = columns["t"][:, 0]
        self._extend_trail(t, columns["q_des"], columns["q"])
        if time.monotonic() >= self._lines_due:
            self._lines_due = time.monotonic() + LINE_PERIOD
            self._draw_lines(float(t[-1]))

    def _pose(self, frames: dict[int, Any], q: Any) -> None:
        poses = self._visual.at(q)
        for body, frame in frames.items():
            frame.position = poses.origins[body]
            frame.wxyz = poses.quaternions[body]

    def _extend_trail(self, t: Any, q_des: Any, q: Any) -> None:
        """Add the new rows to the trail; after a jump in time, start a new one."""
        if t[-1] < self._trail_end or t[0] > self._trail_end + 1.0:
            self._trail = self._trail[:0]
            self._trail_end = -np.inf
        dt = self._source.dt
        step = max(1, round(1 / (TRAIL_RATE * dt)))
        new = np.flatnonzero(t > self._trail_end + (step - 0.5) * dt)[::step]
        new = new[np.isfinite(q[new]).all(axis=1)]
        if len(new):
            desired = self._visual.tool_path(q_des[new])
            drawn = self._visual.tool_path(q[new])
            self._trail = np.vstack([self._trail, np.column_stack([t[new], desired, drawn])])
            self._trail_end = t[new[-1]]
        self._trail = self._trail[self._trail[:, 0] > t[-1] - TRAIL_SECONDS]

    def _draw_lines(self, now: float) -> None:
        past = self._trail[self._trail[:, 0] > now - DESIRED_SECONDS, 1:4]
        desired = np.vstack([past, self._visual.tool_path(self._source.ahead())])
        self._put(self._desired_line, desired, np.full((len(desired), 3), DESIRED, dtype=np.uint8))
        # The drawn path fades to white with its age.
        age = np.clip((now - self._trail[:, :1]) / TRAIL_SECONDS, 0.0, 1.0)
        fade = 0.85 * age**2
        colours = self._colour * (1 - fade) + 255 * fade
        self._put(self._drawn_line, self._trail[:, 4:], colours.astype(np.uint8))

    def _put(self, line: Any, path: Points, colours: Any) -> None:
        """Draw a path as line segments with a colour at each end."""
        if len(path) > 1:
            with self._server.atomic():
                line.points = np.stack([path[:-1], path[1:]], axis=1).astype(np.float32)
                line.colors = np.stack([colours[:-1], colours[1:]], axis=1)
        line.visible = len(path) > 1


def prepare_scene(server: Any, arm: str, *, arms: int) -> None:
    """Set up light, floor and camera for one arm or two."""
    scene = server.scene
    scene.set_up_direction("+z")
    # Reflections and shadows take seconds to draw without a graphics card.
    scene.configure_environment_map(None)
    scene.configure_default_lights(cast_shadow=False)
    scene.add_light_ambient("/light", intensity=2.4)
    # The camera looks at the middle between the arms, from further away if there are two.
    middle = SPACINGS.get(arm, SPACING) / 2 * (arms - 1)
    camera = server.initial_camera
    if arm == "two_link":
        camera.position = (0.28 + middle, -1.15 - 0.5 * (arms - 1), 0.1)
        camera.look_at = (0.28 + middle, 0.0, -0.12)
        _add_floor(scene, 4.0, height=-0.55)
    else:
        camera.position = (1.7 + middle, -2.0 - 0.8 * (arms - 1), 1.3)
        camera.look_at = (middle, 0.0, 0.55)
        _add_floor(scene, 6.0, height=0.0)


def _add_floor(scene: Any, width: float, *, height: float) -> None:
    """Draw lines every half metre, darker ones every metre.

    Not viser's own grid: it shades every pixel, which takes a fifth of the drawing time without a
    graphics card, and its shader has to be compiled before the page can be used.
    """
    places = np.arange(-width / 2, width / 2 + 0.25, 0.5)
    edge = np.full_like(places, width / 2)
    level = np.zeros_like(places)
    along_x = [[-edge, places, level], [edge, places, level]]
    along_y = [[places, -edge, level], [places, edge, level]]
    lines = np.concatenate([along_x, along_y], axis=2).transpose(2, 0, 1)
    shades = np.where((places % 1 == 0)[:, None], METRE, FLOOR)
    scene.add_line_segments(
        "/floor",
        lines.astype(np.float32),
        np.tile(shades[:, None], (2, 2, 1)).astype(np.uint8),
        thickness=1.5,
        thickness_units="screen",
        position=(0.0, 0.0, height),
    )
