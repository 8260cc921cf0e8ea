"""Learning beside a running robot: samples from the past alone, a fair memory, and learners that
survive.
"""

import errno
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.errors import SettingsError
from delan.joints import Joints
from delan.logs.filters import CausalSampler
from delan.models.chain import LagrangianChainSettings
from delan.models.friction import FrictionSettings
from delan.models.model import Blueprint
from delan.models.networks import FeedForwardSettings, LagrangianNetworkSettings
from delan.online import learner_process as learner_module
from delan.online.channels import Latest
from delan.online.learner import (
    CHANGED,
    RETURNED,
    STALLED_STEPS,
    LearnerSettings,
    OnlineLearner,
    _Start,
)
from delan.online.learner_process import START_KILLS, LearnerError, ProcessLearner, SteppedLearner
from delan.online.learner_worker import LearnerNote, Place, Task, learn
from delan.online.process import is_alive

DT = 0.002
SMALL = LearnerSettings(rows=64, first=30, window=20)
PENDULUM = Blueprint(Joints.revolute(1), LagrangianChainSettings())


def swing(seconds: float, *, inertia: float = 0.5, start: float = 0.0) -> np.ndarray:
    """Rows (t, q, q̇, τ) of a pendulum whose torque is constant in each period, by integration in
    fine steps.
    """
    rows, q, qd = [], 0.3, 0.0
    for k in range(round(seconds / DT)):
        t = start + k * DT
        tau = 6 * np.sin(3 * t) + 4 * np.sin(7.3 * t) + 0.8 * 9.81 * np.cos(q)
        rows.append((t, q, qd, tau))
        for _ in range(10):
            qdd = (tau - 0.8 * 9.81 * np.cos(q)) / inertia
            q, qd = q + DT / 10 * qd + (DT / 10) ** 2 * qdd / 2, qd + DT / 10 * qdd
    return np.array(rows)


def test_samples_obey_the_equation_of_motion_to_second_order():
    samples = CausalSampler(1, DT, rate=500.0, cutoff=None).push(swing(2.0))
    q, _, qdd, tau = samples.T
    np.testing.assert_allclose(0.5 * qdd + 0.8 * 9.81 * np.cos(q), tau, atol=2e-2)


def test_the_low_pass_delays_all_signals_alike():
    samples = CausalSampler(1, DT, rate=500.0, cutoff=25.0).push(swing(2.0))
    q, _, qdd, tau = samples.T
    error = 0.5 * qdd + 0.8 * 9.81 * np.cos(q) - tau
    assert np.sqrt(np.mean(error**2)) < 5e-3 * tau.std()


def test_pieces_give_the_same_samples_as_the_whole():
    rows = swing(1.0)
    whole = CausalSampler(1, DT).push(rows)
    sampler = CausalSampler(1, DT)
    pieces = [sampler.push(part) for part in np.split(rows, [3, 50, 51, 300])]
    np.testing.assert_allclose(np.vstack(pieces), whole, atol=1e-12)


def test_no_sample_reaches_over_a_gap_or_a_number_that_is_none():
    rows = swing(2.0)
    rows[700, 1] = np.nan
    sampler = CausalSampler(1, DT, rate=500.0, cutoff=None)
    samples = sampler.push(np.delete(rows, slice(300, 320), axis=0))
    assert np.isfinite(samples).all()
    assert np.abs(samples[:, 2]).max() < 60  # a difference over the gap would be far larger
    assert len(samples) == len(rows) - 20 - 1 - 1 - 2


def test_a_wrong_rate_or_cut_off_is_refused():
    with pytest.raises(SettingsError, match="between 0 and half the control rate, 250 Hz, got 300"):
        CausalSampler(1, DT, cutoff=300.0)
    with pytest.raises(SettingsError, match="between 0 and the control rate, 500 Hz, got 900"):
        CausalSampler(1, DT, rate=900.0)


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(LagrangianChainSettings(), id="chain"),
        pytest.param(LagrangianNetworkSettings(width=8), id="small network"),
        pytest.param(LagrangianNetworkSettings(), id="network", marks=pytest.mark.slow),
        pytest.param(FeedForwardSettings(width=8), id="feed-forward", marks=pytest.mark.slow),
    ],
)
def test_every_model_learns_from_the_stream(network):
    learner = OnlineLearner(Blueprint.named(Joints.revolute(1), network), DT, SMALL)
    assert not learner.improve()
    learner.absorb(swing(4.0))
    better = [learner.improve() for _ in range(40)]
    assert any(better)
    assert learner.error < 0.05
    q, qd, qdd, tau = learner._judge.all().T
    with jax.enable_x64(True):
        predicted = jax.vmap(learner.best.inverse_dynamics)(q[:, None], qd[:, None], qdd[:, None])[
            :, 0
        ]
    assert np.mean((np.asarray(predicted) - tau) ** 2) < 0.1 * tau.var()


