"""The run of a fit: the loop that watches validation, steps back, keeps checkpoints and stops."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from .. import storage
from ..errors import DataError, ModelFileError
from ..models.dynamics import InverseDynamics
from .settings import HistoryRow, Progress
from .stages import Stage

CHECKPOINT = "delan-checkpoint"
CHECKPOINT_SECONDS = 5.0
DIVERGED = 100.0
"""A validation loss this many times the best one counts as divergence."""
WORTHWHILE = 0.99
"""A validation loss counts as progress when it is below this share of the last one that did."""


@dataclass
class Run:
    """The books of a fit: where it is, what it saw, and the best weights so far."""

    best_model: Any
    stage: int = 0
    epoch: int = 0
    seconds: float = 0.0
    best: float = math.inf
    milestone: float = math.inf
    milestone_epoch: int = 0
    retreats: int = 0
    history: list[HistoryRow] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    interrupted: bool = False
    snapshot: tuple[dict[str, Any], dict[str, Any]] | None = None


@dataclass(frozen=True)
class Limits:
    """When to stop: `seconds` of wall clock, compilation included, and how many steps back are
    allowed.
    """

    seconds: float | None = None
    retreats: int = 8
    stop: threading.Event | None = None


@dataclass(frozen=True)
class Checkpoint:
    """Where to keep the state of a run; the fingerprint of data and settings tells whether it is
    the same run.
    """

    path: Path
    fingerprint: str
    resume: bool = False


def train(
    stages: Sequence[Stage],
    model: InverseDynamics,
    limits: Limits,
    *,
    key: PRNGKeyArray,
    checkpoint: Checkpoint | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Run:
    """Run the stages one after the other, each from the best weights so far; an interrupt ends with
    the best so far.
    """
    run = Run(best_model=model)
    state = None
    if checkpoint and checkpoint.resume:
        run, state = _restore(checkpoint, stages, run)
    began = time.perf_counter() - run.seconds
    try:
        while run.stage < len(stages):
            stage = stages[run.stage]
            state = stage.start(run.best_model) if state is None else state
            state = _run_stage(stage, state, run, limits, key, began, checkpoint, watch)
            if run.interrupted:
                break
            run.stage, run.epoch, run.milestone_epoch, state = run.stage + 1, 0, 0, None
    except KeyboardInterrupt:
        run.interrupted = True
    if run.interrupted and checkpoint is not None:
        _keep(checkpoint, run)
    run.seconds = time.perf_counter() - began
    return run


def _run_stage(
    stage: Stage,
    state: Any,
    run: Run,
    limits: Limits,
    key: PRNGKeyArray,
    began: float,
    checkpoint: Checkpoint | None,
    watch: Callable[[Progress], None] | None,
) -> Any:
    """Advance one stage until it is finished, out of budget, or no longer getting better."""
    count = len(stage.training)
    stage_key = jax.random.fold_in(key, run.stage)
    epoch_seconds, saved = 0.0, time.perf_counter()
    advances = 0
    while stage.epochs is None or run.epoch < stage.epochs:
        if limits.stop is not None and limits.stop.is_set():
            run.interrupted = True
            break
        elapsed = time.perf_counter() - began
        # The first advance compiles, so its time tells nothing of the next one's.
        if (
            limits.seconds is not None
            and elapsed + stage.chunk * epoch_seconds > limits.seconds
            and advances > 0
        ):
            break
        shares = [
            _share(stage, limits, run.epoch + i, elapsed + i * epoch_seconds)
            for i in range(stage.chunk)
        ]
        after, step = stage.advance(state, shares, jax.random.fold_in(stage_key, run.epoch))
        run.seconds = time.perf_counter() - began
        advances += 1
        if advances > 1:
            epoch_seconds = (run.seconds - elapsed) / stage.chunk
        run.epoch += (
            stage.chunk if stage.epochs is None else min(stage.chunk, stage.epochs - run.epoch)
        )
        row = HistoryRow(stage.name, run.epoch, run.seconds, step.training, step.validation)
        if (
            not math.isfinite(step.training + step.validation)
            or step.validation > DIVERGED * run.best
        ):
            if not _step_back(run, row, limits):
                break
            state = stage.retreat(state, run.best_model)
            continue
        state = after
        _note(run, row, stage.model(state))
        if watch is not None:
            rate = stage.chunk * count / (run.seconds - elapsed)
            watch(Progress(row, run.best, rate, _share(stage, limits, run.epoch, run.seconds)))
        if step.finished or run.epoch - run.milestone_epoch >= stage.patience:
            break
        if checkpoint is not None:
            run.snapshot = _snapshot(run, state)
            if time.perf_counter() - saved > CHECKPOINT_SECONDS:
                _keep(checkpoint, run)
                saved = time.perf_counter()
    return state


def _share(stage: Stage, limits: Limits, epoch: int, elapsed: float) -> float:
    """How much of the budget is spent: by the clock where time is the limit and epochs are not,
    else by epochs.
    """
    by_time = elapsed / limits.seconds if limits.seconds is not None else 0.0
    by_epoch = epoch / stage.epochs if stage.epochs is not None else 0.0
    return min(max(by_time, by_epoch), 1.0)


def _note(run: Run, row: HistoryRow, model: Any) -> None:
    run.history.append(row)
    if row.validation < run.best:
        run.best, run.best_model = row.validation, model
    if row.validation < WORTHWHILE * run.milestone:
        run.milestone, run.milestone_epoch = row.validation, run.epoch


def _step_back(run: Run, row: HistoryRow, limits: Limits) -> bool:
    """Say what happened; True while another try is allowed."""
    run.retreats += 1
    finite = math.isfinite(row.training + row.validation)
    what = f"rose to {row.validation:.3g}" if finite else "became non-finite"
    again = run.retreats <= limits.retreats
    then = (
        "went back to the best weights with a smaller step"
        if again
        else "gave up, the best weights are kept"
    )
    run.events.append(f"{row.stage}, epoch {row.epoch}: the loss {what}; {then}")
    return again


def _snapshot(run: Run, state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Books and modules that belong together, so that an interrupt at any moment finds a whole
    state to keep.
    """
    books = {
        name: getattr(run, name)
        for name in (
            "stage",
            "epoch",
            "seconds",
            "best",
            "milestone",
            "milestone_epoch",
            "retreats",
            "events",
        )
    }
    books["events"] = list(run.events)
    return {"run": books, "rows": len(run.history)}, {"state": state, "best": run.best_model}


