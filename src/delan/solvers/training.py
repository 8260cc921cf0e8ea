"""A training: its settings, and the loop that watches validation, steps back and stops."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import jax
from jaxtyping import PRNGKeyArray

from .. import storage
from ..errors import DataError, ModelFileError, SettingsError
from ..models.dynamics import InverseDynamics
from .adam import DescentSettings
from .loss import Advance, Data, Objective
from .marquardt import MarquardtSettings

Optimizer = Literal["auto", "adam", "lm"]
Accelerations = Literal["given", "none"]
# The kind of a checkpoint file, by which `storage` tells it from a model.
CHECKPOINT = "delan-checkpoint"
# Time between two checkpoints [s]; a crash loses no more work than that.
CHECKPOINT_SECONDS = 5.0
# A validation loss this many times the best one counts as divergence.
DIVERGED = 100.0
# Share of the budget after which a training may be given up as hopeless.
HOPELESS_SHARE = 0.3
# A validation loss below this share of the last milestone is a new one: smaller gains are no
# progress that patience should wait for.
WORTHWHILE = 0.99
# The fields of a run that a checkpoint stores as plain values.
BOOKS = ("stage", "epoch", "seconds", "best", "milestone", "milestone_epoch", "retreats", "events")
# Searches for the arm of a robot's log at most; two of them usually agree.
SEARCHES = 4


@dataclass(frozen=True)
class TrainingSettings:
    """How to fit.

    Attributes:
        optimizer: `adam`, `lm` (Levenberg–Marquardt in float64, for small networks), or `auto`.
        epochs: passes over the data (iterations of Levenberg–Marquardt); None: a default, or as
            `seconds` allow.
        seconds: limit of the training's wall-clock time, compilation included; at least one step is
            made.
        validation: share of the trajectories held out to choose the best weights.
        patience: share of the budget that may pass without progress on validation before the fit
            stops early.
        retreats: how often a fit that diverged may return to its best weights with a smaller step.
        hopeless: a validation loss; a training that is still above it when 30 % of its budget are
            spent is given up. None: no training is.
        searches: how often the arm of a chain is searched for at most; several searches end when
            two of them agree.
        accelerations: `given` by the dataset, or `none`: motion and torques are integrated against
            smooth windows (`loss.Windows`), so that nothing is differentiated twice and nothing
            needs a filter.
    """

    optimizer: Optimizer = "auto"
    epochs: int | None = None
    seconds: float | None = None
    validation: float = 0.15
    patience: float = 0.3
    retreats: int = 8
    hopeless: float | None = None
    searches: int = 1
    accelerations: Accelerations = "given"
    objective: Objective = field(default_factory=Objective)
    descent: DescentSettings = field(default_factory=DescentSettings)
    marquardt: MarquardtSettings = field(default_factory=MarquardtSettings)

    def __post_init__(self) -> None:
        for name, known in (("optimizer", Optimizer), ("accelerations", Accelerations)):
            value = getattr(self, name)
            if value not in get_args(known):
                expected = ", ".join(get_args(known))
                raise SettingsError(f"unknown {name} {value!r}; known: {expected}")
        if self.epochs is not None and self.epochs < 1:
            raise SettingsError(f"epochs must be at least 1, got {self.epochs}")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise SettingsError(f"seconds must be positive and finite, got {self.seconds}")
        if not 0 < self.validation < 1:
            raise SettingsError(
                f"validation is a share of the trajectories between 0 and 1, got {self.validation}"
            )
        if not 0 < self.patience <= 1:
            raise SettingsError(f"patience is a share of the budget in (0, 1], got {self.patience}")
        if self.searches < 1:
            raise SettingsError(f"searches must be at least 1, got {self.searches}")
        if self.retreats < 0:
            raise SettingsError(f"retreats must be at least 0, got {self.retreats}")

    def described(self) -> dict[str, Any]:
        """Return the settings as plain values, a loss of one's own by its name."""
        fields = asdict(self)
        own = self.objective.loss
        if own is not None:
            fields["objective"]["loss"] = getattr(own, "__qualname__", type(own).__name__)
        return fields

    @property
    def by_clock(self) -> bool:
        """Whether `seconds` alone limit the training."""
        return self.seconds is not None and self.epochs is None


