"""What a fit gives, and the friction that one is asked for."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from ..errors import SettingsError
from ..models.actuator import ActuatorSettings
from ..models.dynamics import InverseDynamics
from .evaluate import Scores
from .misfit import Misfit
from .planning import FitSettings
from .selection import SelectionStep
from .training import HistoryRow

Friction = ActuatorSettings | Literal["auto"] | None


def require_friction(friction: object) -> None:
    """Refuse what is no friction."""
    if not (friction is None or friction == "auto" or isinstance(friction, ActuatorSettings)):
        raise SettingsError(f"friction is 'auto', None or delan.ActuatorSettings, got {friction!r}")


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
        selection: with `friction="auto"`, the terms in the order they were tried in, the last one not worth it.
        misfit: for a chain, whether its error on the validation trajectories is noise or a law it does not know; in the
            latter case `events` ends with a warning.
        rivals: where models competed, the scores of all of them on the validation trajectories, the best first.
    """

    model: InverseDynamics
    validation: Scores
    optimizer: Literal["adam", "lm", "least squares"]
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
    selection: tuple[SelectionStep, ...] = ()
    misfit: Misfit | None = None
    rivals: Mapping[str, Scores] = field(default_factory=dict)

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
                "friction": [asdict(step) for step in self.selection],
                "doubtful": self.misfit is not None and self.misfit.doubtful,
                "rivals": {name: scores.torque.nmse_mean for name, scores in self.rivals.items()},
            },
        }
