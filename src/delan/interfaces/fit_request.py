"""What is typed after `delan fit`, read and refused where it makes no sense, and the log to test on."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from ..data.log_options import LogOptions
from ..data.logs import read_log, stream_log
from ..data.preparation import PreparationSettings, prepare
from ..data.sketch import share_known, sketch
from ..deploy.certificate import UNSEEN
from ..errors import SettingsError
from ..joints import Dataset, Joints, Recording
from ..learning.fit_result import Friction
from ..models.actuator import ActuatorSettings, Term
from ..models.dynamics import require_same_joints
from .fit_telling import tell_excerpt

OWN: dict[str, Any] = {
    "epochs": None,
    "optimizer": "auto",
    "width": None,
    "depth": None,
    "weight_decay": 0.0,
    "seeds": 1,
    "resume": False,
}
"""Options of the training of a single model, and what they are when nobody types them."""
FIRST_ROWS = 1000
"""of a test log that are read before the training."""


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What was typed after `delan fit`; `page` is None where none was asked for, `command` all of it in one line."""

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
            raise SettingsError("--seconds and --epochs both bound the training; give one of them")
        if self.urdf is not None and self.model != "auto":
            raise SettingsError(f"--urdf lets models of the URDF compete; leave --model {self.model} out, or --urdf")
        if self.own and (self.model == "auto" or self.page is not None):
            told = ", ".join(self.own)
            why, cure = (
                ("--model auto", "name one --model") if self.model == "auto" else ("--report", "leave --report out")
            )
            raise SettingsError(f"{told}: for one training, and {why} compares several; leave {told} out, or {cure}")
        if self.page_path == self.out:
            raise SettingsError(f"model and page cannot both be {self.out}; give another --out or --report")
        if self.model == "feedforward" and self.friction not in (None, "none"):
            raise SettingsError("a feed-forward network learns friction with all the rest; leave --friction out")
        if self.accelerations == "none" and (self.model == "feedforward" or self.cutoff is not None or self.own):
            raise SettingsError(
                "--accelerations none is for Lagrangian models in a contest: there is no --cutoff, no --model "
                "feedforward and no option of a single training with it; leave one or the other out"
            )
        _ = self.terms  # refuses what it does not know

    @property
    def page_path(self) -> Path:
        """Where the page goes: beside the model, if nothing else was asked for."""
        return self.page or self.out.with_suffix(".html")

    @property
    def own(self) -> list[str]:
        """The options of a single training that were typed."""
        return ["--" + name.replace("_", "-") for name, usual in OWN.items() if getattr(self, name) != usual]

    @property
    def terms(self) -> Friction:
        """The friction asked for: by default it is chosen, but for single networks, which get none."""
        default = "auto" if self.model in ("auto", "chain") else "none"
        return read_friction(default if self.friction is None else self.friction)


def read_friction(text: str) -> Friction:
    """What `--friction` asks for."""
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
            raise SettingsError(f"--friction is auto, none, or some of {', '.join(known)}; got {term!r}{guess}")
    return ActuatorSettings(terms)


def require_readable(request: FitRequest, recording: Recording) -> None:
    """Find out before the training, from its first rows, that the test log is there, of this robot, and another one."""
    assert request.test is not None
    first = next(stream_log(request.test, request.log_options, rows=FIRST_ROWS, sound=False))
    columns = {name: getattr(first, name)[:1] for name in ("t", "q", "tau", "trajectory")}
    row = Dataset(**columns, qd=first.q[:1], qdd=first.q[:1], joints=first.joints, source=first.source)
    require_same_joints(recording.joints, row)
    require_unseen(request.test, sketch(recording), first)


def require_unseen(test: Path, known: Mapping[str, Any], recording: Recording) -> None:
    """Refuse to test on motion that is in the log to learn from."""
    share = share_known(known, recording)
    if share >= UNSEEN:
        raise SettingsError(
            f"--test {test.name}: about {100 * share:.0f} % of the rows looked at are in the log to learn from; a test "
            "says something of motion that no model has seen: give another log, or leave --test out"
        )


def tested(request: FitRequest, known: Mapping[str, Any], joints: Joints, how: PreparationSettings) -> Dataset:
    """The test log, prepared as the log was, of which there is a sketch."""
    assert request.test is not None
    recording = read_log(request.test, request.log_options)
    require_unseen(request.test, known, recording)  # all of it, of which only the beginning was looked at
    tell_excerpt(recording, request.test.name)
    if request.urdf is not None:
        recording = replace(recording, joints=joints)
    return prepare(recording, how)
