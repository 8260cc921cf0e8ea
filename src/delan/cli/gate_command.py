"""The command `delan gate`: a model is examined; a certificate is printed and kept beside it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..errors import ModelFileError, SettingsError
from .app import ModelArgument, app, json_flag, judging_command, versions
from .log_options import name_of, read_for_model, takes_log_options

if TYPE_CHECKING:
    from ..deploy.certificate import Certificate, Check
    from ..joints import Recording


@app.command()
@judging_command
@takes_log_options
def gate(
    model: ModelArgument,
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
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Seed of the random states, to repeat a certificate; default: a new one."
        ),
    ] = None,
    as_json: Annotated[bool, json_flag("the certificate")] = False,
    *,
    log_options: Any,
) -> None:
    """Decide whether a model may drive a robot; a certificate is kept beside it.

    Exit code 0 only if every check passes, 1 if the model is refused, 2 if it could not be
    examined.
    """
    limits_file = limits or urdf
    if limits_file is None:
        raise SettingsError(
            "torques are examined against the robot's limits; give --limits FILE.toml or --urdf"
        )
    import jax

    from .. import storage
    from ..deploy.certificate import Certificate
    from ..deploy.gate import GateSettings, examine
    from ..deploy.workspace import limits_of_urdf, read_limits

    with jax.enable_x64(True):  # all digits that the file has
        learned = storage.load(model)
    if limits is None:
        robot = limits_of_urdf(limits_file, learned.joints)
    else:
        robot = read_limits(limits, learned.joints)
    recording, dataset = read_for_model(model, learned.joints, log, log_options)
    header = storage.read_header(model)
    examined = examine(learned, robot, dataset, GateSettings(seed=seed))
    unseen = _unseen_check(model, header, recording)
    certificate = Certificate((*unseen, *examined.checks), examined.seed)
    payload = certificate.as_dict() | {
        "model": model.name,
        "checksum": header["checksum"],
        "log": name_of(log),
        "trained_on": header.get("log"),
        "limits": limits_file.name,
        "versions": versions("delan", "jax", "numpy"),
    }
    path = _certificate_path(model)
    storage.write_whole(path, lambda file: file.write(json.dumps(payload, indent=1).encode()))
    if as_json:
        typer.echo(json.dumps(payload | {"certificate": str(path)}))
    else:
        _show(certificate, model.name)
        typer.echo(f"Certificate, with the region of each check: {path} (seed {certificate.seed})")
    if not certificate.passed:
        raise typer.Exit(1)


def _unseen_check(model: Path, header: dict[str, Any], recording: "Recording") -> Iterator["Check"]:
    """Whether the log is the one that the model was trained on, if the model file says of which."""
    from ..deploy.certificate import unseen_motion
    from ..logs.excerpts import share_known

    if "sketch" not in header:
        return
    try:
        yield unseen_motion(share_known(header["sketch"], recording))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ModelFileError(
            str(model), "what it says of the log it was trained on is damaged; fit it anew"
        ) from None


def _certificate_path(model: Path) -> Path:
    return model.with_suffix(".gate.json")


def gate_verdict(model: Path, header: dict[str, Any]) -> str:
    """Return what the gate said of just these weights, in one line."""
    try:
        certificate = json.loads(_certificate_path(model).read_text(encoding="utf-8"))
        if certificate["checksum"] != header["checksum"]:
            return "the certificate is of other weights; run `delan gate`"
        where = f"log {certificate['log']}, limits {certificate['limits']}"
        return f"{certificate['verdict']} ({where})"
    except OSError:
        return "never examined; run `delan gate`"
    except (ValueError, KeyError, TypeError):
        return "the certificate is damaged; run `delan gate`"


def _show(certificate: "Certificate", name: str) -> None:
    table = Table(title=f"{name}: {certificate.verdict}", title_justify="left")
    for column in ("", "check", "asked", "found", "evidence"):
        table.add_column(column)
    problems = []
    for check in certificate.checks:
        mark = "ok"
        if not check.passed:
            mark = "NO"
            problems.append(f"{check.name}: {check.why}. What to do: {check.cure}.")
        table.add_row(mark, check.name, check.asked, check.found, check.evidence)
    console = Console()
    console.print(table)
    for problem in problems:
        console.print(problem, highlight=False, markup=False)
