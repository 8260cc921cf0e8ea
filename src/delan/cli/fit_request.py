"""The options of `delan fit`, checked, and the log to test on."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from ..deploy.certificate import UNSEEN
from ..errors import SettingsError
from ..joints import Dataset, Joints, Recording
from ..learning.fit import FitSettings
from ..learning.model_fit import TrainingStart
from ..learning.study import FrictionChoice
from ..logs.excerpts import share_known, sketch
from ..logs.options import LogOptions
from ..logs.preparation import PreparationSettings, prepare
from ..logs.reading import read_log, stream_log
from ..models.dynamics import require_same_joints
from ..models.feed_forward import FeedForwardSettings
from ..models.friction import FrictionSettings, Term
from ..models.model import Architecture
from ..models.network import LagrangianNetworkSettings
from ..solvers.loss import Objective
from ..solvers.settings import TrainingSettings

# Options for the training of a single model, and their values when they are not given.
SINGLE: dict[str, Any] = {
    "epochs": None,
    "optimizer": "auto",
    "width": None,
    "depth": None,
    "weight_decay": 0.0,
    "seeds": 1,
    "resume": False,
}
# Rows of a test log that are read before the training, to refuse a wrong log early.
FIRST_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """The words after `delan fit`; `page` is None if none was given, `command` is all of them."""

    logs: tuple[Path, ...]
    log_options: LogOptions
    out: Path
    test: Path | None
    urdf: Path | None
    page: Path | None
    model: Literal["auto", "delan", "chain", "feedforward"]
    friction: str | None
    cutoff: float | None
    accelerations: Literal["auto", "filtered", "none"]
    seconds: float | None
    epochs: int | None
    optimizer: Literal["auto", "adam", "lm"]
    width: int | None
    depth: int | None
    weight_decay: float
    seeds: int
    resume: bool
    seed: int
    as_json: bool
    command: str = "delan fit"

    def __post_init__(self) -> None:
        if self.seconds is not None and self.epochs is not None:
            raise SettingsError("--seconds and --epochs both limit the training; give one of them")
        if self.urdf is not None and self.model != "auto":
            raise SettingsError(
                f"--urdf lets models of the URDF compete; leave --model {self.model} out, or --urdf"
            )
        single = ", ".join(self.single_options)
        if self.resume and self.seeds > 1:
            raise SettingsError("--resume continues one training; leave --seeds out")
        if single and self.model == "auto":
            raise SettingsError(
                f"{single}: for the training of one model, and --model auto compares several; "
                f"leave {single} out, or name one --model"
            )
        if self.page_path == self.out:
            raise SettingsError(
                f"model and page cannot both be {self.out}; give another --out or --report"
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
        _ = self.friction_choice  # refuses unknown terms
        _ = self.models

    @property
    def page_path(self) -> Path:
        """Where the page goes: beside the model, unless --report says otherwise."""
        return self.page or self.out.with_suffix(".html")

    @property
    def checkpoint(self) -> Path | None:
        """Where an unfinished training of a single model is kept."""
        if self.model == "auto" or self.seeds > 1:
            return None
        return self.out.with_name(self.out.name + ".checkpoint")

    @property
    def single_options(self) -> list[str]:
        """The options for a single training that were given."""
        given = [name for name, usual in SINGLE.items() if getattr(self, name) != usual]
        return ["--" + name.replace("_", "-") for name in given]

    @property
    def friction_choice(self) -> FrictionChoice | Literal["usual"]:
        """The friction that was asked for."""
        return "usual" if self.friction is None else read_friction(self.friction)

    @property
    def models(self) -> str | Architecture:
        """The model that was asked for, by its name or, with a size, by its settings."""
        if self.width is None and self.depth is None:
            return self.model
        if self.model == "chain":
            raise SettingsError(
                "a chain has no hidden layers; leave --width and --depth out, or choose another "
                "--model"
            )
        usual = (
            FeedForwardSettings() if self.model == "feedforward" else LagrangianNetworkSettings()
        )
        width = usual.width if self.width is None else self.width
        depth = usual.depth if self.depth is None else self.depth
        return replace(usual, width=width, depth=depth)

    @property
    def settings(self) -> FitSettings:
        """The settings of the fit."""
        training = TrainingSettings(
            optimizer=self.optimizer,
            epochs=self.epochs,
            objective=Objective(weight_decay=self.weight_decay),
        )
        return FitSettings(
            accelerations=self.accelerations,
            cutoff=self.cutoff,
            training=training,
            seeds=self.seeds,
            start=TrainingStart(checkpoint=self.checkpoint, resume=self.resume),
        )


def read_friction(text: str) -> FrictionChoice:
    """Read the value of `--friction`."""
    if text == "none":
        return None
    if text == "auto":
        return "auto"
    terms: Any = tuple(term.strip() for term in text.split(","))
    known = get_args(Term)
    for term in terms:
        if term not in known:
            near = difflib.get_close_matches(term, (*known, "auto", "none"), n=1)
            guess = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(
                f"--friction is auto, none, or some of {', '.join(known)}; got {term!r}{guess}"
            )
    return FrictionSettings(terms)


def require_readable(request: FitRequest, recording: Recording) -> None:
    """Find out from its first rows, before the training, that the test log fits the robot."""
    assert request.test is not None
    first = next(stream_log(request.test, request.log_options, rows=FIRST_ROWS, sound=False))
    columns = {name: getattr(first, name)[:1] for name in ("t", "q", "tau", "trajectory")}
    row = Dataset(
        **columns, qd=first.q[:1], qdd=first.q[:1], joints=first.joints, source=first.source
    )
    require_same_joints(recording.joints, row)
    require_unseen(request.test, sketch(recording), first)


def require_unseen(test: Path, known: Mapping[str, Any], recording: Recording) -> None:
    """Refuse to test on motion that is in the log to learn from."""
    share = share_known(known, recording)
    if share >= UNSEEN:
        raise SettingsError(
            f"--test {test.name}: about {100 * share:.0f} % of the rows looked at are in the log to "
            "learn from; a test needs motion that no model has seen: give another log, or leave "
            "--test out"
        )


def read_test_log(request: FitRequest, known: Mapping[str, Any], joints: Joints) -> Recording:
    """Read the test log, which must not contain the log to learn from."""
    assert request.test is not None
    recording = read_log(request.test, request.log_options)
    require_unseen(request.test, known, recording)  # before, only its first rows were compared
    if request.urdf is not None:
        recording = replace(recording, joints=joints)
    return recording


def prepared_test(recording: Recording, settings: PreparationSettings) -> Dataset:
    """The test log, prepared as the log was."""
    return prepare(recording, settings)
