"""What `delan reproduce` shows before, while and after it computes, and the command that would do it again."""

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from ..errors import SettingsError
from ..experiments import catalogue, offline_cosines, published_data
from ..experiments.cells import Size, SizeName
from ..experiments.grid import GridProgress
from ..experiments.reproduce import Estimate, ReproduceSettings, Reproduction, choose, estimate, reproduce
from ..experiments.store import Store
from ..experiments.workers import Backend
from ..report.reproduction import MARKS, Written, time_in_words, write_reproduction

DATA_FILES = (published_data.FILE, offline_cosines.REAL_FILE)
LINE_SECONDS = 60.0
"""Without a terminal, a line is written at least so often when a cell is finished, and at every tenth of them."""


def settings_of(
    *,
    only: Sequence[str],
    size: SizeName,
    seeds: int | None,
    data: Path | None,
    out: Path,
    backend: Any,
    address: str | None,
    workers: int | None,
    redraw: bool,
) -> ReproduceSettings:
    """The settings that the command line asks for, its names checked."""
    choose(only, catalogue.EXPERIMENTS)
    if data is not None:
        _require_data(data)
    return ReproduceSettings(
        size=Size(size, seeds, None if data is None else str(data)),
        only=tuple(dict.fromkeys(only)),
        out=out,
        backend=Backend(backend, address, workers),
        redraw=redraw,
    )


def _require_data(path: Path) -> None:
    """Refuse data that no experiment would read: a slip would be noticed only when all is computed."""
    if not any((path / name).exists() if path.is_dir() else path.exists() and path.name == name for name in DATA_FILES):
        found = (
            "holds neither"
            if path.is_dir()
            else "is neither"
            if path.exists()
            else "does not exist; give a folder with"
        )
        raise SettingsError(f"--data {path} {found} {' or '.join(DATA_FILES)}; leave it out if you have none of them")


def command_of(settings: ReproduceSettings) -> str:
    """What to type for the same again."""
    size, backend = settings.size, settings.backend
    words = ["delan", "reproduce", *settings.only]
    words += [] if size.name == "usual" else [f"--{size.name}"]
    words += [] if size.seeds is None else ["--seeds", str(size.seeds)]
    words += [] if size.data is None else ["--data", size.data]
    words += [] if backend.name == "local" else ["--backend", backend.name]
    words += [] if backend.address is None else ["--address", backend.address]
    words += [] if backend.workers is None else ["--workers", str(backend.workers)]
    words += [] if settings.out == Path("results") else ["--out", str(settings.out)]
    return shlex.join(words)


def run(settings: ReproduceSettings, *, watch: bool, as_json: bool) -> int:
    """Estimate, compute, draw, write and tell; gives the exit code."""
    console = Console(stderr=True, markup=False, highlight=False)
    store = Store(settings.cells_folder)
    rows = [] if settings.redraw else estimate(settings, experiments=catalogue.EXPERIMENTS, store=store)
    if rows:
        console.print(estimate_table(rows, settings))
    seen: list[GridProgress] = []
    try:
        with _watched(console, rows, watch) as show:

            def progress(now: GridProgress) -> None:
                seen[:] = [now]
                show(now)

            reproduction = reproduce(
                settings, experiments=catalogue.EXPERIMENTS, work=catalogue.run_cell, progress=progress
            )
        written = write_reproduction(reproduction, command=command_of(settings))
    except KeyboardInterrupt:
        typer.echo(f"delan: stopped; {_how_to_go_on(settings, seen)}", err=True)
        return 130
    if as_json:
        typer.echo(json.dumps(summary(reproduction, written)))
    else:
        tell(reproduction, written)
    return 0 if reproduction.whole else 1


def _how_to_go_on(settings: ReproduceSettings, seen: Sequence[GridProgress]) -> str:
    kept = f"{seen[-1].done - seen[-1].failed} of {seen[-1].total} cells" if seen else "what was finished"
    command = command_of(settings)
    return f"kept {kept} in {settings.cells_folder}; `{command}` goes on, `{command} --redraw` draws what there is"


def estimate_table(rows: Sequence[Estimate], settings: ReproduceSettings) -> Table:
    """What each experiment will take, and all together."""
    workers = "the cluster" if settings.workers is None else f"{settings.workers} at a time"
    table = Table(title=f"About this long, size “{settings.size.name}”", title_justify="left")
    table.add_column("experiment", no_wrap=True)
    for column in ("cells", "stored", "one core", workers):
        table.add_column(column, justify="right", no_wrap=True)
    for row in [*rows, total_of(rows, settings.workers)]:
        minutes = "–" if row.minutes is None else time_in_words(60 * row.minutes)
        if row.experiment == "all":
            table.add_section()
        table.add_row(row.experiment, str(row.cells), str(row.stored), time_in_words(row.core_seconds), minutes)
    return table


def total_of(rows: Sequence[Estimate], workers: int | None) -> Estimate:
    """All experiments together; workers go from one to the next without waiting."""
    seconds = math.fsum(row.core_seconds for row in rows)
    minutes = None if workers is None else seconds / workers / 60
    return Estimate("all", sum(row.cells for row in rows), sum(row.stored for row in rows), seconds, minutes)


