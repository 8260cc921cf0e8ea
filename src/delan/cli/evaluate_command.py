"""The command `delan evaluate`: score a model file on a log."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import (
    JsonOption,
    ModelArgument,
    app,
    command,
    require_picture,
    say_if_useless,
    show_scores,
    write_picture,
)
from .log_options import LogsArgument, name_of, read_for_model, takes_log_options

if TYPE_CHECKING:
    from ..joints import Dataset
    from ..models.model import Model


@app.command()
@command
@takes_log_options
def evaluate(
    model: ModelArgument,
    log: LogsArgument,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Picture to write: measured and predicted torque of every joint, png, svg or pdf."
        ),
    ] = None,
    as_json: JsonOption = False,
    *,
    log_options: Any,
) -> None:
    """Score a model on a log: torque, accelerations, predicted motion, known parts of the
    torque.
    """
    from ..learning import scores as scoring
    from ..storage import read_model

    require_picture(plot)
    began = time.perf_counter()
    stored = read_model(model)
    _, dataset = read_for_model(model, stored, log, log_options)
    scores = scoring.evaluate(stored.model, dataset)
    if plot is not None:
        write_picture(_torques(stored.model, dataset), plot)
    if as_json:
        seconds = time.perf_counter() - began
        typer.echo(json.dumps({**scores.as_dict(), "seconds": seconds, "model": str(model)}))
    else:
        show_scores({model.name: scores}, name_of(log))
        if plot is not None:
            typer.echo(f"Picture: {plot}")
    say_if_useless(scores.torque.nmse_mean)


def _torques(model: "Model", dataset: "Dataset") -> Any:
    """Draw the torques in the middle of the longest motion, with the band if the model has one."""
    from ..report.fit_figures import draw_traces, predicted, window

    trusted = model if model.promises.trust else None
    prediction = predicted(model, dataset, trusted=trusted)
    return draw_traces(prediction.rows(window(dataset.samples)))
