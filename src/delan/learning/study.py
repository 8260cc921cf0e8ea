"""A study: what a fit is about, made once and handed to everyone who takes part in it.

Read from the top: a `Study` holds the data with their split, time, randomness and settings. A
`Contender` learns from a study and returns an `Entry`: its model with its scores. The entry holds
the `TrainingResult`, how the model was trained, and for a chain the `WindowTrial`, whether it does
better without accelerations. The `Budget` at the end divides the seconds among the steps.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from ..errors import DataError, SettingsError
from ..joints import Dataset
from ..logs.split import Fold, Split, side, split, split_key
from ..models.friction import FrictionSettings
from ..models.model import Model
from ..solvers.pair import Seat
from ..solvers.training import HistoryRow, Progress, TrainingSettings
from .friction_search import START, SelectionStep
from .residual_check import Misfit
from .scores import Scores, TorqueSize, torque_scores

FrictionChoice = FrictionSettings | Literal["auto"] | None

Watcher = Callable[[Progress], None]
# Called with the name of each step; returns who follows its progress, or None.
Listener = Callable[[str], Watcher | None]

# Shares of the seconds. The last step includes the time to draw the page.
SHARES = {"preparation": 0.3, "chain": 0.3, "windows": 0.08, "rivals": 0.2, "trust": 0.12}
# In place of the number of a fold: every sample is learned from.
NOTHING = -1
# Every step gets at least one second, so that it makes some progress however late it starts.
LEAST_SECONDS = 1.0


def nobody_listens(step: str) -> Watcher | None:
    """The listener of a fit that nobody follows."""
    return None


@dataclass(frozen=True, eq=False)
class Study:
    """The data of a fit with their split, and how much time, randomness and attention it has.

    Attributes:
        dataset: all samples.
        split: the folds of the dataset; `fold` is the number of the one that is left out now, or
            `NOTHING`.
        scored: the same rows with torques at the bandwidth that every model is scored at.
        settings: how each model is trained; its seconds are those of the current step.
        friction: the friction of the Lagrangian models: its terms, `auto` to search for them on the
            validation motion, or None.
        key: the source of all randomness. Contenders share it, so that the same model starts from
            the same weights whoever else takes part.
        stop: set from another thread or by Ctrl-C to end the fit early.
        watch: follows the progress of the current step.
        bar: the error on the present fold that a model must come near to be worth more trials.
        partner: another search for the same arm at the same time, if there is one.
    """

    dataset: Dataset
    split: Split
    scored: Dataset
    settings: TrainingSettings
    friction: FrictionChoice
    key: PRNGKeyArray
    fold: int = 0
    budget: "Budget" = field(default_factory=lambda: Budget())
    stop: threading.Event = field(default_factory=threading.Event)
    listen: Listener = nobody_listens
    watch: Watcher | None = None
    bar: float = float("inf")
    partner: Seat | None = None

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        settings: TrainingSettings | None = None,
        *,
        friction: FrictionChoice = None,
        key: PRNGKeyArray | None = None,
        stop: threading.Event | None = None,
        watch: Watcher | None = None,
    ) -> "Study":
        """The study of one training on a dataset, with a split of its own."""
        settings = TrainingSettings() if settings is None else settings
        key = jax.random.key(0) if key is None else key
        _require(dataset, settings, friction)
        return cls(
            dataset=dataset,
            split=split(dataset, settings.validation, key=split_key(key)),
            scored=dataset,
            settings=settings,
            friction=friction,
            key=key,
            stop=stop or threading.Event(),
            watch=watch,
        )

    @property
    def left_out(self) -> Fold:
        """The fold that is left out now; if nothing is, all rows are on both sides."""
        if self.fold == NOTHING:
            everything = np.ones(len(self.dataset), dtype=bool)
            return Fold(everything, everything)
        return self.split.folds[self.fold]

    @cached_property
    def training(self) -> Dataset:
        """The samples to learn from."""
        return side(self.dataset, self.left_out.training)

    @cached_property
    def validation(self) -> Dataset:
        """The samples to choose by."""
        return side(self.dataset, self.left_out.validation)

    @cached_property
    def judged(self) -> Dataset:
        """The samples to choose by, with torques at the bandwidth that every model is scored at."""
        return side(self.scored, self.left_out.validation)

    @property
    def training_rows(self) -> Int[np.ndarray, " rows"]:
        """Which samples of the dataset are those to learn from."""
        return _places(self.dataset, self.left_out.training)

    @property
    def judged_rows(self) -> Int[np.ndarray, " rows"]:
        """Which samples of `scored` are those to choose by."""
        return _places(self.scored, self.left_out.validation)

    @property
    def parts(self) -> tuple[Dataset, ...]:
        """The dataset in parts that are unlike each other, or both sides of the present split."""
        if self.dataset.counted is None:
            return self.training, self.validation
        return tuple(self.without(number).validation for number in range(len(self.split.folds)))

    @cached_property
    def torque_size(self) -> TorqueSize:
        """Variance and range of the torques of the whole log, to measure errors by."""
        return TorqueSize.of(self.scored)

    def without(self, fold: int) -> "Study":
        """The same study with another fold left out, or with `NOTHING`."""
        return replace(self, fold=fold)

    def part(self, step: str) -> "Study":
        """The same study with the share of the time that a step gets."""
        return self.within(self.budget.part(step))

    def followed(self, name: str) -> "Study":
        """The same study, followed by whoever listens to the training of that name."""
        return replace(self, watch=self.listen(name))

    def on(self, dataset: Dataset, scored: Dataset | None = None) -> "Study":
        """The same study on another preparation of the same rows, with the same split."""
        return replace(self, dataset=dataset, scored=scored or dataset)

    def within(self, seconds: float | None) -> "Study":
        """The same study with another limit of time for its training."""
        return replace(self, settings=replace(self.settings, seconds=seconds))

    @property
    def fixed_friction(self) -> FrictionSettings | None:
        """The friction of contenders that do not search for its terms."""
        return START if self.friction == "auto" else self.friction

    @property
    def seed(self) -> tuple[int, ...]:
        """The key as plain numbers, for model files."""
        return tuple(np.asarray(jax.random.key_data(self.key)).tolist())


@runtime_checkable
class Contender(Protocol):
    """Whatever can take part in a fit."""

    @property
    def name(self) -> str: ...

    def fit(self, study: Study) -> "Entry":
        """Learn from the training motion; the validation motion chooses and scores."""
        ...


@dataclass(frozen=True, eq=False)
class CrossFit:
    """The members, one without each fold, and their torques on the fold they have not seen.

    Attributes:
        members: models in the order of the folds; there may be fewer than folds.
        judged: the samples of each fold, with torques at the bandwidth of the scores.
        predicted: the torques that the member without that fold predicts for them.
        size: of the torques in the whole log, as this model is measured by it.
    """

    members: tuple[Model, ...]
    judged: tuple[Dataset, ...]
    predicted: tuple[Float[np.ndarray, "_ dof"], ...]
    size: TorqueSize

    @property
    def residual(self) -> Float[np.ndarray, "samples dof"]:
        """Measured minus predicted torque of all folds, one after the other."""
        measured = np.concatenate([judged.samples.tau for judged in self.judged])
        return measured - np.concatenate(self.predicted)

    @property
    def fold(self) -> Int[np.ndarray, " samples"]:
        """The number of the fold of each of these samples."""
        sizes = [len(predicted) for predicted in self.predicted]
        return np.repeat(np.arange(len(sizes)), sizes)

    def scores(self, folds: int | None = None) -> Scores:
        """The scores over all folds, or over the first ones."""
        measured = np.concatenate([judged.samples.tau for judged in self.judged[:folds]])
        return torque_scores(np.concatenate(self.predicted[:folds]), measured, self.size)

    def error(self, folds: int | None = None) -> float:
        """The mean nMSE over all folds, or over the first ones."""
        return self.scores(folds).torque.nmse_mean

    @property
    def fold_errors(self) -> tuple[float, ...]:
        """The mean nMSE of each fold."""
        errors = []
        for judged, predicted in zip(self.judged, self.predicted, strict=True):
            scores = torque_scores(predicted, judged.samples.tau, self.size)
            errors.append(scores.torque.nmse_mean)
        return tuple(errors)


@dataclass(frozen=True, eq=False)
class Entry:
    """A model that took part, its scores on the validation motion, and what was chosen for it.

    Attributes:
        model: learned from the training motion, the one that was scored.
        chosen: settings that the validation motion chose, by name.
        training: how the model was trained; None for a constant.
        windows: for a chain, its validation error with and without accelerations.
        relearned: the model after it learned from the validation motion too; None where it did not.
        cross: the model without each fold in turn, and its errors there; a rival that is far behind
            has one fold only.
    """

    name: str
    model: Model
    validation: Scores
    seconds: float
    chosen: Mapping[str, Any] = field(default_factory=dict)
    training: "TrainingResult | None" = None
    windows: "WindowTrial | None" = None
    relearned: Model | None = None
    cross: CrossFit | None = None

    @property
    def error(self) -> float:
        """The mean nMSE on the validation motion."""
        return self.validation.torque.nmse_mean

    @property
    def folds(self) -> int:
        """The number of folds that its errors are of."""
        return 1 if self.cross is None else len(self.cross.members)

    def error_on(self, folds: int) -> float:
        """The mean nMSE on the first folds."""
        if self.cross is None:
            return self.error
        return self.cross.error(folds)

    @property
    def deployed(self) -> Model:
        """The model to use, and to score on motion that is in neither part."""
        return self.relearned or self.model

    @property
    def interrupted(self) -> bool:
        """Whether its training was stopped early."""
        return self.training is not None and self.training.interrupted


@dataclass(frozen=True)
class StructureStep:
    """A structure that was tried, its error (nMSE) on parts of the log left out, and if it is kept.

    The first step is the plain chain, to compare with. A structure that falls behind in training
    has no error on parts left out.
    """

    name: str
    validation: float | None
    kept: bool


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A trained model and how it came about.

    Attributes:
        model: the weights with the lowest error on the validation motion.
        validation: the scores of that model there.
        optimizer, reason: the method, and why it was chosen.
        history: the losses during training; `events` says in sentences what went wrong.
        trajectories: the labels of the validation trajectories.
        members: with several seeds, the result of each; `model` is the best of them on validation.
        selection: with `friction="auto"`, the terms in the order they were tried.
        structure: for a chain, the couplings and parallelograms that were tried, in that order.
        misfit: for a chain, whether its residual on the validation motion is noise or structure.
        settled: whether the training came to its own end, not to that of its time.
        others: arms that a search met and that explain the training motion as well.
    """

    model: Model
    validation: Scores
    optimizer: Literal["adam", "lm", "least squares"]
    reason: str
    settings: TrainingSettings
    seed: tuple[int, ...]
    seconds: float
    samples: int
    interrupted: bool
    history: tuple[HistoryRow, ...] = ()
    events: tuple[str, ...] = ()
    trajectories: tuple[int, ...] = ()
    members: tuple["TrainingResult", ...] = ()
    selection: tuple[SelectionStep, ...] = ()
    structure: tuple[StructureStep, ...] = ()
    misfit: Misfit | None = None
    settled: bool = True
    others: tuple[Model, ...] = ()

    @property
    def error(self) -> float:
        """The mean nMSE on the validation motion."""
        return self.validation.torque.nmse_mean

    @property
    def doubtful(self) -> bool:
        """Whether the residual has structure that the model cannot represent."""
        return self.misfit is not None and self.misfit.doubtful

    @property
    def spread(self) -> dict[str, float]:
        """Validation nMSE over the seeds: smallest, median and largest."""
        scores = [member.error for member in self.members or (self,)]
        return {"min": min(scores), "median": float(np.median(scores)), "max": max(scores)}

    def provenance(self) -> dict[str, Any]:
        """The history of a model, to be stored in its file."""
        return {
            "scores": {"validation": self.validation.as_dict()},
            "seed": list(self.seed),
            "fit": {
                "settings": self.settings.described(),
                "optimizer": self.optimizer,
                "reason": self.reason,
                "seconds": self.seconds,
                "samples": self.samples,
                "events": list(self.events),
                "friction": [asdict(step) for step in self.selection],
                "structure": [asdict(step) for step in self.structure],
                "doubtful": self.doubtful,
            },
        }


