"""The command `delan reproduce`: its options, its progress on the terminal, and its output."""

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import SettingsError
from .app import app, command, require_writable

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from ..paper.cells import SizeName
    from ..paper.grid import GridProgress
    from ..paper.reproduction import CostEstimate, ReproduceSettings, Reproduction
    from ..report.reproduction_page import Written

# Without a terminal, a line is printed at every tenth of the cells, and with the first cell that
# finishes after this time without a line [s].
LINE_SECONDS = 60.0


@app.command()
@command
def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPERIMENT",
            help="torque-components, offline-letters, online-letters, online-cosines, "
            "offline-cosines, noise, published-data or tuning; default: all.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small grid with few seeds: minutes.")
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="The whole grid with 20 seeds: many hours.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="The same as EXPERIMENT; may be repeated.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds for each setting; default: that of the size.", min=1),
    ] = None,
    backend: Annotated[
        Literal["local", "dask", "ray"],
        typer.Option(help="Processes on this machine, or a cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of the Dask scheduler or the Ray head; default: a cluster on this "
            "machine."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Number of cells computed at a time; default: one per core.", min=1),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with published_letters.npz or wam7_real_neg_500Hz.npz, or one of these "
            "files."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for page, claims, figures and cells.")
    ] = Path("results"),
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the progress of each experiment in a table.")
    ] = False,
    redraw: Annotated[
        bool,
        typer.Option(
            "--redraw", help="Compute nothing; draw the stored cells, whatever code computed them."
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a summary as JSON on stdout, and nothing else there."),
    ] = False,
) -> None:
    """Compute and draw the experiments of the paper, and judge each of its claims."""
    size: SizeName = "usual"
    if quick and paper:
        raise SettingsError(
            "--quick and --paper are two sizes; give one of them, or none for the usual size"
        )
    if quick:
        size = "quick"
    elif paper:
        size = "paper"
    from ..paper.backends import Backend
    from ..paper.catalogue import EXPERIMENTS
    from ..paper.cells import Size
    from ..paper.reproduction import ReproduceSettings, choose

    names = [*(figures or ()), *(only or ())]
    choose(names, EXPERIMENTS)
    if data is not None:
        _require_data(data)
    settings = ReproduceSettings(
        size=Size(size, seeds, None if data is None else str(data)),
        only=tuple(dict.fromkeys(names)),
        out=out,
        backend=Backend(backend, address, workers),
        redraw=redraw,
    )
    require_writable(out / "index.html", make_folder=True)
    raise typer.Exit(run_reproduction(settings, watch=watch, as_json=as_json))


def _require_data(path: Path) -> None:
    """Refuse data that no experiment reads: without this, a slip shows only after the grid."""
    from ..paper import offline_cosines, published_data

    names = (published_data.FILE, offline_cosines.REAL_FILE)
    if path.is_dir():
        known = any((path / name).exists() for name in names)
    else:
        known = path.exists() and path.name in names
    if not known:
        what = "is neither"
        if path.is_dir():
            what = "contains neither"
        elif not path.exists():
            what = "does not exist; give a folder with"
        raise SettingsError(
            f"--data {path} {what} {' or '.join(names)}; leave it out if you have none of them"
        )


def command_line(settings: "ReproduceSettings") -> str:
    """Return the command that asks for these settings."""
    size = settings.size
    backend = settings.backend
    words = ["delan", "reproduce", *settings.only]
    if size.name != "usual":
        words.append(f"--{size.name}")
    if size.seeds is not None:
        words += ["--seeds", str(size.seeds)]
    if size.data is not None:
        words += ["--data", size.data]
    if backend.name != "local":
        words += ["--backend", backend.name]
    if backend.address is not None:
        words += ["--address", backend.address]
    if backend.workers is not None:
        words += ["--workers", str(backend.workers)]
    if settings.out != Path("results"):
        words += ["--out", str(settings.out)]
    return shlex.join(words)


