"""The logs of a command: options for their columns, units, signs and joints, and how they are read.

A command reads a log by its options alone, for a model file, or with the URDF of the robot.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import ModelError, ModelFileError, SettingsError
from ..text_file import TextFileError, read_text
from .app import option, say, say_if_excerpt, takes

if TYPE_CHECKING:
    from ..joints import Dataset, Joints, Recording
    from ..logs.doctor.checked_log import DescribedRobot
    from ..logs.options import LogOptions
    from ..logs.preparation import PreparationSettings
    from ..storage import StoredModel

LOG_FORMS = "CSV, JSON, Parquet, npz, MAT, HDF5, torch, ROS 2 bag or LeRobot data set"
# What a number of an option may be multiplied by.
_UNITS = {None: 1.0, "pi": math.pi, "deg": math.pi / 180}
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
        help="Columns of t, q, qd, qdd, tau, current, trajectory, of motors behind elastic joints "
        "(q_motor, qd_motor), of torque sensors in them (tau_link) or the commands q_des, qd_des, "
        "tau_des, kp, kd: --map 'q=joint_pos_{}', --map 'tau=column{9-15}', --map q=a,b,c, the "
        "name of an array, or 'q=link.pos[0-2],motor.pos[3-5]'. May be repeated.",
    )
    join: list[str] | None = option(
        None,
        metavar="FILE",
        help="File whose columns lie beside those of LOG, row by row, or by time if both have "
        "times. {} stands for what its name shares with LOG's. May be repeated.",
    )
    join_by: Literal["auto", "row", "time"] = option(
        "auto", help="How the rows of joined files belong together."
    )
    columns: int | None = option(
        None,
        metavar="N",
        help="Numbers in a row of text without a header whose rows are spread over several lines.",
    )
    degrees: bool = option(False, "--degrees", help="Positions and their rates are in degrees.")
    scale: list[str] | None = option(
        None,
        metavar="Q:K,…",
        help="Factors of q, qd, qdd, tau, q_des, qd_des or tau_des, such as q:2pi/4096 or "
        "q:deg,deg,1: one for all joints, or one for each. May be repeated.",
    )
    offset: list[str] | None = option(
        None,
        metavar="Q:X,…",
        help="What is added to such a quantity, after its factors. May be repeated.",
    )
    gain: str | None = option(
        None,
        metavar="K,…",
        help="Torque per current in N m/A: one number for all joints, or one for each.",
    )
    kp: str | None = option(
        None,
        metavar="K,…",
        help="Gains of position loops in N m/rad: the torque is kp (q_des − q) + kd (qd_des − qd) "
        "+ tau_des.",
    )
    kd: str | None = option(
        None, metavar="K,…", help="Gains of the velocities in these loops, in N m s/rad."
    )
    stiffness: str | None = option(
        None,
        metavar="K,…",
        help="Stiffness in N m/rad of the torque sensors of tau_link, whose deflection gives "
        "positions of motors.",
    )
    transmission: str | None = option(
        None,
        metavar="T",
        help="The log is of motors, q_motor = T q_joint: gear ratios 50,50,80, a matrix "
        "'50,0;50,80', or a file with one.",
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
    from_: float | None = option(
        None, "--from", metavar="S", help="First row to use, in seconds since that of its file."
    )
    to: float | None = option(
        None, metavar="S", help="First row not to use any more, in seconds since the first row."
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
    for name in ("join_by", "columns", "degrees", "time_scale", "rate", "memory"):
        given[name] = getattr(typed, name)
    given |= {"start": typed.from_, "end": typed.to, "join": tuple(typed.join or ())}
    for name in ("gain", "kp", "kd", "stiffness"):
        if getattr(typed, name) is not None:
            given[name] = numbers_of(f"--{name}", getattr(typed, name))
    for name in ("scale", "offset"):
        texts = getattr(typed, name) or ()
        given[name] = dict(_factors(f"--{name}", text) for text in texts)
    if typed.transmission is not None:
        given["transmission"] = _transmission(typed.transmission)
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


def numbers_of(option: str, text: str) -> tuple[float, ...]:
    """Return the numbers of an option, one for all joints or one each."""
    try:
        return tuple(map(_number, text.split(",")))
    except ValueError:
        raise SettingsError(
            f"{option} is one number or one a joint, such as 0.11,0.11,0.07, got {text!r}"
        ) from None


def _number(text: str) -> float:
    """Return a number, or a quotient with pi and deg (π/180), such as 2pi/4096."""
    factors = []
    for part in text.strip().split("/"):
        match = re.fullmatch(r"([^a-z]*(?:e[+-]?\d+)?)\*?(pi|deg)?", part.strip())
        if match is None or not match[0]:
            raise ValueError(text)
        number = match[1] if match[1] not in ("", "-", "+") else f"{match[1]}1"
        factors.append(float(number) * _UNITS[match[2]])
    value = factors[0]
    for divisor in factors[1:]:
        if not divisor:
            raise ValueError(text)
        value /= divisor
    return value


def _factors(option: str, text: str) -> tuple[str, tuple[float, ...]]:
    quantity, numbers = _pair(option, text, ":", "q:0.001,0.001,0.002")
    return quantity, numbers_of(option, numbers)


def _transmission(text: str) -> tuple[tuple[float, ...], ...]:
    """Read gear ratios or a matrix, as typed or in a file."""
    path = Path(text)
    rows = text.split(";")
    if not re.match(r"[\s\d+\-.]", text) or path.suffix in (".txt", ".csv"):
        try:
            lines = read_text(path).splitlines()
        except TextFileError:
            raise SettingsError(
                f"--transmission: there is no readable file {text}; give a file with one row of "
                "numbers per motor, or the matrix itself, such as '50,0;50,80'"
            ) from None
        rows = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    matrix = []
    for row in rows:
        cells = re.split(r"[,;\s]+", row.strip().strip(",;"))
        matrix.append(numbers_of("--transmission", ",".join(cells)))
    return tuple(matrix)


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
    first = logs[0].name or logs[0].resolve().name  # that of "." is empty
    if len(logs) == 1:
        return first
    return f"{first} and {len(logs) - 1} more"


def read_for_model(
    model: Path, stored: "StoredModel", logs: Sequence[Path], options: "LogOptions"
) -> tuple["Recording", "Dataset"]:
    """Read logs to judge the model of a file; also prepared as its own log was.

    Accelerations that are in the log are used as they are. Options of the log that the model was
    learned from count where none are given, none lie beside the log, and delan did not write it.
    """
    from ..logs.preparation import PreparationSettings, prepare
    from ..logs.reading import read_log

    options = remembered(model, stored, logs, options)
    recording = with_kinds_of(stored.model.joints, read_log(list(logs), options))
    say_if_excerpt(recording, name_of(logs))
    settings = PreparationSettings()
    if recording.qdd is None:
        settings = _preparation_of(model, stored.header)
    return recording, prepare(recording, settings)


def remembered(
    model: Path, stored: "StoredModel", logs: Sequence[Path], options: "LogOptions"
) -> "LogOptions":
    """Return the options of logs for a model: those given, or else those of its own log."""
    from ..logs.option_text import merged, options_of, plain_options, typed_options
    from ..logs.reading import says_how_to_read

    kept = stored.header.get("log_options")
    if not kept or plain_options(options) or says_how_to_read(logs):
        return options
    known = options_of(kept, f"{model}, log_options")
    say(f"{name_of(logs)} is read as the log of the fit was: {typed_options(known)}")
    return merged(known, options)


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
    import numpy as np

    from ..logs.doctor.checked_log import DescribedRobot
    from ..models.rigid_body import RigidBody
    from ..robots.robot_files import described_limits

    body = RigidBody.from_urdf(urdf)
    limits = described_limits(urdf, body.joints.names)
    torque = np.vectorize(body.inverse_dynamics, signature="(n),(n),(n)->(n)")
    return DescribedRobot(str(urdf), body.joints, torque, limits)
