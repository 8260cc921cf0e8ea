"""The command line as a person types it: mostly in processes of its own, with files, signals and
exit codes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import delan
from delan import storage
from delan.cli.app import progress_text
from delan.cli.main import app
from delan.joints import Dataset, Joints
from delan.motions.letters import LETTERS
from delan.robots.arms import WAM4
from delan.robots.mujoco_robot import MujocoRobot
from delan.solvers.training import HistoryRow, Progress
from tests.support.members import pendulum

DELAN = [sys.executable, "-m", "delan.cli.main"]
FIT = ["fit", "--model", "delan"]


def run(*arguments: object, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DELAN, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def typed(*arguments: object) -> Result:
    """The command in this process, for what needs none of its own."""
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "80", "TERM": "dumb"})


def write(path: Path, data: Dataset) -> Path:
    columns = {name: getattr(data, name) for name in ("t", "q", "qd", "qdd", "tau", "trajectory")}
    arrays: dict[str, Any] = {**columns, **data.truth}
    np.savez(path, **arrays)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with two logs and a model fitted to the first, as JSON tells in `fit.json`."""
    path = tmp_path_factory.mktemp("cli")
    write(path / "arm.npz", pendulum())
    write(path / "other.npz", pendulum(seed=9))
    fitted = run(
        *FIT,
        "arm.npz",
        "-o",
        "arm.delan",
        "--test",
        "other.npz",
        "--epochs",
        30,
        "--json",
        cwd=path,
    )
    assert fitted.returncode == 0, fitted.stderr
    (path / "fit.json").write_text(fitted.stdout)
    return path


def test_help_comes_without_the_heavy_libraries():
    code = (
        "import sys; sys.argv = ['delan', '--help']; "
        "from delan.cli.main import app; app(standalone_mode=False); "
        "heavy = ('jax', 'matplotlib', 'pinocchio', 'mujoco', 'scipy'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip().endswith("[]")
    assert all(command in shown.stdout for command in ("demo", "fit", "evaluate"))


def test_fit_prints_json_on_stdout_alone(folder):
    payload = json.loads((folder / "fit.json").read_text())
    for quantity in ("torque", "inertial", "coriolis", "gravity"):
        assert {"mse", "mse_sum", "rmse", "nmse", "nmse_mean", "r2"} < set(payload[quantity])
        assert len(payload[quantity]["mse"]) == 1
    assert payload["torque"]["nmse_mean"] < 1e-4
    assert payload["scored_on"] == "test"
    assert payload["seconds"] > 0
    assert payload["optimizer"] == "lm"
    assert not payload["interrupted"]


def test_evaluate_repeats_the_scores_of_the_fit(folder):
    payload = json.loads((folder / "fit.json").read_text())
    again = json.loads(run("evaluate", "arm.delan", "other.npz", "--json", cwd=folder).stdout)
    assert again["torque"] == payload["torque"]
    assert again["gravity"] == payload["gravity"]


def test_the_model_file_remembers_its_making(folder):
    header = storage.read_header(folder / "arm.delan")
    payload = json.loads((folder / "fit.json").read_text())
    assert header["scores"]["test"]["torque"] == payload["torque"]
    assert header["fit"]["settings"]["epochs"] == 30
    assert header["log"] == "arm.npz"


@pytest.mark.slow
def test_the_same_seed_writes_the_same_weights(folder):
    run(*FIT, "arm.npz", "-o", "again.delan", "--epochs", 30, cwd=folder)
    run(*FIT, "arm.npz", "-o", "seed1.delan", "--epochs", 30, "--seed", 1, cwd=folder)
    models = [
        storage.read_arrays(folder / name, storage.FORMAT)[0]
        for name in ("arm.delan", "again.delan", "seed1.delan")
    ]
    assert all(np.array_equal(models[0][name], models[1][name]) for name in models[0])
    assert not all(np.array_equal(models[0][name], models[2][name]) for name in models[0])


def test_people_get_a_table(folder):
    shown = run("evaluate", "arm.delan", "other.npz", cwd=folder)
    assert shown.returncode == 0
    assert all(
        word in shown.stdout for word in ("torque", "gravity", "acceleration", "nMSE", "other.npz")
    )


def test_a_feed_forward_fit_and_several_seeds(folder):
    shown = run(
        "fit",
        "arm.npz",
        "-o",
        "ff.delan",
        "--model",
        "feedforward",
        "--width",
        8,
        "--epochs",
        10,
        "--seeds",
        2,
        cwd=folder,
    )
    assert shown.returncode == 0, shown.stderr
    assert "Validation nMSE of 2 seeds" in shown.stdout
    assert storage.read_header(folder / "ff.delan")["architecture"]["width"] == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none.npz"], "delan: none.npz: no such file; check the path"),
        (
            ["fit", "arm.npz", "-o", "x.delan", "--seconds", "1", "--epochs", "1"],
            "both limit the training; give one of them",
        ),
        (["fit", "arm.npz", "-o", "."], "is a folder; give another output path"),
        (
            ["fit", "arm.npz", "-o", "none/x.delan"],
            "there is no folder none for x.delan; make it or give another output",
        ),
        ([*FIT, "arm.npz", "--width", "0"], "width and depth must be at least 1, got width=0"),
        (["fit", "arm.npz", "--seconds", "-1"], "--seconds must be positive and finite, got -1"),
        (
            ["evaluate", "arm.npz", "arm.npz"],
            "arm.npz: is no model file of delan; give a file that `delan` wrote",
        ),
        (["evaluate", "none.delan", "arm.npz"], "none.delan: no such file; check the path"),
    ],
)
def test_bad_input_gets_one_clear_line(folder, monkeypatch, as_shipped, arguments, message):
    monkeypatch.chdir(folder)
    shown = typed(*arguments)
    assert shown.exit_code == 1
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr
    assert shown.stdout == ""


