"""Messages on stderr that several commands share, and values made ready for JSON."""

import math
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ..joints import Recording


def say(message: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"delan: {message}", err=True)


def say_if_excerpt(recording: "Recording", name: str) -> None:
    """Print one line if the log was too large to be used as a whole."""
    if recording.excerpt is not None:
        say(
            f"{name} is larger than the memory limit (--memory); used is {recording.excerpt.summary}"
        )


def say_if_useless(nmse: float) -> None:
    """Print one line if a model explains less than the mean torque of a motion does."""
    if not nmse < 1:
        say(
            "the model explains this motion no better than its mean torque; check the units (rad, "
            "s, N m), the signs and the order of the joints"
        )


def plain(value: Any) -> Any:
    """The value for JSON: non-finite numbers as null, tuples as lists."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
