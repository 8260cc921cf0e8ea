"""The grid: same bits on every backend, no cell computed twice, and no finished cell lost."""

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from delan.errors import SettingsError
from delan.paper import grid
from delan.paper.backends import Backend, Workers, open_workers
from delan.paper.cells import Cell, Store, Stored
from delan.paper.code_version import code_version
from delan.paper.grid import GridProgress, Outcome, forget_programs, run_grid
from tests.support import toy_cells

ONE, TWO = Backend(workers=1), Backend(workers=2)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def cell(folder: Path, model: str = "plain", seed: int = 0) -> Cell:
    return Cell.of("toy", model, seed=seed, folder=str(folder))


def finished(cell: Cell, result: dict, *, code: str = "") -> Stored:
    return Stored(cell, result, code or code_version(cell.experiment), 1.5, {"python": "3"})


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


# Two cells that compute, one that fails, one that ends its worker, and one after them.
MIXED = [("predicts", 0), ("predicts", 1), ("fails", 2), ("dies", 3), ("plain", 4)]


@pytest.fixture(scope="module")
def local_outcomes(tmp_path_factory) -> list[Outcome]:
    folder = tmp_path_factory.mktemp("local")
    return run_grid(
        [cell(folder, *which) for which in MIXED],
        toy_cells.run,
        Store(folder / "store"),
        backend=TWO,
    )


def test_a_failed_cell_is_reported_and_stops_no_other(local_outcomes):
    predicted, again, failed, dead, plain = local_outcomes
    assert predicted.result is not None
    assert np.isfinite(predicted.result["misses"]).all()
    assert again.result != predicted.result
    assert failed.result is None
    assert failed.error is not None
    assert failed.error.startswith("ValueError: no result for seed 2\n")
    assert "in fails" in failed.error
    assert dead.error is not None
    assert "worker died" in dead.error
    assert plain.result == {
        "square": 16,
        "third": 1 / 3,
        "array": [0, 1],
        "single": float(np.float32(0.1)),
    }
    store = Store(Path(plain.cell["folder"]) / "store")
    stored = [store.get(item.cell) for item in local_outcomes]
    assert [item and item.result for item in stored] == [item.result for item in local_outcomes]
    assert stored[0] is not None
    assert stored[0].versions["jax"]
    assert stored[0].seconds == predicted.seconds > 0


