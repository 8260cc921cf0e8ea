"""The `delan` command. Heavy imports stand inside the commands, so that `delan --help` answers at once."""

import json
from typing import Annotated

import typer

from . import model_commands, robot_commands
from .command import app, command

# The commands stand in the modules of their kind, which add them to the app.
__all__ = ["app", "main", "model_commands", "robot_commands"]


def main() -> None:
    """Run the command line."""
    app()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"delan {version_of('delan')}")
        raise typer.Exit


@app.command()
@command
def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was found as JSON on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Say what this machine has, what is missing and how to get it (`delan check` examines a log).

    Exit code 0 if all is there that fit, online and export need; what is only good to have does not count.
    """
    from .machine import examine_machine, show

    machine = examine_machine()
    if as_json:
        typer.echo(json.dumps(machine.as_dict()))
    else:
        show(machine)
    if not machine.ready:
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
