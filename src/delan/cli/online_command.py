"""`delan online`: run a robot of the package, show its progress, and write files and a summary."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import typer

from .. import storage
from ..online.broadcast import (
    MODES,
    Address,
    Broadcast,
    Onlooker,
    Orders,
    address_folder,
    announce,
)
from ..online.loop import Observers
from ..online.online_run import OnlineRun, run_online
from ..online.recorder import recording_loss
from ..online.session import OnlineOutcome
from ..online.stats import LoopProgress
from ..report.motion_figures import draw_tracking, draw_written
from .app import require_writable

RECORDING = "recording.run"
TRACKING = "tracking.png"
LETTERS = "letters.png"
MODEL = "model.delan"
COLUMNS = (
    "time [s]",
    "motion",
    "error, last second",
    "model age [s]",
    "swaps",
    "refused",
    "late",
    "missed",
)


def run_command(settings: OnlineRun, folder: Path | None, *, as_json: bool) -> None:
    """Run the robot, write the files, and print the summary."""
    folder = folder or unused(Path("online"))
    recording = folder / RECORDING
    require_writable(recording, make_folder=True)
    # Files of an earlier run must not be mistaken for those of this one.
    for name in (TRACKING, LETTERS, MODEL):
        (folder / name).unlink(missing_ok=True)
    stop = threading.Event()
    with live_table(settings) as show, watched(settings, stop) as onlooker:
        observers = Observers(progress=show, onlooker=onlooker, stop=stop)
        outcome = run_online(settings, record=recording, observers=observers)
    files = [recording, *write_files(settings, outcome, folder)]
    if as_json:
        names = [str(path) for path in files]
        typer.echo(json.dumps({**outcome.as_dict(), "seed": settings.seed, "files": names}))
    else:
        print_summary(outcome)
        typer.echo("Written: " + ", ".join(map(str, files)))
    for result in outcome.results:
        if result.ended != "finished":
            typer.echo(f"delan: ended early: {result.reason}", err=True)
            raise typer.Exit(130)


@contextmanager
def live_table(settings: OnlineRun) -> Iterator[Callable[[LoopProgress], None] | None]:
    """Show a table of the progress on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    title = f"{settings.robot}, {settings.model}, {settings.clock} clock"

    def table(now: LoopProgress | None) -> Table:
        shown = Table(*COLUMNS, title=title, title_justify="left")
        if now is not None:
            age = "–" if now.model_age is None else f"{now.model_age:.1f}"
            error = " ".join(f"{value:.1e}" for value in now.error)
            counts = map(str, (now.swaps, now.refused, now.late, now.missed))
            shown.add_row(f"{now.t:.1f} / {now.seconds:.0f}", now.label, error, age, *counts)
        return shown

    # Drawn in the callback of the loop: a thread would hold the interpreter at any time.
    with Live(table(None), console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda now: live.update(table(now), refresh=True)


@contextmanager
def watched(settings: OnlineRun, stop: threading.Event) -> Iterator[Onlooker | None]:
    """Let `delan view running` show and stop a run by the wall clock."""
    if settings.clock != "wall":
        yield None
        return
    dof = settings.arm.joints.dof
    dt = 1 / settings.loop.rate
    broadcast = Broadcast(dof, dt, Orders(mode=MODES.index("run")), stop=stop)
    broadcast.stand("running", broadcast.latest)
    address = Address(
        pid=os.getpid(),
        robot=settings.robot,
        dof=dof,
        dt=dt,
        **broadcast.names,
        models=(),
        references=(),
        weights={},
        settings={},
    )
    path = address_folder() / f"{os.getpid()}.json"
    announce(address, path)
    try:
        yield broadcast
    finally:
        path.unlink(missing_ok=True)
        broadcast.close()


def unused(folder: Path) -> Path:
    """Return the folder, or the first of folder-2, folder-3, … that does not exist."""
    if not folder.exists():
        return folder
    names = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(name for name in names if not name.exists())


def write_files(settings: OnlineRun, outcome: OnlineOutcome, folder: Path) -> list[Path]:
    """Write pictures and the learned model; return their paths."""
    figures: dict[str, Any] = {}
    if len(outcome.train.t) > 1:
        figures[TRACKING] = draw_tracking(outcome.train, settings.arm.joints)
        if settings.reference == "letters":
            figures[LETTERS] = draw_written(list(outcome.results))
    for name, figure in figures.items():
        _write_picture(figure, folder / name)
    paths = [folder / name for name in figures]
    if outcome.model is not None:
        provenance = {"seed": settings.seed, "log": RECORDING}
        storage.save(outcome.model, folder / MODEL, provenance=provenance)
        paths.append(folder / MODEL)
    return paths


def _write_picture(figure: Any, path: Path) -> None:
    storage.write_whole(path, lambda file: figure.savefig(file, format="png", dpi=130))


def print_summary(outcome: OnlineOutcome) -> None:
    """Print tracking errors, counts and events, and problems on stderr."""
    numbers = outcome.as_dict()
    for name, tracking in numbers["tracking"].items():
        if tracking["mse_sum"] is None:
            typer.echo(f"Tracking error, {name}: not reached")
            continue
        per_joint = " ".join(f"{mse:.2e}" for mse in tracking["mse"] if mse is not None)
        typer.echo(f"Tracking error, {name}: MSE {tracking['mse_sum']:.3e} (per joint {per_joint})")
    stats = outcome.stats
    typer.echo(
        f"Loop: {stats.periods} periods, {stats.missed} missed; "
        f"{stats.late_feedforward} late feed-forward torques; {stats.lost_samples} lost samples; "
        f"lateness p50 {stats.lateness_us.p50:.0f} µs, p99 {stats.lateness_us.p99:.0f} µs."
    )
    first = outcome.train.first_model_seconds
    if first is not None:
        refused = sum(stats.refused.values())
        typer.echo(
            f"Models: first after {first:.2f} s, {stats.swaps} used in turn, {refused} refused."
        )
    if outcome.engine is not None:
        typer.echo(f"Learned torques computed by {outcome.engine}.")
    for event in outcome.train.events:
        if event.kind in ("learner", "restart"):
            typer.echo(f"At {event.t:.1f} s: {event.text}.")
    problems = list(numbers["problems"])
    loss = recording_loss(stats.unrecorded, stats.recording_problem)
    if loss is not None:
        problems.append(loss)
    for problem in problems:
        typer.echo(f"delan: {problem}", err=True)
