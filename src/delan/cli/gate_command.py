"""The command `delan gate`: a model is examined; a certificate is printed and kept beside it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..errors import SettingsError, printable
from .app import ModelArgument, app, json_flag, judging_command, versions
from .log_options import name_of, read_for_model, takes_log_options

if TYPE_CHECKING:
    from ..deploy.certificate import Certificate, Check
    from ..joints import Dataset, Recording

# Characters of a text of the certificate that are shown and written into code.
LONGEST_VERDICT = 500


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
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Also refuse a model whose simulation strays from LOG."),
    ] = False,
    as_json: Annotated[bool, json_flag("the certificate")] = False,
    *,
    log_options: Any,
) -> None:
    """Decide whether a model may drive a robot; a certificate is kept beside it.

    Exit code 0 only if every check passes, 1 if the model is refused, 2 if it could not be
    examined.
    """
    import jax

    from .. import storage
    from ..deploy.certificate import Certificate
    from ..deploy.gate import GateSettings, examine
    from ..deploy.workspace import limits_of_urdf, read_limits

    with jax.enable_x64(True):  # all digits that the file has
        stored = storage.read_model(model)
    learned, header = stored
    limits_file = limits or urdf
    if limits_file is None:
        raise SettingsError(
            "torques are examined against the robot's limits; give --limits FILE.toml or --urdf"
        )
    if limits is None:
        robot = limits_of_urdf(limits_file, learned.joints)
    else:
        robot = read_limits(limits, learned.joints)
    recording, dataset = read_for_model(model, stored, log, log_options)
    examined = examine(learned, robot, dataset, GateSettings(seed=seed, simulate=simulate))
    unseen = _unseen_check(header, recording, dataset)
    certificate = Certificate((unseen, *examined.checks), examined.seed)
    payload = certificate.as_dict() | {
        "model": model.name,
        "checksum": header["checksum"],
        "log": name_of(log),
        "trained_on": header.get("log"),
        "limits": limits_file.name,
        "versions": versions("delan", "jax", "numpy"),
    }
    path = storage.certificate_path(model)
    storage.write_whole(path, lambda file: file.write(json.dumps(payload, indent=1).encode()))
    if as_json:
        typer.echo(json.dumps(payload | {"certificate": str(path)}))
    else:
        _show(certificate, model.name)
        typer.echo(f"Certificate, with the region of each check: {path} (seed {certificate.seed})")
    if not certificate.passed:
        raise typer.Exit(1)


def _unseen_check(header: dict[str, Any], recording: "Recording", dataset: "Dataset") -> "Check":
    """Whether the log is the one that the model was trained on; a file that does not say fails."""
    from ..deploy.certificate import unseen_motion
    from ..logs.excerpts import share_known

    known = header.get("sketch")
    if known is None:
        return unseen_motion(None)
    # A model that was fitted to a dataset has a sketch of prepared samples.
    return unseen_motion(max(share_known(known, recording), share_known(known, dataset)))


def gate_verdict(model: Path, header: dict[str, Any]) -> str:
    """Return what the gate said of just this file, in one line."""
    from ..storage import read_certificate

    certificate = read_certificate(model)
    if certificate is None:
        return "never examined; run `delan gate`"
    texts = []
    for name in ("verdict", "log", "limits"):
        text = certificate.get(name)
        # A certificate of another file is refused when the model is read.
        if not isinstance(text, str) or certificate["checksum"] != header["checksum"]:
            return "the certificate is damaged; run `delan gate`"
        texts.append(printable(text, LONGEST_VERDICT))
    verdict, log, limits = texts
    return f"{verdict} (log {log}, limits {limits})"


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
