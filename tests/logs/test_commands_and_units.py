"""Torques from commands of drives, factors, transmissions, cuts by time, and stored options."""

import numpy as np
import pytest

from delan.errors import DataError, SettingsError
from delan.logs.doctor import examine
from delan.logs.option_text import (
    options_of,
    options_path,
    plain_options,
    stored_options,
    toml_text,
)
from delan.logs.options import LogOptions
from delan.logs.reading import read_log
from tests.logs.test_log_formats import same, table
from tests.support.log_writers import columns, motion, write_csv, write_json, write_npz

KP = np.array([80.0, 120.0, 30.0])
KD = np.array([2.0, 3.0, 0.5])


def commanded(samples=200):
    """What a robot with position loops logs, and the torque that its drives apply."""
    data = motion(samples)
    rng = np.random.default_rng(1)
    told = {
        "q_des": data["q"] + 0.1 * rng.normal(size=data["q"].shape),
        "qd_des": rng.normal(size=data["q"].shape),
        "tau_des": rng.normal(size=data["q"].shape),
    }
    error = told["q_des"] - data["q"]
    torque = KP * error + KD * (told["qd_des"] - data["qd"]) + told["tau_des"]
    measured = {name: data[name] for name in ("t", "q", "qd")}
    return measured | told, {**data, "tau": torque}


def test_a_commanded_torque_that_is_the_sum_is_not_added_to_itself(tmp_path):
    log, data = commanded()
    whole = data["tau"] - log["tau_des"]
    log["tau_des"] = whole + 1e-3 * np.random.default_rng(2).normal(size=whole.shape)
    recording = read_log(write_npz(tmp_path / "a.npz", {**log, "kp": KP, "kd": KD}))
    np.testing.assert_allclose(recording.tau, whole, atol=1e-12)


def test_torques_are_computed_from_commands_and_gains_in_the_log(tmp_path):
    log, data = commanded()
    recording = read_log(write_npz(tmp_path / "a.npz", {**log, "kp": KP, "kd": KD}))
    same(recording, data, close=1e-12)
    assert recording.torque_source == "commands"
    assert "commanded" in {finding.kind for finding in examine(recording)}
    assert recording.gains is not None
    np.testing.assert_array_equal(recording.gains.kp, KP)
    np.testing.assert_array_equal(recording.gains.kd, KD)
    joints = read_log(tmp_path / "a.npz", LogOptions(joints=(2, 0)))
    np.testing.assert_allclose(joints.tau, data["tau"][:, [2, 0]], atol=1e-12)
    shorter = {name: log[name][:-1] for name in ("q_des", "qd_des", "tau_des")}
    path = write_npz(tmp_path / "b.npz", {**log, **shorter, "kp": KP, "kd": KD})
    np.testing.assert_allclose(read_log(path).tau, data["tau"][:-1], atol=1e-12)


def test_gains_may_be_given_or_change_in_time(tmp_path):
    log, data = commanded()
    named = {"t": log["t"]}
    words = {"q": "position_{}", "qd": "velocity_{}", "q_des": "goal_position_{}"}
    words |= {"qd_des": "desired velocity {}", "tau_des": "tau_ref_{}"}
    for quantity, name in words.items():
        for joint in range(3):
            named[name.format(joint)] = log[quantity][:, joint]
    path = table(tmp_path / "a.csv", named)
    options = LogOptions(kp=tuple(KP), kd=tuple(KD))
    same(read_log(path, options), data, close=1e-12)
    with pytest.raises(DataError, match=r"holds commands \(goal_position_0.*give --kp in N m/rad"):
        read_log(path)
    in_time = {**log, "kp": np.tile(KP, (200, 1)), "kd": np.tile(KD, (200, 1))}
    same(read_log(write_npz(tmp_path / "b.npz", in_time)), data, close=1e-12)


def test_a_logged_torque_comes_first_unless_gains_are_given(tmp_path):
    log, data = commanded()
    path = write_npz(tmp_path / "a.npz", {**log, "kp": KP, "kd": KD, "tau": data["q"]})
    assert read_log(path).torque_source == "logged"
    same(read_log(path, LogOptions(kp=tuple(KP), kd=tuple(KD))), data, close=1e-12)


def test_a_servo_with_a_gain_of_its_firmware_is_refused(tmp_path):
    log, _ = commanded()
    one = {"timestamp": log["t"], "position": log["q"][:, 0], "goal_position": log["q_des"][:, 0]}
    path = write_json(tmp_path / "a.json", one)
    path.write_text(path.read_text().replace('"mass": 0.5', '"kp": 200'))
    with pytest.raises(DataError, match="has kp and no kd, as the firmware of a servo"):
        read_log(path)
    recording = read_log(path, LogOptions(kp=(2.0,), kd=(0.0,)))
    expected = 2 * (one["goal_position"] - one["position"])
    np.testing.assert_allclose(recording.tau[:, 0], expected, atol=1e-12)
    with pytest.raises(DataError, match=r"no measured velocities, .* give --kd 0"):
        read_log(path, LogOptions(kp=(2.0,), kd=(0.1,)))


