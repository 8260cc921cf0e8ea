"""A run as a moving picture, drawn without a display: arm, desired path and tracking error."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from ..errors import SettingsError, installing
from ..figures import INK, LEARNED, RIVAL, TRUTH, drawing, smoothed_error
from ..robots.description import Arm
from ..robots.mujoco_robot import VisualModel
from ..storage import write_whole

Rows = Float[np.ndarray, "time dof"]
Picture = UInt8[np.ndarray, "height width 3"]

# How much of the drawn path is shown, and how far the desired path leads it [s].
TRAIL_SECONDS = 3.0
AHEAD_SECONDS = 1.0
# Time between two points of a path [s].
PATH_STEP = 0.01
# A curve with more points than its axes have pixels would only take longer to draw.
MOST_ERROR_POINTS = 1500
DPI = 100
# The pictures have few colours; a small palette keeps a GIF small.
GIF_COLOURS = 48


@dataclass(frozen=True, eq=False)
class Take:
    """One arm in a clip.

    Attributes:
        label: its title.
        t: times from the start of the clip [s].
        q, q_des: measured and desired joint positions [rad or m].
        swaps: times at which a new model was put into use [s].
    """

    label: str
    t: Float[np.ndarray, " time"]
    q: Rows
    q_des: Rows
    swaps: Float[np.ndarray, " swaps"]


@dataclass(frozen=True)
class ClipSettings:
    """Time between two pictures [ms], and size of a picture [inches].

    A GIF counts time in steps of 10 ms, and many programs show no more than a picture per 20 ms.
    """

    period: int = 60
    width: float = 6.4
    height: float = 3.6

    def __post_init__(self) -> None:
        if self.period < 20 or self.period % 10:
            raise SettingsError(
                f"a clip has a picture every {self.period} ms; a GIF needs a multiple of 10, "
                "at least 20"
            )


def pictures(arm: Arm, takes: Sequence[Take], settings: ClipSettings) -> Iterator[Picture]:
    """Yield the pictures of a clip of one arm or two, in real time."""
    colours = (LEARNED, RIVAL)
    stages = []
    for take, colour in zip(takes, colours, strict=False):
        stages.append(_Stage(arm, take, colour))
    end = min(float(take.t[-1]) for take in takes)
    with drawing(settings.width, settings.height) as figure:
        canvas = FigureCanvasAgg(figure)
        figure.set_dpi(DPI)
        names = [f"arm{i}" for i in range(len(stages))]
        mosaic: Any = [names, ["error"] * len(stages)]
        axes = figure.subplot_mosaic(mosaic, height_ratios=[2.1, 1])
        for name, stage in zip(names, stages, strict=True):
            stage.prepare(axes[name])
        curves = _ErrorCurves(axes["error"], stages, end)
        for moment in _moments(float(takes[0].t[0]), end, settings.period / 1000):
            for stage in stages:
                stage.show(float(moment))
            curves.show(float(moment))
            canvas.draw()
            yield np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _moments(begin: float, end: float, period: float) -> Float[np.ndarray, " pictures"]:
    """Return the evenly spaced times of the pictures [s], the last one at the end."""
    return end - period * np.arange(int((end - begin) / period + 1e-6), -1, -1)


class _Stage:
    """One arm on its axes."""

    def __init__(self, arm: Arm, take: Take, colour: str):
        self.take = take
        self.colour = colour
        self._visual = VisualModel.of(arm)
        self._plane = _picture_plane(arm)
        step = max(1, round(PATH_STEP / float(take.t[1] - take.t[0])))
        self._t = take.t[::step]
        self._drawn = self._visual.tool_path(take.q[::step]) @ self._plane.T
        self._desired = self._visual.tool_path(take.q_des[::step]) @ self._plane.T

    def prepare(self, axes: Any) -> None:
        """Set the limits and the title of the axes, and add the lines that `show` moves."""
        reach = [self._desired, self._skeleton(self.take.q_des[0])]
        for row in self.take.q_des[:: max(1, len(self.take.t) // 40)]:
            reach.append(self._skeleton(row))
        points = np.concatenate(reach)
        low = points.min(axis=0) - 0.05
        high = points.max(axis=0) + 0.05
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.axis("off")
        axes.set_title(self.take.label, color=self.colour, fontweight="bold")
        thick: Any = {"linewidth": 7, "solid_capstyle": "round", "solid_joinstyle": "round"}
        styles: dict[str, dict[str, Any]] = {
            "desired": {"color": TRUTH, "linewidth": 5, "solid_capstyle": "round"},
            "drawn": {"color": self.colour, "linewidth": 1.8, "zorder": 4},
            "ghost": {"color": self.colour, "alpha": 0.2, **thick},
            "arm": {"color": "#7b8794", **thick},
            "joints": {"color": INK, "marker": "o", "ls": "", "markersize": 3.5, "zorder": 5},
        }
        self._lines = {name: axes.plot([], [], **style)[0] for name, style in styles.items()}

    def show(self, moment: float) -> None:
        row = int(np.searchsorted(self.take.t, moment, side="right")) - 1
        start = int(np.searchsorted(self._t, moment - TRAIL_SECONDS))
        now = int(np.searchsorted(self._t, moment)) + 1
        ahead = int(np.searchsorted(self._t, moment + AHEAD_SECONDS))
        arm = self._skeleton(self.take.q[row])
        self._lines["desired"].set_data(*self._desired[start:ahead].T)
        self._lines["drawn"].set_data(*self._drawn[start:now].T)
        self._lines["ghost"].set_data(*self._skeleton(self.take.q_des[row]).T)
        self._lines["arm"].set_data(*arm.T)
        self._lines["joints"].set_data(*arm.T)

    def _skeleton(self, q: Any) -> Float[np.ndarray, "points 2"]:
        """Return the origins of the bodies and the tool in the picture."""
        poses = self._visual.at(q)
        return np.vstack([poses.origins, poses.tool]) @ self._plane.T


class _ErrorCurves:
    """The tracking error of all arms up to the present picture."""

    def __init__(self, axes: Any, stages: Sequence[_Stage], end: float):
        self._curves = []
        low = np.inf
        high = 0.0
        for stage in stages:
            take = stage.take
            error = smoothed_error(take.t, ((take.q_des - take.q) ** 2).mean(axis=1))
            step = max(1, len(take.t) // MOST_ERROR_POINTS)
            error = error[::step]
            line = axes.semilogy([], [], color=stage.colour, linewidth=1.4)[0]
            self._curves.append((line, take.t[::step], error))
            low = min(low, float(error.min()))
            high = max(high, float(error.max()))
        self._swaps = stages[0].take.swaps
        self._marks = axes.plot([], [], "|", color=stages[0].colour, markersize=5, alpha=0.6)[0]
        self._bottom = max(low, 1e-5) * 0.6
        axes.set(xlim=(0, end), ylim=(self._bottom, 2 * high))
        axes.set(xlabel="time [s]", ylabel="error [rad]")
        title = "tracking error (marks: a new model was put into use)"
        axes.set_title(title, loc="left", fontsize=8)
        axes.grid(axis="y")

    def show(self, moment: float) -> None:
        for line, t, error in self._curves:
            end = int(np.searchsorted(t, moment, side="right"))
            line.set_data(t[:end], error[:end])
        past = self._swaps[self._swaps <= moment]
        self._marks.set_data(past, np.full(len(past), 1.25 * self._bottom))


def _picture_plane(arm: Arm) -> Float[np.ndarray, "2 3"]:
    """Return the picture's axes: the plane of a planar arm, else a view from the side and above."""
    if all(abs(link.axis[1]) == 1 for link in arm.links):
        return np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    turn = np.radians(-50)
    tilt = np.radians(20)
    right = np.array([np.cos(turn), np.sin(turn), 0.0])
    forward = np.array([-np.sin(turn) * np.cos(tilt), np.cos(turn) * np.cos(tilt), -np.sin(tilt)])
    return np.stack([right, np.cross(right, forward)])


