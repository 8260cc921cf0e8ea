"""The command `delan check`: all findings about a log, a picture and a verdict."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import DataError, DelanError, UnreadableLogsError
from .app import (
    app,
    json_flag,
    judging_command,
    option,
    require_picture,
    say,
    takes,
    write_picture,
)
from .log_options import LogsArgument, described_robot, name_of, takes_log_options
from .unknown_log import ask, explain, next_command

if TYPE_CHECKING:
    from ..joints import Joints, Recording
    from ..logs.doctor import Finding, Severity
    from ..logs.options import LogOptions

COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The options of `delan check`, without those of its logs."""

    log: LogsArgument
    urdf: Path | None = option(
        None, help="URDF of the robot, to check units and signs that a log alone cannot show."
    )
    plot: Path | None = option(None, help="Picture of every joint to write: png, svg or pdf.")
    save: bool = option(
        False,
        "--save",
        help="Keep the options of the log in LOG.toml beside it, where every command reads them.",
    )
    ask: bool = option(
        False, "--ask", help="On a terminal: ask for what is not understood of the log."
    )
    as_json: Annotated[bool, json_flag("the findings")] = False

    def __post_init__(self) -> None:
        require_picture(self.plot)


@app.command()
@judging_command
@takes_log_options
@takes("request", CheckRequest)
def check(*, request: CheckRequest, log_options: Any) -> None:
    """Say what is wrong with a log, where, why it matters and what to do.

    A log that is not understood is shown with its columns and the best guess at what they mean.
    Exit code 0 without errors (warnings are none), 1 if the log has errors, 2 if it could not be
    read.
    """
    if request.ask:
        logs, log_options = ask(request.log, log_options)
        request = replace(request, log=list(logs))
    try:
        recording, findings = check_log(request.log, log_options, request.urdf)
    except (DataError, UnreadableLogsError) as error:
        explain(error, request.log, log_options, as_json=request.as_json)
        raise
    if request.save:
        _save_options(request.log, log_options)
    if request.plot is not None:
        from ..report.check_picture import draw_check

        write_picture(draw_check(recording, findings), request.plot)
    following = _mended_file(findings, log_options, recording)
    options = _following(findings, log_options, recording.joints)
    if options is not None:
        following = next_command("fit", request.log, options)
    if request.as_json:
        payload = as_dict(recording, findings, request.log)
        typer.echo(json.dumps({**payload, "next": following}))
    else:
        show(recording, findings, name_of(request.log))
        if following is not None:
            typer.echo(f"Next: {following}")
        if request.plot is not None:
            typer.echo(f"Picture: {request.plot}")
    if _count(findings, "error"):
        raise typer.Exit(1)


def _save_options(logs: Sequence[Path], options: "LogOptions") -> None:
    """Keep the options with which each log was understood in a file beside it."""
    from ..logs.option_text import options_path, plain_options, toml_text, with_stored
    from ..storage import write_whole

    for log in logs:
        kept = with_stored(log, options)
        path = options_path(log)
        if not plain_options(kept):
            say(f"{log.name} needs no options; nothing to save")
            continue
        text = toml_text(kept, f"How {log.name} is read; options that are typed count more.")
        write_whole(path, lambda file, text=text: file.write(text.encode()))
        say(f"{path}: the options of {log.name}, read by every command")


def _following(
    findings: Sequence["Finding"], options: "LogOptions", joints: "Joints"
) -> "LogOptions | None":
    """Return the options with which a model can be learned, None if no option mends the log."""
    from ..logs.repair import find_repair, without_dead

    repair = find_repair(findings)
    if repair is not None:
        if repair.beyond or repair.exchanged:
            return None  # the remedy of the finding says what to do
        options = repair.options(options, joints)
    return without_dead(findings, options, joints)


def _mended_file(
    findings: Sequence["Finding"], options: "LogOptions", recording: "Recording"
) -> str | None:
    """Return the command that keeps what mends a file whose signs contradict those of others.

    There is none if another trajectory of the file is right, or if signs were typed for all files.
    """
    from ..log_rows import file_of_row

    reversed_files = [item for item in findings if "option" in item.measured]
    reversed_files = [item for item in reversed_files if item.severity == "error" and item.file]
    if not reversed_files or options.flip:
        return None
    worst = reversed_files[0]
    file = file_of_row(worst.files, worst.rows[0][0])
    rows, _ = _rows_and_trajectories(recording)
    end = min([rows, *(other.start for other in worst.files if other.start > file.start)])
    if "[" in file.source or worst.rows != ((file.start, end),):
        return None
    path = Path(file.source.split(" + ")[0])
    return f"{next_command('check', [path], options)} {worst.measured['option']} --save"