def test_a_check_of_a_folder_names_every_file_that_cannot_be_read(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm.npz").write_bytes((folder / "arm.npz").read_bytes())
    (tmp_path / "notes.csv").write_text("hello\n")
    alone = typed("check", ".")
    assert alone.exit_code == 2
    advice, error = alone.stderr.splitlines()
    assert advice == "The others can be read: delan check arm.npz"
    assert error.startswith("delan: notes.csv: no joint columns in the header (hello)")
    (tmp_path / "other.csv").write_text("time;foo\n1;2\n")
    both = typed("check", ".")
    assert both.exit_code == 2
    _, first, *rest = both.stderr.splitlines()
    assert first == "delan: 2 of 3 files cannot be read:"
    assert [line.split(":")[0] for line in rest] == ["  notes.csv", "  other.csv"]


@pytest.mark.parametrize(
    ("wide", "words"), [(False, "val 2.0e-03, 30 s left"), (True, "loss 1.0e-03, val 2.0e-03")]
)
def test_what_stands_beside_a_bar_fits_the_terminal(wide, words):
    now = Progress(HistoryRow("lm", 5, 10.0, 1e-3, 2e-3), 2e-3, 400.0, 0.25)
    shown = progress_text(now, wide=wide)
    assert shown.startswith(words)
    assert shown.endswith("400 samples/s") == wide


@pytest.mark.parametrize(("choice", "guess"), [("chian", " Did you mean 'chain'?"), ("xyz", "")])
def test_a_misspelled_choice_gets_a_guess(choice, guess):
    shown = typed("fit", "arm.npz", "--model", choice)
    assert shown.exit_code == 2
    words = " ".join(shown.stderr.replace("│", " ").split())
    assert (
        f"'--model': '{choice}' is not one of 'auto', 'chain', 'delan', 'feedforward'.{guess}"
        in words
    )
    assert ("Did you mean" in words) == bool(guess)


def test_a_test_log_of_another_robot_is_found_before_the_training(folder):
    data = pendulum(trajectories=2)
    twice = {name: np.repeat(getattr(data, name), 2, axis=1) for name in ("q", "qd", "qdd", "tau")}
    write(folder / "two.npz", replace(data, **twice, truth={}, joints=Joints.revolute(2)))
    shown = run(*FIT, "arm.npz", "-o", "never.delan", "--test", "two.npz", cwd=folder)
    assert shown.returncode == 1
    assert "the model has 1 joints and two.npz has 2" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert shown.stdout == ""
    assert not (folder / "never.delan").exists()


def test_a_misspelt_option_is_refused(folder):
    shown = run("fit", "arm.npz", "--epoch", 3, cwd=folder)
    assert shown.returncode == 2
    assert "--epochs" in shown.stderr


LISTENING = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""A background shell has its children ignore Ctrl-C; this makes the command listen to it all the
same.
"""


def test_ctrl_c_saves_the_best_model_and_resume_continues(folder):
    """A fit of far too many epochs, stopped from outside once it has kept a checkpoint."""
    fit = [
        *FIT,
        "arm.npz",
        "-o",
        "stopped.delan",
        "--optimizer",
        "adam",
        "--width",
        "8",
        "--json",
        "--epochs",
    ]
    command = [sys.executable, "-c", LISTENING, *DELAN, *fit, "1000000"]
    checkpoint = folder / "stopped.delan.checkpoint"
    deadline = time.monotonic() + 120
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while not checkpoint.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            assert checkpoint.exists()
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, stderr
    assert json.loads(stdout)["interrupted"]
    assert "holds the best model so far, --resume continues" in stderr
    assert storage.load(folder / "stopped.delan").joints.dof == 1
    refused = run(*fit, "2000000", "--resume", cwd=folder)
    assert refused.returncode == 1
    assert "made with other data, settings or seed" in refused.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_an_unwritable_folder_is_found_before_the_work(folder, tmp_path):
    tmp_path.chmod(0o500)
    shown = run("fit", "arm.npz", "-o", tmp_path / "x.delan", cwd=folder)
    assert shown.returncode == 1
    assert "is in a folder that cannot be written" in shown.stderr


def test_nonsense_is_doubted(folder):
    """Torques of another arm: the model is worse than a constant, and the command says so."""
    data = pendulum(seed=9)
    write(folder / "strange.npz", replace(data, tau=-data.tau, truth={}))
    shown = run("evaluate", "arm.delan", "strange.npz", cwd=folder)
    assert shown.returncode == 0
    assert "no better than its mean torque; check the units" in shown.stderr


@pytest.mark.slow
def test_a_resume_without_checkpoint_says_so(folder):
    shown = run(*FIT, "arm.npz", "-o", "fresh.delan", "--epochs", 2, "--resume", cwd=folder)
    assert shown.returncode == 0
    assert "there is no checkpoint fresh.delan.checkpoint; starting anew" in shown.stderr


def test_the_version_is_printed(folder):
    shown = run("--version", cwd=folder)
    assert shown.stdout.startswith("delan 0.")


@pytest.mark.slow
def test_references_are_drawn_and_written(tmp_path):
    shown = run("references", "letters", "--plot", "letters.png", "-o", "letters.npz", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "letters.png").read_bytes().startswith(b"\x89PNG")
    with np.load(tmp_path / "letters.npz") as motions:
        assert "".join(motions["labels"]) == "".join(LETTERS)
        assert motions["q"].shape == motions["qdd"].shape == (len(motions["t"]), 2)
    slow, fast = tmp_path / "slow.npz", tmp_path / "fast.npz"
    run("references", "cosines", "--robot", "wam4", "-o", slow, cwd=tmp_path)
    run("references", "cosines", "--robot", "wam4", "-o", fast, "--speed", 2, cwd=tmp_path)
    with np.load(slow) as item, np.load(fast) as other:
        assert other["t"][-1] == pytest.approx(item["t"][-1] / 2, rel=1e-2)
        np.testing.assert_allclose(other["q"], item["q"][::2][: len(other["q"])], atol=1e-9)
        engine = MujocoRobot.of(WAM4)
        for row in (0, len(item["q"]) // 2):
            expected = engine.inverse_dynamics(item["q"][row], item["qd"][row], item["qdd"][row])
            np.testing.assert_allclose(item["tau"][row], expected, atol=1e-8)
    log = delan.read_log(slow)
    assert log.tau.shape == log.q.shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["references", "letters"],
            "nothing to write: give --plot PICTURE, --out FILE.npz, or both",
        ),
        (
            ["references", "letters", "--robot", "wam7", "-o", "x.npz"],
            "letters are written by the two-link arm, not by wam7",
        ),
        (
            ["references", "cosines", "--robot", "panda", "-o", "x.npz"],
            "unknown robot 'panda'; available: two-link, wam4, wam7",
        ),
        (["references", "letters", "--plot", "x.bmp"], "a picture is a .png, .svg or .pdf file"),
        (["references", "cosines", "-o", "x.csv"], "x.csv: motions are written as .npz files"),
    ],
)
def test_bad_references_get_one_clear_line(arguments, message, tmp_path, monkeypatch, as_shipped):
    monkeypatch.chdir(tmp_path)
    shown = typed(*arguments)
    assert shown.exit_code == 1
    assert message in shown.stderr
    assert not list(tmp_path.iterdir())
