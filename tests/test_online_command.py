"""`delan online` as people type it: numbers for scripts, files that belong to one run, speeds, impossible wishes."""

import json

import pytest
from typer.testing import CliRunner

import delan
from delan.interfaces.cli import app

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
        (("two-link", "--payload", "3"), "--payload is a time and a share"),
        (("wam4", "--test-speeds", "fast"), "--test-speeds is a list of numbers"),
    ],
)
def test_impossible_wishes_are_refused(words, message, tmp_path):
    shown = online(*words, "-o", f"{tmp_path / 'run'}")
    assert shown.exit_code == 1
    assert message in " ".join(shown.output.split())
