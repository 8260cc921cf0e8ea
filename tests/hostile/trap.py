"""An attack whose second case kills the process that tries it, for the test of `crew`."""

import os
import signal
from pathlib import Path

from .trial import Outcome


class Trial:
    """Cases of which number 1 does not return."""

    def __init__(self, folder: Path):
        self._folder = folder

    def attack(self, number: int, seed: int, outcome: Outcome) -> None:
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        outcome.end_case(self._folder, f"seed {seed} case {number}")
