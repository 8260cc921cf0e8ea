"""What `delan fit` tells: each step on the way, how it ended as sentences and tables, and all of it for a script."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import typer

from ..joints import Recording
from ..learning.evaluate import Scores
from ..learning.fit_result import FitResult
from .progress import Watcher, watching

STEPS = {
    "preparation": "choosing cut-off and delay",
    "chain": "training the chain",
    "delan": "training the DeLaN network",
    "feedforward": "training the feed-forward network",
    "residual": "training a network beside the URDF's arm",
    "beyond": "finding how sure it is and what more data would bring",
}


def say(step: str) -> None:
    """One line on stderr."""
    typer.echo(f"delan: {step}", err=True)


def tell_excerpt(recording: Recording, name: str) -> None:
    """One line if the log was too large to be used as a whole."""
    if recording.excerpt is not None:
        say(f"{name} is larger than the memory it may take (--memory); used is {recording.excerpt.told}")


@contextmanager
def watching_steps() -> Iterator[Callable[[str], Watcher]]:
    """Who watches each step of a fit."""
    with watching(say) as begun:
        yield lambda name: begun(STEPS.get(name, name))


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, so that the best model so far can be kept; the second one interrupts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("stopping; the best model so far will be kept (Ctrl-C again: stop at once)")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def doubt(nmse: float) -> None:
    """Say it when a model explains less than the mean torque of a motion does."""
    if not nmse < 1:
        told = "the model explains this motion no better than its mean torque"
        say(f"{told}; check the units (rad, s, N m), the signs and the order of the joints")


def tell_training(result: FitResult) -> None:
    """How a single model was trained, in sentences."""
    for event in result.events:
        typer.echo(event)
    for step in result.selection:
        typer.echo(f"Friction: {step.term}: nMSE on motion left out {step.validation:.2e} ({step.told})")
    method = "Adam" if result.optimizer == "adam" else "Levenberg–Marquardt"
    typer.echo(f"Trained by {method} in {result.seconds:.1f} s ({result.reason}).")
    if len(result.members) > 1:
        low, middle, high = result.spread.values()
        told = f"{low:.2e} … {middle:.2e} … {high:.2e} (min, median, max)"
        typer.echo(f"Validation nMSE of {len(result.members)} seeds: {told}; kept the best.")


def making(result: FitResult | None, validation: Scores) -> dict[str, Any]:
    """How a model was made, for a script; without a result it was identified."""
    if result is None:
        error = validation.torque.nmse_mean
        return {
            "optimizer": "least squares",
            "reason": "the links of the URDF and friction are linear in the torque",
            "spread": dict.fromkeys(("min", "median", "max"), error),
            "events": [],
            "friction": [],
            "doubtful": False,
        }
    return {
        "optimizer": result.optimizer,
        "reason": result.reason,
        "spread": result.spread,
        "events": list(result.events),
        "friction": [asdict(step) for step in result.selection],
        "doubtful": result.misfit is not None and result.misfit.doubtful,
    }


def plain(value: Any) -> Any:
    """For JSON: numbers that are none as null, tuples as lists."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
