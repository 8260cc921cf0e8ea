"""The grid: compute cells in parallel, on one machine or a cluster, and store each as it finishes.

A cell is computed in a worker with one thread, so that N cells on N cores do not compete and a
result does not depend on N: a cell gives the same bits in a local process, on Dask and on Ray (on
processors of one kind).
"""

import asyncio
import json
import os
import platform
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from ..errors import SettingsError
from .backends import Backend, Workers, open_workers
from .cells import Cell, Result, Store, Stored
from .code_version import code_version

LIBRARIES = ("delan", "jax", "jaxlib", "numpy", "scipy", "mujoco", "pin")
TRACEBACK_FRAMES = 3
# Memory maps after which a worker forgets its compiled programs: Linux kills a process at 65,530.
MOST_MAPS = 40_000
# A wait without a limit cannot be interrupted with Ctrl-C on every platform [s].
POLL_PERIOD = 1.0


class Outcome(NamedTuple):
    """The result of a cell or the text of its error; `stored` if it came from an earlier run."""

    cell: Cell
    result: Result | None
    error: str | None
    seconds: float
    stored: bool


class GridProgress(NamedTuple):
    """Progress of a grid.

    Attributes:
        done, total: numbers of cells; done includes stored and failed ones.
        stored, failed: numbers of cells taken from the store, and of failed ones.
        seconds: time since the start; left: estimated time to the end, None if unknown.
        last: the outcome that was just received, None at the start.
    """

    done: int
    total: int
    stored: int
    failed: int
    seconds: float
    left: float | None
    last: Outcome | None


def run_grid(
    cells: Sequence[Cell],
    work: Callable[[Cell], Result],
    store: Store,
    *,
    backend: Backend | None = None,
    seconds: Callable[[Cell], float] | None = None,
    progress: Callable[[GridProgress], None] | None = None,
    stop: threading.Event | None = None,
) -> list[Outcome]:
    """Compute the cells that are not in the store, and store each as soon as it finishes.

    A cell that fails, or whose worker dies, is reported and not stored; the others continue. After
    an exception or Ctrl-C the workers are ended; finished cells are in the store, and the next call
    computes the missing ones.

    Args:
        work: computes a cell; a function at the top of a module that every worker can import.
        backend: where to compute; default: all cores of this machine.
        seconds: estimated time of a cell on one core; the longest cells start first.
        progress: called at the start, when the workers are ready, and after each cell.
        stop: once it is set, no further cell starts; those under way finish and are stored.

    Returns:
        The outcome of each distinct cell in the given order, without those that did not start.
    """
    work_name = _import_name(work)
    stop = stop or threading.Event()
    unique = list({cell.key: cell for cell in cells}.values())
    outcomes = _stored_outcomes(unique, store)
    waiting = [cell for cell in unique if cell.key not in outcomes]
    if seconds is not None:
        waiting.sort(key=seconds, reverse=True)
    # Cells that need the machine for themselves come last, one at a time.
    waiting.sort(key=lambda cell: cell.alone)
    report = _ProgressReport(waiting, len(outcomes), seconds, progress)
    report.send()
    for experiment in {cell.experiment for cell in waiting}:
        store.make_folder(experiment)
    if waiting and not stop.is_set():
        with open_workers(backend or Backend(), _compute) as workers:
            report.workers = workers.size
            report.send()
            tasks = [_Task(work_name, cell, store.code_of(cell.experiment)) for cell in waiting]
            for task, future in _completed(tasks, workers, stop, report.started):
                outcome = _received(task.cell, future, store)
                outcomes[outcome.cell.key] = outcome
                report.send(outcome)
    return [outcomes[cell.key] for cell in unique if cell.key in outcomes]


def _stored_outcomes(cells: Iterable[Cell], store: Store) -> dict[str, Outcome]:
    """Return the outcomes that earlier runs left in the store, by the key of the cell."""
    outcomes = {}
    for cell in cells:
        stored = store.get(cell)
        if stored is not None:
            outcomes[cell.key] = Outcome(cell, stored.result, None, stored.seconds, True)
    return outcomes


# What runs in a worker


class _Task(NamedTuple):
    """A cell, the import name of the function that computes it, and the code it must run."""

    work_name: str
    cell: Cell
    code: str


class _Answer(NamedTuple):
    """What a worker returns for a cell; `text` is the result as JSON, None if the cell failed."""

    text: str | None
    error: str | None
    seconds: float
    code: str
    versions: dict[str, str]


def _compute(task: _Task) -> _Answer:
    """Compute a cell in a worker and catch whatever it raises; refuse if the code differs."""
    limit_threads()
    forget_programs()
    began = time.perf_counter()
    text = None
    error = None
    code = code_version(task.cell.experiment)
    try:
        if task.code != code:
            raise SettingsError(
                f"the worker runs other code ({code}) than the grid ({task.code}); "
                "install the same delan there"
            )
        work = _imported(task.work_name)
        with threadpool_limits(1):
            result = work(task.cell)
        if not isinstance(result, dict):
            raise TypeError(f"expected a dict from a cell, got {type(result).__name__}")
        text = json.dumps(result, default=_plain)
    except (Exception, SystemExit) as problem:
        frames = traceback.format_tb(problem.__traceback__)[-TRACEBACK_FRAMES:]
        error = "\n".join([f"{type(problem).__name__}: {problem}", "".join(frames).rstrip()])
    versions = {"python": platform.python_version()}
    for library in LIBRARIES:
        versions[library] = _version(library)
    return _Answer(text, error, time.perf_counter() - began, code, versions)


