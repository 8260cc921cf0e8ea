"""The `delan` command. Heavy imports stand inside the commands: `delan --help` answers at once."""

from typing import Annotated

import typer

# Each command adds itself to the app when its module is imported.
from . import (  # noqa: F401
    check_command,
    demo_command,
    describe_command,
    evaluate_command,
    export_command,
    fit_command,
    gate_command,
    machine_command,
    online_command,
    references_command,
    reproduce_command,
    view_command,
)
from .app import app, versions


def main() -> None:
    """Run the command line."""
    app()


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"delan {versions('delan')['delan']}")
        raise typer.Exit


if __name__ == "__main__":
    main()
