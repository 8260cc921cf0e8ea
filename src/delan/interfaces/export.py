"""What `delan export` does: a model file as a folder of C code."""

import json
import re
from pathlib import Path

import jax
import typer

from .. import storage
from ..deploy.project import export, told_of
from ..deploy.ros2 import package_name
from ..deploy.shape import ExportSettings


def run_export(
    model: Path, out: Path | None, *, name: str | None, double: bool, exact_math: bool, ros2: bool, as_json: bool
) -> None:
    """Write the code, and say what to type next."""
    name = _word(model.stem) if name is None else name
    settings = ExportSettings(name, "double" if double else "float", fast_math=not exact_math)
    with jax.enable_x64(True):  # all digits that the file has
        learned = storage.load(model)
    out = model.with_name(f"{model.stem}_c") if out is None else out
    made = export(learned, out, settings, told_of(storage.read_header(model)), ros2=ros2)
    if as_json:
        told = {"folder": str(out), "name": name, "functions": list(made.functions), "checksum": made.checksum}
        typer.echo(json.dumps(told | {"precision": settings.precision, "model": str(model), "ros2": ros2}))
        return
    typer.echo(f"Code: {out}/{name}.h and {name}.c, with {', '.join(made.functions)}")
    typer.echo(f"Test it on the machine that will run it: cd {out} && cc -std=c99 -O3 {name}.c test.c -lm && ./a.out")
    if ros2:
        typer.echo(f"ROS 2: put {out}/ros2 into a workspace; the plugin is {package_name(name)}/Solver")


def _word(stem: str) -> str:
    """A file's name as one that may begin names in C."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    return word if word[:1].isalpha() else f"arm_{word}"