def _keep(checkpoint: Checkpoint, run: Run) -> None:
    """Write the last snapshot, if there is one."""
    if run.snapshot is None:
        return
    books, modules = run.snapshot
    arrays = {
        f"{part}.{name}": a
        for part, module in modules.items()
        for name, a in storage.arrays_of(module).items()
    }
    history = [asdict(row) for row in run.history[: books["rows"]]]
    header = {"fingerprint": checkpoint.fingerprint, "run": books["run"], "history": history}
    storage.write_arrays(checkpoint.path, arrays, CHECKPOINT, header)


def _restore(checkpoint: Checkpoint, stages: Sequence[Stage], fresh: Run) -> tuple[Run, Any]:
    """The books and the state of an interrupted run, or the fresh ones when there is nothing to
    resume.
    """
    if not checkpoint.path.exists():
        return fresh, None
    path = str(checkpoint.path)
    arrays, header = storage.read_arrays(path, CHECKPOINT)
    if header.get("fingerprint") != checkpoint.fingerprint:
        problem = "was made with other data, settings or seed; repeat the first command, or remove it to start anew"
        raise ModelFileError(path, problem)
    try:
        run = Run(best_model=fresh.best_model, **header["run"])
        run.history = [HistoryRow(**row) for row in header["history"]]
        template = stages[run.stage].start(fresh.best_model)
    except (KeyError, TypeError, IndexError) as error:
        raise ModelFileError(path, f"is damaged ({error}); remove it to start anew") from None
    best = {name.removeprefix("best."): a for name, a in arrays.items() if name.startswith("best.")}
    state = {
        name.removeprefix("state."): a for name, a in arrays.items() if name.startswith("state.")
    }
    run.best_model = storage.with_arrays(fresh.best_model, best, path)
    return run, storage.with_arrays(template, state, path)


def require_learned(run: Run, source: str) -> None:
    """Refuse a run that never saw a finite validation loss."""
    if math.isinf(run.best) and not run.interrupted:
        told = "; ".join(run.events)
        raise DataError(
            source,
            f"no fit reached a finite loss ({told}); look for huge or wrong values in the data",
        )
