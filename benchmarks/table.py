"""The speed of everything in one table, measured on this machine; `make bench`.

    python -m benchmarks.table [--official PATH] [--turns 5]

Training and latencies are measured side by side on one core of this process; times to an accuracy
and `delan demo` in their own processes, on all cores and with nothing compiled.
`--official` adds the published code if you have it (`benchmarks/official.py`). Writes
`benchmarks/results/bench.json`. Each part also has its own command:
`benchmarks.throughput`, `deploy`, `instructions`, `accuracy`, `first_result`.
"""

import argparse
import os
import time
from pathlib import Path

from . import accuracy, deploy, first_result, instructions, throughput
from .official import OfficialCode
from .results import write_results
from .timing import take_one_core


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--official", type=Path, help="a clone of the published code")
    parser.add_argument(
        "--turns", type=int, default=5, help="turns of training, whose median is reported"
    )
    chosen = parser.parse_args()
    began = time.perf_counter()
    load = os.getloadavg()[0]
    take_one_core()
    official = None if chosen.official is None else OfficialCode.at(chosen.official)
    print(f"\nTraining, samples/s, one core, batch {throughput.BATCH}, float32")
    training = throughput.measure((2, 4, 7), (64, 128), chosen.turns, official)
    print("\nLatency of one sample, 7 joints, one core")
    latency = deploy.measure(official)
    print("\nInstructions of one call in C, 7 joints")
    counts = instructions.measure()
    print("\nTime to an accuracy (nMSE of validation torques), nothing compiled, all cores")
    times = accuracy.measure()
    print("\nFirst result: delan demo, from start to finished page, all cores")
    demo = first_result.measure()
    seconds = time.perf_counter() - began
    print(f"\n{seconds:.0f} s in all; load of the machine at the start {load:.1f}", end=": ")
    print(
        "the machine was busy, only the ratios are reliable"
        if load > 0.5 * (os.cpu_count() or 1)
        else "the machine was idle"
    )
    write_results(
        "bench",
        {
            "training": {"batch": throughput.BATCH, "rows": training},
            "latency": latency,
            "instructions": counts,
            "time_to_accuracy": times,
            "first_result": demo,
            "load_at_start": load,
            "seconds": seconds,
        },
    )


if __name__ == "__main__":
    main()
