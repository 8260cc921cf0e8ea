"""ROS 2 bags as drivers record them: topics, other joints beside the arm, and ambiguous content."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin

from delan.errors import DataError
from delan.joints import Recording
from delan.logs.options import LogOptions
from delan.logs.reading import read_log, stream_log
from tests.support.log_writers import NAMES, motion, write_bag, write_joint_messages, write_topics

DATA = motion(20)
GRIPPER = {"name": ["finger"], "position": np.ones(1), "velocity": np.ones(1), "effort": np.ones(1)}


def states(*left_out: str) -> list[dict[str, Any]]:
    """The motion of the arm as joint states, without some of their parts."""
    rows = zip(DATA["q"], DATA["qd"], DATA["tau"], strict=True)
    messages = []
    for q, qd, tau in rows:
        state = {"name": list(NAMES), "position": q, "velocity": qd, "effort": tau}
        for part in left_out:
            del state[part]
        messages.append(state)
    return messages


def same(recording: Recording, data: Mapping[str, np.ndarray] = DATA) -> None:
    for name in ("q", "qd", "tau"):
        np.testing.assert_array_equal(getattr(recording, name), data[name])
    np.testing.assert_allclose(recording.t - recording.t[0], data["t"], atol=1e-9)


def test_the_topic_of_the_joints_is_the_likely_one_or_the_one_mapped(tmp_path):
    likely = write_topics(
        tmp_path / "likely", {"/gripper/state": [GRIPPER] * 20, "/arm/joint_states": states()}
    )
    same(read_log(likely))
    assert read_log(likely, LogOptions(map={"q": "/gripper/state"})).joints.names == ("finger",)
    lone = write_topics(
        tmp_path / "lone", {"/wrench": states("position"), "/silent": [], "/arm": states()}
    )
    same(read_log(lone))
    two = write_topics(tmp_path / "two", {"/left": states(), "/right": states()})
    with pytest.raises(
        DataError,
        match=r"several topics may hold the joints: /left, /right; .*--map q=TO",
    ):
        read_log(two)
    same(read_log(two, LogOptions(map={"q": "/right"})))
    with pytest.raises(
        DataError,
        match=r"--map q=/up is not a topic of .*JointState.*; it has /left \(sensor_msgs/msg/Jo",
    ):
        read_log(two, LogOptions(map={"q": "/up"}))
    with pytest.raises(
        DataError,
        match=r"has no topic of .*JointState.*, only /joint_torques \(std_msgs/msg/Float64Mul",
    ):
        read_log(write_topics(tmp_path / "none", {"/joint_torques": list(DATA["tau"])}))


def test_torques_come_from_either_part_of_a_state_beside_the_states(tmp_path):
    for part in ("effort", "position"):
        beside = [{"name": list(NAMES[::-1]), part: tau[::-1].copy()} for tau in DATA["tau"]]
        topics = {"/joint_states": states("effort"), "/joint_torques": [*beside, GRIPPER]}
        path = write_topics(tmp_path / part, topics)
        same(read_log(path))


def test_two_topics_of_torques_are_asked_about_and_a_silent_one_is_refused(tmp_path):
    torques = {"/joint_torques": list(DATA["tau"]), "/measured_torques": list(-DATA["tau"])}
    path = write_topics(tmp_path / "two", {"/joint_states": states("effort"), **torques})
    with pytest.raises(
        DataError,
        match=r"several topics may hold tau: /joint_torques, /measured_torques; .*--map tau",
    ):
        read_log(path)
    np.testing.assert_array_equal(
        read_log(path, LogOptions(map={"tau": "/measured_torques"})).tau, -DATA["tau"]
    )
    silent = write_topics(
        tmp_path / "silent", {"/joint_states": states("effort"), "/joint_torques": []}
    )
    with pytest.raises(DataError, match=r"topic /joint_torques has no messages"):
        read_log(silent)


def test_joints_without_names_are_numbered(tmp_path):
    recording = read_log(write_topics(tmp_path / "a", {"/joint_states": states("name")}))
    same(recording)
    assert recording.joints.names == ("joint0", "joint1", "joint2")


@pytest.mark.parametrize("rows", [20, 7])
def test_messages_of_other_joints_in_the_same_topic_are_passed_over(rows, tmp_path):
    for name, messages in (("last", [*states(), GRIPPER]), ("first", [GRIPPER, *states()])):
        path = write_topics(tmp_path / name, {"/joint_states": messages})
        pieces = list(stream_log(path, rows=rows))
        np.testing.assert_array_equal(np.concatenate([piece.q for piece in pieces]), DATA["q"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: state | {"name": list(NAMES[:2])},
            r"2 joint names and 3 positions",
        ),
        (
            lambda state: state | {"name": [NAMES[0]] * 3},
            r"unique, got shoulder",
        ),
        (
            lambda state: state | {"position": np.zeros(0)},
            r"topic /joint_states holds no joint positions; expected a R",
        ),
    ],
)
def test_states_that_contradict_themselves(change, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_log(write_topics(tmp_path / "a", {"/joint_states": list(map(change, states()))}))


def test_messages_that_lack_numbers_or_joints(tmp_path):
    short = [*states(), states()[0] | {"effort": np.zeros(2)}]
    with pytest.raises(
        DataError, match=r"column effort: expected 3 numbers in every message, got 2"
    ):
        read_log(write_topics(tmp_path / "a", {"/joint_states": short}))
    lacking = [
        *states(),
        {"name": list(NAMES[:2]), **{part: np.zeros(2) for part in ("position", "effort")}},
    ]
    with pytest.raises(
        DataError, match=r"some messages lack joint wrist_1_joint; record all joints in one topic"
    ):
        read_log(write_topics(tmp_path / "b", {"/joint_states": lacking}))


def test_currents_mapped_to_the_torque_are_scaled_by_a_gain(tmp_path):
    topics = {"/joint_states": states("effort"), "/motor_currents": list(2 * DATA["tau"])}
    path = write_topics(tmp_path / "a", topics)
    same(read_log(path, LogOptions(map={"tau": "/motor_currents"}, gain=(0.5,))))
    same(read_log(path, LogOptions(gain=(0.5,))))


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


@pytest.mark.parametrize("kind", ["controller", "old_controller", "dynamic", "trajectory"])
def test_messages_of_controllers_are_logs(kind, tmp_path):
    path = write_joint_messages(tmp_path / "bag", DATA, kind)
    same(read_log(path))


@pytest.mark.parametrize("kind", ["controller", "old_controller"])
def test_what_a_controller_wanted_and_measured_gives_torques(kind, tmp_path):
    path = write_joint_messages(tmp_path / "bag", {**DATA, "tau": DATA["tau"][:, :0]}, kind)
    recording = read_log(path, LogOptions(kp=(10.0,), kd=(0.0,)))
    # The writer's wanted positions are a tenth of a radian ahead.
    np.testing.assert_allclose(recording.tau, 1.0, atol=1e-12)
    with pytest.raises(DataError, match="give --kp in N m/rad"):
        read_log(path)


def test_renamed_bags_in_a_folder_are_logs_of_their_own(tmp_path):
    folder = write_bag(tmp_path / "bag", DATA)
    next(folder.glob("*.mcap")).rename(folder / "first.mcap")
    other = write_bag(tmp_path / "other", DATA)
    next(other.glob("*.mcap")).rename(folder / "second.mcap")
    recording = read_log(folder)
    assert len(recording.t) == 2 * len(DATA["t"])
    assert set(recording.trajectory) == {0, 1}
