"""`delan fit` on a log without accelerations: what it writes, what it says, and what it refuses."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import delan.learning.fit
from delan import storage
from delan.cli.fit_request import FitRequest
from delan.cli.log_options import with_kinds_of
from delan.cli.main import app
from delan.joints import Joints, Recording
from delan.learning.fit import Fit
from delan.learning.fit_settings import FitSettings, fit_options
from delan.learning.presets import PAPER
from delan.models.geometry import from_rigid_body
from delan.models.rigid_body import RigidBody
from delan.paper.motion_logs import cosine_motion
from delan.robots.arms import TWO_LINK
from tests.cli.test_cli import LISTENING
from tests.support.faulty_logs import exchanged
from tests.support.random_arms import random_arm, swung
from tests.support.simulated_logs import known_fit, recorded, rubbing, write


def delan_(*typed: object) -> Result:
    return CliRunner().invoke(app, [*map(str, typed)], env={"COLUMNS": "80", "TERM": "dumb"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two logs of an arm and its URDF."""
    path = tmp_path_factory.mktemp("fit")
    write(recorded(TWO_LINK), path / "arm.npz")
    write(recorded(TWO_LINK, (7,)), path / "other.npz")
    (path / "arm.urdf").write_text(TWO_LINK.urdf())
    return path


@pytest.fixture(scope="module")
def known() -> Fit:
    return known_fit(TWO_LINK)


@pytest.fixture
def contest(known, monkeypatch) -> dict[str, Any]:
    """A contest that ends at once, and what it was asked for; `fit` is what it gives."""
    asked: dict[str, Any] = {"fit": known}

    def fit(
        recording: Recording,
        models: Any,
        *,
        friction: Any,
        urdf: Path | None,
        settings: FitSettings,
        seconds: float | None,
        seed: int,
        listen: Callable[[str], Any],
        stop: threading.Event,
    ) -> Fit:
        options = fit_options(models, friction, urdf, settings, seconds, seed)
        asked.update(recording=recording, options=options, stop=stop)
        for name in ("preparation", *options.models):
            listen(name)
        return replace(asked["fit"], options=options)

    monkeypatch.setattr(delan.learning.fit, "fit", fit)
    return asked


def test_the_chosen_model_is_written_reported_and_scored_again_as_it_was(folder, contest):
    out = folder / "arm.delan"
    shown = delan_(
        "fit", folder / "arm.npz", "--test", folder / "other.npz", "-o", out, "--json", "--seed", 3
    )
    assert shown.exit_code == 0, shown.output
    payload = json.loads(shown.stdout)
    assert payload["chosen"] == "chain"
    assert payload["decision"] == "deploy"
    assert set(payload["models"]) == {"chain", "identified", "feedforward", "constant"}
    assert payload["torque"]["nmse_mean"] == payload["models"]["chain"]["test"]["nmse_mean"] < 0.01
    assert len(payload["models"]["constant"]["validation"]["nmse"]) == 2
    assert payload["scored_on"] == "test"
    assert payload["preparation"]["cutoff"] == 10
    assert payload["preparation"]["done"]["acceleration"] == "differentiated"
    assert {"kind", "severity", "why", "remedy"} <= set(payload["findings"][0])
    assert {
        "seconds",
        "validation",
        "optimizer",
        "reason",
        "spread",
        "events",
        "friction",
        "doubtful",
    } <= set(payload)
    assert (payload["model"], payload["report"], payload["seed"]) == (
        str(out),
        str(folder / "arm.html"),
        3,
    )
    assert not payload["interrupted"]
    assert payload["more_data"]["next"]["joint"] == "elbow"
    assert payload["coverage"] is None
    assert len((folder / "arm.html").read_text()) < 3_000_000
    header = storage.read_header(out)
    assert header["preparation"]["cutoff"] == 10
    assert header["scores"]["test"]["torque"] == payload["torque"]
    again = json.loads(delan_("evaluate", out, folder / "other.npz", "--json").stdout)
    assert again["torque"]["nmse"] == pytest.approx(payload["torque"]["nmse"], rel=1e-6)


