"""Fit a model to a dataset: choose size and method, hold out validation trajectories, train, keep the best."""

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data.preparation import hold_out
from ..errors import DataError, SettingsError
from ..joints import Dataset
from ..models.dynamics import InverseDynamics, Normalisation
from ..models.feed_forward import FeedForwardNetwork, FeedForwardSettings
from ..models.network import LagrangianNetwork, LagrangianNetworkSettings
from .descent import DescentSettings
from .evaluate import Scores, evaluate
from .levenberg_marquardt import MarquardtSettings
from .objective import Objective, Samples, Scale
from .stages import DescentStage, MarquardtStage, Stage
from .training import Checkpoint, HistoryRow, Limits, Progress, require_learned, train

ModelChoice = Literal["delan", "feedforward"] | LagrangianNetworkSettings | FeedForwardSettings
Optimizer = Literal["auto", "adam", "lm"]

GRADIENT_STEPS = 20_000
"""How long Adam runs when neither epochs nor seconds are given."""
ITERATIONS = 300
"""How long Levenberg–Marquardt runs when neither epochs nor seconds are given; patience is a share of it."""
LEAST_SECONDS = 15.0
"""Less time than this and the second-order method is not worth its compilation."""
CHUNK_SAMPLES = 60_000
"""Samples between two validations of Adam: a fraction of a second."""
WARM_UP_EPOCHS = 100
"""Epochs of Adam before Levenberg–Marquardt, which wants a start in the right valley."""
SMALL_DOF, SMALL_WIDTH, SMALL_WEIGHTS = 3, 16, 600
"""Up to so many joints a network of so many units suffices; up to so many weights the dense method is the faster."""
SMALL_WORK = 3e10
"""The work of a Levenberg–Marquardt iteration, samples × joints × weights², that is still worth waiting for."""


@dataclass(frozen=True)
class FitSettings:
    """How to fit.

    Attributes:
        optimizer: `adam`, `lm` (Levenberg–Marquardt in float64, for small networks), or `auto`.
        epochs: passes over the data (iterations of Levenberg–Marquardt); None: a default, or as `seconds` allow.
        seconds: wall-clock bound of the training, compilation included; at least one step is made.
        validation: share of the trajectories held out to choose the best weights.
        patience: share of the budget that may pass without progress on validation before the fit stops early.
        retreats: how often a fit that diverged may go back to its best weights with a smaller step.
    """

    optimizer: Optimizer = "auto"
    epochs: int | None = None
    seconds: float | None = None
    validation: float = 0.15
    patience: float = 0.3
    retreats: int = 8
    objective: Objective = field(default_factory=Objective)
    descent: DescentSettings = field(default_factory=DescentSettings)
    marquardt: MarquardtSettings = field(default_factory=MarquardtSettings)

    def __post_init__(self) -> None:
        if self.optimizer not in ("auto", "adam", "lm"):
            raise SettingsError(f"unknown optimizer {self.optimizer!r}; known: auto, adam, lm")
        if self.epochs is not None and self.epochs < 1:
            raise SettingsError(f"epochs must be at least 1, got {self.epochs}")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise SettingsError(f"seconds must be positive and finite, got {self.seconds}")
        if not 0 < self.validation < 1:
            raise SettingsError(f"validation is a share of the trajectories between 0 and 1, got {self.validation}")
        if not 0 < self.patience <= 1:
            raise SettingsError(f"patience is a share of the budget in (0, 1], got {self.patience}")
        if self.retreats < 0:
            raise SettingsError(f"retreats must be at least 0, got {self.retreats}")


@dataclass(frozen=True, eq=False)
class FitResult:
    """A fitted model and how it came about.

    Attributes:
        model: the weights that were best on the validation trajectories.
        validation: the scores of that model there.
        optimizer, reason: the method that was used, and why it was chosen.
        history: the losses as the fit went on; `events` tells, in sentences, what went wrong on the way.
        trajectories: the labels of the validation trajectories.
        members: with several seeds, the result of each; `model` is the best of them on validation.
    """

    model: InverseDynamics
    validation: Scores
    optimizer: Literal["adam", "lm"]
    reason: str
    settings: FitSettings
    seed: tuple[int, ...]
    seconds: float
    samples: int
    interrupted: bool
    history: tuple[HistoryRow, ...]
    events: tuple[str, ...]
    trajectories: tuple[int, ...]
    members: tuple["FitResult", ...] = ()

    @property
    def spread(self) -> dict[str, float]:
        """Validation nMSE over the seeds: smallest, median and largest."""
        scores = [member.validation.torque.nmse_mean for member in self.members or (self,)]
        return {"min": min(scores), "median": float(np.median(scores)), "max": max(scores)}

    def provenance(self) -> dict[str, Any]:
        """What a model file should remember of its making."""
        return {
            "scores": {"validation": self.validation.as_dict()},
            "seed": list(self.seed),
            "fit": {
                "settings": asdict(self.settings),
                "optimizer": self.optimizer,
                "reason": self.reason,
                "seconds": self.seconds,
                "samples": self.samples,
                "events": list(self.events),
            },
        }


