"""What `delan fit --model X` does with the options of one training: train it, write it, tell of it."""

import json
from dataclasses import asdict, replace
from typing import Any

import jax
import typer

from .. import storage
from ..data.preparation import PreparationSettings, prepare
from ..data.sketch import sketch
from ..errors import SettingsError
from ..joints import Recording
from ..learning.evaluate import Scores, evaluate
from ..learning.fit import fit as fit_model
from ..learning.fit_result import FitResult
from ..learning.objective import Objective
from ..learning.planning import FitSettings, ModelChoice
from ..learning.preparing import choose_preparation
from ..models.feed_forward import FeedForwardSettings
from ..models.network import LagrangianNetworkSettings
from .fit_request import FitRequest, tested
from .fit_telling import doubt, making, say, tell_training, watching_steps
from .log_options import name_of
from .tables import show_scores


def run_single(request: FitRequest, recording: Recording) -> int:
    """Train the model that was named, with the options of its training; the exit code."""
    network = _network(request.model, request.width, request.depth)
    settings = FitSettings(
        optimizer=request.optimizer,
        seconds=request.seconds,
        epochs=request.epochs,
        objective=Objective(weight_decay=request.weight_decay),
    )
    checkpoint = None if request.seeds > 1 else request.out.with_name(request.out.name + ".checkpoint")
    if request.resume and checkpoint is not None and not checkpoint.exists():
        say(f"there is no checkpoint {checkpoint}; starting anew")
    key = jax.random.key(request.seed)
    with watching_steps() as progress:
        how = PreparationSettings(cutoff=request.cutoff)
        if recording.qdd is None and request.cutoff is None:
            how = choose_preparation(recording, key=key, progress=progress("preparation")).settings
        result = fit_model(
            prepare(recording, how),
            network,
            settings,
            friction=request.terms,
            key=key,
            seeds=request.seeds,
            progress=progress(request.model),
            checkpoint=checkpoint,
            resume=request.resume,
        )
    if result.interrupted and not result.history:
        say("stopped before the first step; no model was written")
        return 130
    provenance = result.provenance() | {
        "log": name_of(request.logs),
        "sketch": sketch(recording),
        "preparation": asdict(how),
    }
    storage.save(result.model, request.out, provenance=provenance)
    scores = result.validation
    if request.test is not None:
        scores = evaluate(result.model, tested(request, provenance["sketch"], recording.joints, how))
        provenance["scores"]["test"] = scores.as_dict()
        storage.save(result.model, request.out, provenance=provenance)
    _tell_single(request, result, scores)
    if result.interrupted:
        say(f"stopped early; {request.out} holds the best model so far, --resume goes on")
        return 130
    return 0


def _network(model: str, width: int | None, depth: int | None) -> ModelChoice:
    """The name of the model when its size is to be chosen, else its settings."""
    name: Any = model
    if width is None and depth is None:
        return name
    if model == "chain":
        raise SettingsError("a chain has no hidden layers; leave --width and --depth out, or choose another --model")
    default = LagrangianNetworkSettings() if model == "delan" else FeedForwardSettings()
    width = default.width if width is None else width
    depth = default.depth if depth is None else depth
    return replace(default, width=width, depth=depth)


def _tell_single(request: FitRequest, result: FitResult, scores: Scores) -> None:
    if request.as_json:
        told = {
            **scores.as_dict(),
            "seconds": result.seconds,
            "scored_on": "validation" if request.test is None else "test",
            "validation": result.validation.as_dict(),
            **making(result, result.validation),
            "interrupted": result.interrupted,
            "model": str(request.out),
            "seed": request.seed,
        }
        typer.echo(json.dumps(told))
    else:
        tell_training(result)
        count = len(result.trajectories)
        scored_on = f"validation trajectories ({count})" if request.test is None else request.test.name
        show_scores({request.model: scores}, scored_on)
        typer.echo(f"Model: {request.out}")
    doubt(scores.torque.nmse_mean)