def test_nothing_typed_means_auto_and_each_step_is_printed(folder, contest, monkeypatch):
    monkeypatch.chdir(folder)
    shown = delan_("fit", "arm.npz", "--report", "page.html")
    assert shown.exit_code == 0, shown.output
    assert contest["options"].models == ("chain", "delan", "feedforward")
    assert contest["options"].friction == "auto"
    assert contest["options"].seconds is None
    assert shown.stderr.splitlines() == [
        "delan: arm.npz: 2001 rows of 2 joints",
        "delan: choosing cut-off and delay",
        "delan: training the chain",
        "delan: training the DeLaN network",
        "delan: training the feed-forward network",
        "delan: drawing the page",
    ]
    assert "» chain" in shown.stdout
    assert (
        "Model: arm.delan\nPage: page.html\nMotion to record next: arm.next.npz\n" in shown.stdout
    )
    assert shown.stdout.endswith("gate arm.delan --log OTHER_LOG --limits LIMITS.toml\n")
    assert "C code: delan export arm.delan\n" in shown.stdout
    with np.load(folder / "arm.next.npz") as motion:
        assert motion["q"].shape == motion["qdd"].shape == (len(motion["t"]), 2)
    to_control, to_simulate, *others = shown.stdout.splitlines()
    assert to_control.startswith("Deploy the chain: on ")
    assert "simulate" in to_simulate.lower()
    lines = [line for line in others if not line.startswith("Note: ")]
    assert max(map(len, lines)) <= 80
    assert (folder / "page.html").exists()


def test_a_named_model_alone_is_prepared_too(folder, contest):
    shown = delan_(
        "fit", folder / "arm.npz", "--model", "chain", "-o", folder / "chain.delan", "--cutoff", 8
    )
    assert shown.exit_code == 0, shown.output
    assert contest["options"].models == ("chain",)
    assert contest["options"].settings.cutoff == 8
    delan_(
        "fit",
        folder / "arm.npz",
        "--model",
        "delan",
        "-o",
        folder / "x.delan",
        "--accelerations",
        "filtered",
    )
    assert contest["options"].friction is None
    assert contest["options"].settings.accelerations == "filtered"


def test_an_identified_winner_is_written_as_a_chain(folder, contest, known):
    contest["fit"] = replace(
        known, entries=tuple(known.entry(name) for name in ("identified", "chain", "constant"))
    )
    out = folder / "known.delan"
    shown = delan_("fit", folder / "arm.npz", "--urdf", folder / "arm.urdf", "-o", out, "--json")
    assert shown.exit_code == 0, shown.output
    assert contest["options"].urdf == folder / "arm.urdf"
    assert contest["recording"].joints.names == TWO_LINK.joints.names
    assert json.loads(shown.stdout)["optimizer"] == "least squares"
    scores = delan_("evaluate", out, folder / "other.npz", "--json")
    assert json.loads(scores.stdout)["torque"]["nmse_mean"] < 0.01


def poor(known: Fit) -> Fit:
    """Only a constant, and a network that is worse."""
    *_, network, constant = known.entries
    torque = replace(network.validation.torque, nmse_mean=1.3 * constant.error)
    return replace(
        known,
        entries=(constant, replace(network, validation=replace(network.validation, torque=torque))),
    )


def test_a_model_no_better_than_a_constant_is_doubted(folder, contest, known):
    contest["fit"] = poor(known)
    shown = delan_("fit", folder / "arm.npz", "-o", folder / "poor.delan")
    assert shown.exit_code == 0, shown.output
    assert "Do not deploy any of these models" in shown.stdout
    assert "no better than its mean torque; check the units" in shown.stderr


def test_a_stopped_contest_keeps_its_best_model(folder, contest, known):
    contest["fit"] = replace(known, interrupted=True)
    shown = delan_("fit", folder / "arm.npz", "-o", folder / "stopped.delan", "--json")
    assert shown.exit_code == 130
    assert json.loads(shown.stdout)["interrupted"]
    assert "stopped.delan holds the best model so far" in shown.stderr
    assert storage.load(folder / "stopped.delan").joints.dof == 2
    contest["fit"] = replace(poor(known), interrupted=True)
    shown = delan_("fit", folder / "arm.npz", "-o", folder / "none.delan", "--json")
    assert (shown.exit_code, shown.stdout) == (130, "")
    assert not (folder / "none.delan").exists()


