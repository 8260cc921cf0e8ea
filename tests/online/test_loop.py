"""The control loop: it tracks, it never waits, and no fault lets a torque out of bounds."""

import errno
import json
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from delan.errors import DataError, SettingsError
from delan.joints import JointLimits, JointState, JointTarget, Trajectory
from delan.logs.recording_file import read_recording_file
from delan.models.model import Blueprint
from delan.models.networks import FeedForwardSettings
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines
from delan.online import recorder as recorder_module
from delan.online.admission import Admission, AdmissionSettings, Window
from delan.online.clocks import SteppedClock, WallClock
from delan.online.controller import (
    Compiled,
    Direct,
    FeedForward,
    Gains,
    NoFeedForward,
)
from delan.online.guard import GuardSettings
from delan.online.learner_process import Learner
from delan.online.loop import LoopSettings, run_loop
from delan.online.recorder import Recorder, RecordingFormat
from delan.online.rig import Observers, Rig
from delan.online.schedule import make_schedule
from delan.online.stats import LoopProgress, LoopResult, row_layout
from delan.robots import ARMS
from delan.robots.arms import TWO_LINK, letter_motion
from delan.robots.mujoco_robot import MujocoRobot
from delan.robots.robot import LOW_GAINS, low_gains
from tests.support.stand_ins import (
    CHAIN,
    TWO_LINK_BODY,
    SlowFeedForward,
    StallingClock,
    StandInLearner,
    Witness,
    chain_weights,
    endless,
    jumped,
    no_numbers,
    with_motors,
)

DT = 0.002
LETTER = letter_motion("e", dt=DT)
LIMITS = TWO_LINK.limits
CONTENT = RecordingFormat(TWO_LINK.joints, row_layout(2), DT)


OBSERVERS = ("progress", "onlooker", "stop", "warn")


def run(
    feed_forward: FeedForward | None = None,
    reference: Trajectory | Sequence[Trajectory] = LETTER,
    *,
    robot: Witness | None = None,
    clock: Any = None,
    **more: Any,
) -> LoopResult:
    """A run of the two-link arm by the stepped clock, under the eyes of a witness."""
    robot = robot or Witness(MujocoRobot.of(TWO_LINK))
    feed_forward = feed_forward or Direct(TWO_LINK_BODY)
    parts = {name: more.pop(name, None) for name in ("learner", "recorder")}
    rig = Rig(robot, LOW_GAINS["two_link"], feed_forward, **parts)
    seen = {name: more.pop(name) for name in OBSERVERS if name in more}
    observers = Observers(**seen)
    result = run_loop(rig, reference, clock or SteppedClock(), observers=observers, **more)
    tau = np.array(robot.torques)[: len(result.tau)]
    np.testing.assert_array_equal(result.tau, tau)
    assert len(result.t) == result.stats.periods
    np.testing.assert_allclose(result.stats.torque_max, np.abs(tau).max(axis=0))
    json.dumps(result.as_dict(), allow_nan=False)
    return result


def cut(motion: Trajectory, rows: int) -> Trajectory:
    return replace(
        motion, **{name: getattr(motion, name)[:rows] for name in ("t", "q", "qd", "qdd")}
    )


def still(seconds: float, q: Sequence[float] = (0.3, 0.5)) -> Trajectory:
    t = np.arange(round(seconds / DT)) * DT
    rows = np.tile(np.array(q), (len(t), 1))
    return Trajectory(t=t, q=rows, qd=0 * rows, qdd=0 * rows, label="still")


def test_the_better_the_model_the_better_the_tracking():
    none, gravity, whole = (
        run(feed_forward).tracking.mse_sum
        for feed_forward in (
            NoFeedForward(TWO_LINK.joints),
            Direct(TWO_LINK_BODY, at_rest=True),
            Direct(TWO_LINK_BODY),
        )
    )
    assert whole < 1e-3 * gravity < 1e-3 * 0.2 * none
    assert 0.05 < np.sqrt(none) < 0.3


def test_a_desired_state_at_200_hz_is_held_in_between():
    """At 500 Hz, updates at 200 Hz are due in periods 0, 3, 5, 8, 10, …"""
    result = run(NoFeedForward(TWO_LINK.joints), settings=LoopSettings(reference_rate=200.0))
    gains = LOW_GAINS["two_link"]
    due = np.ceil(np.arange(len(result.t)) * 2.5 - 1e-9).astype(int)
    held = due[np.searchsorted(due, np.arange(len(result.t)), side="right") - 1]
    wanted = gains.stiffness * (result.q_des[held] - result.q)
    wanted = wanted + gains.damping * (result.qd_des[held] - result.qd)
    np.testing.assert_allclose(result.tau, wanted, atol=1e-9)
    assert held[:6].tolist() == [0, 0, 0, 3, 3, 5]
    # The log has the reference itself, so that the tracking error is that of its sampling points.
    every_period = run(NoFeedForward(TWO_LINK.joints))
    np.testing.assert_array_equal(result.q_des, every_period.q_des)


def test_braking_is_followed_in_every_period():
    stop = threading.Event()
    settings = LoopSettings(reference_rate=2.0)

    def progress(now: LoopProgress) -> None:
        if now.t >= 0.6:
            stop.set()

    result = run(Direct(TWO_LINK_BODY), settings=settings, stop=stop, progress=progress)
    assert result.ended == "interrupted"
    assert np.abs(result.qd[-1]).max() < 0.05 * np.abs(result.qd).max()


