"""Real-time scheduling of a process, and its early end.

What the system does not grant is reported, and the work continues without it.
"""

import gc
import os
import select
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

LATENCY = "/dev/cpu_dma_latency"  # where Linux takes the tolerated wake-up time of cores
POLL_PERIOD = 0.05  # time between two checks whether to end early [s]


@dataclass(frozen=True)
class Granted:
    """What the system granted to the calling thread.

    Attributes:
        realtime: whether it has priority over all ordinary threads (SCHED_FIFO).
        cores: the cores it is bound to; empty if it may run on any.
        problems: a sentence for each request that was refused.
    """

    realtime: bool = False
    cores: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()


def raise_priority(*, core: int | None = None, level: int = 20) -> Granted:
    """Give the calling thread real-time priority (SCHED_FIFO, level 1 to 99), bound to a core.

    Processes and threads that it starts later have ordinary priority, but are bound to the same
    core until they call `leave_core`.
    """
    granted = Granted()
    if core is not None:
        granted = bind({core})
    if sys.platform != "linux":
        problem = (
            f"no real-time scheduling on {sys.platform}: periods may be late beside other processes"
        )
        return replace(granted, problems=(problem, *granted.problems))
    try:
        # Without the reset, a restarted learner would inherit the priority and compete with the
        # loop.
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(level))
        return replace(granted, realtime=True)
    except (OSError, ValueError) as error:
        problem = (
            f"no real-time scheduling at level {level} ({error}): periods may be late beside "
            "other processes; allow it with `ulimit -r` or CAP_SYS_NICE"
        )
        return replace(granted, problems=(problem, *granted.problems))


def bind(cores: set[int]) -> Granted:
    """Bind the calling thread, and threads that it starts later, to some cores."""
    if sys.platform != "linux":
        return Granted(problems=(f"no binding to cores on {sys.platform}",))
    try:
        os.sched_setaffinity(0, cores)
        return Granted(cores=tuple(sorted(os.sched_getaffinity(0))))
    except (OSError, ValueError, OverflowError) as error:
        wanted = ", ".join(map(str, sorted(cores))) or "any other"
        problem = f"not bound to core {wanted} ({error}); this machine has {os.cpu_count()}"
        return Granted(problems=(problem,))


def leave_core(core: int) -> Granted:
    """Keep the calling thread, and threads that it starts later, off the core of the loop."""
    return bind(set(range(os.cpu_count() or 1)) - {core})


@contextmanager
def kept_awake() -> Iterator[tuple[str, ...]]:
    """Keep idle cores from sleeping: waking one takes time, milliseconds in a virtual machine.

    Yields a sentence if that is refused, nothing if it is granted.
    """
    try:
        file = os.open(LATENCY, os.O_WRONLY)
    except OSError as error:
        yield (
            f"cores may sleep between periods, which makes them late ({LATENCY}: "
            f"{error.strerror}); run as root, or allow writing to that file",
        )
        return
    try:
        # The tolerated wake-up time [µs]; it holds while the file is open.
        os.write(file, struct.pack("i", 0))
        yield ()
    finally:
        os.close(file)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect once and then disable collection, which would make a period late."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


@contextmanager
def workers_follow() -> Iterator[None]:
    """Give the other threads of a real-time thread's process half of its priority.

    They compute what it began; as ordinary threads beside busy processes they would often be late.
    """
    if sys.platform != "linux" or _policy(os.sched_getscheduler(0)) != os.SCHED_FIFO:
        yield
        return
    level = max(1, os.sched_getparam(0).sched_priority // 2)
    policies = {}
    for thread in map(int, os.listdir("/proc/self/task")):
        if thread != threading.get_native_id():
            policies[thread] = _schedule(thread, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, level)
    try:
        yield
    finally:
        for thread, policy in policies.items():
            if policy is not None and _policy(policy) == os.SCHED_OTHER:
                _schedule(thread, os.SCHED_OTHER, 0)


def _policy(scheduler: int) -> int:
    """Return a scheduling policy without its flag."""
    return scheduler & ~os.SCHED_RESET_ON_FORK


def _schedule(thread: int, policy: int, level: int) -> int | None:
    """Set the policy of a thread; return its old one, or None if the thread cannot be changed."""
    try:
        before = os.sched_getscheduler(thread)
        os.sched_setscheduler(thread, policy, os.sched_param(level))
        return before
    except OSError:
        return None


@contextmanager
def ended_early(asked: Callable[[], bool], tidy: Callable[[], None]) -> Iterator[threading.Lock]:
    """Let SIGINT, SIGTERM or `asked` end the process with code 0 after `tidy`.

    Imports and compilations in C delay Python's signal handlers for many seconds. As long as the
    robot has not moved there is nothing to save, so a thread tidies up and ends the process. Both
    callbacks are called by that thread. Yields a lock; what `tidy` must find complete is created
    while it is held. To be used in the main thread; earlier handlers are restored at the end.
    """
    hearing, speaking = os.pipe()
    os.set_blocking(speaking, False)
    over = threading.Event()
    lock = threading.Lock()

    def watch() -> None:
        while not over.is_set():
            heard = select.select([hearing], [], [], POLL_PERIOD)[0]
            if not over.is_set() and (heard or asked()):
                with lock:
                    try:
                        tidy()
                    finally:
                        os._exit(0)

    thread = threading.Thread(target=watch, name="early end", daemon=True)
    try:
        # The handler does nothing: the system writes to the pipe, whatever Python is busy with.
        with handled((signal.SIGINT, signal.SIGTERM), lambda *_: None):
            wakeup = signal.set_wakeup_fd(speaking, warn_on_full_buffer=False)
            thread.start()
            try:
                yield lock
            finally:
                over.set()
                thread.join()
                signal.set_wakeup_fd(wakeup)
    finally:
        missed = select.select([hearing], [], [], 0)[0]
        os.close(hearing)
        os.close(speaking)
        if missed:  # a signal came while the thread ended
            os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def handled(numbers: Sequence[signal.Signals], handler: Callable[..., None]) -> Iterator[None]:
    """Handle signals in the main thread, and restore their earlier handlers at the end."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)
