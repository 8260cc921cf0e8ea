"""A log that is not understood: its columns, the command that may read it, and questions."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
# Files of a folder that are listed.
_MOST_FILES = 20
# Quantities that are asked for, with what each is.
_QUESTIONS = {
    "t": "time (empty: the log has none)",
    "q": "positions",
    "qd": "velocities (empty: none)",
    "tau": "torques (empty: none)",
}
# Quantities that make those unnecessary.
_INSTEAD = {"tau": ("current", "q_des")}
# Options that are asked for, with the form of an answer.
_NUMBERS = {
    "rate": "Hz",
    "gain": "one number, or one a joint: 0.1,0.2",
    "kp": "one number, or one a joint: 80,60",
    "kd": "one number, or one a joint: 2,1",
}


def explain(
    error: DelanError,
    logs: Sequence[Path],
    options: "LogOptions",
    *,
    command: str = "check",
    as_json: bool = False,
) -> None:
    """Show the columns of the first log that is not understood, and what to type for it."""
    guess = _guess(logs, options)
    if guess is None:
        understood = _understood(logs, options)
        if not understood:
            return
        words = next_command(command, understood, options)
        if as_json:
            typer.echo(json.dumps({"error": str(error), "command": words}))
        else:
            Console(stderr=True, soft_wrap=True).print(Text(f"The others can be read: {words}"))
        return
    if guess.file is not None:
        logs = [guess.file]
    words = next_command(command, logs, guess.options)
    for need in guess.needs:
        if need.option:
            words += f" {need.option}"
    if as_json:
        columns = [vars(fact) for fact in guess.columns]
        needs = [f"{need.what}: {need.option}".removesuffix(": ") for need in guess.needs]
        payload = {"error": str(error), "columns": columns, "needs": needs}
        payload |= {"command": words, "understood": guess.readable}
        typer.echo(json.dumps(payload))
        return
    if guess.columns:
        _show(guess)
    console = Console(stderr=True, soft_wrap=True)
    beyond = [need.what for need in guess.needs if not need.option]
    if beyond:
        console.print(Text(f"The log shows no {'; no '.join(beyond)}: nothing can be learned."))
        return
    console.print(Text(f"This may read it: {printable(words)}", style="bold"))
    for need in guess.needs:
        console.print(Text(f"  {need.option} is {need.what}, which the log does not say"))


def next_command(command: str, logs: Sequence[Path], options: "LogOptions") -> str:
    """Return a command for logs that are read with these options, as it is typed."""
    from ..logs.option_text import option_words

    return shlex.join(["delan", command, *map(str, logs), *option_words(options)])


def _guess(logs: Sequence[Path], options: "LogOptions") -> "LayoutGuess | None":
    """Return the guess at the first sheet of the logs, None if it is understood."""
    from ..logs.join import open_sheets
    from ..logs.layout_guess import guess_files, guess_layout
    from ..logs.option_text import with_stored
    from ..logs.reading import log_files

    try:
        files = log_files(logs[0])
        if _is_understood(files[0], options):
            return None  # a later file is an exception among them rather than a new form
        own = with_stored(files[0], options)
        guess = guess_layout(next(iter(open_sheets(files[0], own, gaps=True))), own)
        if options.join or guess.readable:
            return guess
        beside = log_files(files[0].parent) if len(files) == 1 else files
        return guess_files(beside, own) or guess
    except (DelanError, StopIteration):
        return None  # not even its columns can be read, which the error says


def _is_understood(file: Path, options: "LogOptions") -> bool:
    """Return whether the columns of a log are known."""
    from ..logs.columns import find_columns
    from ..logs.join import open_sheets
    from ..logs.option_text import with_stored

    own = with_stored(file, options)
    try:
        for sheet in open_sheets(file, own, gaps=True):
            find_columns(sheet, own)
    except DataError:
        return False
    return True


def _understood(logs: Sequence[Path], options: "LogOptions") -> list[Path]:
    """Return the logs whose columns are known, if there are others among them."""
    from ..logs.reading import log_files

    try:
        files = [file for log in logs for file in log_files(log)]
        known = [file for file in files if _is_understood(file, options)]
    except DelanError:
        return []
    return known if len(known) < len(files) <= _MOST_FILES else []


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


def ask(logs: Sequence[Path], options: "LogOptions") -> tuple[Sequence[Path], "LogOptions"]:
    """Ask for what is not understood of a log; return the log to read and its options.

    In a script nothing is asked.
    """
    from dataclasses import replace

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingsError("--ask is for a terminal; give the options themselves in a script")
    guess = _guess(logs, options)
    if guess is None:
        return logs, options
    if guess.columns:
        _show(guess)
    if guess.file is not None:
        logs = [guess.file]
    options = replace(guess.options, map=_asked_columns(guess))
    # What is needed beside the columns depends on the columns that were named.
    guess = _guess(logs, options)
    for need in () if guess is None else guess.needs:
        name = need.option.split(" ")[0].removeprefix("--")
        if name in _NUMBERS:
            options = replace(options, **{name: _asked_numbers(need.what, name)})
    return logs, options


def _asked_columns(guess: "LayoutGuess") -> dict[str, Any]:
    """Ask for the columns that were guessed, and for those that nothing was guessed of."""
    given: dict[str, Any] = dict(guess.options.map)
    for quantity, what in _QUESTIONS.items():
        instead = _INSTEAD.get(quantity, ())
        if quantity not in given and guess.known & {quantity, *instead}:
            continue  # understood, or computed from others
        default = given.pop(quantity, "")
        shown = default if isinstance(default, str) else ",".join(default)
        answer = typer.prompt(f"Columns of the {what}", default=shown, err=True)
        if answer.strip():
            given[quantity] = answer.strip()
    return given


def _asked_numbers(what: str, name: str) -> Any:
    """Ask for the number, or those of all joints, that an option needs."""
    from .log_options import numbers_of

    def parsed(text: str) -> Any:
        try:
            numbers = numbers_of(f"--{name}", text)
        except SettingsError as error:
            raise typer.BadParameter(str(error)) from None
        return numbers[0] if name == "rate" else numbers

    sentence = what[0].upper() + what[1:]
    return typer.prompt(f"{sentence} [{_NUMBERS[name]}]", value_proc=parsed, err=True)