@pytest.mark.parametrize("name", ["wam4", "wam7"])
def test_the_wams_low_gains_hold_it_and_no_more(name):
    arm = ARMS[name]
    motion = cosines(arm.limits, key=jax.random.key(0), duration=2.5).sample(DT)
    found = {}
    for kind, feed_forward in (
        ("none", NoFeedForward(arm.joints)),
        ("whole", Direct(RigidBody.from_urdf(arm.urdf()))),
    ):
        robot = Witness(MujocoRobot.of(arm))
        result = run_loop(Rig(robot, low_gains(arm), feed_forward), motion, SteppedClock())
        found[kind] = result.tracking.mse_sum
        assert np.abs(result.qd).max() < 2 * np.abs(result.qd_des).max() + 1
    assert found["whole"] < 1e-2 * found["none"]
    assert np.sqrt(found["none"]) < 1.0


def test_the_whole_run_is_told():
    result = run(reference=cut(LETTER, 300))
    assert result.ended == "finished"
    np.testing.assert_allclose(result.t, np.arange(300) * DT)
    np.testing.assert_array_equal(result.q_des, LETTER.q[:300])
    np.testing.assert_array_equal(result.qdd_des, LETTER.qdd[:300])
    np.testing.assert_array_equal(result.q[0], LETTER.q[0])
    assert result.state.t == pytest.approx(300 * DT)
    mse = np.mean((result.q_des - result.q) ** 2, axis=0)
    np.testing.assert_allclose(result.tracking.mse, mse)
    shown = result.as_dict()
    assert shown["tracking"]["mse_sum"] == pytest.approx(mse.sum())
    assert {
        "periods",
        "missed",
        "late_feedforward",
        "lost_samples",
        "swaps",
        "refused",
        "torque_max",
    } <= set(shown["loop"])
    assert shown["loop"]["lateness_us"] == {"p50": 0.0, "p99": 0.0, "max": 0.0}
    assert set(shown["loop"]["parts_us"]) >= {
        "feed_forward",
        "gate",
        "robot",
        "learner",
        "recorder",
    }
    assert not any(result.stats.guard.values())


def learning_run(**more: Any) -> tuple[LoopResult, StandInLearner]:
    """A run that gets a model half as heavy as the arm at 0.6 s and the true one at 1 s."""
    learner = StandInLearner(CHAIN, {0.6: chain_weights(0.5), 1.0: chain_weights()})
    return run(
        Compiled(CHAIN), [LETTER, letter_motion("c", dt=DT)], learner=learner, **more
    ), learner


def test_models_are_taken_when_they_come_and_tracking_gets_better():
    result, learner = learning_run()
    assert isinstance(learner, Learner)
    assert result.stats.swaps == 2
    assert [event.kind for event in result.events] == ["swap", "swap"]
    np.testing.assert_allclose([event.t for event in result.events], [0.6 + DT, 1.0 + DT])
    assert result.first_model_seconds == pytest.approx(0.6 + DT)
    first, second = result.segments
    assert (first.label, second.label) == ("e", "c")
    assert second.tracking.mse_sum < 1e-3 * first.tracking.mse_sum
    np.testing.assert_array_equal(np.unique(result.model), [0, 1, 2])
    assert (result.tau_ff[result.t < 0.6] == 0).all()
    assert (learner.started, learner.closed, len(learner.given)) == (1, 0, len(result.t))
    for row, (t, q, qd, tau) in enumerate(learner.given):
        assert t == result.t[row]
        np.testing.assert_array_equal(
            [q, qd, tau], [result.q[row], result.qd[row], result.tau[row]]
        )


def test_two_runs_are_equal_to_the_last_bit():
    (item, _), (other, _) = learning_run(), learning_run()
    for name in ("q", "qd", "tau", "tau_ff"):
        np.testing.assert_array_equal(getattr(item, name), getattr(other, name))
    assert item.events == other.events


def test_a_frozen_model_stays_and_the_learner_is_left_alone():
    learner = StandInLearner(CHAIN, {0.0: chain_weights()})
    feed_forward = Compiled(CHAIN, chain_weights(0.5))
    result = run(feed_forward, learner=learner, settings=LoopSettings(training=False))
    assert (learner.started, learner.given, learner.polled, result.stats.swaps) == (0, [], 0, 0)
    np.testing.assert_array_equal(feed_forward.weights, chain_weights(0.5))


def test_torques_are_refreshed_at_their_own_rate():
    feed_forward = SlowFeedForward(TWO_LINK.joints)
    result = run(feed_forward, cut(LETTER, 20))
    fresh = np.flatnonzero(np.diff(result.tau_ff[:, 0], prepend=0.0))
    np.testing.assert_array_equal(fresh, [0, 3, 5, 8, 10, 13, 15, 18])
    for k, target in zip(
        fresh, feed_forward.begun[: len(fresh)], strict=True
    ):  # another one is under way
        np.testing.assert_array_equal(np.stack(target), [LETTER.q[k], LETTER.qd[k], LETTER.qdd[k]])
    assert result.stats.late_feedforward == 0


