"""Processes of runs that are begun to be watched. Nothing heavy is imported here: a run wakes up with the page."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from ..realtime.addresses import Address, WatchError, address_folder, read_address

START_SECONDS = 60.0
"""How long a run may take to leave its address [s]."""


def wake() -> subprocess.Popen:
    """A process that will run what it is told, in a session of its own: what ends the page does not end it."""
    return subprocess.Popen(
        [sys.executable, "-m", "delan.experiments.live_run"], stdin=subprocess.PIPE, start_new_session=True
    )


def tell(run: subprocess.Popen, settings: Mapping[str, Any]) -> None:
    """What to run, as `LiveSettings` in a mapping."""
    assert run.stdin is not None
    run.stdin.write(json.dumps(dict(settings)).encode())
    run.stdin.close()


def find(run: subprocess.Popen, stop: threading.Event) -> Address | None:
    """The address of a run that was told; None if one is told to stop before it is there."""
    path, began = address_folder() / f"{run.pid}.json", time.monotonic()
    while not path.exists():
        if run.poll() is not None:
            raise WatchError(f"the run ended with code {run.returncode} before it could be watched; see above for why")
        if time.monotonic() - began > START_SECONDS:
            raise WatchError(f"the run was not there after {START_SECONDS:.0f} s; the machine is too busy")
        if stop.wait(0.02):
            return None
    return read_address(path)