def run_reproduction(settings: "ReproduceSettings", *, watch: bool, as_json: bool) -> int:
    """Estimate, compute, draw, write and print; return the exit code."""
    from rich.console import Console

    from ..paper import catalogue
    from ..paper.reproduction import estimate_costs, reproduce
    from ..paper.store import Store
    from ..report.reproduction_page import write_reproduction

    console = Console(stderr=True, markup=False, highlight=False)
    estimates = []
    if not settings.redraw:
        store = Store(settings.cells_folder)
        estimates = estimate_costs(settings, experiments=catalogue.EXPERIMENTS, store=store)
        console.print(estimate_table(estimates, settings))
    latest: GridProgress | None = None
    try:
        with _progress_display(console, estimates, watch) as show:

            def progress(now: "GridProgress") -> None:
                nonlocal latest
                latest = now
                show(now)

            reproduction = reproduce(
                settings,
                experiments=catalogue.EXPERIMENTS,
                work=catalogue.run_cell,
                progress=progress,
            )
        written = write_reproduction(reproduction, command=command_line(settings))
    except KeyboardInterrupt:
        typer.echo(f"delan: stopped; {_how_to_continue(settings, latest)}", err=True)
        return 130
    if as_json:
        typer.echo(json.dumps(summary(reproduction, written)))
    else:
        show_verdicts(reproduction, written)
    return 0 if reproduction.whole else 1


def _how_to_continue(settings: "ReproduceSettings", latest: "GridProgress | None") -> str:
    finished = "all finished cells"
    if latest is not None:
        finished = f"{latest.done - latest.failed} of {latest.total} cells"
    again = command_line(settings)
    return (
        f"{finished} are stored in {settings.cells_folder}; `{again}` continues, "
        f"`{again} --redraw` draws the stored cells"
    )


def estimate_table(rows: Sequence["CostEstimate"], settings: "ReproduceSettings") -> "Table":
    """Return a table of the estimated cost of each experiment and of all together."""
    from rich.table import Table

    from ..report.reproduction_page import time_in_words

    workers = "the cluster" if settings.workers is None else f"{settings.workers} at a time"
    table = Table(title=f"Estimated time, size “{settings.size.name}”", title_justify="left")
    table.add_column("experiment", no_wrap=True)
    for column in ("cells", "stored", "one core", workers):
        table.add_column(column, justify="right", no_wrap=True)
    for row in [*rows, total_cost(rows, settings.workers)]:
        minutes = "–" if row.minutes is None else time_in_words(60 * row.minutes)
        if row.experiment == "all":
            table.add_section()
        seconds = time_in_words(row.core_seconds)
        table.add_row(row.experiment, str(row.cells), str(row.stored), seconds, minutes)
    return table


def total_cost(rows: Sequence["CostEstimate"], workers: int | None) -> "CostEstimate":
    """Return the cost of all experiments together; workers do not wait between experiments."""
    from ..paper.reproduction import CostEstimate

    seconds = math.fsum(row.core_seconds for row in rows)
    minutes = None if workers is None else seconds / workers / 60
    cells = sum(row.cells for row in rows)
    stored = sum(row.stored for row in rows)
    return CostEstimate("all", cells, stored, seconds, minutes)


@contextmanager
def _progress_display(
    console: "Console", rows: Sequence["CostEstimate"], watch: bool
) -> Iterator[Callable[["GridProgress"], None]]:
    """Show a live table if it is asked for and stderr is a terminal, else print lines."""
    if not (watch and console.is_terminal):
        yield ProgressLines(lambda line: typer.echo(f"delan: {line}", err=True))
        return
    from rich.live import Live

    table = ProgressTable(rows)
    with Live(table, console=console, refresh_per_second=2):
        yield table


def _counts(now: "GridProgress", elapsed: str, left: float | None) -> str:
    """Return how many cells are done and failed, and the time left [s]."""
    from ..report.reproduction_page import time_in_words

    text = f"{now.done} of {now.total} cells{elapsed}"
    if now.failed:
        text += f", {now.failed} failed"
    if left is not None:
        text += f", about {time_in_words(left)} left"
    return text


class ProgressLines:
    """Prints a line at the start, for each failed cell, at each tenth of the cells, and after a
    long silence.
    """

    def __init__(self, write: Callable[[str], None]):
        self._write = write
        self._tenth = -1
        self._printed = 0.0

    def __call__(self, now: "GridProgress") -> None:
        if now.last is not None and now.last.error is not None:
            self._write(f"failed: {now.last.cell}: {now.last.error.splitlines()[0]}")
        tenth = 10 * now.done // max(now.total, 1)
        if tenth > self._tenth or now.seconds > self._printed + LINE_SECONDS:
            self._tenth = tenth
            self._printed = now.seconds
            self._write(_counts(now, "", now.left if now.done < now.total else None))


