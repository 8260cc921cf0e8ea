"""Models of the WAM whose C code is measured, and programs that call that code inside C."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from delan.deploy.c_code import c_source
from delan.deploy.compiler import FLAGS, find_compiler
from delan.deploy.layout import ExportSettings, Precision
from delan.models.geometry import from_rigid_body
from delan.models.networks import FeedForwardNetwork, LagrangianNetwork
from delan.models.rigid_body import RigidBody
from delan.robots.arms import WAM7

PRECISIONS: tuple[Precision, ...] = ("float", "double")
PROGRAM_FLAGS = tuple(flag for flag in FLAGS if flag not in ("-fPIC", "-shared"))
HARNESS = Path(__file__).parent / "harness.c"


def models() -> dict[str, Any]:
    """Return the exact arm as a chain, a random network, and a plain network, the lower bound of
    the cost of a network.
    """
    return {
        "chain": from_rigid_body(RigidBody.from_urdf(WAM7.urdf())),
        "network 2 × 64": LagrangianNetwork(WAM7.joints, key=jax.random.key(0)),
        "plain 2 × 64": FeedForwardNetwork(WAM7.joints, key=jax.random.key(0)),
    }


def directions(model: Any) -> tuple[str, ...]:
    return ("inverse", "forward") if model.promises.mechanics else ("inverse",)


@dataclass(frozen=True)
class Program:
    """The code of a model compiled with `harness.c`."""

    model: str
    precision: Precision
    direction: str
    path: Path

    def run(
        self, turns: int, calls: int, singles: int, before: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run the program; `before` is the command of one that watches it, such as valgrind."""
        counts = (str(turns), str(calls), str(singles))
        command = [*before, str(self.path), self.direction, *counts]
        return subprocess.run(command, capture_output=True, text=True, check=True)


def build_programs(
    named_models: Mapping[str, Any], folder: Path, flags: Sequence[str] = PROGRAM_FLAGS
) -> Iterator[Program]:
    """Compile every model in both precisions, one program for all its directions."""
    compiler = find_compiler()
    if compiler is None:
        raise SystemExit("there is no C compiler; install gcc or clang, or name one in CC")
    for number, (name, model) in enumerate(named_models.items()):
        for precision in PRECISIONS:
            source = c_source(model, ExportSettings("arm", precision))
            place = folder / f"{number}_{precision}"
            place.mkdir(parents=True)
            (place / "arm.h").write_text(source.header)
            (place / "arm.c").write_text(source.source)
            shutil.copy(HARNESS, place)
            defined = [
                f"-DREAL={precision}",
                *(["-DFORWARD"] if "forward" in directions(model) else []),
            ]
            command = [
                compiler,
                "-std=c99",
                *flags,
                *defined,
                "arm.c",
                "harness.c",
                "-o",
                "program",
                "-lm",
            ]
            subprocess.run(command, cwd=place, check=True)
            for direction in directions(model):
                yield Program(name, precision, direction, place / "program")


def compiler_version() -> str:
    """Return the version line of the compiler, to which counts and times belong."""
    ran = subprocess.run(
        [find_compiler() or "cc", "--version"], capture_output=True, text=True, check=False
    )
    return ran.stdout.partition("\n")[0]
