"""The life of a process: real-time scheduling, signals, its end with its parent.

What the system does not grant is reported, and the work continues without it.
"""

import ctypes
import gc
import multiprocessing
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

LATENCY = "/dev/cpu_dma_latency"  # where Linux takes the tolerated wake-up time of cores
POLL_PERIOD = 0.05  # time between two checks whether to end early [s]
# Signals that ask a run to end: Ctrl-C, `kill`, and the end of the terminal.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Time for a run that was asked to end: braking takes 0.6 s, the rest is for files and the learner
# [s]. Then its process is ended without further ado.
END_SECONDS = 4.0
JOIN_SECONDS = 1.0  # how long a process that was terminated may take before it is killed [s]
PARENT_PERIOD = 0.5  # time between two checks whether the parent is alive [s]
PR_SET_PDEATHSIG = 1  # of prctl: the signal that a process gets when its parent ends (Linux)

# What to undo before this process exits abruptly, by a key: segments, addresses, partial files.
_undoing: dict[object, Callable[[], object]] = {}


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


def is_alive(pid: int, started: int | None = None) -> bool:
    """Return whether a process is running; a zombie is not.

    With `started`, its start time as `start_time` returns it, a later process of the same id does
    not count.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    fields = _process_fields(pid)
    if not fields:
        return True
    return fields[0] != "Z" and started in (None, int(fields[19]))


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped by a signal, and waits to be continued."""
    return _process_fields(pid)[:1] == ["T"]


def start_time(pid: int) -> int:
    """Return when a process was started, in clock ticks since boot; 0 where that is unknown."""
    fields = _process_fields(pid)
    return int(fields[19]) if fields else 0


def _process_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none outside Linux."""
    try:
        # The name of the program is in parentheses and may contain spaces.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def end_process(process: Any) -> None:
    """Terminate a child process; kill it if it does not end, as when it was stopped by SIGSTOP.

    The process is one of `multiprocessing`. Returns after 2 · `JOIN_SECONDS` at the latest.
    """
    process.terminate()
    process.join(JOIN_SECONDS)
    if process.is_alive():
        process.kill()
        process.join(JOIN_SECONDS)


class Tie:
    """Ends a child process of `multiprocessing` with its parent; give it to `run_tied`.

    It acts when it is unpickled in the child, before whatever comes after it in the arguments,
    whose imports take seconds.
    """

    def __init__(self) -> None:
        self._parent = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return end_with_parent, (self._parent,)


def run_tied(tie: Any, function: Callable[..., None], *args: Any) -> None:
    """Call a function in a child process that ends with its parent: the target of a `Process`."""
    function(*args)


def end_with_parent(parent: int) -> None:
    """Let the calling child process end when its parent does, however that ends.

    On Linux the kernel kills it, even if it is stopped; elsewhere, and where that is refused, a
    thread notices the end. The kernel watches the thread that started the process, which therefore
    must live as long as the process. Ctrl-C and the end of the terminal are for the parent alone.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_watch_parent, args=(parent,), name="parent", daemon=True).start()


def _watch_parent(parent: int) -> None:
    # The first check finds a parent that ended before the kernel was asked.
    while os.getppid() == parent:
        time.sleep(PARENT_PERIOD)
    os._exit(1)


def undo_at_exit(key: object, action: Callable[[], object]) -> None:
    """Let `undo_all` call an action, as long as `keep_at_exit` is not called with its key."""
    _undoing[key] = action


def keep_at_exit(key: object) -> None:
    """Forget the action of a key."""
    _undoing.pop(key, None)


def undo_all() -> None:
    """Undo what would outlive this process, before it exits abruptly."""
    for key in tuple(_undoing):
        with suppress(KeyError, OSError):
            _undoing.pop(key)()


