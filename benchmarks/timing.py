"""Timing of benchmarks: rivals in turns on one core, so that other load affects all alike."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Call = tuple[Callable[..., Any], tuple[Any, ...]]
ONE_CORE_FLAG = "--xla_cpu_multi_thread_eigen=false"
_cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def take_one_core() -> None:
    """Bind this process to one core; call it before JAX computes anything and counts the cores."""
    os.environ["XLA_FLAGS"] = f"{ONE_CORE_FLAG} {os.environ.get('XLA_FLAGS', '')}".strip()
    if _cores is not None:
        os.sched_setaffinity(0, {min(_cores)})


def apart(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a module in its own process on all cores and return what it prints."""
    inherited = {
        **os.environ,
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").replace(ONE_CORE_FLAG, "").strip(),
    }
    held = None if _cores is None else os.sched_getaffinity(0)
    try:
        if _cores is not None:
            # A child begins with the cores of the thread that starts it.
            os.sched_setaffinity(0, _cores)
        command = [sys.executable, "-m", module, *arguments]
        ran = subprocess.run(
            command, env={**inherited, **(environment or {})}, stdout=subprocess.PIPE, text=True
        )
    finally:
        if held is not None:
            os.sched_setaffinity(0, held)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ran.returncode}")
    return ran.stdout


@dataclass(frozen=True)
class Work:
    """A function that is timed as a whole, and the number of its samples."""

    run: Callable[[], Any]
    samples: int


def seconds_per_sample(works: Mapping[str, Work], turns: int) -> dict[str, np.ndarray]:
    """Return the processor time per sample of each work in each turn, after a warm-up turn.

    On one core that is the wall time without the time in which other programs use the core.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            began = time.process_time()
            work.run()
            if turn:
                times[name].append((time.process_time() - began) / work.samples)
    return {name: np.array(seconds) for name, seconds in times.items()}


@dataclass(frozen=True)
class Latency:
    """Median and 99th percentile of the time of a call [µs]."""

    p50: float
    p99: float


def latencies(calls: Mapping[str, Call], turns: int, calls_a_turn: int) -> dict[str, Latency]:
    """Return the latency of single calls; the time of reading the clock is subtracted."""
    everything = {"": (_nothing, ()), **calls}
    times = {name: np.zeros((turns, calls_a_turn)) for name in everything}
    for turn in range(turns):
        for name, (function, arguments) in everything.items():
            times[name][turn] = _timed(function, arguments, calls_a_turn)
    clock = float(np.median(times.pop("")))
    return {name: percentiles((nanoseconds - clock) / 1e3) for name, nanoseconds in times.items()}


def percentiles(microseconds: np.ndarray) -> Latency:
    p50, p99 = np.percentile(microseconds, [50, 99])
    return Latency(float(p50), float(p99))


def _timed(function: Callable[..., Any], arguments: Sequence[Any], calls: int) -> list[int]:
    now = time.perf_counter_ns
    times = []
    for _ in range(calls):
        began = now()
        function(*arguments)
        times.append(now() - began)
    return times


def _nothing() -> None:
    """Do nothing, to measure the clock and the call."""
