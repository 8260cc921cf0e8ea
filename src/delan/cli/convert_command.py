"""The command `delan convert`: any log, understood once, in the plain form of delan."""

import json
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from ..errors import SettingsError
from .app import app, command, json_flag, require_writable
from .log_options import LogsArgument, takes_log_options


@app.command()
@command
@takes_log_options
def convert(
    log: LogsArgument,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="File to write: .parquet, .npz or .csv.")
    ],
    as_json: Annotated[bool, json_flag("what was written")] = False,
    *,
    log_options: Any,
) -> None:
    """Write any log in SI units with columns t, q0, …, tau0, …, and with how it was read."""
    from ..logs.option_text import with_stored
    from ..logs.reading import log_files, log_parts
    from ..logs.recording_file import Form, provenance_of, write_converted
    from ..storage import write_whole

    form = out.suffix[1:].lower()
    if form not in get_args(Form):
        raise SettingsError(f"{out}: a converted log is a .parquet, .npz or .csv file")
    require_writable(out, inputs=log)
    first_file = log_files(log[0])[0]
    parts = log_parts(log, log_options, sound=False)
    first = next(parts)
    options = with_stored(first_file, log_options)
    provenance = provenance_of(first.recording, options, list(map(str, log)))
    rows = 0

    def write(file: Any) -> None:
        nonlocal rows
        whole = chain([first], parts)
        rows = write_converted(file, cast(Form, form), whole, provenance)

    write_whole(out, write)
    payload = {"log": str(out), "rows": rows, **provenance}
    if as_json:
        typer.echo(json.dumps(payload))
    else:
        typer.echo(
            f"{out}: {rows} rows of {first.recording.joints.dof} joints in rad, s and N m (m and N "
            "for sliding joints); it needs no options"
        )
