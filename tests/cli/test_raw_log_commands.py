"""Commands on logs that need options: kept beside the log, with the model, or not understood."""

import json
import shlex

import numpy as np
import pytest
from typer.testing import CliRunner

from delan import storage
from delan.cli.log_options import read_options
from delan.cli.main import app
from delan.errors import SettingsError
from delan.logs.option_text import option_words
from delan.logs.options import LogOptions
from delan.logs.reading import read_log
from delan.robots.arms import TWO_LINK
from tests.hostile import models
from tests.logs.test_joined_logs import flat_files
from tests.logs.test_log_formats import table
from tests.support.faulty_logs import clean
from tests.support.log_writers import motion, write_csv, write_npz

RUNNER = CliRunner()


def odd_table(path, data, names=("clock", "axis{}", "push{}")):
    named = {names[0]: data["t"]}
    for joint in range(data["q"].shape[1]):
        named[names[1].format(joint)] = np.rad2deg(data["q"][:, joint])
        named[names[2].format(joint)] = data["tau"][:, joint]
    return table(path, named)


MAP = ["--map", "t=clock", "--map", "q=axis{}", "--map", "tau=push{}", "--degrees"]


def test_saved_options_are_read_by_other_commands(tmp_path):
    data = motion(400)
    path = odd_table(tmp_path / "a.csv", data)
    assert RUNNER.invoke(app, ["check", str(path), "--json"]).exit_code == 2
    assert RUNNER.invoke(app, ["check", str(path), *MAP, "--save"]).exit_code in (0, 1)
    np.testing.assert_allclose(read_log(path).q, data["q"], atol=1e-12)


