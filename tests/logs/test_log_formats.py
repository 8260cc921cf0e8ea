"""Formats of logs: each reads back equal, whole and in pieces, by a module of its own."""

import inspect
import lzma
import re
import tracemalloc
import zipfile
from decimal import Decimal
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io

from delan.errors import DataError, SettingsError
from delan.joints import Recording
from delan.logs import formats
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
def test_a_log_is_read_by_the_module_of_its_format_alone(form, tmp_path, monkeypatch):
    path = WRITERS[form](tmp_path / "a.log", motion())
    modules = []

    def recorded(name: str, package: str | None = None):
        module = import_module(name, package)
        if package is not None:
            modules.append(module)
        return module

    monkeypatch.setattr(formats, "import_module", recorded)
    read_log(path)
    assert len(modules) == 1
    # Nor does that module import another format.
    assert not re.findall(r"^from \.\w", inspect.getsource(modules[0]), re.MULTILINE)


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


def test_a_folder_or_several_files_are_several_trajectories(tmp_path):
    first = motion(40, seed=1)
    second = motion(60, seed=2)
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
    # A preparation resamples files of different rates.
    assert np.diff(read_log([tmp_path / "b.csv", slow]).t)[-1] == pytest.approx(0.02)
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
        mapped = {name: f"run2/{name}" for name in ("t", "q", "qd", "tau")}
        same(read_log(path, LogOptions(map=mapped)), motion(20, seed=2))


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
    def missing(name: str, package: str | None = None):
        if package is None:
            raise ImportError(name)
        return import_module(name, package)

    monkeypatch.setattr(formats, "import_module", missing)
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
        DataError, match=r"is not readable text after row 1\d\d\d \('utf-8' codec can't decode"
    ):
        list(stream_log(path, rows=100))


def test_arrays_that_do_not_hold_what_they_claim(tmp_path):
    def claiming(name: str, shape: tuple[int, ...]) -> Path:
        data = motion()
        path = tmp_path / "a.npz"
        with zipfile.ZipFile(path, "w") as archive:
            for each, values in data.items():
                with archive.open(f"{each}.npy", "w") as file:
                    header = {
                        "descr": "<f8",
                        "fortran_order": False,
                        "shape": shape if each == name else values.shape,
                    }
                    np.lib.format.write_array_header_1_0(file, header)
                    file.write(values[: 50 if each == name else None].tobytes())
        return path

    with pytest.raises(DataError, match=r"array q ends 240 bytes early"):
        read_log(claiming("q", (60, 3)))
    with pytest.raises(
        DataError,
        match=r"column tau: claims 240000\d+ bytes in a file of \d+; the file is damaged",
    ):
        read_log(claiming("tau", (10**9, 3)))


def test_files_that_cannot_be_opened(tmp_path, monkeypatch):
    packed = tmp_path / "a.csv.xz"
    packed.write_bytes(lzma.compress(b"t,q0,tau0"))
    with pytest.raises(DataError, match="is compressed by xz"):
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
    """Pieces without rows are skipped and pieces that do not match refused, for every format."""
    data = motion(dof=1)
    made = {"t": data["t"], "q0": data["q"][:, 0], "tau0": data["tau"][:, 0]}
    fields = {name: formats.Field() for name in made}

    def sheet_of(pieces: list[dict[str, np.ndarray]]) -> formats.Sheet:
        return formats.Sheet(
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