def test_friction_is_learned_online_but_not_its_memory():
    learner = OnlineLearner(
        Blueprint(Joints.revolute(1), LagrangianChainSettings(), FrictionSettings(("viscous",))),
        DT,
        SMALL,
    )
    rows = swing(4.0)
    rows[:, 3] += 0.7 * rows[:, 2]
    learner.absorb(rows)
    for _ in range(40):
        learner.improve()
    assert learner.best.friction.named["viscous"][0] == pytest.approx(0.7, rel=0.05)
    with pytest.raises(
        SettingsError, match=r"friction with memory \(stops\) cannot be learned online"
    ):
        OnlineLearner(
            Blueprint(Joints.revolute(1), LagrangianChainSettings(), FrictionSettings(("stops",))),
            DT,
        )


def test_what_cannot_be_learned_online_is_refused_before_there_is_a_process():
    remembering = Blueprint(
        Joints.revolute(1), LagrangianChainSettings(), FrictionSettings(("stops",))
    )
    with pytest.raises(
        SettingsError, match=r"friction with memory \(stops\) cannot be learned online"
    ):
        Task(remembering, DT, SMALL, seed=0)
    with pytest.raises(SettingsError, match="between 0 and half the control rate, 250 Hz, got 300"):
        Task(PENDULUM, DT, LearnerSettings(cutoff=300.0), seed=0)


def fed(learner: OnlineLearner, rows: np.ndarray) -> None:
    """Rows in parts of a quarter of a second, with 4 steps after each."""
    for part in np.split(rows, range(125, len(rows), 125)):
        learner.absorb(part)
        for _ in range(4):
            learner.improve()


def test_a_robot_that_changes_is_noticed_and_learned_anew():
    learner = OnlineLearner(PENDULUM, DT, SMALL)
    fed(learner, swing(25.0))
    assert not learner.changes
    fed(learner, swing(10.0, inertia=0.8, start=26.0))
    (changed,) = learner.changes
    assert 26 < changed < 29
    assert not learner.returns
    assert float(learner.best.mass_matrix(jnp.zeros(1))[0, 0]) == pytest.approx(0.8, rel=0.05)
    assert learner.events == ((changed, CHANGED),)


def test_after_an_alarm_the_earlier_samples_are_used_again_if_they_are_valid():
    learner = OnlineLearner(PENDULUM, DT, SMALL)
    fed(learner, swing(25.0))
    before = learner.samples
    fed(learner, swing(4.0, inertia=0.8, start=26.0))
    assert len(learner.changes) == 1
    assert 50 < learner.samples < 400
    fed(learner, swing(10.0, start=31.0))
    assert len(learner.returns) == 1
    assert learner.samples > before
    assert float(learner.best.mass_matrix(jnp.zeros(1))[0, 0]) == pytest.approx(0.5, rel=0.02)
    assert [text for _, text in learner.events] == [CHANGED, RETURNED]


def test_a_test_that_raises_no_alarm_changes_nothing():
    weights = []
    for hours in (10.0, None):
        learner = OnlineLearner(PENDULUM, DT, replace(SMALL, alarm_hours=hours))
        fed(learner, swing(12.0))
        weights.append(PENDULUM.pack(learner.best))
    np.testing.assert_array_equal(*weights)
    with pytest.raises(SettingsError, match="alarm_hours must be positive and finite, or None"):
        LearnerSettings(alarm_hours=0.0)


def test_numbers_that_are_none_do_not_spoil_the_learner():
    learner = OnlineLearner(PENDULUM, DT, SMALL)
    rows = swing(4.0)
    rows[200:210, 2] = np.inf
    learner.absorb(rows)
    for _ in range(30):
        learner.improve()
    assert np.isfinite(PENDULUM.pack(learner.best)).all()
    assert learner.error < 0.05


def test_a_stepped_learner_repeats_itself():
    outcomes = []
    for _ in range(2):
        learner = SteppedLearner(Task(PENDULUM, DT, SMALL, seed=3), steps_per_second=40.0)
        learner.start()
        found = []
        for t, q, qd, tau in swing(3.0):
            learner.give(t, np.array([q]), np.array([qd]), np.array([tau]))
            weights = learner.poll(t)
            if weights is not None:
                found.append((t, weights))
        outcomes.append(found)
        learner.close()
    assert outcomes[0]
    for item, two in zip(*outcomes, strict=True):
        assert item[0] == two[0]
        np.testing.assert_array_equal(item[1], two[1])


