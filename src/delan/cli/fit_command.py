"""The command `delan fit`: learn a model of the robot in a log, and write it with a report."""

import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ..errors import DataError
from .app import (
    app,
    command,
    say,
    say_if_excerpt,
    takes,
    versions,
    watching,
)
from .fit_request import FitRequest
from .log_options import described_robot, name_of, takes_log_options

if TYPE_CHECKING:
    from ..joints import Recording
    from ..logs.doctor import Finding
    from ..logs.doctor.checked_log import DescribedRobot
    from ..logs.options import LogOptions
    from ..logs.repair import Repair
    from ..report.fit_report import FitReport

# What a step of the fit is called while it runs.
STEPS = {
    "motors and springs": "identifying motors and springs",
    "rigid joints": "comparing with rigid joints",
    "preparation": "choosing cut-off and delay",
    "chain": "training the chain",
    "delan": "training the DeLaN network",
    "feedforward": "training the feed-forward network",
    "residual": "training a network beside the URDF's arm",
    "trust": "computing the band and what more data would bring",
}
# A fit that took this many times the seconds asked for says why.
LATE = 1.2


@app.command()
@command
@takes_log_options
@takes("request", FitRequest)
def fit(*, request: FitRequest, log_options: Any) -> None:
    """Learn a model of the robot in LOG, say whether to deploy it, and write it with a report."""
    began = time.perf_counter()
    try:
        report, log_options = _fitted(request, log_options)
    except DataError as error:
        from .unknown_log import explain

        explain(error, request.log, log_options, command="fit", as_json=request.as_json)
        raise
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
    require_test_log(request, log_options, recording)
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
