"""The output of `delan fit`: the model file with its scores, a page, tables and JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from ..errors import SettingsError
from ..joints import Dataset, Recording
from ..learning.fit import Fit
from ..learning.model_fit import score
from ..learning.refit import replay_motion
from ..learning.scores import Scores, evaluate
from ..learning.study import Entry
from ..learning.uncertainty import coverage
from ..logs.doctor.finding import Finding
from ..logs.excerpts import share_known, sketch
from ..logs.option_text import plain_options, typed_options, with_stored
from ..logs.options import LogOptions
from ..logs.preparation import prepare
from ..logs.reading import log_files, read_log, says_how_to_read, stream_log
from ..models.dynamics import require_same_joints
from ..report.elastic_text import as_fields as elastic_fields
from ..report.elastic_text import elastic_notes
from ..report.fit_page import write_page
from ..report.fit_report import NAMES, FitReport, free_joints, motion_text, verdict_text
from ..simulation.replay import Part
from ..storage import SEEN_SHARE, save, write_whole
from .app import plain, say, say_if_excerpt, say_if_useless
from .fit_request import FitRequest

# Rows of a test log that are read before the training, to refuse a wrong log early.
FIRST_ROWS = 1000


def warn_of(findings: tuple[Finding, ...]) -> None:
    """Print a line for each unit, sign or file that looks wrong, and one if the log has errors."""
    kinds = []
    for finding in findings:
        doubtful = finding.kind in ("sign", "contradiction") and finding.severity != "note"
        if finding.kind == "units" or doubtful:
            say(f"{finding.where}: {finding.text}; {finding.remedy}")
        if finding.severity == "error":
            kinds.append(finding.kind.replace("_", " "))
    if kinds:
        names = ", ".join(dict.fromkeys(kinds))
        say(f"the log has errors ({names}); `delan check` says where they are and what to do")


def _test_options(request: FitRequest, test: Path, options: LogOptions) -> LogOptions:
    """Return the options of the test log: those of the log, unless it has options of its own."""
    if says_how_to_read([test]):
        return options
    log = log_files(request.log[0])[0]
    alike = with_stored(log, options)
    if alike != options:
        say(f"{test.name} is read as {log.name} is: {typed_options(alike)}")
    return alike


def require_test_log(request: FitRequest, options: LogOptions, recording: Recording) -> None:
    """Find out from its first rows, before the training, that the test log is of another robot."""
    test = request.test
    if test is None:
        return
    options = _test_options(request, test, options)
    first = next(stream_log(test, options, rows=FIRST_ROWS, sound=False))
    columns = {name: getattr(first, name)[:1] for name in ("t", "q", "tau", "trajectory")}
    # Only the joints are compared: positions stand for velocities, which a log need not have.
    row = Dataset(
        **columns, qd=first.q[:1], qdd=first.q[:1], joints=first.joints, source=first.source
    )
    require_same_joints(recording.joints, row)
    _require_unseen(test, sketch(recording), first)


def _require_unseen(test: Path, known: Mapping[str, Any], recording: Recording) -> None:
    """Refuse to test on motion that is in the log to learn from."""
    share = share_known(known, recording)
    if share >= SEEN_SHARE:
        raise SettingsError(
            f"--test {test.name}: about {100 * share:.0f} % of the rows looked at are in the log "
            "to learn from; a test needs motion that no model has seen: give another log, or leave "
            "--test out"
        )


def write_outcome(request: FitRequest, log_options: LogOptions, report: FitReport) -> None:
    """Write the model, score it on the test log, write the page and print the outcome."""
    _save(
        request, log_options, report
    )  # before the test log is read, whose faults must not cost the model
    if request.test is not None:
        report = _with_test(request.test, request, log_options, report)
        _save(request, log_options, report)
    if report.trusted is not None:
        report = replace(report, coverage=coverage(report.trusted, report.unseen))
    report = replace(report, motion_file=_write_motion(request, report.fit))
    say("drawing the page")
    write_page(report, request.page_path)
    if request.as_json:
        typer.echo(json.dumps(as_dict(request, report)))
    else:
        _show(request, report)
    if not report.fit.interrupted:
        say_if_useless(report.verdict.error)


def _save(request: FitRequest, log_options: LogOptions, report: FitReport) -> None:
    """Write the chosen model with the history of its making."""
    options = with_stored(log_files(request.log[0])[0], log_options)
    entry = report.chosen
    provenance = report.fit.provenance()
    if entry.name in report.test_scores:
        provenance["scores"]["test"] = report.test_scores[entry.name].as_dict()
    provenance |= {
        "log": report.log,
        "log_options": plain_options(options),
        "torque_source": report.torque_source,
        "sketch": dict(report.sketch),
        "models": _models(report),
        "decision": report.verdict.decision,
        "verdict": verdict_text(report),
    }
    save(report.fit.model, request.model_path, provenance=plain(provenance))


def _with_test(
    test: Path, request: FitRequest, log_options: LogOptions, report: FitReport
) -> FitReport:
    """Return the report with the errors of every model on the test log."""
    say(f"scoring on {test.name}")
    result = report.fit
    recording = read_log(test, _test_options(request, test, log_options))
    _require_unseen(test, report.sketch, recording)  # before, only its first rows were compared
    if request.urdf is not None:
        recording = replace(recording, joints=result.dataset.joints)
    say_if_excerpt(recording, test.name)
    settings = result.preparation.settings
    rate = 1 / float(np.median(np.diff(recording.t)))
    dataset = prepare(recording, settings.scored(rate))
    scored = dataset
    training = result.options.settings.training
    if request.accelerations == "none":
        scored = prepare(recording, settings.unfiltered)
        training = replace(training, accelerations="none")
    scores = {}
    for entry in result.entries:
        scores[entry.name] = score(entry.deployed, scored, training)
    if scored.truth:
        # The true parts of the torque, of a simulated robot, are worth the programs to compile.
        scores[result.chosen.name] = evaluate(result.model, scored)
    part = Part(result.model, np.ones(len(dataset), dtype=bool))
    return replace(
        report,
        test=test.name,
        test_set=dataset,
        test_scores=scores,
        test_replay=replay_motion([part], dataset),
    )


def _write_motion(request: FitRequest, result: Fit) -> str | None:
    """Write the motion to record next as an npz file beside the model; return its path."""
    if result.motion is None:
        return None
    path = request.model_path.with_suffix(".next.npz")
    motion = result.motion.trajectory
    arrays: dict[str, Any] = {name: getattr(motion, name) for name in ("t", "q", "qd", "qdd")}
    arrays["joint_names"] = np.array(result.dataset.joints.names)
    write_whole(path, lambda file: np.savez(file, **arrays))
    return str(path)


def _show(request: FitRequest, report: FitReport) -> None:
    """Print the verdict, notes, the errors of every model, and what was written."""
    typer.echo(verdict_text(report))
    if report.verdict.motion is not None:
        typer.echo(motion_text(report.verdict))
    for sentence in (*elastic_notes(report.fit), *free_joints(report)):
        typer.echo(f"Note: {sentence}")
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
    Console().print(_models_table(report))
    typer.echo(f"Model: {request.model_path}")
    typer.echo(f"Page: {request.page_path}")
    if report.motion_file is not None:
        typer.echo(f"Motion to record next: {report.motion_file}")
    if report.verdict.decision != "refuse":
        typer.echo(f"C code: delan export {request.model_path}")
        if not report.fit.model.joints.motor_of:  # elastic joints are beyond the gate
            limits = "--log OTHER_LOG --limits LIMITS.toml"
            typer.echo(f"May it drive? delan gate {request.model_path} {limits}")


def _models_table(report: FitReport) -> Table:
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
    return table


def _worst_joint(report: FitReport, entry: Entry) -> str:
    scores = report.test_scores.get(entry.name, entry.validation)
    errors = zip(scores.torque.nmse, entry.model.joints.names, strict=True)
    # A joint whose torque is constant has no nMSE.
    finite = [(error, name) for error, name in errors if math.isfinite(error)]
    if not finite:
        return "–"
    error, name = max(finite)
    return f"{name} {error:.1e}"


def as_dict(request: FitRequest, report: FitReport) -> dict[str, Any]:
    """Return the outcome for a script: plain numbers, lists and names."""
    entry = report.chosen
    training = entry.training
    assert training is not None  # only a constant has none, and it is never chosen
    scores = report.test_scores.get(entry.name, entry.validation)
    return plain(
        {
            **scores.as_dict(),
            "seconds": report.fit.seconds,
            "scored_on": report.verdict.judged_on,
            "validation": entry.validation.as_dict(),
            "optimizer": training.optimizer,
            "reason": training.reason,
            "spread": training.spread,
            "events": training.events,
            "friction": [asdict(step) for step in training.selection],
            "structure": _structure(report),
            **elastic_fields(report.fit),
            "doubtful": training.doubtful,
            "interrupted": report.fit.interrupted,
            "decision": report.verdict.decision,
            "decision_before_test": report.fit.verdict.decision,
            "verdict": verdict_text(report),
            "motion": _motion(report),
            "other_motion": report.fit.other_motion,
            "ruler": {"bandwidth": report.fit.bandwidth, "variance": "of the whole log"},
            "chosen": entry.name,
            "models": _models(report),
            "preparation": _preparation(report.fit),
            "coverage": None if report.coverage is None else report.coverage.tolist(),
            "more_data": _more_data(report),
            "findings": [finding.as_dict() for finding in report.findings],
            "model": str(request.model_path),
            "report": str(request.page_path),
            "seed": request.seed,
        }
    )


def _motion(report: FitReport) -> dict[str, Any] | None:
    """Return whether the model moves like the robot, and its errors at every horizon."""
    motion = report.verdict.motion
    if motion is None or report.replay is None:
        return None
    added = report.fit.model.added_inertia
    return asdict(motion) | report.replay.as_dict() | {"added_inertia": added}


def _structure(report: FitReport) -> list[dict[str, Any]]:
    """Return the structures of the chain that were tried, and their errors."""
    chain = report.fit.entry("chain")
    if chain is None or chain.training is None:
        return []
    return [asdict(step) for step in chain.training.structure]


def _models(report: FitReport) -> dict[str, Any]:
    """Return the errors of every model."""
    models = {}
    for entry in report.fit.entries:
        fields = {
            "validation": _errors(entry.validation),
            "seconds": entry.seconds,
            "chosen": dict(entry.chosen),
            "learned_from": "training",
            "folds": entry.folds,
        }
        if entry.relearned is not None:
            fields["learned_from"] = "training and validation"
        if entry.name in report.test_scores:
            fields["test"] = _errors(report.test_scores[entry.name])
        models[entry.name] = fields
    return models


def _errors(scores: Scores) -> dict[str, Any]:
    torque = scores.torque
    return {
        "nmse": torque.nmse,
        "nmse_mean": torque.nmse_mean,
        "rmse": torque.rmse,
        "share_of_range": torque.share,
        "free": torque.free,
    }


def _preparation(fit: Fit) -> dict[str, Any]:
    done = fit.dataset.preparation
    chain = fit.entry("chain")
    windows = None
    if chain is not None and chain.windows is not None:
        windows = asdict(chain.windows)
    return {
        **asdict(fit.preparation.settings),
        "trials": [asdict(trial) for trial in fit.preparation.trials],
        "delay_error": fit.preparation.delay_error,
        "delay_gain": fit.preparation.delay_gain,
        "at_edge": fit.preparation.at_edge,
        "distinct": fit.study.split.distinct,
        "novelty": [fold.novelty for fold in fit.study.split.folds],
        "accelerations": fit.options.settings.accelerations,
        "nmse_of_chain": windows,
        "done": None if done is None else asdict(done),
    }


def _more_data(report: FitReport) -> dict[str, Any]:
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
