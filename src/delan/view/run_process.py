"""Start and end the process of a watched run; imports little, so that the run starts early."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..online.broadcast import Address, WatchError, address_folder, read_address

# A run announces itself after about a second on an idle machine; a minute allows for a busy one.
START_SECONDS = 60.0
# Stopping the robot takes 0.15 s; closing the recording and the learners takes the rest. All runs
# of a page end in the same time.
END_SECONDS = 4.0
KILL_SECONDS = 1.0  # how long the system may take to end a killed process [s]


def start_run() -> subprocess.Popen:
    """Start a process that waits for its settings; it loads Python while the page does.

    It has its own session, so Ctrl-C in the terminal of the page does not kill it.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "delan.online.host_process"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def send_settings(run: subprocess.Popen, settings: Mapping[str, Any]) -> None:
    """Send a run its settings, the fields of `LiveSettings`."""
    assert run.stdin is not None
    run.stdin.write(json.dumps(dict(settings)).encode())
    run.stdin.close()


def wait_for_address(run: subprocess.Popen, stop: threading.Event) -> Address | None:
    """Return the address of a run that has its settings; None if `stop` is set first."""
    path = address_folder() / f"{run.pid}.json"
    began = time.monotonic()
    while not path.exists():
        if run.poll() is not None:
            raise WatchError(
                f"the run ended with exit code {run.returncode} before it could be watched; "
                "its error message is above"
            )
        if time.monotonic() - began > START_SECONDS:
            raise WatchError(
                f"the run has not started after {START_SECONDS:.0f} s; "
                "close other programs that use the processor and try again"
            )
        if stop.wait(0.02):
            return None
    return read_address(path)


def end_runs(runs: Sequence[subprocess.Popen]) -> None:
    """Terminate the runs that are still there, and kill those that do not end in time."""
    for run in runs:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
    end = time.monotonic() + END_SECONDS
    for run in runs:
        try:
            run.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            run.kill()
            with suppress(subprocess.TimeoutExpired):
                run.wait(KILL_SECONDS)
