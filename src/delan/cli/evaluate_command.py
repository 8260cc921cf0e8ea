"""The command `delan evaluate`: score a model file on a log."""

import json
import time
from typing import Any

import typer

from .app import JsonOption, ModelArgument, app, command, say_if_useless, show_scores
from .log_options import LogsArgument, name_of, read_for_model, takes_log_options


@app.command()
@command
@takes_log_options
def evaluate(
    model: ModelArgument,
    log: LogsArgument,
    as_json: JsonOption = False,
    *,
    log_options: Any,
) -> None:
    """Score a model on a log: torque, accelerations, predicted motion, known parts of the
    torque.
    """
    from ..learning import scores as scoring
    from ..storage import read_model

    began = time.perf_counter()
    stored = read_model(model)
    _, dataset = read_for_model(model, stored, log, log_options)
    scores = scoring.evaluate(stored.model, dataset)
    if as_json:
        seconds = time.perf_counter() - began
        typer.echo(json.dumps({**scores.as_dict(), "seconds": seconds, "model": str(model)}))
    else:
        show_scores({model.name: scores}, name_of(log))
    say_if_useless(scores.torque.nmse_mean)
