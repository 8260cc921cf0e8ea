"""`delan evaluate`: score a model file on a log."""

import json
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ModelFileError, SettingsError
from .app import JsonOption, app, command
from .log_options import LogsArgument, name_of, takes_log_options
from .messages import say_if_excerpt, say_if_useless

if TYPE_CHECKING:
    from ..joints import Joints, Recording
    from ..logs.preparation import PreparationSettings


@app.command()
@command
@takes_log_options
def evaluate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model file that `delan fit` wrote.", show_default=False
        ),
    ],
    log: LogsArgument,
    as_json: JsonOption = False,
    *,
    log_options: Any,
) -> None:
    """Score a model on a log: torque, accelerations, predicted motion, known parts of the torque."""
    from ..learning.scores import evaluate as evaluated
    from ..logs.preparation import PreparationSettings, prepare
    from ..logs.reading import read_log
    from ..storage import load
    from .terminal import show_scores

    began = time.perf_counter()
    learned = load(model)
    recording = with_kinds_of(learned.joints, read_log(list(log), log_options))
    say_if_excerpt(recording, name_of(log))
    settings = PreparationSettings()
    if recording.qdd is None:
        settings = preparation_of_file(model)
    scores = evaluated(learned, prepare(recording, settings))
    if as_json:
        seconds = time.perf_counter() - began
        typer.echo(json.dumps({**scores.as_dict(), "seconds": seconds, "model": str(model)}))
    else:
        show_scores({model.name: scores}, name_of(log))
    say_if_useless(scores.torque.nmse_mean)


def with_kinds_of(joints: "Joints", recording: "Recording") -> "Recording":
    """The recording with the kinds of a model's joints, if the log says nothing of kinds.

    All joints of such a log count as revolute.
    """
    silent = set(recording.joints.kinds) == {"revolute"} and recording.joints.dof == joints.dof
    if not silent:
        return recording
    return replace(recording, joints=replace(recording.joints, kinds=joints.kinds))


def preparation_of_file(model: Path) -> "PreparationSettings":
    """How the log of a model file was prepared; the usual way if the file says nothing."""
    from ..logs.preparation import PreparationSettings
    from ..storage import read_header

    stored = read_header(model).get("preparation")
    if stored is None:
        return PreparationSettings()
    known = {field.name for field in fields(PreparationSettings)}
    try:
        return PreparationSettings(
            **{name: value for name, value in stored.items() if name in known}
        )
    except (TypeError, AttributeError, SettingsError) as error:
        problem = f"its preparation of logs is damaged ({error}); save it anew"
        raise ModelFileError(str(model), problem) from None