def test_a_learner_in_a_process_learns_dies_and_comes_back():
    learner = ProcessLearner(Task(PENDULUM, DT, SMALL, seed=0))
    try:
        learner.start()
        assert learner.pid is not None
        os.kill(
            learner.pid, signal.SIGINT
        )  # Ctrl-C, which the terminal sends to all, is for the loop alone
        first = fed_until(learner, 0.0)
        assert first.shape == (PENDULUM.size,)
        assert learner.restarts == 0
        os.kill(learner.pid, signal.SIGKILL)
        while learner.alive:
            time.sleep(0.01)
        learner.watch()
        assert learner.restarts == 1
        again = fed_until(learner, 30.0)
        assert learner.alive
        assert np.isfinite(again).all()
        assert learner.lost == 0
    finally:
        learner.close()
    assert not learner.alive


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_learner_that_is_killed_or_frozen_while_it_starts_is_started_again(sent):
    learner = ProcessLearner(Task(PENDULUM, DT, SMALL, seed=0))
    starting = threading.Thread(target=learner.start, daemon=True)
    starting.start()
    while learner.pid is None:
        time.sleep(0.01)
    os.kill(learner.pid, sent)
    starting.join(120.0)
    try:
        assert learner.ready
        assert learner.alive
        assert learner.restarts == 1
    finally:
        learner.close()


def test_a_learner_that_is_frozen_does_not_hold_up_the_end():
    learner = ProcessLearner(Task(PENDULUM, DT, SMALL, seed=0), patient=False)
    learner.start()
    assert learner.pid is not None
    os.kill(learner.pid, signal.SIGSTOP)
    ending = threading.Thread(target=learner.close, daemon=True)
    ending.start()
    ending.join(60.0)
    assert not ending.is_alive()
    assert not is_alive(learner.pid)


def test_a_process_that_cannot_be_started_is_said(monkeypatch):
    learner = ProcessLearner(Task(PENDULUM, DT, SMALL, seed=0))

    def refuse() -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(learner, "_spawn", refuse)
    with pytest.raises(LearnerError, match="Resource temporarily unavailable"):
        learner.start()
    learner.close()


def test_without_rows_nothing_is_remembered():
    learner = OnlineLearner(PENDULUM, DT, SMALL)
    learner.absorb(np.zeros((0, 4)))
    assert (learner.samples, learner.improve()) == (0, False)
    assert CausalSampler(1, DT, rate=100.0, cutoff=None).push(np.zeros((0, 4))).shape == (0, 4)
    with pytest.raises(SettingsError, match="window must be at least 1, got 0"):
        LearnerSettings(window=0)


def test_a_start_that_is_lost_makes_room_for_another(monkeypatch):
    learner, fresh = OnlineLearner(PENDULUM, DT, SMALL), _Start(None)
    monkeypatch.setattr(learner, "_fresh", lambda: fresh)
    steady, falling = [1.0] * STALLED_STEPS, np.geomspace(1.0, 1e-3, STALLED_STEPS).tolist()
    for losses, error, replaced in (
        (steady, 1.0, True),
        (falling, 1.0, False),
        (steady, 2e-3, False),
    ):
        start, other = _Start(None, deque(losses), error), _Start(None, deque(steady), 1e-3)
        learner._starts, learner.error = [start, other], 1e-3
        learner._replace_if_lost(start)
        assert (learner._starts == [fresh, other]) == replaced
        learner._starts = [start]
        learner._replace_if_lost(start)  # nobody is better
        assert learner._starts == [start]


class StandInProcess:
    """The learner's process, as far as its owner sees it."""

    pid = 1

    def __init__(self, alive: bool, exitcode: int):
        self.living = alive
        self.exitcode = exitcode

    def is_alive(self) -> bool:
        return self.living

    def join(self, seconds: float | None = None) -> None:
        """It ends at once."""

    def kill(self) -> None:
        self.living = False

    terminate = kill


@pytest.fixture
def owner(monkeypatch) -> Iterator[Callable[..., ProcessLearner]]:
    """Makes learners whose process is a stand-in."""
    made = []

    def make(*, alive: bool = True, exitcode: int = -9, **more: Any) -> ProcessLearner:
        learner = ProcessLearner(Task(PENDULUM, DT, SMALL, seed=0), **more)
        monkeypatch.setattr(
            learner, "_spawn", lambda: setattr(learner, "_process", StandInProcess(alive, exitcode))
        )
        made.append(learner)
        return learner

    yield make
    for learner in made:
        learner.close()


