"""When the starts of a chain have found the valley that leads to the arm."""

import numpy as np

from delan.learning.starts import agreed


def losses(*pairs: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Of starts, on validation and in training; more are still to come."""
    known = np.array([*pairs, (np.inf, np.inf), (np.inf, np.inf)])
    return known[:, 0], known[:, 1]


def test_two_starts_that_do_alike_on_validation_agree():
    assert agreed(*losses((0.102, 0.052), (0.099, 0.055)))
    assert not agreed(*losses((0.102, 0.052), (0.05, 0.03)))


def test_two_that_do_alike_in_training_agree_if_what_they_learned_holds():
    assert agreed(*losses((0.104, 0.0145), (0.0047, 0.0041), (0.0067, 0.0042)))
    assert not agreed(*losses((0.104, 0.0145), (0.09, 0.0148)))  # a valley that leads nowhere, found twice


def test_one_start_alone_agrees_with_nobody():
    assert not agreed(*losses((0.004, 0.004)))
    assert not agreed(*losses((0.004, 0.004), (0.69, 0.19)))