@dataclass(frozen=True)
class Plan:
    """The network to build and the method to train it, with the reason for the choice."""

    network: LagrangianNetworkSettings | FeedForwardSettings
    optimizer: Literal["adam", "lm"]
    reason: str


def fit(
    dataset: Dataset,
    model: ModelChoice = "delan",
    settings: FitSettings | None = None,
    *,
    key: PRNGKeyArray | None = None,
    seeds: int = 1,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    stop: threading.Event | None = None,
) -> FitResult:
    """Learn a model of the dataset's dynamics.

    Args:
        dataset: samples, cut into trajectories.
        model: `delan` (the Lagrangian network) or `feedforward`, at a size chosen here, or the settings of either.
        settings: how long and by which method to train.
        key: randomness of weights, minibatches and the validation split; the same key gives the same model.
        seeds: how many models to train at once, from keys split off `key`, over the cores.
        progress: called after every step of the fit.
        checkpoint: where to keep the state of an unfinished fit; removed when the fit is done.
        resume: continue from the checkpoint, if there is one, to the result of an unbroken run.
        stop: set it from another thread to end the fit early.

    A stop or an interrupt (Ctrl-C) ends the fit early with the best model so far and `interrupted` set.
    """
    settings = settings or FitSettings()
    if not isinstance(dataset, Dataset):
        raise DataError("fit", f"expected a Dataset, got a {type(dataset).__name__}; make one with delan.prepare")
    if not isinstance(settings, FitSettings):
        raise SettingsError(f"settings must be delan.FitSettings, got {type(settings).__name__}")
    key = jax.random.key(0) if key is None else key
    if seeds < 1:
        raise SettingsError(f"seeds must be at least 1, got {seeds}")
    if resume and checkpoint is None:
        raise SettingsError("resume needs the path of a checkpoint")
    if seeds > 1:
        if checkpoint is not None:
            raise SettingsError("a checkpoint holds one fit; use it with seeds=1")
        return _fit_seeds(dataset, model, settings, key, seeds, progress, stop or threading.Event())
    return _fit_one(
        dataset, model, settings, key, progress, None if checkpoint is None else Path(checkpoint), resume, stop
    )


def plan(model: ModelChoice, dataset: Dataset, settings: FitSettings) -> Plan:
    """Size and method: Levenberg–Marquardt where the network is small enough for it, else Adam on a wide one."""
    hurried = settings.optimizer == "auto" and settings.seconds is not None and settings.seconds < LEAST_SECONDS
    if isinstance(model, str):
        if model not in ("delan", "feedforward"):
            raise SettingsError(f"unknown model {model!r}; known: delan, feedforward")
        network_type = LagrangianNetworkSettings if model == "delan" else FeedForwardSettings
        small = dataset.dof <= SMALL_DOF and settings.optimizer != "adam" and not hurried
        network = network_type(width=SMALL_WIDTH) if small else network_type()
    elif isinstance(model, LagrangianNetworkSettings | FeedForwardSettings):
        network = model
    else:
        raise SettingsError(
            f"model must be 'delan', 'feedforward' or the settings of a network, got {type(model).__name__}; "
            "what steers the training goes into settings="
        )
    weights = _count_weights(network, dataset)
    work = len(dataset) * dataset.dof * weights**2
    if settings.optimizer != "auto":
        return Plan(network, settings.optimizer, f"asked for; {weights} weights")
    size = f"{weights} weights, {len(dataset)} samples"
    if hurried and dataset.dof <= SMALL_DOF:
        return Plan(network, "adam", f"{size}: {settings.seconds:g} s are too few for the second-order method")
    if weights <= SMALL_WEIGHTS and work <= SMALL_WORK and not hurried:
        return Plan(network, "lm", f"{size}: few enough for the dense second-order method")
    return Plan(network, "adam", f"{size}: too many for the dense second-order method")


def _build(
    network: LagrangianNetworkSettings | FeedForwardSettings, dataset: Dataset, key: PRNGKeyArray
) -> LagrangianNetwork | FeedForwardNetwork:
    scale = Normalisation.of(dataset)
    if isinstance(network, FeedForwardSettings):
        return FeedForwardNetwork(dataset.joints, network, scale, key=key)
    return LagrangianNetwork(dataset.joints, network, scale, key=key)


def _count_weights(network: LagrangianNetworkSettings | FeedForwardSettings, dataset: Dataset) -> int:
    shape = eqx.filter_eval_shape(lambda: _build(network, dataset, jax.random.key(0)))
    leaves = jax.tree.leaves(shape, is_leaf=lambda node: isinstance(node, Normalisation))
    return sum(leaf.size for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct))


