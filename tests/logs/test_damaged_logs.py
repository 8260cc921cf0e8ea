"""Damaged logs of every format are read or refused with an error of delan, never with another."""

import gzip
import os
import struct
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io

from delan.errors import DataError, DelanError
from delan.joints import Joints, Recording
from delan.logs.doctor import check_up
from delan.logs.formats import open_log
from delan.logs.options import LogOptions
from delan.logs.reading import read_log
from delan.logs.segments import TimeFaults, require_sound
from delan.report.check_picture import draw_check
from tests.support.log_writers import WRITERS, motion

# Words and numbers that break a parser where others stood.
WORDS = (b"nan", b"inf", b"-1e400", b"text", b'"', b",,", b"\n", b"\0")
WORDS += (b"\xff" * 8, b"9" * 40, b"\x7f" * 8)


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
        noise = bytes(rng.integers(0, 256, size - at, dtype=np.uint8))
        made[at:size] = noise if rng.random() < 0.5 else b""
    elif kind == 4:
        for _ in range(int(rng.integers(1, 5))):
            at = rng.integers(len(made))
            word = WORDS[rng.integers(len(WORDS))]
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
    """Read damaged logs of every format and return the number of those that are still readable."""
    rng = np.random.default_rng(seed)
    contents = {}
    for form, write in WRITERS.items():
        data: dict = motion(12)
        if form in ("csv", "npz", "hdf5"):
            data["trajectory"] = np.repeat([1, 2], 6)
        contents[form] = write(folder / form.replace(" ", "_"), data).read_bytes()
    path = folder / "log"
    read = 0
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


def log_of(**columns: np.ndarray) -> Recording:
    """A log of two joints, with other columns where they are given."""
    made: dict[str, Any] = {**motion(120, dof=2), **columns}
    made["trajectory"] = np.zeros(len(made["t"]), dtype=int)
    return Recording(**made, joints=Joints.revolute(2))


def with_value(values: np.ndarray, row: int, value: float) -> np.ndarray:
    changed = values.copy()
    changed[row] = value
    return changed


T = motion(120)["t"]
Q = motion(120, dof=2)["q"]
ODD_LOGS = {
    "infinite time": {"t": with_value(T, 60, np.inf)},
    "infinite last time": {"t": with_value(T, -1, np.inf)},
    "time beyond all clocks": {"t": with_value(T, 60, 1e200)},
    "steps of nothing": {"t": T * 1e-300},
    "repeated times": {"t": np.repeat(T[::2], 2)},
    "times too far apart to add": {"t": np.where(np.arange(len(T)) % 2, 1.7e308, T)},
    "a step beyond all clocks": {"t": T + np.where(T > 0.5, 1e308, 0.0)},
    "positions whose squares are not finite": {"q": Q * 1e200},
    "a position beyond all units": {"q": with_value(Q, 5, 1.7e308)},
    "torques whose squares vanish": {"tau": Q * 1e-200},
}


@pytest.mark.parametrize("name", ODD_LOGS)
def test_a_log_of_odd_numbers_is_checked_and_refused_by_a_fit(name):
    recording = log_of(**ODD_LOGS[name])
    _, findings = check_up(recording)
    with np.errstate(all="ignore"):
        draw_check(recording, findings).savefig(BytesIO(), format="png")
    if name == "torques whose squares vanish":
        assert findings
        return
    assert any(finding.severity == "error" for finding in findings)
    with pytest.raises(DataError):
        require_sound(recording)


def test_a_step_to_a_missing_time_is_no_gap():
    faults = TimeFaults(with_value(T, 60, np.inf), np.zeros(len(T), dtype=int))
    assert np.flatnonzero(faults.missing).tolist() == [60]
    assert not faults.gap.any()
    assert not faults.backward.any()


def bomb_npz(path: Path) -> None:
    np.savez_compressed(path, t=np.zeros(10), q=np.zeros((1_300_000, 7)), tau=np.zeros((10, 7)))


def bomb_parquet(path: Path) -> None:
    column = pyarrow.repeat(0.0, 9_000_000)
    pyarrow.parquet.write_table(pyarrow.table({"t": column}), path)


def bomb_hdf5(path: Path) -> None:
    """A dataset of ten rows in a chunk of 73 MB."""
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "q",
            data=np.zeros((10, 7)),
            chunks=(1_300_000, 7),
            maxshape=(None, 7),
            compression="gzip",
        )


def bomb_mat(path: Path) -> None:
    scipy.io.savemat(path, {"q": np.zeros((1_300_000, 7))}, do_compression=True, appendmat=False)


def bomb_mcap(path: Path) -> None:
    """A chunk that claims a hundred megabytes in a few bytes."""
    chunk = struct.pack("<QQQI", 0, 1, 100_000_000, 0) + struct.pack("<I", 4) + b"zstd"
    path.write_bytes(b"\x89MCAP0\r\n" + struct.pack("<BQ", 6, len(chunk)) + chunk)


@pytest.mark.parametrize("write", [bomb_npz, bomb_parquet, bomb_hdf5, bomb_mat, bomb_mcap])
def test_a_small_file_that_promises_too_much_is_refused_before_it_is_read(write, tmp_path):
    path = tmp_path / "log.npz"
    write(path)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(DataError, match=r"claims \d+ bytes in a file of \d+; the file is damaged"):
        read_log(path)


def test_names_of_joints_are_not_read_without_an_end(tmp_path):
    data = motion(20)
    many: Any = data | {"joint_names": np.array(["a"] * 600)}
    with pytest.raises(DataError, match=r"holds 600 texts .* expected one for each joint"):
        read_log(WRITERS["npz"](tmp_path / "many", many))
    long: Any = data | {"joint_names": np.array(["a" * 2000, "b", "c"])}
    with pytest.raises(DataError, match="expected one for each joint"):
        read_log(WRITERS["npz"](tmp_path / "long", long))


def test_a_joint_named_by_control_characters_is_refused(tmp_path):
    data: Any = motion(20) | {"joint_names": np.array(["a\x1b[2J", "b", "c"])}
    with pytest.raises(DataError, match=r"expected at most 200 printable characters") as caught:
        read_log(WRITERS["npz"](tmp_path / "odd", data))
    assert str(caught.value).isprintable()


def test_a_device_is_refused_before_it_is_read():
    with pytest.raises(DataError, match="is a pipe or a device; save what it gives as a file"):
        read_log("/dev/zero")


def test_a_pipe_in_a_folder_of_logs_is_no_log(tmp_path):
    WRITERS["csv"](tmp_path / "arm.csv", motion(20))
    os.mkfifo(tmp_path / "pipe.csv")
    assert len(read_log(tmp_path).t) == 20


def shared_lists(levels: int, width: int) -> bytes:
    """The index of a torch file: lists that hold the list before them many times."""
    index = b"\x80\x02K\x01q\x00"
    for level in range(levels):
        index += b"]q" + bytes([level + 1]) + b"(" + (b"h" + bytes([level])) * width + b"e"
    return index + b"."


def test_a_torch_file_whose_lists_share_lists_is_refused(tmp_path):
    path = tmp_path / "log.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("log/data.pkl", shared_lists(levels=10, width=60))
    with pytest.raises(DataError, match="tensors or 100000 values"):
        read_log(path)


def test_short_rows_that_compress_well_are_refused_after_some_of_them(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"t,q0,tau0\n" + b"0,0,0\n" * 3_000_000))
    with pytest.raises(DataError, match=r"claims \d+ bytes in a file of \d+; the file is damaged"):
        list(open_log(path, LogOptions())[0].pieces(["t"], 1_000))
