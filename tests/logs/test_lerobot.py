"""LeRobot data sets: shards that follow each other, episodes as trajectories, actions as goals."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from delan.errors import DataError
from delan.logs.options import LogOptions
from delan.logs.reading import read_log
from tests.support.log_writers import motion

NAMES = ["shoulder.pos", "elbow.pos", "wrist.pos"]


def write_data_set(folder, runs, **features):
    (folder / "meta").mkdir()
    described = {"observation.state": {"dtype": "float32", "shape": [3], "names": NAMES}}
    info = {"codebase_version": "v3.0", "fps": 100, "features": described}
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    for number, run in enumerate(runs):
        place = folder / "data" / "chunk-000" / f"file-{number:03d}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        count = len(run["t"])
        columns = {
            "timestamp": run["t"].astype(np.float32),
            "episode_index": np.full(count, number),
            "observation.state": list(run["q"]),
        }
        for feature, quantity in features.items():
            columns[feature.replace("_", ".", 1)] = list(run[quantity])
        pyarrow.parquet.write_table(pyarrow.table(columns), place)
    return folder


def test_a_data_set_is_one_log_of_episodes(tmp_path):
    runs = [motion(seed=seed) for seed in range(3)]
    recording = read_log(write_data_set(tmp_path, runs, observation_effort="tau"))
    np.testing.assert_array_equal(recording.q, np.concatenate([run["q"] for run in runs]))
    np.testing.assert_array_equal(recording.tau, np.concatenate([run["tau"] for run in runs]))
    assert set(recording.trajectory.tolist()) == {0, 1, 2}
    assert recording.joints.names == tuple(NAMES)


def test_actions_are_goals_of_drives(tmp_path):
    run = motion()
    folder = write_data_set(tmp_path, [run], action="qd")
    with pytest.raises(DataError, match=r"holds commands \(q_des\) and no torques"):
        read_log(folder)
    recording = read_log(folder, LogOptions(kp=(2.0,), kd=(0.0,)))
    np.testing.assert_allclose(recording.tau, 2 * (run["qd"] - run["q"]), atol=1e-12)
    assert recording.torque_source == "commands"


def test_a_data_set_without_shards_is_refused(tmp_path):
    with pytest.raises(DataError, match="has no Parquet files in data/"):
        read_log(write_data_set(tmp_path, []))


def test_a_feature_without_a_name_is_no_description_of_joints(tmp_path):
    folder = write_data_set(tmp_path, [motion()])
    (folder / "meta" / "info.json").write_text(json.dumps({"features": {"": {"names": ["a"]}}}))
    columns = pyarrow.table({"timestamp": [0.0, 0.1], "angle": [0.0, 0.1]})
    pyarrow.parquet.write_table(columns, folder / "data" / "chunk-000" / "file-000.parquet")
    with pytest.raises(DataError, match="has no array 'tau', only t, angle"):
        read_log(folder)
