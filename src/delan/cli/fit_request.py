"""The options of `delan fit` as a record, and the settings that they ask for."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import SettingsError
from .app import (
    JsonOption,
    SeedOption,
    option,
    read_friction,
    read_structure,
    require_writable,
)
from .log_options import LogsArgument

if TYPE_CHECKING:
    from ..learning.fit_settings import FitSettings
    from ..learning.study import FrictionChoice
    from ..models.model import Architecture

# Options for the training of a single model.
SINGLE = ("epochs", "optimizer", "width", "depth", "weight_decay", "seeds", "resume")


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """The options of `delan fit`, without those of its logs."""

    log: LogsArgument
    out: Path | None = option(
        None,
        "-o",
        "--out",
        help="Model file to write; default: LOG's name with .delan, in this folder.",
    )
    test: Path | None = option(
        None, help="Log or folder to score the model on; never used to choose it."
    )
    urdf: Path | None = option(
        None, help="URDF of the robot: models based on it compete with the learned ones."
    )
    report: Path | None = option(
        None, help="Report to write; default: the model's name with .html.", metavar="PAGE"
    )
    model: Literal["auto", "chain", "delan", "feedforward"] = option(
        "auto",
        help="auto: all of them compete, the best on the validation motion is kept; chain: a "
        "rigid arm of learned geometry; delan: a DeLaN network; feedforward: a feed-forward "
        "network.",
    )
    preset: Literal["paper"] | None = option(
        None,
        help="paper: network and training of the paper to the letter, in place of --model: ReLU, "
        "raw positions, gravity as a vector, squared error, Adam. Options of a single model "
        "change it.",
    )
    friction: str | None = option(
        None,
        help="none; auto: viscous, coulomb and offset, and further terms while held-out motion "
        "is explained better; or a list of terms such as viscous,coulomb, from armature, "
        "viscous, coulomb, asymmetric, stribeck, offset, load, stops, spring, periodic. Default: "
        "auto; none for --model delan.",
        show_default=False,
    )
    structure: str = option(
        "auto",
        help="Of the chain. auto: look for limbs that do not feel each other, for coupled drives, "
        "and for parallelograms where a plain chain leaves torque unexplained; plain: do not; or a "
        "JSON file with coupling, the rows of A in q_tree = A q, and perhaps parents and sliding, "
        "one entry for each joint of the tree.",
        metavar="auto|plain|FILE",
    )
    cutoff: float | None = option(
        None,
        metavar="HZ",
        help="Cut-off of the low-pass filter; default: chosen on the validation motion.",
    )
    accelerations: Literal["auto", "filtered", "none"] = option(
        "auto",
        help="filtered: from filtered motion; none: torques averaged over short windows need "
        "no accelerations and no filter; auto: the better of the two.",
    )
    seed: SeedOption = 0
    seconds: float | None = option(
        None,
        help="Limit of the wall clock, compilation included; approximate, because every model "
        "gets one trial. Default: as long as it needs.",
    )
    thorough: bool = option(
        False,
        "--thorough",
        help="Search for the arm several times and train every rival to its end; takes minutes.",
    )
    parents: str | None = option(
        None,
        metavar="P,…",
        help="Kinematic tree of the chain: for each joint the number of the joint that carries it, "
        "from 0, or -1 for the base, such as -1,0,1,-1,3,4 for two legs. Default: the limbs "
        "that the log tells, else a serial arm.",
    )
    epochs: int | None = option(
        None, help="Single model: passes over the data, in place of --seconds; default: chosen."
    )
    optimizer: Literal["auto", "adam", "lm"] = option(
        "auto", help="Single model: auto chooses by the size of the problem."
    )
    width: int | None = option(
        None, help="Single model: units of each hidden layer; default: chosen."
    )
    depth: int | None = option(None, help="Single model: hidden layers; default: 2.")
    weight_decay: float = option(
        0.0,
        help="Single model: weight of the squared weights in the loss (λ of the paper's eq. 9).",
    )
    seeds: int = option(
        1,
        help="Single model: train N models in parallel; keep the one with the lowest "
        "validation error.",
        min=1,
        metavar="N",
    )
    resume: bool = option(
        False, "--resume", help="Single model: continue from the checkpoint of a stopped fit."
    )
    fix: bool = option(
        False,
        "--fix",
        help="Repair reversed signs and exchanged columns as `delan check` advises, in the log and "
        "in --test, and say so.",
    )
    force: bool = option(
        False,
        "--force",
        help="Fit even if the check finds reversed signs or exchanged columns.",
    )
    as_json: JsonOption = False

    def __post_init__(self) -> None:
        # First of all: the checks below take for granted that these are names of files.
        require_writable(self.model_path, self.report, inputs=self.log)
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise SettingsError(f"--seconds must be positive and finite, got {self.seconds:g}")
        if self.seconds is not None and self.epochs is not None:
            raise SettingsError("--seconds and --epochs both limit the training; give one of them")
        if self.fix and self.force:
            raise SettingsError(
                "--fix repairs the log and --force takes it as it is; give one of them"
            )
        if self.urdf is not None and self.model != "auto":
            raise SettingsError(
                f"--urdf lets models of the URDF compete; leave --model {self.model} out, or --urdf"
            )
        # The default of an option is the value of the class.
        given = [name for name in SINGLE if getattr(self, name) != getattr(FitRequest, name)]
        single = ", ".join("--" + name.replace("_", "-") for name in given)
        if self.resume and self.seeds > 1:
            raise SettingsError("--resume continues one training; leave --seeds out")
        if self.preset is not None and (self.model != "auto" or self.urdf is not None):
            raise SettingsError(
                f"--preset {self.preset} is one model; leave --model and --urdf out"
            )
        if single and not self.trains_one:
            raise SettingsError(
                f"{single}: for the training of one model, and --model auto compares several; "
                f"leave {single} out, or name one --model"
            )
        if self.page_path == self.model_path:
            raise SettingsError(
                f"model and page cannot both be {self.page_path}; give another --out or --report"
            )
        if self.model == "feedforward" and self.friction not in (None, "none"):
            raise SettingsError(
                "a feed-forward network learns friction with everything else; leave --friction out"
            )
        windows = self.accelerations == "none"
        if windows and (self.model == "feedforward" or self.cutoff is not None or single):
            raise SettingsError(
                "--accelerations none is for Lagrangian models: there is no --cutoff, no --model "
                "feedforward and no option of a single training with it; leave one of them out"
            )
        _ = self.tree  # refuses what is no list of numbers
        _ = self.friction_choice  # refuses unknown terms
        _ = self.models  # refuses hidden layers of a chain

    @property
    def model_path(self) -> Path:
        """Where the model goes: into this folder, unless --out says otherwise."""
        return self.out or Path(self.log[0].stem + ".delan")

    @property
    def page_path(self) -> Path:
        """Where the page goes: beside the model, unless --report says otherwise."""
        return self.report or self.model_path.with_suffix(".html")

    @property
    def trains_one(self) -> bool:
        """Whether a single model was asked for."""
        return self.model != "auto" or self.preset is not None

    @property
    def checkpoint(self) -> Path | None:
        """Where an unfinished training of a single model is kept."""
        if not self.trains_one or self.seeds > 1:
            return None
        return self.model_path.with_name(self.model_path.name + ".checkpoint")

    @property
    def tree(self) -> tuple[int, ...] | None:
        """The parents of the joints, None for a serial arm."""
        if self.parents is None:
            return None
        try:
            return tuple(map(int, self.parents.split(",")))
        except ValueError:
            raise SettingsError(
                f"--parents is one number for each joint, such as -1,0,1,-1,3,4, got "
                f"{self.parents!r}"
            ) from None

    @property
    def friction_choice(self) -> "FrictionChoice | Literal['usual']":
        """The friction that was asked for."""
        if self.friction is None:
            return "usual"
        return read_friction(self.friction)

    @property
    def models(self) -> "str | Architecture":
        """The model that was asked for, by its name or, with a size, by its settings."""
        from ..learning.presets import PRESETS
        from ..models.networks import FeedForwardSettings, LagrangianNetworkSettings

        if self.width is None and self.depth is None:
            return self.preset or self.model
        if self.model == "chain":
            raise SettingsError(
                "a chain has no hidden layers; leave --width and --depth out, or choose another "
                "--model"
            )
        settings = LagrangianNetworkSettings()
        if self.model == "feedforward":
            settings = FeedForwardSettings()
        if self.preset is not None:
            settings = PRESETS[self.preset].network
        if self.width is not None:
            settings = replace(settings, width=self.width)
        if self.depth is not None:
            settings = replace(settings, depth=self.depth)
        return settings

    @property
    def settings(self) -> "FitSettings":
        """The settings of the fit."""
        from ..learning.fit_settings import FitSettings
        from ..learning.model_fit import TrainingStart
        from ..learning.presets import PRESETS
        from ..solvers.loss import Objective
        from ..solvers.training import TrainingSettings

        training = TrainingSettings(
            optimizer=self.optimizer,
            epochs=self.epochs,
            objective=Objective(weight_decay=self.weight_decay),
        )
        if self.preset is not None:
            training = PRESETS[self.preset].trained(training)
        return FitSettings(
            accelerations=self.accelerations,
            cutoff=self.cutoff,
            training=training,
            seeds=self.seeds,
            start=TrainingStart(checkpoint=self.checkpoint, resume=self.resume),
            thorough=self.thorough,
            parents=self.tree,
            structure=read_structure(self.structure),
        )
