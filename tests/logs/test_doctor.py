"""The log check: every seeded fault is found in its place, and nothing is found in clean logs."""

import json
import shlex
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from typer.testing import CliRunner

from delan.cli.main import app
from delan.errors import ModelError, SettingsError
from delan.joints import Joints, Recording
from delan.logs import doctor
from delan.logs.doctor import Finding, cases, check_up, examine, torque
from delan.logs.doctor.checked_log import CheckedLog, DescribedRobot, Motion, measured_columns
from delan.logs.doctor.coverage import quantum, reversals
from delan.logs.doctor.finding import WHY, Case
from delan.logs.doctor.lags import lag_error
from delan.logs.doctor.torque import JointTerms, TermWeight
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.segments import spans
from delan.report.check_picture import draw_check
from delan.robots.arms import WAM4
from delan.robots.robot_files import urdf_limits
from tests.conftest import SHARED
from tests.support.faulty_logs import (
    EXCHANGED,
    FAULTS,
    FRICTION,
    ROBOTS,
    changed,
    clean,
    exchanged,
    fault,
    late,
    robot,
    rows_of,
)

# Faults that only turning joints have.
TURNING = ("wrapped", "degrees", "degrees a second", "positions in degrees")
# For an arm of seven joints, logs as short as these show these faults only beside a URDF.
NEEDS_URDF = ("torque sign", "motion sign", "torque late")
# Three short motions of seven joints say too little about each other.
TOO_SHORT = ("one file reversed", "one file scaled", "one file offset")


def serious(findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.severity != "note"]


def torque_of(name: str) -> Any:
    return lambda q, qd, qdd: robot(name)[0].rows(q, qd, qdd).total


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_nothing_is_invented_on_clean_logs(name, seed, noisy):
    assert serious(examine(clean(name, seed, noisy=noisy))) == []


@pytest.mark.parametrize("name", ["letters", "wam4", "wam7-friction"])
def test_a_true_urdf_raises_no_doubts(name):
    limits = robot(name)[1]
    assert serious(examine(clean(name, noisy=True), model=torque_of(name), limits=limits)) == []


def faulty_arms() -> list[Any]:
    """Return every fault on small and large arms; many short trajectories are the hardest."""
    chosen = []
    for index, name in enumerate(FAULTS):
        for place, arm in enumerate(("letters", "sliding", "wam4", "wam7")):
            if name in (*NEEDS_URDF, *TOO_SHORT) and arm == "wam7":
                continue
            large = (pytest.mark.slow,) if arm.startswith("wam") else ()
            chosen.append(pytest.param(name, arm, place % 2, (index + place) % 2 == 0, marks=large))
    return chosen


@pytest.mark.parametrize(("name", "arm", "seed", "noisy"), faulty_arms())
def test_a_fault_is_found_where_it_sits(name, arm, seed, noisy):
    log = clean(arm, seed, noisy=noisy)
    joint = (seed + 1) % log.joints.dof
    if name in TURNING and log.joints.kinds[joint] == "prismatic":
        joint = 0
    faulty = fault(name, log, joint)
    found = serious(examine(faulty.recording))
    assert sum(faulty.described_by(finding) for finding in found) == 1
    assert faulty.kind == "exchanged" or all(finding.kind != "exchanged" for finding in found)


