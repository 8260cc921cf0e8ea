"""Error of exported C code against float64 JAX on 10,000 states, by compiler and optimisation.

    python -m benchmarks.deploy_accuracy [--clang COMMAND]

Warnings are errors; two builds of each compiler use its address and undefined-behaviour sanitizers,
if it has them. Errors are relative to the largest value of a result over all states; also reported
is the worst error relative to the largest value of the same state, which is large where components
of a torque cancel. gcc and clang are used if installed; COMMAND calls a clang of another name, such
as "zig cc". Exits with 1 if a limit is exceeded. Writes to `benchmarks/results`.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from delan.deploy.artifact import with_numbers
from delan.deploy.c_code import CSource, c_source
from delan.deploy.layout import ExportSettings, Precision
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from delan.models.networks import FeedForwardNetwork, LagrangianNetwork
from delan.models.rigid_body import RigidBody
from delan.robots.arms import WAM7

from .results import write_results

STATES = 10_000
LIMITS: dict[Precision, float] = {"float": 1e-5, "double": 1e-12}
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
BUILDS = {
    "-O2": ("-O2",),
    "-O3": ("-O3",),
    "-O3 native": ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"),
    "address": ("-O1", "-g", "-fsanitize=address"),
    "undefined": ("-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all"),
}
CALLS = {
    "inverse_dynamics": ("0, q, qd, push, out", "DOF"),
    "forward_dynamics": ("0, q, qd, push, out", "DOF"),
    "mass_matrix": ("q, (real(*)[DOF])out", "DOF * DOF"),
    "coriolis": ("q, qd, out", "DOF"),
    "gravity": ("q, out", "DOF"),
    "friction": ("0, q, qd, push, out", "DOF"),
    "energy": ("q, qd, out, out + 1", "2"),
}
HARNESS = """
#include "arm.h"
#include <stdio.h>
#define DOF ARM_DOF
typedef {real} real;
static void write_values(const real *values, int count)
{{
    for (int i = 0; i < count; i++) {{
        const double value = (double)values[i];
        fwrite(&value, sizeof value, 1, stdout);
    }}
}}
int main(void)
{{
    double row[3 * DOF];
    real q[DOF], qd[DOF], push[DOF], out[DOF * DOF + 2];
    while (fread(row, sizeof row, 1, stdin) == 1) {{
        for (int i = 0; i < DOF; i++) {{
            q[i] = (real)row[i];
            qd[i] = (real)row[DOF + i];
            push[i] = (real)row[2 * DOF + i];
        }}
{calls}
    }}
    return 0;
}}
"""


def models() -> dict[str, Any]:
    """Return models of the WAM: the exact arm, random networks, the arm with every friction."""
    chain = from_rigid_body(RigidBody.from_urdf(WAM7.urdf()))
    terms = FrictionSettings(
        ("armature", "viscous", "asymmetric", "stribeck", "offset", "load", "stops")
    )
    head = Friction(WAM7.joints, FrictionSettings(terms.terms, pairs=(MotorPair(5, 4, 0.6),)))
    weights = jnp.asarray(np.random.default_rng(3).uniform(0.1, 0.8, head.weights.value.shape))
    motors = eqx.tree_at(lambda friction: friction.weights.value, head, weights)
    return {
        "chain": chain,
        "chain with motors": Model(chain, motors),
        "network 2 × 64": LagrangianNetwork(WAM7.joints, key=jax.random.key(0)),
        "feed-forward 2 × 64": FeedForwardNetwork(WAM7.joints, key=jax.random.key(0)),
    }


@eqx.filter_jit
def truth(model: Any, q: jax.Array, qd: jax.Array, push: jax.Array) -> dict[str, jax.Array]:
    """Return the results of the model for the states."""
    results = {"inverse_dynamics": jax.vmap(model.inverse_dynamics)(q, qd, push)}
    if model.promises.mechanics:
        parts = jax.vmap(model.components)(q, qd, push)
        results |= {
            "forward_dynamics": jax.vmap(model.forward_dynamics)(q, qd, push),
            "mass_matrix": jax.vmap(model.mass_matrix)(q).reshape(len(q), -1),
            "coriolis": parts.coriolis,
            "gravity": parts.gravity,
            "friction": parts.friction,
            "energy": jnp.stack(jax.vmap(model.energy)(q, qd), axis=1),
        }
    return results


def answers(
    compiler: list[str], flags: tuple[str, ...], code: CSource, real: str, given: bytes
) -> bytes | str:
    """Return the results of the compiled code for the states, or a line that says why not."""
    calls = [
        f"        arm_{name}({arguments});\n        write_values(out, {count});"
        for name, (arguments, count) in CALLS.items()
        if name in code.functions
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {
            "arm.h": code.header,
            "arm.c": code.source,
            "main.c": HARNESS.format(real=real, calls="\n".join(calls)),
        }.items():
            (Path(folder) / name).write_text(text)
        command = [*compiler, *STRICT, *flags, "arm.c", "main.c", "-o", "main", "-lm"]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if built.returncode:
            lines = [line for line in built.stderr.splitlines() if "error" in line] or ["refused"]
            return lines[0].replace(folder, "")[:200]
        ran = subprocess.run(["./main"], cwd=folder, input=given, capture_output=True, check=False)
        return ran.stdout if ran.returncode == 0 else ran.stderr.decode()[:200]


def can_build(compiler: list[str], flags: tuple[str, ...]) -> bool:
    """Return whether a compiler supports the flags and has their libraries."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "main.c").write_text(
            "int main(int count, char **words) { return !words[count - 1][0]; }\n"
        )
        command = [*compiler, *STRICT, *flags, "main.c", "-o", "main"]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def errors(
    got: bytes, wanted: dict[str, np.ndarray], order: list[str]
) -> dict[str, dict[str, float]]:
    """Return the worst error of every function, relative to all states and to each."""
    ends = np.cumsum([wanted[name].shape[1] for name in order])
    columns = np.split(np.frombuffer(got).reshape(STATES, ends[-1]), ends[:-1], axis=1)
    worst = {}
    for name, values in zip(order, columns, strict=True):
        away = np.abs(values - wanted[name]).max(axis=1)
        sizes = np.abs(wanted[name]).max(axis=1)
        if not sizes.any():  # no friction: zero must be zero
            worst[name] = {"error": float(away.max()), "of_each_state": float(away.max())}
            continue
        worst[name] = {
            "error": float(away.max() / sizes.max()),
            "of_each_state": float((away / sizes).max()),
        }
    return worst


