"""Time and priority: ticks neither drift nor bunch up, and what the system refuses is said."""

import gc
import math
import multiprocessing
import os
import sys
import threading
from typing import Any

import pytest

from delan.errors import SettingsError
from delan.online import process
from delan.online.clocks import Clock, Deadlines, SteppedClock, Tick, WallClock
from delan.online.process import workers_follow

CLOCKS = {"wall": WallClock, "stepped": SteppedClock}


@pytest.mark.parametrize("name", CLOCKS)
def test_no_clock_wakes_before_the_time_or_runs_backward(name):
    clock = CLOCKS[name]()
    assert isinstance(clock, Clock)
    start = clock.now()
    for step in (0.0, 1e-6, 1e-4, 3e-3):
        clock.sleep_until(start + step)
        assert clock.now() >= start + step
    now = clock.now()
    clock.sleep_until(start)
    assert clock.now() >= now


def test_a_stepped_clock_moves_by_sleep_alone():
    clock = SteppedClock(5.0)
    assert clock.now() == clock.now() == 5.0
    clock.sleep_until(7.25)
    assert clock.now() == 7.25
    clock.sleep_until(6.0)
    assert clock.now() == 7.25


@pytest.mark.parametrize("start", [0.0, 0.1, 12345.6789])
@pytest.mark.parametrize("dt", [0.002, 1 / 3, 1e-4])
def test_by_a_stepped_clock_every_tick_is_on_time(start, dt):
    deadlines = Deadlines(SteppedClock(start), dt)
    ticks = [deadlines.wait() for _ in range(10_000)]
    assert ticks == [Tick(k, start + k * dt, 0.0) for k in range(10_000)]
    assert deadlines.missed == 0


class LateClock(SteppedClock):
    """A clock whose sleeper wakes up late by what it is told."""

    late = 0.0

    def sleep_until(self, t: float) -> None:
        super().sleep_until(t + self.late)


def test_a_late_tick_delays_no_other():
    clock = LateClock()
    deadlines = Deadlines(clock, 1.0)
    clock.late = 0.25
    assert [deadlines.wait() for _ in range(3)] == [Tick(k, k, 0.25) for k in range(3)]
    clock.late = 0.0
    assert deadlines.wait() == Tick(3, 3.0, 0.0)


def test_periods_that_passed_are_skipped_and_counted():
    clock = LateClock()
    deadlines = Deadlines(clock, 1.0)
    assert deadlines.wait().number == 0
    clock.sleep_until(0.5)  # work that fits
    assert deadlines.wait() == Tick(1, 1.0, 0.0)
    clock.sleep_until(2.75)  # work that runs into the next period: late, nothing missed
    assert deadlines.wait() == Tick(2, 2.0, 0.75)
    clock.sleep_until(6.5)  # 3, 4 and 5 have passed, 6 runs
    assert deadlines.wait() == Tick(6, 6.0, 0.5)
    assert deadlines.wait() == Tick(7, 7.0, 0.0)
    clock.late = 2.5  # the sleeper itself may miss periods
    assert deadlines.wait() == Tick(10, 10.0, 0.5)
    assert deadlines.missed == 5


@pytest.mark.parametrize("dt", [0.0, -1.0, math.nan, math.inf])
def test_a_period_must_be_a_time(dt):
    with pytest.raises(SettingsError, match="a period must be a positive number of seconds, got"):
        Deadlines(SteppedClock(), dt)


def child_policy(pipe: Any) -> None:
    pipe.send((os.sched_getscheduler(0), process.leave_core(0).cores, os.sched_getaffinity(0)))


