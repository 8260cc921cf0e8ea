"""Every part of the hostile trial with a small count; with a large one in the long tests."""

import sys

import pytest

from tests.hostile import signals

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes and shared memory are looked up as on Linux"
)


def test_no_signal_leaves_anything_behind():
    assert signals.attack(2, seed=3) == []


@pytest.mark.slow
def test_no_signal_of_many_leaves_anything_behind():
    assert signals.attack(200, seed=1) == []
