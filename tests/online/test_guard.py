"""The guard between the loop and the robot: which states it believes, which targets and torques it
lets through.
"""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from delan.errors import SettingsError
from delan.joints import JointLimits, JointState
from delan.online.guard import Guard, GuardSettings
from delan.online.schedule import safe_targets
from delan.robots.arms import TWO_LINK

DT = 0.002
LIMITS = TWO_LINK.limits
REST = JointState(0.0, np.zeros(2), np.zeros(2))

ANYTHING = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-100, 100)
VECTOR = arrays(float, 2, elements=ANYTHING)


@given(
    st.lists(st.tuples(VECTOR, VECTOR, VECTOR, VECTOR), min_size=1, max_size=30),
    st.sampled_from([0.5, 50.0, 1e6]),
    st.booleans(),
)
def test_whatever_comes_in_the_torque_is_a_gentle_one_inside_the_limits(periods, rate, brake):
    guard = Guard(LIMITS, DT, GuardSettings(torque_rate=rate))
    last = np.zeros(2)
    with np.errstate(over="ignore", invalid="ignore"):
        for q, qd, feedback, feed_forward in periods:
            state = guard.state(JointState(0.0, q, qd))
            assert np.isfinite(np.concatenate([state.q, state.qd])).all()
            tau = (
                guard.damped(state, np.ones(2))
                if brake
                else guard.torque(state, feedback, feed_forward)
            )
            assert np.isfinite(tau).all()
            assert (np.abs(tau) <= LIMITS.torque).all()
            assert (np.abs(tau - last) <= rate * LIMITS.torque * DT * (1 + 1e-9)).all()
            last = tau


def test_a_good_torque_passes_as_it_is():
    guard = Guard(LIMITS, DT)
    tau = guard.torque(guard.state(REST), np.array([1.0, -1.0]), np.array([2.0, 0.5]))
    np.testing.assert_array_equal(tau, [3.0, -0.5])
    assert not any(guard.counts.values())


def test_a_sudden_torque_is_spread_over_periods():
    guard = Guard(LIMITS, DT)
    torques = [
        guard.torque(guard.state(REST), np.array([40.0, 0.0]), np.zeros(2))[0] for _ in range(8)
    ]
    np.testing.assert_allclose(torques, [6, 12, 18, 24, 30, 36, 40, 40])
    assert guard.counts["torque_rate"] == 6


def test_a_torque_that_is_none_or_too_large_leaves_the_other_joints_theirs():
    guard = Guard(LIMITS, DT, GuardSettings(torque_rate=1e4))
    for wanted, applied in (
        ([np.nan, 2.0], [0.0, 2.0]),
        ([2.0, -np.inf], [2.0, 0.0]),
        ([61.0, -3.0], [60.0, -3.0]),
        ([-1e9, 3.0], [-60.0, 3.0]),
    ):
        np.testing.assert_array_equal(guard.torque(REST, np.array(wanted), np.zeros(2)), applied)
    assert (
        guard.counts["not_finite"],
        guard.counts["torque_limit"],
        guard.counts["torque_rate"],
    ) == (2, 2, 0)


def test_a_model_out_of_range_is_not_listened_to():
    guard = Guard(LIMITS, DT, GuardSettings(torque_rate=1e4))
    for wild in ([61.0, 0.0], [np.nan, 0.0], [0.0, -np.inf]):
        tau = guard.torque(guard.state(REST), np.array([1.0, 2.0]), np.array(wild))
        np.testing.assert_array_equal(tau, [1.0, 2.0])
    assert guard.counts["feed_forward"] == 3


def test_an_endless_torque_of_a_model_is_not_listened_to_even_without_a_torque_limit():
    endless = JointLimits(
        lower=LIMITS.lower, upper=LIMITS.upper, velocity=LIMITS.velocity, torque=np.full(2, np.inf)
    )
    guard = Guard(endless, DT)
    np.testing.assert_array_equal(
        guard.torque(REST, np.array([1.0, 2.0]), np.array([np.inf, 0.0])), [1.0, 2.0]
    )
    assert (guard.counts["feed_forward"], guard.counts["not_finite"]) == (1, 0)


