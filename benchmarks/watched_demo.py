"""`delan demo` as the command line runs it, with the seconds that JAX's own steps took; for `benchmarks.first_result`.

    python -m benchmarks.watched_demo FOLDER

Nothing that imports JAX may be imported before the command line has said where compiled programs are kept.
"""

import json
import sys
from pathlib import Path
from typing import Any

from delan.interfaces.cli import app
from delan.interfaces.command import keep_compiled

STEPS = {
    "tracing": "/jax/core/compile/jaxpr_trace_duration",
    "lowering": "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "compiling": "/jax/core/compile/backend_compile_duration",
}
"""JAX's own events; the last one holds reading from the cache where the program is found there."""


def main() -> None:
    """Run the demo in this process and leave the seconds of JAX's steps beside its page."""
    keep_compiled()
    import jax  # noqa: PLC0415

    folder, spent = Path(sys.argv[1]), dict.fromkeys(STEPS, 0.0)
    names = {event: name for name, event in STEPS.items()}

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event in names:
            spent[names[event]] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    app(["demo", "-o", str(folder)], standalone_mode=False)
    (folder / "steps.json").write_text(json.dumps(spent))


if __name__ == "__main__":
    main()