def _fit_one(
    dataset: Dataset,
    model: ModelChoice,
    settings: FitSettings,
    key: PRNGKeyArray,
    progress: Callable[[Progress], None] | None,
    checkpoint: Path | None,
    resume: bool,
    stop: threading.Event | None,
    shared_split: PRNGKeyArray | None = None,
) -> FitResult:
    split_key, model_key, train_key = jax.random.split(key, 3)
    if shared_split is not None:
        split_key = shared_split
    training, validation = hold_out(dataset, settings.validation, key=split_key)
    chosen = plan(model, training, settings)
    kept = None
    if checkpoint is not None:
        kept = Checkpoint(checkpoint, _fingerprint(dataset, chosen, settings, key), resume)
    with jax.enable_x64(True) if chosen.optimizer == "lm" else nullcontext():
        network = _build(chosen.network, training, model_key)
        stages = _stages(chosen, training, validation, settings)
        limits = Limits(settings.seconds, settings.retreats, stop)
        run = train(stages, network, limits, key=train_key, checkpoint=kept, watch=progress)
    require_learned(run, dataset.source)
    if checkpoint is not None and not run.interrupted:
        checkpoint.unlink(missing_ok=True)
    # A float64 fit hands its weights over in the caller's precision, so that they mix with the caller's arrays.
    fitted = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)) if eqx.is_array(leaf) else leaf, run.best_model)
    return FitResult(
        model=fitted,
        validation=evaluate(fitted, validation, rollouts=False),
        optimizer=chosen.optimizer,
        reason=chosen.reason,
        settings=settings,
        seed=tuple(np.asarray(jax.random.key_data(key)).tolist()),
        seconds=run.seconds,
        samples=len(training),
        interrupted=run.interrupted,
        history=tuple(run.history),
        events=tuple(run.events),
        trajectories=validation.trajectories,
    )


def _stages(chosen: Plan, training: Dataset, validation: Dataset, settings: FitSettings) -> list[Stage]:
    count = len(training)
    scale = Scale.of(training, settings.objective)
    data = (Samples.of(training), Samples.of(validation), scale, settings.objective)
    by_clock = settings.seconds is not None and settings.epochs is None
    if chosen.optimizer == "lm":
        epochs = None if by_clock else settings.epochs or ITERATIONS
        warm_up = DescentStage(*data, settings.descent, chunk=10, epochs=WARM_UP_EPOCHS, patience=float("inf"))
        patience = settings.patience * ITERATIONS
        return [warm_up, MarquardtStage(*data, settings.marquardt, epochs=epochs, patience=patience)]
    epochs = settings.epochs or max(20, GRADIENT_STEPS * min(settings.descent.batch, count) // count)
    chunk = max(1, min(CHUNK_SAMPLES // count, -(-epochs // 40)))
    if by_clock:
        chunk, epochs = max(1, CHUNK_SAMPLES // count), None
    patience = float("inf") if epochs is None else settings.patience * epochs
    return [DescentStage(*data, settings.descent, chunk=chunk, epochs=epochs, patience=patience)]


def _fit_seeds(
    dataset: Dataset,
    model: ModelChoice,
    settings: FitSettings,
    key: PRNGKeyArray,
    seeds: int,
    progress: Callable[[Progress], None] | None,
    stop: threading.Event,
) -> FitResult:
    """One thread a core, for XLA lets go of the interpreter while it computes; all hold out the same trajectories."""
    workers = min(os.cpu_count() or 1, seeds)
    if settings.seconds is not None:
        settings = replace(settings, seconds=settings.seconds / -(-seeds // workers))
    with ThreadPoolExecutor(workers) as pool:
        shared, *keys = jax.random.split(key, seeds + 1)
        futures = [
            pool.submit(_fit_one, dataset, model, settings, one, watch, None, False, stop, shared)
            for one, watch in zip(keys, [progress, *[None] * (seeds - 1)], strict=True)
        ]
        try:
            members = tuple(future.result() for future in futures)
        except KeyboardInterrupt:
            stop.set()
            members = tuple(future.result() for future in futures)
    best = min(members, key=lambda member: member.validation.torque.nmse_mean)
    return replace(best, members=members)


def _fingerprint(dataset: Dataset, chosen: Plan, settings: FitSettings, key: PRNGKeyArray) -> str:
    """Tells one fit from another: data, network, method, settings and seed."""
    digest = hashlib.sha256()
    for column in (dataset.q, dataset.qd, dataset.qdd, dataset.tau, dataset.trajectory):
        digest.update(np.ascontiguousarray(column).tobytes())
    settled: Mapping[str, Any] = {
        "plan": asdict(chosen),
        "settings": asdict(settings),
        "joints": asdict(dataset.joints),
    }
    digest.update(repr((settled, np.asarray(jax.random.key_data(key)).tolist())).encode())
    return digest.hexdigest()
