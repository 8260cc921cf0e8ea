"""From `delan demo` to the finished page: a first run with nothing compiled, a second one that finds it in the cache.

    python -m benchmarks.first_result

Each run is a process of its own, as the command line starts it. Told are its seconds by the clock, the seconds that all
cores worked (user time, which other programs on the machine change least) and what JAX says of tracing, lowering and
compiling. Both networks compile at the same time in two threads, so these can sum to more than passed by the clock.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from .results import write_results
from .timing import apart

STEPS = {
    "tracing": "/jax/core/compile/jaxpr_trace_duration",
    "lowering": "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "compiling": "/jax/core/compile/backend_compile_duration",
}
"""JAX's own events; the last one holds reading from the cache where the program is found there."""


def demo(folder: str) -> None:
    """Run `delan demo` in this process and leave the seconds of JAX's steps beside its page."""
    from delan.interfaces.cli import app  # noqa: PLC0415  (the command line is started as a user starts it)

    spent = dict.fromkeys(STEPS, 0.0)
    names = {event: name for name, event in STEPS.items()}

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event in names:
            spent[names[event]] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    app(["demo", "-o", folder], standalone_mode=False)
    (Path(folder) / "steps.json").write_text(json.dumps(spent))


def run(cache: Path, folder: Path) -> dict[str, float]:
    """One run of the demo by the clock, in work, and in steps of JAX."""
    began, worked = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    places = {"XDG_CACHE_HOME": str(cache), "JAX_COMPILATION_CACHE_DIR": str(cache / "delan" / "xla")}
    apart("benchmarks.first_result", str(folder), environment=places)
    seconds, work = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not (folder / "report.html").exists():
        raise SystemExit("delan demo left no page")
    return {
        "seconds": seconds,
        "user_seconds": work.ru_utime - worked.ru_utime,
        "system_seconds": work.ru_stime - worked.ru_stime,
        **json.loads((folder / "steps.json").read_text()),
    }


def measure() -> dict[str, dict[str, float]]:
    """The first run and the second."""
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first run", "second run"):
            told[name] = one = run(Path(folder) / "cache", Path(folder) / name.replace(" ", "_"))
            steps = ", ".join(f"{step} {one[step]:.1f} s" for step in STEPS)
            print(f"  {name}: {one['seconds']:.1f} s, {one['user_seconds']:.1f} s of work; {steps}", flush=True)
    return told


def main() -> None:
    if len(sys.argv) > 1:
        demo(sys.argv[1])
    else:
        write_results("first_result", {"demo": measure()})


if __name__ == "__main__":
    main()