def compilers(clang: str | None) -> dict[str, list[str]]:
    installed = {name: [path] for name in ("gcc", "clang") if (path := shutil.which(name))}
    return installed | ({"clang": shlex.split(clang)} if clang else {})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clang", help="command of a clang of another name")
    commands = compilers(parser.parse_args().clang)
    jax.config.update("jax_enable_x64", True)
    builds = {
        name: {build: flags for build, flags in BUILDS.items() if can_build(command, flags)}
        for name, command in commands.items()
    }
    missing = {name: [build for build in BUILDS if build not in builds[name]] for name in commands}
    print(f"missing builds: {missing}")
    rows = np.random.default_rng(0).uniform(-2, 2, (STATES, 3, WAM7.joints.dof))
    table: dict[str, Any] = {}
    passed = True
    for name, model in models().items():
        exact = truth(with_numbers(model, float), *(jnp.asarray(rows[:, i]) for i in range(3)))
        wanted = {what: np.asarray(values) for what, values in exact.items()}
        for precision, limit in LIMITS.items():
            code = c_source(model, ExportSettings("arm", precision))
            order = [what for what in CALLS if what in code.functions]
            for compiler, command in commands.items():
                for build, flags in builds[compiler].items():
                    got = answers(command, flags, code, precision, rows.tobytes())
                    if isinstance(got, str):  # the message of the compiler or of the program
                        result = worst = got
                        fine = False
                    else:
                        result = errors(got, wanted, order)
                        worst = max(function["error"] for function in result.values())
                        fine = worst <= limit
                    passed &= fine
                    line = f"{name:20s} {precision:6s} {compiler:5s} {build:10s} {worst}"
                    print(line, "" if fine else "TOO FAR", flush=True)
                    row = table.setdefault(name, {}).setdefault(precision, {})
                    row.setdefault(compiler, {})[build] = result
    versions = {
        name: subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=False
        ).stdout.split("\n")[0]
        for name, command in commands.items()
    }
    write_results(
        "deploy_accuracy",
        {
            "passed": passed,
            "states": STATES,
            "limits": LIMITS,
            "compilers": versions,
            "missing": missing,
            "errors": table,
        },
    )
    sys.exit(not passed)


if __name__ == "__main__":
    main()
