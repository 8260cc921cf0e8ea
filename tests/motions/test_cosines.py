"""Cosine motions: exact derivatives, rest at both ends, and all limits respected."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delan.errors import DataError, SettingsError
from delan.joints import JointLimits
from delan.motions.cosines import CosineMotion, cosines
from delan.robots.arms import TWO_LINK, WAM4, WAM7


def require_exact(motion, dt: float) -> None:
    """Check the derivatives against central differences, to the second order of dt."""
    inside = slice(1, -1)
    scale = np.abs(motion.qdd).max()
    np.testing.assert_allclose(
        np.gradient(motion.q, dt, axis=0)[inside], motion.qd[inside], atol=scale * dt
    )
    np.testing.assert_allclose(
        np.gradient(motion.qd, dt, axis=0)[inside], motion.qdd[inside], atol=50 * scale * dt
    )


def require_rest(motion) -> None:
    for end in (0, -1):
        np.testing.assert_allclose(motion.qd[end], 0, atol=1e-9)
        np.testing.assert_allclose(motion.qdd[end], 0, atol=1e-6)


@pytest.mark.parametrize("arm", [TWO_LINK, WAM4, WAM7], ids=lambda arm: arm.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_cosines_stay_inside(arm, seed):
    motion = cosines(arm.limits, key=jax.random.key(seed)).sample(1e-3)
    require_exact(motion, 1e-3)
    require_rest(motion)
    assert (motion.q > arm.limits.lower).all()
    assert (motion.q < arm.limits.upper).all()
    assert (np.abs(motion.qd) < arm.limits.velocity).all()
    assert np.ptp(motion.q, axis=0).min() > 0.2


@given(factor=st.floats(0.5, 3))
def test_a_faster_motion_takes_the_same_path(factor):
    slow = cosines(TWO_LINK.limits, key=jax.random.key(0))
    fast = slow.at_speed(factor)
    ours = slow.sample(1e-3)
    theirs = fast.sample(1e-3 / factor)
    count = min(len(ours.t), len(theirs.t))
    np.testing.assert_allclose(theirs.q[:count], ours.q[:count], atol=1e-9)
    np.testing.assert_allclose(theirs.qd[:count], factor * ours.qd[:count], atol=1e-9)
    np.testing.assert_allclose(theirs.qdd[:count], factor**2 * ours.qdd[:count], atol=1e-8)
    assert theirs.t[-1] == pytest.approx(ours.t[-1] / factor, rel=1e-3)


def test_the_same_key_gives_the_same_motion():
    first, again, other = (
        cosines(WAM7.limits, key=jax.random.key(seed)).sample(0.01).q for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_a_joint_without_stops_turns_about_zero():
    free = JointLimits(
        lower=np.array([-np.inf]),
        upper=np.array([np.inf]),
        velocity=np.array([2.0]),
        torque=np.array([1.0]),
    )
    motion = cosines(free, key=jax.random.key(0)).sample(0.01)
    assert np.abs(motion.q).max() <= np.pi
    assert np.abs(motion.qd).max() < 2


def test_a_share_of_nothing_is_refused():
    with pytest.raises(SettingsError, match="share ≤ 1"):
        cosines(TWO_LINK.limits, key=jax.random.key(0), share=0.0)


def test_a_centre_outside_the_range_is_refused():
    with pytest.raises(DataError, match="centre 3 of joint 1"):
        cosines(TWO_LINK.limits, key=jax.random.key(0), centre=np.array([0.0, 3.0]))


@pytest.mark.parametrize(("duration", "speed"), [(1.0, 1.0), (5.0, -1.0)])
def test_a_cosine_motion_needs_time_and_speed(duration, speed):
    table = np.ones((1, 1))
    with pytest.raises(SettingsError, match=f"got {duration} s and {speed}"):
        CosineMotion(np.zeros(1), table, table, table, duration, speed)
