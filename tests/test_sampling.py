"""Tests of the choice of rows and the scaling of columns."""

import numpy as np
import pytest

from delan.joints import evenly_spaced, nonzero_scale


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