class ProgressTable:
    """A live table with the progress of each experiment; the time left is updated continuously."""

    def __init__(self, rows: Sequence["CostEstimate"]):
        self._cells = {row.experiment: row.cells for row in rows}
        self._done = {row.experiment: row.stored for row in rows}
        self._failed = dict.fromkeys(self._done, 0)
        self._now: GridProgress | None = None
        self._updated = time.monotonic()

    def __call__(self, now: "GridProgress") -> None:
        if now.last is not None:
            name = now.last.cell.experiment
            self._done[name] += 1
            if now.last.error is not None:
                self._failed[name] += 1
        self._now = now
        self._updated = time.monotonic()

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        table.add_column("", no_wrap=True)
        table.add_column("", no_wrap=True)
        table.add_column("cells", justify="right", no_wrap=True)
        table.add_column("failed", justify="right", no_wrap=True)
        for name, cells in self._cells.items():
            done = self._done[name]
            # An experiment without cells has a full bar.
            bar = ProgressBar(total=max(cells, 1), completed=done if cells else 1, width=24)
            table.add_row(name, bar, f"{done}/{cells}", str(self._failed[name] or ""))
        return Group(table, *self._lines())

    def _lines(self) -> Iterator[str]:
        from ..report.reproduction_page import time_in_words

        now = self._now
        if now is None:
            return
        since = time.monotonic() - self._updated
        left = None if now.left is None else max(now.left - since, 0.0)
        yield _counts(now, f" after {time_in_words(now.seconds + since)}", left)
        if now.last is not None:
            end = "finished" if now.last.error is None else "failed"
            yield f"{end} after {time_in_words(now.last.seconds)}: {now.last.cell}"


def show_verdicts(reproduction: "Reproduction", written: "Written") -> None:
    """Print the verdict on each claim, all problems, and the path of the page."""
    from ..report.reproduction_page import MARKS

    settings = reproduction.settings
    for claim in reproduction.claims:
        mark = MARKS[claim.holds]
        typer.echo(f"{mark['sign']} {mark['word']}: {claim.claim} Measured: {claim.measured}.")
    for result in reproduction.experiments:
        name = result.experiment.name
        for problem in result.problems:
            typer.echo(f"delan: {name}: {problem}", err=True)
        if result.failed:
            cells = f"{len(result.failed)} of {len(result.outcomes)} cells"
            typer.echo(f"delan: {name}: {cells} failed; the page says why", err=True)
    if settings.redraw:
        names = ", ".join(settings.only) or "all experiments"
        cells = len(reproduction.outcomes)
        typer.echo(f"delan: drawn from {cells} stored cells of {names}", err=True)
    typer.echo(f"The page with every figure: {written.page}")


def summary(reproduction: "Reproduction", written: "Written") -> dict[str, Any]:
    """Return the output of `--json`."""
    from ..report.reproduction_page import MARKS

    outcomes = reproduction.outcomes
    settings = reproduction.settings
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    holds = dict.fromkeys(MARKS, 0)
    for claim in reproduction.claims:
        holds[claim.holds] += 1
    problems = []
    for result in reproduction.experiments:
        problems += [f"{result.experiment.name}: {problem}" for problem in result.problems]
    return {
        "page": str(written.page),
        "claims": [claim.as_dict() for claim in reproduction.claims],
        "holds": holds,
        "experiments": [result.experiment.name for result in reproduction.experiments],
        "size": settings.size.name,
        "seeds": settings.size.seeds,
        "cells": {
            "done": len(outcomes) - len(failed),
            "stored": sum(outcome.stored for outcome in outcomes),
            "failed": len(failed),
            "missing": sum(result.missing for result in reproduction.experiments),
        },
        "failed": [{**outcome.cell.as_dict(), "error": outcome.error} for outcome in failed],
        "problems": problems,
        "figures": [str(path) for path in written.figures],
        "seconds": reproduction.seconds,
        "core_seconds": math.fsum(outcome.seconds for outcome in outcomes),
        "code": list(reproduction.codes),
        "command": command_line(settings),
    }