@contextmanager
def _watched(console: Console, rows: Sequence[Estimate], watch: bool) -> Iterator[Callable[[GridProgress], None]]:
    """Who is told of each cell: a live table where it is wanted and there is a terminal, else lines."""
    if not (watch and console.is_terminal):
        yield Lines(lambda line: typer.echo(f"delan: {line}", err=True))
        return
    table = LiveTable(rows)
    with Live(table, console=console, refresh_per_second=2):
        yield table


class Lines:
    """A line at the start, for each cell that fails, at each tenth of all cells, and when it was quiet for long."""

    def __init__(self, write: Callable[[str], None]):
        self._write, self._tenth, self._last = write, -1, 0.0

    def __call__(self, now: GridProgress) -> None:
        if now.last is not None and now.last.error is not None:
            self._write(f"failed: {now.last.cell}: {now.last.error.splitlines()[0]}")
        tenth = 10 * now.done // max(now.total, 1)
        if tenth > self._tenth or now.seconds > self._last + LINE_SECONDS:
            self._tenth, self._last = tenth, now.seconds
            left = "" if now.left is None or now.done == now.total else f", about {time_in_words(now.left)} left"
            failed = f", {now.failed} failed" if now.failed else ""
            self._write(f"{now.done} of {now.total} cells{failed}{left}")


class LiveTable:
    """How far each experiment is; time left runs on between two cells."""

    def __init__(self, rows: Sequence[Estimate]):
        self._cells = {row.experiment: row.cells for row in rows}
        self._done = {row.experiment: row.stored for row in rows}
        self._failed = dict.fromkeys(self._done, 0)
        self._now: GridProgress | None = None
        self._told = time.monotonic()

    def __call__(self, now: GridProgress) -> None:
        if now.last is not None:
            name = now.last.cell.experiment
            self._done[name] = self._done.get(name, 0) + 1
            self._failed[name] = self._failed.get(name, 0) + (now.last.error is not None)
        self._now, self._told = now, time.monotonic()

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for name in ("", "", "cells", "failed"):
            table.add_column(name, justify="left" if name == "" else "right", no_wrap=True)
        for name, cells in self._cells.items():
            done, failed = self._done[name], self._failed[name]
            table.add_row(name, _bar(done, cells), f"{done}/{cells}", str(failed) if failed else "")
        return Group(table, *self._lines())

    def _lines(self) -> Iterator[str]:
        now = self._now
        if now is None:
            return
        since = time.monotonic() - self._told
        left = "" if now.left is None else f", about {time_in_words(max(now.left - since, 0.0))} left"
        failed = f", {now.failed} failed" if now.failed else ""
        yield f"{now.done} of {now.total} cells after {time_in_words(now.seconds + since)}{failed}{left}"
        if now.last is not None:
            end = "failed" if now.last.error is not None else "finished"
            yield f"{end} after {time_in_words(now.last.seconds)}: {now.last.cell}"


def _bar(done: int, cells: int) -> ProgressBar:
    return ProgressBar(total=max(cells, 1), completed=done if cells else 1, width=24)


def tell(reproduction: Reproduction, written: Written) -> None:
    """The verdicts, what went wrong, and where the page is."""
    for claim in reproduction.claims:
        mark = MARKS[claim.holds]
        typer.echo(f"{mark['sign']} {mark['word']}: {claim.claim} Measured: {claim.measured}.")
    for problem in problems_of(reproduction):
        typer.echo(f"delan: {problem}", err=True)
    if reproduction.settings.redraw:
        cells = sum(len(part.outcomes) for part in reproduction.parts)
        typer.echo(f"delan: drawn from the {cells} cells that are stored of {_asked_for(reproduction)}", err=True)
    typer.echo(f"The page with every figure: {written.page}")


def _asked_for(reproduction: Reproduction) -> str:
    return ", ".join(reproduction.settings.only) or "all experiments"


def problems_of(reproduction: Reproduction) -> list[str]:
    """What failed, a line each."""
    told = []
    for part in reproduction.parts:
        name = part.experiment.name
        told += [f"{name}: {problem}" for problem in part.problems]
        if part.failed:
            told.append(f"{name}: {len(part.failed)} of {len(part.outcomes)} cells failed; the page tells why")
    return told


def summary(reproduction: Reproduction, written: Written) -> dict[str, Any]:
    """All of it for a script."""
    outcomes, settings = reproduction.outcomes, reproduction.settings
    return {
        "page": str(written.page),
        "claims": [claim.as_dict() for claim in reproduction.claims],
        "holds": {name: sum(claim.holds == name for claim in reproduction.claims) for name in MARKS},
        "experiments": [part.experiment.name for part in reproduction.parts],
        "size": settings.size.name,
        "seeds": settings.size.seeds,
        "cells": {
            "done": sum(one.error is None for one in outcomes),
            "stored": sum(one.stored for one in outcomes),
            "failed": sum(one.error is not None for one in outcomes),
            "missing": sum(part.missing for part in reproduction.parts),
        },
        "failed": [{**one.cell.as_dict(), "error": one.error} for one in outcomes if one.error is not None],
        "problems": [f"{part.experiment.name}: {one}" for part in reproduction.parts for one in part.problems],
        "figures": [str(path) for path in written.figures],
        "seconds": reproduction.seconds,
        "core_seconds": math.fsum(one.seconds for one in outcomes),
        "code": list(reproduction.codes),
        "command": command_of(settings),
    }
