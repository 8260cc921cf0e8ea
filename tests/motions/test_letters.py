"""Recorded pen strokes, in the original form of the data set and in a subset for tests."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from delan.errors import DataError, SettingsError
from delan.motions.alphabet import OWN, alphabet_named
from delan.motions.letters import LETTERS, draw_letter, draw_stroke, read_pen_strokes
from delan.robots.arms import follow, pen_position
from tests.conftest import SHARED
from tests.support.strokes import circle, write_strokes

PLACE = {"origin": (0.4, -0.2), "size": 0.25, "duration": 2.0, "label": "a"}


def write_mat(path: Path) -> Path:
    strokes = np.empty(3, dtype=object)
    strokes[:] = [circle(150).T, circle(120).T, circle(100).T]
    key = np.array(["a", "b"], dtype=object)
    savemat(path, {"mixout": strokes, "consts": {"key": key, "charlabels": np.array([1, 2, 1])}})
    return path


def test_the_original_form_is_read(tmp_path):
    strokes = read_pen_strokes(write_mat(tmp_path / "mixoutALL_shifted.mat"))
    assert [len(stroke) for stroke in strokes["a"]] == [150, 100]
    assert [len(stroke) for stroke in strokes["b"]] == [120]
    np.testing.assert_allclose(strokes["b"][0], circle(120))


def test_a_stroke_becomes_a_smooth_motion():
    dt = 1e-3
    motion = draw_stroke(circle(), **PLACE, dt=dt)
    low, high = motion.q.min(axis=0), motion.q.max(axis=0)
    np.testing.assert_allclose(low, PLACE["origin"], atol=5e-3)
    np.testing.assert_allclose(high - low, 0.25, atol=5e-3)
    for end in (0, -1):
        np.testing.assert_allclose(motion.qd[end], 0, atol=1e-9)
        np.testing.assert_allclose(motion.qdd[end], 0, atol=1e-9)
    np.testing.assert_allclose(np.gradient(motion.q, dt, axis=0)[1:-1], motion.qd[1:-1], atol=1e-3)
    np.testing.assert_allclose(np.gradient(motion.qd, dt, axis=0)[1:-1], motion.qdd[1:-1], atol=0.1)


@pytest.fixture(scope="module")
def real_strokes() -> dict[str, list[np.ndarray]]:
    path = SHARED / "uci_letters_3_each.npz"
    if not path.exists():
        pytest.skip(f"the subset of real strokes is not here ({path})")
    return read_pen_strokes(path)


def test_real_strokes_can_be_written_by_the_arm(real_strokes):
    assert sorted(real_strokes) == sorted(LETTERS)
    for letter, strokes in real_strokes.items():
        for stroke in strokes:
            pen = draw_stroke(
                stroke, origin=(0.35, -0.2), size=0.25, duration=2.0, dt=5e-3, label=letter
            )
            joints = follow(pen)
            np.testing.assert_allclose(pen_position(joints.q), pen.q, atol=1e-9)
            assert np.abs(joints.qdd).max() < 200


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda path: path.write_bytes(b"no data at all, but long enough for a header" * 10),
            "is not the data set",
        ),
        (
            lambda path: savemat(path, {"other": np.zeros(3)}),
            "is not the data set",
        ),
        (
            lambda path: path.with_suffix(".npz").write_bytes(b""),
            "no such file",
        ),
    ],
)
def test_other_files_are_refused(write, message, tmp_path):
    write(tmp_path / "strokes.mat")
    with pytest.raises(DataError, match=message):
        read_pen_strokes(tmp_path / "strokes.mat")


def test_bad_strokes_are_named(tmp_path):
    with (tmp_path / "strokes.npz").open("wb") as file:
        np.savez(file, a_0=circle(), a_1=np.full((20, 3), np.nan))
    with pytest.raises(DataError, match="column a_1: expected at least 10 finite rows"):
        read_pen_strokes(tmp_path / "strokes.npz")


def test_an_alphabet_is_asked_for_by_a_word(tmp_path):
    place = {"origin": (0.4, -0.15), "height": 0.2, "speed": 0.45, "dt": 2e-3}
    recorded = alphabet_named(f"uci={write_strokes(tmp_path / 'all.npz')}")
    pen = recorded.pen("a", **place)
    # A circle of 0.3 m across, 1.5 heights, at the mean speed of the pen.
    np.testing.assert_allclose(np.ptp(pen.q, axis=0), 0.3, atol=5e-3)
    assert pen.t[-1] == pytest.approx(np.pi * 0.3 / 0.45, rel=0.02)
    second = recorded.pen("a", **place, sample=1)
    np.testing.assert_array_equal(second.q, recorded.pen("a", **place, sample=3).q)
    assert not np.array_equal(second.q, pen.q)
    own = alphabet_named(OWN).pen("a", **place)
    np.testing.assert_array_equal(own.q, draw_letter("a", **place).q)


def test_an_alphabet_without_a_letter_is_refused(tmp_path):
    path = write_strokes(tmp_path / "some.npz", "abc")
    with pytest.raises(SettingsError, match="has no stroke of d, e, g"):
        alphabet_named(f"uci={path}")
    with pytest.raises(SettingsError, match="unknown letters 'mine'"):
        alphabet_named("mine")


def test_real_strokes_are_written_as_fast_as_the_own_letters(real_strokes):
    alphabet = alphabet_named(f"uci={SHARED / 'uci_letters_3_each.npz'}")
    place = {"origin": (0.4, -0.15), "height": 0.2, "speed": 0.45, "dt": 5e-3}
    assert "60 recorded pen strokes" in alphabet.description
    for letter in LETTERS:
        pen = alphabet.pen(letter, **place)
        mean = np.linalg.norm(pen.qd, axis=1).mean()
        assert mean == pytest.approx(0.45, rel=0.1)
        assert np.abs(follow(pen).qd).max() < 10
