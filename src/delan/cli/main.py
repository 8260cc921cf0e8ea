"""The `delan` command. Heavy imports stand inside the commands, so that `delan --help` answers at
once.
"""

import json
from typing import Annotated

import typer

from . import (
    demo_command,
    evaluate_command,
    fit_command,
    model_commands,
    reproduce_command,
    robot_commands,
    view_command,
)
from .app import app, command

# Each command adds itself to the app when its module is imported.
__all__ = [
    "app",
    "demo_command",
    "evaluate_command",
    "fit_command",
    "main",
    "model_commands",
    "reproduce_command",
    "robot_commands",
    "view_command",
]


def main() -> None:
    """Run the command line."""
    app()


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"delan {version_of('delan')}")
        raise typer.Exit


@app.command()
@command
def machine(
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there."),
    ] = False,
) -> None:
    """Check this machine: what is installed, what is missing, and how to install it.

    Exit code 0 if everything that fit, online and export need is available; optional parts do not
    count. (`delan check` checks a log.)
    """
    from .machine_command import examine_machine, show

    checked = examine_machine()
    if as_json:
        typer.echo(json.dumps(checked.as_dict()))
    else:
        show(checked)
    if not checked.ready:
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
