"""Random signals to the processes of real runs of `delan online`.

In each case a run is started, one signal goes to its loop, its learner or both at a random moment,
and, if the run goes on after that, a second one asks it to end. It must end within `END` of being
asked, and leave no process, no shared memory, no address and no unreadable recording; every torque
must be inside the limits of its joint.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from delan.errors import DataError
from delan.logs.recording_file import read_rows
from delan.online.channels import SEGMENTS, sweep
from delan.robots.arms import TWO_LINK

from .trial import Outcome

END = 5.0  # time to end in after being asked [s]
READY = 120.0  # time to start in, which is no part of the attack [s]
LIFE = 3600  # seconds of learning that a run is started with: it ends only if it is asked to
MOST_DELAY = 3.0  # latest moment of the signal after the one that it is relative to [s]
# The entry point of `delan`, which ignores no signal, even in the background of a shell.
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from delan.cli import run
run()
"""
# A recording whose run is killed before the first chunk has a header and no rows.
NO_ROWS = "holds no whole chunk"
TARGETS = (("loop",), ("learner",), ("loop", "learner"), ("loop", "learner", "tracker"))
ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Case:
    """One attack.

    Attributes:
        moment: `starting` (any time after the command was typed), `learner` (after its process was
            started) or `moving` (after the first rows were recorded).
        delay: time from that moment to the signal [s].
        sent: the signal, SIGCONT for a stop that ends after `pause` [s].
        targets: who gets it: the processes `loop`, `learner` and `tracker`, which removes shared
            memory after a crash.
        asked: the signal that ends the run if the first one does not.
    """

    moment: str
    delay: float
    sent: signal.Signals
    targets: tuple[str, ...]
    pause: float
    asked: signal.Signals

    def __str__(self) -> str:
        return (
            f"{self.sent.name} to {' and '.join(self.targets)} {self.delay:.2f} s after "
            f"{self.moment}, {self.asked.name}"
        )


def random_case(rng: random.Random) -> Case:
    """Return a random attack."""
    sent = rng.choice([*ASKING, signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT])
    return Case(
        moment=rng.choice(["starting", "learner", "moving", "moving"]),
        delay=rng.uniform(0.0, MOST_DELAY),
        sent=sent,
        targets=rng.choice(TARGETS),
        pause=rng.uniform(0.1, 3.0),
        asked=rng.choice(ASKING),
    )


class Trial:
    """Runs, each in a folder of its own; the longest step is the slowest end of a run."""

    def __init__(self, folder: Path):
        self._folder = folder

    def attack(self, number: int, seed: int, outcome: Outcome) -> None:
        """Start a run and attack it."""
        case = random_case(random.Random(f"{seed} {number}"))
        own = self._folder / str(number)
        own.mkdir()
        run = Attacked(own)
        try:
            problems = run.suffer(case)
        finally:
            run.clear()
        shutil.rmtree(own)
        outcome.cases += 1
        outcome.answers[case.sent.name] += 1
        if run.seconds > outcome.longest:
            outcome.longest = run.seconds
            outcome.slowest = str(case)
        print(
            f"{number}: {case}: code {run.code}, {run.seconds:.1f} s, {run.rows} rows", flush=True
        )
        for problem in problems:
            outcome.blame("signal", f"case {number} ({case}): {problem}")
        if problems:
            print(run.output, flush=True)


