"""A log that is not understood: its columns, the command that may read it, and questions."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import DataError, DelanError, SettingsError, printable

if TYPE_CHECKING:
    from ..logs.layout_guess import LayoutGuess
    from ..logs.options import LogOptions

# Columns that are shown; an array counts as one.
_MOST_SHOWN = 60
# Quantities that are asked for, with what each is.
_QUESTIONS = {
    "t": "time (empty: the log has none)",
    "q": "positions",
    "qd": "velocities (empty: none)",
    "tau": "torques (empty: none)",
}


def explain(
    error: DataError, logs: Sequence[Path], options: "LogOptions", *, as_json: bool
) -> None:
    """Show the columns of the first log that is not understood, and the best guess at them."""
    guess = _guess(logs, options)
    if guess is None:
        return
    command = _command(logs, guess.options)
    if as_json:
        columns = [vars(fact) for fact in guess.columns]
        payload = {"error": str(error), "columns": columns, "needs": list(guess.needs)}
        payload |= {"command": command, "understood": guess.readable}
        typer.echo(json.dumps(payload))
        return
    _show(guess)
    console = Console(stderr=True, soft_wrap=True)
    label = "This may read it" if guess.readable else "A beginning"
    console.print(Text(f"{label}: {printable(command)}"))
    if guess.needs:
        console.print(Text(f"What is still needed: {'; '.join(guess.needs)}."))


def _command(logs: Sequence[Path], options: "LogOptions") -> str:
    from ..logs.option_words import option_words

    return shlex.join(["delan", "check", *map(str, logs), *option_words(options)])


def _guess(logs: Sequence[Path], options: "LogOptions") -> "LayoutGuess | None":
    """Return the guess at the first sheet of the logs, None if it is understood.

    Where the first one is, a later one is an exception among the files rather than a new form.
    """
    from ..logs.columns import find_columns
    from ..logs.join import open_sheets
    from ..logs.layout_guess import guess_layout
    from ..logs.options_file import with_stored
    from ..logs.reading import log_files

    try:
        file = log_files(logs[0])[0]
        own = with_stored(file, options)
        sheet = next(iter(open_sheets(file, own, gaps=True)))
        try:
            find_columns(sheet, own)
        except DataError:
            return guess_layout(sheet, own)
    except (DelanError, StopIteration):
        return None  # not even its columns can be read, which the error says
    return None


def _show(guess: "LayoutGuess") -> None:
    table = Table(title="Columns of the log", title_justify="left")
    for name in ("name", "columns", "from", "to", "rows per unit"):
        table.add_column(name)
    for fact in guess.columns[:_MOST_SHOWN]:
        rate = "" if fact.rate is None else f"{fact.rate:.5g}, increases evenly"
        name = Text(printable(fact.name, 60))
        table.add_row(name, str(fact.width), f"{fact.low:.4g}", f"{fact.high:.4g}", rate)
    console = Console(stderr=True)
    console.print(table)
    if len(guess.columns) > _MOST_SHOWN:
        console.print(f"and {len(guess.columns) - _MOST_SHOWN} more")


def asked_options(logs: Sequence[Path], options: "LogOptions") -> "LogOptions":
    """Ask for the columns of a log that is not understood; in a script nothing is asked."""
    from dataclasses import replace

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingsError("--ask is for a terminal; give the options themselves in a script")
    guess = _guess(logs, options)
    if guess is None:
        return options
    _show(guess)
    given = dict(guess.options.map)
    for quantity, what in _QUESTIONS.items():
        known = given.get(quantity, "")
        shown = known if isinstance(known, str) else ",".join(known)
        answer = typer.prompt(f"Columns of the {what}", default=shown, err=True)
        given.pop(quantity, None)
        if answer.strip():
            given[quantity] = answer.strip()
    changed = replace(options, map=given)
    if "t" not in given and options.rate is None:
        changed = replace(changed, rate=typer.prompt("Sampling rate [Hz]", type=float, err=True))
    return changed