def check_log(
    logs: Sequence[Path], options: "LogOptions", urdf: Path | None
) -> tuple["Recording", tuple["Finding", ...]]:
    """Check all rows of a log; the recording is an excerpt if it exceeds `options.memory`."""
    from ..logs.doctor import check_up_parts
    from ..logs.reading import log_parts

    robot = described_robot(urdf)
    try:
        return check_up_parts(log_parts(logs, options, sound=False), options.most_bytes, robot)
    except DataError as error:
        raise _all_errors(error, logs, options) from None


def _all_errors(first: DataError, logs: Sequence[Path], options: "LogOptions") -> DelanError:
    """Return the errors of all files that cannot be read, so that they can be fixed at once."""
    from ..logs.reading import log_files, stream_log

    files: list[Path] = []
    for log in logs:
        files += log_files(log)
    problems = []
    for file in files:
        try:
            next(stream_log(file, options, rows=1, sound=False))
        except DataError as error:
            problems.append(error)
    if len(problems) < 2:
        return first
    heading = f"{len(problems)} of {len(files)} files cannot be read:"
    return UnreadableLogsError(heading, problems)


def _count(findings: Sequence["Finding"], severity: "Severity") -> int:
    return sum(finding.severity == severity for finding in findings)


def verdict(findings: Sequence["Finding"]) -> str:
    """Return the last line of the output."""
    from ..logs.doctor.finding import plural

    errors = _count(findings, "error")
    warnings = _count(findings, "warning")
    counts = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
    if errors:
        return f"Verdict: {counts}. Fix the errors before fitting a model."
    if warnings:
        return f"Verdict: {counts}. A fit will run; first follow the remedies where you can."
    return "Verdict: no errors or warnings. Fit a model."


def _rows_and_trajectories(recording: "Recording") -> tuple[int, int]:
    """Return the size of the log, also where the recording is an excerpt of it."""
    if recording.excerpt is not None:
        return recording.excerpt.rows, recording.excerpt.trajectories
    return len(recording.t), len(set(recording.trajectory.tolist()))


def as_dict(
    recording: "Recording", findings: Sequence["Finding"], logs: Sequence[Path]
) -> dict[str, Any]:
    """Return plain values for JSON."""
    rows, _ = _rows_and_trajectories(recording)
    return {
        "logs": list(map(str, logs)),
        "rows": rows,
        "joints": list(recording.joints.names),
        "torque_source": recording.torque_source,
        "findings": [finding.as_dict() for finding in findings],
        "errors": _count(findings, "error"),
        "warnings": _count(findings, "warning"),
        "verdict": verdict(findings),
    }


def show(recording: "Recording", findings: Sequence["Finding"], name: str) -> None:
    """Print errors and warnings in full, notes in short, and the verdict."""
    console = Console()
    rows, trajectories = _rows_and_trajectories(recording)
    noun = "trajectory" if trajectories == 1 else "trajectories"
    console.print(f"{name}: {rows} rows, {recording.joints.dof} joints, {trajectories} {noun}")
    serious = _serious_table(findings)
    notes = _notes_table(findings)
    for table in (serious, notes):
        if table.row_count:
            console.print(table)
    console.print(Text(verdict(findings), style="bold"))


def _serious_table(findings: Sequence["Finding"]) -> Table:
    table = Table(show_lines=True)
    table.add_column("finding", no_wrap=True)
    table.add_column("what, why, and what to do")
    for finding in findings:
        if finding.severity == "note":
            continue
        head = Text(finding.severity, style=COLOURS[finding.severity])
        head.append(f"\n{finding.kind.replace('_', ' ')}", style="not bold")
        body = Text(f"{finding.where}: {finding.text}.")
        body.append(f"\nWhy: {finding.why}.", style="dim")
        body.append(f"\nDo: {finding.remedy}.")
        table.add_row(head, body)
    return table


def _notes_table(findings: Sequence["Finding"]) -> Table:
    """One row per kind; joints with the same note share a line."""
    table = Table(show_lines=True)
    table.add_column("note", no_wrap=True)
    table.add_column("")
    places: dict[str, dict[str, list[str]]] = {}
    for finding in findings:
        if finding.severity == "note":
            places.setdefault(finding.kind, {}).setdefault(finding.text, []).append(finding.where)
    for kind, texts in places.items():
        lines = [f"{', '.join(channels)}: {text}" for text, channels in texts.items()]
        table.add_row(kind.replace("_", " "), "\n".join(lines))
    return table