def test_a_late_torque_is_counted_and_the_old_one_used():
    feed_forward = SlowFeedForward(TWO_LINK.joints, patience=2)
    settings = LoopSettings(feed_forward_rate=500.0)
    result = run(feed_forward, cut(LETTER, 30), settings=settings)
    # Asked for once before the first period and then once a period, each torque is there at the
    # third time.
    np.testing.assert_allclose(
        result.tau_ff[:10, 0], 0.01 * np.array([0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    )
    assert result.stats.late_feedforward == 30
    assert result.stats.missed == 0


def test_missed_periods_pass_under_the_old_torque_and_the_reference_moves_on():
    robot = Witness(MujocoRobot.of(TWO_LINK))
    stalls = {0.1: 7.5 * DT, 0.4: 2.25 * DT}
    result = run(robot=robot, clock=StallingClock(stalls))
    assert (result.stats.periods, result.stats.missed) == (len(LETTER.t), 9)
    np.testing.assert_array_equal(result.q_des, LETTER.q)
    np.testing.assert_array_equal(result.tau[50:57], np.tile(result.tau[49], (7, 1)))
    np.testing.assert_array_equal(result.tau[200:202], np.tile(result.tau[199], (2, 1)))
    assert (result.tau[57] != result.tau[56]).any()
    assert robot.robot.data.time == pytest.approx(len(LETTER.t) * DT)  # pyright: ignore[reportAttributeAccessIssue]
    assert 0 < result.stats.late_feedforward <= 2
    assert result.stats.lateness_us.max == pytest.approx(0.5 * DT * 1e6)
    assert result.tracking.mse_sum < 1e-4


def test_a_robot_that_moves_by_itself_is_not_stepped_through_missed_periods(tmp_path):
    clock, learner = StallingClock({0.1: 7.5 * DT}), StandInLearner(CHAIN)

    class Real(Witness):
        """Its step takes a period."""

        def step(self, tau: np.ndarray) -> JointState:
            clock.sleep_until(clock.now() + 0.999 * DT)
            return super().step(tau)

    robot, gains = Real(MujocoRobot.of(TWO_LINK)), LOW_GAINS["two_link"]
    settings, reference = LoopSettings(catches_up=False), cut(LETTER, 100)
    with Recorder(tmp_path / "a.run", CONTENT) as recorder:
        rig = Rig(robot, gains, Compiled(CHAIN), learner=learner, recorder=recorder)
        result = run_loop(rig, reference, clock, settings=settings)
    assert (result.ended, result.stats.periods, result.stats.missed) == ("finished", 100, 7)
    assert len(robot.torques) == 93
    np.testing.assert_allclose(result.t, np.arange(100) * DT)
    for name in ("q", "tau", "q_des"):
        np.testing.assert_array_equal(
            getattr(result, name)[50:57], np.tile(getattr(result, name)[49], (7, 1))
        )
    np.testing.assert_array_equal(result.q_des[57:], LETTER.q[57:100])
    acted = np.delete(result.t, slice(50, 57))
    np.testing.assert_array_equal(read_recording_file(tmp_path / "a.run").t, acted)
    np.testing.assert_array_equal(
        [row[0] for row in learner.given], np.delete(acted, 50)
    )  # that state is of before


def test_a_robot_that_moves_by_itself_may_miss_the_first_periods_and_the_last():
    robot = Witness(MujocoRobot.of(TWO_LINK))
    clock, settings = StallingClock({0.0: 3.5 * DT, 0.1: 1.0}), LoopSettings(catches_up=False)
    rig = Rig(robot, LOW_GAINS["two_link"], Direct(TWO_LINK_BODY))
    result = run_loop(rig, cut(LETTER, 100), clock, settings=settings)
    assert (result.ended, result.stats.periods, result.stats.missed) == ("finished", 100, 53)
    assert np.isfinite(np.hstack([result.q, result.qd, result.tau, result.q_des])).all()
    np.testing.assert_array_equal(result.q[:4], np.tile(LETTER.q[0], (4, 1)))


LONG = [letter_motion(letter, dt=DT) for letter in "eczs"]


def held_gently(result: LoopResult, first: int, now: int) -> None:
    """Assert that a stall of periods [first, now) was followed by a hold and a smooth return."""
    labels = np.array(result.labels)[result.piece]
    stall = labels == "stall"
    hold = round(LoopSettings().stop / DT)
    assert np.flatnonzero(stall)[0] == first
    assert stall[first : now + hold].all()
    assert not stall[-100:].any()
    # Held where it was found: no torque near the limit, no jump.
    after = result.tau[now - 1 : now + hold] / LIMITS.torque
    assert np.abs(after[1:]).max() < 0.6
    assert np.abs(np.diff(after, axis=0)).max() <= GuardSettings().hold_rate * DT + 1e-9
    # Back on the motion: targets are smooth, and it is followed as before.
    q_des = result.q_des[now + 2 :]
    np.testing.assert_allclose(
        np.gradient(q_des, DT, axis=0)[5:-5], result.qd_des[now + 2 :][5:-5], atol=0.05
    )
    assert np.abs(result.q_des - result.q)[-100:].max() < 0.05
    # The rows of a piece are consecutive, as a log requires.
    changes = np.flatnonzero(np.diff(result.piece))
    assert len(changes) + 1 == len(np.unique(result.piece))
    assert (result.stats.stalls, [event.kind for event in result.events]) == (1, ["stall"])
    assert "stood still for" in result.events[0].text


def test_after_a_stall_the_robot_is_held_before_it_follows_again(tmp_path):
    path, robot = tmp_path / "a.run", Witness(MujocoRobot.of(TWO_LINK))
    with Recorder(path, CONTENT) as recorder:
        clock = StallingClock({1.0: 3.0})
        result = run(reference=LONG, robot=robot, clock=clock, recorder=recorder)
    assert result.ended == "finished"
    held_gently(result, 500, 2001)
    np.testing.assert_array_equal(read_recording_file(path).trajectory, result.piece)
    starts = [segment.start for segment in result.segments]
    assert starts == sorted(starts)


def test_a_robot_that_moves_by_itself_is_held_where_it_is_found_after_a_stall(tmp_path):
    clock = StallingClock({1.0: 3.0})

    class Real(Witness):
        """It moves on under the last torque, or a damping one after a while, seen or not."""

        moved = 0
        last = np.zeros(2)

        def step(self, tau: np.ndarray) -> JointState:
            gone = round(clock.now() / DT) - self.moved
            assert isinstance(self.robot, MujocoRobot)
            for k in range(gone):
                speed = self.robot.state().qd
                self.robot.step(self.last if k < 20 else -0.5 * speed)
            self.moved += gone + 1
            self.last = tau.copy()
            return super().step(tau)

    robot = Real(MujocoRobot.of(TWO_LINK))
    settings = LoopSettings(catches_up=False)
    with Recorder(tmp_path / "a.run", CONTENT) as recorder:
        rig = Rig(robot, LOW_GAINS["two_link"], Direct(TWO_LINK_BODY), recorder=recorder)
        result = run_loop(rig, LONG, clock, settings=settings)
    assert (result.ended, result.stats.guard["state"]) == ("finished", 0)
    held_gently(result, 500, 2002)
    recorded = read_recording_file(tmp_path / "a.run")
    assert len(recorded.t) == result.stats.periods - 1500


def test_a_stop_during_a_stall_still_brakes():
    stop = threading.Event()

    class Asked(StallingClock):
        def sleep_until(self, t: float) -> None:
            super().sleep_until(t)
            if self.now() > 3.0:
                stop.set()

    result = run(reference=LONG, clock=Asked({1.0: 3.0}), stop=stop)
    assert result.ended == "interrupted"
    assert 4.0 < result.t[-1] < 4.0 + 2 * LoopSettings().stop + 0.02
    assert np.abs(result.tau[2001:] / LIMITS.torque).max() < 0.6


def test_a_stall_that_outlasts_the_reference_ends_the_run():
    result = run(reference=cut(LETTER, 100), clock=StallingClock({0.1: 10.0}))
    assert (result.ended, result.stats.periods, result.stats.missed) == ("finished", 100, 50)


def test_letters_are_joined_by_moves_that_are_not_scored():
    letters = [LETTER, letter_motion("z", dt=DT)]
    robot = Witness(MujocoRobot.of(TWO_LINK))
    result = run(reference=letters, robot=robot)
    assert robot.resets == 1
    assert (result.labels, result.scored) == (("e", "to z", "z"), (True, False, True))
    assert [segment.label for segment in result.segments] == ["e", "z"]
    assert np.abs(np.diff(result.q_des, axis=0)).max() < 1.1 * DT * np.abs(result.qd_des).max()
    np.testing.assert_allclose(
        np.gradient(result.q_des, DT, axis=0)[5:-5], result.qd_des[5:-5], atol=0.02
    )
    both = np.concatenate([(result.q_des - result.q)[result.piece == piece] for piece in (0, 2)])
    np.testing.assert_allclose(result.tracking.mse, np.mean(both**2, axis=0))
    np.testing.assert_allclose(result.segments[1].seconds, letters[1].t[-1] + DT)


def test_a_run_goes_on_where_another_ended():
    robot = Witness(MujocoRobot.of(TWO_LINK))
    first = run(robot=robot)
    robot.torques.clear()
    second = run(reference=letter_motion("z", dt=DT), robot=robot, start=first.state)
    assert robot.resets == 1
    assert second.labels == ("to z", "z")
    np.testing.assert_array_equal(second.q[0], first.state.q)
    assert second.t[0] == pytest.approx(len(LETTER.t) * DT)


GATE = AdmissionSettings(window=0.5, least=0.1)


@cache
def seen_run() -> LoopResult:
    return run()


def watch(window: Window, periods: int) -> None:
    """Show a window so many periods of the arm in motion."""
    seen = seen_run()
    states = [JointState(*row) for row in zip(seen.t, seen.q, seen.qd, strict=True)]
    for k in range(periods):
        window.add(states[k], seen.tau[k], states[k + 1])


def watched_gate(
    blueprint: Blueprint, in_use: np.ndarray | None = None
) -> tuple[Admission, np.ndarray]:
    """A gate that has seen half a second of the arm in motion, and what was wanted then."""
    gate = Admission(Compiled(blueprint, in_use), LIMITS, DT, GATE)
    gate.prepare()
    watch(gate.window, 300)
    return gate, make_schedule(LETTER, LIMITS, DT).recent(299, *gate.wanted)


TRUE, HALF = chain_weights(), chain_weights(0.5)
CANDIDATES = {
    "not a number": (np.where(np.arange(CHAIN.size) == 7, np.nan, TRUE), TRUE, "not finite"),
    "of another model": (TRUE[:-1], TRUE, "not finite"),
    "garbage": (np.random.default_rng(0).normal(0, 10, CHAIN.size), None, "torque"),
    "so large that it overflows": (1e200 * TRUE, None, "inertia"),
    "no better than no torque": (chain_weights(2.5), None, "no better"),
    "worse": (chain_weights(0.9), TRUE, "no better"),
    "the same": (TRUE, TRUE, "no better"),
    "better": (chain_weights(0.9), HALF, None),
    "better than no torque": (HALF, None, None),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_only_better_models_pass_the_gate(name):
    weights, in_use, cause = CANDIDATES[name]
    gate, wanted = watched_gate(CHAIN, in_use)
    gate.offer(weights, wanted)
    assert gate.busy
    verdict = gate.verdict(wait=True)
    assert verdict is not None
    assert verdict.cause == cause
    assert not gate.busy
    assert gate.verdict(wait=True) is None
    assert sum(gate.refused.values()) == (cause is not None)
    used = gate._feed_forward.weights
    if cause is None:
        np.testing.assert_array_equal(used, weights)
    else:
        assert gate.refused[cause] == 1
        assert (used is None) == (in_use is None)
        np.testing.assert_array_equal(
            0.0 if used is None else used, 0.0 if in_use is None else in_use
        )


def test_an_inertia_that_is_not_positive_definite_is_refused():
    """A rotor of negative inertia, as no fit would leave it."""
    blueprint, weights = with_motors(("armature",), {"armature": -0.1})
    gate, wanted = watched_gate(blueprint)
    gate.offer(weights, wanted)
    verdict = gate.verdict(wait=True)
    assert verdict is not None
    assert verdict.cause == "inertia"


def test_a_model_without_mechanics_is_judged_by_its_torque_alone():
    blueprint = Blueprint.named(TWO_LINK.joints, FeedForwardSettings(width=8))
    gate, wanted = watched_gate(blueprint)
    for scale, cause in ((-1e-2, "no better"), (1e6, "torque"), (1e-2, None)):
        gate.offer(np.full(blueprint.size, scale), wanted)
        verdict = gate.verdict(wait=True)
        assert verdict is not None
        assert verdict.cause == cause


def test_friction_with_memory_passes_the_gate():
    blueprint, weights = with_motors(("stops",), {"stop 0.01": 0.01})
    gate, wanted = watched_gate(blueprint)
    gate.offer(weights, wanted)
    verdict = gate.verdict(wait=True)
    assert verdict is not None
    assert verdict.cause is None


def test_a_verdict_is_not_waited_for():
    class Computing:
        def is_ready(self) -> bool:
            return False

        def __array__(self, *_: Any) -> np.ndarray:
            raise AssertionError("waited for")

    gate, wanted = watched_gate(CHAIN, HALF)
    gate.offer(TRUE, wanted)
    assert gate.verdict() is None
    begun, gate._running = gate._running, Computing()
    for _ in range(3):
        assert gate.verdict() is None
    assert gate.busy
    gate._running = begun
    verdict = gate.verdict(wait=True)
    assert verdict is not None
    assert verdict.cause is None


def test_nothing_is_judged_by_a_handful_of_samples():
    gate = Admission(Compiled(CHAIN), LIMITS, DT, GATE)
    gate.prepare()
    gate.offer(TRUE, np.zeros((gate.wanted[1], 6)))
    assert gate.verdict() == ("too early", *[pytest.approx(np.nan, nan_ok=True)] * 2)


def test_samples_of_the_window_obey_the_equation_of_motion():
    for span, tolerance in ((1, 2e-4), (3, 2e-3)):
        window = Window(2, DT, AdmissionSettings(window=1.0, span=span))
        watch(window, 600)
        assert window.seen >= window.size == round(1.0 / DT / span)
        q, qd, qdd, tau = np.split(window.rows, 4, axis=1)
        expected = np.array(
            [TWO_LINK_BODY.inverse_dynamics(*row) for row in zip(q, qd, qdd, strict=True)]
        )
        assert np.abs(tau - expected).max() < tolerance * np.abs(tau).max()


def test_bad_models_do_not_reach_the_robot():
    bad = np.full(CHAIN.size, np.nan)
    offers = {0.4: bad, 0.45: 1e3 * TRUE, 0.5: chain_weights(3.0), 0.6: TRUE, 0.7: HALF, 0.8: bad}
    result = run(Compiled(CHAIN), learner=StandInLearner(CHAIN, offers))
    assert result.stats.swaps == 1
    assert result.stats.refused == {
        "not finite": 2,
        "too early": 0,
        "inertia": 0,
        "torque": 1,
        "no better": 2,
    }
    assert result.as_dict()["loop"]["refused"] == 5
    assert result.stats.guard["feed_forward"] == 0
    late = result.t > 1.0
    assert np.abs(result.q_des - result.q)[late].max() < 0.02


def test_a_dead_learner_is_seen_to_and_the_loop_goes_on():
    learner = StandInLearner(CHAIN, {0.5: TRUE})
    learner.alive = False
    learner.watch = lambda: (
        setattr(learner, "restarts", learner.restarts + 1),
        setattr(learner, "alive", True),
    )[0]
    result = run(Compiled(CHAIN), [LETTER, LETTER], learner=learner)
    assert result.ended == "finished"
    assert result.stats.restarts == learner.restarts == int(result.t[-1]) + 1
    assert result.stats.swaps == 1
    assert [event.kind for event in result.events].count("restart") == result.stats.restarts


def test_a_learner_that_was_killed_while_it_started_is_told():
    learner = StandInLearner(CHAIN)
    learner.start = lambda: setattr(learner, "restarts", 2)
    told: list[str] = []
    result = run(Compiled(CHAIN), learner=learner, warn=told.append)
    assert result.ended == "finished"
    assert result.stats.restarts == 2
    assert [(event.t, event.kind) for event in result.events] == [(0.0, "restart")]
    assert told == [result.events[0].text]


def test_what_the_learner_lost_and_noticed_is_told():
    learner = StandInLearner(CHAIN)
    learner.lost = 5

    def lossy(t: float, q: np.ndarray, qd: np.ndarray, tau: np.ndarray) -> None:
        learner.lost += t > 1.0

    learner.give = lossy
    learner.events = ((0.7, "the robot has changed"),)
    result = run(Compiled(CHAIN), learner=learner)
    assert result.stats.lost_samples == np.count_nonzero(result.t > 1.0)
    assert result.events == ((0.7, "learner", "the robot has changed"),)
    assert result.as_dict()["events"] == [
        {"t": 0.7, "kind": "learner", "text": "the robot has changed"}
    ]


FAULTS = {"no number": no_numbers, "endless": endless, "jump": jumped}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_state_now_and_then_is_passed_over(fault):
    robot = Witness(
        MujocoRobot.of(TWO_LINK), {100: FAULTS[fault], 101: FAULTS[fault], 300: FAULTS[fault]}
    )
    learner = StandInLearner(CHAIN, {0.5: TRUE})
    result = run(Compiled(CHAIN), robot=robot, learner=learner)
    assert (result.ended, result.stats.guard["state"], result.stats.swaps) == ("finished", 3, 1)
    assert np.isfinite(result.q).all()
    assert len(learner.given) == len(result.t) - 3
    assert np.isfinite(np.concatenate([row[1] for row in learner.given])).all()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_robot_that_tells_nothing_any_more_is_stopped(fault):
    faults = dict.fromkeys(range(200, 1000), FAULTS[fault])
    robot = Witness(MujocoRobot.of(TWO_LINK), faults)
    result = run(robot=robot)
    assert result.ended == "stopped"
    assert "not finite or jumped" in result.reason
    assert result.stats.periods < 200 + GuardSettings().patience + 2 * 150 + 2
    braking = LOW_GAINS["two_link"].damping * np.abs(result.qd[-100:])
    assert (np.abs(result.tau[-100:]) <= braking + 1e-12).all()
    assert not result.interrupted


def test_a_robot_that_never_told_anything_is_stopped():
    class Blind(Witness):
        def reset(self, q: Any = None, qd: Any = None) -> JointState:
            return no_numbers(super().reset(q, qd))

    result = run(robot=Blind(MujocoRobot.of(TWO_LINK), no_numbers))
    assert result.ended == "stopped"


def test_a_reference_out_of_reach_is_cut_off():
    t = np.arange(1500) * DT
    q = np.stack([0.5 * np.sin(2 * t), 4.0 * np.sin(1.5 * t)], axis=1)
    qd = np.stack([np.cos(2 * t), 6.0 * np.cos(1.5 * t)], axis=1)
    qdd = np.stack([-2 * np.sin(2 * t), -9.0 * np.sin(1.5 * t)], axis=1)
    result = run(reference=Trajectory(t=t, q=q, qd=qd, qdd=qdd, label="too far"))
    beyond = np.abs(q[:, 1]) > LIMITS.upper[1]
    assert result.stats.guard["target"] == np.count_nonzero(beyond)
    assert (np.abs(result.q_des) <= LIMITS.upper).all()
    assert (result.qd_des[beyond, 1] == 0).all()
    assert (np.abs(result.q) < LIMITS.upper + 0.05).all()
    assert result.stats.guard["near_limit"] > 0


def test_a_model_gone_mad_leaves_pd_control():
    class Mad(NoFeedForward):
        def ready(self, *, wait: bool = False) -> np.ndarray:
            return np.array([1e6, np.nan])

    result = run(Mad(TWO_LINK.joints))
    sane = run(NoFeedForward(TWO_LINK.joints))
    assert result.stats.guard["feed_forward"] == result.stats.periods
    np.testing.assert_array_equal(result.tau, sane.tau)


def stopping_at(t: float, act: Any) -> Any:
    return lambda progress: act() if progress.t >= t else None


@pytest.mark.parametrize("how", [None, signal.SIGINT, signal.SIGTERM])
def test_a_stop_brakes_the_robot_first_and_the_result_is_whole(how):
    stop = threading.Event()
    # A shell starts what runs in the background with SIGINT ignored, and then the loop ignores it.
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Raised in this thread: a signal to the process may wait for a thread that gets no processor,
    # while a stepped clock goes on.
    act = stop.set if how is None else (lambda: signal.raise_signal(how))
    before = [signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM)]
    result = run(progress=stopping_at(0.8, act), stop=stop)
    assert [signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM)] == before
    signal.signal(signal.SIGINT, ignored)
    assert (result.ended, result.interrupted) == ("interrupted", True)
    assert 0.8 < result.t[-1] < 0.8 + 2 * LoopSettings().stop + 0.01
    assert np.abs(result.qd[result.piece == 0][-1]).max() > 0.5
    assert np.abs(result.qd[-1]).max() < 0.02
    assert (result.labels[-1], result.scored[-1]) == ("stop", False)
    assert np.isfinite(result.tau).all()
    np.testing.assert_allclose(
        np.gradient(result.q_des, DT, axis=0)[5:-5], result.qd_des[5:-5], atol=0.05
    )


def test_a_handler_of_the_callers_own_for_sigterm_is_left_to_it():
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        result = run(
            reference=cut(LETTER, 100), progress=lambda _: signal.raise_signal(signal.SIGTERM)
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (result.ended, heard) == ("finished", [signal.SIGTERM])


def test_a_fault_of_the_caller_turns_the_motors_off():
    robot = Witness(MujocoRobot.of(TWO_LINK))

    def broken(_: LoopProgress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(robot=robot, progress=broken)
    np.testing.assert_array_equal(robot.torques[-1], 0.0)


def test_progress_is_told_now_and_then():
    shown: list[LoopProgress] = []
    learner = StandInLearner(CHAIN, {0.6: TRUE, 0.7: HALF})
    result = run(Compiled(CHAIN), learner=learner, progress=shown.append)
    np.testing.assert_allclose([item.t for item in shown], np.arange(len(shown)) * 0.2, atol=1e-9)
    assert (shown[-1].swaps, shown[-1].refused, shown[-1].label) == (1, 1, "e")
    assert shown[0].model_age is None
    assert shown[-1].model_age == pytest.approx(shown[-1].t - 0.6 - DT)
    second = result.t > shown[-1].t - 1.0 + DT / 2
    second &= result.t <= shown[-1].t + DT / 2
    np.testing.assert_allclose(
        shown[-1].error, np.sqrt(np.mean((result.q_des - result.q)[second] ** 2, axis=0))
    )


def test_what_was_recorded_is_what_was_told(tmp_path):
    path = tmp_path / "a.run"
    with Recorder(path, CONTENT) as recorder:
        result = run(reference=[LETTER, letter_motion("c", dt=DT)], recorder=recorder)
    recording = read_recording_file(path)
    for name in ("t", "q", "qd", "tau"):
        np.testing.assert_array_equal(getattr(recording, name), getattr(result, name))
    np.testing.assert_array_equal(recording.trajectory, result.piece)
    assert (result.stats.unrecorded, result.stats.recording_problem) == (0, None)


def test_on_disk_goes_what_the_robot_said_even_if_it_cannot_be(tmp_path):
    said: list[JointState] = []

    def remembered(state: JointState) -> JointState:
        said.append(jumped(state))
        return said[-1]

    path, robot = tmp_path / "a.run", Witness(MujocoRobot.of(TWO_LINK), {100: remembered})
    with Recorder(path, CONTENT) as recorder:
        result = run(reference=cut(LETTER, 200), robot=robot, recorder=recorder)
    recording, others = read_recording_file(path), np.arange(200) != 100
    assert recording.qd is not None
    np.testing.assert_array_equal([recording.q[100], recording.qd[100]], [said[0].q, said[0].qd])
    np.testing.assert_array_equal([result.q[100], result.qd[100]], [result.q[99], result.qd[99]])
    np.testing.assert_array_equal(recording.q[others], result.q[others])
    np.testing.assert_array_equal(recording.tau, result.tau)


def test_in_a_thread_of_its_own_it_does_the_same_and_can_be_stopped():
    found: dict[str, LoopResult] = {}
    stop = threading.Event()

    def lead(name: str, **more: Any) -> None:
        found[name] = run(reference=cut(LETTER, 100), **more)

    stop.set()
    for name, more in (("whole", {}), ("stopped", {"stop": stop})):
        thread = threading.Thread(target=lead, args=(name,), kwargs=more)
        thread.start()
        thread.join()
    np.testing.assert_array_equal(found["whole"].tau, run(reference=cut(LETTER, 100)).tau)
    stopped = found["stopped"]
    assert (stopped.ended, {stopped.labels[piece] for piece in stopped.piece}) == (
        "interrupted",
        {"stop"},
    )
    assert np.isnan(stopped.tracking.mse_sum)  # nothing wanted was followed
    assert stopped.as_dict()["tracking"] == {"mse": [None, None], "mse_sum": None, "segments": []}


def test_a_loop_that_never_came_to_act_says_so():
    result = run(reference=cut(LETTER, 50), clock=StallingClock({0.0: 10.0}))
    assert (result.stats.periods, result.stats.missed) == (50, 50)
    assert (result.tau == 0).all()
    assert result.stats.lateness_us == (0.0, 0.0, 0.0)


def test_a_full_disk_does_not_stop_the_robot(tmp_path, monkeypatch):
    with Recorder(tmp_path / "a.run", CONTENT, period=0.01) as recorder:

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def wait_for_the_disk(_: LoopProgress) -> None:
            while recorder.problem is None:
                time.sleep(0.01)

        monkeypatch.setattr(recorder_module, "_write_all", full)
        result = run(recorder=recorder, progress=wait_for_the_disk)
    assert result.ended == "finished"
    assert result.stats.unrecorded == len(LETTER.t)
    assert "No space left on device" in str(result.stats.recording_problem)


def test_a_full_disk_stops_the_robot_if_the_recording_is_required(tmp_path, monkeypatch):
    heard: list[str] = []
    path = tmp_path / "a.run"
    with Recorder(path, CONTENT, period=0.01, warn=heard.append) as recorder:

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def wait_for_the_disk(now: LoopProgress) -> None:
            if now.t > 0.3:
                monkeypatch.setattr(recorder_module, "_write_all", full)
            while now.t > 0.5 and recorder.problem is None:
                time.sleep(0.01)

        settings = LoopSettings(require_recording=True)
        result = run(recorder=recorder, progress=wait_for_the_disk, settings=settings)
    assert (result.ended, result.reason) == (
        "stopped",
        "the run cannot be recorded, which is required",
    )
    assert 0.5 < result.t[-1] < 0.6 + 2 * LoopSettings().stop + 0.01
    assert np.abs(result.qd[-1]).max() < 0.02
    assert heard == [recorder.problem]
    assert len(read_recording_file(path).t) == recorder.written > 0
    assert recorder.losses["recorded"] == recorder.written


@pytest.mark.parametrize("learned", [False, True])
def test_by_the_wall_clock_it_holds_the_time_and_the_counts_add_up(learned):
    motion = [cut(LETTER, 500), cut(still(1.0, LETTER.q[499].tolist()), 500)]
    learner = StandInLearner(CHAIN, {0.5: TRUE}) if learned else None
    feed_forward = Compiled(CHAIN) if learned else Direct(TWO_LINK_BODY)
    began = time.perf_counter()
    result = run(feed_forward, motion, clock=WallClock(), learner=learner)
    assert time.perf_counter() - began > 2.0 - 2 * DT
    stats = result.stats
    # On a machine too busy to hold the time the guard may end the run, and braking takes some
    # periods more.
    assert result.ended == "finished" or stats.missed > 0
    assert stats.periods == 1000 or result.ended == "stopped"
    assert 0 <= stats.missed < stats.periods
    assert 0 <= stats.late_feedforward <= stats.periods
    assert stats.swaps + sum(stats.refused.values()) <= learned
    assert 0 <= stats.lateness_us.p50 <= stats.lateness_us.p99 <= stats.lateness_us.max <= DT * 1e6
    assert learner is None or 0 < len(learner.given) <= stats.periods


def test_a_robot_of_another_rate_is_refused():
    robot = Witness(MujocoRobot.of(TWO_LINK, dt=0.004))
    with pytest.raises(SettingsError, match="500 Hz and the robot at 250 Hz"):
        run(robot=robot)


def test_what_belongs_to_another_robot_is_refused():
    with pytest.raises(
        SettingsError, match="the feed-forward are for 4 joints and the robot has 2"
    ):
        run(NoFeedForward(ARMS["wam4"].joints))
    gains = Gains(np.ones(3), np.ones(3))
    robot, none = MujocoRobot.of(TWO_LINK), NoFeedForward(TWO_LINK.joints)
    with pytest.raises(SettingsError, match="the gains are for 3 joints and the robot has 2"):
        run_loop(Rig(robot, gains, none), LETTER, SteppedClock())


def test_a_learner_needs_a_feed_forward_that_can_take_its_models():
    for feed_forward in (
        Direct(TWO_LINK_BODY),
        Compiled(Blueprint.named(TWO_LINK.joints, FeedForwardSettings())),
    ):
        with pytest.raises(
            SettingsError, match="a learner needs a feed-forward that can take its models"
        ):
            run(feed_forward, learner=StandInLearner(CHAIN))


BAD_REFERENCES = {
    "empty": ([], "reference: is empty"),
    "too slow": (
        letter_motion("e", dt=0.01),
        "e, column t, row 1: .*0.01 s; sample it",
    ),
    "of another robot": (
        cosines(ARMS["wam4"].limits, key=jax.random.key(0)).sample(DT),
        r"cosines, column q: expected positions of shape \(time, 2\), got \(5001, 4\)",
    ),
    "too fast": (
        cosines(LIMITS, key=jax.random.key(0), share=0.4).at_speed(10.0).sample(DT),
        r"cosines, column qd, row \d+: joint \d should move at 1\d(\.\d)? rad/s .* limit of 10",
    ),
    "no numbers": (
        replace(LETTER, qd=np.where(LETTER.t[:, None] < 0.01, LETTER.qd, np.nan)),
        "column qd, row 5",
    ),
}


@pytest.mark.parametrize("name", BAD_REFERENCES)
def test_a_reference_that_cannot_be_followed_is_refused(name):
    reference, problem = BAD_REFERENCES[name]
    with pytest.raises(DataError, match=problem):
        run(reference=reference)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"rate": 0.0}, "rate must be positive and finite, got 0.0"),
        (
            {"feed_forward_rate": 600.0},
            "feed_forward_rate is 600 Hz",
        ),
        ({"reference_rate": 501.0}, "reference_rate is 501 Hz, expected at most"),
        ({"reference_rate": 0.0}, "reference_rate is 0 Hz"),
        ({"stop": np.nan}, "stop must be positive and finite, got nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, problem):
    with pytest.raises(SettingsError, match=problem):
        LoopSettings(**settings)
    with pytest.raises(SettingsError, match="need 0 < least ≤ window"):
        AdmissionSettings(window=0.1)
    with pytest.raises(SettingsError, match=r"torque must be positive, got 0\.0"):
        AdmissionSettings(torque=0.0)


def test_letters_as_fast_as_the_arm_can_write_are_followed():
    assert make_schedule(letter_motion("e", speed=4.5, dt=DT), LIMITS, DT).end > 0


def test_moves_keep_to_a_share_of_the_speed_limit():
    limits = JointLimits(
        lower=-np.ones(2), upper=np.ones(2), velocity=np.array([1.0, 10.0]), torque=np.ones(2)
    )
    far, near = still(0.01, (0.9, 0.9)), still(0.01, (-0.9, -0.9))
    rows = make_schedule([far, near], limits, DT)
    speed = np.abs(np.array([rows.target(k).qd_des for k in range(rows.end)])).max(axis=0)
    assert 0.29 < speed[0] < 0.3001
    assert isinstance(rows.target(0), JointTarget)
