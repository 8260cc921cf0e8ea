"""What `delan check` tells of a log: every finding with its place, its reason and its cure, a picture, a verdict."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import storage
from ..data.doctor import Finding, examine
from ..data.doctor.parted import Examine, examine_parts
from ..data.formats.opening import log_files
from ..data.log_options import LogOptions
from ..data.logs import log_parts, stream_log
from ..errors import DataError, DelanError, ModelError, SettingsError
from ..joints import Joints, Recording
from ..models.rigid_body import RigidBody
from ..report.doctor import draw_check

COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def check_up(recording: Recording, urdf: Path | None) -> tuple[Recording, tuple[Finding, ...]]:
    """The doctor's findings, with the help of a URDF if there is one; the recording has then the URDF's joints."""
    joints, examined = _doctor(urdf)
    return _named(recording, joints), examined(recording)


def check_log(logs: Sequence[Path], options: LogOptions, urdf: Path | None) -> tuple[Recording, tuple[Finding, ...]]:
    """The same of all rows of a log, of which the recording is an excerpt if it is larger than `options.memory`."""
    joints, examined = _doctor(urdf)
    try:
        recording, findings = examine_parts(log_parts(logs, options, sound=False), options.most_bytes, examined)
    except DataError as error:
        raise _all_told(error, logs, options) from None
    return _named(recording, joints), findings


def _all_told(first: DataError, logs: Sequence[Path], options: LogOptions) -> DelanError:
    """The error of one file, or what is wrong with each file that cannot be read, so that all are mended at once."""
    files = [file for log in logs for file in log_files(log)]
    told = []
    for file in files:
        try:
            next(stream_log(file, options, rows=1, sound=False))
        except DataError as error:
            told.append(str(error))
    return DelanError("\n  ".join([f"{len(told)} of {len(files)} files cannot be read:", *told])) if told[1:] else first


def _doctor(urdf: Path | None) -> tuple[Joints | None, Examine]:
    """The joints of a URDF, if there is one, and who examines a recording with its help."""
    if urdf is None:
        return None, examine
    from ..robots.files import urdf_limits

    body = RigidBody.from_urdf(urdf)
    try:
        limits = urdf_limits(ElementTree.parse(urdf).getroot(), body.joints.names)
    except SettingsError as error:
        raise SettingsError(f"{urdf}: {error}") from None

    def torque(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return np.stack([body.inverse_dynamics(*row) for row in zip(q, qd, qdd, strict=True)])

    def examined(recording: Recording, *, part: bool = False) -> tuple[Finding, ...]:
        if body.joints.dof != recording.joints.dof:
            raise ModelError(
                f"{urdf} has {body.joints.dof} joints ({', '.join(body.joints.names)}) and the log "
                f"{recording.joints.dof}; choose the joints of the log with --joints"
            )
        return examine(_named(recording, body.joints), model=torque, limits=limits, part=part)

    return body.joints, examined


def _named(recording: Recording, joints: Joints | None) -> Recording:
    """Columns are taken for the URDF's joints in its order: whether that is right is what the check shows."""
    return recording if joints is None else replace(recording, joints=joints)


def verdict(findings: Sequence[Finding]) -> str:
    """The last line."""
    errors, warnings = (sum(finding.severity == severity for finding in findings) for severity in ("error", "warning"))
    told = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    if errors:
        return f"Verdict: {told}. Mend the errors before you fit a model."
    if warnings:
        return f"Verdict: {told}. A fit will run; follow what stands after “Do:” first where you can."
    return "Verdict: nothing worse than notes. Fit a model."


def as_dict(recording: Recording, findings: Sequence[Finding], names: Sequence[str]) -> dict[str, Any]:
    """All of it for a script."""
    return {
        "logs": list(names),
        "rows": len(recording.t) if recording.excerpt is None else recording.excerpt.rows,
        "joints": list(recording.joints.names),
        "findings": [finding.as_dict() for finding in findings],
        "errors": sum(finding.severity == "error" for finding in findings),
        "warnings": sum(finding.severity == "warning" for finding in findings),
        "verdict": verdict(findings),
    }


def show(recording: Recording, findings: Sequence[Finding], name: str) -> None:
    """The findings worst first, the notes in short, and the verdict."""
    console = Console()
    rows, labels = len(recording.t), len(np.unique(recording.trajectory))
    if recording.excerpt is not None:
        rows, labels = recording.excerpt.rows, recording.excerpt.trajectories
    motions = f"{labels} trajector{'ies' if labels != 1 else 'y'}"
    console.print(f"{name}: {rows} rows, {recording.joints.dof} joints, {motions}")
    serious = [finding for finding in findings if finding.severity != "note"]
    if serious:
        console.print(_serious_table(serious))
    notes = [finding for finding in findings if finding.severity == "note"]
    if notes:
        console.print(_notes_table(notes))
    console.print(Text(verdict(findings), style="bold"))


def _serious_table(findings: Sequence[Finding]) -> Table:
    table = Table(show_lines=True)
    table.add_column("finding", no_wrap=True)
    table.add_column("what, why, and what to do")
    for finding in findings:
        head = Text(finding.severity, style=COLOURS[finding.severity])
        head.append(f"\n{finding.kind.replace('_', ' ')}", style="not bold")
        body = Text(f"{finding.where}: {finding.text}.")
        body.append(f"\nWhy: {finding.why}.", style="dim")
        body.append(f"\nDo: {finding.remedy}.")
        table.add_row(head, body)
    return table


def _notes_table(notes: Sequence[Finding]) -> Table:
    """One row a kind; joints of which the same is told share a line."""
    table = Table(show_lines=True)
    table.add_column("note", no_wrap=True)
    table.add_column("")
    for kind in dict.fromkeys(note.kind for note in notes):
        places: dict[str, list[str]] = {}
        for note in notes:
            if note.kind == kind:
                places.setdefault(note.text, []).append(note.where)
        table.add_row(kind.replace("_", " "), "\n".join(f"{', '.join(at)}: {text}" for text, at in places.items()))
    return table


def write_picture(recording: Recording, findings: Sequence[Finding], path: Path) -> None:
    """The picture of every joint, with the places of the findings."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"{path}: a picture is a .png, .svg or .pdf file")
    figure = draw_check(recording, findings)
    storage.write_whole(path, lambda file: figure.savefig(file, format=path.suffix[1:].lower(), dpi=130))
