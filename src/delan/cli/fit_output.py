"""What `delan fit` prints: a verdict and tables for people, JSON for scripts."""

import math
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from ..learning.fit import Fit
from ..learning.scores import Scores
from ..learning.study import Entry
from ..logs.doctor.finding import Finding
from ..report.fit_report import NAMES, FitReport, verdict_text
from .fit_request import FitRequest
from .messages import plain, say


def warn_of(findings: tuple[Finding, ...]) -> None:
    """One line if the doctor found errors in the log, and one for each unit that looks wrong."""
    for finding in findings:
        if finding.kind == "units":
            say(f"{finding.where}: {finding.text}; {finding.remedy}")
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        kinds = ", ".join(dict.fromkeys(finding.kind.replace("_", " ") for finding in errors))
        say(f"the log has errors ({kinds}); `delan check` says where they are and what to do")


def show(request: FitRequest, report: FitReport) -> None:
    """Print the verdict, notes, the errors of every model, and what was written."""
    typer.echo(verdict_text(report))
    training = report.chosen.training
    if training is not None:
        for event in training.events:
            typer.echo(f"Note: {event}.")
        if len(training.members) > 1:
            low, middle, high = training.spread.values()
            typer.echo(
                f"Validation nMSE of {len(training.members)} seeds: {low:.2e} … {middle:.2e} … "
                f"{high:.2e} (min, median, max); the best is kept."
            )
    _show_models(report)
    typer.echo(f"Model: {request.out}")
    typer.echo(f"Page: {request.page_path}")
    if report.motion_file is not None:
        typer.echo(f"Motion to record next: {report.motion_file}")


def _show_models(report: FitReport) -> None:
    """A row for each model, narrow enough for 80 columns: its mean nMSE, and its worst joint."""
    table = Table(title=f"Errors of every model (mean nMSE); {report.log}", title_justify="left")
    table.add_column("model")
    columns = ["validation", "worst joint", "seconds"]
    if report.test_scores:
        columns.insert(1, "test")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for entry in report.fit.entries:
        mark = "» " if entry is report.chosen else "  "
        cells = [mark + NAMES.get(entry.name, entry.name), f"{entry.error:.2e}"]
        if report.test_scores:
            cells.append(f"{report.test_scores[entry.name].torque.nmse_mean:.2e}")
        table.add_row(*cells, _worst_joint(report, entry), f"{entry.seconds:.0f}")
    Console().print(table)


def _worst_joint(report: FitReport, entry: Entry) -> str:
    scores = report.test_scores.get(entry.name, entry.validation)
    errors = zip(scores.torque.nmse, entry.model.joints.names, strict=True)
    finite = [(error, name) for error, name in errors if math.isfinite(error)]
    if not finite:
        return "–"
    error, name = max(finite)
    return f"{name} {error:.1e}"


def as_dict(request: FitRequest, report: FitReport) -> dict[str, Any]:
    """The outcome for a script: plain numbers, lists and names."""
    entry = report.chosen
    scores = report.test_scores.get(entry.name, entry.validation)
    coverage = None if report.coverage is None else report.coverage.tolist()
    return plain(
        {
            **scores.as_dict(),
            "seconds": report.fit.seconds,
            "scored_on": report.verdict.judged_on,
            "validation": entry.validation.as_dict(),
            **_training_of(entry),
            "interrupted": report.fit.interrupted,
            "decision": report.verdict.decision,
            "verdict": verdict_text(report),
            "chosen": entry.name,
            "models": models_of(report),
            "preparation": _preparation_of(report.fit),
            "coverage": coverage,
            "more_data": _more_data_of(report),
            "findings": [finding.as_dict() for finding in report.findings],
            "model": str(request.out),
            "report": str(request.page_path),
            "seed": request.seed,
        }
    )


def _training_of(entry: Entry) -> dict[str, Any]:
    training = entry.training
    assert training is not None  # only a constant has none, and it is never chosen
    return {
        "optimizer": training.optimizer,
        "reason": training.reason,
        "spread": training.spread,
        "events": list(training.events),
        "friction": [asdict(step) for step in training.selection],
        "doubtful": training.doubtful,
    }


def models_of(report: FitReport) -> dict[str, Any]:
    """The errors of every model."""
    return {entry.name: _model_of(report, entry) for entry in report.fit.entries}


def _model_of(report: FitReport, entry: Entry) -> dict[str, Any]:
    learned_from = "training" if entry.relearned is None else "training and validation"
    fields = {
        "validation": _errors(entry.validation),
        "seconds": entry.seconds,
        "chosen": dict(entry.chosen),
        "learned_from": learned_from,
    }
    if entry.name in report.test_scores:
        fields["test"] = _errors(report.test_scores[entry.name])
    return fields


def _errors(scores: Scores) -> dict[str, Any]:
    return {"nmse": list(scores.torque.nmse), "nmse_mean": scores.torque.nmse_mean}


def _preparation_of(fit: Fit) -> dict[str, Any]:
    choice = fit.preparation
    done = fit.dataset.preparation
    chain = fit.entry("chain")
    windows = None
    if chain is not None and chain.windows is not None:
        windows = asdict(chain.windows)
    return {
        **asdict(choice.settings),
        "trials": [asdict(trial) for trial in choice.trials],
        "delay_gain": choice.delay_gain,
        "accelerations": fit.options.settings.accelerations,
        "nmse_of_chain": windows,
        "done": None if done is None else asdict(done),
    }


def _more_data_of(report: FitReport) -> dict[str, Any]:
    curve = report.fit.curve
    motion = report.fit.motion
    fields: dict[str, Any] = {"curve": None, "next": None}
    if curve is not None:
        fields["curve"] = {**asdict(curve), "gain": curve.gain}
    if motion is not None:
        fields["next"] = {
            "joint": report.fit.dataset.joints.names[motion.joint],
            "speed": motion.speed,
            "pose": motion.pose,
            "gain": motion.gain,
            "file": report.motion_file,
        }
    return fields
