"""Text on the terminal: messages, progress bars, tables of scores, and values for JSON."""

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from ..joints import Recording
    from ..learning.scores import Errors, Scores
    from ..solvers.training import Progress

Watcher = Callable[["Progress"], None] | None
# Columns of a terminal from which on loss and speed fit beside validation error and time left.
WIDE = 110


def say(message: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"delan: {message}", err=True)


def say_if_excerpt(recording: "Recording", name: str) -> None:
    """Print one line if the log was too large to be used as a whole."""
    if recording.excerpt is not None:
        used = recording.excerpt.summary
        say(f"{name} is larger than the memory limit (--memory); used is {used}")


def say_if_useless(nmse: float) -> None:
    """Print one line if a model explains less than the mean torque of a motion does."""
    if not nmse < 1:  # NaN, too
        say(
            "the model explains this motion no better than its mean torque; check the units (rad, "
            "s, N m), the signs and the order of the joints"
        )


def plain(value: Any) -> Any:
    """Return a value for JSON: non-finite numbers as null, tuples as lists."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def progress_text(now: "Progress", *, wide: bool) -> str:
    """Return what stands beside the bar of a training: errors, speed and the time left."""
    # At the very start, the share of the work that is done is zero.
    left = now.row.seconds * (1 - now.share) / max(now.share, 1e-3)
    parts = [f"val {now.row.validation:.1e}", f"{left:.0f} s left"]
    if wide:
        parts.insert(0, f"loss {now.row.training:.1e}")
        parts.append(f"{now.samples_per_second:,.0f} samples/s")
    return ", ".join(parts)


@contextmanager
def watching(
    announce: Callable[[str], None] = lambda step: None,
) -> Iterator[Callable[[str], Watcher]]:
    """Yield a function that begins a step by its name and returns a watcher of its progress.

    Each step has a bar on stderr. Where stderr is no terminal, `announce` gets the names of the
    steps, and nothing watches them.
    """
    if not sys.stderr.isatty():
        yield announce
        return
    from rich import progress as rich_progress

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=12),  # leaves room for the text on 80 columns
        rich_progress.TextColumn("{task.fields[status]}"),
    )
    console = Console(stderr=True)
    with rich_progress.Progress(*columns, console=console) as bars:

        def begin(step: str) -> Watcher:
            task = bars.add_task(step, total=1.0, status="at work")

            def watch(now: "Progress") -> None:
                status = progress_text(now, wide=console.width >= WIDE)
                bars.update(task, completed=now.share, status=status)

            return watch

        yield begin
        for task in bars.task_ids:
            bars.update(task, completed=1.0)


def show_scores(models: Mapping[str, "Scores"], scored_on: str) -> None:
    """Print a table with a block of rows per model and a column per quantity.

    The rows are the summed MSE, the mean nMSE, and the nMSE of each joint: 80 columns are enough
    for any number of joints.
    """
    from ..learning.scores import VALID_ERROR

    errors = {name: _errors_by_quantity(scores) for name, scores in models.items()}
    quantities = list(dict.fromkeys(itertools.chain.from_iterable(errors.values())))
    table = Table(title=f"Errors on {scored_on}", title_justify="left")
    table.add_column("")
    for quantity in quantities:
        table.add_column(quantity, justify="right", no_wrap=True)
    for name, scores in models.items():
        joints = range(len(scores.torque.nmse))
        labels = [f"{name}: Σ MSE", "mean nMSE", *(f"nMSE, joint {joint}" for joint in joints)]
        columns = [_cells(errors[name].get(quantity), len(labels)) for quantity in quantities]
        for row in zip(labels, *columns, strict=True):
            table.add_row(*row)
        table.add_section()
    console = Console()
    console.print(table)
    for name, scores in models.items():
        if scores.rollouts is not None:
            console.print(
                f"{name}: motion predicted from torques alone is within {VALID_ERROR} rad (or m) "
                f"for {scores.rollouts.valid_share:.0%} of the time"
            )


def _errors_by_quantity(scores: "Scores") -> dict[str, "Errors"]:
    errors = {"torque": scores.torque, **scores.components}
    if scores.acceleration is not None:
        errors["acceleration"] = scores.acceleration
    return errors


def _cells(errors: "Errors | None", count: int) -> list[str]:
    if errors is None:
        return ["–"] * count
    return [f"{error:.2e}" for error in (errors.mse_sum, errors.nmse_mean, *errors.nmse)]
