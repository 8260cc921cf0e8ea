"""`delan online` as people type it: numbers for scripts, files that belong to one run, speeds, impossible wishes."""

import errno
import json
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

import delan
from delan.errors import SettingsError
from delan.experiments import online as online_module
from delan.experiments.online import OnlineRun, run_online
from delan.interfaces.cli import app
from delan.interfaces.online import tell
from delan.realtime import recorder as recorder_module
from delan.realtime.recorder import Recorder

from .stand_ins import CHAIN, StandInLearner

PLAIN = OnlineRun(feed_forward="none", letters="c", seconds=1.0, clock="stepped")
KEYS = {"periods", "missed", "late_feedforward", "lost_samples", "swaps", "refused", "torque_max", "lateness_us"}


def online(*words: str):
    return CliRunner().invoke(app, ["online", *words, "--clock", "stepped", "--seconds", "1"])


def test_numbers_for_scripts_and_nothing_else(tmp_path):
    shown = online(
        "two-link", "--feedforward", "analytic", "--letters", "c", "--test", "v", "--json", "-o", f"{tmp_path}"
    )
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert set(told["loop"]) >= KEYS
    assert set(told["loop"]["lateness_us"]) == {"p50", "p99", "max"}
    for part in ("train", "test"):
        assert told["tracking"][part]["mse_sum"] == pytest.approx(sum(told["tracking"][part]["mse"]))
    assert told["first_model_seconds"] is None
    assert {path.name for path in tmp_path.iterdir()} == {"recording.run", "tracking.png", "letters.png"}
    assert f"{tmp_path / 'recording.run'}" in told["files"]
    assert len(delan.read_log(tmp_path / "recording.run").t) == told["loop"]["periods"]


@pytest.mark.slow
def test_speeds_are_told_one_by_one_and_together(tmp_path):
    shown = online("wam4", "--feedforward", "true", "--test-speeds", "1,2", "-o", f"{tmp_path}")
    assert shown.exit_code == 0, shown.output
    for name in ("train", "test", "1x", "2x"):
        assert f"Tracking error, {name}: MSE" in shown.stdout


def test_files_of_two_runs_are_not_mixed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert online("two-link", "--feedforward", "pd", "--letters", "c").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"online", "online-2"}
    stale = tmp_path / "online" / "model.delan"
    stale.write_bytes(b"of another run")
    assert online("two-link", "--feedforward", "pd", "--letters", "c", "-o", "online").exit_code == 0
    assert not stale.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("two-link", "--letters", "a,x"), "there is no letter 'x' to write"),
        (("wam5",), "there is no robot 'wam5'"),
        (("wam4", "--friction", "auto"), "online nothing chooses the terms of friction"),
        (("two-link", "--friction", "stops"), "friction with memory (stops) cannot be learned online"),
        (("two-link", "--payload", "3"), "--payload is a time and a share"),
        (("wam4", "--test-speeds", "fast"), "--test-speeds is a list of numbers"),
    ],
)
def test_impossible_wishes_are_refused(words, message, tmp_path):
    shown = online(*words, "-o", f"{tmp_path / 'run'}")
    assert shown.exit_code == 1
    assert message in " ".join(shown.output.split())


def test_what_fails_in_the_last_rows_of_a_recording_is_told(tmp_path, monkeypatch, capsys):
    def full(*_: Any) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorder_module, "chunk_of", full)
    monkeypatch.setattr(online_module, "Recorder", partial(Recorder, period=60.0))  # all rows come when it is closed
    outcome = run_online(PLAIN, record=tmp_path / "a.run")
    stats = outcome.train.stats
    assert stats.unrecorded == stats.periods
    assert "No space left on device" in str(stats.recording_problem)
    tell(outcome)
    assert f"No space left on device; make room ({stats.periods} rows are missing)" in capsys.readouterr().err


def test_the_recording_is_whole_before_the_learner_ends(tmp_path, monkeypatch):
    learner, written = StandInLearner(CHAIN), []

    class Kept(Recorder):
        def close(self, *, patience: float = 10.0) -> None:
            super().close(patience=patience)
            written.append(learner.closed)

    monkeypatch.setattr(online_module, "Recorder", Kept)
    monkeypatch.setattr(online_module, "_learner", lambda *_: learner)
    with pytest.raises(SettingsError, match="a learner needs a feed-forward that can take its models"):
        run_online(PLAIN, record=tmp_path / "a.run")
    assert (written, learner.closed) == ([0], 1)


def test_a_run_that_ends_on_the_way_to_a_test_is_told_whole(capsys):
    stop = threading.Event()
    outcome = run_online(
        replace(PLAIN, test="v"), stop=stop, progress=lambda now: stop.set() if now.label == "to v" else None
    )
    assert outcome.interrupted
    assert json.loads(json.dumps(outcome.as_dict(), allow_nan=False))["tracking"]["test"]["mse_sum"] is None
    tell(outcome)
    assert "Tracking error, test: not reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "wrong", "known"),
    [
        ("clock", "Wall", "wall, stepped"),
        ("feed_forward", "analytical", "none, gravity, analytic"),
        ("engine", "bullet", "mujoco, pybullet"),
        ("reference", "letter", "letters, cosines"),
        ("test_on", "all", "unseen, seen"),
        ("drive", "cables", "rigid, cable"),
        ("optimizer", "sgd", "auto, adam"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_a_misspelt_option_is_refused(field, wrong, known):
    with pytest.raises(SettingsError, match=f"there is no {field} '{wrong}'; there are {known}"):
        OnlineRun(**{field: wrong})


def test_a_misspelt_robot_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["online", "two-links"])
    assert shown.exit_code == 1
    assert "there is no robot 'two-links'" in shown.output
    assert list(tmp_path.iterdir()) == []
