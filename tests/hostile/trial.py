"""What every attack counts: answers, faults, the longest step and the memory it took.

A command is called inside this process, which is many times faster than starting it. It may answer,
or refuse with an error of delan; everything else is a fault.
"""

import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import jax
from typer.main import get_command

from delan.cli.main import app
from delan.errors import LONGEST_LINES, DelanError

# Seconds of the processor after which a step counts as hanging, whatever else the machine does, and
# memory that no case may take [MB]. Who waits for nothing is found by `crew.STUCK`.
LONGEST = 20.0
MOST_MEMORY = 1000.0
# Cases and memory [MB] after which compiled programs are forgotten.
FORGET = 2
FULL = 500.0
# A log of this size is longer than any message; more on stderr is a flood.
MOST_OUTPUT = 100_000


# Made once: typer makes the parsers of all commands anew for each call of its app.
COMMANDS = get_command(app)


class HangingError(BaseException):
    """A case took too long. Not an `Exception`: what it interrupts must not catch it."""


@dataclass
class Outcome:
    """The counts of an attack.

    Attributes:
        cases: number of files tried.
        answers: how often each step answered or refused.
        faults: what broke, with the case that broke it.
        kinds: how many of the faults are of each kind, such as `traceback`, `hang`, `partial file`.
        longest, slowest: seconds of the longest step, and which one it was.
        memory: the most memory that a process had in use [MB].
    """

    cases: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    slowest: str = ""
    memory: float = 0.0

    def blame(self, kind: str, text: str) -> None:
        """Count a fault."""
        self.kinds[kind] += 1
        self.faults.append(text)

    def add(self, other: "Outcome") -> None:
        """Add what another process has counted."""
        self.cases += other.cases
        self.answers += other.answers
        self.faults += other.faults
        self.kinds += other.kinds
        self.memory = max(self.memory, other.memory)
        if other.longest > self.longest:
            self.longest = other.longest
            self.slowest = other.slowest

    @property
    def sound(self) -> bool:
        return not self.faults and self.longest <= LONGEST and self.memory <= MOST_MEMORY

    def __str__(self) -> str:
        lines = [f"{self.cases} cases, {len(self.faults)} faults"]
        for name, count in sorted(self.answers.items()):
            lines.append(f"  {name}: {count}")
        lines.append(f"longest step {self.longest:.1f} s ({self.slowest})")
        lines.append(f"most memory {self.memory:.0f} MB")
        lines += [f"FAULT {fault}" for fault in self.faults[:40]]
        return "\n".join(lines)

    def run(self, step: str, case: str, call: Callable[[], object]) -> bool:
        """Run one step of a case; return whether it answered."""
        began = time.process_time()
        out = StringIO()
        answered = False
        try:
            with (
                warnings.catch_warnings(action="ignore"),
                redirect_stdout(out),
                redirect_stderr(out),
            ):
                _within(LONGEST, call)
            answered = True
            self.answers[f"{step} answered"] += 1
        except DelanError as error:
            self.answers[f"{step} refused"] += 1
            self._look_at(str(error), step, case)
        except HangingError:
            self.blame("hang", f"{case}, {step}: no end after {LONGEST:g} s")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.blame("traceback", f"{case}, {step}: {_place_of(error)}")
        self._look_at(out.getvalue(), step, case, MOST_OUTPUT)
        seconds = time.process_time() - began
        if seconds > self.longest:
            self.longest = seconds
            self.slowest = f"{case}, {step}"
        return answered

    def _look_at(self, text: str, step: str, case: str, most: int = LONGEST_LINES) -> None:
        odd = {character for character in text if not character.isprintable()} - {"\n"}
        if odd:
            self.blame("message", f"{case}, {step}: the characters {odd} reach the terminal")
        if len(text) > most:
            self.blame("message", f"{case}, {step}: a message of {len(text)} characters")

    def end_case(self, folder: Path, case: str) -> None:
        """Count a case, and note partial files that a step left behind."""
        self.cases += 1
        self.memory = memory("VmHWM")
        if self.cases % FORGET == 0 and memory("VmRSS") > FULL:
            # Every odd shape has its compiled programs, which a command would take with it.
            jax.clear_caches()
        for path in folder.rglob("*.part"):
            self.blame("partial file", f"{case}: left {path.name}")
            path.unlink()


def memory(kind: str) -> float:
    """Return the memory of this process [MB]: `VmRSS` now, `VmHWM` the most it had."""
    # The peak of `getrusage` is that of the process which started this one, if it was larger.
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines[kind].split()[0]) / 1024


def command(*arguments: object) -> None:
    """Run a command of delan in this process; its refusals are raised again as errors of delan."""
    code = COMMANDS.main([str(item) for item in arguments], standalone_mode=False)
    if code:
        raise DelanError(f"exit code {code}")


def _within(seconds: float, call: Callable[[], object]) -> None:
    def late(*_: object) -> None:
        raise HangingError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _place_of(error: BaseException) -> str:
    """Return the error and the last line of delan's own code that it came through."""
    place = "?"
    for frame in traceback.extract_tb(error.__traceback__):
        if f"{os.sep}delan{os.sep}" in frame.filename:
            place = f"{Path(frame.filename).name}:{frame.lineno}"
    if os.environ.get("HOSTILE_TRACEBACKS"):
        traceback.print_exception(error, file=sys.__stderr__)
    return f"{type(error).__name__}: {str(error)[:200]} at {place}"