def test_motors_become_joints_with_the_same_power(tmp_path):
    data = motion(dof=3)
    transmission = np.array([[50.0, 0, 0], [0, 40, 0], [0, 30, -30]])
    motors = {
        "t": data["t"],
        "q": data["q"] @ transmission.T,
        "qd": data["qd"] @ transmission.T,
        "tau": data["tau"] @ np.linalg.inv(transmission),
    }
    path = write_npz(tmp_path / "a.npz", motors)
    recording = read_log(path, LogOptions(transmission=tuple(map(tuple, transmission))))
    same(recording, data, close=1e-10)
    power = np.sum(motors["qd"] * motors["tau"], axis=1)
    np.testing.assert_allclose(np.sum(recording.qd * recording.tau, axis=1), power, atol=1e-10)
    gears = read_log(path, LogOptions(transmission=((50.0, 40.0, -30.0),)))
    np.testing.assert_allclose(gears.q, motors["q"] / [50, 40, -30])
    np.testing.assert_allclose(gears.tau, motors["tau"] * [50, 40, -30])
    with pytest.raises(DataError, match="--transmission is for 2 joints, the log has 3"):
        read_log(path, LogOptions(transmission=((1.0, 2.0),)))


def test_counts_of_encoders_and_degrees_of_some_columns(tmp_path):
    data = motion()
    counts = np.pi / 2048
    log = {**data, "q": data["q"] / counts + 17}
    options = LogOptions(scale={"q": (counts,)}, offset={"q": (-17 * counts,)})
    same(read_log(write_npz(tmp_path / "a.npz", log), options), data, close=1e-12)
    named = columns(data)
    named["q1_deg"] = np.rad2deg(named.pop("q1"))
    path = table(tmp_path / "b.csv", named)
    same(read_log(path, LogOptions(map={"q": "q0,q1_deg,q2"})), data, close=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transmission": ((1.0, 2.0), (2.0, 4.0))}, "must be finite and invertible"),
        ({"transmission": ((1.0,), (2.0,), (3.0,))}, "must be one row of gear ratios"),
        ({"scale": {"t": (1.0,)}}, "knows no quantity 't'"),
        ({"scale": {"q": (0.0,)}}, "of q is 0"),
        ({"kp": (-1.0,)}, "must not be negative"),
        ({"kd": (np.nan,)}, "must be finite"),
        ({"start": 3.0, "end": 2.0}, "must be after --from 3"),
        ({"columns": 0}, "must be a number of columns"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(SettingsError, match=message):
        LogOptions(**options)


def test_a_log_is_cut_by_time(tmp_path):
    data = motion()
    late = {**data, "t": data["t"] + 40.0}
    path = write_npz(tmp_path / "a.npz", late)
    recording = read_log([path, path], LogOptions(start=0.095, end=0.295))
    assert len(recording.t) == 40
    np.testing.assert_array_equal(recording.q[:20], data["q"][10:30])
    np.testing.assert_array_equal(recording.q[20:], data["q"][10:30])
    with pytest.raises(DataError, match=r"no row is between --from and --to; the log lasts 0.59 s"):
        read_log(path, LogOptions(start=7.0))


OPTIONS = LogOptions(
    map={"q": "axis {}", "tau": ("a", "b"), "qd": ""},
    join=("b.csv",),
    scale={"q": (0.5, 0.25)},
    flip={"tau": (0, "elbow"), "q": "all"},
    kp=(1.0,),
    transmission=((1.0, 0.0), (0.5, 2.0)),
    joints=(1, "elbow"),
    rate=500.0,
    degrees=True,
    memory=10.0,
)


def test_options_are_the_same_after_toml(tmp_path):
    log = tmp_path / "a.csv"
    options_path(log).write_text(toml_text(OPTIONS, "as it was understood"))
    stored = stored_options(log)
    assert stored is not None
    assert plain_options(stored[0]) == plain_options(OPTIONS)
    assert stored[0].memory is None  # of a command, not of a log
    assert options_of(plain_options(OPTIONS), "a model") == stored[0]


def test_options_beside_a_log_are_read_with_it(tmp_path):
    data = motion()
    named = {"clock": data["t"]}
    for joint in range(3):
        named[f"axis{joint}"] = np.rad2deg(data["q"][:, joint])
        named[f"push{joint}"] = -data["tau"][:, joint]
    path = table(tmp_path / "a.csv", named)
    stored = LogOptions(
        map={"t": "clock", "q": "axis{}", "tau": "push{}"}, degrees=True, flip={"tau": "all"}
    )
    (tmp_path / "log.toml").write_text(toml_text(stored))
    recording = read_log(tmp_path)
    np.testing.assert_allclose(recording.q, data["q"], atol=1e-12)
    np.testing.assert_array_equal(recording.tau, data["tau"])
    # What is given counts more than what is stored.
    given = read_log(path, LogOptions(flip={"tau": (0,)}))
    np.testing.assert_array_equal(given.tau, data["tau"] * [1, -1, -1])


def test_sliding_joints_are_kept_beside_a_log(tmp_path):
    path = write_csv(tmp_path / "a.csv", motion())
    options_path(path).write_text(toml_text(LogOptions(sliding=(1, "q2"))))
    stored = stored_options(path)
    assert stored is not None
    assert stored[0].sliding == (1, "q2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("map = 3", "map is 3, which is no value"),
        ("speed = 3", "knows no option 'speed'"),
        ("rate = -1", "rate must be positive"),
        ("rate = true", "rate is True"),
        ("degrees = ", "is no TOML"),
        ("kp = ['a']", "kp is"),
        ("join = [3]", "join is"),
        ("flip = {tau = 3}", "flip is"),
        ("gain = [1" + "0" * 400 + "]", "an integer that no float can hold"),
        ("rate = 1" + "0" * 5000, "is no TOML"),
        ("map = {qd = '" + "v{0-9999}," * 9 + "'}", "names 90001 columns, expected at most"),
    ],
)
def test_wrong_stored_options_are_refused(text, message, tmp_path):
    path = write_csv(tmp_path / "a.csv", motion())
    options_path(path).write_text(text)
    with pytest.raises(DataError, match=rf"a.csv.toml: .*{message}"):
        read_log(path)
