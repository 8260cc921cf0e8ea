"""The settings of a training, and what it reports while it runs."""

from dataclasses import dataclass, field
from typing import Literal

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
        seconds: wall-clock bound of the training, compilation included; at least one step is made.
        validation: share of the trajectories held out to choose the best weights.
        patience: share of the budget that may pass without progress on validation before the fit
            stops early.
        retreats: how often a fit that diverged may go back to its best weights with a smaller step.
        accelerations: those of the dataset, or `none` at all: motion and torques are integrated
            against smooth windows (`weak.py`), so that nothing is differentiated twice and nothing
            need be filtered.
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
        if self.optimizer not in ("auto", "adam", "lm"):
            raise SettingsError(f"unknown optimizer {self.optimizer!r}; known: auto, adam, lm")
        if self.accelerations not in ("given", "none"):
            raise SettingsError(f"unknown accelerations {self.accelerations!r}; known: given, none")
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


@dataclass(frozen=True)
class HistoryRow:
    """The losses after an advance, with the training time spent so far [s]."""

    stage: str
    epoch: int
    seconds: float
    training: float
    validation: float


@dataclass(frozen=True)
class Progress:
    """How a fit is getting on, for whoever shows it: `share` is the part of its budget that is
    spent, in [0, 1].
    """

    row: HistoryRow
    best: float
    samples_per_second: float
    share: float