def test_a_test_log_with_a_fault_late_in_it_does_not_cost_the_model(folder, contest):
    with np.load(folder / "other.npz") as archive:
        columns = dict(archive)
    columns["tau"][-1, 0] = np.nan
    np.savez(folder / "late.npz", **columns)
    shown = delan_(
        "fit", folder / "arm.npz", "--test", folder / "late.npz", "-o", folder / "kept.delan"
    )
    assert shown.exit_code == 1
    assert "expected a finite number, got nan" in shown.stderr
    assert storage.load(folder / "kept.delan").joints.dof == 2


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            ["--width", 8, "--resume"],
            "--width, --resume: for the training of one model, and --model auto compares",
        ),
        (
            ["--urdf", "arm.urdf", "--model", "chain"],
            "--urdf lets models of the URDF compete; leave --model chain out",
        ),
        (
            ["--model", "feedforward", "--friction", "auto"],
            "a feed-forward network learns friction with everything else",
        ),
        (
            ["--friction", "glue"],
            "--friction is auto, none, or some of armature, viscous, coulomb, asymmetric",
        ),
        (["--friction", "coulomb,viscos"], "got 'viscos'; did you mean viscous?"),
        (["--friction", "viscous,viscous"], "each at most once, got ('viscous', 'viscous')"),
        (
            ["--cutoff", -1, "--model", "delan", "--epochs", 1],
            "Hz, got -1.0",
        ),
        (["--seconds", "-5"], "--seconds must be positive and finite, got -5"),
        (["--seconds", "nan"], "--seconds must be positive and finite, got nan"),
        (["--fix", "--force"], "--fix repairs the log and --force takes it as it is; give one"),
        (["-o", "x.html"], "model and page cannot both be x.html; give another --out or --report"),
        (["--report", "none/x.html"], "there is no folder none for x.html"),
        (["--test", "none.npz"], "none.npz: no such file; check the path"),
        (
            ["--test", "arm.npz"],
            "% of the rows looked at are in the log to learn from; a test needs motion",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_work(
    folder, contest, monkeypatch, as_shipped, typed, message
):
    monkeypatch.chdir(folder)
    shown = delan_("fit", "arm.npz", "-o", "refused.delan", *typed)
    assert shown.exit_code == 1
    assert message in shown.stderr
    assert shown.stdout == ""
    assert "options" not in contest
    assert not (folder / "refused.delan").exists()


def test_a_damaged_preparation_in_a_model_file_is_refused(folder, known):
    out = folder / "odd.delan"
    storage.save(known.best.model, out, provenance={"preparation": {"cutoff": -3.0}})
    shown = delan_("evaluate", out, folder / "other.npz")
    assert shown.exit_code == 1
    assert "its preparation of logs is damaged" in shown.stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_real_contest_with_a_model(folder):
    """No stand-in: a feed-forward network on the log as it is typed, stopped while it trains."""
    typed = [
        "fit",
        "arm.npz",
        "-o",
        "real.delan",
        "--model",
        "feedforward",
        "--cutoff",
        "10",
        "--seconds",
        "600",
        "--json",
    ]
    command = [sys.executable, "-c", LISTENING, sys.executable, "-m", "delan.cli.main", *typed]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert any("training the feed-forward network" in line for line in process.stderr)
            threading.Event().wait(10)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=200)
        finally:
            process.kill()
    assert process.returncode == 130, stderr
    payload = json.loads(stdout)
    assert payload["interrupted"]
    assert payload["chosen"] == "feedforward"
    assert storage.read_header(folder / "real.delan")["preparation"]["cutoff"] == 10


def test_a_log_that_names_no_kinds_is_taken_for_the_joints_of_the_model(tmp_path):
    bodies, limits = random_arm(("revolute", "prismatic"), seed=1)
    body = RigidBody.from_bodies(bodies, gravity=(0.0, 0.0, -9.81))
    data = swung(body, limits, range(1))
    storage.save(from_rigid_body(body), tmp_path / "arm.delan")
    np.savez(tmp_path / "arm.npz", t=data.t, q=data.q, qd=data.qd, qdd=data.qdd, tau=data.tau)
    shown = delan_("evaluate", tmp_path / "arm.delan", tmp_path / "arm.npz", "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["torque"]["nmse_mean"] < 1e-8


def test_joints_in_another_order_are_refused(tmp_path):
    """The same names in another order: every number would go to the wrong joint."""
    first, second = TWO_LINK.joints.names
    recording = recorded(TWO_LINK, (0,))
    swapped: dict[str, Any] = {"q": recording.q[:, ::-1], "tau": recording.tau[:, ::-1]}
    np.savez(tmp_path / "log.npz", t=recording.t, **swapped, joint_names=np.array([second, first]))
    arm = from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf()))
    storage.save(arm, tmp_path / "arm.delan", provenance={"preparation": {"cutoff": 8.0}})
    words = ["evaluate", tmp_path / "arm.delan", tmp_path / "log.npz"]
    shown = delan_(*words)
    assert shown.exit_code == 1
    assert f"the model's joints are {first}, {second}, in this order, and" in shown.stderr
    assert f"has them as {second}, {first}; read it with --joints {first},{second}" in shown.stderr
    assert delan_(*words, "--joints", f"{first},{second}").exit_code == 0


