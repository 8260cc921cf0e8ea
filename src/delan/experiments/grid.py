"""The grid: cells computed side by side on one machine or many, each kept as soon as it is finished.

A cell is computed in a worker with one thread, so that N cells on N cores do not fight and a number does not depend on
how many there are: a cell gives the same bits in a local process, on Dask and on Ray (on processors of one kind).
"""

import json
import os
import platform
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from ..errors import SettingsError
from .answers import Call, Lost, answers_to
from .cells import Cell, Result
from .store import Store, Stored, code_version
from .workers import Backend, pool_of

LIBRARIES = ("delan", "jax", "jaxlib", "numpy", "scipy", "mujoco", "pin")
TRACEBACK_FRAMES = 3
MOST_MAPS = 40_000
"""Pieces of memory that a worker maps before it forgets compiled programs; Linux ends it beyond 65,530."""


class Outcome(NamedTuple):
    """What came of a cell: a result or, in words, an error; and whether it was there from an earlier run."""

    cell: Cell
    result: Result | None
    error: str | None
    seconds: float
    stored: bool


class GridProgress(NamedTuple):
    """How far a grid is.

    Attributes:
        done, total: cells; done counts those taken from the store and those that failed.
        stored, failed: so many of those done.
        seconds: since the start; left: how many more, about, or None while nothing tells.
        last: what was finished just now, None at the start.
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
    any_code: bool = False,
) -> list[Outcome]:
    """Compute the cells that the store has not, and keep each as soon as it is finished.

    A cell that fails, or whose worker dies, is reported, is not stored, and stops no other. An interrupt from the
    keyboard ends the workers; what was finished is stored, and the next run goes on from there.

    Args:
        work: computes a cell; a function of the top of a module that every worker can import.
        backend: who computes; all cores of this machine if not given.
        seconds: about how long a cell takes on one core; the longest start first.
        progress: told at the start, once the workers are there, and after each cell.
        stop: once it is set, no cell is begun; those under way end and are kept.
        any_code: take stored cells also from other code, and trust workers that run it.

    Returns:
        An outcome for each cell in the order given, each cell once; without those that were not begun.
    """
    name, stop = _name(work), stop or threading.Event()
    unique = list({cell.key: cell for cell in cells}.values())
    found = {cell.key: store.get(cell, any_code=any_code) for cell in unique}
    outcomes = {key: Outcome(one.cell, one.result, None, one.seconds, True) for key, one in found.items() if one}
    waiting = [cell for cell in unique if cell.key not in outcomes]
    if seconds is not None:
        waiting.sort(key=seconds, reverse=True)
    watch = _Watch(waiting, len(outcomes), seconds, progress or (lambda _: None))
    watch.tell()
    for experiment in {cell.experiment for cell in waiting}:
        store.make_room(experiment)
    if waiting and not stop.is_set():
        with pool_of(backend or Backend()) as pool:
            watch.workers = pool.size
            watch.tell()
            calls = (Call(_compute, (name, cell, None if any_code else store.code)) for cell in waiting)
            with closing(answers_to(calls, pool, sent=watch.sent, stop=stop)) as answers:
                for answer in answers:
                    outcome = _received(answer, store)
                    outcomes[outcome.cell.key] = outcome
                    watch.finished(outcome)
                    watch.tell(outcome)
    return [outcomes[cell.key] for cell in unique if cell.key in outcomes]


class _Answer(NamedTuple):
    """What a worker says of a cell; `text` is the result in JSON, None if the cell failed."""

    cell: Cell
    text: str | None
    error: str | None
    seconds: float
    code: str
    versions: dict[str, str]


def _compute(name: str, cell: Cell, code: str | None) -> _Answer:
    """What runs in the worker: the work of that name on a cell, with whatever goes wrong caught and told.

    A worker that runs other code than `code` computes nothing; for None it may run any.
    """
    limit_threads()
    forget_programs()
    began, text, error = time.perf_counter(), None, None
    try:
        if code not in (None, code_version()):
            raise SettingsError(
                f"the worker runs other code ({code_version()}) than asked for ({code}); update it there"
            )
        work = _work(name)
        with threadpool_limits(1):
            result = work(cell)
        if not isinstance(result, dict):
            raise TypeError(f"a cell gave a {type(result).__name__}; give a dict")
        text = json.dumps(result, default=_plain)
    except (Exception, SystemExit) as problem:
        frames = traceback.format_tb(problem.__traceback__)[-TRACEBACK_FRAMES:]
        error = "\n".join([f"{type(problem).__name__}: {problem}", "".join(frames).rstrip()])
    versions = {"python": platform.python_version(), **{library: _version(library) for library in LIBRARIES}}
    return _Answer(cell, text, error, time.perf_counter() - began, code_version(), versions)


def forget_programs(most: int = MOST_MAPS) -> None:
    """Let go of the compiled programs of earlier cells where they take more pieces of memory than that."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > most:
        jax.clear_caches()


