"""What `delan fit` and `delan evaluate` do; what only a contest of models needs is imported when there is one."""

import json
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import typer

from .. import storage
from ..data.log_options import LogOptions
from ..data.logs import read_log
from ..data.preparation import PreparationSettings, prepare
from ..errors import ModelFileError, SettingsError
from ..joints import Joints, Recording
from ..learning.evaluate import evaluate
from .fit_request import FitRequest, require_readable
from .fit_telling import doubt, tell_excerpt
from .log_options import name_of
from .tables import show_scores


def run_fit(request: FitRequest) -> int:
    """Fit, write and tell; the exit code.

    Models compete unless one is named for a log that needs no preparation, or with options of its own training.
    """
    recording = read_log(list(request.logs), request.log_options)
    tell_excerpt(recording, name_of(request.logs))
    if request.test is not None:
        require_readable(request, recording)
    prepared = recording.qdd is None or request.cutoff is not None or request.accelerations == "none"
    if request.model == "auto" or request.page is not None or (prepared and not request.own):
        from .contest_fit import run_contest

        return run_contest(request, recording)
    from .single_fit import run_single

    return run_single(request, recording)


def run_evaluate(model: Path, logs: Sequence[Path], log_options: LogOptions, *, as_json: bool) -> None:
    """Score a model file on logs, prepared as those were that it was learned from."""
    began = time.perf_counter()
    learned = storage.load(model)
    recording = with_kinds_of(learned.joints, read_log(list(logs), log_options))
    tell_excerpt(recording, name_of(logs))
    how = PreparationSettings() if recording.qdd is not None else preparation_of_file(model)
    scores = evaluate(learned, prepare(recording, how))
    if as_json:
        typer.echo(json.dumps({**scores.as_dict(), "seconds": time.perf_counter() - began, "model": str(model)}))
    else:
        show_scores({model.name: scores}, name_of(logs))
    doubt(scores.torque.nmse_mean)


def with_kinds_of(joints: Joints, recording: Recording) -> Recording:
    """The recording with joints that slide or turn as the model's do, in its order, if the log says nothing of it: all
    joints of such a log count as revolute."""
    silent = set(recording.joints.kinds) == {"revolute"} and recording.joints.dof == joints.dof
    return replace(recording, joints=replace(recording.joints, kinds=joints.kinds)) if silent else recording


def preparation_of_file(model: Path) -> PreparationSettings:
    """What the model file says of the preparation; nothing special if it says nothing."""
    told = storage.read_header(model).get("preparation")
    if told is None:
        return PreparationSettings()
    known = {one.name for one in fields(PreparationSettings)}
    try:
        return PreparationSettings(**{name: value for name, value in told.items() if name in known})
    except (TypeError, AttributeError, SettingsError) as error:
        problem = f"what it says of the preparation of logs is damaged ({error}); save it anew"
        raise ModelFileError(str(model), problem) from None
