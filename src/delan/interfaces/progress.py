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
        rich_progress.BarColumn(bar_width=16),
        rich_progress.TextColumn("{task.fields[told]}"),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = [bars.add_task(name, total=1.0, told="compiling") for name in names]

        def watcher(task: rich_progress.TaskID) -> "Callable[[Progress], None]":
            def watch(now: "Progress") -> None:
                left = now.row.seconds * (1 - now.share) / max(now.share, 1e-3)
                told = (
                    f"loss {now.row.training:.1e} val {now.row.validation:.1e} "
                    f"{now.samples_per_second / 1e3:.0f}k samples/s {left:.0f} s left"
                )
                bars.update(task, completed=now.share, told=told)

            return watch

        yield [watcher(task) for task in tasks]
        for task in tasks:
            bars.update(task, completed=1.0)
