"""To end a process at once while it only prepares.

What is imported or compiled in C does not hear a signal before it is done, which takes many seconds. Before the robot
moves there is nothing to be saved, so a thread tidies up and ends the process.
"""

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LOOK_PERIOD = 0.05
"""Time between two looks whether to end [s]."""


@contextmanager
def ended_early(asked: Callable[[], bool], tidy: Callable[[], None]) -> Iterator[threading.Lock]:
    """While this lasts, SIGINT, SIGTERM, or a yes of `asked`, ends the process with code 0, after `tidy`.

    Both are called by a thread. Gives a lock: what `tidy` must find whole is made while it is held. To be used in the
    main thread, as signals are heard there; handlers that were there before are put back in the end.
    """
    hearing, speaking = os.pipe()
    os.set_blocking(speaking, False)
    over, whole = threading.Event(), threading.Lock()

    def watch() -> None:
        while not over.is_set():
            heard = select.select([hearing], [], [], LOOK_PERIOD)[0]
            if not over.is_set() and (heard or asked()):
                with whole:
                    try:
                        tidy()
                    finally:
                        os._exit(0)

    before: dict[Any, Any] = {one: signal.signal(one, _hear) for one in (signal.SIGINT, signal.SIGTERM)}
    told_before = signal.set_wakeup_fd(speaking, warn_on_full_buffer=False)  # told by the system, whatever Python does
    thread = threading.Thread(target=watch, name="early end", daemon=True)
    thread.start()
    try:
        yield whole
    finally:
        over.set()
        thread.join()
        signal.set_wakeup_fd(told_before)
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)
        missed = select.select([hearing], [], [], 0)[0]
        os.close(hearing)
        os.close(speaking)
        if missed:  # while the thread ended
            os.kill(os.getpid(), signal.SIGTERM)


def _hear(*_: Any) -> None:
    """In the place of a handler: the thread knows already."""
