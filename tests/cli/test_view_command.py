"""`delan view` without a browser: what it refuses, and clips."""

import sys

import pytest
from typer.testing import CliRunner

from delan.cli.main import app
from delan.cli.view_command import ROBOTS
from delan.robots import ARMS
from tests.report.test_clip import frames_of


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing.run",), "nothing.run is neither a robot"),
        (("wam4", "--reference", "letters"), "letters are not for wam4"),
        (("two-link", "--host", "0.0.0.0"), "lets other machines control the robot"),
        (("running",), "none of your runs is active"),
        (("two-link", "--record", "clip.avi"), "a clip is a .gif or an .mp4"),
        (("running", "--record", "clip.gif"), "a clip shows a recording or a new run"),
    ],
)
def test_impossible_requests_are_refused(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    result = CliRunner().invoke(app, ["view", *words, "--port", "0"])
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


def test_the_command_knows_every_arm():
    assert tuple(ARMS) == ROBOTS


def test_an_mp4_without_its_encoder_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    result = CliRunner().invoke(app, ["view", "two-link", "--record", str(tmp_path / "clip.mp4")])
    assert result.exit_code == 1
    assert "-m pip install 'delan[video]'" in " ".join(result.output.split())


@pytest.mark.slow
def test_a_clip_of_a_run_is_as_long_as_requested(tmp_path):
    clip = tmp_path / "clip.gif"
    options = ["--model", "none", "--seconds", "2", "--record", str(clip)]
    result = CliRunner().invoke(app, ["view", "two-link", *options])
    assert result.exit_code == 0, result.output
    assert frames_of(clip)[1] == pytest.approx(2000, abs=60)
