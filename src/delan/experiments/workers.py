"""Who computes the cells: processes of this machine, a Dask cluster or a Ray cluster."""

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from queue import LifoQueue
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import joblib
from joblib.externals.loky import ProcessPoolExecutor, process_executor

from ..errors import SettingsError, installing

BackendName = Literal["local", "dask", "ray"]
MOST_MEMORY = 4_000_000_000
"""By which a local worker may grow before another takes its place [bytes]."""
PATIENCE = 60.0
"""How long a cluster may be without a worker at the start [s]."""


@dataclass(frozen=True)
class Backend:
    """Where cells are computed.

    Attributes:
        name: `local` for processes of this machine; `dask` or `ray` for a cluster (the extra `cluster`), whose
            machines must have the same delan installed.
        address: of the Dask scheduler (`tcp://host:8786`) or the Ray head (`host:6379`, `ray://host:10001`); None
            starts a small cluster on this machine, which ends with the run. A process that is already connected to Ray
            stays connected as it is.
        workers: how many cells at a time; None for one on each core of the machine or the cluster. Dask workers are
            best started with one thread each.
    """

    name: BackendName = "local"
    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(BackendName):
            raise SettingsError(f"there is no backend {self.name!r}; there are {', '.join(get_args(BackendName))}")
        if self.address is not None and self.name == "local":
            raise SettingsError(f"the address {self.address!r} is of a cluster; say whether it is dask or ray")
        if self.address == "":
            raise SettingsError("the address of the cluster is empty; leave it out for a cluster on this machine")
        if self.workers is not None and self.workers < 1:
            raise SettingsError(f"expected at least one worker, got {self.workers}")


@runtime_checkable
class Promise(Protocol):
    """What will come of a task; `result` raises what the task raised, or that its worker died."""

    def add_done_callback(self, fn: Callable[[Any], Any], /) -> Any: ...

    def result(self) -> Any: ...


@runtime_checkable
class Pool(Protocol):
    """Workers that take at most `size` tasks at a time."""

    size: int

    def send(self, task: Callable[[], Any]) -> Promise: ...

    def kill(self) -> None:
        """Give up what is being computed."""
        ...

    def close(self) -> None: ...


class LocalPool:
    """Processes of this machine, each an executor of its own: one that dies takes no cell with it but its own."""

    def __init__(self, workers: int | None):
        self.size = workers or joblib.cpu_count()
        self._executors = {_process() for _ in range(self.size)}
        self._free: LifoQueue[Any] = LifoQueue()
        for executor in self._executors:
            self._free.put(executor)

    def send(self, task: Callable[[], Any]) -> Promise:
        executor = self._free.get()
        try:
            promise = executor.submit(task)
        except BrokenExecutor:  # it died while it had nothing to do
            executor = self._instead_of(executor)
            promise = executor.submit(task)
        except Exception:
            self._free.put(executor)
            raise

        def released(done: Any) -> None:
            dead = not done.cancelled() and isinstance(done.exception(), BrokenExecutor)
            self._free.put(self._instead_of(executor) if dead else executor)

        promise.add_done_callback(released)
        return promise

    def _instead_of(self, executor: Any) -> Any:
        fresh = _process()
        self._executors.discard(executor)
        self._executors.add(fresh)
        return fresh

    def kill(self) -> None:
        self._end(kill_workers=True)

    def close(self) -> None:
        self._end()

    def _end(self, **how: bool) -> None:
        while self._executors:
            self._executors.pop().shutdown(wait=True, **how)


def _process() -> Any:
    """One process, which starts with its first task."""
    return ProcessPoolExecutor(1, initializer=_settle)


def _settle() -> None:
    """Leave Ctrl-C to the parent, and stay: compiled programs are no leak.

    loky ends a worker that has grown by 300 MB, with a warning that users read; the next one would compile all of it
    again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_executor._MAX_MEMORY_LEAK_SIZE = MOST_MEMORY


class DaskPool:
    """The workers of a Dask cluster."""

    def __init__(self, address: str | None, workers: int | None):
        dask = _cluster_package("distributed", "dask")
        self._cluster, self._sent = None, set()
        if address is None:
            self._cluster = dask.LocalCluster(
                n_workers=workers or joblib.cpu_count(),
                threads_per_worker=1,
                memory_limit=None,
                dashboard_address=None,
                silence_logs="ERROR",
            )
        try:
            self._client = dask.Client(self._cluster or address, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise SettingsError(f"no Dask scheduler answers at {address} ({error}); check the address") from None
        if workers is None:
            try:
                self._client.wait_for_workers(1, timeout=PATIENCE)
            except TimeoutError:
                self.close()
                problem = f"the Dask cluster at {address} has no worker; start some, or say how many cells at a time"
                raise SettingsError(problem) from None
        self.size = workers or sum(self._client.nthreads().values())

    def send(self, task: Callable[[], Any]) -> Promise:
        promise = self._client.submit(task, pure=False)
        self._sent.add(promise)
        promise.add_done_callback(self._sent.discard)
        return promise

    def kill(self) -> None:
        """What has begun on a cluster of others ends by itself; nobody waits for it."""
        with suppress(Exception):  # a cluster that is gone computes nothing
            self._client.cancel(list(self._sent), force=True)

    def close(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


class RayPool:
    """The workers of a Ray cluster, a core for each task."""

    def __init__(self, address: str | None, workers: int | None):
        self._ray = _cluster_package("ray", "ray")
        self._sent: dict[Any, Any] = {}
        self._mine = not self._ray.is_initialized()
        if self._mine and address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster for one run has nothing to tell anyone
            with _forks_that_turn_into_programs():
                self._ray.init(
                    address="local",
                    num_cpus=workers or joblib.cpu_count(),
                    object_store_memory=10**8,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                )
        elif self._mine:
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (OSError, RuntimeError, ValueError) as error:
                hint = "check the address and, if the cluster asks for a token, set RAY_AUTH_MODE=token"
                raise SettingsError(f"no Ray answers at {address} ({error}); {hint}") from None
        self.size = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._call = self._ray.remote(num_cpus=1, max_retries=0)(_call)

    def send(self, task: Callable[[], Any]) -> Promise:
        reference = self._call.remote(task)
        promise = reference.future()
        self._sent[promise] = reference
        promise.add_done_callback(self._sent.pop)
        return promise

    def kill(self) -> None:
        for reference in list(self._sent.values()):
            with suppress(Exception):  # it may have ended just now
                self._ray.cancel(reference, force=True)

    def close(self) -> None:
        if self._mine:
            self._ray.shutdown()


def _call(task: Callable[[], Any]) -> Any:
    return task()


@contextmanager
def _forks_that_turn_into_programs() -> Iterator[None]:
    """JAX warns of every fork; one that becomes another program at once, as Ray's daemons do, harms nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        yield


def _cluster_package(package: str, backend: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        problem = f"the backend {backend} needs a package that is not here; {installing('cluster')}"
        raise SettingsError(problem) from None


@contextmanager
def pool_of(backend: Backend) -> Iterator[Pool]:
    """Its workers, until the end of the block; an exception ends them at once."""
    if backend.name == "local":
        pool = LocalPool(backend.workers)
    else:
        pool = {"dask": DaskPool, "ray": RayPool}[backend.name](backend.address, backend.workers)
    try:
        yield pool
    except BaseException:
        pool.kill()
        raise
    finally:
        pool.close()
