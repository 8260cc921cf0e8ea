"""Progress bars on the terminal; silent where there is none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..learning.training import Progress


@contextmanager
def progress_bars(*names: str) -> Iterator[list["Callable[[Progress], None] | None"]]:
    """One bar a name on stderr with loss, validation error, speed and time left; Nones when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield [None for _ in names]
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.fields[told]}"),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = [bars.add_task(name, total=1.0, told="compiling") for name in names]

        def watcher(task: rich_progress.TaskID) -> "Callable[[Progress], None]":
            def watch(now: "Progress") -> None:
                told = (
                    f"{now.row.stage} · loss {now.row.training:.2e} · validation {now.row.validation:.2e} "
                    f"(best {now.best:.2e}) · {now.samples_per_second / 1e3:.0f}k samples/s"
                )
                bars.update(task, completed=now.share, told=told)

            return watch

        yield [watcher(task) for task in tasks]
        for task in tasks:
            bars.update(task, completed=1.0)
