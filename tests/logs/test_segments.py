"""Segments of a log: the rule for a break in time, and the rows between breaks."""

import numpy as np
import pytest

from delan.logs.segments import (
    LogSegment,
    TimeFaults,
    cut_out,
    longest_bridged,
    spans,
    time_breaks,
    usual_step,
)

STEP = 0.01


def test_a_lost_sample_is_a_break_and_jitter_is_none():
    t = STEP * np.array([0, 1, 2, 4, 5, 6.6, 7, 7, 8, 3, 4])
    np.testing.assert_array_equal(np.flatnonzero(time_breaks(t)), [0, 3, 7, 9])


@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.2])
def test_there_is_one_rule_for_a_break_in_time(jitter):
    rng = np.random.default_rng(0)
    t = STEP * np.cumsum(1 + jitter * rng.standard_normal(500).clip(-2, 2))
    t[200:] += 3 * STEP
    t[400:] -= t[390]
    faults = TimeFaults(t, np.zeros(500, dtype=int))
    starts = [segment.start for segment in faults.segments]
    np.testing.assert_array_equal(np.flatnonzero(time_breaks(t)), starts)
    assert starts == [0, 200, 400]


@pytest.mark.parametrize("t", [[], [0.5], [1.0, 1.0], [2.0, 1.0]])
def test_time_that_does_not_increase_has_no_usual_step(t):
    assert usual_step(np.array(t)) == 0.0


def test_spans_are_the_ranges_of_a_mask():
    mask = np.array([True, False, True, True, False, True])
    assert spans(mask) == ((0, 1), (2, 4), (5, 6))
    assert spans(~mask) == ((1, 2), (4, 5))
    assert cut_out((LogSegment(1, 5, STEP),), mask) == (
        LogSegment(1, 2, STEP),
        LogSegment(4, 5, STEP),
    )


def test_segments_end_at_faults_and_at_trajectories():
    t = STEP * np.arange(100.0)
    t[30:] += 5 * STEP
    t[60] = np.nan
    faults = TimeFaults(t, np.repeat([0, 1], 50))
    segments = [(segment.start, segment.end) for segment in faults.segments]
    assert segments == [(0, 30), (30, 50), (50, 60), (61, 100)]
    np.testing.assert_array_equal(np.flatnonzero(faults.gap), [30])
    assert faults.step == pytest.approx(STEP)
    assert faults.scale == 1.0


def test_longest_bridged_gap_is_a_time_or_a_number_of_steps():
    assert longest_bridged(0.001) == 0.02
    assert longest_bridged(0.1) == 0.5
