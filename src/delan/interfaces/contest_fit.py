"""`delan fit` where models compete: the contest, the model file, the page and what is told of them."""

import json
import time
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import typer

from .. import storage
from ..data.sketch import sketch
from ..errors import SettingsError
from ..joints import Recording
from ..learning.contest import Contender, as_learned, in_jax
from ..learning.fit import score
from ..learning.log_fit import LogFit, LogFitSettings, fit_log
from ..learning.uncertainty import coverage
from ..report.log_page import write_page
from ..report.log_report import LogReport, verdict
from .check import check_up
from .contest_telling import models_of, more_data_of, preparation_of, show_models, warn_of
from .fit_request import FitRequest, tested
from .fit_telling import doubt, making, plain, say, stoppable, watching_steps
from .log_options import name_of

LATE = 1.2
"""Times the seconds asked for from which on it is told why more were needed."""


def run_contest(request: FitRequest, recording: Recording) -> int:
    began = time.perf_counter()
    settings = LogFitSettings(
        models=_contenders(request),
        friction=request.terms,
        accelerations=request.accelerations,
        cutoff=request.cutoff,
        seconds=request.seconds,
        urdf=request.urdf,
    )
    say(f"{name_of(request.logs)}: {len(recording.t)} rows of {recording.joints.dof} joints")
    recording, findings = check_up(recording, request.urdf)
    warn_of(findings)
    with stoppable() as stop, watching_steps() as progress:
        fit = fit_log(recording, settings, key=jax.random.key(request.seed), progress=progress, stop=stop)
    report = LogReport(
        log=name_of(request.logs),
        fit=fit,
        findings=findings,
        versions={name: version(name) for name in ("delan", "jax", "equinox", "numpy")},
        command=request.command,
        sketch=sketch(recording),
    )
    if fit.interrupted and not report.nmse(report.chosen.name) < report.nmse("constant"):
        say("stopped before any model was better than a constant torque; no model was written")
        return 130
    _finish(request, report)
    took = time.perf_counter() - began
    if request.seconds is not None and took > LATE * request.seconds:
        why = "every model gets one try, and programs are compiled when they are first used"
        say(f"it took {took:.0f} s, more than the {request.seconds:g} s asked for: {why}")
    if fit.interrupted:
        say(f"stopped early; {request.out} holds the best model so far")
        return 130
    return 0


def _contenders(request: FitRequest) -> tuple[Contender, ...]:
    if request.model != "auto":
        return (request.model,)
    return ("chain", "delan") if request.accelerations == "none" else ("chain", "delan", "feedforward")


def _finish(request: FitRequest, report: LogReport) -> None:
    """Write the model, score it on the test log, write the page and tell."""
    _save(request, report)  # before the test log is read, whose faults must not cost the model
    if request.test is not None:
        report = _with_test(request, report)
        _save(request, report)
    report = replace(report, coverage=_coverage(report), motion_file=_write_motion(request, report.fit))
    say("drawing the page")
    write_page(report, request.page_path)
    _tell(request, report)


def _with_test(request: FitRequest, report: LogReport) -> LogReport:
    """The report with the errors of every model on the test log."""
    assert request.test is not None
    say(f"scoring on {request.test.name}")
    fit = report.fit
    dataset = tested(request, report.sketch, fit.dataset.joints, fit.preparation.settings)
    scored = dataset
    if request.accelerations == "none":
        scored = tested(request, report.sketch, fit.dataset.joints, fit.preparation.settings.unfiltered)
    scores = {entry.name: score(in_jax(entry.deployed), scored, fit.settings.fit) for entry in fit.entries}
    return replace(report, test=request.test.name, test_set=dataset, test_scores=scores)


def _coverage(report: LogReport) -> np.ndarray | None:
    """The share of unseen torques inside of the model's band."""
    return None if report.trusted is None else coverage(report.trusted, report.unseen)


def _write_motion(request: FitRequest, fit: LogFit) -> str | None:
    """The motion to record next, as an npz file beside the model; its path."""
    if fit.motion is None:
        return None
    path, motion = request.out.with_suffix(".next.npz"), fit.motion.trajectory
    arrays: dict[str, Any] = {name: getattr(motion, name) for name in ("t", "q", "qd", "qdd")}
    arrays["joint_names"] = np.array(fit.dataset.joints.names)
    storage.write_whole(path, lambda file: np.savez(file, **arrays))
    return str(path)


def _save(request: FitRequest, report: LogReport) -> None:
    """The chosen model with all that is known of its making."""
    fit, entry = report.fit, report.chosen
    if entry.name == "constant":
        raise SettingsError("no model was trained but a constant torque; name one in --model")
    provenance = {"scores": {"validation": entry.validation.as_dict()}, "seed": [request.seed]}
    if entry.fit is not None:
        provenance = entry.fit.provenance()
        provenance["scores"]["validation"] = entry.validation.as_dict()
    if entry.name in report.test_scores:
        provenance["scores"]["test"] = report.test_scores[entry.name].as_dict()
    told = {
        "log": report.log,
        "sketch": dict(report.sketch),
        "name": entry.name,
        "chosen": dict(entry.chosen),
        "preparation": asdict(fit.preparation.settings),
        "models": models_of(report),
        "verdict": verdict(report),
    }
    model = as_learned(entry) if report.trusted is None else fit.model
    storage.save(model, request.out, provenance=plain(provenance | told))


def _tell(request: FitRequest, report: LogReport) -> None:
    entry = report.chosen
    scores = report.test_scores.get(entry.name, entry.validation)
    if request.as_json:
        told = {
            **scores.as_dict(),
            "seconds": report.fit.seconds,
            "scored_on": "test" if report.test_scores else "validation",
            "validation": entry.validation.as_dict(),
            **making(entry.fit, entry.validation),
            "interrupted": report.fit.interrupted,
            "verdict": verdict(report),
            "chosen": entry.name,
            "models": models_of(report),
            "preparation": preparation_of(report.fit),
            "coverage": None if report.coverage is None else report.coverage.tolist(),
            "more_data": more_data_of(report),
            "findings": [finding.as_dict() for finding in report.findings],
            "model": str(request.out),
            "report": str(request.page_path),
            "seed": request.seed,
        }
        typer.echo(json.dumps(plain(told)))
    else:
        typer.echo(verdict(report))
        for event in () if entry.fit is None else entry.fit.events:
            typer.echo(f"Note: {event}.")
        show_models(report)
        typer.echo(f"Model: {request.out}")
        typer.echo(f"Page: {request.page_path}")
        if report.motion_file is not None:
            typer.echo(f"Motion to record next: {report.motion_file}")
    if not report.fit.interrupted:
        doubt(scores.torque.nmse_mean)
