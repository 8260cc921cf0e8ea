"""What `delan fit` tells: each step on the way, how it ended as sentences and tables, and all of it for a script."""

import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from ..data.doctor import Finding
from ..learning.evaluate import Scores
from ..learning.fit import FitResult
from ..learning.log_fit import LogFit
from ..learning.training import Progress
from ..report.log_report import NAMES, LogReport
from .progress import progress_bars

STEPS = {
    "preparation": "choosing cut-off and delay",
    "chain": "training the chain",
    "delan": "training the DeLaN network",
    "feedforward": "training the feed-forward network",
}
Watcher = Callable[[Progress], None] | None


def say(step: str) -> None:
    """One line on stderr."""
    typer.echo(f"delan: {step}", err=True)


@contextmanager
def watching(*names: str) -> Iterator[Callable[[str], Watcher]]:
    """Who watches a step, by its name: a bar of its own on a terminal; elsewhere its begin is told in one line."""
    if sys.stderr.isatty():
        with progress_bars(*names) as bars:
            yield dict(zip(names, bars, strict=True)).get
        return

    def tell(name: str) -> Watcher:
        say(STEPS.get(name, name))

    yield tell


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, so that the best model so far can be kept; the second one interrupts."""
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


def warn_of(findings: tuple[Finding, ...]) -> None:
    """One line if the doctor found errors in the log."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        kinds = ", ".join(dict.fromkeys(finding.kind.replace("_", " ") for finding in errors))
        say(f"the log has errors ({kinds}); `delan check` tells where they are and what to do")


def doubt(nmse: float) -> None:
    """Say it when a model explains less than a constant would."""
    if not nmse < 1:
        told = "the model explains this motion no better than a constant torque"
        say(f"{told}; check the units (rad, s, N m), the signs and the order of the joints")


def tell_training(result: FitResult) -> None:
    """How a single model was trained, in sentences."""
    for event in result.events:
        typer.echo(event)
    for step in result.selection:
        told = "kept" if step.kept else "not worth it, the last one tried"
        typer.echo(f"Friction: {step.term}: validation nMSE {step.validation:.2e} ({told})")
    method = "Adam" if result.optimizer == "adam" else "Levenberg–Marquardt"
    typer.echo(f"Trained by {method} in {result.seconds:.1f} s ({result.reason}).")
    if len(result.members) > 1:
        low, middle, high = result.spread.values()
        told = f"{low:.2e} … {middle:.2e} … {high:.2e} (min, median, max)"
        typer.echo(f"Validation nMSE of {len(result.members)} seeds: {told}; kept the best.")


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


def making(result: FitResult | None, validation: Scores) -> dict[str, Any]:
    """How a model was made, for a script; without a result it was identified."""
    if result is None:
        error = validation.torque.nmse_mean
        return {
            "optimizer": "least squares",
            "reason": "the links of the URDF and friction are linear in the torque",
            "spread": dict.fromkeys(("min", "median", "max"), error),
            "events": [],
            "friction": [],
            "doubtful": False,
        }
    return {
        "optimizer": result.optimizer,
        "reason": result.reason,
        "spread": result.spread,
        "events": list(result.events),
        "friction": [asdict(step) for step in result.selection],
        "doubtful": result.misfit is not None and result.misfit.doubtful,
    }


def preparation_of(fit: LogFit) -> dict[str, Any]:
    """How the log was prepared, for a script."""
    choice, done = fit.preparation, fit.dataset.preparation
    weak = None if fit.weak is None else {"with_accelerations": fit.weak[0], "without_accelerations": fit.weak[1]}
    return {
        **asdict(choice.settings),
        "trials": [asdict(trial) for trial in choice.trials],
        "delay_gain": choice.delay_gain,
        "form": weak,
        "done": None if done is None else asdict(done),
    }


def models_of(report: LogReport) -> dict[str, Any]:
    """The errors of every model, for a script."""

    def short(scores: Scores) -> dict[str, Any]:
        return {"nmse": list(scores.torque.nmse), "nmse_mean": scores.torque.nmse_mean}

    return {
        entry.name: {"validation": short(entry.validation), "seconds": entry.seconds, "chosen": dict(entry.chosen)}
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


def plain(value: Any) -> Any:
    """For JSON: numbers that are none as null, tuples as lists."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