@dataclass(frozen=True)
class WindowTrial:
    """The validation error (nMSE) of a chain with accelerations and without."""

    with_accelerations: float
    without_accelerations: float

    @property
    def better(self) -> bool:
        """Whether the validation motion prefers to do without accelerations."""
        return self.without_accelerations < self.with_accelerations


@dataclass(frozen=True)
class Budget:
    """Seconds for steps that follow each other, divided by shares; None: no limit.

    Time that a step does not use is left to the later steps, and they miss what it overruns.
    """

    seconds: float | None = None
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise SettingsError(f"seconds must be positive and finite, got {self.seconds}")

    @property
    def elapsed(self) -> float:
        """Seconds since the budget was made."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        if self.seconds is None:
            return float("inf")
        return max(0.0, self.seconds - self.elapsed)

    def part(self, step: str) -> float | None:
        """The seconds of a step that begins now."""
        if self.seconds is None:
            return None
        names = list(self.shares)
        later = sum(self.shares[name] for name in names[names.index(step) :])
        return max(LEAST_SECONDS, self.left * self.shares[step] / later)


def _places(dataset: Dataset, rows: Bool[np.ndarray, " time"]) -> Int[np.ndarray, " rows"]:
    """Return the places of rows among the samples of a dataset."""
    counted = dataset.counted
    if counted is not None:
        rows = rows[counted]
    return np.flatnonzero(rows)


def require_friction(friction: object) -> None:
    """Refuse a value that describes no friction."""
    known = friction is None or friction == "auto" or isinstance(friction, FrictionSettings)
    if not known:
        raise SettingsError(f"friction is 'auto', None or delan.FrictionSettings, got {friction!r}")


def _require(dataset: Dataset, settings: TrainingSettings, friction: FrictionChoice) -> None:
    if not isinstance(dataset, Dataset):
        problem = f"expected a Dataset, got a {type(dataset).__name__}; use delan.prepare"
        raise DataError("fit", problem)
    if not isinstance(settings, TrainingSettings):
        raise SettingsError(
            f"settings must be delan.TrainingSettings, got {type(settings).__name__}"
        )
    require_friction(friction)
