"""Clips: GIF and MP4 files that last as long as the motion that they show."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delan.errors import SettingsError
from delan.report.clip import ClipSettings, Take, encoder, pictures, write_clip
from delan.robots.arms import TWO_LINK
from delan.view.sources import ReplaySource
from tests.support.stand_ins import recorded_letter


@pytest.fixture
def take(tmp_path):
    columns = ReplaySource(recorded_letter(tmp_path)).columns
    t = columns["t"][:, 0]
    return Take("true model", t, columns["q"], columns["q_des"], np.array([0.3]))


def frames_of(path: Path) -> tuple[list[np.ndarray], int]:
    """Return the pictures of a GIF and their whole duration [ms]."""
    frames = []
    duration = 0
    with Image.open(path) as clip:
        for number in range(getattr(clip, "n_frames", 1)):
            clip.seek(number)
            frames.append(np.asarray(clip.convert("RGB"), dtype=float))
            duration += clip.info["duration"]
    return frames, duration


def test_a_gif_lasts_as_long_as_the_run(take, tmp_path):
    frames = list(pictures(TWO_LINK, [take, take], ClipSettings(period=250)))
    write_clip(tmp_path / "clip.gif", iter(frames), 250)
    shown, duration = frames_of(tmp_path / "clip.gif")
    assert np.abs(shown[2] - shown[0]).max() > 50
    assert duration == 250 * len(frames)
    assert duration == pytest.approx(1000 * (take.t[-1] - take.t[0]), abs=250)


@pytest.mark.parametrize("period", [67, 10])
def test_periods_that_a_gif_cannot_represent_are_refused(period):
    with pytest.raises(SettingsError, match=f"every {period} ms; a GIF needs a multiple of 10"):
        ClipSettings(period=period)


def test_an_mp4_shows_the_same(take, tmp_path):
    try:
        ffmpeg = encoder()
    except SettingsError as error:
        pytest.skip(str(error))
    frames = list(pictures(TWO_LINK, [take], ClipSettings(period=250)))
    clip = tmp_path / "clip.mp4"
    write_clip(clip, iter(frames), 250)
    options = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decode = [ffmpeg, "-loglevel", "error", "-i", clip, *options]
    raw = subprocess.run(decode, capture_output=True, check=True).stdout
    decoded = np.frombuffer(raw, np.uint8).reshape(-1, *frames[0].shape)
    assert np.abs(decoded.astype(float) - frames).mean() < 3
    probe = subprocess.run([ffmpeg, "-i", clip], capture_output=True, text=True, check=False)
    minutes, seconds = re.findall(r"Duration: 00:(\d\d):([\d.]+)", probe.stderr)[0]
    assert (int(minutes), float(seconds)) == (0, pytest.approx(0.25 * len(frames), abs=0.02))
    assert not list(tmp_path.glob(".*"))


def test_an_encoder_that_fails_leaves_no_file(take, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: "/bin/false")
    frames = pictures(TWO_LINK, [take], ClipSettings(period=250))
    with pytest.raises(SettingsError, match="/bin/false failed with exit code 1"):
        write_clip(tmp_path / "clip.mp4", frames, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recording.run"]
