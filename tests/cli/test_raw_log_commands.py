"""Commands on logs that need options: kept beside the log, with the model, or not understood."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from delan import storage
from delan.cli.log_options import read_options
from delan.cli.main import app
from delan.errors import SettingsError
from delan.logs.option_words import option_words
from delan.logs.reading import read_log
from tests.hostile import models
from tests.logs.test_log_formats import table
from tests.support.log_writers import motion

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


def test_a_model_remembers_the_options_of_its_log(tmp_path):
    two = models.motion(600, 0)
    data = {name: getattr(two, name) for name in ("t", "q", "tau")}
    path = odd_table(tmp_path / "a.csv", data)
    model = tmp_path / "m.delan"
    kept = {"map": {"t": "clock", "q": "axis{}", "tau": "push{}"}, "degrees": True}
    storage.save(models.originals()["chain"], model, provenance={"log_options": kept})
    result = RUNNER.invoke(app, ["evaluate", str(model), str(path)])
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
