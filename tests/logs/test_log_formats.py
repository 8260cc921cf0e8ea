"""Logs in every form read back equal, by their own names or mapped; pieces equal the whole; damage
gets our errors.
"""

import gzip
import tracemalloc
import zipfile
from decimal import Decimal
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io
from rosbags.rosbag2 import StoragePlugin

from delan.errors import DataError, DelanError, SettingsError
from delan.joints import Recording
from delan.logs.formats import sheet
from delan.logs.options import LogOptions
from delan.logs.reading import TrajectoryLabels, read_log, recordings_of, stream_log
from tests.support.log_writers import (
    NAMES,
    WRITERS,
    columns,
    motion,
    write_bag,
    write_csv,
    write_hdf5,
    write_mat73,
    write_npz,
    write_parquet,
)


def same(recording: Recording, data: dict[str, np.ndarray], *, close: float = 0.0) -> None:
    for name in ("q", "qd", "tau"):
        np.testing.assert_allclose(getattr(recording, name), data[name], rtol=0, atol=close)
    np.testing.assert_allclose(
        recording.t - recording.t[0], data["t"], rtol=0, atol=max(close, 1e-9)
    )


def table(path: Path, named: dict[str, np.ndarray], line: str = ",") -> Path:
    rows = [line.join(named)] + [
        line.join(repr(float(v)) for v in row) for row in zip(*named.values(), strict=True)
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("form", WRITERS)
def test_every_form_reads_back_equal_whatever_it_is_called(form, tmp_path):
    data = motion()
    recording = read_log(WRITERS[form](tmp_path / "a.log", data))
    same(recording, data)
    assert recording.joints.names == (
        NAMES if form in ("mcap", "sqlite") else ("joint0", "joint1", "joint2")
    )
    assert set(recording.trajectory) == {0}


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("rows", [1, 7, 60, 1000])
def test_pieces_make_the_whole(form, rows, tmp_path):
    path = WRITERS[form](tmp_path / "a.log", motion())
    whole = read_log(path)
    pieces = list(stream_log(path, rows=rows))
    assert max(len(piece.t) for piece in pieces) == min(rows, 60)
    for name in ("t", "q", "qd", "tau", "trajectory"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(p, name) for p in pieces]), getattr(whole, name)
        )


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ";"},
        {"delimiter": ";", "comma": True},
        {"delimiter": "\t"},
        {"delimiter": " "},
        {"before": "# made by a robot\n# at noon\n\n"},
        {"before": "% made by a robot\r\n"},
    ],
)
def test_dialects_of_csv(options, tmp_path):
    data = motion()
    same(read_log(write_csv(tmp_path / "a.csv", data, **options)), data)


def test_a_header_in_a_comment_quotes_and_text_elsewhere(tmp_path):
    data = motion()
    made = columns(data)
    np.savetxt(
        tmp_path / "a.txt",
        np.stack(list(made.values()), axis=1),
        header=" ".join(made),
        fmt="%.17g",
    )
    same(read_log(tmp_path / "a.txt"), data)
    lines = write_csv(tmp_path / "a.csv", data).read_text().splitlines()
    lines = [f'{line},"mode, {"x" if i else "name"}"' for i, line in enumerate(lines)]
    (tmp_path / "b.csv").write_text("\n".join(lines))
    same(read_log(tmp_path / "b.csv"), data)
    (tmp_path / "c.csv").write_text("\n".join(lines), encoding="utf-16")
    same(read_log(tmp_path / "c.csv"), data)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("{word}_{one}", None),
        ("joint{one}_{word}", None),
        ("J{one}.{word} [unit]", None),
        ("actual_{word}_{joint}", None),
        ("/joint_states/{word}[{joint}]", None),
        ("{word}.{name}", NAMES),
        ("/robot/joint_states/{name}/{word}", NAMES),
        ("{name}_{word}", NAMES),
        ("{Word}{one}", None),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        ("position", "velocity", "effort"),
        ("pos", "vel", "torque"),
        ("q", "q_dot", "tau"),
        ("theta", "dq", "trq"),
    ],
)
def test_common_names_are_found(pattern, names, words, tmp_path):
    data = motion()
    made = {"timestamp": data["t"]}
    for word, quantity in zip(words, ("q", "qd", "tau"), strict=True):
        for joint, name in enumerate(NAMES):
            column = pattern.format(
                word=word, Word=word.capitalize(), joint=joint, one=joint + 1, name=name
            )
            made[column] = data[quantity][:, joint]
    made["target_q_0"] = made["tool_pos_x"] = made["temperature_1"] = np.full(60, np.nan)
    recording = read_log(table(tmp_path / "a.csv", made))
    same(recording, data)
    assert recording.joints.names == (names or ("joint0", "joint1", "joint2"))


