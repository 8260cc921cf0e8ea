"""The command `delan reproduce`: its options, its progress on the terminal, and its output."""

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from ..errors import SettingsError
from .app import app, argument, command, json_flag, option, require_writable, say, takes

if TYPE_CHECKING:
    from ..paper.cells import SizeName
    from ..paper.grid import GridProgress
    from ..paper.reproduction import CostEstimate, ReproduceSettings, Reproduction
    from ..report.reproduction_page import Written

# Without a terminal, a line is printed at every tenth of the cells, and with the first cell that
# finishes after this time without a line [s].
LINE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class ReproduceRequest:
    """The options of `delan reproduce`."""

    figures: list[str] | None = argument(
        None,
        metavar="EXPERIMENT",
        help="torque-components, offline-letters, online-letters, online-cosines, "
        "offline-cosines, noise, published-data, tuning, learning-budget, error-growth or causes; "
        "default: all.",
        show_default=False,
    )
    quick: bool = option(False, "--quick", help="A small grid with few seeds: minutes.")
    paper: bool = option(False, "--paper", help="The whole grid with 20 seeds: many hours.")
    only: list[str] | None = option(None, help="The same as EXPERIMENT; may be repeated.")
    seeds: int | None = option(
        None, help="Number of seeds for each setting; default: that of the size.", min=1
    )
    backend: Literal["local", "dask", "ray"] = option(
        "local", help="Processes on this machine, or a cluster."
    )
    address: str | None = option(
        None,
        help="Address of the Dask scheduler or the Ray head; default: a cluster on this machine.",
    )
    workers: int | None = option(
        None, help="Number of cells computed at a time; default: one per core.", min=1
    )
    data: Path | None = option(
        None,
        help="Folder with published_letters.npz or wam7_real_neg_500Hz.npz, or one of these files.",
    )
    letters: str = option(
        "own",
        help="Letters to write: own, or uci=FILE with recorded pen strokes (mixoutALL_shifted.mat, "
        "or an npz of arrays a_0, a_1, …).",
    )
    engine: Literal["mujoco", "pybullet"] = option(
        "mujoco", help="Simulator of rigid arms in the online experiments."
    )
    wall_clock: bool = option(
        False,
        "--wall-clock",
        help="online-letters: also run in real time, with the learner in a process of its own, one "
        "run at a time after all other cells.",
    )
    out: Path = option(
        Path("results"), "-o", "--out", help="Folder for page, claims, figures and cells."
    )
    watch: bool = option(False, "--watch", help="Show the progress of each experiment in a table.")
    redraw: bool = option(
        False,
        "--redraw",
        help="Compute nothing; draw the stored cells, whatever code computed them.",
    )
    as_json: Annotated[bool, json_flag("a summary")] = False

    @property
    def settings(self) -> "ReproduceSettings":
        """The settings of the reproduction."""
        from ..motions.alphabet import alphabet_named
        from ..paper.backends import Backend
        from ..paper.cells import Size
        from ..paper.reproduction import EXPERIMENTS, ReproduceSettings, choose

        names = [*(self.figures or ()), *(self.only or ())]
        choose(names, EXPERIMENTS)  # refuses unknown names
        data = None
        if self.data is not None:
            _require_data(self.data)
            data = str(self.data)
        alphabet_named(self.letters)  # refuses a file that cannot be read
        size = Size(
            self.size,
            self.seeds,
            data,
            letters=self.letters,
            engine=self.engine,
            wall_clock=self.wall_clock,
        )
        return ReproduceSettings(
            size=size,
            only=tuple(dict.fromkeys(names)),
            out=self.out,
            backend=Backend(self.backend, self.address, self.workers),
            redraw=self.redraw,
        )

    @property
    def size(self) -> "SizeName":
        """The size of the grid."""
        if self.quick and self.paper:
            raise SettingsError(
                "--quick and --paper are two sizes; give one of them, or none for the usual size"
            )
        if self.quick:
            return "quick"
        if self.paper:
            return "paper"
        return "usual"


@app.command()
@command
@takes("request", ReproduceRequest)
def reproduce(*, request: ReproduceRequest) -> None:
    """Compute and draw the experiments of the paper, and judge each of its claims."""
    settings = request.settings
    require_writable(settings.out / "index.html", make_folder=True)
    raise typer.Exit(run_reproduction(settings, watch=request.watch, as_json=request.as_json))


def _require_data(path: Path) -> None:
    """Refuse data that no experiment reads: without this, a slip shows only after the grid."""
    from ..paper import physical_wam, published_data

    names = (published_data.FILE, physical_wam.FILE)
    if path.is_dir():
        known = any((path / name).exists() for name in names)
        problem = "contains neither"
    else:
        known = path.exists() and path.name in names
        problem = "is neither" if path.exists() else "does not exist; give a folder with"
    if not known:
        raise SettingsError(
            f"--data {path} {problem} {' or '.join(names)}; leave it out if you have none of them"
        )


def command_line(settings: "ReproduceSettings") -> str:
    """Return the command that asks for these settings."""
    words = ["delan", "reproduce", *settings.only]
    if settings.size.name != "usual":
        words.append(f"--{settings.size.name}")
    if settings.size.wall_clock:
        words.append("--wall-clock")
    typed = {
        "--seeds": settings.size.seeds,
        "--data": settings.size.data,
        "--letters": settings.size.letters,
        "--engine": settings.size.engine,
        "--backend": settings.backend.name,
        "--address": settings.backend.address,
        "--workers": settings.backend.workers,
        "--out": settings.out,
    }
    for name, value in typed.items():
        if value not in (None, "local", "own", "mujoco", Path("results")):  # the defaults
            words += [name, str(value)]
    return shlex.join(words)


