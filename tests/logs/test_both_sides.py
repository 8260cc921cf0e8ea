"""Logs of elastic joints: positions of links and of motors beside each other."""

from pathlib import Path

import numpy as np
import pytest

from delan.errors import DataError, ModelError, SettingsError
from delan.joints import Joints
from delan.logs.both_sides import at_links, link_side
from delan.logs.doctor import examine
from delan.logs.options import LogOptions
from delan.logs.preparation import prepare
from delan.logs.reading import log_parts, read_log
from delan.logs.recording_file import provenance_of, write_converted
from delan.models.dynamics import require_same_joints
from tests.support.elastic_arm import ElasticArm

NAMES = {"q": "link_pos_{}", "q_motor": "motor_pos_{}", "tau": "torque_{}"}


def written(path: Path, *, motors: int = 2, **extra: np.ndarray) -> dict[str, np.ndarray]:
    """Write a log of two joints; return its columns."""
    t = np.arange(200) / 100
    columns = {"time": t}
    for joint in range(2):
        columns[f"link_pos_{joint}"] = np.sin((2 + joint) * t)
        columns[f"torque_{joint}"] = np.cos((1 + joint) * t)
    for joint in range(motors):
        columns[f"motor_pos_{joint}"] = columns[f"link_pos_{joint}"] + 0.01 * np.cos(t)
    columns |= extra
    rows = np.stack(list(columns.values()), axis=1)
    np.savetxt(path, rows, delimiter=",", header=",".join(columns), comments="")
    return columns


def test_links_and_motors_are_coordinates_beside_each_other(tmp_path):
    columns = written(tmp_path / "log.csv")
    recording = read_log(tmp_path / "log.csv", LogOptions(map=NAMES))
    assert recording.joints.motor_of == (0, 1)
    assert recording.joints.links == Joints.revolute(2)
    np.testing.assert_allclose(recording.q[:, 1], columns["link_pos_1"])
    np.testing.assert_allclose(recording.q[:, 3], columns["motor_pos_1"])
    np.testing.assert_array_equal(recording.tau[:, :2], 0)
    np.testing.assert_allclose(recording.tau[:, 2], columns["torque_0"])


def test_a_log_without_positions_of_motors_stays_as_it_is(tmp_path):
    written(tmp_path / "log.csv")
    names = {name: pattern for name, pattern in NAMES.items() if name != "q_motor"}
    recording = read_log(tmp_path / "log.csv", LogOptions(map=names))
    assert recording.joints == Joints.revolute(2)


def test_velocities_of_one_side_alone_are_not_used(tmp_path):
    speed = np.ones(200)
    written(tmp_path / "log.csv", speed_0=speed, speed_1=speed)
    recording = read_log(tmp_path / "log.csv", LogOptions(map={**NAMES, "qd": "speed_{}"}))
    assert recording.qd is None


def test_degrees_signs_and_gears_hold_for_motors_too(tmp_path):
    columns = written(tmp_path / "log.csv")
    options = LogOptions(
        map=NAMES,
        degrees=True,
        flip={"q": (1,)},
        scale={"q_motor": (2.0,)},
        transmission=((4.0, 5.0),),
    )
    recording = read_log(tmp_path / "log.csv", options)
    radians = np.pi / 180
    np.testing.assert_allclose(recording.q[:, 1], -radians * columns["link_pos_1"])
    motor = -2 * radians / 5 * columns["motor_pos_1"]
    np.testing.assert_allclose(recording.q[:, 3], motor)
    np.testing.assert_allclose(recording.tau[:, 3], 5 * columns["torque_1"])


def test_a_missing_motor_is_named(tmp_path):
    written(tmp_path / "log.csv", motors=1)
    with pytest.raises(DataError, match=r"motor_pos_1: is missing.*--map q_motor"):
        read_log(tmp_path / "log.csv", LogOptions(map=NAMES))


def test_a_misspelt_quantity_is_refused():
    with pytest.raises(SettingsError, match="motor_q"):
        LogOptions(map={"motor_q": "motor_pos_{}"})


def test_a_rigid_log_is_refused_for_an_elastic_model(tmp_path):
    written(tmp_path / "log.csv")
    names = {name: pattern for name, pattern in NAMES.items() if name != "q_motor"}
    dataset = prepare(read_log(tmp_path / "log.csv", LogOptions(map=names)))
    with pytest.raises(ModelError, match=r"--map 'q_motor="):
        require_same_joints(Joints.revolute(2).with_motors(), dataset)


def test_links_alone_have_the_torque_that_is_given(tmp_path):
    written(tmp_path / "log.csv")
    recording = read_log(tmp_path / "log.csv", LogOptions(map=NAMES))
    torque = at_links(recording.tau, recording.joints)
    links = link_side(recording, torque)
    assert links.joints == Joints.revolute(2)
    np.testing.assert_array_equal(links.tau, recording.tau[:, 2:])
    np.testing.assert_array_equal(links.q, recording.q[:, :2])


@pytest.mark.parametrize("side", ["q", "q_motor"])
def test_a_torque_sensor_tells_the_other_side(tmp_path, side):
    columns = written(tmp_path / "log.csv")
    names = {"q": "link_pos_{}", "q_motor": "motor_pos_{}"}
    stiffness = np.array([300.0, 60.0])
    sensors = {}
    for joint in range(2):
        stretch = columns[f"motor_pos_{joint}"] - columns[f"link_pos_{joint}"]
        sensors[f"sensor_{joint}"] = stiffness[joint] * stretch
    written(tmp_path / "log.csv", **sensors)
    patterns = {side: names[side], "tau": "torque_{}", "tau_link": "sensor_{}"}
    if side == "q_motor":
        patterns["q"] = names["q_motor"]
    options = LogOptions(map=patterns, stiffness=(300.0, 60.0))
    recording = read_log(tmp_path / "log.csv", options)
    expected = read_log(tmp_path / "log.csv", LogOptions(map=NAMES))
    assert recording.joints == expected.joints
    np.testing.assert_allclose(recording.q, expected.q, atol=1e-12)


@pytest.mark.parametrize("form", ["npz", "csv"])
def test_a_converted_log_keeps_links_and_motors_apart(tmp_path, form):
    written(tmp_path / "log.csv")
    options = LogOptions(map=NAMES)
    recording = read_log(tmp_path / "log.csv", options)
    path = tmp_path / f"converted.{form}"
    parts = log_parts([tmp_path / "log.csv"], options)
    with path.open("wb") as file:
        write_converted(file, form, parts, provenance_of(recording, options, ["log.csv"]))
    converted = read_log(path)
    assert converted.joints == recording.joints
    np.testing.assert_allclose(converted.q, recording.q)


def test_the_check_does_not_take_a_link_for_a_joint_without_motor():
    recording = ElasticArm().motion(0, seconds=6.0).log()
    kinds = {finding.kind for finding in examine(recording) if finding.severity != "note"}
    assert not kinds & {"unactuated", "dead"}


def test_a_torque_sensor_needs_its_stiffness(tmp_path):
    sensor = np.ones(200)
    written(tmp_path / "log.csv", sensor_0=sensor, sensor_1=sensor)
    patterns = {"q": "link_pos_{}", "tau": "torque_{}", "tau_link": "sensor_{}"}
    with pytest.raises(DataError, match="--stiffness"):
        read_log(tmp_path / "log.csv", LogOptions(map=patterns))
    with pytest.raises(SettingsError, match="above zero"):
        LogOptions(stiffness=(300.0, 0.0))