@pytest.mark.parametrize("unit", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("start", [0, 1_700_000_000])
@pytest.mark.parametrize("form", ["csv", "npz"])
def test_units_of_time_are_found(unit, start, form, tmp_path):
    data = motion()
    stamps = (
        np.round((data["t"] + start) * unit).astype(np.int64)
        if start < 1
        else start * int(unit) + np.round(data["t"] * unit).astype(np.int64)
    )
    path = WRITERS[form](tmp_path / "a.log", {**data, "t": stamps})
    same(read_log(path), data, close=3e-7 if form == "csv" else 1e-12)


def test_a_unit_that_cannot_be_told_is_asked_for(tmp_path):
    data = motion()
    rows = np.arange(60)
    with pytest.raises(
        DataError, match=r"column t: a step of 1 counts the rows, or is in ms; give --time-scale"
    ):
        read_log(write_npz(tmp_path / "a.npz", {**data, "t": rows}))
    with pytest.raises(DataError, match=r"a step of 100 could be in more than one unit"):
        read_log(write_npz(tmp_path / "b.npz", {**data, "t": 100 * rows}))
    same(read_log(tmp_path / "a.npz", LogOptions(time_scale=0.01)), data)
    same(read_log(tmp_path / "a.npz", LogOptions(rate=100.0)), data)
    named = columns({**data, "t": 10.0 * rows})
    named["time [ms]"] = named.pop("t")
    same(read_log(table(tmp_path / "d.csv", named)), data)


def test_options_turn_units_signs_and_currents_and_pick_joints(tmp_path):
    data = motion()
    logged = {
        "t": data["t"],
        "q": np.degrees(data["q"]) * [1, -1, 1],
        "qd": np.degrees(data["qd"]) * [1, -1, 1],
        "current": data["tau"] / [0.1, 0.2, 0.3] * [1, 1, -1],
    }
    path = write_npz(tmp_path / "a.npz", logged)
    with pytest.raises(
        DataError, match=r"holds currents \(current\) and no torques; give .* --gain"
    ):
        read_log(path)
    options = LogOptions(degrees=True, gain=(0.1, 0.2, 0.3), flip={"q": (1,), "tau": ("joint2",)})
    same(read_log(path, options), data, close=1e-12)
    kept = LogOptions(
        degrees=True, gain=(0.3, 0.1), flip={"q": (1,), "tau": (2,)}, joints=(2, "joint0")
    )
    recording = read_log(path, kept)
    same(
        recording,
        {**data, **{name: data[name][:, [2, 0]] for name in ("q", "qd", "tau")}},
        close=1e-12,
    )
    assert recording.joints.names == ("joint2", "joint0")
    turned = read_log(path, LogOptions(degrees=True, gain=(-1.0,), flip={"tau": "all"}))
    np.testing.assert_array_equal(turned.tau, logged["current"])


def test_a_gain_is_of_the_columns_that_were_mapped(tmp_path):
    data = motion()
    path = write_npz(
        tmp_path / "a.npz", {**data, "amps": 3 * data["tau"], "current": 2 * data["tau"]}
    )
    for mapped, factor in [
        ({}, 2),
        ({"tau": "amps"}, 3),
        ({"tau": "amps", "current": "current"}, 2),
    ]:
        recording = read_log(path, LogOptions(map=mapped, gain=(0.5,)))
        np.testing.assert_array_equal(recording.tau, 0.5 * factor * data["tau"])


def test_degrees_in_a_name_are_believed(tmp_path):
    data = motion()
    made = {"t": data["t"]}
    for joint in range(3):
        made[f"pos_{joint} [deg]"] = np.degrees(data["q"][:, joint])
        made[f"vel_{joint} [rad/s]"] = data["qd"][:, joint]
        made[f"torque_{joint} [Nm]"] = data["tau"][:, joint]
    path = table(tmp_path / "a.csv", made)
    same(read_log(path), data, close=1e-12)
    same(read_log(path, LogOptions(map={"q": "pos_{} [deg]"})), data, close=1e-12)


def test_degrees_in_a_name_that_only_its_owner_knows_are_believed(tmp_path):
    data = motion()
    for name in ("drive {} [deg]", "driveDeg{}"):
        made = {"t": data["t"]} | {f"tau{joint}": data["tau"][:, joint] for joint in range(3)}
        made |= {name.format(joint): np.degrees(data["q"][:, joint]) for joint in range(3)}
        recording = read_log(table(tmp_path / "a.csv", made), LogOptions(map={"q": name}))
        np.testing.assert_allclose(recording.q, data["q"], rtol=0, atol=1e-12)


def test_mapped_columns_arrays_and_headerless_files(tmp_path):
    data = motion()
    made = columns(data)
    strange = dict(zip([f"c{i}" for i in range(10)], made.values(), strict=True))
    path = table(tmp_path / "a.csv", strange)
    options = LogOptions(
        map={"t": "c0", "q": "c{1-3}", "qd": ("c4", "c5", "c6"), "tau": "c7,c8,c9"}
    )
    same(read_log(path, options), data)
    without = read_log(path, LogOptions(map={"t": "c0", "q": "c{1-3}", "tau": "c{7-9}", "qd": ""}))
    assert without.qd is None
    (tmp_path / "b.csv").write_text("\n".join(path.read_text().splitlines()[1:]))
    with pytest.raises(
        DataError,
        match=r"no header over its 10 columns; .*--map t=column1",
    ):
        read_log(tmp_path / "b.csv")
    mapped = {"t": "column1", "q": "column{2-4}", "qd": "column{5-7}", "tau": "column{8-10}"}
    same(read_log(tmp_path / "b.csv", LogOptions(map=mapped)), data)
    arrays = write_npz(tmp_path / "c.npz", {f"A_{name}": values for name, values in data.items()})
    with pytest.raises(DataError, match=r"has no array 'q', only A_t, A_q, .*--map"):
        read_log(arrays)
    same(read_log(arrays, LogOptions(map={name: f"A_{name}" for name in data})), data)
    named = LogOptions(map={"q": "at {} now", "tau": "push {}"})
    logged = {"t": data["t"]} | {f"at {n} now": data["q"][:, i] for i, n in enumerate(NAMES)}
    logged |= {f"push {n}": data["tau"][:, i] for i, n in reversed(list(enumerate(NAMES)))}
    recording = read_log(table(tmp_path / "d.csv", logged), named)
    assert recording.joints.names == NAMES
    np.testing.assert_array_equal(recording.tau, data["tau"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta_0": 0.0}, None),
        ({"q0": None}, r"column q0: is missing"),
        ({"qd2": None}, r"column qd2: is missing; .*--map qd= leaves it out"),
        (
            {"t": None, "time": 0.0, "stamp": 0.0},
            r"several columns may be t: time, stamp; .*--map 't=time'",
        ),
        ({"t": None}, r"column t: is missing; .*--rate HZ"),
        (
            {"tau0": None, "tau1": None, "tau2": None},
            r"column tau: is missing; .*--map 'tau=",
        ),
        (
            {"q0": None, "q1": None, "q2": None, "pos_0": 0.0, "theta_0": 0.0},
            r"several columns may be q: pos_0, theta_0; .*--map 'q=pos_\{\}'",
        ),
    ],
)
def test_what_is_missing_or_could_be_two_is_asked_for(change, message, tmp_path):
    made = {
        **columns(motion()),
        **{name: np.zeros(60) for name, value in change.items() if value is not None},
    }
    made = {name: values for name, values in made.items() if change.get(name, 0.0) is not None}
    path = table(tmp_path / "a.csv", made)
    if message is None:
        read_log(path)
        return
    with pytest.raises(DataError, match=message):
        read_log(path)


def named_columns() -> dict[str, np.ndarray]:
    """Columns by the names of joints; the last joint has no velocity."""
    data = motion()
    made = {"t": data["t"]}
    for quantity, word in (("q", "position"), ("qd", "velocity"), ("tau", "effort")):
        made |= {f"{name}_{word}": data[quantity][:, i] for i, name in enumerate(NAMES)}
    del made[f"{NAMES[2]}_velocity"]
    return made


def test_a_joint_without_a_column_is_asked_for_by_name_and_can_be_left_out(tmp_path):
    data, path = motion(), table(tmp_path / "a.csv", named_columns())
    problem = r"column wrist_1_joint_velocity: .*only shoulder_pan_joint, elbow_joint .*--joints"
    with pytest.raises(DataError, match=problem):
        read_log(path)
    picked = read_log(path, LogOptions(joints=("elbow_joint", "shoulder_pan_joint")))
    assert picked.joints.names == ("elbow_joint", "shoulder_pan_joint")
    same(picked, {"t": data["t"], **{name: data[name][:, [1, 0]] for name in ("q", "qd", "tau")}})


def test_rates_of_something_else_are_not_those_of_the_joints(tmp_path):
    named = {name: values for name, values in named_columns().items() if "velocity" not in name}
    assert read_log(table(tmp_path / "a.csv", {**named, "base_velocity": named["t"]})).qd is None
    numbered = {
        name: values for name, values in columns(motion()).items() if not name.startswith("qd")
    }
    assert read_log(table(tmp_path / "b.csv", {**numbered, "speed": numbered["t"]})).qd is None
    data = motion()
    arrays = {
        "t": data["t"],
        "position": data["q"],
        "position_2": -data["q"],
        "torque": data["tau"],
    }
    np.testing.assert_array_equal(read_log(write_npz(tmp_path / "c.npz", arrays)).q, data["q"])


def test_a_joint_that_two_columns_claim_is_asked_about(tmp_path):
    made = {
        name.replace("q", "pos_") if name[1:].isdigit() else name: v
        for name, v in columns(motion()).items()
    }
    same(read_log(table(tmp_path / "a.csv", made), LogOptions(map={"q": "pos_{}"})), motion())
    path = table(tmp_path / "b.csv", {**made, "pos_01": -made["pos_1"]})
    with pytest.raises(
        DataError, match=r"several columns may be q: pos_0, pos_1, pos_2, pos_01; .*--map"
    ):
        read_log(path)
    with pytest.raises(
        DataError,
        match=r"--map q=pos_\{\} matches a joint twice in pos_0, pos_1, pos_2, pos_01",
    ):
        read_log(path, LogOptions(map={"q": "pos_{}"}))
    same(read_log(path, LogOptions(map={"q": "pos_0,pos_1,pos_2"})), motion())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"joints": (7,)}, r"--joints: there is no joint 7; the log has 0 joint0, 1 joint1"),
        ({"joints": ("elbow",)}, r"--joints: there is no joint 'elbow'"),
        ({"joints": (0, "joint0")}, r"--joints: 0, joint0 name a joint twice"),
        ({"flip": {"tau": (3,)}}, r"--flip: there is no joint 3"),
        ({"gain": (1.0, 2.0)}, r"--gain gives 2 numbers for 3 joints"),
        ({"map": {"q": "nothing_{}"}}, r"--map q=nothing_\{\} matches no column; it has t, q"),
        ({"map": {"tau": "q,qd"}}, r"--map gives 2 columns for 3 joints|expected shape"),
        ({"map": {"tau": "tau,push"}}, r"--map tau=push matches no column; it has t, q"),
        ({"map": {"t": "t,q"}}, r"t is one column, but --map gives 2: t, q"),
    ],
)
def test_options_that_do_not_fit_the_log(options, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_log(write_npz(tmp_path / "a.npz", motion()), LogOptions(**options))


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
        ({"joints": (1, 1)}, "a joint is repeated in 1, 1"),
        ({"joints": (-1,)}, "-1 is no joint; give numbers counted from 0"),
        ({"time_scale": 0.0}, "time_scale must be positive and finite"),
        ({"rate": float("nan")}, "rate must be positive and finite"),
        ({"rate": 5.0, "time_scale": 1.0}, "give one of them"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_options_that_make_no_sense(options, message):
    with pytest.raises(SettingsError, match=message):
        LogOptions(**options)


def test_a_folder_or_several_files_are_several_trajectories(tmp_path):
    first, second = motion(40, seed=1), motion(60, seed=2)
    write_csv(tmp_path / "b.csv", second)
    write_npz(tmp_path / "a.npz", {**first, "trajectory": np.repeat([7, 3], 20)})
    write_bag(tmp_path / "c", first)
    (tmp_path / "README.md").write_text("# nothing")
    (tmp_path / ".hidden.csv").write_text("x")
    with pytest.raises(DataError, match=r"c: has joints shoulder_pan_joint.*a\.npz has joint0"):
        read_log(tmp_path)
    paths = [tmp_path / "a.npz", tmp_path / "b.csv"]
    recording = read_log(paths)
    assert recording.source.endswith("a.npz and 1 more")
    np.testing.assert_array_equal(recording.trajectory, np.repeat([0, 1, 2], [20, 20, 60]))
    np.testing.assert_array_equal(recording.q, np.concatenate([first["q"], second["q"]]))
    pieces = list(stream_log(paths, rows=15))
    np.testing.assert_array_equal(
        np.concatenate([piece.trajectory for piece in pieces]), recording.trajectory
    )
    write_npz(tmp_path / "d.npz", {name: values for name, values in first.items() if name != "qd"})
    with pytest.raises(
        DataError, match=r"d\.npz: has no qd, .*b\.csv has it; leave it out by --map qd="
    ):
        read_log([tmp_path / "b.csv", tmp_path / "d.npz"])
    slow = write_npz(tmp_path / "e.npz", {**second, "t": 2 * second["t"], "qd": second["qd"] / 2})
    with pytest.raises(DataError, match=r"mixed sampling rates: steps of 0.02 s here"):
        read_log([tmp_path / "b.csv", slow])
    with pytest.raises(SettingsError, match="no log was given"):
        read_log([])


def test_groups_are_trajectories(tmp_path):
    runs = {
        f"run{i}/{name}": values for i in range(3) for name, values in motion(20, seed=i).items()
    }
    for path in (
        write_npz(tmp_path / "a.npz", {"gear": np.ones(3), **runs}),
        write_hdf5(tmp_path / "a.h5", runs),
    ):
        recording = read_log(path)
        np.testing.assert_array_equal(recording.trajectory, np.repeat([0, 1, 2], 20))
        np.testing.assert_array_equal(recording.q[20:40], motion(20, seed=1)["q"])
        one = read_log(
            path, LogOptions(map={name: f"run2/{name}" for name in ("t", "q", "qd", "tau")})
        )
        same(one, motion(20, seed=2))


@pytest.mark.parametrize("storage", list(StoragePlugin))
@pytest.mark.parametrize("shuffled", [False, True])
def test_bags_keep_joint_names_in_any_order(storage, shuffled, tmp_path):
    data = motion()
    path = write_bag(
        tmp_path / "bag", data, storage=storage, shuffled=shuffled, topic="/arm/joint_states"
    )
    recording = read_log(path)
    same(recording, data)
    assert recording.joints.names == NAMES
    picked = read_log(path, LogOptions(joints=("elbow_joint",)))
    np.testing.assert_array_equal(picked.q, data["q"][:, [1]])


@pytest.mark.parametrize("rows", [7, 200])
def test_torques_and_currents_from_a_topic_beside_the_states(rows, tmp_path):
    data = motion()
    between = np.concatenate([data["tau"][:1], 0.2 * data["tau"][:-1] + 0.8 * data["tau"][1:]])
    for topic, options in [
        ("/joint_torques", LogOptions()),
        ("/strange", LogOptions(map={"tau": "/strange"})),
        ("/motor_currents", LogOptions(gain=(1.0,))),
        ("/strange", LogOptions(map={"current": "/strange"}, gain=(1.0,))),
    ]:
        path = write_bag(tmp_path / f"bag{len(list(tmp_path.iterdir()))}", data, beside=topic)
        tau = np.concatenate([piece.tau for piece in stream_log(path, options, rows=rows)])
        np.testing.assert_allclose(tau, between, atol=1e-12)
    with pytest.raises(DataError, match=r"has no array 'tau'"):
        read_log(write_bag(tmp_path / "without", data, beside="/strange"))


def test_topics_that_may_be_one_quantity_are_asked_for(tmp_path):
    data = motion()
    path = write_bag(tmp_path / "torques", data, beside=("/left/torque", "/right/torque"))
    with pytest.raises(DataError, match=r"several topics may hold tau: .*--map tau=TOPIC"):
        read_log(path)
    assert len(read_log(path, LogOptions(map={"tau": "/right/torque"})).t) == 60
    path = write_bag(
        tmp_path / "currents", data, beside=("/joint_torques", "/left/current", "/right/current")
    )
    assert len(read_log(path).t) == 60  # nobody asks for currents where torques are
    with pytest.raises(DataError, match=r"several topics may hold current: .*--map current=TOPIC"):
        read_log(path, LogOptions(gain=(0.1,)))


def test_a_log_that_is_not_sound_can_be_read_to_be_looked_at(tmp_path):
    path = write_csv(tmp_path / "a.csv", motion())
    lines = path.read_text().splitlines()
    lines[3] = lines[3].rpartition(",")[0] + ","
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"column tau2, row 2: expected a number, got ''"):
        read_log(path)
    lines[5] = lines[5].rpartition(",")[0]
    lines[7], lines[8] = lines[8], lines[7]
    path.write_text("\n".join(lines))
    recording = read_log(path, sound=False)
    assert np.flatnonzero(np.isnan(recording.tau[:, 2])).tolist() == [2, 4]
    assert sum(len(piece.t) for piece in stream_log(path, rows=9, sound=False)) == 60


@pytest.mark.parametrize(("spoiled", "got"), [(None, "none"), ([1.0, 2.0], "2")])
def test_a_list_that_lacks_joints_is_told_by_its_row(spoiled, got, tmp_path):
    data = motion()
    lists = {name: values.tolist() for name, values in data.items()}
    lists["q"][40] = spoiled
    pyarrow.parquet.write_table(pyarrow.table(lists), tmp_path / "a")
    with pytest.raises(
        DataError, match=rf"column q, row 40: expected a list of 3 numbers, got {got}"
    ):
        list(stream_log(tmp_path / "a", rows=7))


def test_a_stream_finds_time_that_runs_back_between_pieces(tmp_path):
    data = motion()
    data["t"][30:] -= 0.2
    with pytest.raises(DataError, match=r"column t, row 30: time does not increase"):
        list(stream_log(write_npz(tmp_path / "a.npz", data), rows=30))
    with pytest.raises(SettingsError, match="rows must be at least 1, got 0"):
        list(stream_log(tmp_path / "a.npz", rows=0))


def test_a_missing_library_is_named_with_the_line_to_install_it(tmp_path, monkeypatch):
    def missing(name: str):
        raise ImportError(name)

    monkeypatch.setattr(sheet, "import_module", missing)
    for form, library in [("parquet", "pyarrow"), ("hdf5", "h5py"), ("mcap", "rosbags")]:
        path = WRITERS[form](tmp_path / form, motion())
        with pytest.raises(DataError, match=rf"needs {library}; .* -m pip install 'delan\[logs\]'"):
            read_log(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_that_lie_column_by_column_read_the_same(save, tmp_path):
    data = motion(dof=3)
    with (tmp_path / "a").open("wb") as file:
        save(file, **{name: np.asfortranarray(values) for name, values in data.items()})
    for rows in (7, 200):
        pieces = list(stream_log(tmp_path / "a", rows=rows))
        np.testing.assert_array_equal(np.concatenate([piece.q for piece in pieces]), data["q"])
        np.testing.assert_array_equal(np.concatenate([piece.tau for piece in pieces]), data["tau"])


@pytest.mark.parametrize("form", ["csv", "parquet", "npz", "npz by columns", "hdf5"])
def test_streams_hold_one_piece_in_memory(form, tmp_path):
    """A file of tens of megabytes as text: what is held at once does not grow with it."""
    data = motion(50_000, dof=7)
    if form.endswith("columns"):
        data = {name: np.asfortranarray(values) for name, values in data.items()}
    path = WRITERS[form.split()[0]](tmp_path / "a.log", data)
    tracemalloc.start()
    try:
        count = sum(len(piece.t) for piece in stream_log(path, rows=2_000, sound=False))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 50_000
    assert peak < 5e6  # a piece is 0.35 MB as numbers, the whole 9


def test_logs_of_real_arms_as_they_were_published(published_letters):
    """Files of real robots, none of them written for us."""
    folder = published_letters.parent
    panda = read_log(folder / "panda_first75.npz")
    assert panda.q.shape == (15408, 7)
    assert panda.qdd is None
    kuka = LogOptions(map={"t": "A_t", "q": "A_q_motor_side", "tau": "A_tau_motor"})
    assert read_log(folder / "kuka_kr300_A.npz", kuka).tau.shape == (2501, 6)
    with pytest.raises(DataError, match=r"npz \[.*\]: has no array 't', only q, qd, q_des, qd_des"):
        read_log(folder / "wam7_real_neg_500Hz.npz")


def test_shapes_that_no_robot_has(tmp_path):
    data = motion()
    with pytest.raises(DataError, match="has no array 't'"):
        read_log(write_npz(tmp_path / "a.npz", {**data, "t": np.array(0.01)}))
    wide = {name: np.zeros((60, 600)) for name in ("q", "tau")}
    with pytest.raises(DataError, match="holds 600 joints, more than any robot has"):
        read_log(write_npz(tmp_path / "b.npz", {"t": data["t"], **wide}))
    (tmp_path / "c.csv").write_text(",".join(f"c{i}" for i in range(100_000)) + "\n1\n")
    with pytest.raises(DataError, match="no joint columns in the header"):
        read_log(tmp_path / "c.csv")
    (tmp_path / "d.csv").write_text("1" * 2_000_000)
    with pytest.raises(DataError, match="has a line of more than"):
        read_log(tmp_path / "d.csv")


def test_parquet_knows_times_decimals_and_lists_of_a_fixed_length(tmp_path):
    data = motion()
    lists = {
        name: pyarrow.FixedSizeListArray.from_arrays(data[name].ravel(), 3)
        for name in ("q", "qd", "tau")
    }
    stamps = pyarrow.array(np.round(data["t"] * 1e9).astype(np.int64), pyarrow.timestamp("ns"))
    made = {"t": stamps, **lists, "note": pyarrow.array(["fine"] * 60)}
    pyarrow.parquet.write_table(pyarrow.table(made), tmp_path / "a")
    same(read_log(tmp_path / "a"), data)
    exact = {
        name: [Decimal(f"{value:.9f}") for value in values]
        for name, values in columns(data).items()
    }
    pyarrow.parquet.write_table(pyarrow.table(exact), tmp_path / "b")
    same(read_log(tmp_path / "b"), data, close=1e-9)


@pytest.mark.parametrize(("given", "told"), [([1.0, 2.0], "2"), (None, "none")])
def test_a_list_of_another_length_is_told_with_its_row(given, told, tmp_path):
    data = motion()
    lists = {"t": data["t"], "q": data["q"].tolist(), "tau": data["tau"].tolist()}
    lists["q"][41] = given
    pyarrow.parquet.write_table(pyarrow.table(lists), tmp_path / "a")
    with pytest.raises(
        DataError, match=f"column q, row 41: expected a list of 3 numbers, got {told}"
    ):
        list(stream_log(tmp_path / "a", rows=9))


def test_mat_files_packed_or_of_one_joint(tmp_path):
    data = motion()
    scipy.io.savemat(tmp_path / "a.mat", data, do_compression=True)
    same(read_log(tmp_path / "a.mat"), data)
    single = {name: values if values.ndim == 1 else values[:, :1] for name, values in data.items()}
    scipy.io.savemat(tmp_path / "b.mat", single)
    same(read_log(tmp_path / "b.mat"), single)
    with h5py.File(write_mat73(tmp_path / "c.mat", data), "r+") as file:
        del file["t"]
        file["t"] = data["t"]  # as others write the format: one axis
    same(read_log(tmp_path / "c.mat"), data)


def test_text_that_is_no_table_or_stops_being_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("# made by a robot\n# at noon\n")
    with pytest.raises(DataError, match="holds no table; expected CSV columns"):
        read_log(path)
    lines = write_csv(path, motion()).read_text().splitlines()
    path.write_text("\n".join(["# made by a robot", *lines[1:]]))
    with pytest.raises(DataError, match="has no header over its 10 columns"):
        read_log(path)
    blanks = write_csv(path, motion(), delimiter=" ").read_text().splitlines()
    blanks[30] = blanks[30].rpartition(" ")[0]
    path.write_text("\n".join(blanks))
    with pytest.raises(
        DataError,
        match=r"row 29: expected 10 cells as in the header, got 9 \(line 31 of the file\)",
    ):
        read_log(path)
    long = write_csv(path, motion(2000)).read_bytes()
    path.write_bytes(long[:-40] + b"\xff\xfe" + long[-40:])
    with pytest.raises(
        DataError, match=r"is no readable text after row 1\d\d\d \('utf-8' codec can't decode"
    ):
        list(stream_log(path, rows=100))


def test_arrays_that_do_not_hold_what_they_claim(tmp_path):
    def claiming(name: str, shape: tuple[int, ...]) -> Path:
        data, path = motion(), tmp_path / "a.npz"
        with zipfile.ZipFile(path, "w") as archive:
            for each, values in data.items():
                with archive.open(f"{each}.npy", "w") as file:
                    told = {
                        "descr": "<f8",
                        "fortran_order": False,
                        "shape": shape if each == name else values.shape,
                    }
                    np.lib.format.write_array_header_1_0(file, told)
                    file.write(values[: 50 if each == name else None].tobytes())
        return path

    with pytest.raises(DataError, match=r"array q ends 240 bytes early"):
        read_log(claiming("q", (60, 3)))
    with pytest.raises(
        DataError,
        match=r"column tau: claims 24000000000 bytes in a file of \d+; the file is damaged",
    ):
        read_log(claiming("tau", (10**9, 3)))


def test_files_that_cannot_be_opened(tmp_path, monkeypatch):
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(b"t,q0,tau0"))
    with pytest.raises(DataError, match="is compressed by gzip"):
        read_log(packed)
    around = tmp_path / "around"
    around.symlink_to(around)
    for path, why in (
        (around, "Too many levels of symbolic links"),
        (tmp_path / ("a" * 300), "File name too long"),
    ):
        with pytest.raises(DataError, match=f"cannot be read: {why}; give a readable log"):
            read_log(path)
    with pytest.raises(DataError, match="cannot be read: embedded null byte"):
        read_log(tmp_path / "a\0b")

    def forbidden(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(
        DataError, match="cannot be read: Permission denied; give a readable folder"
    ):
        read_log(tmp_path)


def test_logs_without_rows_or_without_the_joints_they_name(tmp_path):
    empty = {name: values[:0] for name, values in motion().items()}
    with pytest.raises(DataError, match="holds no rows; record some motion"):
        read_log(write_npz(tmp_path / "a.npz", empty), LogOptions(rate=100.0))
    named = {"joint_names": np.array(NAMES), "t": motion()["t"]}
    with pytest.raises(DataError, match="has no array 'q', only t"):
        read_log(write_npz(tmp_path / "b.npz", named))


def test_a_reader_whose_columns_differ_in_length_is_refused():
    """What every new format can rely on: pieces without rows are passed over, pieces that do not
    match are told.
    """
    data = motion(dof=1)
    made = {"t": data["t"], "q0": data["q"][:, 0], "tau0": data["tau"][:, 0]}
    fields = {name: sheet.Field() for name in made}

    def sheet_of(pieces: list[dict[str, np.ndarray]]) -> sheet.Sheet:
        return sheet.Sheet(
            source="x",
            kind="table",
            form="",
            fields=fields,
            pieces=lambda wanted, rows: iter(pieces),
        )

    nothing = {name: values[:0] for name, values in made.items()}
    labels = TrajectoryLabels(keep=True)
    (piece,) = recordings_of(sheet_of([nothing, made, nothing]), LogOptions(), 100, labels)
    np.testing.assert_array_equal(piece.tau, data["tau"])
    short = sheet_of([made | {"tau0": made["tau0"][:-1]}])
    with pytest.raises(DataError, match="column tau0: ends before the other columns"):
        list(recordings_of(short, LogOptions(), 100, labels))


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, overwritten, shuffled, doubled, or with words and numbers where others stood."""
    made = bytearray(content)
    kind = rng.integers(7)
    if kind == 0:
        return bytes(made[: rng.integers(len(made) + 1)])
    if kind in (1, 2):
        for _ in range(int(rng.integers(1, 20))):
            made[rng.integers(len(made))] = rng.integers(256)
    elif kind == 3:
        at, size = sorted(rng.integers(0, len(made), 2))
        made[at:size] = (
            bytes(rng.integers(0, 256, size - at, dtype=np.uint8)) if rng.random() < 0.5 else b""
        )
    elif kind == 4:
        words = [
            b"nan",
            b"inf",
            b"-1e400",
            b"text",
            b'"',
            b",,",
            b"\n",
            b"\0",
            b"\xff" * 8,
            b"9" * 40,
            b"\x7f" * 8,
        ]
        for _ in range(int(rng.integers(1, 5))):
            at = rng.integers(len(made))
            word = words[rng.integers(len(words))]
            made[at : at + (len(word) if rng.random() < 0.7 else 0)] = word
    elif kind == 5:
        at = sorted(rng.integers(0, len(made), 4))
        made = (
            made[: at[0]]
            + made[at[2] : at[3]]
            + made[at[1] : at[2]]
            + made[at[0] : at[1]]
            + made[at[3] :]
        )
    else:
        lines = bytes(made).split(b"\n")
        rng.shuffle(lines)
        made = bytearray(b"\n".join(lines))
    return bytes(made)


def fuzz(folder: Path, cases: int, seed: int) -> int:
    """Damaged logs of every form: each reads or raises our own error; returns how many still read."""
    rng = np.random.default_rng(seed)
    contents = {}
    for form, write in WRITERS.items():
        data: dict = motion(12)
        if form in ("csv", "npz", "hdf5"):
            data["trajectory"] = np.repeat([1, 2], 6)
        contents[form] = write(folder / form.replace(" ", "_"), data).read_bytes()
    path, read = folder / "log", 0
    for case in range(cases):
        form = list(contents)[case % len(contents)]
        content = damaged(contents[form], rng)
        path.write_bytes(content)
        try:
            recording = read_log(path) if rng.random() < 0.7 else read_log(path, sound=False)
            read += 1
            assert recording.q.shape == recording.tau.shape
        except DelanError:
            pass
        except BaseException as error:
            raise AssertionError(f"case {case} of {form}, seed {seed}") from error
    return read


@pytest.mark.usefixtures("as_shipped")
def test_damaged_logs_of_every_form_get_our_errors(tmp_path):
    assert fuzz(tmp_path, 400, seed=0) > 10


@pytest.mark.slow
@pytest.mark.usefixtures("as_shipped")
def test_ten_thousand_damaged_logs_get_our_errors(tmp_path):
    assert fuzz(tmp_path, 10_000, seed=1) > 100


def test_columns_in_any_order_are_the_same_log(tmp_path):
    data = motion()
    names = list(columns(data))
    np.random.default_rng(0).shuffle(names)
    same(read_log(table(tmp_path / "a.csv", {name: columns(data)[name] for name in names})), data)
    write_parquet(tmp_path / "b", data)
    same(read_log(tmp_path / "b"), data)