@runtime_checkable
class Stage(Protocol):
    """A method that improves a model in steps of `chunk` epochs (`stages.py`).

    There are `epochs` in all (None: until time runs out); the stage ends after `patience` epochs
    without progress.
    """

    @property
    def name(self) -> str: ...
    @property
    def training(self) -> Data: ...
    @property
    def chunk(self) -> int: ...
    @property
    def epochs(self) -> int | None: ...
    @property
    def patience(self) -> float: ...

    def start(self, model: Any) -> Any:
        """Return the state before the first step."""
        ...

    def advance(
        self, state: Any, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[Any, Advance]:
        """Return the state after a step; `shares` of the budget are spent before each epoch."""
        ...

    def retreat(self, state: Any, model: Any) -> Any:
        """Return a state that continues from an earlier model with smaller steps."""
        ...

    def model(self, state: Any) -> Any:
        """Return the model of a state."""
        ...


@dataclass(frozen=True)
class HistoryRow:
    """The losses after a step of a stage, and the training time so far [s]."""

    stage: str
    epoch: int
    seconds: float
    training: float
    validation: float


@dataclass(frozen=True)
class Progress:
    """A report on a running fit: `share` is the part of its budget that is spent, in [0, 1]."""

    row: HistoryRow
    best: float
    samples_per_second: float
    share: float


@dataclass
class Run:
    """The progress of a training, and the weights with the least validation loss so far.

    Attributes:
        milestone, milestone_epoch: the last validation loss that counted as progress.
        snapshot: what a checkpoint would store, replaced as a whole, so that an interrupt at any
            moment finds a consistent state.
    """

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
    """When to stop: wall-clock time [s], compilation included, steps back, and on request.

    `hopeless` is as in `TrainingSettings`.
    """

    seconds: float | None = None
    retreats: int = 8
    stop: threading.Event | None = None
    hopeless: float | None = None

    @classmethod
    def of(cls, settings: TrainingSettings, stop: threading.Event) -> "Limits":
        """Return the limits of a training with these settings."""
        return cls(settings.seconds, settings.retreats, stop, settings.hopeless)


@dataclass(frozen=True)
class Checkpoint:
    """Where to save the state of a run.

    A run is the same if the fingerprint of its data and settings is.
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
    """Run the stages one after the other, each from the best weights so far.

    An interrupt ends the run with the best weights so far.
    """
    run = Run(best_model=model)
    state = None
    if checkpoint and checkpoint.resume:
        run, state = _restore(checkpoint, stages, run)
    loop = _Loop(run, limits, key, checkpoint, watch, began=time.perf_counter() - run.seconds)
    try:
        while run.stage < len(stages):
            stage = stages[run.stage]
            if state is None:
                state = stage.start(run.best_model)
            loop.run_stage(stage, state)
            if run.interrupted:
                break
            state = None
            run.stage += 1
            run.epoch = 0
            run.milestone_epoch = 0
    except KeyboardInterrupt:
        run.interrupted = True
    if run.interrupted and checkpoint is not None:
        _keep(checkpoint, run)
    run.seconds = loop.elapsed
    return run


@dataclass(eq=False)
class _Loop:
    """A run, its limits and its listeners; `began` and `saved` are values of `perf_counter` [s]."""

    run: Run
    limits: Limits
    key: PRNGKeyArray
    checkpoint: Checkpoint | None
    watch: Callable[[Progress], None] | None
    began: float
    saved: float = 0.0

    @property
    def elapsed(self) -> float:
        """Training time so far [s], that of a resumed run included."""
        return time.perf_counter() - self.began

    def run_stage(self, stage: Stage, state: Any) -> None:
        """Advance a stage until it is finished, out of budget, or no longer improves."""
        run = self.run
        stage_key = jax.random.fold_in(self.key, run.stage)
        limit = self.limits.seconds or math.inf
        self.saved = time.perf_counter()
        # Seconds per epoch. The first advance compiles, so that its time says nothing about the
        # next one's.
        pace = 0.0
        advances = 0
        while stage.epochs is None or run.epoch < stage.epochs:
            if self.limits.stop is not None and self.limits.stop.is_set():
                run.interrupted = True
                return
            elapsed = self.elapsed
            if advances > 0 and elapsed + stage.chunk * pace > limit:
                return
            shares = []
            for ahead in range(stage.chunk):
                shares.append(self._share(stage, run.epoch + ahead, elapsed + ahead * pace))
            after, step = stage.advance(state, shares, jax.random.fold_in(stage_key, run.epoch))
            run.seconds = self.elapsed
            spent = run.seconds - elapsed
            pace = spent / stage.chunk if advances > 0 else 0.0
            advances += 1
            row = _next_row(run, stage, step)
            if _has_diverged(run, step):
                if not _step_back(run, row, self.limits):
                    return
                state = stage.retreat(state, run.best_model)
                continue
            state = after
            _note(run, row, stage.model(state))
            self._report(stage, row, spent)
            if self._is_hopeless(stage, row):
                run.events.append(
                    f"given up after {100 * HOPELESS_SHARE:.0f} % of the training: the validation "
                    f"loss was {run.best:.2g}"
                )
                return
            if step.finished or run.epoch - run.milestone_epoch >= stage.patience:
                return
            self._save(state)

    def _share(self, stage: Stage, epoch: int, elapsed: float) -> float:
        """Return the share of the budget that is spent, by the clock or by epochs."""
        share = 0.0
        if self.limits.seconds is not None:
            share = elapsed / self.limits.seconds
        if stage.epochs is not None:
            share = max(share, epoch / stage.epochs)
        return min(share, 1.0)

    def _is_hopeless(self, stage: Stage, row: HistoryRow) -> bool:
        if self.limits.hopeless is None or self.run.best <= self.limits.hopeless:
            return False
        return self._share(stage, row.epoch, row.seconds) >= HOPELESS_SHARE

    def _report(self, stage: Stage, row: HistoryRow, spent: float) -> None:
        if self.watch is not None:
            rate = stage.chunk * len(stage.training) / spent
            share = self._share(stage, row.epoch, row.seconds)
            self.watch(Progress(row, self.run.best, rate, share))

    def _save(self, state: Any) -> None:
        """Take a snapshot, and write it if the last checkpoint is old enough."""
        if self.checkpoint is None:
            return
        self.run.snapshot = _snapshot(self.run, state)
        if time.perf_counter() - self.saved > CHECKPOINT_SECONDS:
            _keep(self.checkpoint, self.run)
            self.saved = time.perf_counter()


def _next_row(run: Run, stage: Stage, step: Advance) -> HistoryRow:
    """Count the epochs of a step, and return its row of the history."""
    run.epoch += stage.chunk
    if stage.epochs is not None:
        run.epoch = min(run.epoch, stage.epochs)
    return HistoryRow(stage.name, run.epoch, run.seconds, step.training, step.validation)


def _has_diverged(run: Run, step: Advance) -> bool:
    finite = math.isfinite(step.training + step.validation)
    return not finite or step.validation > DIVERGED * run.best


def _note(run: Run, row: HistoryRow, model: Any) -> None:
    run.history.append(row)
    if row.validation < run.best:
        run.best = row.validation
        run.best_model = model
    if row.validation < WORTHWHILE * run.milestone:
        run.milestone = row.validation
        run.milestone_epoch = run.epoch


def _step_back(run: Run, row: HistoryRow, limits: Limits) -> bool:
    """Record a divergence; return whether another attempt is allowed."""
    run.retreats += 1
    again = run.retreats <= limits.retreats
    finite = math.isfinite(row.training + row.validation)
    what = f"rose to {row.validation:.3g}" if finite else "became non-finite"
    action = "gave up, the best weights are kept"
    if again:
        action = "went back to the best weights with a smaller step"
    run.events.append(f"{row.stage}, epoch {row.epoch}: the loss {what}; {action}")
    return again


def _snapshot(run: Run, state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return plain values and modules that belong together."""
    books = {name: getattr(run, name) for name in BOOKS}
    books["events"] = list(run.events)
    return {"run": books, "rows": len(run.history)}, {"state": state, "best": run.best_model}


def _keep(checkpoint: Checkpoint, run: Run) -> None:
    """Write the last snapshot, if there is one."""
    if run.snapshot is None:
        return
    books, modules = run.snapshot
    arrays = {}
    for part, module in modules.items():
        for name, values in storage.arrays_of(module).items():
            arrays[f"{part}.{name}"] = values
    history = [asdict(row) for row in run.history[: books["rows"]]]
    header = {"fingerprint": checkpoint.fingerprint, "run": books["run"], "history": history}
    storage.write_arrays(checkpoint.path, arrays, CHECKPOINT, header)


def _restore(checkpoint: Checkpoint, stages: Sequence[Stage], fresh: Run) -> tuple[Run, Any]:
    """Return an interrupted run and its state, or the fresh run where there is no checkpoint."""
    if not checkpoint.path.exists():
        return fresh, None
    path = str(checkpoint.path)
    arrays, header = storage.read_arrays(path, CHECKPOINT)
    if header.get("fingerprint") != checkpoint.fingerprint:
        raise ModelFileError(
            path,
            "was made with other data, settings or seed; repeat the first command, or remove it to "
            "start anew",
        )
    try:
        run = Run(best_model=fresh.best_model, **header["run"])
        run.history = [HistoryRow(**row) for row in header["history"]]
        template = stages[run.stage].start(fresh.best_model)
    except (KeyError, TypeError, IndexError) as error:
        raise ModelFileError(path, f"is damaged ({error}); remove it to start anew") from None
    modules: dict[str, dict[str, Any]] = {"best": {}, "state": {}}
    for name, values in arrays.items():
        part, _, rest = name.partition(".")
        if part in modules:
            modules[part][rest] = values
    run.best_model = storage.with_arrays(fresh.best_model, modules["best"], path)
    return run, storage.with_arrays(template, modules["state"], path)


def require_learned(run: Run, source: str) -> None:
    """Refuse a run that never had a finite validation loss."""
    if math.isinf(run.best) and not run.interrupted:
        events = "; ".join(run.events)
        raise DataError(
            source,
            f"no fit reached a finite loss ({events}); look for huge or wrong values in the data",
        )
