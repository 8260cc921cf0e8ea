"""The command `delan fit`: learn a model of the robot in a log, and write it with a report."""

import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from ..errors import DataError, SettingsError
from .app import (
    JsonOption,
    SeedOption,
    app,
    command,
    option,
    read_friction,
    read_structure,
    require_writable,
    say,
    say_if_excerpt,
    takes,
    versions,
    watching,
)
from .log_options import LogsArgument, described_robot, name_of, takes_log_options

if TYPE_CHECKING:
    from ..joints import Recording
    from ..learning.fit_settings import FitSettings
    from ..learning.study import FrictionChoice
    from ..logs.doctor import Finding
    from ..logs.doctor.checked_log import DescribedRobot
    from ..logs.options import LogOptions
    from ..logs.repair import Repair
    from ..models.model import Architecture
    from ..report.fit_report import FitReport

# What a step of the fit is called while it runs.
STEPS = {
    "preparation": "choosing cut-off and delay",
    "chain": "training the chain",
    "delan": "training the DeLaN network",
    "feedforward": "training the feed-forward network",
    "residual": "training a network beside the URDF's arm",
    "trust": "computing the band and what more data would bring",
}
# Options for the training of a single model.
SINGLE = ("epochs", "optimizer", "width", "depth", "weight_decay", "seeds", "resume")
# A fit that took this many times the seconds asked for says why.
LATE = 1.2


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
        help="Of the chain. auto: where a plain chain leaves torque unexplained, look for coupled "
        "drives and parallelograms; plain: do not; or a JSON file with coupling, the rows of A in "
        "q_tree = A q, and perhaps parents and sliding, one entry for each joint of the tree.",
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
        "from 0, or -1 for the base, such as -1,0,1,-1,3,4 for two legs. Default: a serial arm.",
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
        require_writable(self.model_path, self.report)
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


@app.command()
@command
@takes_log_options
@takes("request", FitRequest)
def fit(*, request: FitRequest, log_options: Any) -> None:
    """Learn a model of the robot in LOG, say whether to deploy it, and write it with a report."""
    began = time.perf_counter()
    report, log_options = _fitted(request, log_options)
    interrupted = report.fit.interrupted
    if interrupted and not report.verdict.beats_constant:
        say("stopped before any model was better than a constant torque; no model was written")
        raise typer.Exit(130)
    from .fit_output import write_outcome

    write_outcome(request, log_options, report)
    seconds = time.perf_counter() - began
    if request.seconds is not None and seconds > LATE * request.seconds:
        reason = "every model gets one trial, and programs are compiled when first used"
        say(f"it took {seconds:.0f} s, more than the {request.seconds:g} s asked for: {reason}")
    if interrupted:
        more = ", --resume continues" if request.trains_one else ""
        say(f"stopped early; {request.model_path} holds the best model so far{more}")
        raise typer.Exit(130)


def _fitted(request: FitRequest, log_options: "LogOptions") -> tuple["FitReport", "LogOptions"]:
    """Read and check the log, and fit models to it; return also how the log was read at last."""
    from ..learning import fit as fitting
    from ..logs.excerpts import sketch
    from ..report.fit_report import FitReport
    from .fit_output import require_test_log, warn_of

    name = name_of(request.log)
    recording, findings, log_options = _checked(request, log_options)
    if request.test is not None:
        require_test_log(request.test, log_options, recording)
    warn_of(findings)
    if request.resume and request.checkpoint is not None and not request.checkpoint.exists():
        say(f"there is no checkpoint {request.checkpoint}; starting anew")
    with _stoppable() as stop, watching(say) as begin:
        result = fitting.fit(
            recording,
            request.models,
            friction=request.friction_choice,
            urdf=request.urdf,
            settings=request.settings,
            seconds=request.seconds,
            seed=request.seed,
            listen=lambda step: begin(STEPS.get(step, step)),
            stop=stop,
        )
    report = FitReport(
        log=name,
        fit=result,
        findings=findings,
        versions=versions("delan", "jax", "equinox", "numpy"),
        command=shlex.join(["delan", *sys.argv[1:]]),
        sketch=sketch(recording),
        torque_source=recording.torque_source,
    )
    return report, log_options


