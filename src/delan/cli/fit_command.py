"""`delan fit`: learn a model of the robot in a log, write it and a page with the reasons."""

import json
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .app import JsonOption, SeedOption, app, command, require_writable
from .log_options import LogsArgument, name_of, takes_log_options
from .messages import say, say_if_excerpt, say_if_useless

# What a step of the fit is called while it runs.
STEPS = {
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
def fit(
    log: LogsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Model file to write; default: LOG's name with .delan, in this folder.",
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Log or folder to score the model on; never used to choose it."),
    ] = None,
    urdf: Annotated[
        Path | None,
        typer.Option(help="URDF of the robot: models based on it compete with the learned ones."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Report to write; default: the model's name with .html.", metavar="PAGE"),
    ] = None,
    model: Annotated[
        Literal["auto", "chain", "delan", "feedforward"],
        typer.Option(
            help="auto: all of them compete, the best on the validation motion is kept; chain: a "
            "rigid arm of learned geometry; delan: the paper's DeLaN network; feedforward: a "
            "feed-forward network."
        ),
    ] = "auto",
    friction: Annotated[
        str | None,
        typer.Option(
            help="none; auto: viscous, coulomb and offset, and further terms while held-out motion "
            "is explained better; or a list of terms such as viscous,coulomb, from armature, "
            "viscous, coulomb, asymmetric, stribeck, offset, load, stops. Default: auto; none for "
            "--model delan.",
            show_default=False,
        ),
    ] = None,
    cutoff: Annotated[
        float | None,
        typer.Option(
            metavar="HZ",
            help="Cut-off of the low-pass filter; default: chosen on the validation motion.",
        ),
    ] = None,
    accelerations: Annotated[
        Literal["auto", "filtered", "none"],
        typer.Option(
            help="filtered: from filtered motion; none: torques averaged over short windows need "
            "no accelerations and no filter; auto: the better of the two."
        ),
    ] = "auto",
    seed: SeedOption = 0,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Limit of the wall clock, compilation included; approximate, because every model "
            "gets one trial. Default: as long as it needs."
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Single model: passes over the data, in place of --seconds; default: chosen."
        ),
    ] = None,
    optimizer: Annotated[
        Literal["auto", "adam", "lm"],
        typer.Option(help="Single model: auto chooses by the size of the problem."),
    ] = "auto",
    width: Annotated[
        int | None, typer.Option(help="Single model: units of each hidden layer; default: chosen.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(help="Single model: hidden layers; default: 2.")
    ] = None,
    weight_decay: Annotated[
        float,
        typer.Option(
            help="Single model: weight of the squared weights in the loss (λ of the paper's eq. 9)."
        ),
    ] = 0.0,
    seeds: Annotated[
        int,
        typer.Option(
            help="Single model: train N models in parallel; keep the one with the lowest "
            "validation error.",
            min=1,
            metavar="N",
        ),
    ] = 1,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Single model: continue from the checkpoint of a stopped fit."
        ),
    ] = False,
    as_json: JsonOption = False,
    *,
    log_options: Any,
) -> None:
    """Learn a model of the robot in LOG, say whether to deploy it, and write it with a report."""
    out = Path(log[0].stem + ".delan") if out is None else out
    for path in (out, report):
        if path is not None:
            require_writable(path)
    from .fit_request import FitRequest

    request = FitRequest(
        logs=tuple(log),
        log_options=log_options,
        out=out,
        test=test,
        urdf=urdf,
        page=report,
        model=model,
        friction=friction,
        cutoff=cutoff,
        accelerations=accelerations,
        seconds=seconds,
        epochs=epochs,
        optimizer=optimizer,
        width=width,
        depth=depth,
        weight_decay=weight_decay,
        seeds=seeds,
        resume=resume,
        seed=seed,
        as_json=as_json,
        command=shlex.join(["delan", *sys.argv[1:]]),
    )
    raise typer.Exit(run_fit(request))


