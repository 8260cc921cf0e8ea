"""Where cells are computed: processes on this machine, a Dask cluster or a Ray cluster.

loky (from joblib), Dask and Ray all give futures of `concurrent.futures`, and the grid uses nothing
else of them. `joblib.Parallel` would be shorter but cannot do it: with Ray it returns nothing
before the last cell has finished (`return_as` is not supported), with Dask it waits forever for a
cell whose worker died, and for one worker it computes in the calling process, where neither threads
nor crashes are contained.
"""

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple, get_args

import joblib
from joblib.externals.loky import ProcessPoolExecutor, process_executor

from ..errors import SettingsError, installing

BackendName = Literal["local", "dask", "ray"]
# Growth of a local worker before loky replaces it [bytes]. loky's own limit of 300 MB would throw
# away compiled programs, which are not a leak.
MOST_MEMORY = 4_000_000_000
# Time that a cluster may take to offer its first worker [s].
CLUSTER_TIMEOUT = 60.0


@dataclass(frozen=True)
class Backend:
    """Where cells are computed.

    Attributes:
        name: `local` for processes on this machine; `dask` or `ray` for a cluster (the extra
            `cluster`), whose machines must have the same delan installed.
        address: the Dask scheduler (`tcp://host:8786`) or the Ray head (`host:6379`,
            `ray://host:10001`); None starts a cluster on this machine that ends with the grid. A
            process that is already connected to Ray keeps its connection.
        workers: number of cells computed at a time; None for one per core of the machine or the
            cluster. Dask workers are best started with one thread each.
    """

    name: BackendName = "local"
    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        names = get_args(BackendName)
        if self.name not in names:
            raise SettingsError(f"unknown backend {self.name!r}; choose one of {', '.join(names)}")
        if self.address is not None and self.name == "local":
            raise SettingsError(
                f"the address {self.address!r} belongs to a cluster; choose the backend dask or ray"
            )
        if self.address == "":
            raise SettingsError(
                "the address of the cluster is empty; leave it out for a cluster on this machine"
            )
        if self.workers is not None and self.workers < 1:
            raise SettingsError(f"expected at least one worker, got {self.workers}")


class Workers(NamedTuple):
    """Workers for `size` tasks at a time; a future raises if its worker died."""

    size: int
    submit: Callable[[Any], Future[Any]]


def open_workers(
    backend: Backend, compute: Callable[[Any], Any]
) -> AbstractContextManager[Workers]:
    """Return workers that apply `compute` to tasks; leaving the context ends running tasks."""
    if backend.name == "local":
        return _local_workers(compute, backend.workers or joblib.cpu_count())
    if backend.name == "dask":
        return _dask_workers(compute, backend.address, backend.workers)
    return _ray_workers(compute, backend.address, backend.workers)


@contextmanager
def _local_workers(compute: Callable[[Any], Any], size: int) -> Iterator[Workers]:
    """Processes on this machine, each an executor of its own: a crash loses only its own task."""
    idle: list[ProcessPoolExecutor] = []
    busy: dict[Future[Any], ProcessPoolExecutor] = {}

    def submit(task: Any) -> Future[Any]:
        # Executors are released here and not in a callback: a callback may come after the caller
        # has seen the result, and a further process would start for the next task.
        for future in [future for future in busy if future.done()]:
            executor = busy.pop(future)
            if not isinstance(future.exception(), BrokenExecutor):
                idle.append(executor)
        while True:
            executor = idle.pop() if idle else ProcessPoolExecutor(1, initializer=_prepare_process)
            with suppress(BrokenExecutor):  # it died while it was idle
                future = executor.submit(compute, task)
                busy[future] = executor
                return future

    try:
        yield Workers(size, submit)
    finally:
        for executor in idle:
            executor.shutdown(wait=True)
        for future, executor in busy.items():
            executor.shutdown(wait=True, kill_workers=not future.done())


def _prepare_process() -> None:
    """Leave Ctrl-C to the parent, and keep a process whose compiled programs need memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_executor._MAX_MEMORY_LEAK_SIZE = MOST_MEMORY


@contextmanager
def _dask_workers(
    compute: Callable[[Any], Any], address: str | None, size: int | None
) -> Iterator[Workers]:
    distributed = _cluster_package("distributed", "dask")
    with ExitStack() as stack:
        scheduler = address
        if address is None:
            cluster = distributed.LocalCluster(
                n_workers=size or joblib.cpu_count(),
                threads_per_worker=1,
                memory_limit=None,
                dashboard_address=None,
                silence_logs="ERROR",
            )
            scheduler = stack.enter_context(cluster)
        try:
            client = stack.enter_context(distributed.Client(scheduler, set_as_default=False))
        except (OSError, TimeoutError, ValueError) as error:
            raise SettingsError(
                f"no Dask scheduler answers at {address} ({error}); check the address"
            ) from None
        if size is None:
            try:
                client.wait_for_workers(1, timeout=CLUSTER_TIMEOUT)
            except TimeoutError:
                raise SettingsError(
                    f"the Dask cluster at {address} has no worker; start some, or give the number "
                    "of cells to compute at a time"
                ) from None
            size = sum(client.nthreads().values())
        executor = client.get_executor(pure=False)
        try:
            yield Workers(size, lambda task: executor.submit(compute, task))
        finally:
            with suppress(Exception):  # a cluster that is gone computes nothing
                # On a cluster of others, tasks that have started finish; nobody waits for them.
                executor.shutdown(wait=False)


@contextmanager
def _ray_workers(
    compute: Callable[[Any], Any], address: str | None, size: int | None
) -> Iterator[Workers]:
    ray = _cluster_package("ray", "ray")
    connected = ray.is_initialized()
    if not connected:
        _start_ray(ray, address, size or joblib.cpu_count())
    if size is None:
        size = max(1, int(ray.cluster_resources().get("CPU", 1)))
    remote = ray.remote(num_cpus=1, max_retries=0)(compute)
    running: dict[Future[Any], Any] = {}

    def submit(task: Any) -> Future[Any]:
        reference = remote.remote(task)
        future = reference.future()
        running[future] = reference
        future.add_done_callback(running.pop)
        return future

    try:
        yield Workers(size, submit)
    finally:
        for reference in list(running.values()):
            with suppress(Exception):  # it may have finished in the meantime
                ray.cancel(reference, force=True)
        if not connected:
            ray.shutdown()


def _start_ray(ray: Any, address: str | None, cpus: int) -> None:
    """Connect to the Ray cluster at an address, or start one on this machine."""
    if address is None:
        # A cluster that lives for one grid does not report its use.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with warnings.catch_warnings():
            # JAX warns of every fork. Ray's turn into other programs at once, which is harmless.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(
                address="local",
                num_cpus=cpus,
                object_store_memory=10**8,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise SettingsError(
            f"no Ray answers at {address} ({error}); check the address and, if the cluster asks "
            "for a token, set RAY_AUTH_MODE=token"
        ) from None


def _cluster_package(package: str, backend: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise SettingsError(
            f"the backend {backend} needs a package that is not installed; {installing('cluster')}"
        ) from None
