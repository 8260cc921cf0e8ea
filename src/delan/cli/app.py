"""What all commands of `delan` share: the application, common options, and exit codes of errors."""

import difflib
import functools
import inspect
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperGroup

from ..errors import DelanError, SettingsError

if TYPE_CHECKING:
    from ..learning.study import FrictionChoice

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
    # Programs that compile faster than this [s] are not worth a file.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


def require_writable(*paths: Path | None, make_folder: bool = False) -> None:
    """Find out before the work, not after it, that a result has no place to go."""
    for path in paths:
        if path is not None:
            _require_place(path, make_folder)


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
