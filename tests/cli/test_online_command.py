"""`delan online` as people type it: numbers for scripts, files that belong to one run, speeds,
impossible wishes.
"""

import errno
import json
import shutil
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

import delan
from delan.cli.main import app
from delan.cli.online_command import print_summary
from delan.errors import SettingsError
from delan.online import online_run as online_run_module
from delan.online import recorder as recorder_module
from delan.online import session as session_module
from delan.online.online_run import OnlineRun, run_online
from delan.online.recorder import Recorder, owned_folder
from delan.online.rig import Observers
from tests.support.stand_ins import CHAIN, StandInLearner

PLAIN = OnlineRun(model="none", letters="c", seconds=1.0, clock="stepped")
KEYS = {
    "periods",
    "missed",
    "late_feedforward",
    "lost_samples",
    "swaps",
    "refused",
    "torque_max",
    "lateness_us",
}


def online(*words: str):
    return CliRunner().invoke(app, ["online", *words, "--clock", "stepped", "--seconds", "1"])


def test_numbers_for_scripts_and_nothing_else(tmp_path):
    shown = online(
        "two-link",
        "--model",
        "analytic",
        "--letters",
        "c",
        "--test",
        "v",
        "--json",
        "-o",
        f"{tmp_path}",
    )
    assert shown.exit_code == 0, shown.output
    payload = json.loads(shown.stdout)
    assert set(payload["loop"]) >= KEYS
    assert set(payload["loop"]["lateness_us"]) == {"p50", "p99", "max"}
    for part in ("train", "test"):
        assert payload["tracking"][part]["mse_sum"] == pytest.approx(
            sum(payload["tracking"][part]["mse"])
        )
    assert payload["first_model_seconds"] is None
    assert {path.name for path in tmp_path.iterdir()} == {
        "recording.run",
        "tracking.png",
        "letters.png",
    }
    assert f"{tmp_path / 'recording.run'}" in payload["files"]
    assert len(delan.read_log(tmp_path / "recording.run").t) == payload["loop"]["periods"]


@pytest.mark.slow
def test_speeds_are_reported_each_and_together(tmp_path):
    shown = online("wam4", "--model", "true", "--test-speeds", "1,2", "-o", f"{tmp_path}")
    assert shown.exit_code == 0, shown.output
    for name in ("train", "test", "1x", "2x"):
        assert f"Tracking error, {name}: MSE" in shown.stdout


def test_files_of_two_runs_are_not_mixed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert online("two-link", "--model", "none", "--letters", "c").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"online", "online-2"}
    stale = tmp_path / "online" / "model.delan"
    stale.write_bytes(b"of another run")
    assert online("two-link", "--model", "none", "--letters", "c", "-o", "online").exit_code == 0
    assert not stale.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("two-link", "--letters", "a,x"), "unknown letter 'x'"),
        (("wam5",), "unknown robot 'wam5'"),
        (("wam4", "--friction", "auto"), "--friction viscous,coulomb"),
        (
            ("two-link", "--friction", "stops"),
            "friction with memory (stops) cannot be learned online",
        ),
        (("two-link", "--payload", "3"), "--payload is a time and a share"),
        (("wam4", "--test-speeds", "fast"), "--test-speeds is a list of numbers"),
    ],
)
def test_impossible_wishes_are_refused(words, message, tmp_path):
    shown = online(*words, "-o", f"{tmp_path / 'run'}")
    assert shown.exit_code == 1
    assert message in " ".join(shown.output.split())


def test_what_fails_in_the_last_rows_of_a_recording_is_reported(tmp_path, monkeypatch, capsys):
    def full(*_: Any) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorder_module, "chunk_of", full)
    monkeypatch.setattr(
        session_module, "Recorder", partial(Recorder, period=60.0)
    )  # all rows come when it is closed
    outcome = run_online(PLAIN, record=tmp_path / "a.run")
    stats = outcome.train.stats
    assert stats.unrecorded == stats.periods
    assert "No space left on device" in str(stats.recording_problem)
    print_summary(outcome)
    assert f"({stats.periods} rows are missing)" in capsys.readouterr().err