class _CheckedLog(NamedTuple):
    """The log of a fit, its findings, and the options by which it and a test log are read."""

    recording: "Recording"
    findings: tuple["Finding", ...]
    options: "LogOptions"


def _checked(request: FitRequest, options: "LogOptions") -> _CheckedLog:
    """Read and check the log; repair or refuse one from which no model can be learned."""
    from ..logs.doctor import check_up
    from ..logs.doctor.finding import worst_first
    from ..logs.reading import read_log
    from ..logs.repair import find_repair

    name = name_of(request.log)
    robot = described_robot(request.urdf)
    try:
        as_read = read_log(request.log, options)
    except DataError as refusal:
        as_read = _repairable(request, options, robot, refusal)
    say_if_excerpt(as_read, name)
    say(f"{name}: {len(as_read.t)} rows of {as_read.joints.dof} joints")
    recording, findings = check_up(as_read, robot)
    repair = find_repair(findings)
    if repair is None or request.force:
        return _CheckedLog(recording, findings, options)
    ways = repair.ways(options, as_read.joints)
    if repair.beyond or not request.fix:
        raise DataError(name, _pointless(repair, ways))
    options = repair.options(options, as_read.joints)
    recording, remaining = check_up(read_log(request.log, options), robot)
    more = find_repair(remaining)
    if more is not None:
        done = "after --fix the check still finds errors: "
        raise DataError(name, done + _pointless(more, more.ways(options, as_read.joints)))
    done = ways
    if repair.exchanged:
        done = (f"with {' and '.join(repair.exchanged)} in order", *ways)
    repaired = []
    for finding in repair.findings:
        # It stays in the report as information: the model was learned without this fault.
        note = replace(finding, severity="note", repaired=", ".join(done))
        say(f"--fix: {note.where}: {note.text}")
        repaired.append(note)
    say(f"give the same to later commands, such as `delan gate`: {_by_hand(repair, ways)}")
    return _CheckedLog(recording, worst_first([*remaining, *repaired]), options)


def _repairable(
    request: FitRequest,
    options: "LogOptions",
    robot: "DescribedRobot | None",
    refusal: DataError,
) -> "Recording":
    """Return a log that was refused, if the check knows a repair; else raise the refusal.

    Exchanged columns and reversed velocities are refused for units that do not match, which is not
    what is wrong with them.
    """
    from ..logs.doctor import check_up
    from ..logs.reading import read_log
    from ..logs.repair import find_repair

    try:
        recording = read_log(request.log, options, sound=False)
    except DataError:
        raise refusal from None
    _, findings = check_up(recording, robot)
    repair = find_repair(findings)
    helps = repair is not None and (repair.exchanged or repair.left_out)
    if request.force or not helps:
        raise refusal
    return recording


def _pointless(repair: "Repair", ways: tuple[str, ...]) -> str:
    """Return what makes learning pointless, and what to do about it."""
    found = "; ".join(f"{finding.where}: {finding.text}" for finding in repair.findings)
    remedy = _by_hand(repair, ways)
    if not repair.beyond:
        remedy += ", in this and in later commands, or give --fix, which does so for this fit"
    return f"no model can be learned from this log. {found}. {remedy}. --force fits all the same"


def _by_hand(repair: "Repair", ways: tuple[str, ...]) -> str:
    """Return how to repair the log without --fix."""
    remedies = []
    for finding in repair.findings:
        # Their remedies depend on the names and the files of the log; the others are options.
        if finding.kind in ("exchanged", "contradiction"):
            remedies.append(finding.remedy)
    if ways:
        remedies.append(f"read the log {', '.join(ways)}")
    return "; ".join(remedies)


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, so that the best model is kept; the second interrupts."""
    stop = threading.Event()
    # Python delivers signals to the main thread only, and lets no other set a handler.
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("stopping; the best model so far will be kept (Ctrl-C again: stop at once)")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