def run_reproduction(settings: "ReproduceSettings", *, watch: bool, as_json: bool) -> int:
    """Estimate, compute, draw, write and print; return the exit code."""
    from ..paper import reproduction as paper
    from ..paper.cells import Store
    from ..report.reproduction_page import write_reproduction

    console = Console(stderr=True, markup=False, highlight=False)
    estimates = []
    if not settings.redraw:
        store = Store(settings.cells_folder)
        estimates = paper.estimate_costs(settings, experiments=paper.EXPERIMENTS, store=store)
        console.print(estimate_table(estimates, settings))
    latest: GridProgress | None = None
    try:
        with _progress_display(console, estimates, watch) as show:

            def progress(now: "GridProgress") -> None:
                nonlocal latest
                latest = now
                show(now)

            reproduction = paper.reproduce(
                settings,
                experiments=paper.EXPERIMENTS,
                work=paper.run_cell,
                progress=progress,
            )
        written = write_reproduction(reproduction, command=command_line(settings))
    except KeyboardInterrupt:
        say(f"stopped; {_how_to_continue(settings, latest)}")
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


def estimate_table(rows: Sequence["CostEstimate"], settings: "ReproduceSettings") -> Table:
    """Return a table of the estimated cost of each experiment and of all together."""
    from ..report.reproduction_page import time_in_words

    workers = "the cluster"
    if settings.workers is not None:
        workers = f"{settings.workers} at a time"
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
    minutes = None
    if workers is not None:
        minutes = seconds / workers / 60
    cells = sum(row.cells for row in rows)
    stored = sum(row.stored for row in rows)
    return CostEstimate("all", cells, stored, seconds, minutes)


@contextmanager
def _progress_display(
    console: Console, rows: Sequence["CostEstimate"], watch: bool
) -> Iterator[Callable[["GridProgress"], None]]:
    """Show a live table if it is asked for and stderr is a terminal, else print lines."""
    if not (watch and console.is_terminal):
        yield ProgressLines(say)
        return
    table = ProgressTable(rows)
    # Cells take seconds to minutes; the workers need the core more than the table does.
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
            left = None
            if now.done < now.total:
                left = now.left
            self._write(_counts(now, "", left))


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

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False)
        table.add_column("", no_wrap=True)
        table.add_column("", no_wrap=True)
        table.add_column("cells", justify="right", no_wrap=True)
        table.add_column("failed", justify="right", no_wrap=True)
        for name, cells in self._cells.items():
            done = self._done[name]
            bar = ProgressBar(total=cells, completed=done, width=24)
            if not cells:
                bar = ProgressBar(total=1, completed=1, width=24)  # nothing is left to do
            table.add_row(name, bar, f"{done}/{cells}", str(self._failed[name] or ""))
        return Group(table, *self._lines())

    def _lines(self) -> Iterator[str]:
        from ..report.reproduction_page import time_in_words

        now = self._now
        if now is None:
            return
        since = time.monotonic() - self._updated
        left = now.left
        if left is not None:
            left = max(left - since, 0.0)
        yield _counts(now, f" after {time_in_words(now.seconds + since)}", left)
        if now.last is not None:
            end = "finished" if now.last.error is None else "failed"
            yield f"{end} after {time_in_words(now.last.seconds)}: {now.last.cell}"


def show_verdicts(reproduction: "Reproduction", written: "Written") -> None:
    """Print the verdict on each claim, all problems, and the path of the page."""
    from ..report.reproduction_page import MARKS

    settings = reproduction.settings
    lists = {
        "Claims of the paper:": reproduction.of_the_paper,
        "Claims of this package:": reproduction.of_ours,
    }
    for title, claims in lists.items():
        if claims:
            typer.echo(title)
        for claim in claims:
            mark = MARKS[claim.holds]
            typer.echo(f"{mark['sign']} {mark['word']}: {claim.claim} Measured: {claim.measured}.")
    for result in reproduction.experiments:
        name = result.experiment.name
        for problem in result.problems:
            say(f"{name}: {problem}")
        if result.failed:
            cells = f"{len(result.failed)} of {len(result.outcomes)} cells"
            say(f"{name}: {cells} failed; the page says why")
    if settings.redraw:
        names = ", ".join(settings.only) or "all experiments"
        cells = len(reproduction.outcomes)
        say(f"drawn from {cells} stored cells of {names}")
    typer.echo(f"The page with every figure: {written.page}")


def summary(reproduction: "Reproduction", written: "Written") -> dict[str, Any]:
    """Return the output of `--json`."""
    from ..report.reproduction_page import MARKS

    outcomes = reproduction.outcomes
    settings = reproduction.settings
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    lists = {"paper": reproduction.of_the_paper, "ours": reproduction.of_ours}
    holds = {}
    for name, claims in lists.items():
        holds[name] = dict.fromkeys(MARKS, 0)
        for claim in claims:
            holds[name][claim.holds] += 1
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
        "letters": settings.size.letters,
        "engine": settings.size.engine,
        "cells": {
            "done": len(outcomes) - len(failed),
            "stored": sum(outcome.stored for outcome in outcomes),
            "failed": len(failed),
            "missing": sum(result.missing for result in reproduction.experiments),
        },
        "failed": [{**outcome.cell.as_dict(), "error": outcome.error} for outcome in failed],
        "problems": problems,
        "figures": list(map(str, written.figures)),
        "seconds": reproduction.seconds,
        "core_seconds": math.fsum(outcome.seconds for outcome in outcomes),
        "code": list(reproduction.codes),
        "command": command_line(settings),
    }
