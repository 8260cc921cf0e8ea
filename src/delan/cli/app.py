"""What all commands of `delan` share: the application, common options, messages and progress."""

import difflib
import functools
import inspect
import itertools
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from ..errors import DelanError, SettingsError, printable
from ..text_file import read_json

if TYPE_CHECKING:
    from ..joints import Recording
    from ..learning.scores import Errors, Scores
    from ..learning.study import FrictionChoice
    from ..models.chain import LagrangianChainSettings
    from ..solvers.training import Progress


Watcher = Callable[["Progress"], None] | None
# Columns of a terminal from which on loss and speed fit beside validation error and time left.
WIDE = 110


def say(message: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"delan: {printable(message)}", err=True)


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
        labels = [f"{name}: Σ MSE", "mean nMSE"]
        for joint, free in enumerate(scores.torque.free):
            labels.append(f"nMSE, joint {joint}" + " (no motor)" * free)
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


Command = Callable[..., None]


class _Commands(TyperGroup):
    """Commands that guess which choice was meant; typer guesses only commands and options."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = with_guess(error.message)
            raise


def with_guess(message: str) -> str:
    """Return a message about a wrong choice with the choice that is nearest to it."""
    message = message.removeprefix("Value error, ")  # put there by the library that typer uses
    # The error has no field for the wrong value, so that it is taken from the library's sentence.
    wrong = re.fullmatch(r"'(.+)' is not one of ('.+')\.", message)
    if wrong is None:
        return message
    near = difflib.get_close_matches(wrong[1], re.findall(r"'([^']+)'", wrong[2]), n=1)
    if not near:
        return message
    return f"{message} Did you mean '{near[0]}'?"


app = typer.Typer(
    name="delan",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Learn a robot's dynamics from joint data, in a form that cannot break the laws of "
    "mechanics.",
)


def json_flag(what: str) -> Any:
    """Return the option `--json` of a command that prints `what`."""
    return typer.Option("--json", help=f"Print {what} as JSON on stdout, and nothing else there.")


JsonOption = Annotated[bool, json_flag("the scores")]
SeedOption = Annotated[
    int,
    typer.Option(
        help="Random seed. Runs are reproducible unless the wall clock limits them.",
        min=0,
    ),
]
ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model file that `delan fit` wrote.", show_default=False),
]


def command(function: Command) -> Command:
    """Print an error as one line on stderr; the exit code is 1 for bad input, 130 for Ctrl-C."""
    return _with_exit_codes(function, bad_input=1)


def judging_command(function: Command) -> Command:
    """The same for a command whose exit code 1 is a verdict: 2 for bad input."""
    return _with_exit_codes(function, bad_input=2)


def _with_exit_codes(function: Command, bad_input: int) -> Command:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            keep_compiled()
            function(*args, **kwargs)
        except DelanError as error:
            typer.echo(f"delan: {error}", err=True)
            raise typer.Exit(bad_input) from None
        except KeyboardInterrupt:
            typer.echo("delan: stopped", err=True)
            raise typer.Exit(130) from None  # 128 + SIGINT, as shells report it

    return run


def option(default: Any, *names: str, **how: Any) -> Any:
    """Return a field of a record of options: its default, and what `typer.Option` takes."""
    return field(default=default, metadata={"typer": typer.Option(*names, **how)})


def argument(default: Any = MISSING, **how: Any) -> Any:
    """Return a field of a record of options that is typed without a name."""
    return field(default=default, metadata={"typer": typer.Argument(**how)})


def takes(
    keyword: str, record: type, make: Callable[..., Any] | None = None
) -> Callable[[Command], Command]:
    """Give a command the fields of a record as options; it receives the record under `keyword`.

    Where `make` is given, the command receives what that makes of the values.
    """
    options = _parameters(record)

    def decorate(function: Command) -> Command:
        own = inspect.signature(function, eval_str=True)
        others = [parameter for parameter in own.parameters.values() if parameter.name != keyword]

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            given = {parameter.name: kwargs.pop(parameter.name) for parameter in options}
            function(*args, **kwargs, **{keyword: (make or record)(**given)})

        # typer reads the options of a command from its signature.
        signature = own.replace(parameters=[*others, *options])
        run.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
        return run

    return decorate


def _parameters(record: Any) -> list[inspect.Parameter]:
    parameters = dict(inspect.signature(record).parameters)
    for each in fields(record):
        if "typer" in each.metadata:
            annotation = Annotated[each.type, each.metadata["typer"]]
            parameters[each.name] = parameters[each.name].replace(annotation=annotation)
    return list(parameters.values())


def versions(*packages: str) -> dict[str, str]:
    """Return the installed version of each package."""
    return {package: version(package) for package in packages}


def keep_compiled() -> None:
    """Let JAX keep compiled programs in the user's cache: the second run of a command is faster."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(root) / "delan" / "xla"))
    # Small programs are many: hundreds of files, a few MB, save seconds.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def require_writable(
    *paths: Path | None, make_folder: bool = False, inputs: Sequence[Path] = ()
) -> None:
    """Find out before the work, not after it, that a result has no place to go.

    The place of an input is none: the only copy of a log would be lost.
    """
    for path in paths:
        if path is not None:
            _require_place(path, make_folder)
            _require_no_input(path, inputs)


