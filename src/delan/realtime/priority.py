"""Ask the system to let a process run on time; what it does not grant is said, and the work goes on without."""

import gc
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LATENCY = "/dev/cpu_dma_latency"
"""Where Linux is told how fast cores must be awake."""


@dataclass(frozen=True)
class Granted:
    """What the system granted to the calling thread.

    Attributes:
        realtime: it runs before all ordinary processes (SCHED_FIFO).
        cores: the cores it is bound to, empty if it may run on any.
        problems: a sentence for each thing that was refused.
    """

    realtime: bool
    cores: tuple[int, ...]
    problems: tuple[str, ...]


def raise_priority(*, core: int | None = None, level: int = 20) -> Granted:
    """Put the calling thread before all ordinary ones (SCHED_FIFO, level 1 to 99) and bind it to a core if given.

    Processes and threads it starts later are ordinary again, but bound to the same core until they `leave_core`.
    """
    problems = []
    realtime = False
    if sys.platform != "linux":
        problems.append(
            f"real-time scheduling is not known on {sys.platform}; periods may be late beside other processes"
        )
    else:
        try:
            # Without the reset a learner that is started anew would take the loop's priority, and its core.
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(level))
            realtime = True
        except (OSError, ValueError) as error:
            problems.append(
                f"no real-time scheduling at level {level} ({error}): periods may be late beside other processes; "
                "allow it with `ulimit -r` or CAP_SYS_NICE"
            )
    cores = () if core is None else _bind({core}, problems)
    return Granted(realtime, cores, tuple(problems))


def leave_core(core: int) -> Granted:
    """Keep the calling thread off a core, so that the loop there has it alone; threads it starts later keep off too."""
    problems: list[str] = []
    others = set(range(os.cpu_count() or 1)) - {core}
    return Granted(False, _bind(others, problems), tuple(problems))


def keep_to(core: int) -> Granted:
    """Keep the calling thread, and threads it starts later, to one core."""
    problems: list[str] = []
    return Granted(False, _bind({core}, problems), tuple(problems))


def give_way() -> None:
    """Let ordinary processes go before the calling one, where the system knows how."""
    if hasattr(os, "nice"):
        os.nice(2)


def _bind(cores: set[int], problems: list[str]) -> tuple[int, ...]:
    """The cores the calling thread is bound to now; none if that is not granted."""
    if sys.platform != "linux":
        problems.append(f"binding to a core is not known on {sys.platform}")
        return ()
    try:
        os.sched_setaffinity(0, cores)
        return tuple(sorted(os.sched_getaffinity(0)))
    except (OSError, ValueError, OverflowError) as error:
        wanted = ", ".join(map(str, sorted(cores))) or "any other"
        problems.append(f"not bound to core {wanted} ({error}); this machine has {os.cpu_count()}")
        return ()


@contextmanager
def kept_awake() -> Iterator[tuple[str, ...]]:
    """Ask the system not to let idle cores sleep: to wake one takes time, in a virtual machine even milliseconds.

    Gives a sentence if that is refused, nothing if it is granted; at the end the cores may sleep again.
    """
    try:
        file = os.open(LATENCY, os.O_WRONLY)
    except OSError as error:
        yield (
            f"cores may sleep between periods ({LATENCY}: {error.strerror}); waking up may make periods late; "
            "run as root, or allow writing there",
        )
        return
    try:
        os.write(file, struct.pack("i", 0))  # the longest time to wake up that is tolerated [µs]; held while open
        yield ()
    finally:
        os.close(file)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect once, then not again until the end: a collection in a loop makes a period late."""
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
    """Where the calling thread runs before all ordinary ones, let the other threads of its process come right after it.

    They compute what it began, and as ordinary threads beside busy processes they would often be late.
    """
    if sys.platform != "linux" or os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_FIFO:
        yield
        return
    level = max(1, os.sched_getparam(0).sched_priority // 2)
    others = [int(name) for name in os.listdir("/proc/self/task") if int(name) != threading.get_native_id()]
    before = {thread: _scheduled(thread, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, level) for thread in others}
    try:
        yield
    finally:
        for thread, policy in before.items():
            if policy is not None and policy & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER:
                _scheduled(thread, os.SCHED_OTHER, 0)


def _scheduled(thread: int, policy: int, level: int) -> int | None:
    """The policy that a thread had before it got another; None if it has ended, or may not get it."""
    try:
        before = os.sched_getscheduler(thread)
        os.sched_setscheduler(thread, policy, os.sched_param(level))
        return before
    except OSError:
        return None
