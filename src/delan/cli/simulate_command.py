"""The command `delan simulate`: replay a log with a model and tell how far the two stray apart."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..errors import DataError, SettingsError
from .app import JsonOption, ModelArgument, app, command, plain, say, say_if_excerpt
from .log_options import name_of, remembered, takes_log_options, with_kinds_of

if TYPE_CHECKING:
    from ..joints import Recording
    from ..logs.options import LogOptions
    from ..models.model import Model
    from ..robots.robot import Gains
    from ..simulation.replay import LogReplay


@app.command()
@command
@takes_log_options
def simulate(
    model: ModelArgument,
    log: Annotated[
        list[Path],
        typer.Option(
            "--log", help="Log of motion that the model was not trained on; may be repeated."
        ),
    ],
    urdf: Annotated[
        Path | None, typer.Option(help="URDF of the robot, replayed beside the model.")
    ] = None,
    windows: Annotated[
        int, typer.Option(min=1, help="Starts of open-loop simulations, spread over the log.")
    ] = 40,
    plot: Annotated[
        Path | None, typer.Option(help="Draw recorded and simulated motion to this PNG or SVG.")
    ] = None,
    as_json: JsonOption = False,
    *,
    log_options: Any,
) -> None:
    """Replay a log with a model: does it move like the robot?

    Open loop, the recorded torques drive the model from recorded states; the error of its positions
    is told after 0.1, 0.5, 1 and 2 s, also relative to a robot that holds its speed. With the gains
    of the log's controller, from the log or by --kp and --kd, that drives it over the whole log.
    """
    from ..simulation.replay import ReplaySettings, replay
    from ..storage import read_model

    began = time.perf_counter()
    stored = read_model(model)
    learned = stored.model
    log_options = remembered(model, stored, log, log_options)
    recording = with_kinds_of(learned.joints, _recording(log, log_options))
    say_if_excerpt(recording, name_of(log))
    settings = ReplaySettings(windows=windows)
    gains = _gains(log_options, recording)
    say("simulating from recorded states")
    replays = {"model": replay(learned, recording, settings, gains=gains)}
    if urdf is not None:
        say(f"simulating {urdf.name}")
        replays["urdf"] = replay(_known(urdf), recording, settings, gains=gains)
    if plot is not None:
        _draw(replays["model"], plot)
    if as_json:
        payload = replays["model"].as_dict() | {
            "model": str(model),
            "log": name_of(log),
            "joints": list(learned.joints.names),
            "seconds": time.perf_counter() - began,
        }
        if "urdf" in replays:
            payload["urdf"] = replays["urdf"].as_dict()
        typer.echo(json.dumps(plain(payload)))
        return
    for name, each in replays.items():
        _show(each, f"{model.name if name == 'model' else urdf} on {name_of(log)}")


def _known(urdf: Path) -> "Model":
    """Return the arm of a URDF as a model."""
    from ..models.geometry import model_of
    from ..models.rigid_body import RigidBody

    return model_of(RigidBody.from_urdf(urdf))


def _draw(replayed: "LogReplay", path: Path) -> None:
    """Write the picture of a replay."""
    from ..report.replay_picture import draw_replay
    from ..storage import write_whole

    figure = draw_replay(replayed)
    form = path.suffix.removeprefix(".") or "png"
    write_whole(path, lambda file: figure.savefig(file, format=form, dpi=110))
    say(f"drawn to {path}")


def _recording(logs: Sequence[Path], options: "LogOptions") -> "Recording":
    """Read logs; the gains of their controller give the torques only where none are logged."""
    from ..logs.reading import read_log

    try:
        return read_log(list(logs), replace(options, kp=None, kd=None))
    except DataError:
        if options.kp is None:
            raise
    return read_log(list(logs), options)


def _gains(options: "LogOptions", recording: "Recording") -> "Gains | None":
    """Return the gains that were typed, or those of the log; None for neither."""
    import numpy as np

    from ..robots.robot import Gains

    if options.kp is None and options.kd is None:
        if recording.gains is None:
            return None
        return Gains(*recording.gains)
    if options.kp is None or options.kd is None:
        raise SettingsError("a closed loop needs both --kp and --kd of the log's controller")
    typed = []
    for numbers in (options.kp, options.kd):
        if len(numbers) == 1:
            numbers = numbers * recording.joints.dof
        typed.append(np.array(numbers))
    return Gains(*typed)


def _show(replayed: "LogReplay", title: str) -> None:
    """Print the errors of each joint, a column for each horizon."""
    table = Table(title=f"Position error of {title}", title_justify="left")
    table.add_column("joint", no_wrap=True)
    for horizon in replayed.open_loop:
        table.add_column(f"{horizon:g} s", justify="right")
    if replayed.closed_loop is not None:
        table.add_column("closed loop", justify="right")
    for joint, name in enumerate(replayed.joints.names):
        cells = []
        for error in replayed.open_loop.values():
            cells.append(f"{_milli(error.rmse[joint])} ({error.over_hold[joint]:.2f})")
        if replayed.closed_loop is not None:
            cells.append(_milli(replayed.closed_loop.rmse[joint]))
        table.add_row(name, *cells)
    Console().print(table)
    typer.echo(
        "In mrad or mm; in brackets over the error of a robot that holds the speed of the start."
    )


def _milli(error: float) -> str:
    """Return an error in thousandths, with a digit after the point if it is small."""
    digits = 0 if error > 0.1 else 1
    return f"{1000 * error:.{digits}f}"