def run_fit(request: Any) -> int:
    """Read the log, fit, write the model and the page; returns the exit code."""
    from ..learning import fit as fitting
    from ..logs.excerpts import sketch
    from ..logs.reading import read_log
    from ..report.fit_report import FitReport
    from .check_command import check_up
    from .fit_output import warn_of
    from .fit_request import require_readable

    began = time.perf_counter()
    name = name_of(request.logs)
    recording = read_log(list(request.logs), request.log_options)
    say_if_excerpt(recording, name)
    if request.test is not None:
        require_readable(request, recording)
    say(f"{name}: {len(recording.t)} rows of {recording.joints.dof} joints")
    recording, findings = check_up(recording, request.urdf)
    warn_of(findings)
    if request.resume and not request.checkpoint.exists():
        say(f"there is no checkpoint {request.checkpoint}; starting anew")
    with _stoppable() as stop, _followed() as listen:
        result = fitting.fit(
            recording,
            request.models,
            friction=request.friction_choice,
            urdf=request.urdf,
            settings=request.settings,
            seconds=request.seconds,
            seed=request.seed,
            listen=listen,
            stop=stop,
        )
    report = FitReport(
        log=name,
        fit=result,
        findings=findings,
        versions={name: version(name) for name in ("delan", "jax", "equinox", "numpy")},
        command=request.command,
        sketch=sketch(recording),
    )
    if result.interrupted and not report.verdict.beats_constant:
        say("stopped before any model was better than a constant torque; no model was written")
        return 130
    _finish(request, report)
    took = time.perf_counter() - began
    if request.seconds is not None and took > LATE * request.seconds:
        reason = "every model gets one trial, and programs are compiled when first used"
        say(f"it took {took:.0f} s, more than the {request.seconds:g} s asked for: {reason}")
    if result.interrupted:
        more = ", --resume continues" if request.model != "auto" else ""
        say(f"stopped early; {request.out} holds the best model so far{more}")
        return 130
    return 0


def _finish(request: Any, report: Any) -> None:
    """Write the model, score it on the test log, write the page and show the outcome."""
    from ..learning.uncertainty import coverage
    from ..report.fit_page import write_page
    from .fit_output import as_dict, show

    _save(request, report)  # before the test log is read, whose faults must not cost the model
    if request.test is not None:
        report = _with_test(request, report)
        _save(request, report)
    shares = None if report.trusted is None else coverage(report.trusted, report.unseen)
    report = replace(report, coverage=shares, motion_file=_write_motion(request, report.fit))
    say("drawing the page")
    write_page(report, request.page_path)
    if request.as_json:
        typer.echo(json.dumps(as_dict(request, report)))
    else:
        show(request, report)
    if not report.fit.interrupted:
        say_if_useless(report.verdict.error)


def _with_test(request: Any, report: Any) -> Any:
    """The report with the errors of every model on the test log."""
    from ..learning.model_fit import score
    from ..logs.preparation import prepare
    from .fit_request import read_test_log

    say(f"scoring on {request.test.name}")
    result = report.fit
    recording = read_test_log(request, report.sketch, result.dataset.joints)
    say_if_excerpt(recording, request.test.name)
    how = result.preparation.settings
    dataset = prepare(recording, how)
    scored = dataset
    training = result.options.settings.training
    if request.accelerations == "none":
        scored = prepare(recording, how.unfiltered)
        training = replace(training, accelerations="none")
    scores = {}
    for entry in result.entries:
        scores[entry.name] = score(entry.deployed, scored, training)
    return replace(report, test=request.test.name, test_set=dataset, test_scores=scores)


def _write_motion(request: Any, result: Any) -> str | None:
    """Write the motion to record next as an npz file beside the model; returns its path."""
    import numpy as np

    from ..storage import write_whole

    if result.motion is None:
        return None
    path = request.out.with_suffix(".next.npz")
    motion = result.motion.trajectory
    arrays: dict[str, Any] = {name: getattr(motion, name) for name in ("t", "q", "qd", "qdd")}
    arrays["joint_names"] = np.array(result.dataset.joints.names)
    write_whole(path, lambda file: np.savez(file, **arrays))
    return str(path)


def _save(request: Any, report: Any) -> None:
    """Write the chosen model with the history of its making."""
    from ..report.fit_report import verdict_text
    from ..storage import save
    from .fit_output import models_of
    from .messages import plain

    result = report.fit
    entry = report.chosen
    provenance = result.provenance()
    if entry.name in report.test_scores:
        provenance["scores"]["test"] = report.test_scores[entry.name].as_dict()
    provenance |= {
        "log": report.log,
        "sketch": dict(report.sketch),
        "models": models_of(report),
        "decision": report.verdict.decision,
        "verdict": verdict_text(report),
    }
    save(result.model, request.out, provenance=plain(provenance))


@contextmanager
def _followed() -> Iterator[Any]:
    """A listener that shows each step of the fit."""
    from .terminal import watching

    with watching(say) as begin:

        def listen(name: str) -> Any:
            return begin(STEPS.get(name, name))

        yield listen


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, so that the best model is kept; the second interrupts."""
    stop = threading.Event()
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
