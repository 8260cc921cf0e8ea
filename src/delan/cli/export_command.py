"""The command `delan export`: a model file as C code, or as functions in another format."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import SettingsError
from .app import ModelArgument, app, command, json_flag, option, takes
from .gate_command import gate_verdict
from .log_options import read_for_model, takes_log_options

if TYPE_CHECKING:
    from ..deploy.layout import ExportSettings
    from ..identification.rigid_refit import RigidRefit
    from ..storage import StoredModel


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """The options of `delan export`."""

    model: ModelArgument
    out: Path | None = option(
        None, "-o", "--out", help="Folder to write into; default: named after the model."
    )
    kind: Literal["c", "stablehlo", "casadi", "mjcf", "urdf"] = option(
        "c",
        "--format",
        help="c: C99 code; stablehlo: programs for JAX, of whole batches; casadi: symbolic "
        "functions for model-predictive control, always in double; mjcf, urdf: a rigid arm for "
        "simulators.",
    )
    log: list[Path] | None = option(
        None,
        "--log",
        help="For mjcf and urdf: a log, for the limits of torque and to tell what rigid frames "
        "cost there; may be repeated.",
    )
    name: str | None = option(
        None, help="Prefix of all names in the code; default: the name of the model file."
    )
    double: bool = option(False, "--double", help="Double precision instead of float.")
    exact_math: bool = option(
        False,
        "--exact-math",
        help="The C library's exp and tanh instead of faster ones (error 3e-7).",
    )
    ros2: bool = option(
        False,
        "--ros2",
        help="Add a ROS 2 package in ros2/: a plugin for `inverse_dynamics_solver`.",
    )
    as_json: Annotated[bool, json_flag("what was written")] = False

    def __post_init__(self) -> None:
        if self.kind != "c" and (self.ros2 or self.exact_math):
            raise SettingsError(
                f"--ros2 and --exact-math are about C code; leave them out for --format {self.kind}"
            )
        if self.log and self.kind not in ("mjcf", "urdf"):
            raise SettingsError(
                f"--log is for mjcf and urdf; leave it out for --format {self.kind}"
            )

    @property
    def folder(self) -> Path:
        """Where the code goes."""
        return self.out or self.model.with_name(f"{self.model.stem}_{self.kind}")

    @property
    def settings(self) -> "ExportSettings":
        """The settings of the export."""
        from ..deploy.layout import ExportSettings

        name = self.name
        if name is None:
            name = word_of(self.model.stem)
        precision = "double" if self.double or self.kind == "casadi" else "float"
        return ExportSettings(name, precision, fast_math=not self.exact_math)


@app.command()
@command
@takes("request", ExportRequest)
@takes_log_options
def export(*, request: ExportRequest, log_options: Any) -> None:
    """Write a model as C99 code for a controller: no Python there, no allocation, no dependency but
    libm.

    Other formats are functions in files, or a robot for simulators, with a page that tells how to
    use them.
    """
    settings = request.settings
    import jax

    from .. import storage
    from ..deploy.layout import Shape
    from ..deploy.project import history_of

    with jax.enable_x64(True):  # all digits that the file has
        stored = storage.read_model(request.model)
    learned, header = stored
    verdict = gate_verdict(request.model, header)
    if request.kind in ("mjcf", "urdf"):
        _export_simulator(request, stored, {"gate": verdict} | history_of(header), log_options)
        return
    payload = {
        "folder": str(request.folder),
        "model": str(request.model),
        "precision": settings.precision,
        "gate": verdict,
        **_write(request, learned, settings, {"gate": verdict} | history_of(header)),
    }
    if request.as_json:
        typer.echo(json.dumps(payload))
        return
    if request.kind == "c":
        _show_code(request, settings.name, payload["functions"])
    else:
        folder = request.folder
        typer.echo(
            f"Functions: {', '.join(payload['functions'])} in {folder}; {folder}/README.md tells "
            "how to call them"
        )
        if Shape.of(learned).stops:
            typer.echo(
                "This model remembers the way (friction with stops), and these functions do not: "
                "see README.md"
            )
    typer.echo(f"Gate: {verdict}")


def _write(
    request: ExportRequest, learned: Any, settings: "ExportSettings", history: dict[str, str]
) -> dict[str, Any]:
    """Write the files; return what they hold."""
    from ..deploy import casadi_export, project, stablehlo

    if request.kind == "stablehlo":
        return stablehlo.export_stablehlo(learned, request.folder, settings, history)
    if request.kind == "casadi":
        return casadi_export.export_casadi(learned, request.folder, settings, history)
    written = project.export(learned, request.folder, settings, history, ros2=request.ros2)
    return {
        "name": settings.name,
        "functions": list(written.functions),
        "checksum": written.checksum,
        "ros2": request.ros2,
    }


def _export_simulator(
    request: ExportRequest, stored: "StoredModel", story: dict[str, str], log_options: Any
) -> None:
    from ..deploy.simulator_files import export_simulator

    log = None
    if request.log:
        _, log = read_for_model(request.model, stored, request.log, log_options)
    kind: Any = request.kind
    written = export_simulator(
        stored.model, request.folder, kind, request.settings.name, log=log, story=story
    )
    if request.as_json:
        typer.echo(json.dumps({"folder": str(request.folder), **written.facts}))
        return
    folder = request.folder
    typer.echo(f"Robot: {folder}/{written.facts['file']}; {folder}/README.md tells how to use it")
    typer.echo(told_refit(written.refit))
    if request.kind == "mjcf":
        typer.echo(f"Test it on the machine that will run it: python {folder}/load.py")
    typer.echo(f"Gate: {story['gate']}")


def told_refit(refit: "RigidRefit") -> str:
    """Return sentences about the rigid arm that stands for a chain, and what it costs."""
    text = (
        f"The chain's frames are up to {refit.stretch:.2g} away from rotations; refitted as a "
        f"rigid arm, its torques differ by an nMSE of {_mean(refit.nmse):.2g} (mean of the joints)."
    )
    if refit.log_nmse is not None:
        rigid, chain = map(_mean, refit.log_nmse)
        text += f" On the log the nMSE is {rigid:.2g}, before {chain:.2g}."
    return text + (
        " Masses and centres that joint data do not determine are those of tubes along the arm."
    )


def _mean(errors: tuple[float, ...]) -> float:
    return sum(errors) / len(errors)


def _show_code(request: ExportRequest, name: str, functions: list[str]) -> None:
    from ..deploy.project import package_name

    out = request.folder
    typer.echo(f"Code: {out}/{name}.h and {name}.c, with {', '.join(functions)}")
    if "state_update" in functions:
        typer.echo(
            f"This model remembers the way (friction with stops): keep one {name}_state for each "
            f"robot, call {name}_state_init once and {name}_state_update in every period, and pass "
            f"it first, as {out}/example.c does; with NULL the friction is wrong after each "
            "reversal"
        )
    if (out / "example.new.c").exists():
        typer.echo(
            f"{out}/example.c is not as it was written, and stays as it is; the new one is "
            "example.new.c"
        )
    typer.echo(
        f"Test it on the machine that will run it: cd {out} && "
        f"cc -std=c99 -O3 {name}.c test.c -lm && ./a.out"
    )
    if request.ros2:
        typer.echo(
            f"ROS 2: put {out}/ros2 into a workspace; the plugin is {package_name(name)}/Solver"
        )


def word_of(stem: str) -> str:
    """Return a file's name as a word that names in C may begin with."""
    from ..deploy.layout import TAKEN

    word = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    if word[:1].isalpha() and word.lower() not in TAKEN:
        return word
    return f"arm_{word}"
