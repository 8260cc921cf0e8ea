"""The options by which every command that reads logs is told of their columns, units, signs and
joints.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SettingsError

if TYPE_CHECKING:
    from ..logs.options import LogOptions

LOG_FORMS = "CSV, Parquet, npz, MAT, HDF5 or a ROS 2 bag"

LogsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOG", help=f"{LOG_FORMS}; several files or a folder are several trajectories."
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="Q=COLUMNS",
        help="Columns of t, q, qd, qdd, tau, current or trajectory: --map 'q=joint_pos_{}', --map 'tau=column{9-15}', "
        "--map q=a,b,c or the name of an array. May be repeated.",
    ),
]
DegreesOption = Annotated[
    bool, typer.Option("--degrees", help="Positions and their rates are in degrees.")
]
GainOption = Annotated[
    str | None,
    typer.Option(
        metavar="K,…", help="Torque of a current in N m/A, one for all joints or one each."
    ),
]
FlipOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="Q:JOINTS",
        help="Turn signs: tau, tau:2,5 or q:1 (with its rates). May be repeated.",
    ),
]
JointsOption = Annotated[
    str | None,
    typer.Option(
        metavar="J,…",
        help="Joints to keep, in this order, by name or by number in the log, from 0.",
    ),
]
TimeScaleOption = Annotated[
    float | None,
    typer.Option(metavar="S", help="Seconds in one unit of the log's time; default: found."),
]
RateOption = Annotated[
    float | None, typer.Option(metavar="HZ", help="Samples a second, for a log without time.")
]
MemoryOption = Annotated[
    float,
    typer.Option(
        metavar="MB",
        help="Memory for the log's numbers. Of a larger log evenly spaced stretches are used, and you are told.",
    ),
]
MEMORY = 200.0
"""What the numbers of a log take at most, unless another size is typed [MB]."""

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "map_": (MapOption, None),
    "degrees": (DegreesOption, False),
    "gain": (GainOption, None),
    "flip": (FlipOption, None),
    "joints": (JointsOption, None),
    "time_scale": (TimeScaleOption, None),
    "rate": (RateOption, None),
    "memory": (MemoryOption, MEMORY),
}


def takes_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `LogOptions`; it receives them read, as its keyword
    `log_options`.
    """
    own = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in _OPTIONS.items()
    ]
    kept = [parameter for name, parameter in own.parameters.items() if name != "log_options"]

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in _OPTIONS}
        command(*args, **kwargs, log_options=read_options(**given))

    run.__signature__ = own.replace(parameters=[*kept, *added])  # pyright: ignore[reportAttributeAccessIssue]
    return run


def read_options(
    *,
    map_: Sequence[str] | None = None,
    degrees: bool = False,
    gain: str | None = None,
    flip: Sequence[str] | None = None,
    joints: str | None = None,
    time_scale: float | None = None,
    rate: float | None = None,
    memory: float | None = None,
) -> "LogOptions":
    """The `LogOptions` that were typed."""
    from ..logs.options import LogOptions

    typed: dict[str, Any] = {
        "map": dict(_pair("--map", text, "=", "q=joint_pos_{}") for text in map_ or ()),
        "degrees": degrees,
        "gain": None if gain is None else _gains(gain),
        "flip": dict(_flip(text) for text in flip or ()),
        "joints": None if joints is None else _joints(joints),
        "time_scale": time_scale,
        "rate": rate,
        "memory": memory,
    }
    try:
        return LogOptions(**typed)
    except SettingsError as error:
        field, sign, problem = re.split("([: ])", str(error), maxsplit=1)
        raise SettingsError(
            f"--{field.replace('_', '-')}{sign}{problem}" if field in typed else str(error)
        ) from None


def name_of(logs: Sequence[Path]) -> str:
    """What to call logs in a table: the name of the only one, or of the first and how many follow."""
    return logs[0].name if len(logs) == 1 else f"{logs[0].name} and {len(logs) - 1} more"


def _pair(option: str, text: str, sign: str, example: str) -> tuple[str, str]:
    left, found, right = text.partition(sign)
    if not found:
        raise SettingsError(f"{option} is written as {example}, got {text!r}")
    return left.strip(), right.strip()


def _gains(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"--gain is one number or one a joint, such as 0.11,0.11,0.07, got {text!r}"
        ) from None


def _flip(text: str) -> tuple[str, Any]:
    if ":" not in text:
        return text.strip(), "all"
    quantity, joints = _pair("--flip", text, ":", "tau:2,5")
    return quantity, _joints(joints)


def _joints(text: str) -> tuple[int | str, ...]:
    parts = [part.strip() for part in text.split(",")]
    return tuple(int(part) if part.isascii() and part.isdigit() else part for part in parts)
