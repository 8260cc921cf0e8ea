"""Commands on the way from a log to a model in a controller."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import ModelError, SettingsError
from .app import app, command, judging_command, require_writable
from .log_options import LogsArgument, name_of, takes_log_options


@app.command()
@judging_command
@takes_log_options
def check(
    log: LogsArgument,
    urdf: Annotated[
        Path | None,
        typer.Option(help="URDF of the robot; it tells units and signs that a log alone cannot."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of every joint to write: png, svg or pdf.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the findings as JSON on stdout, and nothing else there."
        ),
    ] = False,
    *,
    log_options: Any,
) -> None:
    """Say what is wrong with a log, where, why it matters and what to do.

    Exit code 0 without errors (warnings are none), 1 if the log has errors, 2 if it could not be
    read.
    """
    if plot is not None:
        require_writable(plot)
    from .check_command import as_dict, check_log, show, write_picture

    recording, findings = check_log(log, log_options, urdf)
    if plot is not None:
        write_picture(recording, findings, plot)
    if as_json:
        typer.echo(json.dumps(as_dict(recording, findings, [str(path) for path in log])))
    else:
        show(recording, findings, name_of(log))
        if plot is not None:
            typer.echo(f"Picture: {plot}")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


@app.command()
@command
def describe(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model file that `delan fit` wrote.", show_default=False
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(help="Picture of the learned arm to write: png, svg or pdf.")
    ] = None,
    urdf: Annotated[
        Path | None, typer.Option(help="URDF of the true arm, to draw beneath the learned one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="URDF file to write the learned arm to.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print all of it as JSON on stdout, and nothing else there."),
    ] = False,
) -> None:
    """Tell what a model is and, of a chain, what it learned: axes, distances, links, rotors and
    friction.
    """
    if urdf is not None and plot is None:
        raise SettingsError(
            "--urdf is the true arm, drawn beneath the learned one; say where with --plot PICTURE, "
            "or write the learned arm with --out FILE"
        )
    for path in (plot, out):
        if path is not None:
            require_writable(path)
    from .describe_command import read_description, write_picture, write_urdf
    from .describe_tables import show

    description = read_description(model)
    if not as_json:
        show(description)
    if plot is not None:
        write_picture(description, plot, urdf)
        if not as_json:  # said at once: what comes next may fail, and the picture is there
            typer.echo(f"Picture: {plot}")
    if out is not None:
        try:
            told = [*write_urdf(description, out), f"URDF: {out}"]
        except ModelError as error:
            if as_json or str(error) not in description.notes:
                raise
            raise ModelError(f"{out} was not written; the note above says why") from None
        for sentence in () if as_json else told:
            typer.echo(sentence)
    if as_json:
        typer.echo(json.dumps(description.as_dict()))


@app.command()
@command
def export(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model file that `delan fit` wrote.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder to write into; default: named after the model."),
    ] = None,
    kind: Annotated[
        Literal["c", "stablehlo", "casadi"],
        typer.Option(
            "--format",
            help="c: C99 code; stablehlo: programs for JAX, of whole batches; casadi: symbolic functions for "
            "model-predictive control, always in double.",
        ),
    ] = "c",
    name: Annotated[
        str | None,
        typer.Option(
            help="What all names in the code begin with; default: that of the model file."
        ),
    ] = None,
    double: Annotated[
        bool, typer.Option("--double", help="Numbers in double precision instead of float.")
    ] = False,
    exact_math: Annotated[
        bool,
        typer.Option(
            "--exact-math", help="The C library's exp and tanh instead of faster ones (error 3e-7)."
        ),
    ] = False,
    ros2: Annotated[
        bool,
        typer.Option(
            "--ros2", help="Add a ROS 2 package in ros2/: a plugin for `inverse_dynamics_solver`."
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print what was written as JSON on stdout, and nothing else there."
        ),
    ] = False,
) -> None:
    """Write a model as C99 code for a controller: no Python there, no allocation, no dependency but
    libm.

    Other formats are functions in files, with a page that tells how to call them.
    """
    from ..deploy.layout import ExportSettings
    from .export_command import run_export, word_of

    settings = ExportSettings(
        word_of(model.stem) if name is None else name,
        "double" if double else "float",
        fast_math=not exact_math,
    )
    run_export(model, out, settings, kind=kind, ros2=ros2, as_json=as_json)


@app.command()
@judging_command
@takes_log_options
def gate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model file that `delan fit` wrote.", show_default=False
        ),
    ],
    log: Annotated[
        list[Path],
        typer.Option(
            "--log", help="Log of motion that the model was not trained on; may be repeated."
        ),
    ],
    limits: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with torque and, if known, lower, upper and velocity of the joints."
        ),
    ] = None,
    urdf: Annotated[Path | None, typer.Option(help="URDF of the robot, for its limits.")] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the certificate as JSON on stdout, and nothing else there."
        ),
    ] = False,
    *,
    log_options: Any,
) -> None:
    """Decide whether a model may drive a robot; a certificate is kept beside it.

    Exit code 0 only if every check passes, 1 if the model is refused, 2 if it could not be
    examined.
    """
    from .gate_command import run_gate

    if not run_gate(model, log, log_options, limits=limits, urdf=urdf, as_json=as_json):
        raise typer.Exit(1)