def _version(library: str) -> str:
    """As it was installed; a library that runs from its sources does not tell."""
    try:
        return version(library)
    except PackageNotFoundError:
        return "not told"


def limit_threads() -> None:
    """One thread for all that follows in this process; to be called before JAX computes anything.

    XLA makes as many threads as `NPROC` says. Libraries that were loaded before are limited by threadpoolctl, cell by
    cell; the variables are for those that come, and for processes that a cell starts.
    """
    for variable in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    flags, flag = os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=false"
    if flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


def _plain(value: Any) -> Any:
    """An array or a number of NumPy or JAX for JSON; nothing else has a meaning there."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return value.tolist()
    raise TypeError(f"a cell gave a {type(value).__name__}; give numbers, strings, lists and dicts of them")


def _received(answer: _Answer | Lost, store: Store) -> Outcome:
    """The outcome of a cell, which is kept if it is good."""
    if isinstance(answer, Lost):
        cell = answer.call.arguments[1]
        return Outcome(cell, None, f"its worker died or could not be reached ({answer.reason})", 0.0, False)
    if answer.text is None:
        return Outcome(answer.cell, None, answer.error, answer.seconds, False)
    result = json.loads(answer.text)
    store.put(Stored(answer.cell, result, answer.code, answer.seconds, answer.versions))
    return Outcome(answer.cell, result, None, answer.seconds, False)


def _name(work: Callable[..., Any]) -> str:
    """Where a worker finds the function. It goes there by name, so that its module is imported with limited threads."""
    name = f"{getattr(work, '__module__', None)}:{getattr(work, '__qualname__', None)}"
    try:
        found = None if name.startswith("__main__") else _work(name)
    except (ImportError, AttributeError):
        found = None
    if found is not work:
        raise SettingsError(f"workers cannot import {name}; give a function at the top of a module")
    return name


def _work(name: str) -> Callable[[Cell], Result]:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


class _Watch:
    """Counts what is finished and foretells the rest: estimates, scaled by what the finished cells took."""

    def __init__(
        self,
        waiting: Sequence[Cell],
        stored: int,
        estimate: Callable[[Cell], float] | None,
        progress: Callable[[GridProgress], None],
    ):
        self.workers: int | None = None
        self._progress, self._start = progress, time.monotonic()
        self._total, self._stored, self._failed = stored + len(waiting), stored, 0
        self._open = {cell.key: estimate(cell) if estimate else 1.0 for cell in waiting}
        self._began: dict[str, float] = {}
        self._guessed, self._taken, self._known = 0.0, 0.0, estimate is not None

    def sent(self, call: Call) -> None:
        self._began[call.arguments[1].key] = time.monotonic()

    def finished(self, outcome: Outcome) -> None:
        guess = self._open.pop(outcome.cell.key)
        if outcome.error is None:
            self._guessed, self._taken, self._known = self._guessed + guess, self._taken + outcome.seconds, True
        else:
            self._failed += 1

    def left(self) -> float | None:
        """Time to the end: that of all work over the workers, or that of the longest cell, whichever is more [s]."""
        if self.workers is None or not self._known:
            return None
        scale, now = self._taken / self._guessed if self._guessed else 1.0, time.monotonic()
        rest = [max(scale * guess - (now - self._began.get(key, now)), 0.0) for key, guess in list(self._open.items())]
        return max([sum(rest) / self.workers, *rest])

    def tell(self, last: Outcome | None = None) -> None:
        done, seconds = self._total - len(self._open), time.monotonic() - self._start
        self._progress(GridProgress(done, self._total, self._stored, self._failed, seconds, self.left(), last))
