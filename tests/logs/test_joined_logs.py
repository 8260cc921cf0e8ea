"""Logs of several files, of arrays with other axes, packed logs, JSON and torch files."""

import gzip
import io
import json
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.io
import zstandard

from delan.errors import DataError
from delan.logs.formats import Field, Sheet
from delan.logs.join import Member, joined_pieces
from delan.logs.options import LogOptions
from delan.logs.reading import read_log, stream_log
from delan.logs.time_stamps import TimeStamps
from tests.logs.test_log_formats import same, table
from tests.support.log_writers import (
    PACKED_WRITERS,
    motion,
    write_csv,
    write_hdf5,
    write_npz,
    write_torch,
)


def flat(path, values):
    """One number a line."""
    np.savetxt(path, np.ravel(values), fmt="%.17g")
    return path


def flat_files(folder, data, names=("time", "positions", "velocities", "torques")):
    folder.mkdir(exist_ok=True)
    for name, quantity in zip(names, ("t", "q", "qd", "tau"), strict=True):
        flat(folder / f"{name}.txt", data[quantity])
    return folder / f"{names[0]}.txt"


BESIDE = ("positions.txt", "velocities.txt", "torques.txt")


def test_files_with_one_number_a_line_are_recognised_by_their_names(tmp_path):
    data = motion(dof=7)
    log = flat_files(tmp_path, data)
    options = LogOptions(join=BESIDE, columns=7)
    same(read_log(log, options), data)
    pieces = list(stream_log(log, options, rows=13))
    assert max(len(piece.t) for piece in pieces) == 13
    np.testing.assert_array_equal(np.concatenate([piece.tau for piece in pieces]), data["tau"])


def test_files_of_several_runs_are_found_beside_their_logs(tmp_path):
    first = motion(dof=3)
    second = motion(dof=3, seed=1)
    logs = [flat_files(tmp_path / "a", first), flat_files(tmp_path / "b", second)]
    recording = read_log(logs, LogOptions(join=BESIDE, columns=3))
    np.testing.assert_array_equal(recording.q, np.concatenate([first["q"], second["q"]]))
    assert set(recording.trajectory.tolist()) == {0, 1}


def test_a_part_of_the_name_stands_for_the_run(tmp_path):
    runs = []
    for seed, run in enumerate(("fast_1", "slow_2")):
        data = motion(seed=seed)
        runs.append(data)
        for name, quantity in (("position", "q"), ("current", "tau")):
            columns = {f"m{joint}": data[quantity][:, joint] for joint in range(3)}
            table(tmp_path / f"{run}_{name}.csv", columns)
    options = LogOptions(
        join=("{}_current.csv",),
        map={"q": "m{}", "current": "current.m{}"},
        gain=(2.0,),
        rate=100.0,
    )
    recording = read_log(sorted(tmp_path.glob("*_position.csv")), options)
    np.testing.assert_array_equal(recording.q, np.concatenate([run["q"] for run in runs]))
    np.testing.assert_array_equal(recording.tau, 2 * np.concatenate([run["tau"] for run in runs]))
    assert recording.torque_source == "currents"


@pytest.mark.parametrize("start", [0, 1_700_000_000_000_000_000])
def test_files_with_times_of_their_own_are_joined_by_time(start, tmp_path):
    slow = motion(samples=120)
    t = np.linspace(0.103, 0.9, 700)
    stamps = np.round(slow["t"] * 1e9).astype(np.int64) + start
    write_npz(tmp_path / "joints.npz", {"t": stamps, "q": slow["q"]})
    torque = np.stack([np.sin(t), np.cos(t), t], axis=1)
    fast = {"time": np.round(t * 1e9).astype(np.int64) + start, "tau": torque}
    write_npz(tmp_path / "torque.npz", fast)
    options = LogOptions(join=("torque.npz",))
    recording = read_log(tmp_path / "joints.npz", options)
    inside = (slow["t"] >= 0.103) & (slow["t"] <= 0.9)
    np.testing.assert_array_equal(recording.q, slow["q"][inside])
    expected = [np.interp(slow["t"][inside], t, column) for column in torque.T]
    np.testing.assert_allclose(recording.tau, np.transpose(expected), atol=1e-8)
    pieces = list(stream_log(tmp_path / "joints.npz", options, rows=11))
    np.testing.assert_array_equal(np.concatenate([p.tau for p in pieces]), recording.tau)


def member(name, pieces, names):
    """A file of a joined log whose pieces are made when they are read."""
    columns = {column: Field() for column in names.values()}
    sheet = Sheet(source=name, kind="arrays", form="", fields=columns, pieces=pieces)
    return Member(name, sheet, TimeStamps(name, "t", 1.0), names)