def raised(pipe: Any) -> None:
    """What a process is granted, what it then is, and what a process that it starts is."""
    granted = process.raise_priority(core=0)
    here, there = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=child_policy, args=(there,))
    child.start()
    policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    pipe.send((granted, policy, os.sched_getaffinity(0), here.recv()))
    child.join()


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling as Linux knows it")
def test_what_was_granted_is_so_and_is_not_passed_on():
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=raised, args=(there,))
    process.start()
    granted, policy, cores, (childs, free, childs_cores) = here.recv()
    process.join()
    assert granted.realtime == (policy == os.SCHED_FIFO)
    assert granted.realtime or "no real-time scheduling at level 20" in granted.problems[0]
    assert granted.cores in ((), tuple(sorted(cores)))
    assert childs == os.SCHED_OTHER
    assert free == () or (0 not in free and set(free) == childs_cores)


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling as Linux knows it")
def test_what_is_refused_is_said_and_not_raised(monkeypatch):
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    granted = process.raise_priority(core=1)
    assert not granted.realtime
    assert granted.cores == ()
    assert (
        "no real-time scheduling at level 20 ([Errno 1] Operation not permitted): periods may"
        in granted.problems[0]
    )
    assert "not bound to core 1 ([Errno 1] Operation not permitted)" in granted.problems[1]
    assert "not bound to core" in process.leave_core(0).problems[0]


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling as Linux knows it")
@pytest.mark.parametrize("core", [100_000, -1])
def test_a_core_that_is_not_there_is_said(core, monkeypatch):
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    before = os.sched_getaffinity(0)
    granted = process.raise_priority(core=core)
    assert granted.cores == ()
    assert f"not bound to core {core}" in granted.problems[0]
    assert os.sched_getaffinity(0) == before


def test_a_system_without_such_scheduling_is_said(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    granted = process.raise_priority(core=0)
    assert (granted.realtime, granted.cores, len(granted.problems)) == (False, (), 2)
    assert all("darwin" in problem for problem in granted.problems)
    assert process.bind({0}) == process.Granted(problems=granted.problems[1:])


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling as Linux knows it")
def test_threads_follow_a_loop_that_goes_first_and_are_ordinary_again(monkeypatch):
    first, ended = threading.get_native_id(), []
    policies = {int(name): os.SCHED_OTHER for name in os.listdir("/proc/self/task")} | {
        first: os.SCHED_FIFO
    }

    def scheduled(thread: int, policy: int, parameters: os.sched_param) -> None:
        if thread in ended:
            raise ProcessLookupError(3, "No such process")
        policies[thread] = policy & ~os.SCHED_RESET_ON_FORK
        levels.append(parameters.sched_priority)

    over, levels = threading.Event(), []
    worker = threading.Thread(target=over.wait)
    worker.start()
    policies[worker.native_id or 0] = os.SCHED_OTHER
    ended += [thread for thread in policies if thread not in (first, worker.native_id)]
    monkeypatch.setattr(
        os, "sched_getscheduler", lambda thread: policies.get(thread or first, os.SCHED_OTHER)
    )
    monkeypatch.setattr(os, "sched_getparam", lambda _: os.sched_param(20))
    monkeypatch.setattr(os, "sched_setscheduler", scheduled)
    with workers_follow():
        assert policies[worker.native_id or 0] == os.SCHED_FIFO
        assert levels == [10]  # behind the loop
    assert policies[worker.native_id or 0] == os.SCHED_OTHER
    assert policies[first] == os.SCHED_FIFO
    over.set()
    worker.join()


def tolerated() -> int:
    """The time to wake up that the whole system asks for [µs], as the kernel tells it."""
    with open(process.LATENCY, "rb") as file:
        return int.from_bytes(file.read(4), "little")


def test_cores_stay_awake_as_long_as_it_is_asked_for():
    if not os.access(process.LATENCY, os.R_OK | os.W_OK):
        pytest.skip("this system does not let us keep its cores awake")
    before = tolerated()
    with process.kept_awake() as problems:
        assert problems == ()
        assert tolerated() == 0
    assert tolerated() == before


def test_cores_that_may_sleep_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "LATENCY", str(tmp_path / "nothing" / "here"))
    with process.kept_awake() as problems:
        assert len(problems) == 1
        assert "cores may sleep between periods" in problems[0]


def test_garbage_waits_until_the_loop_has_ended():
    assert gc.isenabled()
    with process.no_garbage_collection():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
