"""How fast a model is where it is used: Pinocchio as the yardstick, JAX, C called from Python, and C inside C.

    python -m benchmarks.deploy

All are timed in turns in one process, so that they share the machine's moods; the least of many medians counts. The
arm is the WAM's 7 joints; the chain is the exact arm, the network has 2 × 64 random units. Writes to
`benchmarks/results`.
"""

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pinocchio as pin  # pyright: ignore[reportMissingImports]

import delan
from delan.deploy.c_source import c_source
from delan.deploy.compiler import FLAGS, find_compiler
from delan.deploy.shape import ExportSettings, Precision
from delan.models.feed_forward import FeedForwardNetwork
from delan.models.geometry import from_rigid_body
from delan.models.network import LagrangianNetwork
from delan.models.rigid_body import RigidBody
from delan.robots.barrett_wam import WAM7

from .results import write_results

TURNS, CALLS = 60, 300
PRECISIONS: tuple[Precision, ...] = ("float", "double")
HARNESS = """
#define _POSIX_C_SOURCE 199309L
#include "arm.h"
#include <stdio.h>
#include <time.h>
static double now(void) {{ struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }}
int main(void) {{
    {real} q[ARM_DOF], qd[ARM_DOF], push[ARM_DOF], out[ARM_DOF];
    double best = 1e9;
    for (int i = 0; i < ARM_DOF; i++) {{ q[i] = ({real})0.1 * i; qd[i] = ({real})0.3; push[i] = 1; }}
    for (int turn = 0; turn < 300; turn++) {{
        const double begin = now();
        for (int call = 0; call < 1000; call++) {{
            arm_{function}(0, q, qd, push, out);
            q[0] += ({real})1e-9 * out[0]; /* so that no call can be left out */
        }}
        const double took = (now() - begin) * 1e3;
        if (took < best) best = took;
    }}
    printf("%.9f", best);
    return 0;
}}
"""


def inside_c(model: Any, precision: Precision, function: str) -> float:
    """Microseconds of a call from C."""
    source = c_source(model, ExportSettings("arm", precision))
    flags = [flag for flag in FLAGS if flag not in ("-fPIC", "-shared")]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {
            "arm.h": source.header,
            "arm.c": source.source,
            "main.c": HARNESS.format(real=precision, function=function),
        }.items():
            (Path(folder) / name).write_text(text)
        command = [find_compiler() or "cc", *flags, "arm.c", "main.c", "-o", "main", "-lm"]
        subprocess.run(command, cwd=folder, check=True)
        return float(subprocess.run(["./main"], cwd=folder, capture_output=True, check=True).stdout)


def from_python(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Microseconds of each call, in turns: the median over turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    return {name: float(np.median(one)) for name, one in times.items()}


def main() -> None:
    models: dict[str, Any] = {
        "chain": from_rigid_body(RigidBody.from_urdf(WAM7.urdf())),
        "network 2 × 64": LagrangianNetwork(WAM7.joints, key=jax.random.key(0)),
        "feed-forward 2 × 64": FeedForwardNetwork(WAM7.joints, key=jax.random.key(0)),
    }
    yardstick = pin.buildModelFromXML(WAM7.urdf())
    data = yardstick.createData()
    q, qd, push = np.random.default_rng(0).uniform(-1, 1, (3, 7))
    calls: dict[str, Callable[[], Any]] = {
        "pinocchio rnea": lambda: pin.rnea(yardstick, data, q, qd, push),
        "pinocchio aba": lambda: pin.aba(yardstick, data, q, qd, push),
    }
    inside: dict[str, float] = {}
    for name, model in models.items():
        jitted = eqx.filter_jit(model.inverse_dynamics)
        calls[f"{name}, JAX"] = lambda jitted=jitted: np.asarray(jitted(q, qd, push))
        for precision in PRECISIONS:
            made, rows = delan.compile(model, precision=precision), tuple(np.array((q, qd, push), precision))
            calls[f"{name}, {precision}"] = lambda made=made, rows=rows: made.inverse_dynamics(*rows)
            functions = ["inverse_dynamics"]
            if isinstance(model, delan.DynamicsModel):
                calls[f"{name}, {precision}, forward"] = lambda made=made, rows=rows: made.forward_dynamics(*rows)
                functions.append("forward_dynamics")
            for function in functions:
                inside[f"{name}, {precision}, {function}"] = inside_c(model, precision, function)
    python = from_python(calls)
    rnea = python["pinocchio rnea"]
    print("called from Python [µs, and over pin.rnea]")
    for name, value in python.items():
        print(f"  {name:40s} {value:8.2f} {value / rnea:8.2f}")
    print("called from C [µs]")
    for name, value in inside.items():
        print(f"  {name:50s} {value:8.3f}")
    write_results(
        "deploy", {"from_python": python, "over_rnea": {k: v / rnea for k, v in python.items()}, "in_c": inside}
    )


if __name__ == "__main__":
    main()