def test_kinds_that_a_log_names_are_kept():
    named = Joints.of(("revolute", "prismatic"))
    recording = replace(recorded(TWO_LINK, (0,)), joints=named)
    assert with_kinds_of(Joints.of(("prismatic", "revolute")), recording).joints == named


def test_positions_that_look_like_degrees_are_reported_at_once(folder, contest):
    recording = recorded(TWO_LINK)
    assert recording.qd is not None
    write(
        replace(recording, q=np.degrees(recording.q), qd=np.degrees(recording.qd)),
        folder / "degrees.npz",
    )
    shown = delan_("fit", folder / "degrees.npz", "-o", folder / "wrong.delan")
    assert "read the log with --degrees" in shown.stderr


def reversed_log(path: Path, joints: list[int], seeds: tuple[int, ...] = (0, 1, 2)) -> Path:
    """Write the log of an arm whose torques have the opposite sign in some joints."""
    recording = recorded(TWO_LINK, seeds)
    tau = recording.tau.copy()
    tau[:, joints] *= -1
    return write(replace(recording, tau=tau), path)


@pytest.mark.parametrize(("joints", "flip"), [([0, 1], "--flip tau"), ([1], "--flip tau:1")])
def test_a_log_with_reversed_torques_is_refused_at_once(folder, contest, joints, flip):
    log = reversed_log(folder / "reversed.npz", joints)
    shown = delan_("fit", log, "-o", folder / "refused.delan")
    assert shown.exit_code == 1
    message = shown.stderr.splitlines()[-1]
    assert message.startswith("delan: reversed.npz: no model can be learned from this log. tau")
    assert "has the opposite sign of the motion" in message
    assert f"read the log with {flip}, in this and in later commands, or give --fix" in message
    assert shown.stdout == ""
    assert "options" not in contest
    assert not (folder / "refused.delan").exists()
    repaired = ["fit", log, "-o", folder / "kept.delan", *flip.split()]
    assert delan_(*repaired).exit_code == 0
    np.testing.assert_array_equal(contest["recording"].tau, recorded(TWO_LINK).tau)


@pytest.mark.parametrize("joints", [[0, 1], [1]])
def test_fix_changes_the_signs_of_the_log_and_of_the_test_log(folder, contest, joints):
    log = reversed_log(folder / "reversed.npz", joints)
    test = reversed_log(folder / "reversed_test.npz", joints, (7,))
    shown = delan_("fit", log, "--test", test, "--fix", "-o", folder / "fixed.delan", "--json")
    assert shown.exit_code == 0, shown.output
    np.testing.assert_array_equal(contest["recording"].tau, recorded(TWO_LINK).tau)
    payload = json.loads(shown.stdout)
    # The known model is that of the arm: with wrong signs its error would be about 4.
    assert payload["torque"]["nmse_mean"] < 0.01
    signs = [item for item in payload["findings"] if item["kind"] == "sign"]
    assert [item["severity"] for item in signs] == ["note"] * len(signs) != []
    flip = "--flip tau" if len(joints) == 2 else "--flip tau:1"
    assert f"repaired: the log was read with {flip}" in signs[0]["text"]
    lines = [line for line in shown.stderr.splitlines() if "--fix:" in line]
    assert len(lines) == len(signs)
    assert f"give the same to later commands, such as `delan gate`: read the log with {flip}" in (
        shown.stderr
    )


def with_velocities(recording: Recording, path: Path) -> Path:
    columns: dict[str, Any] = {
        name: getattr(recording, name) for name in ("t", "q", "qd", "tau", "trajectory")
    }
    np.savez(path, **columns)
    return path


