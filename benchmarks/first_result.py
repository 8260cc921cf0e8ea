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
    began = time.perf_counter()
    worked = resource.getrusage(resource.RUSAGE_CHILDREN)
    places = {
        "XDG_CACHE_HOME": str(cache),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "delan" / "xla"),
    }
    apart("benchmarks.watched_demo", str(folder), environment=places)
    seconds = time.perf_counter() - began
    work = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not (folder / "report.html").exists():
        raise SystemExit("delan demo wrote no page")
    return {
        "seconds": seconds,
        "user_seconds": work.ru_utime - worked.ru_utime,
        "system_seconds": work.ru_stime - worked.ru_stime,
        **json.loads((folder / "steps.json").read_text()),
    }


def measure() -> dict[str, dict[str, float]]:
    """Measure the first run and the second."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first run", "second run"):
            result = run(Path(folder) / "cache", Path(folder) / name.replace(" ", "_"))
            results[name] = result
            steps = ", ".join(f"{step} {result[step]:.1f} s" for step in STEPS)
            print(
                f"  {name}: {result['seconds']:.1f} s,"
                f" {result['user_seconds']:.1f} s of work; {steps}",
                flush=True,
            )
    return results


def main() -> None:
    write_results("first_result", {"demo": measure()})


if __name__ == "__main__":
    main()
