"""Findings about a log of several files: rows of the files, and what mends one file alone."""

import json
import shlex

import numpy as np
import pytest
from typer.testing import CliRunner

from delan.cli.main import app
from delan.logs.doctor import cases, check_up_parts, examine
from delan.logs.excerpts import joined_parts
from delan.logs.options import LogOptions
from delan.logs.reading import read_log, stream_log
from tests.support.faulty_logs import clean
from tests.support.log_writers import write_npz

RUNNER = CliRunner()


def write_files(folder, change=None, *, wrong=1):
    """Write each trajectory of a clean log as a file; `change` alters the columns of one."""
    log = clean("sliding", noisy=True)
    folder.mkdir(exist_ok=True)
    paths = []
    for label in np.unique(log.trajectory).tolist():
        columns = log.rows(log.trajectory == label).columns
        if change is not None and label == wrong:
            columns = {name: values.copy() for name, values in columns.items()}
            change(columns)
        columns["joint_kinds"] = np.array(log.joints.kinds)
        paths.append(write_npz(folder / f"run_{label}.npz", columns))
    return paths


def reverse(columns):
    columns["tau"] *= -1


def test_the_command_that_mends_a_reversed_file_is_the_next_one(tmp_path):
    folder = tmp_path / "runs"
    paths = write_files(folder, reverse)
    checked = RUNNER.invoke(app, ["check", str(folder), "--json"])
    assert checked.exit_code == 1
    following = json.loads(checked.stdout)["next"]
    assert str(paths[1]) in following
    mended = RUNNER.invoke(app, [*shlex.split(following)[1:], "--json"])
    assert mended.exit_code == 0, mended.output
    again = json.loads(RUNNER.invoke(app, ["check", str(folder), "--json"]).stdout)
    assert again["errors"] == 0
    assert again["next"] == f"delan fit {folder}"


def test_signs_typed_for_all_files_are_not_kept_for_one(tmp_path):
    folder = tmp_path / "runs"
    write_files(folder, reverse)
    words = ["check", str(folder), "--flip", "q:0", "--json"]
    following = json.loads(RUNNER.invoke(app, words).stdout)["next"]
    assert following is None or "--save" not in following


@pytest.mark.parametrize(
    ("change", "case"),
    [
        (lambda columns: columns["tau"].__imul__([1, 2.5, 1]), cases.CONTRADICTING_GAIN),
        (lambda columns: columns["tau"].__iadd__([9.0, 0, 0]), cases.CONTRADICTING_OFFSET),
    ],
)
def test_the_option_for_a_file_of_another_gain_or_offset_undoes_it(change, case, tmp_path):
    folder = tmp_path / "runs"
    right = read_log(write_files(tmp_path / "right")[1])
    path = write_files(folder, change)[1]
    findings = examine(read_log(folder, sound=False))
    (finding,) = (item for item in findings if item.case is case)
    assert finding.file == path.name
    words = shlex.split(finding.measured["option"])
    saved = RUNNER.invoke(app, ["check", str(path), *words, "--save"])
    assert saved.exit_code in (0, 1), saved.output
    spread = right.tau.std(axis=0)
    assert np.all(np.abs(read_log(path).tau - right.tau).max(axis=0) < 0.5 * spread)
    assert case not in [item.case for item in examine(read_log(folder, sound=False))]


@pytest.mark.parametrize("most", [np.inf, 1e5])
def test_rows_are_those_of_the_file_that_is_named(most, tmp_path):
    """Also where the log is larger than its memory."""

    def spike(columns):
        columns["tau"][700, 1] += 1e4

    folder = tmp_path / "runs"
    write_files(folder, spike, wrong=2)
    parts = joined_parts(stream_log(folder, rows=500, sound=False), most)
    recording, findings = check_up_parts(parts, most)
    assert (recording.excerpt is None) == (most == np.inf)
    (finding,) = (item for item in findings if item.case is cases.OUTLIER)
    assert finding.file == "run_2.npz"
    assert finding.where == "tau1, row 700 of run_2.npz"
    assert "at row 700 of run_2.npz" in finding.text
    assert finding.rows[0][0] > 700  # of the whole log, as JSON has them


def test_a_log_of_one_file_names_no_file(tmp_path):
    path = write_files(tmp_path / "runs")[0]
    assert {item.file for item in examine(read_log(path))} == {None}


def test_rows_of_a_log_that_is_cut_are_those_of_its_file(tmp_path):
    def spike(columns):
        columns["tau"][900, 1] += 1e4

    path = write_files(tmp_path / "runs", spike)[1]
    findings = examine(read_log(path, LogOptions(start=3.0, end=11.0), sound=False))
    (finding,) = (item for item in findings if item.case is cases.OUTLIER)
    assert finding.where == "tau1, row 900"
    assert finding.rows[0][0] < 900
