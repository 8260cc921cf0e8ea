"""Time of `delan demo` to the finished page: a first run, and a second with a compilation cache.

    python -m benchmarks.first_result

Each run is its own process, as the command line starts it. Reported are its wall time, its user
time (which other programs on the machine change least) and the time that JAX spends on tracing,
lowering and compiling. Both networks compile at the same time in two threads, so these can sum to
more than the wall time.
"""

import json
import resource
import tempfile
import time
from pathlib import Path

from .results import write_results
from .timing import apart
from .watched_demo import STEPS


def run(cache: Path, folder: Path) -> dict[str, float]:
    """Return wall time, user time and time of JAX's steps of one run of the demo."""
    began, worked = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    places = {
        "XDG_CACHE_HOME": str(cache),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "delan" / "xla"),
    }
    apart("benchmarks.watched_demo", str(folder), environment=places)
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
    """Measure the first run and the second."""
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first run", "second run"):
            told[name] = one = run(Path(folder) / "cache", Path(folder) / name.replace(" ", "_"))
            steps = ", ".join(f"{step} {one[step]:.1f} s" for step in STEPS)
            print(
                f"  {name}: {one['seconds']:.1f} s, {one['user_seconds']:.1f} s of work; {steps}",
                flush=True,
            )
    return told


def main() -> None:
    write_results("first_result", {"demo": measure()})


if __name__ == "__main__":
    main()
