"""The logs of a command: options for their columns, units, signs and joints, and how they are read.

A command reads a log by its options alone, for a model file, or with the URDF of the robot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ModelError, ModelFileError, SettingsError
from .app import option, say_if_excerpt, takes

if TYPE_CHECKING:
    from ..joints import Dataset, Joints, Recording
    from ..logs.doctor.checked_log import DescribedRobot
    from ..logs.options import LogOptions
    from ..logs.preparation import PreparationSettings
    from ..storage import StoredModel

LOG_FORMS = "CSV, Parquet, npz, MAT, HDF5 or a ROS 2 bag"
# Memory for the values of a log, unless another size is given [MB].
MEMORY = 200.0

LogsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOG", help=f"{LOG_FORMS}; several files or a folder are several trajectories."
    ),
]


@dataclass(frozen=True, kw_only=True)
class TypedLogOptions:
    """The options of a log as they are typed."""

    map_: list[str] | None = option(
        None,
        "--map",
        metavar="Q=COLUMNS",
        help="Columns of t, q, qd, qdd, tau, current or trajectory: --map 'q=joint_pos_{}', "
        "--map 'tau=column{9-15}', --map q=a,b,c or the name of an array. May be repeated.",
    )
    degrees: bool = option(False, "--degrees", help="Positions and their rates are in degrees.")
    gain: str | None = option(
        None,
        metavar="K,…",
        help="Torque per current in N m/A: one number for all joints, or one for each.",
    )
    flip: list[str] | None = option(
        None,
        metavar="Q:JOINTS",
        help="Reverse signs: tau, tau:2,5 or q:1 (with its rates). May be repeated.",
    )
    joints: str | None = option(
        None,
        metavar="J,…",
        help="Joints to keep, in this order, by name or by number in the log, from 0.",
    )
    sliding: str | None = option(
        None,
        metavar="J,…",
        help="Joints that slide (positions in metres), by name or by number among those kept.",
    )
    time_scale: float | None = option(
        None,
        metavar="S",
        help="Seconds in one unit of the log's time; default: recognised from the log.",
    )
    rate: float | None = option(
        None, metavar="HZ", help="Sampling rate, for a log without time stamps."
    )
    memory: float = option(
        MEMORY,
        metavar="MB",
        help="Memory for the log's numbers. A larger log is sampled in evenly "
        "spaced segments, and a message says so.",
    )


def read_options(**options: Any) -> "LogOptions":
    """Return the `LogOptions` that were typed."""
    from ..logs.options import LogOptions

    typed = TypedLogOptions(**options)
    given: dict[str, Any] = {
        "map": dict(_pair("--map", text, "=", "q=joint_pos_{}") for text in typed.map_ or ()),
        "flip": dict(_flip(text) for text in typed.flip or ()),
    }
    for name in ("degrees", "time_scale", "rate", "memory"):
        given[name] = getattr(typed, name)
    if typed.gain is not None:
        given["gain"] = _gains(typed.gain)
    if typed.joints is not None:
        given["joints"] = _joints(typed.joints)
    if typed.sliding is not None:
        given["sliding"] = _joints(typed.sliding)
    try:
        return LogOptions(**given)
    except SettingsError as error:
        if error.setting is None:
            raise
        option = "--" + error.setting.replace("_", "-")
        raise SettingsError(error.problem, setting=option) from None


# Gives a command these options; it receives the `LogOptions` as its keyword `log_options`.
takes_log_options = takes("log_options", TypedLogOptions, read_options)


def _pair(option: str, text: str, sign: str, example: str) -> tuple[str, str]:
    left, found, right = text.partition(sign)
    if not found:
        raise SettingsError(f"{option} is written as {example}, got {text!r}")
    return left.strip(), right.strip()


def _gains(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
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
    joints: list[int | str] = []
    for part in text.split(","):
        joint = part.strip()
        if joint.isascii() and joint.isdigit():
            joints.append(int(joint))
        else:
            joints.append(joint)
    return tuple(joints)


def name_of(logs: Sequence[Path]) -> str:
    """Return the name of the only log, or that of the first and how many follow."""
    if len(logs) == 1:
        return logs[0].name
    return f"{logs[0].name} and {len(logs) - 1} more"


def read_for_model(
    model: Path, stored: "StoredModel", logs: Sequence[Path], options: "LogOptions"
) -> tuple["Recording", "Dataset"]:
    """Read logs to judge the model of a file; also prepared as its own log was.

    Accelerations that are in the log are used as they are.
    """
    from ..logs.preparation import PreparationSettings, prepare
    from ..logs.reading import read_log

    recording = with_kinds_of(stored.model.joints, read_log(list(logs), options))
    say_if_excerpt(recording, name_of(logs))
    settings = PreparationSettings()
    if recording.qdd is None:
        settings = _preparation_of(model, stored.header)
    return recording, prepare(recording, settings)


def with_kinds_of(joints: "Joints", recording: "Recording") -> "Recording":
    """Return the recording with the kinds of a model's joints, if the log says nothing of kinds.

    All joints of such a log count as revolute.
    """
    silent = set(recording.joints.kinds) == {"revolute"} and recording.joints.dof == joints.dof
    if not silent:
        return recording
    return replace(recording, joints=replace(recording.joints, kinds=joints.kinds))


def _preparation_of(model: Path, header: Mapping[str, Any]) -> "PreparationSettings":
    """Return how the log of a model file was prepared; the usual way if the file does not say."""
    from ..logs.preparation import PreparationSettings
    from ..model_header import settings_of

    try:
        return settings_of(PreparationSettings, header.get("preparation") or {}, "preparation")
    except (ModelError, SettingsError) as error:
        problem = f"its preparation of logs is damaged ({error}); save it anew"
        raise ModelFileError(str(model), problem) from None


def described_robot(urdf: Path | None) -> "DescribedRobot | None":
    """Return the robot of a URDF, if given, for the check of a log."""
    if urdf is None:
        return None
    from xml.etree import ElementTree

    import numpy as np

    from ..logs.doctor.checked_log import DescribedRobot
    from ..models.rigid_body import RigidBody
    from ..robots.robot_files import urdf_limits

    body = RigidBody.from_urdf(urdf)
    try:
        limits = urdf_limits(ElementTree.parse(urdf).getroot(), body.joints.names)
    except SettingsError as error:
        raise SettingsError(f"{urdf}: {error}") from None
    torque = np.vectorize(body.inverse_dynamics, signature="(n),(n),(n)->(n)")
    return DescribedRobot(str(urdf), body.joints, torque, limits)
