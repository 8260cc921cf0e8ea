"""What all commands of `delan` share: the application, common options, and how what went wrong is
told.
"""

import difflib
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import DelanError, SettingsError


class _Commands(TyperGroup):
    """Commands that also guess which choice was meant, as typer does for commands and options
    alone.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = with_guess(error.message)
            raise


def with_guess(message: str) -> str:
    """The words about a wrong choice, without those of the library beneath, and with the one that
    is nearest.
    """
    message = message.removeprefix("Value error, ")
    told = re.fullmatch(r"'(.+)' is not one of ('.+')\.", message)
    near = (
        []
        if told is None
        else difflib.get_close_matches(told[1], re.findall(r"'([^']+)'", told[2]), n=1)
    )
    return f"{message} Did you mean '{near[0]}'?" if near else message


app = typer.Typer(
    name="delan",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Learn a robot's dynamics from joint data, in a form that cannot break the laws of mechanics.",
)

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the scores as JSON on stdout, and nothing else there.")
]
SeedOption = Annotated[
    int,
    typer.Option(
        help="Seed of all randomness; where no clock bounds the work, it gives the same result again.",
        min=0,
    ),
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Turn what went wrong into one line on stderr and an exit code: 1 for bad input, 130 for
    Ctrl-C.
    """
    return _telling(function, bad_input=1)


def judging_command(function: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that says 1 of what it has examined: 2 for bad input."""
    return _telling(function, bad_input=2)


def _telling(function: Callable[..., None], bad_input: int) -> Callable[..., None]:
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
            raise typer.Exit(130) from None

    return run


def keep_compiled() -> None:
    """Let jax keep compiled programs in the user's cache folder: the second run of a command starts
    faster.
    """
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(root) / "delan" / "xla"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


def require_writable(path: Path, *, make_folder: bool = False) -> None:
    """Find out before the work, not after it, that the result has no place to go."""
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
    if path.is_dir() or not os.access(folder, os.W_OK):
        what = (
            "is a folder" if path.is_dir() else f"is in a folder that cannot be written, {folder}"
        )
        raise SettingsError(f"{path} {what}; give another output path")