WRONG_LIMITS = [
    ({"torque": [60.0, np.nan]}, "torque limit above zero .*joint 1 is nan"),
    ({"torque": [-5.0, 60.0]}, "torque limit above zero .*joint 0 is -5.0"),
    ({"velocity": [0.0, 1.0]}, "velocity limit above zero .*joint 0 is 0.0"),
    ({"lower": [-1.0, 3.0]}, "joint 1 may move from 3.0 to 2.9; every joint needs lower ≤ upper"),
    ({"upper": [np.nan, 1.0]}, "joint 0 may move from -3.1 to nan"),
    ({"lower": [np.inf, 0.0], "upper": [np.inf, 1.0]}, "joint 0 may move from inf to inf"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_LIMITS, ids=str)
def test_limits_that_would_let_any_torque_out_are_refused(wrong, message):
    good = {name: getattr(LIMITS, name) for name in ("lower", "upper", "velocity", "torque")}
    with pytest.raises(SettingsError, match=message):
        JointLimits(**{**good, **{name: np.array(values) for name, values in wrong.items()}})


@pytest.mark.usefixtures("as_shipped")
def test_limits_of_unequal_lengths_are_refused():
    with pytest.raises(
        SettingsError, match=r"one number per joint.* lower \(2,\), .*torque \(1,\)"
    ):
        JointLimits(
            lower=LIMITS.lower, upper=LIMITS.upper, velocity=LIMITS.velocity, torque=np.ones(1)
        )


@pytest.mark.parametrize(("share", "most"), [(1.0, 60.0), (0.5, 30.0)])
def test_a_model_may_ask_for_its_share_of_the_torque_and_no_more(share, most):
    guard = Guard(LIMITS, DT, GuardSettings(torque_rate=1e4, feed_forward=share))
    for asked, applied in ((most, most), (1.01 * most, 0.0), (-most, -most), (-1.01 * most, 0.0)):
        assert guard.torque(REST, np.zeros(2), np.array([asked, 0.0]))[0] == applied


@pytest.mark.parametrize(
    ("q", "qd", "near"),
    [
        ([0.0, 2.88], [0.0, 0.0], True),
        ([0.0, -2.88], [0.0, 0.0], True),
        ([0.0, 2.7], [0.0, 9.0], True),
        ([0.0, 2.7], [0.0, -9.0], False),
        ([0.0, -2.7], [0.0, -9.0], True),
        ([0.0, -2.7], [0.0, 9.0], False),
        ([0.0, 2.88], [0.0, -9.0], True),
        ([0.0, -2.88], [0.0, 9.0], True),
        ([3.0, 2.7], [0.0, 0.0], False),
    ],
)
def test_a_joint_near_its_end_is_left_to_pd_control(q, qd, near):
    guard = Guard(LIMITS, DT, GuardSettings(torque_rate=1e4))
    state = guard.state(JointState(0.0, np.array(q), np.array(qd)))
    tau = guard.torque(state, np.array([1.0, 1.0]), np.array([2.0, 2.0]))
    np.testing.assert_array_equal(tau, [3.0, 1.0 if near else 3.0])
    assert guard.counts["near_limit"] == near


def test_a_joint_without_ends_is_never_near_one():
    limits = JointLimits(
        lower=np.full(1, -np.inf), upper=np.full(1, np.inf), velocity=np.ones(1), torque=np.ones(1)
    )
    guard = Guard(limits, DT, GuardSettings(torque_rate=1e4))
    guard.torque(JointState(0.0, np.full(1, 1e3), np.ones(1)), np.zeros(1), np.ones(1))
    assert not any(guard.counts.values())


@pytest.mark.parametrize(("q", "near"), [(0.005, False), (-0.005, True), (1e3, False)])
def test_a_joint_with_one_end_has_no_range_to_take_a_share_of(q, near):
    limits = JointLimits(
        lower=np.zeros(1), upper=np.full(1, np.inf), velocity=np.ones(1), torque=np.ones(1)
    )
    guard = Guard(limits, DT)
    guard.torque(JointState(0.0, np.full(1, q), np.zeros(1)), np.zeros(1), np.zeros(1))
    assert guard.counts["near_limit"] == near


def test_a_state_that_cannot_be_is_replaced_by_the_last_that_could():
    guard = Guard(LIMITS, DT, GuardSettings(patience=3))
    good = JointState(0.0, np.array([0.5, 0.5]), np.array([1.0, 1.0]))
    assert guard.state(good) is good
    jump = good._replace(q=good.q + np.array([0.0, 0.1]))  # 50 rad/s
    assert guard.state(jump) is good
    assert not guard.believed
    assert guard.state(jump) is jump  # within two periods it could be there
    assert guard.state(good._replace(qd=np.array([31.0, 0.0]))) is jump
    assert (guard.counts["state"], guard.stopped) == (2, None)


def test_the_fastest_motion_that_can_be_is_believed():
    guard, top = Guard(LIMITS, DT), 3 * LIMITS.velocity
    for fast in (REST._replace(qd=top), REST._replace(q=top * DT, qd=-top)):
        assert guard.state(fast) is fast


@pytest.mark.parametrize(
    ("q", "qd"),
    [([np.nan, 0.0], [0.0, 0.0]), ([0.0, 0.0], [0.0, np.inf]), ([0.0, 0.0], [31.0, 0.0])],
)
def test_until_a_state_can_be_believed_the_robot_stands_where_it_may(q, qd):
    above = JointLimits(
        lower=np.array([0.5, -1.0]),
        upper=np.ones(2),
        velocity=LIMITS.velocity,
        torque=LIMITS.torque,
    )
    guard = Guard(above, DT, GuardSettings(patience=3))
    for left in (2, 1, 0):
        state = guard.state(JointState(7.0, np.array(q), np.array(qd)))
        assert state.t == 7.0
        np.testing.assert_array_equal([state.q, state.qd], [[0.5, 0.0], [0.0, 0.0]])
        assert (guard.believed, guard.stopped is None) == (False, left > 0)


def test_endless_numbers_are_no_state_even_without_a_speed_limit():
    endless = JointLimits(
        lower=LIMITS.lower, upper=LIMITS.upper, velocity=np.full(2, np.inf), torque=LIMITS.torque
    )
    for broken in (
        REST._replace(q=np.array([0.0, np.inf])),
        REST._replace(qd=np.array([-np.inf, 0.0])),
    ):
        guard = Guard(endless, DT)
        assert guard.state(broken) is not broken
        assert guard.state(REST) is REST
        assert guard.state(broken) is REST


def test_many_bad_states_in_a_row_stop_the_robot():
    guard = Guard(LIMITS, DT)
    guard.state(REST)
    for _ in range(10):
        assert guard.stopped is None
        guard.state(REST._replace(q=np.full(2, np.nan)))
    guard.state(REST._replace(q=np.full(2, np.nan)))
    assert str(guard.stopped).startswith("10 consecutive states")
    np.testing.assert_array_equal(guard.damped(REST, np.ones(2)), 0.0)
    moving = guard.state(REST._replace(qd=np.array([1.0, -2.0])))
    np.testing.assert_array_equal(guard.damped(moving, np.ones(2)), [-1.0, 2.0])


def test_targets_out_of_reach_end_at_the_joints_range():
    q = np.array([[0.0, 0.0], [3.5, 0.0], [0.0, -3.0]])
    safe = safe_targets(q, np.ones((3, 2)), np.ones((3, 2)), LIMITS)
    inside, qd, qdd = np.split(safe.rows, 3, axis=1)
    np.testing.assert_array_equal(inside, [[0, 0], [3.1, 0], [0, -2.9]])
    np.testing.assert_array_equal(qd, [[1, 1], [0, 1], [1, 0]])
    np.testing.assert_array_equal(qdd, qd)
    np.testing.assert_array_equal(safe.cut, [False, True, True])


CARELESS = [
    *({"torque_rate": wrong} for wrong in (0.0, np.inf, np.nan)),
    *({"margin": wrong} for wrong in (-0.01, 0.5, np.nan)),
    *({"horizon": wrong} for wrong in (-0.01, np.inf)),
    {"feed_forward": -1.0},
    {"slack": np.inf},
    {"patience": 0},
]


@pytest.mark.parametrize("setting", CARELESS, ids=str)
def test_a_guard_cannot_be_careless_by_mistake(setting):
    with pytest.raises(SettingsError, match=str(next(iter(setting)))):
        GuardSettings(**setting)


def test_nobody_changes_a_guards_settings_later():
    with pytest.raises(FrozenInstanceError):
        setattr(GuardSettings(), "slack", np.inf)  # noqa: B010  # the type checker would not let it


def test_a_guard_may_look_at_the_joints_range_alone():
    guard = Guard(LIMITS, DT, GuardSettings(margin=0.0, horizon=0.0))
    ends = JointState(0.0, np.array([LIMITS.lower[0], LIMITS.upper[1]]), np.array([-9.0, 9.0]))
    for state, near in ((ends, 0), (ends._replace(q=1.001 * ends.q), 1)):
        guard.torque(state, np.zeros(2), np.zeros(2))
        assert guard.counts["near_limit"] == near
