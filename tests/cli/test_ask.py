"""`delan check --ask`: questions on a terminal about what a log does not say, none in a script."""

import os
import pty
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from delan.cli.main import app
from delan.logs.option_text import options_path
from delan.logs.reading import read_log
from tests.logs.test_joined_logs import flat_files
from tests.logs.test_log_formats import table
from tests.support.log_writers import motion, write_npz


def answered(folder, words, answers):
    """Run `delan check --ask` on a terminal that types the answers; return what it showed."""
    ours, theirs = pty.openpty()
    os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
    command = [sys.executable, "-m", "delan.cli.main", "check", "--ask", "--save", *map(str, words)]
    with subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            shown += block
        code = process.wait()
    os.close(ours)
    return code, shown.decode(errors="replace")


def test_only_what_the_log_does_not_say_is_asked(tmp_path):
    data = motion(400)
    columns = {}
    for joint in range(3):
        columns[f"q_{joint}"] = data["q"][:, joint]
        columns[f"current_{joint}"] = data["tau"][:, joint] / [1, 2, 3][joint]
    path = table(tmp_path / "a.csv", columns)
    # The log has no time; its rate; no velocities; the gains, at first a wrong answer.
    code, shown = answered(tmp_path, [path], ["", "", "100", "many", "1,2,3"])
    assert code in (0, 1), shown
    assert "Columns of the positions" not in shown
    assert "Columns of the torques" not in shown
    assert options_path(path).is_file()
    np.testing.assert_allclose(read_log(path).tau, data["tau"])
    np.testing.assert_allclose(np.diff(read_log(path).t), 0.01)


def test_gains_of_drives_are_asked(tmp_path):
    data = motion(300)
    path = tmp_path / "a.npz"
    write_npz(path, {"t": data["t"], "q": data["q"], "qd": data["qd"], "q_des": data["q"] + 0.1})
    code, shown = answered(tmp_path, [path], ["50,40,30", "0"])
    assert code in (0, 1), shown
    np.testing.assert_allclose(read_log(path).tau, np.tile([5.0, 4.0, 3.0], (300, 1)))


def test_files_of_one_log_are_put_together(tmp_path):
    flat_files(tmp_path, motion(300, dof=7))
    code, shown = answered(tmp_path, ["."], [])
    assert code in (0, 1), shown
    assert "Next: delan fit" in shown
    assert "--join" in shown


def test_an_understood_log_is_not_asked_about(tmp_path):
    path = write_npz(tmp_path / "a.npz", motion(300))
    _, shown = answered(tmp_path, [path], [])
    assert "Columns of" not in shown
    assert "Verdict" in shown


@pytest.mark.parametrize("known", [True, False])
def test_a_script_is_not_asked(known, tmp_path):
    data = motion(300) if known else {"a": np.arange(9.0)}
    path = write_npz(tmp_path / "a.npz", data)
    result = CliRunner().invoke(app, ["check", str(path), "--ask"])
    assert result.exit_code == 2
    assert "--ask is for a terminal" in result.output
