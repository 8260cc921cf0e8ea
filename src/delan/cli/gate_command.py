"""What `delan gate` does: a model examined, the certificate printed and kept beside the model file."""

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import typer
from rich.console import Console
from rich.table import Table

from .. import storage
from ..deploy.certificate import Certificate, Check, unseen_motion
from ..deploy.gate import GateSettings, examine
from ..deploy.workspace import limits_of_urdf, read_limits
from ..errors import ModelFileError, SettingsError
from ..joints import Recording
from ..logs.excerpts import share_known
from ..logs.options import LogOptions
from ..logs.preparation import PreparationSettings, prepare
from ..logs.reading import read_log
from .evaluate_command import preparation_of_file, with_kinds_of
from .log_options import name_of
from .messages import say_if_excerpt


def run_gate(
    model: Path,
    logs: Sequence[Path],
    log_options: LogOptions,
    *,
    limits: Path | None,
    urdf: Path | None,
    as_json: bool,
) -> bool:
    """Examine a model file, tell and keep what was found; whether it may drive."""
    if limits is None and urdf is None:
        raise SettingsError(
            "torques are examined against the robot's limits; give --limits FILE.toml or --urdf"
        )
    with jax.enable_x64(True):
        learned = storage.load(model)
    joints = learned.joints
    robot = (
        read_limits(limits, joints) if limits is not None else limits_of_urdf(_there(urdf), joints)
    )
    recording = with_kinds_of(joints, read_log(list(logs), log_options))
    say_if_excerpt(recording, name_of(logs))
    how = PreparationSettings() if recording.qdd is not None else preparation_of_file(model)
    header = storage.read_header(model)
    examined = examine(learned, robot, prepare(recording, how), GateSettings())
    found = Certificate((*_known(model, header, recording), *examined.checks))
    told = found.as_dict() | {
        "model": model.name,
        "checksum": header["checksum"],
        "log": name_of(logs),
        "trained_on": header.get("log"),
        "limits": (limits or _there(urdf)).name,
        "versions": {name: version(name) for name in ("delan", "jax", "numpy")},
    }
    kept = certificate_path(model)
    storage.write_whole(kept, lambda file: file.write(json.dumps(told, indent=1).encode()))
    if as_json:
        typer.echo(json.dumps(told | {"certificate": str(kept)}))
    else:
        _show(found, model.name)
        typer.echo(f"Certificate: {kept}")
    return found.passed


def _known(model: Path, header: dict[str, Any], recording: Recording) -> Iterator[Check]:
    """Whether the log is the one that the model was trained on, of a file that remembers it."""
    if "sketch" not in header:
        return
    try:
        yield unseen_motion(share_known(header["sketch"], recording))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ModelFileError(
            str(model), "what it says of the log it was trained on is damaged; fit it anew"
        ) from None


def certificate_path(model: Path) -> Path:
    """Where the certificate of a model file is kept."""
    return model.with_suffix(".gate.json")


def verdict_for(model: Path, header: dict[str, Any]) -> str:
    """What the gate said of just these weights, in one line."""
    try:
        told = json.loads(certificate_path(model).read_text(encoding="utf-8"))
        if told["checksum"] == header["checksum"]:
            return f"{told['verdict']} (log {told['log']}, limits {told['limits']})"
        return "the certificate is of other weights; run `delan gate`"
    except OSError:
        return "never examined; run `delan gate`"
    except (ValueError, KeyError, TypeError):
        return "the certificate is damaged; run `delan gate`"


def _there(path: Path | None) -> Path:
    assert path is not None
    return path


def _show(found: Certificate, name: str) -> None:
    table = Table(title=f"{name}: {found.verdict}", title_justify="left")
    for column in ("", "check", "asked", "found"):
        table.add_column(column)
    for check in found.checks:
        table.add_row("ok" if check.passed else "NO", check.name, check.asked, check.found)
    console = Console()
    console.print(table)
    for check in found.checks:
        if not check.passed:
            console.print(
                f"{check.name}: {check.why}. What to do: {check.cure}.",
                highlight=False,
                markup=False,
            )
