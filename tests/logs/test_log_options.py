"""Options of logs as they are typed: read into `LogOptions`, shared by commands, or refused."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from delan.cli.log_options import MEMORY, LogsArgument, name_of, read_options, takes_log_options
from delan.cli.main import app as whole_app
from delan.errors import SettingsError
from delan.logs.options import LogOptions

app = typer.Typer()
seen: dict[str, Any] = {}


@app.command()
@takes_log_options
def look(log: LogsArgument, quick: bool = False, *, log_options: Any) -> None:
    """Look at logs."""
    seen.update(log=log, quick=quick, options=log_options)


def test_what_is_typed_arrives_read():
    typed = "a.csv b --quick --map q=pos_{} --map tau=x,y --degrees --gain 0.1,0.2"
    typed += " --flip tau:1,elbow --flip q"
    shown = CliRunner().invoke(
        app, [*typed.split(), "--joints", "0, elbow", "--time-scale", "0.001"]
    )
    assert shown.exit_code == 0, shown.output
    assert seen["log"] == [Path("a.csv"), Path("b")]
    assert seen["quick"]
    assert seen["options"] == LogOptions(
        map={"q": "pos_{}", "tau": "x,y"},
        degrees=True,
        gain=(0.1, 0.2),
        flip={"tau": (1, "elbow"), "q": "all"},
        joints=(0, "elbow"),
        time_scale=0.001,
        memory=MEMORY,
    )


def test_nothing_typed_means_nothing_special():
    assert CliRunner().invoke(app, ["a.csv"]).exit_code == 0
    assert seen["options"] == LogOptions(memory=MEMORY)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"map_": ["position"]}, r"--map is written as q=joint_pos_\{\}, got 'position'"),
        ({"map_": ["pos=x"]}, "--map knows no quantity 'pos'"),
        (
            {"gain": "0.1;0.2"},
            "--gain is one number or one a joint, such as 0.11,0.11,0.07, got '0.1;0.2'",
        ),
        ({"flip": ["speed:1"]}, "--flip inverts the sign of q .* or tau, got 'speed'"),
        ({"flip": ["tau:"]}, "--flip of tau has '', which is not a joint"),
        (
            {"joints": "0,,1"},
            "--joints has '', which is not a joint; give numbers counted from 0, or names",
        ),
        ({"rate": -1.0}, "--rate must be positive and finite, .*; got -1"),
    ],
)
def test_what_makes_no_sense_is_refused(typed, message):
    with pytest.raises(SettingsError, match=message):
        read_options(**typed)


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_commands_that_read_logs_have_the_options(command):
    shown = CliRunner().invoke(
        whole_app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}
    )
    assert shown.exit_code == 0
    for option in ("--map", "--degrees", "--gain", "--flip", "--joints", "--time-scale", "--rate"):
        assert option in shown.output


def test_several_logs_are_told_by_the_first():
    assert name_of([Path("x/a.csv")]) == "a.csv"
    assert name_of([Path("x/a.csv"), Path("b"), Path("c")]) == "a.csv and 2 more"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"map": {"position": "x"}},
            "map knows no quantity 'position'; give columns for one of t, trajectory, q",
        ),
        ({"map": {"q": "a{}b{}"}}, r"'a\{\}b\{\}' is not a pattern; write one"),
        ({"map": {"q": "a{3-1}"}}, r"runs backward; write \{1-3\}"),
        ({"map": {"q": ""}}, "q is required"),
        ({"map": {"q": 3}}, r"map of q must be a column pattern such as q_\{\}, got 3"),
        ({"gain": ()}, "gain must be finite and nonzero"),
        ({"gain": (0.1, 0.0)}, "got 0.1, 0.0"),
        ({"flip": {"qd": (1,)}}, "flip inverts the sign of q .* or tau, got 'qd'"),
        ({"flip": {"q": ()}}, "flip of q must be a list of joints"),
        ({"joints": ()}, "joints must be a list of joints, got"),
        ({"joints": (1, 1)}, "repeats a joint in 1, 1"),
        ({"joints": (-1,)}, "-1, which is not a joint; give numbers counted from 0"),
        ({"time_scale": 0.0}, "time_scale must be positive and finite"),
        ({"rate": float("nan")}, "rate must be positive and finite"),
        ({"rate": 5.0, "time_scale": 1.0}, "give one of them"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_options_that_make_no_sense(options, message):
    with pytest.raises(SettingsError, match=message):
        LogOptions(**options)
