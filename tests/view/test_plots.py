"""The numbers behind the curves of the page."""

import numpy as np
import pytest

from delan.view.live_page import learner_text
from delan.view.plots import (
    finite_points,
    idle_seconds,
    largest_between,
    on_grid,
    rate,
    swaps,
    time_grid,
    tracking_error,
)

DT = 2e-3


def columns_of(t, **more):
    t = np.asarray(t, dtype=float)
    zero = np.zeros((len(t), 2))
    return {"t": t[:, None], "q": zero, "q_des": zero, "model": zero[:, :1], **more}


def test_curves_show_the_last_seconds():
    t = np.arange(0, 5, DT)
    grid = time_grid(columns_of(t), seconds=12.0, points=240)
    assert grid.t[-1] == pytest.approx(t[-1])
    assert np.diff(grid.t) == pytest.approx(0.05)
    value = on_grid(t, grid)
    assert np.isnan(value[: 240 - 100]).all()
    np.testing.assert_allclose(value[-99:], grid.t[-99:], atol=DT)
    empty = time_grid(columns_of([]))
    assert not empty.known.any()
    assert np.isnan(on_grid(np.zeros(0), empty)).all()


def test_points_without_a_finite_value_are_left_out():
    t = np.arange(4.0)
    nan = np.nan
    times, first, second = finite_points(
        t, np.array([nan, 1.0, 2.0, 3.0]), np.array([nan, nan, 5.0, 6.0])
    )
    assert (times.tolist(), first.tolist(), second.tolist()) == ([2, 3], [2, 3], [5, 6])
    assert len(finite_points(t, np.full(4, nan))[0]) == 4


def test_a_single_late_period_is_visible():
    t = np.arange(0, 5, DT)
    delay = np.zeros(len(t))
    delay[1234] = 7.0
    assert np.nanmax(largest_between(delay, time_grid(columns_of(t)))) == 7.0


def test_error_rate_and_swaps_follow_their_definitions():
    t = np.arange(0, 5, DT)
    q_des = np.random.default_rng(0).standard_normal((len(t), 2))
    columns = columns_of(t, q_des=q_des, model=np.floor(t)[:, None])
    error = tracking_error(columns, DT)
    np.testing.assert_allclose(error[2000], np.sqrt(np.mean(q_des[2000 - 124 : 2001] ** 2, axis=0)))
    np.testing.assert_allclose(error[0], np.abs(q_des[0]))
    np.testing.assert_allclose(swaps(columns), [1, 2, 3, 4], atol=1e-9)
    growth = rate(300 * t, t, time_grid(columns))
    np.testing.assert_allclose(growth[-1], 300, rtol=1e-3)


def test_an_idle_learner_is_reported():
    t = np.arange(0, 10, DT)
    learner = np.zeros((len(t), 4))
    columns = columns_of(t, learner=learner)
    learner[:, 2] = np.minimum(np.floor(10 * t), 40)
    assert idle_seconds(columns) == pytest.approx(6, abs=2 * DT)
    assert "more than 6 s" in learner_text(6.4)
    learner[:, 2] = np.floor(t)
    assert idle_seconds(columns) == pytest.approx(1, abs=2 * DT)
    assert learner_text(1.0) == ""
    learner[t < 9, 2] = np.nan  # in use for one second
    learner[t >= 9, 2] = 7
    assert idle_seconds(columns) == pytest.approx(1, abs=2 * DT)
    learner[:, 2] = np.nan
    assert "compiling" in learner_text(idle_seconds(columns))
