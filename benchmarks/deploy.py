"""Latency of a model in use: Pinocchio as the reference, JAX, C called from Python, C inside C.

    python -m benchmarks.deploy [--official PATH]

All are timed in turns on one core, so that other load affects them alike; reported are p50 and p99
of single calls. The arm is the WAM with 7 joints; the chain is the exact arm, the networks have
random weights. Writes to `benchmarks/results`.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pinocchio  # pyright: ignore[reportMissingImports]

import delan
from delan.robots.arms import WAM7

from .exported import PRECISIONS, Program, build_programs, compiler_version, directions, models
from .official import OfficialCode
from .results import write_results
from .timing import Call, Latency, latencies, take_one_core

TURNS, CALLS = 40, 200
# Blocks short enough that some are never interrupted, even on a busy machine.
C_TURNS, C_MEANS, C_CALLS, C_SINGLES = 9, 400, 100, 4000
YARDSTICK = "Pinocchio rnea"
pin: Any = pinocchio  # its compiled module carries no types


def python_calls(
    timed_models: dict[str, Any], official: OfficialCode | None
) -> Iterator[tuple[str, Call]]:
    """Return every call from Python that is timed, by name."""
    yardstick = pin.buildModelFromXML(WAM7.urdf())
    data = yardstick.createData()
    motion = np.random.default_rng(0).uniform(-1, 1, (3, 7))
    yield YARDSTICK, (pin.rnea, (yardstick, data, *motion))
    yield "Pinocchio aba", (pin.aba, (yardstick, data, *motion))
    for name, model in timed_models.items():
        compiled = {
            precision: delan.compile(model, precision=precision) for precision in PRECISIONS
        }
        for direction in directions(model):
            method = f"{direction}_dynamics"
            yield f"{name}, {direction}, JAX", jax_call(getattr(model, method), motion)
            for precision in PRECISIONS:
                rows = tuple(motion.astype("float32" if precision == "float" else "float64"))
                yield (
                    f"{name}, {direction}, C {precision}",
                    (getattr(compiled[precision], method), rows),
                )
    if official is not None:
        for name, call in official.calls(motion, 64).items():
            yield f"{name} 2 × 64, inverse", call


def jax_call(method: Any, motion: np.ndarray) -> Call:
    """Return a jitted function from arrays to an array, as a controller calls it."""
    jitted = jax.jit(lambda q, qd, push: method(q, qd, push))

    def call(q: np.ndarray, qd: np.ndarray, push: np.ndarray) -> np.ndarray:
        return np.asarray(jitted(q, qd, push))

    rows = tuple(motion.astype(np.float32))
    call(*rows)  # compiles
    return call, rows


def in_c(programs: list[Program]) -> dict[str, dict[str, float]]:
    """Return the least mean, and the medians over turns of p50 and p99, of calls inside C [µs]."""
    times = np.array(
        [
            [
                [float(value) for value in program.run(C_MEANS, C_CALLS, C_SINGLES).stdout.split()]
                for program in programs
            ]
            for _ in range(C_TURNS)
        ]
    )
    least = times.min(axis=0)
    middle = np.median(times, axis=0)
    return {
        f"{program.model}, {program.direction}, C {program.precision}": {
            "least": float(least[i, 0]),
            **asdict(Latency(float(middle[i, 1]), float(middle[i, 2]))),
        }
        for i, program in enumerate(programs)
    }


def measure(official: OfficialCode | None = None) -> dict[str, Any]:
    """Measure latencies from Python, relative to Pinocchio's rnea, and inside C."""
    timed_models = models()
    from_python = latencies(dict(python_calls(timed_models, official)), TURNS, CALLS)
    with tempfile.TemporaryDirectory() as folder:
        inside = in_c(list(build_programs(timed_models, Path(folder))))
    rnea = from_python[YARDSTICK].p50
    results = {
        "from_python": {
            name: {**asdict(latency), "over_rnea": latency.p50 / rnea}
            for name, latency in from_python.items()
        },
        "in_c": inside,
        "compiler": compiler_version(),
    }
    print_results(results)
    return results


def print_results(results: dict[str, Any]) -> None:
    print(f"{'  µs per call':40s} {'from Python':>24s} {'p50 over':>9s} {'inside C':>27s}")
    print(f"{'':40s} {'p50':>12s} {'p99':>11s} {'rnea':>9s} {'p50':>9s} {'p99':>8s} {'least':>8s}")
    for name, latency in results["from_python"].items():
        inside = results["in_c"].get(name)
        c = (
            ""
            if inside is None
            else f"{inside['p50']:9.2f} {inside['p99']:8.2f} {inside['least']:8.2f}"
        )
        print(
            f"  {name:38s} {latency['p50']:12.2f} {latency['p99']:11.2f}"
            f" {latency['over_rnea']:9.2f} {c}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--official", type=Path, help="a clone of the published code")
    chosen = parser.parse_args()
    take_one_core()
    official = None if chosen.official is None else OfficialCode.at(chosen.official)
    write_results("deploy", measure(official))


if __name__ == "__main__":
    main()