@pytest.mark.parametrize("name", ["dask", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_cluster_gives_the_same_bits(name, local_outcomes, tmp_path, store):
    cells = [cell(tmp_path, *which) for which in MIXED]
    outcomes = run_grid(cells, toy_cells.run, store, backend=Backend(name, workers=2))
    assert [json.dumps(item.result) for item in outcomes] == [
        json.dumps(item.result) for item in local_outcomes
    ]
    assert [item.error and item.error.splitlines()[0][:15] for item in outcomes] == [
        item.error and item.error.splitlines()[0][:15] for item in local_outcomes
    ]
    workers = {int(mark.read_text()) for item in cells for mark in toy_cells.marks(item).iterdir()}
    assert os.getpid() not in workers


def test_a_dask_cluster_is_found_by_its_address(tmp_path, store):
    distributed = pytest.importorskip("distributed")
    options = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "dashboard_address": None,
        "silence_logs": "ERROR",
    }
    with distributed.LocalCluster(**options) as cluster:
        address = cluster.scheduler_address
        [outcome] = run_grid(
            [cell(tmp_path)], toy_cells.run, store, backend=Backend("dask", address=address)
        )
        assert outcome.result is not None
        assert len(cluster.workers) == 1  # it stays for others
        [mark] = toy_cells.marks(outcome.cell).iterdir()
        assert int(mark.read_text()) != os.getpid()  # one worker is a worker too


def test_what_was_finished_is_not_computed_again(tmp_path, store):
    cells = [cell(tmp_path, seed=seed) for seed in range(6)]
    first = run_grid(cells[:3], toy_cells.run, store, backend=ONE)
    received: list[GridProgress] = []
    outcomes = run_grid(cells, toy_cells.run, store, backend=ONE, progress=received.append)
    assert [toy_cells.begun(item) for item in cells] == [1] * 6
    assert [item.stored for item in outcomes] == [True] * 3 + [False] * 3
    assert [item.cell for item in outcomes] == cells
    assert [item.result for item in outcomes[:3]] == [item.result for item in first]
    assert [(now.done, now.total, now.stored, now.failed) for now in received] == [
        (done, 6, 3, 0) for done in (3, 3, 4, 5, 6)
    ]
    assert received[-1].last is not None
    assert received[-1].last.cell in cells[3:]


def test_a_cell_that_stands_twice_is_computed_once(tmp_path, store):
    twin = cell(tmp_path)
    assert len(run_grid([twin, cell(tmp_path), twin], toy_cells.run, store, backend=TWO)) == 1
    assert toy_cells.begun(twin) == 1


def test_the_longest_cells_come_first(tmp_path, store):
    cells = [cell(tmp_path, seed=seed) for seed in (3, 9, 1, 5)]
    received: list[GridProgress] = []
    run_grid(
        cells,
        toy_cells.run,
        store,
        backend=ONE,
        seconds=lambda item: float(item.seed),
        progress=received.append,
    )
    assert [now.last.cell.seed for now in received if now.last] == [9, 5, 3, 1]


def test_runs_by_the_wall_clock_have_the_machine_for_themselves():
    started: list[tuple[str, int]] = []

    running: list[Future] = []

    def submit(task: Any) -> Future:
        started.append((task.cell.model, sum(not future.done() for future in running)))
        future: Future = Future()
        running.append(future)
        threading.Timer(0.05, future.set_result, [None]).start()
        return future

    tasks = []
    for number, clock in enumerate(("stepped", "stepped", "wall", "wall")):
        tasks.append(grid._Task("x", Cell.of("toy", clock, seed=number, clock=clock), "code"))
    workers = Workers(2, submit)
    done = list(grid._completed(tasks, workers, threading.Event(), lambda cell: None))
    assert len(done) == 4
    assert started == [("stepped", 0), ("stepped", 1), ("wall", 0), ("wall", 0)]


def test_an_interrupt_keeps_what_was_finished_and_ends_the_workers(tmp_path, store):
    quick, waiting = cell(tmp_path), cell(tmp_path, "waits")
    interrupted = threading.Event()

    def interrupt() -> None:
        while not interrupted.wait(0.02):
            if store.get(quick) and toy_cells.begun(waiting):
                os.kill(os.getpid(), signal.SIGINT)
                return

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = threading.Thread(target=interrupt)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_grid([quick, waiting], toy_cells.run, store, backend=TWO)
    finally:
        interrupted.set()
        sender.join()
        signal.signal(signal.SIGINT, before)
    [mark] = toy_cells.marks(waiting).iterdir()
    assert not alive(int(mark.read_text()))
    (tmp_path / "go").touch()
    outcomes = run_grid([quick, waiting], toy_cells.run, store, backend=ONE)
    assert [item.stored for item in outcomes] == [True, False]
    assert (toy_cells.begun(quick), toy_cells.begun(waiting)) == (1, 2)


def test_after_stop_no_cell_is_begun_and_those_under_way_are_kept(tmp_path, store):
    cells = [cell(tmp_path), *(cell(tmp_path, "waits", seed) for seed in range(5))]
    stop = threading.Event()

    def after_the_first(now: GridProgress) -> None:
        if now.last is not None and not stop.is_set():
            stop.set()
            (tmp_path / "go").touch()

    outcomes = run_grid(
        cells, toy_cells.run, store, backend=TWO, progress=after_the_first, stop=stop
    )
    assert [item.cell for item in outcomes] == cells[:2]
    assert [toy_cells.begun(item) for item in cells] == [1, 1, 0, 0, 0, 0]
    assert all(store.get(item) for item in cells[:2])


def test_a_problem_of_the_watcher_ends_the_workers(tmp_path, store):
    def watcher(now: GridProgress) -> None:
        if now.last is not None:
            raise RuntimeError("the watcher is broken")

    quick, waiting = cell(tmp_path), cell(tmp_path, "waits")
    with pytest.raises(RuntimeError, match="is broken"):
        run_grid([quick, waiting], toy_cells.run, store, backend=ONE, progress=watcher)
    assert not any(alive(int(mark.read_text())) for mark in toy_cells.marks(waiting).iterdir())
    assert store.get(quick) is not None


def test_a_worker_that_died_while_idle_is_replaced():
    with open_workers(ONE, toy_cells.process_id) as workers:
        first = workers.submit(0).result()
        assert workers.submit(1).result() == first
        os.kill(first, signal.SIGKILL)
        with suppress(BrokenExecutor):  # the executor notices the death before or with this task
            workers.submit(2).result()
        assert workers.submit(3).result() not in (first, os.getpid())


def test_other_code_makes_stored_cells_void(tmp_path, store):
    item = cell(tmp_path)
    store.put(finished(item, {"square": -1}, code="0123456789abcdef"))
    assert store.get(item) is None
    stored = store.get(item, any_code=True)
    assert stored is not None
    assert stored.code == "0123456789abcdef"
    [fresh] = run_grid([item], toy_cells.run, store, backend=ONE)
    assert fresh.result is not None
    assert (fresh.result["square"], fresh.stored) == (0, False)
    assert toy_cells.begun(item) == 1
    assert store.get(item) is not None


def test_a_worker_with_other_code_computes_nothing(tmp_path):
    [outcome] = run_grid(
        [cell(tmp_path)], toy_cells.run, Store(tmp_path / "store", code="newer"), backend=ONE
    )
    assert outcome.error is not None
    assert "the worker runs other code" in outcome.error
    assert toy_cells.begun(outcome.cell) == 0


def test_a_library_without_metadata_has_an_unknown_version(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "LIBRARIES", ("numpy", "delan-from-its-sources"))
    monkeypatch.setattr(grid, "limit_threads", lambda: None)
    item = cell(tmp_path)
    answer = grid._compute(
        grid._Task("tests.support.toy_cells:run", item, code_version(item.experiment))
    )
    assert answer.error is None
    assert answer.versions["delan-from-its-sources"] == "unknown"
    assert answer.versions["numpy"] == np.__version__


DAMAGED = {
    "empty": b"",
    "half": b'{"cell": {"experim',
    "no object": b"[]",
    "no fields": b"{}",
    "other bytes": bytes(range(256)),
    "too deep": b"[" * 100_000,
    "another cell": json.dumps(
        {"cell": {"seed": 1}, "result": {}, "code": "", "seconds": 1.0, "versions": {}}
    ).encode(),
    "no result": b'{"cell": null, "result": 3, "code": "", "seconds": "long", "versions": {}}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_counts_as_not_there(content, tmp_path, store):
    item = cell(tmp_path)
    store.make_folder(item.experiment)
    store.path(item).write_bytes(content)
    assert store.get(item) is None
    assert store.get(item, any_code=True) is None
    store.put(finished(item, {"square": 0}))
    assert store.get(item) == finished(item, {"square": 0})


def test_numbers_come_back_as_the_same_bits(tmp_path, store):
    numbers = [
        0.1 + 0.2,
        1 / 3,
        5e-324,
        1.7976931348623157e308,
        -0.0,
        float("inf"),
        -float("inf"),
        float("nan"),
    ]
    item = cell(tmp_path)
    store.put(finished(item, {"numbers": numbers, "text": "ü"}))
    stored = store.get(item)
    assert stored is not None
    assert np.array(stored.result["numbers"]).tobytes() == np.array(numbers).tobytes()
    assert stored.result["text"] == "ü"
    assert [path.name for path in (store.folder / "toy").iterdir()] == [f"{item.key}.json"]


def test_a_store_that_cannot_be_written_is_refused_before_anything_is_computed(tmp_path):
    (tmp_path / "store").write_text("a file")
    item = cell(tmp_path)
    with pytest.raises(SettingsError, match="results cannot be stored in"):
        run_grid([item], toy_cells.run, Store(tmp_path / "store"), backend=ONE)
    assert toy_cells.begun(item) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_worker_has_one_thread_to_compute_with(tmp_path, store):
    before = dict(os.environ)
    [outcome] = run_grid([cell(tmp_path, "threads")], toy_cells.run, store, backend=ONE)
    assert outcome.result is not None, outcome.error
    assert outcome.result["names"].count("tf_XLAEigen") == 1
    assert set(outcome.result["blas"]) == {1}
    assert dict(os.environ) == before  # the caller keeps its own threads


def test_time_left_is_the_estimate_scaled_by_measured_times(tmp_path, store, monkeypatch):
    clock = [0.0]
    stopped = SimpleNamespace(monotonic=lambda: clock[0], perf_counter=time.perf_counter)
    monkeypatch.setattr(grid, "time", stopped)
    received: list[GridProgress] = []

    def watcher(now: GridProgress) -> None:
        received.append(now)
        clock[0] += 10.0

    cells = [cell(tmp_path, seed=seed) for seed in range(3)]
    run_grid(cells, toy_cells.run, store, backend=ONE, seconds=lambda _: 1e6, progress=watcher)
    first, ready, *after, last = received
    assert first.left is None
    assert ready.left == 3e6
    assert all(now.left is not None and now.left < 1e6 for now in after)
    assert last.left == 0.0
    assert last.seconds == 40.0
    received.clear()
    run_grid(cells, toy_cells.run, store, backend=ONE, progress=watcher)
    assert [(now.done, now.stored, now.left) for now in received] == [(3, 3, None)]


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_missing_package_is_named(name, tmp_path, store, monkeypatch):
    monkeypatch.setitem(sys.modules, {"dask": "distributed", "ray": "ray"}[name], None)
    with pytest.raises(
        SettingsError, match=rf"the backend {name} needs .* -m pip install 'delan\[cluster\]'"
    ):
        run_grid([cell(tmp_path)], toy_cells.run, store, backend=Backend(name))


def test_an_address_without_a_cluster_is_refused(tmp_path, store):
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(SettingsError, match="no Dask scheduler answers at tcp://127"),
    ):
        run_grid(
            [cell(tmp_path)],
            toy_cells.run,
            store,
            backend=Backend("dask", address="tcp://127.0.0.1:9"),
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "slurm"}, "'slurm'; choose one of local, dask, ray"),
        ({"address": "tcp://host:8786"}, "choose the backend dask or ray"),
        ({"name": "ray", "address": ""}, "the address of the cluster is empty"),
        ({"workers": 0}, "expected at least one worker, got 0"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_a_backend_that_cannot_be_is_refused(fields, message):
    with pytest.raises(SettingsError, match=message):
        Backend(**fields)


def test_work_that_no_worker_can_import_is_refused(tmp_path, store):
    with pytest.raises(
        SettingsError, match=r"workers cannot import .*<lambda>; give a function at the top"
    ):
        run_grid([cell(tmp_path)], lambda item: {}, store)


def test_a_worker_forgets_programs_before_linux_ends_it():
    square: Any = jax.jit(lambda x: x * x)
    square(2.0)
    forget_programs()
    assert square._cache_size() == 1
    forget_programs(most=0)
    assert square._cache_size() == 0
    assert square(3.0) == 9.0