def forget_programs(most: int = MOST_MAPS) -> None:
    """Clear the caches of compiled programs if this process has more than `most` memory maps."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > most:
        jax.clear_caches()


def limit_threads() -> None:
    """Limit this process to one computing thread; to be called before JAX computes anything.

    XLA makes as many threads as `NPROC` says. Libraries that are already loaded are limited by
    threadpoolctl, cell by cell; the variables are for those loaded later and for child processes.
    """
    for variable in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    flags = os.environ.get("XLA_FLAGS", "")
    flag = "--xla_cpu_multi_thread_eigen=false"
    if flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


def _version(library: str) -> str:
    """Return the installed version; a library that runs from its sources has none."""
    try:
        return version(library)
    except PackageNotFoundError:
        return "unknown"


def _plain(value: Any) -> Any:
    """Return a NumPy or JAX value as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return value.tolist()
    raise TypeError(
        f"a cell returned a {type(value).__name__}; expected numbers, strings, lists and dicts"
    )


def _import_name(work: Callable[..., Any]) -> str:
    """Return `module:function`. Workers import by name, so that threads are limited before."""
    name = f"{getattr(work, '__module__', None)}:{getattr(work, '__qualname__', None)}"
    try:
        importable = not name.startswith("__main__") and _imported(name) is work
    except (ImportError, AttributeError):
        importable = False
    if not importable:
        raise SettingsError(f"workers cannot import {name}; give a function at the top of a module")
    return name


def _imported(name: str) -> Callable[[Cell], Result]:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


# How tasks reach the workers


def _completed(
    tasks: Iterable[_Task],
    workers: Workers,
    stop: threading.Event,
    started: Callable[[Cell], None],
) -> Iterator[tuple[_Task, Future[_Answer]]]:
    """Yield each task with its finished future in the order of completion."""
    waiting = deque(tasks)
    running: dict[Future[_Answer], _Task] = {}
    while running or (waiting and not stop.is_set()):
        while waiting and not stop.is_set():
            if len(running) >= (1 if waiting[0].cell.alone else workers.size):
                break
            task = waiting.popleft()
            started(task.cell)
            try:
                future = workers.submit(task)
            except Exception as error:  # a cluster that is gone
                future = Future()
                future.set_exception(error)
            running[future] = task
        finished, _ = wait(running, timeout=POLL_PERIOD, return_when=FIRST_COMPLETED)
        for future in finished:
            yield running.pop(future), future


def _received(cell: Cell, future: Future[_Answer], store: Store) -> Outcome:
    """Return the outcome of a cell, and store its result if there is one."""
    try:
        answer = future.result()
    except (Exception, asyncio.CancelledError) as error:
        problem = f"its worker died or could not be reached ({type(error).__name__}: {error})"
        return Outcome(cell, None, problem, 0.0, False)
    if answer.text is None:
        return Outcome(cell, None, answer.error, answer.seconds, False)
    result = json.loads(answer.text)
    store.put(Stored(cell, result, answer.code, answer.seconds, answer.versions))
    return Outcome(cell, result, None, answer.seconds, False)


# Progress


class _ProgressReport:
    """Counts outcomes and estimates the time left from the times of the finished cells."""

    def __init__(
        self,
        waiting: Sequence[Cell],
        stored: int,
        estimate: Callable[[Cell], float] | None,
        progress: Callable[[GridProgress], None] | None,
    ):
        self.workers: int | None = None
        self._progress = progress
        self._start = time.monotonic()
        self._total = stored + len(waiting)
        self._stored = stored
        self._failed = 0
        self._estimates = {cell.key: estimate(cell) if estimate else 1.0 for cell in waiting}
        self._estimable = estimate is not None
        self._started: dict[str, float] = {}
        # Sums over the finished cells [s].
        self._estimated = 0.0
        self._measured = 0.0

    def started(self, cell: Cell) -> None:
        self._started[cell.key] = time.monotonic()

    def send(self, last: Outcome | None = None) -> None:
        if last is not None:
            estimated = self._estimates.pop(last.cell.key)
            if last.error is None:
                self._estimated += estimated
                self._measured += last.seconds
                self._estimable = True
            else:
                self._failed += 1
        if self._progress is not None:
            self._progress(
                GridProgress(
                    done=self._total - len(self._estimates),
                    total=self._total,
                    stored=self._stored,
                    failed=self._failed,
                    seconds=time.monotonic() - self._start,
                    left=self._left(),
                    last=last,
                )
            )

    def _left(self) -> float | None:
        """Return the time to the end [s]: all work over the workers, but at least one cell's."""
        if self.workers is None or not self._estimable:
            return None
        scale = self._measured / self._estimated if self._estimated else 1.0
        now = time.monotonic()
        longest = 0.0
        total = 0.0
        for key, estimated in self._estimates.items():
            left = max(scale * estimated - (now - self._started.get(key, now)), 0.0)
            longest = max(longest, left)
            total += left
        return max(total / self.workers, longest)
