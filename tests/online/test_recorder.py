"""Recordings on disk: whole up to the last chunk however the process ends, and never in the way of
the loop.
"""

import errno
import json
import multiprocessing
import os
import resource
import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delan.errors import DataError, SettingsError
from delan.joints import Joints
from delan.logs.formats import is_log
from delan.logs.recording_file import chunk_of, header_line, read_recording_file, read_rows
from delan.online import recorder as recorder_module
from delan.online.channels import RowLayout
from delan.online.recorder import Recorder, RecordingFormat, owned_folder

SPAWN = multiprocessing.get_context("spawn")
JOINTS = Joints(("lift", "turn"), ("prismatic", "continuous"))
LAYOUT = RowLayout.of(t=1, q=2, qd=2, tau=2, q_des=2, trajectory=1)
CONTENT = RecordingFormat(JOINTS, LAYOUT, 0.002)


def row(k: int) -> np.ndarray:
    joints = [(k, -k), (1, 2), (k / 3, np.sqrt(k)), (k + 0.5, 0)]  # q, q̇, τ, q_des
    return np.array([0.002 * k, *np.ravel(joints), k // 4])


def rows_of(numbers: Any) -> np.ndarray:
    return np.stack([row(k) for k in numbers])


def write(path: Path, counts: tuple[int, ...] = (5, 3, 4)) -> Path:
    """A file of so many rows a chunk."""
    content, at = header_line(JOINTS, LAYOUT.sizes, 0.002, {}), 0
    for count in counts:
        content += chunk_of(rows_of(range(at, at + count)).tobytes(), count)
        at += count
    path.write_bytes(content)
    return path


def table(path: Path) -> np.ndarray:
    return np.concatenate(list(read_rows(path).columns.values()), axis=1)


def test_what_was_appended_comes_back_bit_for_bit(tmp_path):
    path = tmp_path / "a.run"
    content = RecordingFormat(JOINTS, LAYOUT, 0.002, {"robot": "crane"})
    with Recorder(path, content) as recorder:
        for k in range(3000):
            recorder.append(row(k))
    assert (recorder.written, recorder.dropped, recorder.problem) == (3000, 0, None)
    read = read_rows(path)
    assert (read.joints, read.dt, read.damaged, read.incomplete, read.problem) == (
        JOINTS,
        0.002,
        0,
        0,
        None,
    )
    assert read.header["provenance"] == {"robot": "crane"}
    np.testing.assert_array_equal(table(path), rows_of(range(3000)))
    np.testing.assert_array_equal(read.columns["q_des"][:, 0], np.arange(3000) + 0.5)


def test_it_is_a_recording_like_any_other(tmp_path):
    recording = read_recording_file(write(tmp_path / "a.run"))
    assert recording.joints == JOINTS
    assert recording.source == str(tmp_path / "a.run")
    np.testing.assert_array_equal(recording.t, 0.002 * np.arange(12))
    np.testing.assert_array_equal(recording.q[:, 1], -np.arange(12.0))
    np.testing.assert_array_equal(recording.trajectory, np.arange(12) // 4)
    assert recording.qd is not None
    assert recording.qdd is None


def test_a_loop_without_trajectories_makes_one(tmp_path):
    layout = RowLayout.of(t=1, q=1, tau=1)
    with Recorder(tmp_path / "a.run", RecordingFormat(Joints.revolute(1), layout, 0.1)) as recorder:
        recorder.append([0.0, 1.0, 2.0])
    recording = read_recording_file(tmp_path / "a.run")
    np.testing.assert_array_equal(recording.trajectory, [0])
    assert recording.tau.shape == (1, 1)


def test_rows_are_on_disk_while_the_loop_runs(tmp_path):
    with Recorder(tmp_path / "a.run", CONTENT, period=0.01) as recorder:
        for k in range(10):
            recorder.append(row(k))
        end = time.monotonic() + 60
        while recorder.written < 10:
            assert time.monotonic() < end
            time.sleep(0.001)
        np.testing.assert_array_equal(table(tmp_path / "a.run"), rows_of(range(10)))


def wait_until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.001)


def record_for_ever(path: str) -> None:
    recorder = Recorder(path, CONTENT, period=0.02)
    for k in range(10**9):
        recorder.append(row(k))
        time.sleep(1e-4)


def test_a_killed_process_leaves_all_but_the_last_moment(tmp_path):
    path = tmp_path / "a.run"
    process = SPAWN.Process(target=record_for_ever, args=(str(path),), daemon=True)
    process.start()
    end = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < 30_000:
        assert time.monotonic() < end
        time.sleep(0.001)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    read = table(path)
    assert len(read) > 200
    np.testing.assert_array_equal(read, rows_of(range(len(read))))


def test_cut_anywhere_in_the_last_chunk_the_others_remain(tmp_path):
    content = write(tmp_path / "a.run").read_bytes()
    start = len(write(tmp_path / "b.run", (5, 3)).read_bytes())
    size = len(content) - start
    for rest in range(size):
        (tmp_path / "b.run").write_bytes(content[: start + rest])
        read = read_rows(tmp_path / "b.run")
        assert (len(read.columns["t"]), read.incomplete, read.damaged) == (8, rest, 0)
    np.testing.assert_array_equal(table(tmp_path / "b.run"), rows_of(range(8)))
    with pytest.warns(
        RuntimeWarning, match=rf"b\.run: the last {size - 1} bytes are an incomplete chunk"
    ):
        assert len(read_recording_file(tmp_path / "b.run").t) == 8


def test_a_damaged_byte_costs_its_chunk_alone(tmp_path):
    path = write(tmp_path / "a.run")
    content = path.read_bytes()
    start = len(write(path, (5,)).read_bytes())
    end = len(write(path, (5, 3)).read_bytes())
    for at in range(start, end):
        path.write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
        np.testing.assert_array_equal(table(path), rows_of([*range(5), *range(8, 12)]))
        assert read_rows(path).damaged == end - start
    with pytest.warns(
        RuntimeWarning,
        match=rf"{end - start} bytes between whole chunks are damaged",
    ):
        assert len(read_recording_file(path).t) == 9


@given(data=st.data())
@settings(max_examples=150)
@pytest.mark.usefixtures("as_shipped")
def test_damaged_files_give_what_is_sound_or_are_refused(data, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("damaged") / "a.run")
    content = bytearray(path.read_bytes())
    header = content.index(b"\n")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    content = content[: data.draw(st.integers(0, len(content)))]
    path.write_bytes(content)
    whole = bytes(content[: header + 1]) == header_line(JOINTS, LAYOUT.sizes, 0.002, {})
    try:
        with warnings.catch_warnings(action="ignore"):
            recording = read_recording_file(path)
    except DataError:
        return
    if whole:
        good = {tuple(r) for r in rows_of(range(12)).tolist()}
        assert {tuple(r) for r in table(path).tolist()} <= good
    assert len(recording.t) <= 12


def header(**changes: Any) -> bytes:
    made = {**json.loads(header_line(JOINTS, LAYOUT.sizes, 0.002, {})), **changes}
    return json.dumps(made).encode() + b"\n" + chunk_of(rows_of([0]).tobytes(), 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"",
            "is not a delan-recording file: .* give a file that a Recorder wrote",
        ),
        (b"t,q0,tau0\n0,1,2\n", "is not a delan-recording file"),
        (b"\x80\x04\x95" * 99 + b"\n", "is not a delan-recording file"),
        (b"[" * 100_000 + b"\n", "is not a delan-recording file"),
        (b'{"format": "delan-model"}\n', "is not a delan-recording file"),
        (header()[:-7].split(b"\n")[0], "is not a delan-recording file"),
        (header(format_version=2), "its format version is 2, this delan reads 1; update delan"),
        (
            header(joints={"names": ["a"]}),
            r"its header is damaged \(KeyError: 'kinds'\)",
        ),
        (
            header(joints={"names": ["a"], "kinds": ["ball"]}),
            r"its header is damaged \(SettingsError: joint a is of",
        ),
        (header(columns=[1, 2]), r"its header is damaged \(AttributeError"),
        (
            header(columns={"t": 0}),
            r"its header is damaged \(ValueError: a column without numbers\)",
        ),
        (header(dt="soon"), r"its header is damaged \(ValueError"),
        (header(columns={"t": 1, "q": 2}), "column tau: is missing; the rows hold t, q"),
        (
            header(columns={"t": 1, "q": 2, "tau": 3}),
            "column tau: expected 2 numbers per row, got 3",
        ),
        (
            header()[:-1],
            "holds no whole chunk of rows in the 95 bytes",
        ),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_what_is_no_recording_is_refused(content, message, tmp_path):
    (tmp_path / "a.run").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_recording_file(tmp_path / "a.run")


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(DataError, match="no such file; check the path"):
        read_recording_file(tmp_path / "a.run")
    with pytest.raises(
        DataError, match="cannot be read: Is a directory; give a recording that delan wrote"
    ):
        read_recording_file(tmp_path)


def test_labels_are_whole_numbers(tmp_path):
    rows = rows_of(range(3))
    for label in (0.5, np.nan, np.inf):
        rows[1, -1] = label
        content = header_line(JOINTS, LAYOUT.sizes, 0.002, {}) + chunk_of(rows.tobytes(), 3)
        (tmp_path / "a.run").write_bytes(content)
        with pytest.raises(
            DataError, match=f"column trajectory, row 1: expected whole-number labels, got {label}"
        ):
            read_recording_file(tmp_path / "a.run")


def test_a_file_begins_as_it_says(tmp_path):
    assert is_log(write(tmp_path / "a.run"))


def test_a_recording_is_not_overwritten_unless_told(tmp_path):
    path = write(tmp_path / "a.run")
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"a\.run: exists already.*overwrite=True"):
        Recorder(path, CONTENT)
    assert path.read_bytes() == before
    with Recorder(path, CONTENT, overwrite=True) as recorder:
        recorder.append(row(7))
    np.testing.assert_array_equal(table(path), rows_of([7]))


def test_what_cannot_be_recorded_is_refused_before_the_loop(tmp_path):
    path = tmp_path / "a.run"
    with pytest.raises(DataError, match="cannot be written: No such file or directory"):
        Recorder(tmp_path / "none" / "a.run", CONTENT)
    with pytest.raises(DataError, match="column tau: is missing; the rows hold t, q"):
        Recorder(path, RecordingFormat(JOINTS, RowLayout.of(t=1, q=2), 0.002))
    with pytest.raises(DataError, match="column q: expected 2 numbers per row, got 3"):
        Recorder(path, RecordingFormat(JOINTS, RowLayout.of(t=1, q=3, tau=2), 0.002))
    with pytest.raises(
        SettingsError, match=r"dt and period must be positive numbers of seconds, got 0\.0 and 0\.5"
    ):
        Recorder(path, RecordingFormat(JOINTS, LAYOUT, 0.0))
    assert not path.exists()
    with (
        Recorder(path, CONTENT) as recorder,
        pytest.raises(SettingsError, match="a row of 10 numbers"),
    ):
        recorder.append([1.0])


def test_a_recording_belongs_to_one_recorder(tmp_path):
    path = tmp_path / "a.run"
    with Recorder(path, CONTENT, period=0.01) as first:
        for k in range(10):
            first.append(row(k))
        with pytest.raises(DataError, match=r"a\.run: another run is recording here"):
            Recorder(path, CONTENT, overwrite=True)
        first.append(row(10))
    np.testing.assert_array_equal(table(path), rows_of(range(11)))
    with Recorder(path, CONTENT, overwrite=True) as second:
        second.append(row(3))
    np.testing.assert_array_equal(table(path), rows_of([3]))


def test_a_folder_belongs_to_one_run(tmp_path):
    with (
        owned_folder(tmp_path),
        pytest.raises(DataError, match="another run is recording here; wait until"),
        owned_folder(tmp_path),
    ):
        raise AssertionError
    with owned_folder(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_recording_without_rows_leaves_no_file(tmp_path):
    Recorder(tmp_path / "a.run", CONTENT).close()
    assert list(tmp_path.iterdir()) == []


def test_a_recording_that_is_deleted_is_noticed_and_said_at_once(tmp_path):
    path = tmp_path / "folder" / "a.run"
    path.parent.mkdir()
    heard: list[str] = []
    with Recorder(path, CONTENT, period=0.005, warn=heard.append) as recorder:
        recorder.append(row(0))
        wait_until(lambda: recorder.written)
        path.unlink()
        path.parent.rmdir()
        given = 1
        while not heard:
            recorder.append(row(given))
            given += 1
            assert given < 60_000
            time.sleep(0.001)
        assert heard == [recorder.problem]
    assert "nothing is kept: the file or its folder was deleted" in heard[0]
    assert (recorder.written, recorder.dropped) == (0, given)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_a_disk_that_is_full_from_the_start_is_said():
    with pytest.raises(DataError, match="/dev/full: cannot be written: No space left on device"):
        Recorder("/dev/full", CONTENT, overwrite=True)


def record_to_the_brim(path: str, pipe: Any) -> None:
    """Record to a disk on which a file finds room for 4000 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
    heard: list[str] = []
    with Recorder(path, CONTENT, period=0.005, warn=heard.append) as recorder:
        for k in range(500):
            recorder.append(row(k))
            time.sleep(1e-4)
    pipe.send((recorder.written, recorder.dropped, recorder.problem, heard))


def test_a_disk_that_fills_up_stops_the_recording_and_not_the_loop(tmp_path):
    path = tmp_path / "a.run"
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=record_to_the_brim, args=(str(path), there))
    process.start()
    written, dropped, problem, heard = here.recv()
    process.join()
    assert process.exitcode == 0
    assert written + dropped == 500
    assert dropped > 0
    assert f"stopped after {written} rows: File too large" in problem
    assert f"{0.002 * written:.1f} s are kept" in problem
    assert heard == [problem]
    assert path.exists() == (written > 0)
    if written:
        np.testing.assert_array_equal(table(path), rows_of(range(written)))
        assert read_rows(path).problem is None


def test_a_disk_that_does_not_answer_holds_up_nobody(tmp_path, monkeypatch):
    answer = threading.Event()
    monkeypatch.setattr(recorder_module, "WAITING_BYTES", 8 * LAYOUT.width * 20)
    monkeypatch.setattr(os, "fsync", lambda _: answer.wait(60))
    recorder = Recorder(tmp_path / "a.run", CONTENT, period=0.001)
    recorder.append(row(0))
    end = time.monotonic() + 60
    while len(recorder._waiting):
        assert time.monotonic() < end
        time.sleep(0.001)
    for k in range(1, 31):
        recorder.append(row(k))
    assert recorder.dropped == 10
    recorder.close(patience=0.01)
    assert recorder.problem is not None
    assert "the last 20 rows are not on it" in recorder.problem
    answer.set()
    recorder.close()
    assert recorder.written + recorder.dropped == 31
    recorder.append(row(31))
    assert recorder.written + recorder.dropped == 32


def test_a_disk_that_says_at_the_end_that_it_is_full_is_heard(tmp_path, monkeypatch):
    recorder, close = Recorder(tmp_path / "a.run", CONTENT), os.close

    def full(file: int) -> None:
        close(file)
        if file == recorder._file:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    recorder.append(row(0))
    monkeypatch.setattr(os, "close", full)
    recorder.close()
    assert "after 1 rows: Disk quota exceeded" in str(recorder.problem)
