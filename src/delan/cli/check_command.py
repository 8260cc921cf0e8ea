"""The command `delan check`: all findings about a log, a picture and a verdict."""

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
from ..errors import DataError, DelanError, ModelError, SettingsError
from ..joints import Joints, Recording
from ..logs.doctor import Finding, Severity, examine
from ..logs.doctor.finding import plural
from ..logs.doctor.large_logs import Examine, examine_parts
from ..logs.formats.opening import log_files
from ..logs.options import LogOptions
from ..logs.reading import log_parts, stream_log
from ..models.rigid_body import RigidBody
from ..report.check_picture import draw_check

COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def check_up(recording: Recording, urdf: Path | None) -> tuple[Recording, tuple[Finding, ...]]:
    """Check a recording, with a URDF if given; the recording then gets the joints of the URDF."""
    joints, examiner = _examiner(urdf)
    return _with_joints(recording, joints), examiner(recording)


def check_log(
    logs: Sequence[Path], options: LogOptions, urdf: Path | None
) -> tuple[Recording, tuple[Finding, ...]]:
    """Check all rows of a log; the recording is an excerpt if it exceeds `options.memory`."""
    joints, examiner = _examiner(urdf)
    try:
        parts = log_parts(logs, options, sound=False)
        recording, findings = examine_parts(parts, options.most_bytes, examiner)
    except DataError as error:
        raise _all_errors(error, logs, options) from None
    return _with_joints(recording, joints), findings


def _all_errors(first: DataError, logs: Sequence[Path], options: LogOptions) -> DelanError:
    """Return the errors of all files that cannot be read, so that they can be fixed at once."""
    files = [file for log in logs for file in log_files(log)]
    problems = []
    for file in files:
        try:
            next(stream_log(file, options, rows=1, sound=False))
        except DataError as error:
            problems.append(str(error))
    if len(problems) < 2:
        return first
    heading = f"{len(problems)} of {len(files)} files cannot be read:"
    return DelanError("\n  ".join([heading, *problems]))


def _examiner(urdf: Path | None) -> tuple[Joints | None, Examine]:
    """Return the joints of a URDF, if given, and a function that checks recordings with it."""
    if urdf is None:
        return None, examine
    from ..robots.robot_files import urdf_limits

    body = RigidBody.from_urdf(urdf)
    try:
        limits = urdf_limits(ElementTree.parse(urdf).getroot(), body.joints.names)
    except SettingsError as error:
        raise SettingsError(f"{urdf}: {error}") from None

    def torque(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return np.stack([body.inverse_dynamics(*row) for row in zip(q, qd, qdd, strict=True)])

    def examine_with_urdf(recording: Recording, *, part: bool = False) -> tuple[Finding, ...]:
        if body.joints.dof != recording.joints.dof:
            raise ModelError(
                f"{urdf} has {body.joints.dof} joints ({', '.join(body.joints.names)}), the log "
                f"has {recording.joints.dof}; choose the joints of the log with --joints"
            )
        named = _with_joints(recording, body.joints)
        return examine(named, model=torque, limits=limits, part=part)

    return body.joints, examine_with_urdf


def _with_joints(recording: Recording, joints: Joints | None) -> Recording:
    """Name the columns after the joints of the URDF, in its order; the check shows errors in it."""
    return recording if joints is None else replace(recording, joints=joints)


def _count(findings: Sequence[Finding], severity: Severity) -> int:
    return sum(finding.severity == severity for finding in findings)


def verdict(findings: Sequence[Finding]) -> str:
    """Return the last line of the output."""
    errors = _count(findings, "error")
    warnings = _count(findings, "warning")
    counts = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
    if errors:
        return f"Verdict: {counts}. Fix the errors before fitting a model."
    if warnings:
        return f"Verdict: {counts}. A fit will run; first follow the remedies where you can."
    return "Verdict: no errors or warnings. Fit a model."


def as_dict(
    recording: Recording, findings: Sequence[Finding], names: Sequence[str]
) -> dict[str, Any]:
    """Return plain values for JSON."""
    return {
        "logs": list(names),
        "rows": len(recording.t) if recording.excerpt is None else recording.excerpt.rows,
        "joints": list(recording.joints.names),
        "findings": [finding.as_dict() for finding in findings],
        "errors": _count(findings, "error"),
        "warnings": _count(findings, "warning"),
        "verdict": verdict(findings),
    }


def show(recording: Recording, findings: Sequence[Finding], name: str) -> None:
    """Print errors and warnings in full, notes in short, and the verdict."""
    console = Console()
    rows = len(recording.t)
    trajectories = len(np.unique(recording.trajectory))
    if recording.excerpt is not None:
        rows = recording.excerpt.rows
        trajectories = recording.excerpt.trajectories
    noun = "trajectory" if trajectories == 1 else "trajectories"
    console.print(f"{name}: {rows} rows, {recording.joints.dof} joints, {trajectories} {noun}")
    notes = [finding for finding in findings if finding.severity == "note"]
    serious = [finding for finding in findings if finding.severity != "note"]
    if serious:
        console.print(_serious_table(serious))
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
    """One row per kind; joints with the same note share a line."""
    table = Table(show_lines=True)
    table.add_column("note", no_wrap=True)
    table.add_column("")
    places: dict[str, dict[str, list[str]]] = {}
    for note in notes:
        places.setdefault(note.kind, {}).setdefault(note.text, []).append(note.where)
    for kind, texts in places.items():
        lines = [f"{', '.join(channels)}: {text}" for text, channels in texts.items()]
        table.add_row(kind.replace("_", " "), "\n".join(lines))
    return table


def write_picture(recording: Recording, findings: Sequence[Finding], path: Path) -> None:
    """Draw every joint with the places of the findings."""
    suffix = path.suffix.lower()
    if suffix not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"{path}: a picture is a .png, .svg or .pdf file")
    figure = draw_check(recording, findings)
    storage.write_whole(path, lambda file: figure.savefig(file, format=suffix[1:], dpi=130))
