"""The settings of a training, and its reports while it runs."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from ..errors import SettingsError
from .adam import DescentSettings
from .loss import Objective
from .marquardt import MarquardtSettings

Optimizer = Literal["auto", "adam", "lm"]
Accelerations = Literal["given", "none"]


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
        accelerations: `given` by the dataset, or `none`: motion and torques are integrated against
            smooth windows (`windows.py`), so that nothing is differentiated twice and nothing needs
            a filter.
    """

    optimizer: Optimizer = "auto"
    epochs: int | None = None
    seconds: float | None = None
    validation: float = 0.15
    patience: float = 0.3
    retreats: int = 8
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
        if self.retreats < 0:
            raise SettingsError(f"retreats must be at least 0, got {self.retreats}")

    @property
    def by_clock(self) -> bool:
        """Whether `seconds` alone limit the training."""
        return self.seconds is not None and self.epochs is None


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