def _require_no_input(path: Path, inputs: Sequence[Path]) -> None:
    for given in inputs:
        for file in (given, given / path.name):
            if path.exists() and file.exists() and path.samefile(file):
                raise SettingsError(f"{path} is read, too; give another output path")


def _require_place(path: Path, make_folder: bool) -> None:
    folder = path.parent
    try:
        if make_folder:
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"cannot make the folder {folder}: {error.strerror}; give another output path"
        ) from None
    if not folder.is_dir():
        raise SettingsError(
            f"there is no folder {folder} for {path.name}; make it or give another output path"
        )
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; give another output path")
    if not os.access(folder, os.W_OK):
        raise SettingsError(
            f"{path} is in a folder that cannot be written, {folder}; give another output path"
        )


def require_picture(path: Path | None) -> None:
    """Find out before the work that a picture has no place to go, or a suffix of another format."""
    if path is None:
        return
    require_writable(path)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"{path}: a picture is a .png, .svg or .pdf file")


def write_picture(figure: Any, path: Path) -> None:
    """Write a figure in the format that the path's suffix names."""
    from ..storage import write_whole

    suffix = path.suffix[1:].lower()
    write_whole(path, lambda file: figure.savefig(file, format=suffix, dpi=130))


def read_friction(text: str) -> "FrictionChoice":
    """Read the value of `--friction`."""
    from ..models.friction import FrictionSettings, Term

    if text == "none":
        return None
    if text == "auto":
        return "auto"
    known = get_args(Term)
    terms: list[Any] = []
    for term in text.split(","):
        terms.append(term.strip())
        if terms[-1] not in known:
            near = difflib.get_close_matches(terms[-1], (*known, "auto", "none"), n=1)
            guess = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(
                f"--friction is auto, none, or some of {', '.join(known)}; got {terms[-1]!r}{guess}"
            )
    return FrictionSettings(tuple(terms))


def read_structure(text: str) -> "Literal['auto', 'plain'] | LagrangianChainSettings":
    """Read the value of `--structure`: a word, or the file that it names."""
    from ..model_header import settings_of
    from ..models.chain import LagrangianChainSettings

    if text == "auto" or text == "plain":
        return text
    try:
        fields = read_json(text)
        return settings_of(LagrangianChainSettings, fields, text)
    except ValueError as error:
        raise SettingsError(
            f"--structure is auto, plain or a JSON file such as "
            f'{{"coupling": [[1, 0], [-1, 1]]}}; {text} cannot be read ({error})'
        ) from None


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"delan {versions('delan')['delan']}")
        raise typer.Exit