def write_clip(path: Path, frames: Iterator[Picture], period: int) -> None:
    """Write pictures with a period [ms] as GIF, or as MP4 with ffmpeg."""
    if path.suffix.lower() == ".gif":
        _write_gif(path, frames, period)
    else:
        _write_mp4(path, frames, period, encoder())


def require_format(path: Path) -> None:
    """Refuse a clip that cannot be written before it is drawn."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise SettingsError(f"a clip is a .gif or an .mp4, got {path.name}")
    if path.suffix.lower() == ".mp4":
        encoder()


def encoder() -> str:
    """Return the path of ffmpeg, of this machine or of the package imageio-ffmpeg."""
    path = shutil.which("ffmpeg")
    if path is not None:
        return path
    try:
        from imageio_ffmpeg import get_ffmpeg_exe  # noqa: PLC0415 (optional)  # pyright: ignore

        return get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise SettingsError(
            "an .mp4 needs ffmpeg, which is not installed; "
            f"get it with {installing('video')}, or write a .gif"
        ) from None


def _write_gif(path: Path, frames: Iterator[Picture], period: int) -> None:
    first = Image.fromarray(next(frames))
    # All pictures share the palette of the first: palettes that change would flicker.
    palette = first.quantize(GIF_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    images = [first.quantize(palette=palette, dither=Image.Dither.NONE)]
    for frame in frames:
        picture = Image.fromarray(frame)
        images.append(picture.quantize(palette=palette, dither=Image.Dither.NONE))

    def write(file: Any) -> None:
        images[0].save(
            file,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=period,
            loop=0,
            optimize=True,
        )

    write_whole(path, write)


def _write_mp4(path: Path, frames: Iterator[Picture], period: int, ffmpeg: str) -> None:
    first = next(frames)
    # The pixel format yuv420p needs even sizes.
    height = 2 * (first.shape[0] // 2)
    width = 2 * (first.shape[1] // 2)
    # Written beside the clip and renamed, so that a failure leaves the previous clip intact.
    partial = path.with_name(f".{path.stem}.part.mp4")
    source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r 1000/{period} -i -"
    target = "-an -pix_fmt yuv420p -movflags +faststart"
    command = [ffmpeg, "-y", "-loglevel", "error", *source.split(), *target.split(), str(partial)]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process, suppress(BrokenPipeError):
            assert process.stdin is not None
            for frame in (first, *frames):
                process.stdin.write(np.ascontiguousarray(frame[:height, :width]).tobytes())
            process.stdin.close()
        if process.returncode != 0:
            raise SettingsError(
                f"{ffmpeg} failed with exit code {process.returncode}, its message is above; "
                f"try the one of {installing('video')}, or write a .gif"
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
