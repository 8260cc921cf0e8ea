"""The `delan` command. Heavy imports stand inside the commands: `delan --help` answers at once."""

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
    run,
    simulate_command,
    view_command,
)
from .app import app

__all__ = ["app"]

if __name__ == "__main__":
    run()
