"""`delan demo` with the time that JAX takes to trace and compile, for `benchmarks.first_result`.

    python -m benchmarks.watched_demo FOLDER

Nothing that imports JAX may be imported before the command line has set the compilation cache.
"""

import json
import sys
from pathlib import Path
from typing import Any

from delan.cli.app import keep_compiled
from delan.cli.main import app

# Events of JAX; the last includes reading a program from the cache.
STEPS = {
    "tracing": "/jax/core/compile/jaxpr_trace_duration",
    "lowering": "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "compiling": "/jax/core/compile/backend_compile_duration",
}


def main() -> None:
    """Run the demo in this process and write the seconds of JAX's steps beside its page."""
    keep_compiled()
    import jax  # noqa: PLC0415

    folder = Path(sys.argv[1])
    spent = dict.fromkeys(STEPS, 0.0)
    names = {event: name for name, event in STEPS.items()}

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event in names:
            spent[names[event]] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    app(["demo", "-o", str(folder)], standalone_mode=False)
    (folder / "steps.json").write_text(json.dumps(spent))


if __name__ == "__main__":
    main()
