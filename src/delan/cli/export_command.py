"""What `delan export` does: a model file as a folder of C code, or of functions in another format."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import typer

from .. import storage
from ..deploy.casadi_export import export_casadi
from ..deploy.layout import TAKEN, ExportSettings, Shape
from ..deploy.project import export, told_of
from ..deploy.ros2 import package_name
from ..deploy.stablehlo import export_stablehlo
from ..errors import SettingsError
from .gate_command import verdict_for

FORMATS = {"stablehlo": export_stablehlo, "casadi": export_casadi}
"""Those that are not C."""


def run_export(
    model: Path, out: Path | None, settings: ExportSettings, *, kind: str, ros2: bool, as_json: bool
) -> None:
    """Write the model, and say what to type next."""
    if kind != "c" and (ros2 or not settings.fast_math):
        raise SettingsError(
            f"--ros2 and --exact-math are about C code; leave them out for --format {kind}"
        )
    if kind == "casadi":
        settings = replace(settings, precision="double")
    with jax.enable_x64(True):  # all digits that the file has
        learned = storage.load(model)
    header = storage.read_header(model)
    gate = verdict_for(model, header)
    story = {"gate": gate} | told_of(header)
    out = model.with_name(f"{model.stem}_{kind}") if out is None else out
    told: dict[str, Any] = {
        "folder": str(out),
        "model": str(model),
        "precision": settings.precision,
        "gate": gate,
    }
    if kind == "c":
        made = export(learned, out, settings, story, ros2=ros2)
        told |= {
            "name": settings.name,
            "functions": list(made.functions),
            "checksum": made.checksum,
            "ros2": ros2,
        }
    else:
        told |= FORMATS[kind](learned, out, settings, story)
    if as_json:
        typer.echo(json.dumps(told))
        return
    if kind == "c":
        _say_code(out, settings.name, told["functions"], ros2)
    else:
        typer.echo(
            f"Functions: {', '.join(told['functions'])} in {out}; {out}/README.md tells how to call them"
        )
        if Shape.of(learned).stops:
            typer.echo(
                "This model remembers the way (friction with stops), and these functions do not: see README.md"
            )
    typer.echo(f"Gate: {gate}")


def _say_code(out: Path, name: str, functions: list[str], ros2: bool) -> None:
    typer.echo(f"Code: {out}/{name}.h and {name}.c, with {', '.join(functions)}")
    if "state_update" in functions:
        typer.echo(
            f"This model remembers the way (friction with stops): keep one {name}_state for each robot, call "
            f"{name}_state_init once and {name}_state_update in every period, and pass it first, as {out}/example.c "
            "does; with NULL the friction is wrong after each reversal"
        )
    if (out / "example.new.c").exists():
        typer.echo(
            f"{out}/example.c is not as it was written, and stays as it is; the new one is example.new.c"
        )
    typer.echo(
        f"Test it on the machine that will run it: cd {out} && cc -std=c99 -O3 {name}.c test.c -lm && ./a.out"
    )
    if ros2:
        typer.echo(
            f"ROS 2: put {out}/ros2 into a workspace; the plugin is {package_name(name)}/Solver"
        )


def word_of(stem: str) -> str:
    """A file's name as one that may begin names in C."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    return word if word[:1].isalpha() and word.lower() not in TAKEN else f"arm_{word}"