class Attacked:
    """A run of `delan online`, with all its processes.

    Attributes:
        seconds: time from the question to the end [s].
        code: exit code, negative if a signal ended the process.
        rows: number of rows in its recording; None without one.
        output: all that it printed.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._recording = folder / "run" / "recording.run"
        self.seconds = 0.0
        self.code: int | None = None
        self.rows: int | None = None
        self.output = ""
        words = ["online", "two-link", "--seconds", str(LIFE), "-o", str(self._recording.parent)]
        self._printed = (folder / "printed").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words],
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
            stdout=self._printed,
            stderr=self._printed,
        )

    def suffer(self, case: Case) -> list[str]:
        """Attack the run; return what broke, a sentence for each."""
        if not self._wait(lambda: self._reached(case.moment), READY):
            return [f"the run did not come to {case.moment}"]
        time.sleep(case.delay)
        hit = self._send(case)
        began = time.monotonic()
        if not self._asked_by(case, hit):
            time.sleep(case.delay)
            began = time.monotonic()
            self._signal(self._process.pid, case.asked)
            # A stopped process hears nothing before it is continued.
            self._signal(self._process.pid, signal.SIGCONT)
        ended = self._wait(lambda: self._process.poll() is not None, 4 * END)
        self.seconds = time.monotonic() - began
        self.code = self._process.poll()
        problems = []
        if not ended:
            problems.append(f"did not end within {4 * END:.0f} s of being asked")
        elif self.seconds > END:
            problems.append(f"ended {self.seconds:.1f} s after being asked")
        return problems + self._left_behind(case)

    def _send(self, case: Case) -> list[str]:
        """Send the signal of a case; return those who got it."""
        stop = signal.SIGSTOP if case.sent == signal.SIGCONT else case.sent
        pids = {
            "loop": [self._process.pid],
            "learner": self._processes("spawn_main"),
            "tracker": self._processes("resource_tracker import"),
        }
        hit = [name for name in case.targets if pids[name]]
        for name in hit:
            for pid in pids[name]:
                self._signal(pid, stop)
        if case.sent == signal.SIGCONT:
            time.sleep(case.pause)
            for name in hit:
                for pid in pids[name]:
                    self._signal(pid, signal.SIGCONT)
        return hit

    def _asked_by(self, case: Case, hit: list[str]) -> bool:
        """Return whether the signal of a case has asked the run to end."""
        return "loop" in hit and case.sent in (*ASKING, signal.SIGKILL)

    def _left_behind(self, case: Case) -> list[str]:
        """Return what the run left that it must not leave."""
        problems = []
        if not self._wait(lambda: not self._family(), END):
            problems.append(f"left processes: {self._family()}")
        killed = "loop" in case.targets and case.sent == signal.SIGKILL
        if killed and "tracker" in case.targets:
            sweep()  # as the next start does
        if not self._wait(lambda: not self._segments(), END):
            problems.append(f"left shared memory: {self._segments()}")
        self._printed.seek(0)
        self.output = self._printed.read()
        if not killed:
            expected = [128 + number for number in (case.sent, case.asked)]
            if not self._recording.parent.exists():
                # Before Python has run the first line of the package, the system ends it.
                expected += [-number for number in (case.sent, case.asked)]
            if self.code not in expected:
                problems.append(f"ended with exit code {self.code}")
            if list((self._folder / "delan").glob("*.json")):
                problems.append("left its address")
            if "Traceback" in self.output:
                problems.append("printed a traceback")
            if list(self._recording.parent.glob(".*")):
                problems.append("left partial files")
        return problems + self._damage(killed)

    def _damage(self, killed: bool) -> list[str]:
        """Return what is wrong with the recording."""
        if not self._recording.exists():
            return []
        try:
            with warnings.catch_warnings(action="ignore"):
                rows = read_rows(self._recording)
        except DataError as error:
            if killed and NO_ROWS in str(error):
                self.rows = 0
                return []
            return [f"left an unreadable recording: {error}"]
        tau = rows.columns["tau"]
        self.rows = len(tau)
        problems = []
        if not np.isfinite(tau).all() or (np.abs(tau) > TWO_LINK.limits.torque).any():
            problems.append("applied a torque out of bounds")
        if rows.damaged or (rows.incomplete and not killed):
            problems.append(f"damaged its recording: {rows.problem}")
        return problems

    def _reached(self, moment: str) -> bool:
        if self._process.poll() is not None:
            return True
        if moment == "starting":
            return True
        if moment == "learner":
            return len(self._processes("spawn_main")) > 0
        return self._recording.exists() and self._recording.stat().st_size > 20_000

    def _processes(self, mark: str) -> list[int]:
        return [pid for pid, words in self._family().items() if mark in words]

    def _family(self) -> dict[int, str]:
        """Return the living processes of the run by their ids, with their command lines."""
        family = {}
        mark = f"XDG_RUNTIME_DIR={self._folder}\0".encode()
        for item in Path("/proc").glob("[0-9]*"):
            try:
                if mark not in (item / "environ").read_bytes():
                    continue
                state = (item / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    family[int(item.name)] = (item / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return family

    def _segments(self) -> list[str]:
        return [path.name for path in SEGMENTS.glob(f"delan_{self._process.pid}_*")]

    def _signal(self, pid: int, number: int) -> None:
        if pid == self._process.pid and self._process.poll() is not None:
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def _wait(self, what: Callable[[], object], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def clear(self) -> None:
        """End what is left, so that the next case starts in a clean place."""
        for pid in self._family():
            self._signal(pid, signal.SIGKILL)
        self._process.wait(READY)
        self._printed.close()
        sweep()