@pytest.mark.parametrize("names", [("q", "qd"), ("qd", "tau"), ("q", "tau")])
def test_exchanged_columns_are_refused_by_their_name_and_fixed(folder, contest, names):
    """Some of them are refused while they are read, for units that are not what is wrong."""
    log = with_velocities(exchanged(recorded(TWO_LINK), *names), folder / "exchanged.npz")
    test = with_velocities(exchanged(recorded(TWO_LINK, (7,)), *names), folder / "x_test.npz")
    typed = ["fit", log, "--test", test, "-o", folder / "x.delan", "--json"]
    shown = delan_(*typed)
    assert shown.exit_code == 1
    assert f"all joints: {names[0]} and {names[1]} look exchanged" in shown.stderr
    assert f"read the log with --map {names[0]}={names[1]}" in shown.stderr
    assert "options" not in contest
    shown = delan_(*typed, "--fix")
    assert shown.exit_code == 0, shown.output
    for name in ("q", "qd", "tau"):
        expected = getattr(recorded(TWO_LINK), name)
        np.testing.assert_array_equal(getattr(contest["recording"], name), expected)
    payload = json.loads(shown.stdout)
    assert payload["torque"]["nmse_mean"] < 0.01
    assert f"the log was read with {names[0]} and {names[1]} in order" in shown.stderr


def test_reversed_velocities_are_named_and_left_out(folder, contest):
    recording = recorded(TWO_LINK)
    assert recording.qd is not None
    log = with_velocities(replace(recording, qd=-recording.qd), folder / "backward.npz")
    shown = delan_("fit", log, "-o", folder / "x.delan")
    assert shown.exit_code == 1
    assert "qd0: has the opposite sign of the motion" in shown.stderr
    assert "read the log with --map qd=" in shown.stderr
    assert delan_("fit", log, "-o", folder / "x.delan", "--fix").exit_code == 0
    assert contest["recording"].qd is None


def test_a_fault_that_no_repair_concerns_is_refused_as_before(folder, contest):
    recording = recorded(TWO_LINK)
    tau = -recording.tau
    tau[5, 0] = np.nan
    log = write(replace(recording, tau=tau), folder / "hole.npz")
    shown = delan_("fit", log, "-o", folder / "x.delan", "--fix")
    assert shown.exit_code == 1
    assert "hole.npz, column tau0, row 5: expected a finite number, got nan" in shown.stderr


def test_force_fits_a_log_with_errors_and_says_so(folder, contest):
    log = reversed_log(folder / "reversed.npz", [0, 1])
    shown = delan_("fit", log, "-o", folder / "forced.delan", "--force")
    assert shown.exit_code == 0, shown.output
    assert "the log has errors (sign)" in shown.stderr
    np.testing.assert_array_equal(contest["recording"].tau, -recorded(TWO_LINK).tau)


def test_files_with_contradicting_signs_are_refused_also_with_fix(folder, contest):
    first = write(recorded(TWO_LINK, (0, 1)), folder / "first.npz")
    second = reversed_log(folder / "second.npz", [0, 1], (2, 3))
    for more in ([], ["--fix"]):
        shown = delan_("fit", first, second, "-o", folder / "x.delan", *more)
        assert shown.exit_code == 1
        assert "in trajectory 2 (second.npz) the torque has the opposite sign" in shown.stderr
        assert "or give --fix" not in shown.stderr
    assert "options" not in contest


def test_a_test_log_of_other_rates_is_scored(folder, contest):
    """Two files sampled at 125 and 200 Hz, of a model learned at 100 Hz."""
    parts = []
    for number, dt in enumerate((0.008, 0.005)):
        motion = cosine_motion(TWO_LINK.limits, 7 + number, 1.5, dt)
        tau = rubbing(TWO_LINK).rows(motion.q, motion.qd, motion.qdd).total
        labels = np.full(len(motion.t), number)
        parts.append({"t": motion.t, "q": motion.q, "tau": tau, "trajectory": labels})
    columns: dict[str, Any] = {}
    for name in parts[0]:
        columns[name] = np.concatenate([part[name] for part in parts])
    np.savez(folder / "rates.npz", **columns)
    typed = ["fit", folder / "arm.npz", "--test", folder / "rates.npz", "-o", folder / "r.delan"]
    shown = delan_(*typed, "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["torque"]["nmse_mean"] < 0.01


def test_the_preset_of_the_paper_is_a_single_model_that_options_change(tmp_path):
    request = FitRequest(log=[tmp_path / "arm.csv"], preset="paper", width=8, epochs=5)
    assert request.models == replace(PAPER.network, width=8)
    training = request.settings.training
    assert (training.epochs, training.optimizer) == (5, "adam")
    assert training.objective == PAPER.training.objective
    assert request.checkpoint is not None
    assert FitRequest(log=[tmp_path / "arm.csv"], preset="paper").models == "paper"
    result = delan_("fit", tmp_path / "arm.csv", "--preset", "paper", "--model", "chain")
    assert result.exit_code != 0
    assert "--preset paper is one model" in result.output
