"""Reading logs: what is good comes through unchanged; what is bad is refused with file, column and row."""

import csv
import zipfile
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delan.data.logs import read_log
from delan.data.preparation import prepare
from delan.data.splitting import hold_out
from delan.errors import DataError, DelanError
from delan.joints import Dataset, Joints, Recording

from .members import pendulum


def arrays(samples: int = 12, dof: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    names = ("q", "qd", "qdd", "tau", "inertial", "coriolis", "gravity")
    made = {name: rng.normal(size=(samples, dof)) for name in names}
    return {"t": np.tile(np.arange(samples // 2) * 0.01, 2), "trajectory": np.repeat([4, 7], samples // 2), **made}


def write_npz(path: Path, **changes) -> Path:
    np.savez(path, **{name: value for name, value in {**arrays(), **changes}.items() if value is not None})
    return path


def write_csv(path: Path, edit=lambda header, rows: None) -> Path:
    made = arrays()
    header, columns = [], []
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
        tmp_path / "a.npz", joint_names=np.array(["lift", "turn"]), joint_kinds=np.array(["prismatic", "continuous"])
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
SLOWER = np.concatenate([np.arange(6) * 0.01, np.arange(6) * 0.02])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tau": None}, r"log\.npz: has no array 'tau', only t, trajectory, q, .*expected npz arrays"),
        ({"q": np.zeros(12)}, r"log\.npz, column q: expected shape \(time, dof\) with at least one joint, got \(12,\)"),
        ({"tau": np.zeros((12, 3))}, r"column tau: expected shape \(time, dof\) = \(12, 2\), got \(12, 3\)"),
        (
            {"qd": np.zeros((11, 2))},
            r"column qd: expected shape .* = \(12, 2\), got \(11, 2\); give one row a time stamp",
        ),
        ({"t": np.zeros((12, 1))}, r"column t: expected at least one time stamp in shape \(time,\), got \(12, 1\)"),
        (
            {"trajectory": np.zeros(5, int)},
            r"column trajectory: expected one label a time stamp, shape \(12,\), got \(5,\)",
        ),
        ({"trajectory": np.full(12, 0.5)}, r"column trajectory, row 0: expected whole-number labels, got 0.5"),
        ({"trajectory": np.full(12, "a")}, r"column trajectory, row 0: expected whole-number labels, got a"),
        (
            {"trajectory": np.array([1] * 4 + [2] * 4 + [1] * 4), "t": np.tile(np.arange(4), 3) * 0.01},
            r"column trajectory, row 8: trajectory 1 begins again after another; keep the rows of a trajectory",
        ),
        (
            bad("q", 3, 1, np.nan),
            r"column q1, row 3: expected a finite number, got nan; remove the row or mend the log",
        ),
        (bad("tau", 11, 0, np.inf), r"column tau0, row 11: expected a finite number, got inf"),
        (bad("gravity", 2, 1, np.nan), r"column gravity1, row 2: expected a finite number"),
        ({"q": np.full((12, 2), "x")}, r"column q: expected real numbers, got an array of type <U1"),
        ({"t": BACKWARD}, r"column t, row 3: time runs backward: 0.015 s after 0.02 s; sort the rows"),
        ({"t": REPEATED}, r"column t, row 3: time repeats: 0.02 s after 0.02 s"),
        ({"t": UNEVEN}, r"column t, row 1: mixed sampling rates: 2 of 5 steps differ from the usual 0.1 s"),
        ({"t": SLOWER}, r"column t, row 6: mixed sampling rates: steps of 0.02 s here, 0.01 s in the first trajectory"),
        (
            {"joint_names": np.array(["a"])},
            r"column joint_names: expected one joint name and one kind for each of 2 joints, got 1 and 2",
        ),
        ({"joint_names": np.array(["a", "a"])}, r"joint names must differ from each other, got a, a"),
        (
            {"joint_kinds": np.array(["revolute", "ball"])},
            r"joint joint1 is of kind 'ball'; known kinds: revolute, continuous, prismatic",
        ),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_bad_npz_is_refused(changes, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_log(write_npz(tmp_path / "log.npz", **changes))


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
    ("edit", "message"),
    [
        (drop("tau1"), r"log\.csv, column tau1: is missing; the header has t, trajectory, q0, .*expected CSV columns"),
        (rename("q0", "position"), r"log\.csv, column q0: is missing"),
        (drop("qd0"), r"column qd0: is missing"),
        (drop("t"), r"column t: is missing"),
        (rename("q1", "q0"), r"column q0: stands more than once in the header"),
        (
            cell(5, "tau1", "fast"),
            r"column tau1, row 5: expected a number, got 'fast'; mend the cell or remove the row \(line 7 of",
        ),
        (cell(2, "qd0", ""), r"column qd0, row 2: expected a number, got ''"),
        (cell(4, "q1", "nan"), r"column q1, row 4: expected a finite number, got nan"),
        (cell(4, "trajectory", "1.5"), r"column trajectory, row 4: expected whole-number labels, got 1.5"),
        (
            lambda header, rows: rows[3].append("1"),
            r"row 3: expected 16 cells as in the header, got 17 \(line 5 of the file\)",
        ),
        (lambda header, rows: rows.clear(), r"has a header and no rows; record some motion"),
        (
            lambda header, rows: header.__setitem__(slice(None), [f"c{i}" for i in range(16)]),
            r"no joint columns in the header \(c0, c1",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_bad_csv_is_refused(edit, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_log(write_csv(tmp_path / "log.csv", edit))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda data: replace(data, t=1000 * data.t),
            r"column q0: the joint moves 0\.001 times as far as qd0 says over t",
        ),
        (
            lambda data: replace(data, q=np.degrees(data.q)),
            r"moves 57\.\d times as far as qd0 says over t; check the units",
        ),
        (lambda data: replace(data, qd=-data.qd), r"moves -1(\.0\d*)? times as far"),
    ],
    ids=["milliseconds", "degrees", "flipped sign"],
)
def test_units_that_do_not_fit_are_refused(change, message):
    recording = without(pendulum(samples=200))
    with pytest.raises(DataError, match=message):
        prepare(change(recording))
    assert len(prepare(recording)) == 1200


def test_the_error_keeps_its_place(tmp_path):
    with pytest.raises(DataError) as caught:
        read_log(write_npz(tmp_path / "log.npz", **bad("q", 3, 1, np.nan)))
    assert (Path(caught.value.source).name, caught.value.column, caught.value.row) == ("log.npz", "q1", 3)


def test_files_that_are_no_logs(tmp_path):
    with pytest.raises(DataError, match="no such file; check the path"):
        read_log(tmp_path / "none.csv")
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="the file is empty; expected npz arrays"):
        read_log(tmp_path / "empty")
    with pytest.raises(DataError, match="is a folder without logs; expected npz arrays"):
        read_log(tmp_path)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match=r"is of no form that is read, nor text .* or a ROS 2 bag"):
        read_log(tmp_path / "binary")


def test_a_pickle_in_an_archive_is_not_run(tmp_path):
    with zipfile.ZipFile(tmp_path / "evil.npz", "w"):
        pass
    np.savez(tmp_path / "evil.npz", t=np.array([print], dtype=object), q=np.zeros((1, 1)), tau=np.zeros((1, 1)))
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
        name: getattr(dataset, name) for name in ("t", "q", "qd", "qdd", "tau", "trajectory", "joints", "source")
    }
    return Recording(**{**columns, **dict.fromkeys(names)})


@pytest.mark.parametrize("missing", [("qdd",), ("qd",), ("qd", "qdd")])
def test_what_was_not_logged_is_differentiated(missing):
    """Inside each trajectory: a difference across the gap between two would be wild."""
    truth = pendulum(samples=200)
    prepared = prepare(without(truth, *missing))
    for name in missing:
        error = getattr(prepared, name) - getattr(truth, name)
        assert np.abs(error).max() < 0.1 * np.abs(getattr(truth, name)).max()  # the ends of a trajectory are worst
        assert np.sqrt(np.mean(error**2)) < 0.02 * getattr(truth, name).std()


def test_a_trajectory_too_short_to_differentiate_is_refused():
    short = pendulum(trajectories=2, samples=2)
    with pytest.raises(
        DataError, match="trajectory 0 has fewer than 3 samples without a gap, too few to differentiate"
    ):
        prepare(without(short, "qdd"))


def test_splits_keep_trajectories_whole():
    data = pendulum(trajectories=10)
    training, validation = hold_out(data, 0.3, key=jax.random.key(0))
    assert len(validation.trajectories) == 3
    assert set(training.trajectories) | set(validation.trajectories) == set(data.trajectories)
    assert not set(training.trajectories) & set(validation.trajectories)
    other, _ = hold_out(data, 0.3, key=jax.random.key(1))
    assert other.trajectories != training.trajectories


def test_a_single_trajectory_gives_its_end_to_validation():
    training, validation = hold_out(pendulum(trajectories=1), 0.2, key=jax.random.key(0))
    assert (len(training), len(validation)) == (40, 10)
    assert training.t.max() < validation.t.min()
    with pytest.raises(DataError, match=r"1 samples are too few to hold out a share of 0\.2; record more"):
        hold_out(pendulum(trajectories=1, samples=1), 0.2, key=jax.random.key(0))


@pytest.mark.usefixtures("as_shipped")
def test_marks_of_other_rows_are_refused():
    with pytest.raises(DataError, match=r"column counted: expected shape .* = \(50,\), got \(3,\); give one mark"):
        replace(pendulum(trajectories=1), counted=np.ones(3, dtype=bool))


def test_an_unknown_trajectory_is_refused():
    with pytest.raises(DataError, match=r"pendulum: has no trajectory 17; it has \[0, 1, 2, 3, 4, 5\]"):
        pendulum().select([1, 17])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t": np.zeros(0)}, r"column t: expected at least one time stamp in shape \(time,\), got \(0,\)"),
        ({"t": np.zeros((300, 1))}, r"column t: expected at least one time stamp .* got \(300, 1\)"),
        ({"trajectory": np.zeros(7, int)}, r"column trajectory: expected one label a time stamp, shape \(300,\), got"),
        ({"qdd": np.zeros((300, 2))}, r"column qdd: expected shape \(time, dof\) = \(300, 1\), got \(300, 2\)"),
        ({"truth": {"magnetic": np.zeros((300, 1))}}, "unknown torque component 'magnetic'; known: inertial, coriolis"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_a_dataset_of_shapes_that_do_not_match_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        replace(pendulum(), **change)
