"""Who watches the steps of a command: a bar for each on a terminal, one line for each elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..learning.training import Progress

Watcher = Callable[["Progress"], None] | None
WIDE = 110
"""Columns of a terminal on which loss and speed have room beside the validation error and the time left."""


def told(now: "Progress", *, wide: bool) -> str:
    """How a training goes on, beside its bar."""
    left = now.row.seconds * (1 - now.share) / max(now.share, 1e-3)
    known = [f"val {now.row.validation:.1e}", f"{left:.0f} s left"]
    if wide:
        known = [f"loss {now.row.training:.1e}", *known, f"{now.samples_per_second:,.0f} samples/s"]
    return ", ".join(known)


@contextmanager
def watching(tell: Callable[[str], None] = lambda step: None) -> Iterator[Callable[[str], Watcher]]:
    """Gives who watches a step from its begin, by its name: a bar on stderr with loss, validation error, speed and time
    left; where stderr is no terminal, nobody, and `tell` is told the name."""
    if not sys.stderr.isatty():
        yield tell
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=12),
        rich_progress.TextColumn("{task.fields[told]}"),
    )
    console = Console(stderr=True)
    with rich_progress.Progress(*columns, console=console) as bars:

        def begun(step: str) -> Watcher:
            task = bars.add_task(step, total=1.0, told="at work")

            def watch(now: "Progress") -> None:
                bars.update(task, completed=now.share, told=told(now, wide=console.width >= WIDE))

            return watch

        yield begun
        for task in bars.task_ids:
            bars.update(task, completed=1.0)
