"""The settings of a fit, and everything that it was asked for, checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from ..errors import SettingsError
from ..joints import Dataset, Recording
from ..logs.preparation import PreparationSettings
from ..models.chain import LagrangianChainSettings
from ..models.model import Architecture
from ..models.networks import FeedForwardSettings, LagrangianNetworkSettings
from ..solvers.plan import ModelChoice
from ..solvers.training import SEARCHES, TrainingSettings
from .limbs import find_limbs
from .model_fit import FRESH, TrainingStart
from .presets import PRESETS
from .study import FrictionChoice, require_friction

ModelName = Literal["chain", "delan", "feedforward", "identified"]
Accelerations = Literal["auto", "filtered", "none"]

# Searches for the arm of a chain at most, in a thorough fit.
THOROUGH_SEARCHES = 8


@dataclass(frozen=True)
class FitSettings:
    """Settings of a fit.

    Attributes:
        accelerations: `filtered`: from filtered motion. `none`: without any; motion is integrated
            over short windows and nothing is filtered. `auto`: the better of the two for the chain.
        cutoff: of the low-pass filter [Hz]; None: chosen on the validation motion.
        training: how each model is trained; its seconds are set by those of the fit.
        seeds: models that are trained in parallel, of which the best on validation is kept; for one
            model only.
        start: where the training of one model starts, and its checkpoint.
        parents: index of each joint's parent joint in the kinematic tree of a chain, −1 for the
            base; None for a serial arm, or for limbs that the log tells.
        structure: of the chain: `auto` looks for limbs that do not feel each other, for joints that
            depend on several coordinates, such as coupled drives, and for parallelograms where a
            plain chain leaves torque unexplained; `plain` does not; or the structure itself.
        thorough: search longer for an arm that two searches agree on, and train every network to
            its end; this takes minutes.
    """

    accelerations: Accelerations = "auto"
    cutoff: float | None = None
    training: TrainingSettings = field(default_factory=TrainingSettings)
    seeds: int = 1
    start: TrainingStart = FRESH
    thorough: bool = False
    parents: tuple[int, ...] | None = None
    structure: Literal["auto", "plain"] | LagrangianChainSettings = "auto"

    def __post_init__(self) -> None:
        named = self.structure in ("auto", "plain")
        if not (named or isinstance(self.structure, LagrangianChainSettings)):
            raise SettingsError(
                "structure is 'auto', 'plain' or delan.LagrangianChainSettings, "
                f"got {self.structure!r}"
            )
        known = get_args(Accelerations)
        if self.accelerations not in known:
            raise SettingsError(
                f"accelerations is one of {', '.join(known)}, got {self.accelerations!r}"
            )
        if self.accelerations == "none" and self.cutoff is not None:
            raise SettingsError("without accelerations nothing is filtered; leave cutoff out")
        if self.cutoff is not None:
            PreparationSettings(cutoff=self.cutoff)  # refuses what is no frequency
        if self.seeds < 1:
            raise SettingsError(f"seeds must be at least 1, got {self.seeds}")

    @property
    def searches(self) -> int:
        """How often the arm of a chain is searched for at most."""
        least = THOROUGH_SEARCHES if self.thorough else SEARCHES
        return max(self.training.searches, least)

    @property
    def single_training(self) -> bool:
        """Whether training, seeds or start are set, which are for a single model only."""
        usual = replace(TrainingSettings(), validation=self.training.validation)
        continued = self.start.model is not None or self.start.resume
        return self.training != usual or self.seeds > 1 or continued


@dataclass(frozen=True, eq=False)
class FitOptions:
    """Everything that a fit was asked for, checked."""

    models: tuple[ModelName, ...]
    architecture: Architecture | None
    friction: FrictionChoice
    urdf: str | Path | None
    settings: FitSettings
    seconds: float | None
    seed: int

    def __post_init__(self) -> None:
        known = get_args(ModelName)
        for name in self.models:
            if name not in known:
                every = ", ".join(("auto", *known, *PRESETS))
                raise SettingsError(f"unknown model {name!r}; known: {every}")
        if self.settings.single_training and not self.single:
            raise SettingsError(
                "training, seeds and start are for the training of one model; leave them out, or "
                f"name a single model instead of {', '.join(self.models)}"
            )
        if "identified" in self.models and self.urdf is None:
            raise SettingsError("identification needs the robot's URDF; give urdf=")
        if self.settings.accelerations == "none" and "feedforward" in self.models:
            raise SettingsError(
                "a feed-forward network needs accelerations; leave it out, or accelerations='none'"
            )
        if self.settings.parents is not None:
            self._require_tree()
        require_friction(self.friction)

    def _require_tree(self) -> None:
        if "chain" not in self.models:
            raise SettingsError(
                f"parents are the tree of a chain, and {', '.join(self.models)} has none; leave "
                "parents out, or let a chain take part"
            )
        if self.architecture is not None or not isinstance(self.settings.structure, str):
            raise SettingsError("give parents once: in the settings of the chain, or of the fit")

    @property
    def single(self) -> bool:
        """Whether one model alone was asked for."""
        return len(self.models) == 1 and self.urdf is None

    @property
    def chain(self) -> ModelChoice:
        """The chain that is searched for: one of given settings, a tree, or a serial arm."""
        for given in (self.architecture, self.settings.structure):
            if isinstance(given, LagrangianChainSettings):
                return given
        if self.settings.parents is not None:
            return LagrangianChainSettings(self.settings.parents)
        return "chain"

    def with_limbs_of(self, data: Recording | Dataset) -> "FitOptions":
        """The same options with the tree of the robot, if its log tells limbs and none is given."""
        settings = self.settings
        usual = self.architecture is None and settings.structure == "auto"
        fresh = settings.parents is None and settings.start.model is None
        asked = usual and fresh and "chain" in self.models
        if not asked or not isinstance(data, Recording | Dataset):
            return self
        return replace(self, settings=replace(settings, parents=find_limbs(data)))

    @property
    def without_accelerations(self) -> bool:
        """Whether every model is trained on windows over the unfiltered motion."""
        settings = self.settings
        return "none" in (settings.accelerations, settings.training.accelerations)

    def trains_once(self, data: Recording | Dataset) -> bool:
        """Whether a single network is trained exactly as asked, without a search over its settings.

        So it is where the caller set the training, and for signals that need no filter: they are
        clean enough for the second-order method, which the search does not try.
        """
        settings = self.settings
        if not self.single or self.models[0] in ("identified", "chain"):
            return False
        if settings.single_training or self.architecture is not None:
            return True
        if isinstance(data, Dataset):
            return True
        filtered = settings.cutoff is not None or settings.accelerations == "none"
        return data.qdd is not None and not filtered


def fit_options(
    models: str | Architecture | Sequence[str],
    friction: FrictionChoice | Literal["usual"],
    urdf: str | Path | None,
    settings: FitSettings,
    seconds: float | None,
    seed: int,
) -> FitOptions:
    """Check what `delan.fit` was asked for, and fill in the usual."""
    if not isinstance(settings, FitSettings):
        raise SettingsError(f"settings must be delan.FitSettings, got {type(settings).__name__}")
    if isinstance(models, str) and models in PRESETS:
        preset = PRESETS[models]
        models = preset.network
        settings = replace(settings, training=preset.trained(settings.training))
    architecture = None
    if isinstance(models, Architecture):
        architecture = models
    names = _names(models, settings)
    if friction == "usual":
        friction = "auto"
        # A single network is that of the paper, which knows no friction.
        if names in (("delan",), ("feedforward",)):
            friction = None
    return FitOptions(names, architecture, friction, urdf, settings, seconds, seed)


def _names(
    models: str | Architecture | Sequence[str], settings: FitSettings
) -> tuple[ModelName, ...]:
    if isinstance(models, FeedForwardSettings):
        return ("feedforward",)
    if isinstance(models, LagrangianNetworkSettings):
        return ("delan",)
    if isinstance(models, Architecture):
        return ("chain",)
    names: Any = models
    if models == "auto":
        names = ("chain", "delan", "feedforward")
        if settings.accelerations == "none":
            names = ("chain", "delan")  # a feed-forward network needs accelerations
    elif isinstance(models, str):
        names = (models,)
    if not names:
        raise SettingsError("models is empty; name at least one, or 'auto'")
    return tuple(names)
