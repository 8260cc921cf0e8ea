"""Columns of logs: found by common names or as mapped, converted, and refused if ambiguous."""

import numpy as np
import pytest

from delan.errors import DataError
from delan.logs.options import LogOptions
from delan.logs.reading import read_log
from tests.logs.test_log_formats import same, table
from tests.support.log_writers import NAMES, WRITERS, columns, motion, write_npz, write_parquet


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("{word}_{number}", None),
        ("joint{number}_{word}", None),
        ("J{number}.{word} [unit]", None),
        ("actual_{word}_{joint}", None),
        ("/joint_states/{word}[{joint}]", None),
        ("{word}.{name}", NAMES),
        ("/robot/joint_states/{name}/{word}", NAMES),
        ("{name}_{word}", NAMES),
        ("{Word}{number}", None),
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
                word=word, Word=word.capitalize(), joint=joint, number=joint + 1, name=name
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
    data = motion()
    path = table(tmp_path / "a.csv", named_columns())
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
        ({"map": {"tau": "q,qd"}}, r"--map gives 6 columns for 3 joints"),
        ({"map": {"tau": "tau,push"}}, r"--map tau=push matches no column; it has t, q"),
        ({"map": {"t": "t,q"}}, r"t is one column, but --map gives 2: t, q"),
    ],
)
def test_options_that_do_not_fit_the_log(options, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_log(write_npz(tmp_path / "a.npz", motion()), LogOptions(**options))


def test_columns_in_any_order_are_the_same_log(tmp_path):
    data = motion()
    names = list(columns(data))
    np.random.default_rng(0).shuffle(names)
    same(read_log(table(tmp_path / "a.csv", {name: columns(data)[name] for name in names})), data)
    write_parquet(tmp_path / "b", data)
    same(read_log(tmp_path / "b"), data)
