"""Calls sent to workers through joblib's `Parallel`, and what came of each, in the order in which they end.

joblib's own doors to clusters are not used: that to Dask waits for ever for a cell whose worker died, that to Ray gives
no result before all are there, and every door computes in the caller when there is a single worker. A cell belongs in a
worker, where its threads are limited and its death is survived. So here is one door for all pools.
"""

import asyncio
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import joblib
from joblib.parallel import ParallelBackendBase

from .workers import Pool, Promise


class Call(NamedTuple):
    """A function of the top of a module, and what it is given."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Lost(NamedTuple):
    """A call of which nothing came back, and why."""

    call: Call
    reason: str


def answers_to(
    calls: Iterable[Call], pool: Pool, *, sent: Callable[[Call], None], stop: threading.Event
) -> Generator[Any, None, None]:
    """What each call returned, or that it is `Lost`, in the order in which they end.

    `sent` is told of each call on its way, from any thread. After `stop` no further call is sent; those under way end.
    """
    options: Any = {"return_as": "generator_unordered", "batch_size": 1, "pre_dispatch": pool.size}
    parallel = joblib.Parallel(backend=_Door(pool, sent, stop), **options)
    answers: Any = parallel(joblib.delayed(call.function)(*call.arguments) for call in calls if not stop.is_set())
    try:
        for answer in answers:
            if answer is not _NOT_SENT:
                yield answer
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib regrets the calls that are given up; so does whoever gave them up
            answers.close()


_NOT_SENT = object()


class _Door(ParallelBackendBase):
    """A backend of joblib that gives every task to a pool and turns whatever goes wrong there into an answer."""

    supports_retrieve_callback = True

    def __init__(self, pool: Pool, sent: Callable[[Call], None], stop: threading.Event):
        super().__init__(nesting_level=0)
        self._pool, self._sent, self._stop = pool, sent, stop
        self._aside = ThreadPoolExecutor(1)

    def effective_n_jobs(self, n_jobs: int) -> Any:
        return max(2, self._pool.size)  # for one, joblib would compute in the caller; `pre_dispatch` is the true limit

    def configure(
        self, n_jobs: int = 1, parallel: Any = None, prefer: Any = None, require: Any = None, **_: Any
    ) -> Any:
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Any, callback: Any = None) -> Promise:
        [(function, arguments, _)] = func.items
        call = Call(function, arguments)
        try:
            # joblib takes some calls ahead of time, so they are stopped here and not where they come from.
            promise = self._aside.submit(lambda: [_NOT_SENT]) if self._stop.is_set() else self._send(func, call)
        except Exception as error:
            # Answered by another thread: an answer within the call would bring the next call, within it, and so on.
            promise = self._aside.submit(_raise, error)
        promise.add_done_callback(lambda done: callback((call, done)))
        return promise

    def _send(self, func: Any, call: Call) -> Promise:
        self._sent(call)
        return self._pool.send(func)

    def retrieve_result_callback(self, out: tuple[Call, Promise]) -> Any:
        call, done = out
        try:
            return done.result()
        except (Exception, asyncio.CancelledError) as error:
            return [Lost(call, f"{type(error).__name__}: {error}")]

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self._pool.kill()

    def terminate(self) -> None:
        self._aside.shutdown(wait=False)


def _raise(error: Exception) -> Any:
    raise error