@pytest.mark.parametrize(
    "arm", ["letters", "sliding", "wam4", pytest.param("wam7-friction", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("column", "other"), EXCHANGED)
def test_exchanged_columns_are_one_error_with_its_remedy(arm, column, other):
    found = serious(examine(exchanged(clean(arm, noisy=True), column, other)))
    assert [(finding.kind, finding.severity) for finding in found] == [("exchanged", "error")]
    assert found[0].measured["names"] == (column, other)
    assert f"--map {column}={other} --map {other}={column}" in found[0].remedy


@pytest.mark.parametrize("arm", ["letters", "sliding", "wam4"])
@pytest.mark.parametrize("factor", [-1.0, 57.3, 0.01])
def test_velocities_of_another_unit_or_sign_are_not_taken_for_exchanged(arm, factor):
    log = clean(arm, noisy=True)
    found = serious(examine(replace(log, qd=factor * measured_columns(log)["qd"])))
    assert {finding.kind for finding in found} == {"sign" if factor < 0 else "units"}


@pytest.mark.parametrize("size", [1.0, 0.05])
def test_positions_alone_in_degrees_are_one_error_with_its_remedy(tmp_path, size):
    """This includes small motions, whose positions alone could be radians."""
    log = clean("wam4", noisy=True)
    log = replace(log, q=size * np.degrees(log.q), qd=size * measured_columns(log)["qd"])
    found = [item for item in serious(examine(log)) if item.kind != "excitation"]
    assert [(item.kind, item.joint, item.column, item.severity) for item in found] == [
        ("units", None, "q", "error")
    ]
    assert "--degrees --map qd= " in found[0].remedy
    write(tmp_path / "log.npz", log)
    ran = CliRunner().invoke(
        app, ["check", str(tmp_path / "log.npz"), "--degrees", "--map", "qd=", "--json"]
    )
    assert json.loads(ran.stdout)["errors"] == 0


@pytest.mark.parametrize(("kind", "unit"), [("turning", "deg"), ("sliding", "0.001")])
def test_the_unit_of_one_joint_is_that_of_its_kind(kind, unit):
    log = clean("sliding", noisy=True)
    joint = np.flatnonzero(getattr(log.joints, kind))[0]
    far = log.q.copy()
    far[:, joint] *= 300
    scales = []
    for finding in examine(replace(log, q=far, qd=None)):
        if "scale" in finding.measured:
            scales.append(finding.measured["scale"].split(",")[joint])
    assert scales == [unit]


def test_degrees_of_the_turning_joints_alone_are_one_error():
    log = clean("sliding", noisy=True)
    found = serious(examine(replace(log, q=np.where(log.joints.turning, np.degrees(log.q), log.q))))
    assert [(item.kind, item.joint, item.column) for item in found] == [("units", None, "q")]


@pytest.mark.parametrize("table", [False, True])
def test_the_remedy_for_exchanged_columns_works(tmp_path, table):
    log = exchanged(clean("wam4", noisy=True), "q", "tau")
    path = tmp_path / ("log.csv" if table else "log.npz")
    if table:
        columns = {"t": log.t, "trajectory": log.trajectory}
        columns |= {
            f"{name}{joint}": values[:, joint]
            for name, values in measured_columns(log).items()
            for joint in range(4)
        }
        np.savetxt(
            path,
            np.stack(list(columns.values()), axis=1),
            delimiter=",",
            header=",".join(columns),
            comments="",
        )
    else:
        write(path, log)
    shown = CliRunner().invoke(app, ["check", str(path), "--json"])
    assert shown.exit_code == 1
    remedy = next(
        item["remedy"]
        for item in json.loads(shown.stdout)["findings"]
        if item["kind"] == "exchanged"
    )
    words = shlex.split(
        remedy.split("column, " if table else "log with ")[1].split(";" if table else ", or")[0]
    )
    assert CliRunner().invoke(app, ["check", str(path), *words]).exit_code == 0


@pytest.mark.parametrize("name", ["gap", "same rows"])
def test_no_remedy_asks_for_what_a_fit_does(name):
    log = fault(name, clean("wam4", noisy=True), 1).recording
    done = prepare(log, PreparationSettings(cutoff=10.0)).preparation
    assert done is not None
    assert done.cuts.get("gaps") == 1 if name == "gap" else done.dropped["repeated"] == 10
    (finding,) = serious(examine(log))
    assert finding.case is (cases.GAP if name == "gap" else cases.REPEATED_ROWS)


@pytest.mark.parametrize("name", ["gap", "jitter"])
def test_faults_of_time_are_measured_in_seconds_in_every_unit(name):
    log = fault(name, clean("two-link"), 0).recording
    for scale in (1.0, 1e3, 1e6):
        (finding,) = (item for item in examine(replace(log, t=scale * log.t)) if item.kind == name)
        assert finding.measured["step"] == pytest.approx(0.01, rel=0.01)
        assert " s " in f"{finding.text} "


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_trajectories_of_different_rates_are_measured_in_hertz_in_every_unit(scale):
    log = clean("two-link")
    slow = rows_of(log, (log.trajectory > 0) | (np.arange(len(log.t)) % 2 == 0))
    findings = examine(replace(slow, t=scale * slow.t))
    (finding,) = (item for item in findings if item.kind == "mixed_rates")
    assert (finding.measured["slowest"], finding.measured["fastest"]) == (50, 100)


@pytest.mark.parametrize(("joint", "trajectory"), [(0, 1), (2, 0)])
def test_the_size_of_a_contradiction_is_measured(joint, trajectory):
    log = clean("sliding", noisy=True)
    rows = log.trajectory == trajectory
    for change, case, name, expected in (
        (lambda tau: 0.6 * tau, cases.CONTRADICTING_GAIN, "ratio", 0.6),
        (lambda tau: tau + log.tau[:, joint].std(), cases.CONTRADICTING_OFFSET, "offset", None),
    ):
        wrong = changed(
            log, tau=(joint, lambda tau, change=change: np.where(rows, change(tau), tau))
        )
        (finding,) = serious(examine(wrong))
        assert (finding.case, finding.severity) == (case, "warning")
        assert (finding.trajectory, finding.measured["joints"]) == (trajectory, (joint,))
        expected = expected or float(log.tau[:, joint].std())
        assert finding.measured[name] == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("name", ["letters-friction", "sliding", "wam4"])
@pytest.mark.parametrize("share", ["one", "half", "most"])
def test_the_reversed_files_are_named_also_where_they_are_most(name, share):
    """Inertia shows which side is reversed; all other findings are about the corrected log."""
    log = clean(name, noisy=True)
    labels = np.unique(log.trajectory)
    wrong = {"one": labels[1:2], "half": labels[::2], "most": labels[1:]}[share]
    tau = np.where(np.isin(log.trajectory, wrong)[:, None], -log.tau, log.tau)
    found = serious(examine(replace(log, tau=tau)))
    assert {item.case for item in found} == {cases.CONTRADICTING_SIGN}
    assert {item.severity for item in found} == {"error"}
    assert [item.trajectory for item in found] == wrong.tolist()
    assert len(found[0].measured["joints"]) >= log.joints.dof - 1


def test_motions_in_different_places_do_not_contradict_each_other():
    """Two files of one arm that visit different poses at different speeds."""
    log = clean("wam4", noisy=True)
    second = clean("wam4", 1, noisy=True)
    both = Recording(
        t=np.concatenate([log.t, second.t]),
        q=np.concatenate([log.q, second.q]),
        tau=np.concatenate([log.tau, second.tau]),
        trajectory=np.concatenate([0 * log.trajectory, 1 + 0 * second.trajectory]),
        joints=log.joints,
    )
    kinds = {item.kind for item in examine(both)}
    assert "contradiction" not in kinds


def test_repeated_rows_beside_logged_accelerations_are_to_be_dropped():
    log = fault("same rows", clean("wam4"), 1).recording
    findings = examine(replace(log, qdd=np.gradient(log.q, axis=0)))
    (finding,) = (item for item in findings if item.kind == "duplicate")
    assert finding.case is cases.REPEATED_ROWS_WITH_ACCELERATIONS


def reversed_at(log: Recording, joints: tuple[int, ...]) -> Recording:
    sign = np.ones(log.joints.dof)
    sign[list(joints)] = -1
    return replace(log, tau=log.tau * sign)


@pytest.mark.parametrize("name", ["letters", "sliding", "wam4", "wam7-friction"])
def test_torques_reversed_in_all_joints_are_one_error_also_where_few_joints_show_it(name):
    log = clean(name, noisy=True)
    found = serious(examine(replace(log, tau=-log.tau)))
    assert [(item.case, item.severity) for item in found] == [(cases.ALL_REVERSED, "error")]
    assert (found[0].joint, found[0].column) == (None, "tau")
    assert "--flip tau" in found[0].remedy
    if name == "wam7-friction":
        assert len(found[0].measured["shown"]) < log.joints.dof


@pytest.mark.parametrize("joints", [(0,), (2,), (0, 2)])
def test_some_reversed_joints_among_right_ones_are_reported_alone(joints):
    found = serious(examine(reversed_at(clean("sliding", noisy=True), joints)))
    assert [(item.joint, item.severity) for item in found] == [(joint, "error") for joint in joints]
    assert all(item.case is not cases.ALL_REVERSED for item in found)
    assert f"--flip tau:{joints[0]}" in found[0].remedy


def weights(inertia: float, dry: float, *, samples: float = 10.0) -> JointTerms:
    viscous = TermWeight(0.0, 0.01, 0.1)
    return JointTerms(TermWeight(inertia, 0.01, 0.5), viscous, TermWeight(dry, 0.01, 0.1), samples)


def test_uncertain_joints_decide_together_whether_all_are_reversed():
    """Only joint 0 shows its sign; each of the others leans by two standard errors."""
    shown = weights(-0.5, 0.0)
    for leaning, cases_found in ((-0.02, [cases.ALL_REVERSED]), (0.02, [cases.NEGATIVE_INERTIA])):
        terms = {0: shown, 1: weights(0.0, leaning), 2: weights(0.0, leaning)}
        found = torque._signs(terms, part=False)
        assert [item.case for item in found] == cases_found
        # A part of a log reports the joint that shows it.
        assert [item.joint for item in torque._signs(terms, part=True)] == [0]


def test_a_sign_that_is_not_beyond_doubt_is_a_warning():
    terms = {0: weights(-0.05, 0.0), 1: weights(0.5, 0.0)}
    (found,) = torque._signs(terms, part=False)
    assert (found.joint, found.severity) == (0, "warning")
    for samples, severity in ((10.0, "error"), (2.0, "warning")):
        terms = {0: weights(-0.07, 0.0, samples=samples), 1: weights(0.5, 0.0)}
        (found,) = torque._signs(terms, part=False)
        assert found.severity == severity


def turned(log: Recording, joint: int, *names: str) -> Recording:
    return changed(log, **dict.fromkeys(names, (joint, np.negative)))


@pytest.mark.parametrize(
    "joint", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("names", "column"),
    [(("tau",), "tau"), (("q", "qd", "tau"), "q"), (("q", "qd"), "q")],
    ids=lambda x: "".join(x),
)
def test_a_urdf_shows_which_sign_is_wrong(names, column, joint):
    log = turned(clean("wam7", 1, noisy=True), joint, *names)
    with_urdf = (cases.URDF_JOINT_SIGN, cases.URDF_TORQUE_SIGN)
    signs = [item for item in examine(log, model=torque_of("wam7")) if item.case in with_urdf]
    assert (joint, column) in {(item.joint, item.column) for item in signs}
    assert {item.joint for item in signs} == {joint}


@pytest.mark.parametrize("factor", [0.01, 1000.0])
def test_a_urdf_shows_a_torque_in_other_units(factor):
    log = changed(clean("wam7", noisy=True), tau=(3, lambda tau: factor * tau))
    units = [
        item for item in serious(examine(log, model=torque_of("wam7"))) if item.kind == "units"
    ]
    assert [(item.joint, item.column) for item in units] == [(3, "tau")]
    assert units[0].measured["ratio"] == pytest.approx(factor, rel=0.1)


def test_a_urdf_shows_degrees_from_the_torques():
    log = clean("letters", noisy=True)
    findings = examine(replace(log, q=np.degrees(log.q), qd=None), model=torque_of("letters"))
    assert any(item.case is cases.URDF_DEGREES for item in findings)


@pytest.mark.parametrize(
    "name", ["wam4", pytest.param("wam7", marks=pytest.mark.slow), "wam7-friction"]
)
def test_a_urdf_shows_a_lag_of_few_samples(name):
    log = clean(name, 1, noisy=True)
    slow = replace(log, tau=np.stack([late(log, column, 0.017) for column in log.tau.T], axis=1))
    lags = [item for item in examine(slow, model=torque_of(name)) if item.kind == "delay"]
    assert [(item.joint, item.column, item.severity) for item in lags] == [(None, "tau", "warning")]
    assert lags[0].case is cases.TORQUE_LAG
    assert lags[0].measured["milliseconds"] == pytest.approx(17, abs=1.5)


def test_another_robots_urdf_does_not_fit():
    log = clean("wam4", noisy=True)
    swapped = replace(log, tau=log.tau[:, [2, 3, 0, 1]])
    shown = examine(swapped, model=torque_of("wam4"))
    assert any(item.kind in ("mismatch", "units") and item.severity != "note" for item in shown)


@pytest.mark.parametrize(
    ("name", "visible"),
    [
        ("letters-friction", {cases.FRICTION, cases.DRY_FRICTION}),
        ("letters", {cases.NO_FRICTION}),
    ],
)
def test_friction_is_visible_where_it_is_and_only_there(name, visible):
    notes = [item for item in examine(clean(name, noisy=True)) if item.kind == "friction"]
    assert [note.joint for note in notes] == [0, 1]
    assert {note.case for note in notes} <= visible
    for note in notes:
        # The torque of these robots has 8 % of dry friction.
        expected = FRICTION if name == "letters-friction" else 0.0
        assert note.measured["dry"] == pytest.approx(expected, abs=0.02)


def test_friction_that_a_short_log_cannot_separate_is_left_to_the_fit():
    """The robot has friction in every joint, but seven joints have too many weights for its log."""
    notes = [
        item for item in examine(clean("wam7-friction", noisy=True)) if item.kind == "friction"
    ]
    assert cases.NO_FRICTION not in {item.case for item in notes}
    assert any(item.case is cases.UNCERTAIN_FRICTION for item in notes)


@given(
    table=arrays(float, st.tuples(st.integers(1, 60), st.just(5)), elements=st.floats(width=64)),
    label=st.integers(1, 30),
)
def test_any_values_can_be_checked(table, label):
    log = Recording(
        t=table[:, 0],
        q=table[:, 1:2],
        qd=table[:, 2:3],
        qdd=table[:, 3:4],
        tau=table[:, 4:5],
        trajectory=np.arange(len(table)) // label,
        joints=Joints.revolute(1),
    )
    for finding in examine(log):
        json.dumps(finding.as_dict())


@pytest.mark.parametrize(
    "damage", ["scattered rows", "all the same", "backward", "one row", "nothing but NaN"]
)
def test_hopeless_logs_have_errors(damage):
    log = clean("two-link")
    damaged = {
        "scattered rows": lambda: replace(log, trajectory=np.arange(len(log.t))),
        "all the same": lambda: replace(log, q=0 * log.q, qd=0 * log.q, tau=0 * log.tau),
        "backward": lambda: replace(log, t=-log.t),
        "one row": lambda: Recording(
            t=log.t[:1],
            q=log.q[:1],
            tau=log.tau[:1],
            trajectory=log.trajectory[:1],
            joints=log.joints,
        ),
        "nothing but NaN": lambda: replace(
            log, q=np.nan * log.q, tau=np.nan * log.tau, t=np.nan * log.t
        ),
    }[damage]()
    assert any(finding.severity == "error" for finding in examine(damaged))


def test_findings_are_sorted_and_complete():
    log = fault("nan", fault("gap", clean("wam4"), 1).recording, 2).recording
    findings = examine(log)
    order = [("error", "warning", "note").index(finding.severity) for finding in findings]
    assert order == sorted(order)
    for finding in findings:
        payload = json.loads(json.dumps(finding.as_dict()))
        assert payload["why"] == WHY[finding.kind]
        assert payload["remedy"]
        assert set(payload) == {
            *("kind", "severity", "joint", "column", "trajectory", "rows", "file"),
            *("text", "why", "remedy"),
        }


def test_the_error_of_a_lag_uses_slopes_inside_segments():
    # Of one slope in each segment: a lag has no visible effect.
    ramps = np.tile(np.linspace(0, 1, 50), 4)
    table = ramps[:, None]
    motion = Motion(
        t=0.1 * np.arange(200),
        q=table,
        velocity=table,
        acceleration=table,
        logged={},
        segment=np.repeat(np.arange(4), 50),
        starts=(0, 50, 100, 150),
        step=0.1,
        period=0.1,
        cutoff=1.0,
    )
    assert lag_error(motion, ramps, 0.2) == pytest.approx(0, abs=1e-12)
    wave = np.sin(motion.t)
    assert lag_error(motion, wave, 0.2) == pytest.approx(0.2, rel=0.03)


def test_small_tools():
    assert spans(np.array([True, False, True, True])) == ((0, 1), (2, 4))
    assert spans(np.zeros(3, dtype=bool)) == ()
    rng = np.random.default_rng(0)
    assert quantum(rng.standard_normal(500)) == 0.0
    assert quantum(np.round(rng.standard_normal(500) / 0.05) * 0.05) == pytest.approx(0.05)
    assert reversals(np.sin(np.linspace(0, 4 * np.pi, 400)), 0.1) == 4
    assert reversals(np.linspace(0, 1, 50), 0.1) == 0


# Known faults of logs of real robots: that of the Panda has lost and repeated samples.
REAL = {"panda_first75.npz": {"gap", "jitter", "duplicate"}, "published_letters.npz": set()}


@pytest.mark.parametrize("name", REAL)
def test_the_faults_of_real_logs_are_found(name):
    if not (SHARED / name).exists():
        pytest.skip(f"the recorded data are not here ({SHARED / name})")
    with np.load(SHARED / name) as arrays:
        columns: dict[str, Any] = {key: arrays[key].astype(float) for key in ("q", "qd", "tau")}
        columns["t"] = arrays["t"].astype(float).ravel()
        labels = (
            arrays["trajectory"]
            if "trajectory" in arrays.files
            else np.zeros(len(columns["t"]), dtype=int)
        )
    log = Recording(
        **columns, trajectory=labels.astype(int), joints=Joints.revolute(columns["q"].shape[1])
    )
    findings = serious(examine(log))
    assert {finding.kind for finding in findings} == REAL[name]
    assert all(finding.severity == "warning" for finding in findings)


def test_the_picture_shows_every_joint_and_marks_the_rows():
    log = fault("velocity sign", fault("stuck tau", clean("wam4"), 1).recording, 2).recording
    figure = draw_check(log, examine(log))
    titles = [axes.get_title(loc="right") for axes in figure.axes]
    assert len(figure.axes) == 12
    assert titles[1 * 3 + 2] == "stuck"
    assert titles[2 * 3 + 1] == "sign"
    assert max(figure.get_size_inches()) <= 12


def test_marks_hide_no_curve_and_kinds_have_colours_of_their_own():
    log = fault("stuck tau", fault("gap", clean("wam4"), 1).recording, 2).recording
    again = np.repeat(np.arange(len(log.t) // 2), 2)
    for recording, kinds, words in (
        (log, {"gap", "stuck"}, ""),
        (
            replace(rows_of(log, again), t=log.t[: len(again)]),
            {"gap"},
            "duplicate (warning, all joints, ",
        ),
    ):
        figure = draw_check(
            recording, [item for item in examine(recording) if item.kind in {"duplicate", *kinds}]
        )
        figure.canvas.draw()
        (legend,) = figure.legends
        assert {text.get_text().split(":")[0] for text in legend.get_texts()} == kinds
        assert len({patch.get_facecolor() for patch in legend.get_patches()}) == len(kinds)
        assert words in legend.get_title().get_text()
        for axes in figure.axes:
            for bars in axes.collections:
                behind = bars.get_zorder() < axes.lines[0].get_zorder()
                assert behind
                above = bars.get_window_extent().y0 >= axes.get_window_extent().y1
                assert above or bars.get_zorder() == 0


def write(path, log: Recording) -> None:
    columns: dict[str, Any] = {
        name: getattr(log, name) for name in ("t", "q", "qd", "tau", "trajectory")
    }
    np.savez(path, **columns)


def test_the_command_prints_draws_and_exits_by_its_findings(tmp_path):
    write(tmp_path / "clean.npz", clean("wam4", noisy=True))
    write(tmp_path / "warned.npz", fault("gap", clean("wam4"), 1).recording)
    write(tmp_path / "faulty.npz", fault("torque sign", clean("wam4"), 1).recording)
    (tmp_path / "arm.urdf").write_text(WAM4.urdf())
    for name, code, words in (
        ("clean", 0, "no errors or warnings"),
        ("warned", 0, "0 errors, 1 warning"),
        ("faulty", 1, "1 error"),
    ):
        ran = CliRunner().invoke(app, ["check", str(tmp_path / f"{name}.npz")])
        assert ran.exit_code == code, ran.output
        assert words in ran.output
    picture = tmp_path / "check.png"
    arguments = ["check", str(tmp_path / "faulty.npz"), "--urdf", str(tmp_path / "arm.urdf")]
    ran = CliRunner().invoke(app, [*arguments, "--plot", str(picture), "--json"])
    payload = json.loads(ran.stdout)
    assert payload["errors"] == sum(item["severity"] == "error" for item in payload["findings"]) > 0
    assert payload["joints"] == list(WAM4.joints.names)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_urdf_with_zeros_for_limits_and_exchanged_ends_is_read():
    limit = '<limit lower="{}" upper="{}" effort="0" velocity="{}"/>'
    text = f'<robot name="r"><joint name="a">{limit}</joint></robot>'
    limits = urdf_limits(ElementTree.fromstring(text.format(1, -1, 0)), ["a"])
    assert np.isinf([limits.lower, limits.upper, limits.velocity, limits.torque]).all()
    limits = urdf_limits(ElementTree.fromstring(text.format(0, 0, 2)), ["a"])
    np.testing.assert_array_equal([limits.lower, limits.upper, limits.velocity], [[0], [0], [2]])
    with pytest.raises(SettingsError, match="nan"):
        urdf_limits(ElementTree.fromstring(text.format(0, 1, "nan")), ["a"])


def test_the_command_refuses_what_it_cannot_do(tmp_path):
    write(tmp_path / "log.npz", clean("two-link"))
    (tmp_path / "arm.urdf").write_text(WAM4.urdf())
    for arguments, words in (
        (["--urdf", str(tmp_path / "arm.urdf")], "has 4 joints"),
        (["--plot", str(tmp_path / "picture.doc")], ".png, .svg or .pdf"),
        (["--plot", str(tmp_path / "nowhere" / "picture.png")], "nowhere"),
    ):
        ran = CliRunner().invoke(app, ["check", str(tmp_path / "log.npz"), *arguments])
        assert ran.exit_code == 2
        assert words in ran.output


@pytest.mark.parametrize(
    ("scale", "unit"), [(1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")]
)
def test_time_in_another_unit_is_reported_and_changes_no_other_finding(scale, unit):
    log = clean("letters")
    finding, *others = examine(replace(log, t=scale * log.t))
    assert (finding.case, finding.severity, finding.column) == (cases.TIME_UNIT, "error", "t")
    assert finding.measured["unit"] == unit
    assert f"(--time-scale {1 / scale:g})" in finding.remedy
    assert [item.text for item in others] == [item.text for item in examine(log)]


def test_lags_that_differ_between_joints_are_not_those_of_a_clock():
    log = clean("two-link")
    shifted = changed(log, tau=(0, lambda tau: late(log, tau, 0.03)))
    shifted = changed(shifted, tau=(1, lambda tau: late(log, tau, -0.015)))
    findings = examine(shifted, model=torque_of("two-link"))
    (finding,) = (item for item in findings if item.kind == "delay")
    assert (finding.severity, finding.joint, finding.column) == ("note", None, "tau")
    assert finding.measured["milliseconds"] == pytest.approx({0: 30, 1: -15}, abs=0.5)
    assert "+30 in joint 0, -15 in joint 1" in finding.text


def test_a_urdf_raises_no_doubts_of_a_log_that_cannot_tell():
    log, model = clean("two-link"), torque_of("two-link")
    for rows in (8, 25, 60):
        short = rows_of(log, np.arange(rows))
        assert {item.kind for item in serious(examine(short, model=model))} <= {
            "dead",
            "excitation",
        }
    still = replace(log, q=0 * log.q, qd=0 * log.q)
    assert {item.kind for item in serious(examine(still, model=model))} == {"dead"}


def test_a_urdf_is_compared_with_a_log_too_long_for_delays(monkeypatch):
    monkeypatch.setattr(torque, "MOST_SAMPLES", 100)
    assert serious(examine(clean("two-link"), model=torque_of("two-link"))) == []
    turned = fault("torque sign", clean("two-link"), 0)
    findings = examine(turned.recording, model=torque_of("two-link"))
    assert any(turned.described_by(finding) for finding in findings)


def test_a_urdf_without_masses_explains_nothing():
    found = serious(examine(clean("two-link"), model=lambda q, qd, qdd: 0 * q))
    assert [(item.kind, item.joint) for item in found] == [("mismatch", 0), ("mismatch", 1)]
    assert found[0].measured["explained"] == pytest.approx(0, abs=1e-9)


def test_a_log_without_any_time_has_one_finding():
    log = clean("two-link")
    found = serious(examine(replace(log, t=np.full(len(log.t), np.nan))))
    assert [(item.kind, item.column) for item in found] == [("non_finite", "t")]


def test_numbers_with_larger_steps_where_they_are_larger_are_not_stuck():
    """A motor's angle of 100 rad written with six digits, at a turning point, read at 5 kHz."""
    t = np.arange(40_000) / 5000
    angle = 20 + 80.1 * np.sin(np.pi * t) + 3 * np.sin(2.3 * np.pi * t + 1)
    written = np.array([float(f"{value:.6g}") for value in angle])
    log = Recording(
        t=t,
        q=written[:, None] / 80,
        tau=np.sin(angle / 80 + 20 * t)[:, None],
        trajectory=np.zeros(len(t), dtype=int),
        joints=Joints.revolute(1),
    )
    assert "stuck" not in [item.kind for item in examine(log)]


@pytest.mark.parametrize("every", [8, 20])
def test_what_repeats_regularly_is_not_a_spike(every):
    def jagged(tau: np.ndarray) -> np.ndarray:
        return tau + np.where(np.arange(len(tau)) % every == 5, 10 * tau.std(), 0.0)

    assert serious(examine(changed(clean("two-link"), tau=(0, jagged)))) == []


def test_without_velocities_a_resting_joint_is_not_stuck():
    t = np.arange(1500) * 0.01
    up, down = (np.clip((t - start) / 3, 0, 1) for start in (1, 6))
    q = np.stack(
        [
            sum(sign * s**3 * (10 - 15 * s + 6 * s**2) for sign, s in ((1, up), (-1, down))),
            np.sin(2 * t),
        ],
        1,
    )
    qd = np.gradient(q, t, axis=0)
    body = robot("two-link")[0]
    tau = body.rows(q, qd, np.gradient(qd, t, axis=0)).total
    log = Recording(
        t=t, q=q, tau=tau, trajectory=np.zeros(1500, int), joints=body.joints, source="rests"
    )
    assert "stuck" not in {item.kind for item in examine(log)}
    held = q[:, 0].copy()
    held[250:330] = held[250]
    findings = examine(replace(log, q=np.stack([held, q[:, 1]], 1)))
    (stuck,) = (item for item in findings if item.kind == "stuck")
    assert (stuck.joint, stuck.column, stuck.rows) == (0, "q", ((250, 330),))


def test_sentences_are_made_from_the_facts():
    measured = {"count": 2, "size": 0.5}
    spikes = Finding(cases.OUTLIER, "warning", 1, "tau", measured, rows=((4, 5), (7, 9)), row=7)
    assert spikes.where == "tau1, row 4 and 1 more"
    assert spikes.text == "2 isolated spikes, the largest 0.5 at row 7"
    moved = replace(spikes, row=107, other_parts=1)
    assert moved.text.startswith("2 isolated spikes, the largest 0.5 at row 107; ")
    assert "1 other part" in moved.text


def test_every_kind_says_why_it_matters():
    known = [case for case in vars(cases).values() if isinstance(case, Case)]
    assert {case.kind for case in [*known, *cases.COARSE.values()]} == set(WHY)


def test_a_check_joins_by_its_line_in_the_list(monkeypatch):
    seen = []

    def examine_something(log: CheckedLog) -> list[Finding]:
        seen.append(log)
        return [Finding(cases.STUCK, "error", 0, "q", {"value": 0.0, "count": 1}, rows=((5, 6),))]

    monkeypatch.setattr(doctor, "CHECKS", (*doctor.CHECKS, examine_something))
    found = serious(examine(clean("two-link")))
    assert [(item.kind, item.rows, item.trajectory) for item in found] == [("stuck", ((5, 6),), 0)]
    assert seen[0].motion is not None
    assert seen[0].alive == [0, 1]


def described(name: str) -> DescribedRobot:
    body, limits = robot(name)
    return DescribedRobot("arm.urdf", body.joints, torque_of(name), limits)


def test_a_check_up_gives_the_joints_of_the_described_robot_and_its_findings():
    log = clean("two-link")
    unnamed = replace(log, joints=Joints.revolute(2))
    assert check_up(unnamed) == (unnamed, examine(unnamed))
    arm = described("two-link")
    recording, findings = check_up(unnamed, arm)
    assert recording.joints == arm.joints
    assert findings == examine(log, model=arm.torque, limits=arm.limits)
    with pytest.raises(ModelError, match=r"arm\.urdf has 4 joints .* log has 2; choose"):
        check_up(log, described("wam4"))


def test_every_case_names_values_that_its_check_measures():
    """A misspelt name in a sentence would raise only when that case occurs."""
    found = [examine(fault(name, clean("two-link"), 0).recording) for name in FAULTS]
    assert len({finding.case for findings in found for finding in findings}) > 20
    for findings in found:
        for finding in findings:
            assert "{" not in finding.text + finding.remedy.replace("{0-1}", "")
