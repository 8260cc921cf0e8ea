"""What `delan online` shows while the robot runs, and what it leaves behind."""

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
from ..experiments.online import OnlineOutcome, OnlineRun
from ..realtime.addresses import Address, address_folder, announce
from ..realtime.live import MODES, Broadcast, Onlooker, Orders
from ..realtime.recorder import loss_told
from ..realtime.stats import Progress
from ..report.online import draw_tracking, draw_written


@contextmanager
def live_table(settings: OnlineRun) -> Iterator[Callable[[Progress], None] | None]:
    """A table on stderr that follows the run; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    def table(now: Progress | None) -> Table:
        shown = Table(title=f"{settings.robot}, {settings.feed_forward}, {settings.clock} clock", title_justify="left")
        for name in ("time [s]", "motion", "error, last second", "model age [s]", "swaps", "refused", "late", "missed"):
            shown.add_column(name)
        if now is not None:
            age = "–" if now.model_age is None else f"{now.model_age:.1f}"
            error = " ".join(f"{one:.1e}" for one in now.error)
            counts = (str(one) for one in (now.swaps, now.refused, now.late, now.missed))
            shown.add_row(f"{now.t:.1f} / {now.seconds:.0f}", now.label, error, age, *counts)
        return shown

    # The table is drawn inside the loop's own callback: a thread of its own would hold the interpreter when it likes.
    with Live(table(None), console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda now: live.update(table(now), refresh=True)


@contextmanager
def watched(settings: OnlineRun, stop: threading.Event) -> Iterator[Onlooker | None]:
    """Let `delan view running` see a run by the wall clock, and stop it; nobody could follow one by the stepped."""
    if settings.clock != "wall":
        yield None
        return
    dof, dt = settings.arm.joints.dof, 1 / settings.loop.rate
    broadcast = Broadcast(dof, dt, Orders(mode=MODES.index("run")), stop=stop)
    broadcast.stand("running", broadcast.told)
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


PICTURES, MODEL = ("tracking.png", "letters.png"), "model.delan"


def unused(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, … that is not there yet."""
    names = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return folder if not folder.exists() else next(one for one in names if not one.exists())


def clear(folder: Path) -> None:
    """Take away what an earlier run left beside its recording, lest it be taken for what this one leaves."""
    for name in (*PICTURES, MODEL):
        (folder / name).unlink(missing_ok=True)


def leave_behind(outcome: OnlineOutcome, folder: Path) -> list[Path]:
    """Write pictures and the learned model; gives their paths."""
    joints, written = outcome.settings.arm.joints, []

    def picture(name: str, figure: Any) -> None:
        path = folder / name
        storage.write_whole(path, lambda file: figure.savefig(file, format="png", dpi=130))
        written.append(path)

    if len(outcome.train.t) > 1:
        picture(PICTURES[0], draw_tracking(outcome.train, joints))
    if outcome.settings.reference == "letters" and len(outcome.train.t) > 1:
        picture(PICTURES[1], draw_written([outcome.train, *outcome.test.values()]))
    if outcome.model is not None:
        path = folder / MODEL
        storage.save(outcome.model, path, provenance={"seed": outcome.settings.seed, "log": "recording.run"})
        written.append(path)
    return written


def tell(outcome: OnlineOutcome) -> None:
    """The summary, in sentences and numbers."""
    numbers = outcome.as_dict()
    for name, tracking in numbers["tracking"].items():
        if tracking["mse_sum"] is None:
            typer.echo(f"Tracking error, {name}: not reached")
            continue
        per_joint = " ".join(f"{one:.2e}" for one in tracking["mse"] if one is not None)
        typer.echo(f"Tracking error, {name}: MSE {tracking['mse_sum']:.3e} (per joint {per_joint})")
    loop = numbers["loop"]
    late = loop["lateness_us"]
    typer.echo(
        f"Loop: {loop['periods']} periods, {loop['missed']} missed; {loop['late_feedforward']} late feed-forward "
        f"torques; {loop['lost_samples']} lost samples; lateness p50 {late['p50']:.0f} µs, p99 {late['p99']:.0f} µs."
    )
    if numbers["first_model_seconds"] is not None:
        first = f"first after {numbers['first_model_seconds']:.2f} s"
        typer.echo(f"Models: {first}, {loop['swaps']} taken, {loop['refused']} refused.")
    if numbers["engine"] is not None:
        typer.echo(f"Learned torques computed by {numbers['engine']}.")
    for event in numbers["events"]:
        if event["kind"] in ("learner", "restart"):
            typer.echo(f"At {event['t']:.1f} s: {event['text']}.")
    loss = loss_told(loop["unrecorded"], loop["recording_problem"])
    for problem in [*numbers["problems"], *([] if loss is None else [loss])]:
        typer.echo(f"delan: {problem}", err=True)
