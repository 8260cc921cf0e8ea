"""A run as a moving picture: the arm that draws, what it should draw, and its tracking error; no screen is needed."""

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

from ..drawing import INK, LEARNED, RIVAL, TRUTH, drawing
from ..errors import SettingsError, installing
from ..robots.description import Arm
from ..robots.mujoco_robot import Mannequin
from ..storage import write_whole

Rows = Float[np.ndarray, "time dof"]
Picture = UInt8[np.ndarray, "height width 3"]

TRAIL_SECONDS = 3.0
"""How much of the drawn path is shown [s]."""
ERROR_SECONDS = 0.25
"""Over so long the error is averaged [s]."""
DPI = 100


@dataclass(frozen=True, eq=False)
class Take:
    """One arm in the clip: its name, times t [s], where its joints were and should have been, swaps [s]."""

    label: str
    t: Float[np.ndarray, " time"]
    q: Rows
    q_des: Rows
    swaps: Float[np.ndarray, " swaps"]


@dataclass(frozen=True)
class ClipSettings:
    """How the clip looks: the time between two pictures [ms], and its size in inches.

    It is as fast as the run was. A GIF counts time in steps of 10 ms, and many programs do not show it faster than
    every 20 ms.
    """

    period: int = 60
    width: float = 6.4
    height: float = 3.6

    def __post_init__(self) -> None:
        if self.period < 20 or self.period % 10:
            raise SettingsError(f"pictures come every 20, 30, 40, … ms, got {self.period}; a GIF knows no other times")


def pictures(arm: Arm, takes: Sequence[Take], settings: ClipSettings) -> Iterator[Picture]:
    """The pictures of the clip, one after the other."""
    stages = [_Stage(arm, take, colour) for take, colour in zip(takes, (LEARNED, RIVAL), strict=False)]
    end = min(float(take.t[-1]) for take in takes)
    with drawing(settings.width, settings.height) as figure:
        canvas = FigureCanvasAgg(figure)
        figure.set_dpi(DPI)
        places = figure.subplot_mosaic(
            [[f"arm{i}" for i in range(len(stages))], ["error"] * len(stages)], height_ratios=[2.1, 1]
        )
        for i, stage in enumerate(stages):
            stage.set(places[f"arm{i}"])
        curves = _Curves(places["error"], stages, end)
        for moment in _moments(float(takes[0].t[0]), end, settings.period / 1000):
            for stage in stages:
                stage.show(float(moment))
            curves.show(float(moment))
            canvas.draw()
            yield np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _moments(begin: float, end: float, period: float) -> Float[np.ndarray, " pictures"]:
    """When the pictures are taken [s]: evenly, the last one at the end."""
    return end - period * np.arange(int((end - begin) / period + 1e-6), -1, -1)