def test_a_second_run_into_a_folder_is_refused_and_changes_nothing(tmp_path):
    (tmp_path / "model.delan").write_bytes(b"of the first run")
    words = ("two-link", "--model", "none", "--letters", "c", "-o", f"{tmp_path}")
    with owned_folder(tmp_path):
        refused = online(*words)
    assert refused.exit_code == 1
    assert "another run is recording here" in " ".join(refused.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["model.delan"]
    assert online(*words).exit_code == 0


def test_a_full_disk_is_said_at_once_and_in_the_result(tmp_path, monkeypatch):
    def full(*_: Any) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorder_module, "chunk_of", full)
    words = ("two-link", "--model", "none", "--letters", "c", "--json", "-o", f"{tmp_path}")
    shown = online(*words)
    assert shown.exit_code == 1
    assert "recording stopped after 0 rows: No space left on device" in shown.stderr
    loop = json.loads(shown.stdout)["loop"]
    assert (loop["recorded"], loop["unrecorded"]) == (0, loop["periods"])
    assert "No space left on device" in loop["recording_problem"]


def test_a_folder_that_goes_away_does_not_hide_the_result(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    real_run = online_run_module.run_online

    def without_folder(*args: Any, **more: Any) -> Any:
        outcome = real_run(*args, **more)
        shutil.rmtree(folder)
        return outcome

    monkeypatch.setattr(online_run_module, "run_online", without_folder)
    shown = online("two-link", "--model", "none", "--letters", "c", "-o", f"{folder}")
    assert shown.exit_code == 1
    assert "Tracking error, train: MSE" in shown.stdout
    assert "tracking.png: cannot be written: No such file or directory" in shown.stderr


def test_the_recording_is_complete_before_the_learner_ends(tmp_path, monkeypatch):
    learner, written = StandInLearner(CHAIN), []

    class Kept(Recorder):
        def close(self, *, patience: float = 10.0) -> None:
            super().close(patience=patience)
            written.append(learner.closed)

    real_add = session_module.Session.add

    def add(session: session_module.Session, name: str, feed_forward: Any) -> Any:
        session.rigs[name] = replace(real_add(session, name, feed_forward), learner=learner)
        return session.rigs[name]

    monkeypatch.setattr(session_module, "Recorder", Kept)
    monkeypatch.setattr(session_module.Session, "add", add)
    with pytest.raises(SettingsError, match="a learner needs a feed-forward"):
        run_online(PLAIN, record=tmp_path / "a.run")
    assert (written, learner.closed) == ([0], 1)


def test_a_run_that_ends_on_the_way_to_a_test_is_reported_whole(capsys):
    stop = threading.Event()
    outcome = run_online(
        replace(PLAIN, test="v"),
        observers=Observers(
            progress=lambda now: stop.set() if now.label == "to v" else None, stop=stop
        ),
    )
    assert outcome.interrupted
    assert (
        json.loads(json.dumps(outcome.as_dict(), allow_nan=False))["tracking"]["test"]["mse_sum"]
        is None
    )
    print_summary(outcome)
    assert "Tracking error, test: not reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "wrong", "known"),
    [
        ("clock", "Wall", "wall, stepped"),
        ("model", "analytical", "none, gravity, analytic"),
        ("engine", "bullet", "mujoco, pybullet"),
        ("reference", "letter", "letters, cosines"),
        ("test_on", "all", "unseen, seen"),
        ("drive", "cables", "rigid, cable"),
        ("optimizer", "sgd", "auto, adam"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_a_misspelt_option_is_refused(field, wrong, known):
    with pytest.raises(SettingsError, match=f"unknown {field} '{wrong}'; known: {known}"):
        OnlineRun(**{field: wrong})


def test_a_misspelt_robot_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["online", "two-links"])
    assert shown.exit_code == 1
    assert "unknown robot 'two-links'" in shown.output
    assert list(tmp_path.iterdir()) == []
