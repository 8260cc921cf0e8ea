"""Seconds parted among steps."""

import time

import pytest

from delan.learning.study import LEAST_SECONDS, Budget

SHARES = {"first": 0.5, "second": 0.25, "third": 0.25}


def late(seconds: float) -> Budget:
    """A budget of 100 s that began so many seconds ago."""
    return Budget(100.0, SHARES, began=time.perf_counter() - seconds)


def test_a_step_gets_its_share_of_what_is_left():
    assert late(0).part("first") == pytest.approx(50, abs=1)
    assert late(50).part("second") == pytest.approx(25, abs=1)
    assert late(80).part("third") == pytest.approx(20, abs=1)


def test_what_one_step_takes_too_much_the_later_ones_miss():
    assert late(90).part("second") == pytest.approx(5, abs=1)
    assert late(150).part("third") == LEAST_SECONDS
    assert late(150).left == 0


def test_without_seconds_nothing_is_bounded():
    budget = Budget(None, SHARES)
    assert budget.part("first") is None
    assert budget.left == float("inf")
