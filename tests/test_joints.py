"""Data types shared by all subpackages: kinds of joints, shapes of arrays, choice and scaling."""

from dataclasses import replace

import numpy as np
import pytest

from delan.errors import (
    LONGEST_MESSAGE,
    CompilerError,
    DataError,
    SettingsError,
    UnreadableLogsError,
)
from delan.joints import Joints, Recording, evenly_spaced, nonzero_scale
from tests.support.members import pendulum

MIXED = Joints.of(("revolute", "prismatic", "continuous"))


def test_kinds_of_joints_are_masks_and_units():
    np.testing.assert_array_equal(MIXED.sliding, [False, True, False])
    np.testing.assert_array_equal(MIXED.turning, [True, False, True])
    np.testing.assert_array_equal(MIXED.continuous, [False, False, True])
    assert [unit.q for unit in MIXED.units] == ["rad", "m", "rad"]
    assert [unit.tau for unit in MIXED.units] == ["N m", "N", "N m"]
    assert MIXED.pick([2, 0]) == Joints(("joint2", "joint0"), ("continuous", "revolute"))


def test_rows_of_a_recording_have_all_its_columns():
    truth = {"gravity": np.arange(4.0)[:, None]}
    recording = Recording(
        t=np.arange(4.0),
        q=np.zeros((4, 1)),
        tau=np.ones((4, 1)),
        trajectory=np.array([0, 0, 1, 1]),
        truth=truth,
        joints=Joints.revolute(1),
    )
    assert list(recording.columns) == ["t", "q", "tau", "trajectory", "gravity"]
    last = recording.rows(slice(2, 4))
    np.testing.assert_array_equal(last.t, [2.0, 3.0])
    np.testing.assert_array_equal(last.truth["gravity"], [[2.0], [3.0]])
    assert last.nbytes == recording.nbytes / 2


@pytest.mark.usefixtures("as_shipped")
def test_marks_of_other_rows_are_refused():
    with pytest.raises(DataError, match=r"column counted: .* = \(50,\), got \(3,\)"):
        replace(pendulum(trajectories=1), counted=np.ones(3, dtype=bool))


def test_an_unknown_trajectory_is_refused():
    with pytest.raises(DataError, match=r"no trajectory 17; it has \[0, 1, 2, 3, 4, 5\]"):
        pendulum().select([1, 17])


@pytest.mark.parametrize(
    ("change", "column", "message"),
    [
        ({"t": np.zeros(0)}, "t", r"shape \(time,\), got \(0,\)"),
        ({"t": np.zeros((300, 1))}, "t", r"got \(300, 1\)"),
        ({"trajectory": np.zeros(7, int)}, "trajectory", r"shape \(300,\), got \(7,\)"),
        ({"qdd": np.zeros((300, 2))}, "qdd", r"= \(300, 1\), got \(300, 2\)"),
        ({"truth": {"magnetic": np.zeros((300, 1))}}, None, "'magnetic'; expected inertial"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_a_dataset_of_shapes_that_do_not_match_is_refused(change, column, message):
    with pytest.raises(DataError, match=message) as caught:
        replace(pendulum(), **change)
    assert caught.value.column == column


@pytest.mark.parametrize(("count", "most"), [(1, 5), (7, 7), (7, 20), (1000, 7), (3, 1)])
def test_rows_are_evenly_spaced_and_within_the_data(count, most):
    rows = evenly_spaced(count, most)
    assert len(rows) == min(count, most)
    assert rows[0] == 0
    assert most == 1 or rows[-1] == count - 1
    assert len(rows) < 3 or np.ptp(np.diff(rows)) <= 1


def test_rows_agree_with_the_untrimmed_grid():
    for count in range(1, 40):
        for most in range(1, 80):
            grid = np.unique(np.linspace(0, count - 1, most).astype(int))
            np.testing.assert_array_equal(evenly_spaced(count, most), grid)


def test_constant_columns_get_the_scale_one():
    np.testing.assert_array_equal(nonzero_scale(np.array([0.0, 2.0, np.nan])), [1.0, 2.0, 1.0])


def test_messages_are_safe_for_a_terminal_and_bounded():
    error = DataError("log.csv", "got \x1b[2J\x07\u202e\nnext" + "long" * 10_000 + "; do this")
    text = str(error)
    assert text.isprintable()
    assert len(text) < 2 * LONGEST_MESSAGE
    assert "\\x1b[2J\\x07\\u202e\\nnext" in text
    assert text.endswith("; do this")
    assert str(CompilerError("first line\nsecond\x1b")) == "first line\nsecond\\x1b"
    several = UnreadableLogsError("2 files:", [DataError("a", "x\ny"), DataError("b", "z")])
    assert str(several) == "2 files:\n  a: x\\ny\n  b: z"


def test_names_that_no_terminal_shows_are_refused():
    for name in ("a\x1b[2J", "a\nb", "\ud800", "a" * 300):
        with pytest.raises(SettingsError, match="expected at most 200 printable characters"):
            Joints((name,), ("revolute",))