def test_a_file_joined_by_time_is_not_held_in_memory():
    """Few rows of a log may span all of another file, or its whole time by one wrong stamp."""
    rows = 20_000
    count = 200

    def slow(wanted, _):
        times = np.linspace(0.5, rows * count - 1.5, 7)
        yield dict.fromkeys(wanted, times)

    def fast(wanted, _):
        for first in range(0, rows * count, rows):
            times = np.arange(first, first + rows, dtype=float)
            values = {"t": times, "torque": 2.0 * times}
            yield {name: values[name] for name in wanted}

    members = [member("slow", slow, {"t": "t"}), member("fast", fast, {"tau": "torque"})]
    tracemalloc.start()
    (piece,) = joined_pieces(members, ["t", "tau"], rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(piece["tau"], 2 * piece["t"], rtol=1e-12)
    assert len(piece["t"]) == 7
    assert peak < 16 * rows * 8  # all rows are 400 * rows * 8


def test_a_file_without_rows_is_joined_to_nothing(tmp_path):
    data = motion()
    write_npz(tmp_path / "joints.npz", {"t": data["t"], "q": data["q"]})
    write_npz(tmp_path / "torque.npz", {"t": np.empty(0), "tau": np.empty((0, 3))})
    with pytest.raises(DataError, match="holds no rows"):
        read_log(tmp_path / "joints.npz", LogOptions(join=("torque.npz",)))


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    data = motion()
    write_npz(tmp_path / "joints.npz", {"t": data["t"], "q": data["q"]})
    log = tmp_path / "joints.npz"
    write_npz(tmp_path / "later.npz", {"t": data["t"] + 100, "tau": data["tau"]})
    with pytest.raises(DataError, match="the clocks differ: give --join-by row"):
        read_log(log, LogOptions(join=("later.npz",)))
    same(
        read_log(log, LogOptions(join=("later.npz",), join_by="row", map={"qd": "q"})),
        {**data, "qd": data["q"]},
    )
    write_npz(tmp_path / "short.npz", {"tau": data["tau"][:-1]})
    with pytest.raises(DataError, match=r"short.npz: has fewer rows than .*joints.npz"):
        read_log(log, LogOptions(join=("short.npz",)))
    write_npz(tmp_path / "long.npz", {"tau": np.repeat(data["tau"], 2, axis=0)})
    with pytest.raises(DataError, match=r"long.npz: has 2 times the rows of"):
        read_log(log, LogOptions(join=("long.npz",)))
    with pytest.raises(DataError, match=r"--join none.npz: there is no such file"):
        read_log(log, LogOptions(join=("none.npz",)))
    flat(tmp_path / "torques.txt", data["tau"].ravel()[:-1])
    with pytest.raises(DataError, match="ends with 2 numbers of a row of 3; give the right --col"):
        read_log(log, LogOptions(join=("torques.txt",), columns=3))


@pytest.mark.parametrize("write", [write_npz, write_hdf5, write_torch])
def test_arrays_are_turned_by_their_lengths(write, tmp_path):
    data = motion(dof=7)
    lying = {name: np.ascontiguousarray(values.T) for name, values in data.items()}
    same(read_log(write(tmp_path / "a", lying)), data)
    upright_last = {"q": data["q"], "tau": lying["tau"], "t": data["t"], "qd": lying["qd"]}
    same(read_log(write(tmp_path / "b", upright_last)), data)


def matlab_object(name: bytes = b"note") -> bytes:
    """A variable of class 17, as MATLAB writes a string or a table: no shape follows its flags."""
    flags = struct.pack("<IIII", 6, 8, 17, 0)
    parts = [flags]
    for text in (name, b"MCOS", b"string"):
        parts.append(struct.pack("<II", 1, len(text)) + text.ljust(-(-len(text) // 8) * 8, b"\0"))
    parts.append(struct.pack("<IIII", 14, 8, 6, 8))
    body = b"".join(parts)
    return struct.pack("<II", 14, len(body)) + body


def test_structs_of_structs_with_lying_arrays_in_degrees(tmp_path):
    data = motion(dof=6, samples=80)
    degrees = np.rad2deg(data["q"]).T
    lost = np.full((3, 80), 7.0)
    record = {
        "time_s": data["t"],
        "act_pos_link_deg": np.concatenate([degrees[:3], lost]),
        "act_pos_mot_deg": np.concatenate([lost, degrees[3:]]),
        "act_vel_deg": np.rad2deg(data["qd"]).T,
        "act_trq": data["tau"].T,
    }
    path = tmp_path / "log.mat"
    scipy.io.savemat(path, {"run": {"rec": record, "note": "by hand"}})
    content = path.read_bytes()
    path.write_bytes(content[:128] + matlab_object() + content[128:])
    options = LogOptions(
        map={
            "t": "run.rec.time_s",
            "q": "run.rec.act_pos_link_deg[0-2],run.rec.act_pos_mot_deg[3-5]",
            "qd": "run.rec.act_vel_deg",
            "tau": "run/rec/act_trq",
        }
    )
    same(read_log(path, options), data, close=1e-12)


def test_two_arrays_of_some_joints_each_are_one_quantity(tmp_path):
    data = motion(dof=5)
    arm = {"t": data["t"], "qd": data["qd"], "tau": data["tau"]}
    parts = {"left": data["q"][:, :2], "right": data["q"][:, 2:]}
    path = write_npz(tmp_path / "a.npz", arm | parts)
    same(read_log(path, LogOptions(map={"q": "left,right"})), data)
    with pytest.raises(DataError, match=r"--map q=left\[2\] matches no column"):
        read_log(path, LogOptions(map={"q": "left[0-2]"}))


def test_times_around_groups_belong_to_each_of_them(tmp_path):
    data = motion()
    grouped = {"t": data["t"]}
    for run in ("a", "b"):
        grouped |= {f"{run}/{name}": data[name] for name in ("q", "qd", "tau")}
    recording = read_log(write_npz(tmp_path / "a.npz", grouped))
    np.testing.assert_array_equal(recording.t, np.tile(data["t"], 2))


@pytest.mark.parametrize("form", PACKED_WRITERS)
def test_packed_logs_are_read_through(form, tmp_path):
    data = motion()
    same(read_log(PACKED_WRITERS[form](tmp_path / "a.log", data)), data)


def test_an_archive_is_a_folder_of_logs(tmp_path):
    with zipfile.ZipFile(tmp_path / "runs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for seed in range(3):
            text = write_csv(tmp_path / "a.csv", motion(seed=seed)).read_text()
            archive.writestr(f"runs/{seed}.csv", text)
    recording = read_log(tmp_path / "runs.zip")
    assert set(recording.trajectory.tolist()) == {0, 1, 2}
    np.testing.assert_array_equal(recording.q[120:], motion(seed=2)["q"])


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_what_unpacks_to_more_than_a_log_has_is_refused(pack, tmp_path):
    bomb = tmp_path / "a.csv.packed"
    comments = (b"#".ljust(10_000) + b"\n") * 10_000
    bomb.write_bytes(pack(b"t,q0,tau0\n0,0,0\n" + comments))
    with pytest.raises(DataError, match=r"claims \d+ bytes in a file of \d+"):
        read_log(bomb)
    (tmp_path / "twice.gz").write_bytes(gzip.compress(gzip.compress(b"t,q0,tau0\n0,0,0\n")))
    with pytest.raises(DataError, match="is packed twice"):
        read_log(tmp_path / "twice.gz")
    cut = gzip.compress(write_csv(tmp_path / "b.csv", motion(3000)).read_bytes())
    (tmp_path / "cut.gz").write_bytes(cut[: len(cut) // 2])
    with pytest.raises(DataError, match=r"cut.gz: is no readable packed file \(EOFError"):
        read_log(tmp_path / "cut.gz")


def test_json_columns_and_records_with_gaps(tmp_path):
    data = motion()
    lists = {name: values.tolist() for name, values in data.items()}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"run": {"robot": "arm", "log": lists}}))
    same(read_log(path), data)
    records = [
        {"t": t, "state": {"q": q.tolist()}, "tau": tau.tolist(), "note": "x", "on": True}
        for t, q, tau in zip(data["t"], data["q"], data["tau"], strict=True)
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    np.testing.assert_array_equal(read_log(path).q, data["q"])
    del records[7]["tau"]
    for text in ("\n".join(map(json.dumps, records)), json.dumps(records)):
        path.write_text(text)
        with pytest.raises(DataError, match="column tau, row 7: is missing in this record"):
            read_log(path)
        assert np.isnan(read_log(path, sound=False).tau[7]).all()


def test_json_beside_other_logs_is_no_log(tmp_path):
    write_csv(tmp_path / "a.csv", motion())
    (tmp_path / "settings.json").write_text('{"speed": 1}')
    assert len(read_log(tmp_path).t) == 60


class Evil:
    def __reduce__(self):
        return print, ("code was run",)


def test_a_torch_file_runs_no_code(tmp_path, capsys):
    path = tmp_path / "evil.pt"
    with zipfile.ZipFile(path, "w") as archive:
        index = io.BytesIO()
        pickle.Pickler(index, protocol=2).dump({"q": Evil()})
        archive.writestr("evil/data.pkl", index.getvalue())
    with pytest.raises(DataError, match="holds no tensors"):
        read_log(path)
    assert "code" not in capsys.readouterr().out


def test_columns_of_a_file_without_a_header_are_named_by_it(tmp_path):
    data = motion()
    np.savetxt(tmp_path / "a.txt", np.column_stack([data["t"], data["q"]]))
    np.savetxt(tmp_path / "b.txt", np.column_stack([data["tau"], data["qd"]]))
    options = LogOptions(
        join=("b.txt",),
        map={"t": "a.column1", "q": "a[1-3]", "tau": "b.column{1-3}", "qd": "b[3-5]"},
    )
    same(read_log(tmp_path / "a.txt", options), data)
