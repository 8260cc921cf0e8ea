"""Motions to follow: exact derivatives, rest at both ends, and never outside of the limits."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delan.data.cosines import CosineMotion, cosines
from delan.data.excitation import ExcitationSettings, excite
from delan.errors import DataError, SettingsError
from delan.joints import JointLimits
from delan.models.rigid_body import RigidBody
from delan.robots.barrett_wam import WAM4, WAM7
from delan.robots.two_link import TWO_LINK

ARMS = [TWO_LINK, WAM4, WAM7]


def require_exact(motion, dt: float) -> None:
    """Central differences of a fine sampling find the given derivatives, to the second order of dt."""
    inside = slice(1, -1)
    scale = np.abs(motion.qdd).max()
    np.testing.assert_allclose(np.gradient(motion.q, dt, axis=0)[inside], motion.qd[inside], atol=scale * dt)
    np.testing.assert_allclose(np.gradient(motion.qd, dt, axis=0)[inside], motion.qdd[inside], atol=50 * scale * dt)


def require_rest(motion) -> None:
    for end in (0, -1):
        np.testing.assert_allclose(motion.qd[end], 0, atol=1e-9)
        np.testing.assert_allclose(motion.qdd[end], 0, atol=1e-6)


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
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
    ours, theirs = slow.sample(1e-3), fast.sample(1e-3 / factor)
    count = min(len(ours.t), len(theirs.t))
    np.testing.assert_allclose(theirs.q[:count], ours.q[:count], atol=1e-9)
    np.testing.assert_allclose(theirs.qd[:count], factor * ours.qd[:count], atol=1e-9)
    np.testing.assert_allclose(theirs.qdd[:count], factor**2 * ours.qdd[:count], atol=1e-8)
    assert theirs.t[-1] == pytest.approx(ours.t[-1] / factor, rel=1e-3)


def test_the_same_key_gives_the_same_motion():
    first, again, other = (cosines(WAM7.limits, key=jax.random.key(seed)).sample(0.01).q for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_a_joint_without_stops_turns_about_zero():
    free = JointLimits(
        lower=np.array([-np.inf]), upper=np.array([np.inf]), velocity=np.array([2.0]), torque=np.array([1.0])
    )
    motion = cosines(free, key=jax.random.key(0)).sample(0.01)
    assert np.abs(motion.q).max() <= np.pi
    assert np.abs(motion.qd).max() < 2


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cosines(TWO_LINK.limits, key=jax.random.key(0), share=0.0), SettingsError, "need 0 < share ≤ 1"),
        (
            lambda: cosines(TWO_LINK.limits, key=jax.random.key(0), centre=np.array([0.0, 3.0])),
            DataError,
            "the centre 3 of joint 1 is outside of its range; move it inside",
        ),
        (
            lambda: cosines(TWO_LINK.limits, key=jax.random.key(0), duration=1.0),
            SettingsError,
            r"needs a duration over 2.0 s and a positive speed, got 1.0 s and 1.0",
        ),
        (lambda: ExcitationSettings(harmonics=1), SettingsError, "at least 3 harmonics"),
        (lambda: ExcitationSettings(samples=1), SettingsError, "samples ≥ 10, got 2, 60 and 1"),
    ],
)
def test_bad_wishes_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


QUICK = ExcitationSettings(starts=1, iterations=8, harmonics=4, samples=40)


def torque_of(arm):
    model = RigidBody.from_urdf(arm.urdf())
    return lambda *motion: np.stack([model.inverse_dynamics(*row) for row in zip(*motion, strict=True)])


@pytest.mark.parametrize("arm", [TWO_LINK, WAM4], ids=lambda arm: arm.name)
@pytest.mark.parametrize("known", [True, False], ids=["known torques", "limits only"])
def test_excitation_never_leaves_the_limits(arm, known):
    found = excite(arm.limits, dt=2e-3, key=jax.random.key(0), torque=torque_of(arm) if known else None, settings=QUICK)
    motion, limits = found.trajectory, arm.limits
    require_exact(motion, 2e-3)
    require_rest(motion)
    assert (motion.q >= limits.lower).all()
    assert (motion.q <= limits.upper).all()
    assert (np.abs(motion.qd) <= limits.velocity).all()
    if known:
        assert (np.abs(torque_of(arm)(motion.q, motion.qd, motion.qdd)) <= limits.torque).all()
        assert set(found.used) == {"position", "velocity", "torque"}
    assert max(share.max() for share in found.used.values()) <= QUICK.margin


def test_optimised_excitation_tells_more_than_chance():
    """A better condition number than the median of random motions of the same family."""
    few = ExcitationSettings(starts=1, iterations=1, harmonics=4, samples=40)
    random = [excite(TWO_LINK.limits, dt=0.01, key=jax.random.key(seed), settings=few).condition for seed in range(5)]
    found = excite(
        TWO_LINK.limits,
        dt=0.01,
        key=jax.random.key(0),
        settings=ExcitationSettings(starts=1, iterations=60, harmonics=4, samples=40),
    )
    assert found.condition < np.median(random)


def test_limits_that_nothing_can_meet_are_refused():
    weak = JointLimits(
        lower=TWO_LINK.limits.lower,
        upper=TWO_LINK.limits.upper,
        velocity=TWO_LINK.limits.velocity,
        torque=np.array([0.1, 0.1]),
    )
    with pytest.raises(DataError, match="even standing still takes more torque than the limits allow"):
        excite(weak, dt=0.01, key=jax.random.key(0), torque=torque_of(TWO_LINK), settings=QUICK)


def test_a_cosine_motion_checks_itself():
    with pytest.raises(SettingsError, match="positive speed"):
        CosineMotion(np.zeros(1), np.ones((1, 1)), np.ones((1, 1)), np.zeros((1, 1)), 5.0, speed=-1.0)