def test_a_process_that_does_not_get_ready_is_said(owner, monkeypatch):
    with pytest.raises(LearnerError, match="the learner ended before it was ready"):
        owner(alive=False, exitcode=1).start()
    monkeypatch.setattr(learner_module, "START_SECONDS", 0.0)
    with pytest.raises(LearnerError, match="the learner was not ready after 0 s"):
        owner().start()
    hasty = owner(patient=False)
    hasty.start()
    assert (hasty.alive, hasty.ready) == (True, False)


def test_a_process_that_finds_no_channels_ends_without_a_word(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # is set by the process
    # Its run was ended at once while it started.
    place = Place(("delan_gone",) * 4, None, os.getpid(), resumed=False, patient=True)
    assert learn(Task(PENDULUM, DT, SMALL, seed=0), place) is None


def test_a_learner_that_is_killed_again_and_again_does_not_hold_up_the_run(owner):
    learner = owner(alive=False)
    learner.start()
    assert (learner.ready, learner.restarts) == (False, START_KILLS)
    learner.watch()
    assert learner.restarts == START_KILLS + 1


def note(learner: ProcessLearner, changes: int, changed: float) -> None:
    """What the process would tell."""
    with Latest.attach(learner._notes.name) as notes:
        notes.write(LearnerNote(0.1, 0.2, 3, 4, changes, changed))


def test_what_the_process_noticed_is_told_once_even_if_it_died_in_between(owner):
    learner = owner()
    note(learner, 0, 0.0)
    learner.start()
    assert learner.ready
    assert (learner.note, learner.events) == (LearnerNote(0.1, 0.2, 3, 4, 0, 0.0), ())
    for changes, changed in ((1, 5.0), (1, 5.0), (2, 7.5)):
        note(learner, changes, changed)
        learner.refresh()
    assert [t for t, _ in learner.events] == [5.0, 7.5]
    learner._process.kill()
    learner.watch()
    assert learner.restarts == 1
    for changes, changed in ((0, 0.0), (1, 20.0)):
        note(learner, changes, changed)
        learner.refresh()
    assert [t for t, _ in learner.events] == [5.0, 7.5, 20.0]


def test_a_change_that_was_undone_is_reported_after_it(owner):
    learner = owner()
    with Latest.attach(learner._notes.name) as notes:
        for returns, returned in ((0, 0.0), (1, 9.0)):
            notes.write(LearnerNote(0.1, 0.2, 3, 4, 1, 5.0, returns, returned))
            learner.refresh()
    assert learner.events == ((5.0, CHANGED), (9.0, RETURNED))
    for changed in (30.0, 40.0, 40.0):
        with Latest.attach(learner._notes.name) as notes:
            notes.write(LearnerNote(0.1, 0.2, 3, 4, 2, changed, 1, 9.0))
        learner.refresh()
    assert [t for t, _ in learner.events] == [5.0, 9.0, 30.0, 40.0]


def test_after_a_reset_models_of_the_old_life_are_not_taken(owner):
    learner, numbers = owner(), np.arange(PENDULUM.size, dtype=float)
    with (
        Latest.attach(learner._weights.name) as weights,
        Latest.attach(learner._lives.name) as lives,
    ):
        weights.write([0.0, *numbers])
        learner.reset()
        np.testing.assert_array_equal(lives.read(), [1.0])
        assert learner.poll(0.0) is None
        weights.write([1.0, *numbers])
        np.testing.assert_array_equal(learner.poll(0.0), numbers)


def test_before_a_sudden_end_the_process_and_the_memory_go(owner):
    learner = owner(patient=False)
    learner.start()
    names = [
        channel.name
        for channel in (learner._rows, learner._weights, learner._notes, learner._lives)
    ]
    learner.remove()
    assert not learner.alive
    assert not [name for name in names if Path("/dev/shm", name).exists()]
    learner.watch()
    assert learner.restarts == 0


def fed_until(learner: ProcessLearner, start: float) -> np.ndarray:
    """Rows at more than real time, until the learner answers."""
    for k in range(600):
        for t, q, qd, tau in swing(0.1, start=start + 0.1 * k):
            learner.give(t, np.array([q]), np.array([qd]), np.array([tau]))
        weights = learner.poll(0.0)
        if weights is not None:
            return weights
        learner.watch()
        time.sleep(0.1)
    raise AssertionError("the learner never answered")
