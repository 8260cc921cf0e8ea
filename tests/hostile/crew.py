"""Workers that attack: each is a process that tries many cases, one after the other.

A worker tells which case it is at. One that dies or stands still is a fault of that case: it is
replaced by another that continues behind it. Workers are replaced after `PIECE` cases anyway, as
programs that were compiled for odd shapes stay in their memory.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from .trial import Outcome

PIECE = 1000
# A case has several steps, each of which is ended by itself after `trial.LONGEST` if Python is what
# it hangs in. After this time the process is ended [s].
STUCK = 200.0


def attack(name: str, cases: range, seed: int, workers: int) -> Outcome:
    """Try the cases of the attack `tests.hostile.<name>` in some processes at once."""
    outcome = Outcome()
    pieces = [
        range(first, min(first + PIECE, cases.stop))
        for first in range(cases.start, cases.stop, PIECE)
    ]
    with _compiled_once(), ThreadPoolExecutor(workers) as threads:
        for done in threads.map(partial(_piece, name, seed), pieces):
            outcome.add(done)
            print(f"{outcome.cases} cases, {len(outcome.faults)} faults", flush=True)
            for fault in done.faults:
                print(f"FAULT {fault}", flush=True)
    return outcome


@contextmanager
def _compiled_once() -> Iterator[None]:
    """Let workers share the programs that they compile, as most cases have the same shapes."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        yield


def _piece(name: str, seed: int, cases: range) -> Outcome:
    """Try cases in one worker, and in another one behind each case that ends it."""
    outcome = Outcome()
    while cases:
        with tempfile.TemporaryDirectory() as folder:
            done, reached, problem = _worked(name, seed, cases, Path(folder))
        outcome.add(done)
        if problem is None:
            break
        outcome.blame("dead or stuck process", f"seed {seed} case {reached}: {problem}")
        outcome.cases += 1
        cases = range(reached + 1, cases.stop)
    return outcome


def _worked(name: str, seed: int, cases: range, folder: Path) -> tuple[Outcome, int, str | None]:
    """Return what a worker has counted, the case that it came to, and what ended it early."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, seed, cases, folder, there), daemon=True)
    process.start()
    there.close()
    outcome = Outcome()
    reached = cases.start
    problem = None
    try:
        while here.poll(STUCK):
            reached, outcome = here.recv()
            if reached == cases.stop:
                break
        else:
            problem = f"no end after {STUCK:g} s"
    except EOFError:
        process.join(STUCK)
        problem = f"the process died with exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()
    return outcome, reached, problem


def _work(name: str, seed: int, cases: range, folder: Path, parent: Any) -> None:
    """Try cases, and send before each of them its number and what was counted so far."""
    module = import_module(f"tests.hostile.{name}")
    outcome = Outcome()
    parent.send((cases.start, outcome))
    trial = module.Trial(folder)
    for number in cases:
        parent.send((number, outcome))
        trial.attack(number, seed, outcome)
    parent.send((cases.stop, outcome))