class Interrupts:
    """The signals that ask a command to end, heard whatever Python is busy with.

    The first signal sets `stop`; the command then brakes the robot and ends by itself. A second
    signal, or `END_SECONDS` after the first, ends the process at once: children are killed,
    `undo_all` is called, and the exit code is 128 + the number of the signal, as shells report it.
    While `at_once` is set, the first signal does so: nothing moves yet, and nothing is to be saved.

    No signal raises `KeyboardInterrupt`, which a callback inside a C library could swallow. To be
    used as a context manager in the main thread; elsewhere it hears nothing. Signals that are
    ignored (`nohup`) stay ignored, and earlier handlers are restored at the end.

    Attributes:
        number: the first signal; None before.
        stop: set by the first signal.
        at_once: whether the first signal ends the process.
    """

    def __init__(self, stop: threading.Event):
        self.number: int | None = None
        self.stop = stop
        self.at_once = True
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._terminals: list[int] = []
        self._pipe: tuple[int, int] | None = None
        self._wakeup = -1
        self._before: dict[int, Any] = {}

    @property
    def exit_code(self) -> int | None:
        """128 + the number of the first signal; None if there was none."""
        return None if self.number is None else 128 + self.number

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is not threading.main_thread():
            return self
        # A closed terminal is no terminal any more, so that this is asked now.
        self._terminals = [file for file in (1, 2) if os.isatty(file)]
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        # The system writes the number of the signal to the pipe; the handler does nothing.
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, lambda *_: None)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is None:
            return
        self._over.set()
        self._thread.join(1.0)
        signal.set_wakeup_fd(self._wakeup)
        for number, earlier in self._before.items():
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)
        if self.number is None:  # a signal may have come while the thread ended
            self.number = next(iter(self._heard(0.0)), None)
        for file in self._pipe:
            os.close(file)

    def _listen(self) -> None:
        left = END_SECONDS
        now = time.monotonic()
        while not self._over.is_set():
            for number in self._heard(POLL_PERIOD):
                self._hear(number)
            before = now
            now = time.monotonic()
            if self.number is not None:
                # Time in which the process was stopped by SIGSTOP does not count.
                left -= min(now - before, 10 * POLL_PERIOD)
            if left < 0 and not self._over.is_set():
                self._end("the run did not end in time and was ended; files may be incomplete")

    def _heard(self, seconds: float) -> list[int]:
        """Return the signals that arrive within the given time."""
        assert self._pipe is not None
        if not select.select([self._pipe[0]], [], [], seconds)[0]:
            return []
        return [number for number in os.read(self._pipe[0], 64) if number in self._before]

    def _hear(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._leave_terminal()
        if self.number is not None:
            self._end("ended at once")
        self.number = number
        self.stop.set()
        if self.at_once:
            self._end("stopped")

    def _leave_terminal(self) -> None:
        """Discard output to a terminal that is gone: writing to it would fail."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for file in self._terminals:
            os.dup2(nowhere, file)
        os.close(nowhere)

    def _end(self, message: str) -> None:
        """End the process in whatever state it is."""
        try:
            for child in multiprocessing.active_children():
                child.kill()
            undo_all()
            os.write(2, f"delan: {message}\n".encode())
        finally:
            os._exit(self.exit_code or 1)


@contextmanager
def handled(numbers: Sequence[signal.Signals], handler: Callable[..., None]) -> Iterator[None]:
    """Handle signals in the main thread, and restore their earlier handlers at the end.

    The end of the terminal stays ignored where it is, as under `nohup`.
    """
    before = {}
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP set `stop` while the main thread works.

    Ctrl-C raises `KeyboardInterrupt` if the work does not end within `END_SECONDS` of the first.
    Signals that the caller handles or ignores stay as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    first: list[float] = []

    def handle(number: int, _: object) -> None:
        stop.set()
        first.append(time.monotonic())
        if number == signal.SIGINT and first[-1] > first[0] + END_SECONDS:
            raise KeyboardInterrupt

    default = (signal.SIG_DFL, signal.default_int_handler)
    with handled([number for number in ENDING if signal.getsignal(number) in default], handle):
        yield
