"""Limbs that do not feel each other, found from the torques of random trees."""

from dataclasses import replace

import numpy as np
import pytest

from delan.joints import Dataset, JointKind, Recording
from delan.learning.fit_settings import FitSettings, fit_options
from delan.learning.limbs import find_limbs
from tests.support.members import noisy
from tests.support.random_arms import random_arm, rigid, swung

TWO_LEGS = (-1, 0, 1, -1, 3, 4)
FOUR_LEGS = (-1, 0, 1, -1, 3, 4, -1, 6, 7, -1, 9, 10)
TWO_ARMS = (-1, 0, 1, 2, 3, -1, 5, 6, 7, 8)


def turning(count: int) -> list[JointKind]:
    return ["revolute"] * count


def logged(parents: tuple[int, ...], seed: int) -> Dataset:
    bodies, limits = random_arm(turning(len(parents)), seed=seed, parents=parents)
    return swung(rigid(bodies), limits, range(4), samples=800)


def serial(joints: int) -> tuple[int, ...]:
    return tuple(range(-1, joints - 1))


@pytest.mark.parametrize("parents", [TWO_LEGS, FOUR_LEGS, TWO_ARMS])
def test_limbs_are_found_in_the_order_of_the_columns(parents):
    log = logged(parents, seed=0)
    assert find_limbs(log) == parents
    assert find_limbs(noisy(log, 0.03)) == parents


@pytest.mark.parametrize("joints", [1, 3, 4, 6, 7])
@pytest.mark.parametrize("seed", range(3))
def test_a_serial_arm_has_no_limbs(joints, seed):
    assert find_limbs(noisy(logged(serial(joints), seed), 0.03 * seed)) is None


def test_limbs_are_found_in_a_log_without_accelerations():
    log = logged(TWO_LEGS, seed=0)
    columns = {name: getattr(log, name) for name in ("t", "q", "qd", "tau", "trajectory")}
    bodies, limits = random_arm(turning(6), seed=0, parents=TWO_LEGS)
    whole = swung(rigid(bodies), limits, range(4))
    columns = {name: getattr(whole, name) for name in columns}
    assert find_limbs(Recording(**columns, joints=log.joints)) == TWO_LEGS


def test_joints_that_all_move_alike_tell_no_limbs():
    log = logged(TWO_LEGS, seed=0)
    bodies, _ = random_arm(turning(6), seed=0, parents=TWO_LEGS)
    motion = [np.tile(column[:, :1], (1, 6)) for column in (log.q, log.qd, log.qdd)]
    tau = np.stack([rigid(bodies).inverse_dynamics(*row) for row in zip(*motion, strict=True)])
    q, qd, qdd = motion
    assert find_limbs(replace(log, q=q, qd=qd, qdd=qdd, tau=tau, truth={})) is None


def test_a_tree_that_is_given_and_a_plain_chain_are_not_searched():
    log = logged(TWO_LEGS, seed=0)
    given = serial(6)
    for settings in (FitSettings(parents=given), FitSettings(structure="plain")):
        options = fit_options("chain", None, None, settings, None, 0)
        assert options.with_limbs_of(log) is options
    options = fit_options("auto", None, None, FitSettings(), None, 0)
    assert options.with_limbs_of(log).settings.parents == TWO_LEGS
