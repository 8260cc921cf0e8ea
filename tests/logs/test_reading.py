"""Reading of logs: valid data is returned unchanged, invalid data refused with column and row."""

import csv
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delan.errors import DataError, DelanError
from delan.joints import Dataset, Joints, Recording
from delan.logs.preparation import prepare
from delan.logs.reading import read_log
from tests.support.members import pendulum


def arrays(samples: int = 12, dof: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    names = ("q", "qd", "qdd", "tau", "inertial", "coriolis", "gravity")
    made = {name: rng.normal(size=(samples, dof)) for name in names}
    return {
        "t": np.tile(np.arange(samples // 2) * 0.01, 2),
        "trajectory": np.repeat([4, 7], samples // 2),
        **made,
    }


def write_npz(path: Path, **changes) -> Path:
    np.savez(
        path,
        **{name: value for name, value in {**arrays(), **changes}.items() if value is not None},
    )
    return path


def write_csv(path: Path, edit=lambda header, rows: None) -> Path:
    made = arrays()
    header = []
    columns = []
    for name, values in made.items():
        if values.ndim == 1:
            header.append(name)
            columns.append(values)
        else:
            header += [f"{name}{i}" for i in range(values.shape[1])]
            columns += list(values.T)
    rows = [[repr(float(column[i])) for column in columns] for i in range(len(made["t"]))]
    edit(header, rows)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_both_forms_say_the_same(tmp_path):
    npz = read_log(write_npz(tmp_path / "a.npz"))
    text = read_log(write_csv(tmp_path / "a.csv"))
    for name in ("t", "q", "qd", "qdd", "tau", "trajectory"):
        np.testing.assert_array_equal(getattr(npz, name), getattr(text, name))
        np.testing.assert_array_equal(getattr(npz, name), arrays()[name])
    assert set(npz.truth) == set(text.truth) == {"inertial", "coriolis", "gravity"}
    assert npz.joints == text.joints == Joints.revolute(2)


def test_names_and_kinds_of_joints_are_kept(tmp_path):
    path = write_npz(
        tmp_path / "a.npz",
        joint_names=np.array(["lift", "turn"]),
        joint_kinds=np.array(["prismatic", "continuous"]),
    )
    assert read_log(path).joints == Joints(("lift", "turn"), ("prismatic", "continuous"))


def test_the_form_is_told_by_content_not_by_name(tmp_path):
    write_npz(tmp_path / "a.npz").rename(tmp_path / "a.csv")
    assert len(read_log(tmp_path / "a.csv").t) == 12


def test_a_byte_order_mark_is_no_column(tmp_path):
    path = write_csv(tmp_path / "a.csv")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_log(path).t) == 12


def bad(name: str, row: int, joint: int, value: float) -> dict[str, np.ndarray]:
    changed = arrays()[name].copy()
    changed[row, joint] = value
    return {name: changed}


BACKWARD = np.array([0, 1, 2, 1.5, 3, 4] * 2) * 0.01
REPEATED = np.array([0, 1, 2, 2, 3, 4] * 2) * 0.01
UNEVEN = np.array([0, 1, 2, 12, 22, 32] * 2) * 0.01


@pytest.mark.parametrize(
    ("changes", "column", "row", "message"),
    [
        ({"tau": None}, None, None, "no array 'tau', only t, trajectory, q, .*expected npz arrays"),
        ({"q": np.zeros(12)}, "q", None, r"at least one joint, got \(12,\)"),
        ({"tau": np.zeros((12, 3))}, "tau", None, r"= \(12, 2\), got \(12, 3\)"),
        ({"qd": np.zeros((11, 2))}, "qd", None, r"= \(12, 2\), got \(11, 2\); give one row per"),
        ({"t": np.zeros((12, 1))}, "t", None, r"\(time,\), got \(12, 1\)"),
        ({"trajectory": np.zeros(5, int)}, "trajectory", None, r"shape \(12,\), got \(5,\)"),
        ({"trajectory": np.full(12, 0.5)}, "trajectory", 0, "whole-number labels, got 0.5"),
        ({"trajectory": np.full(12, "a")}, "trajectory", 0, "whole-number labels, got a"),
        (
            {
                "trajectory": np.array([1] * 4 + [2] * 4 + [1] * 4),
                "t": np.tile(np.arange(4), 3) * 0.01,
            },
            "trajectory",
            8,
            "trajectory 1 continues after another",
        ),
        (bad("q", 3, 1, np.nan), "q1", 3, "finite number, got nan; fix the value or remove"),
        (bad("tau", 11, 0, np.inf), "tau0", 11, "finite number, got inf"),
        (bad("gravity", 2, 1, np.nan), "gravity1", 2, "finite number"),
        ({"q": np.full((12, 2), "x")}, "q", None, "real numbers, got an array of type <U1"),
        ({"t": BACKWARD}, "t", 3, "runs backward: 0.015 s after 0.02 s; sort the rows"),
        ({"t": REPEATED}, "t", 3, "repeats: 0.02 s after 0.02 s"),
        ({"t": UNEVEN}, "t", 1, "mixed sampling rates: 2 of 5 steps .* usual 0.1 s"),
        ({"joint_names": np.array(["a"])}, "joint_names", None, "2 joints, got 1 and 2"),
        ({"joint_names": np.array(["a", "a"])}, None, None, "unique, got a, a"),
        (
            {"joint_kinds": np.array(["revolute", "ball"])},
            None,
            None,
            "joint1 is of kind 'ball'; expected one of revolute, continuous, prismatic",
        ),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_bad_npz_is_refused(changes, column, row, message, tmp_path):
    with pytest.raises(DataError, match=message) as caught:
        read_log(write_npz(tmp_path / "log.npz", **changes))
    assert Path(caught.value.source).name == "log.npz"
    assert (caught.value.column, caught.value.row) == (column, row)


def drop(column: str):
    def edit(header, rows):
        at = header.index(column)
        for row in [header, *rows]:
            del row[at]

    return edit


def rename(column: str, to: str):
    def edit(header, rows):
        header[header.index(column)] = to

    return edit


def cell(row: int, column: str, value: str):
    def edit(header, rows):
        rows[row][header.index(column)] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "column", "row", "message"),
    [
        (drop("tau1"), "tau1", None, "header has t, trajectory, q0, .*expected CSV columns"),
        (rename("q0", "position"), "q0", None, "missing"),
        (drop("qd0"), "qd0", None, "missing"),
        (drop("t"), "t", None, "missing"),
        (rename("q1", "q0"), "q0", None, "more than once"),
        (cell(5, "tau1", "fast"), "tau1", 5, r"got 'fast'; .*\(line 7 of"),
        (cell(2, "qd0", ""), "qd0", 2, "expected a number, got ''"),
        (cell(4, "q1", "nan"), "q1", 4, "expected a finite number, got nan"),
        (cell(4, "trajectory", "1.5"), "trajectory", 4, "whole-number labels, got 1.5"),
        (
            lambda header, rows: rows[3].append("1"),
            None,
            3,
            r"expected 16 cells .*got 17 \(line 5 of the file\)",
        ),
        (lambda header, rows: rows.clear(), None, None, "no rows; record some motion"),
        (
            lambda header, rows: header.__setitem__(slice(None), [f"c{i}" for i in range(16)]),
            None,
            None,
            r"no joint columns in the header \(c0, c1",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_bad_csv_is_refused(edit, column, row, message, tmp_path):
    with pytest.raises(DataError, match=message) as caught:
        read_log(write_csv(tmp_path / "log.csv", edit))
    assert (caught.value.column, caught.value.row) == (column, row)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: replace(data, t=1000 * data.t), r"column q0: .* 0\.001 times as far as qd0"),
        (lambda data: replace(data, q=np.degrees(data.q)), r"57\.\d times .* check the units"),
        (lambda data: replace(data, qd=-data.qd), r"moves -1(\.0\d*)? times as far"),
    ],
    ids=["milliseconds", "degrees", "flipped sign"],
)
def test_units_that_do_not_fit_are_refused(change, message):
    recording = without(pendulum(samples=200))
    with pytest.raises(DataError, match=message):
        prepare(change(recording))
    assert len(prepare(recording)) == 1200


def test_files_that_are_no_logs(tmp_path):
    with pytest.raises(DataError, match="no such file; check the path"):
        read_log(tmp_path / "none.csv")
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="the file is empty; expected npz arrays"):
        read_log(tmp_path / "empty")
    with pytest.raises(DataError, match="is a folder without logs; expected npz arrays"):
        read_log(tmp_path)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match=r"has no known format .* a ROS 2 bag"):
        read_log(tmp_path / "binary")


def test_a_pickle_in_an_archive_is_not_run(tmp_path):
    with zipfile.ZipFile(tmp_path / "evil.npz", "w"):
        pass
    np.savez(
        tmp_path / "evil.npz",
        t=np.array([print], dtype=object),
        q=np.zeros((1, 1)),
        tau=np.zeros((1, 1)),
    )
    with pytest.raises(DataError, match=r"is no readable npz file .*allow_pickle"):
        read_log(tmp_path / "evil.npz")


@given(data=st.data())
@settings(max_examples=200)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_get_errors_not_tracebacks(data, tmp_path_factory):
    """Cut, overwritten or scrambled logs either read or raise our own error."""
    folder = tmp_path_factory.mktemp("damaged")
    write = data.draw(st.sampled_from([write_npz, write_csv]))
    path = write(folder / ("log.npz" if write is write_npz else "log.csv"))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        recording = read_log(path)
    except DelanError:
        return
    assert np.isfinite(recording.q).all()
    assert np.isfinite(recording.tau).all()


def without(dataset: Dataset, *names: str) -> Recording:
    columns = {
        name: getattr(dataset, name)
        for name in ("t", "q", "qd", "qdd", "tau", "trajectory", "joints", "source")
    }
    return Recording(**{**columns, **dict.fromkeys(names)})


@pytest.mark.parametrize("missing", [("qdd",), ("qd",), ("qd", "qdd")])
def test_what_was_not_logged_is_differentiated(missing):
    """Inside each trajectory: a difference across the gap between two would be wild."""
    truth = pendulum(samples=200)
    prepared = prepare(without(truth, *missing))
    for name in missing:
        error = getattr(prepared, name) - getattr(truth, name)
        assert (
            np.abs(error).max() < 0.1 * np.abs(getattr(truth, name)).max()
        )  # the ends of a trajectory are worst
        assert np.sqrt(np.mean(error**2)) < 0.02 * getattr(truth, name).std()


def test_a_trajectory_too_short_to_differentiate_is_refused():
    short = pendulum(trajectories=2, samples=2)
    with pytest.raises(
        DataError,
        match="trajectory 0 has fewer than 3 samples without a gap, too few to differentiate",
    ):
        prepare(without(short, "qdd"))
