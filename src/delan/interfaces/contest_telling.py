"""What is told of models that competed: on the terminal, and as plain values for a script."""

import math
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from ..data.doctor import Finding
from ..learning.evaluate import Scores
from ..learning.log_fit import LogFit
from ..report.log_report import NAMES, LogReport
from .fit_telling import say


def warn_of(findings: tuple[Finding, ...]) -> None:
    """One line if the doctor found errors in the log, and one for each unit that looks wrong."""
    for finding in findings:
        if finding.kind == "units":
            say(f"{finding.where}: {finding.text}; {finding.remedy}")
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        kinds = ", ".join(dict.fromkeys(finding.kind.replace("_", " ") for finding in errors))
        say(f"the log has errors ({kinds}); `delan check` tells where they are and what to do")


def show_models(report: LogReport) -> None:
    """A row for each model, narrow enough for 80 columns: its mean nMSE, and its worst joint."""
    table = Table(title=f"Errors of every model (mean nMSE); {report.log}", title_justify="left")
    table.add_column("model")
    for name in ("validation", *(["test"] if report.test_scores else []), "worst joint", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in report.fit.entries:
        scores = report.test_scores.get(entry.name, entry.validation)
        test = [f"{scores.torque.nmse_mean:.2e}"] if report.test_scores else []
        joints = [(value, name) for name, value in zip(entry.model.joints.names, scores.torque.nmse, strict=True)]
        worst = max((one for one in joints if math.isfinite(one[0])), default=None)
        told = "–" if worst is None else f"{worst[1]} {worst[0]:.1e}"
        mark = "» " if entry is report.chosen else "  "
        name = mark + NAMES.get(entry.name, entry.name)
        table.add_row(name, f"{entry.validation.torque.nmse_mean:.2e}", *test, told, f"{entry.seconds:.0f}")
    Console().print(table)


def preparation_of(fit: LogFit) -> dict[str, Any]:
    """How the log was prepared, for a script."""
    choice, done = fit.preparation, fit.dataset.preparation
    weak = None if fit.weak is None else {"with_accelerations": fit.weak[0], "without_accelerations": fit.weak[1]}
    return {
        **asdict(choice.settings),
        "trials": [asdict(trial) for trial in choice.trials],
        "delay_gain": choice.delay_gain,
        "accelerations": fit.settings.accelerations,
        "nmse_of_chain": weak,
        "done": None if done is None else asdict(done),
    }


def models_of(report: LogReport) -> dict[str, Any]:
    """The errors of every model, for a script."""

    def short(scores: Scores) -> dict[str, Any]:
        return {"nmse": list(scores.torque.nmse), "nmse_mean": scores.torque.nmse_mean}

    return {
        entry.name: {
            "validation": short(entry.validation),
            "seconds": entry.seconds,
            "chosen": dict(entry.chosen),
            "learned_from": "training" if entry.relearned is None else "training and validation",
        }
        | ({"test": short(report.test_scores[entry.name])} if entry.name in report.test_scores else {})
        for entry in report.fit.entries
    }


def more_data_of(report: LogReport) -> dict[str, Any]:
    """What more data would bring and what to record next, for a script."""
    curve, motion = report.fit.curve, report.fit.motion
    told: dict[str, Any] = {"curve": None if curve is None else {**asdict(curve), "gain": curve.gain}, "next": None}
    if motion is not None:
        names = report.fit.dataset.joints.names
        numbers = {name: getattr(motion, name) for name in ("speed", "pose", "gain")}
        told["next"] = {"joint": names[motion.joint], **numbers, "file": report.motion_file}
    return told
