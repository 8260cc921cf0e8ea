"""Who watches the steps of a command: a bar for each on a terminal, one line for each elsewhere.

Scores as tables on the terminal, narrow enough for 80 columns whatever the number of joints.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ..learning.scores import VALID_ERROR, Errors, Scores

if TYPE_CHECKING:
    from ..solvers.training import Progress

Watcher = Callable[["Progress"], None] | None
WIDE = 110
"""Columns of a terminal on which loss and speed have room beside the validation error and the time
left.
"""


def told(now: "Progress", *, wide: bool) -> str:
    """How a training goes on, beside its bar."""
    left = now.row.seconds * (1 - now.share) / max(now.share, 1e-3)
    known = [f"val {now.row.validation:.1e}", f"{left:.0f} s left"]
    if wide:
        known = [f"loss {now.row.training:.1e}", *known, f"{now.samples_per_second:,.0f} samples/s"]
    return ", ".join(known)


@contextmanager
def watching(tell: Callable[[str], None] = lambda step: None) -> Iterator[Callable[[str], Watcher]]:
    """Gives who watches a step from its begin, by its name: a bar on stderr with loss, validation
    error, speed and time left; where stderr is no terminal, nobody, and `tell` is told the name.
    """
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


def show_scores(models: Mapping[str, Scores], scored_on: str) -> None:
    """A block of rows a model, a column a quantity: summed MSE, mean nMSE, and the nMSE of each
    joint.
    """
    quantities = list(dict.fromkeys(name for scores in models.values() for name in _errors(scores)))
    table = Table(title=f"Errors on {scored_on}", title_justify="left")
    table.add_column("")
    for quantity in quantities:
        table.add_column(quantity, justify="right", no_wrap=True)
    for name, scores in models.items():
        found = _errors(scores)
        rows = {f"{name}: Σ MSE": [found[q].mse_sum if q in found else None for q in quantities]}
        rows["mean nMSE"] = [found[q].nmse_mean if q in found else None for q in quantities]
        for joint in range(len(scores.torque.nmse)):
            rows[f"nMSE, joint {joint}"] = [
                found[q].nmse[joint] if q in found else None for q in quantities
            ]
        for label, numbers in rows.items():
            table.add_row(
                label, *("–" if number is None else f"{number:.2e}" for number in numbers)
            )
        table.add_section()
    console = Console()
    console.print(table)
    for name, scores in models.items():
        if scores.rollouts is not None:
            share = f"{scores.rollouts.valid_share:.0%} of the time"
            console.print(
                f"{name}: motion predicted from torques alone is within {VALID_ERROR} rad (or m) for {share}"
            )


def _errors(scores: Scores) -> dict[str, Errors]:
    errors = {"torque": scores.torque, **scores.components}
    return (
        errors if scores.acceleration is None else {**errors, "acceleration": scores.acceleration}
    )