@pytest.mark.parametrize("form", ["parquet", "npz", "csv"])
def test_a_converted_log_needs_no_options(form, tmp_path):
    data = motion(300)
    path = odd_table(tmp_path / "a.csv", data)
    out = tmp_path / f"b.{form}"
    result = RUNNER.invoke(app, ["convert", str(path), "-o", str(out), *MAP, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["options"]["degrees"] is True
    recording = read_log(out)
    np.testing.assert_allclose(recording.q, data["q"], atol=1e-12)
    np.testing.assert_array_equal(recording.tau, data["tau"])
    wrong = RUNNER.invoke(app, ["convert", str(path), "-o", str(tmp_path / "b.xls"), *MAP])
    assert wrong.exit_code == 1
    assert "is a .parquet, .npz or .csv file" in wrong.output


def test_a_log_that_is_not_understood_is_shown_with_a_guess(tmp_path):
    data = motion(200)
    names = {"mt": data["t"]}
    for joint in range(3):
        names[f"mdq{joint}"] = data["qd"][:, joint]
        names[f"mq{joint}"] = data["q"][:, joint]
        names[f"my torque{joint}"] = data["tau"][:, joint]
    path = table(tmp_path / "a.csv", names)
    result = RUNNER.invoke(app, ["check", str(path), "--json"])
    assert result.exit_code == 2
    payload = json.loads(result.stdout)
    assert payload["understood"]
    assert payload["needs"] == []
    mapped = [word for word in payload["command"].split() if "=" in word]
    assert "t=mt" in mapped
    facts = {fact["name"]: fact for fact in payload["columns"]}
    assert facts["mt"]["rate"] == pytest.approx(100)
    shown = RUNNER.invoke(app, ["check", str(path)])
    assert "This may read it: delan check" in shown.output
    asked = RUNNER.invoke(app, ["check", str(path), "--ask"])
    assert asked.exit_code == 2  # no terminal
    assert "--ask is for a terminal" in asked.output


def test_columns_without_names_are_guessed_by_their_numbers(tmp_path):
    data = motion(500)
    rows = np.concatenate([data["t"][:, None], data["q"], data["qd"], data["tau"]], axis=1)
    path = tmp_path / "a.txt"
    np.savetxt(path, rows)
    payload = json.loads(RUNNER.invoke(app, ["check", str(path), "--json"]).stdout)
    for word in ("t=column1", "q=column{2-4}", "qd=column{5-7}", "tau=column{8-10}"):
        assert word in payload["command"]


@pytest.mark.parametrize("command", ["evaluate", "simulate"])
def test_a_model_remembers_the_options_of_its_log(command, tmp_path):
    two = models.motion(600, 0)
    data = {name: getattr(two, name) for name in ("t", "q", "tau")}
    path = odd_table(tmp_path / "a.csv", data)
    model = tmp_path / "m.delan"
    kept = {"map": {"t": "clock", "q": "axis{}", "tau": "push{}"}, "degrees": True}
    storage.save(models.originals()["chain"], model, provenance={"log_options": kept})
    words = {"evaluate": [str(path)], "simulate": ["--log", str(path), "--windows", "2"]}
    result = RUNNER.invoke(app, [command, str(model), *words[command]])
    assert result.exit_code == 0, result.output
    assert "is read as the log of the fit was: --map t=clock" in result.output


def test_typed_options_are_written_as_they_were_typed():
    typed = {
        "scale": ["q:2pi/4096", "tau:1,2e-1"],
        "transmission": "50,0;50,-80",
        "kp": "80,120",
        "join": ["b.csv"],
        "from_": 1.0,
    }
    options = read_options(**typed)
    assert options.scale["q"] == pytest.approx((2 * np.pi / 4096,))
    assert options.scale["tau"] == (1.0, 0.2)
    assert options.transmission == ((50.0, 0.0), (50.0, -80.0))
    words = option_words(options)
    assert words[words.index("--transmission") + 1] == "50,0;50,-80"
    assert words[words.index("--join") + 1] == "b.csv"
    for wrong in ({"scale": ["q"]}, {"kp": "a"}, {"scale": ["q:1/0"]}, {"transmission": "none"}):
        with pytest.raises(SettingsError):
            read_options(**wrong)


def test_a_matrix_in_a_file(tmp_path):
    path = tmp_path / "gears.txt"
    path.write_text("# of the wrist\n50 0\n50 -80\n")
    assert read_options(transmission=str(path)).transmission == ((50.0, 0.0), (50.0, -80.0))


def test_a_conversion_never_takes_the_place_of_its_log(tmp_path):
    path = write_csv(tmp_path / "a.csv", motion())
    before = path.read_bytes()
    link = tmp_path / "b.csv"
    link.symlink_to(path)
    for out in (path, link):
        for log in (path, tmp_path):
            result = RUNNER.invoke(app, ["convert", str(log), "-o", str(out)])
            assert result.exit_code == 1
            assert f"{out} is read, too; give another output path" in result.output
    assert path.read_bytes() == before


def checked(*words):
    """Return the exit code and the guess of `delan check --json`."""
    result = RUNNER.invoke(app, ["check", *map(str, words), "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_files_of_one_log_are_put_together(tmp_path):
    data = motion(dof=7)
    flat_files(tmp_path, data)
    for given in (tmp_path, tmp_path / "positions.txt"):
        code, payload = checked(given)
        assert code == 2
        assert payload["understood"]
        words = shlex.split(payload["command"])
        assert words[2] == str(tmp_path / "time.txt")
        assert words[words.index("--columns") + 1] == "7"
    assert RUNNER.invoke(app, words[1:]).exit_code in (0, 1)
    without = [word for word in words[1:] if word not in ("--columns", "7")]
    assert "give --columns 7" in RUNNER.invoke(app, without).output


def test_files_with_the_same_columns_are_told_apart_by_their_names(tmp_path):
    data = motion(200, dof=2)
    for name, values in (("run_positions", data["q"]), ("run_currents", data["tau"])):
        table(tmp_path / f"{name}.csv", {f"motor{joint + 1}": values[:, joint] for joint in (0, 1)})
    shown = RUNNER.invoke(app, ["check", str(tmp_path), "--json"])
    payload = json.loads(shown.stdout)
    assert {need.rpartition(": ")[2] for need in payload["needs"]} == {"--rate HZ", "--gain K,…"}
    words = payload["command"].replace("HZ", "100").replace("K,…", "2,3")
    checked = RUNNER.invoke(app, [*shlex.split(words)[1:], "--json", "--save"])
    assert checked.exit_code in (0, 1), checked.output
    recording = read_log(tmp_path / "run_positions.csv")
    np.testing.assert_allclose(recording.q, data["q"])
    np.testing.assert_allclose(recording.tau, data["tau"] * [2, 3])


def test_files_whose_columns_say_what_they_hold_are_put_together(tmp_path):
    data = motion(200, dof=2)
    for name, quantity in (("a", "q"), ("b", "tau")):
        columns = {f"{quantity}{joint}": data[quantity][:, joint] for joint in (0, 1)}
        table(tmp_path / f"{name}.csv", {"t": data["t"], **columns})
    payload = json.loads(RUNNER.invoke(app, ["check", str(tmp_path), "--json"]).stdout)
    assert payload["command"] == f"delan check {tmp_path / 'a.csv'} --join b.csv"
    assert payload["understood"]
    assert RUNNER.invoke(app, [*payload["command"].split()[1:], "--json"]).exit_code in (0, 1)


def test_a_guess_takes_moving_columns_no_switches_and_only_what_is_needed(tmp_path):
    data = motion(200)
    still = np.where(np.arange(3) < 2, data["q"], 0.0)
    moving = np.where(np.arange(3) < 2, 0.0, data["q"])
    arrays = {"time": data["t"], "torque": data["tau"], "pos_a": still, "pos_b": moving}
    write_npz(tmp_path / "a.npz", arrays)
    _, payload = checked(tmp_path / "a.npz")
    words = shlex.split(payload["command"])
    assert words[3:] == ["--map", "q=pos_a[0-1],pos_b[2-2]"]
    np.savez(tmp_path / "b.npz", t=data["t"], q=data["q"], torque_enable=np.ones(200))
    _, payload = checked(tmp_path / "b.npz")
    assert not payload["understood"]
    assert "torque_enable" not in payload["command"]
    assert payload["needs"][0].startswith("torques")


def test_what_no_log_says_is_a_placeholder_in_the_command(tmp_path):
    data = motion(200)
    names = {f"q_{joint}": data["q"][:, joint] for joint in range(3)}
    names |= {f"tau_{joint}": data["tau"][:, joint] for joint in range(3)}
    names |= {f"tau_ext_{joint}": data["tau"][:, joint] for joint in range(3)}
    path = table(tmp_path / "a.csv", names)
    _, payload = checked(path)
    assert payload["command"] == f"delan check {path} --rate HZ"
    # A pattern means the joints with numbers, not those called ext_0.
    options = LogOptions(rate=100.0, map={"tau": "tau_{}"})
    np.testing.assert_allclose(read_log(path, options).tau, data["tau"])


def test_the_next_command_leaves_dead_joints_out_and_turns_signs(tmp_path):
    data = clean("wam7").columns
    columns = {name: data[name] for name in ("t", "q", "qd")}
    write_npz(tmp_path / "a.npz", {**columns, "tau": -data["tau"]})
    shown = RUNNER.invoke(app, ["check", str(tmp_path / "a.npz")]).output
    assert f"Next: delan fit {tmp_path / 'a.npz'} --flip tau" in shown
    columns["qd"] = np.where(np.arange(data["qd"].shape[1]) == 0, 0.0, data["qd"])
    write_npz(tmp_path / "b.npz", {**columns, "tau": data["tau"]})
    shown = RUNNER.invoke(app, ["check", str(tmp_path / "b.npz")]).output
    rest = ",".join(str(joint) for joint in range(1, data["q"].shape[1]))
    assert f"Next: delan fit {tmp_path / 'b.npz'} --joints {rest}" in shown


def test_files_that_are_understood_are_named_beside_one_that_is_not(tmp_path):
    data = motion(200)
    good = table(tmp_path / "a.csv", {"t": data["t"], "q0": data["q"][:, 0], "tau0": data["t"]})
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    shown = RUNNER.invoke(app, ["check", str(tmp_path)]).output
    assert f"The others can be read: delan check {good}" in shown


def test_torques_of_a_model_are_drawn_beside_those_of_a_log(tmp_path):
    two = models.motion(600, 0)
    write_npz(tmp_path / "a.npz", {name: getattr(two, name) for name in ("t", "q", "qd", "tau")})
    storage.save(models.originals()["chain"], tmp_path / "m.delan")
    picture = tmp_path / "a.png"
    words = ["evaluate", str(tmp_path / "m.delan"), str(tmp_path / "a.npz")]
    result = RUNNER.invoke(app, [*words, "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_motions_for_a_described_robot_keep_its_limits(tmp_path):
    urdf = tmp_path / "arm.urdf"
    urdf.write_text(TWO_LINK.urdf().replace('velocity="10.0"', 'velocity="0.5"', 1))
    out = tmp_path / "a.npz"
    words = ["references", "cosines", "--urdf", str(urdf), "-o", str(out)]
    result = RUNNER.invoke(app, words)
    assert result.exit_code == 0, result.output
    speed = np.abs(np.load(out)["qd"]).max(axis=0)
    assert speed[0] <= 0.5 < speed[1]
    urdf.write_text(TWO_LINK.urdf().replace('velocity="10.0"', 'velocity="0"', 1))
    refused = RUNNER.invoke(app, words)
    assert refused.exit_code == 1
    assert "shoulder has no limit of its speed" in refused.output
