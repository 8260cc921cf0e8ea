"""The command line: one file for each command. Imports everything, imported by nothing."""

import os
import signal
from typing import Any

from ..online.process import ENDING


def run() -> None:
    """Run the command line: the entry point of `delan`.

    A signal while the commands are imported, or after the last one has ended, ends the process
    without a traceback, with the exit code that shells give to it. In between, signals are as they
    were; a command may handle them.
    """
    before: dict[signal.Signals, Any] = {}
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            before[number] = signal.signal(number, _exit)
    from .main import app

    for number, handler in before.items():
        signal.signal(number, handler)
    try:
        app()
    finally:
        for number in before:
            signal.signal(number, _exit)


def _exit(number: int, frame: Any) -> None:
    os._exit(128 + number)