class _Stage:
    """One arm on its axes."""

    def __init__(self, arm: Arm, take: Take, colour: str):
        self.take, self.colour = take, colour
        self._mannequin, self._arm = Mannequin.of(arm), arm
        self._plane = _view(arm)
        self._step = max(1, round(0.01 / float(take.t[1] - take.t[0])))
        self._t = take.t[:: self._step]
        self._drawn = self._mannequin.tool_path(take.q[:: self._step]) @ self._plane.T
        self._wanted = self._mannequin.tool_path(take.q_des[:: self._step]) @ self._plane.T

    def set(self, axes: Any) -> None:
        reach = np.concatenate([self._wanted, self._skeleton(self.take.q_des[0])])
        for row in self.take.q_des[:: max(1, len(self.take.t) // 40)]:
            reach = np.concatenate([reach, self._skeleton(row)])
        low, high = reach.min(axis=0) - 0.05, reach.max(axis=0) + 0.05
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.axis("off")
        axes.set_title(self.take.label, color=self.colour, fontweight="bold")
        self._lines = {
            "wanted": axes.plot([], [], color=TRUTH, linewidth=5, solid_capstyle="round")[0],
            "drawn": axes.plot([], [], color=self.colour, linewidth=1.8, zorder=4)[0],
            "ghost": axes.plot([], [], color=self.colour, linewidth=7, alpha=0.2, solid_capstyle="round")[0],
            "arm": axes.plot([], [], color="#7b8794", linewidth=7, solid_capstyle="round", solid_joinstyle="round")[0],
            "joints": axes.plot([], [], "o", color=INK, markersize=3.5, zorder=5)[0],
        }

    def show(self, moment: float) -> None:
        row = int(np.searchsorted(self.take.t, moment, side="right")) - 1
        past = slice(int(np.searchsorted(self._t, moment - TRAIL_SECONDS)), int(np.searchsorted(self._t, moment)) + 1)
        around = slice(past.start, int(np.searchsorted(self._t, moment + 1.0)))
        arm = self._skeleton(self.take.q[row])
        for name, line in (
            ("wanted", self._wanted[around]),
            ("drawn", self._drawn[past]),
            ("arm", arm),
            ("joints", arm),
            ("ghost", self._skeleton(self.take.q_des[row])),
        ):
            self._lines[name].set_data(*line.T)

    def _skeleton(self, q: Any) -> Float[np.ndarray, "points 2"]:
        poses = self._mannequin.at(q)
        return np.vstack([poses.origins, poses.tool]) @ self._plane.T


class _Curves:
    """The tracking error of all arms over time, as far as the clip has come."""

    def __init__(self, axes: Any, stages: Sequence[_Stage], end: float):
        self._curves = []
        for stage in stages:
            take = stage.take
            width = max(1, round(ERROR_SECONDS / float(take.t[1] - take.t[0])))
            mean = np.convolve(((take.q_des - take.q) ** 2).mean(axis=1), np.full(width, 1 / width), mode="same")
            every = max(1, len(take.t) // 1500)
            line = axes.semilogy([], [], color=stage.colour, linewidth=1.4)[0]
            self._curves.append((line, take.t[::every], np.sqrt(np.maximum(mean, 1e-14))[::every]))
        swaps = stages[0].take.swaps
        self._swaps = (axes.plot([], [], "|", color=stages[0].colour, markersize=5, alpha=0.6)[0], swaps)
        low = min(float(error.min()) for _, _, error in self._curves)
        high = max(float(error.max()) for _, _, error in self._curves)
        self._floor = max(low, 1e-5) * 0.6
        axes.set(xlim=(0, end), ylim=(self._floor, 2 * high), xlabel="time [s]", ylabel="error [rad]")
        axes.set_title("tracking error (marks: a new model was taken into use)", loc="left", fontsize=8)
        axes.grid(axis="y")

    def show(self, moment: float) -> None:
        for line, t, error in self._curves:
            end = int(np.searchsorted(t, moment, side="right"))
            line.set_data(t[:end], error[:end])
        marks, swaps = self._swaps
        seen = swaps[swaps <= moment]
        marks.set_data(seen, np.full(len(seen), 1.25 * self._floor))


def _view(arm: Arm) -> Float[np.ndarray, "2 3"]:
    """From space to the picture: the plane of a planar arm, else a look from the side and above."""
    if all(abs(link.axis[1]) == 1 for link in arm.links):
        return np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    turn, tilt = np.radians(-50), np.radians(20)
    right = np.array([np.cos(turn), np.sin(turn), 0.0])
    forward = np.array([-np.sin(turn) * np.cos(tilt), np.cos(turn) * np.cos(tilt), -np.sin(tilt)])
    return np.stack([right, np.cross(right, forward)])


def write_clip(path: Path, frames: Iterator[Picture], period: int) -> None:
    """Write pictures, one every so many ms, as GIF, or as MP4 where ffmpeg is there."""
    if path.suffix.lower() == ".gif":
        _write_gif(path, frames, period)
    else:
        _write_mp4(path, frames, period, encoder())


def require_format(path: Path) -> None:
    """Refuse at once what could not be written in the end."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise SettingsError(f"a clip is a .gif or an .mp4, got {path.name}")
    if path.suffix.lower() == ".mp4":
        encoder()


def encoder() -> str:
    """The ffmpeg of this machine, or that of the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is not None:
        return found
    try:
        from imageio_ffmpeg import get_ffmpeg_exe  # noqa: PLC0415 (not everybody has it)  # pyright: ignore

        return get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise SettingsError(
            f"an .mp4 needs ffmpeg, which is not here; {installing('video')} brings one, or ask for a .gif"
        ) from None


def _write_gif(path: Path, frames: Iterator[Picture], period: int) -> None:
    first = next(frames)
    palette = Image.fromarray(first).quantize(48, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in (first, *frames)]

    def write(file: Any) -> None:
        images[0].save(
            file, format="GIF", save_all=True, append_images=images[1:], duration=period, loop=0, optimize=True
        )

    write_whole(path, write)


def _write_mp4(path: Path, frames: Iterator[Picture], period: int, ffmpeg: str) -> None:
    first = next(frames)
    height, width = (2 * (size // 2) for size in first.shape[:2])
    command = [ffmpeg, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    aside = path.with_name(f".{path.stem}.part.mp4")
    command += ["-r", f"1000/{period}", "-i", "-", "-an", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(aside)]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process, suppress(BrokenPipeError):
            assert process.stdin is not None
            for frame in (first, *frames):
                process.stdin.write(np.ascontiguousarray(frame[:height, :width]).tobytes())
            process.stdin.close()
        if process.returncode != 0:
            raise SettingsError(
                f"{ffmpeg} ended with code {process.returncode}, its own words are above; "
                f"try that of {installing('video')}, or a .gif"
            )
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
