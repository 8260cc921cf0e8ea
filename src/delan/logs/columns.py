"""Columns of a sheet: which of them are time, positions, velocities and torques.

Torques are logged, or follow from currents or from what the drives were told: a drive with a
position loop applies τ = kp (q_des − q) + kd (q̇_des − q̇) + τ_des.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ..errors import DataError, SettingsError
from ..joints import MOST_JOINTS, SHAPE_REMEDY, Joints, TorqueSource
from .column_finder import (
    ColumnFinder,
    Group,
    JointKey,
    listed,
    refuse_without,
    refuse_without_joint,
    refuse_without_joints,
)
from .column_names import measures
from .formats import Sheet
from .options import COMMANDS, REQUIRED, LogOptions, Numbers
from .recording_file import joints_of


@dataclass(frozen=True)
class TorqueColumns:
    """Where the torques come from.

    Attributes:
        source: logged, currents or commands.
        kp, kd: gains of the drives; None if they are columns of the log, or not needed.
    """

    source: TorqueSource
    kp: Numbers | None = None
    kd: Numbers | None = None

    def needed(self, groups: Mapping[str, Group]) -> dict[str, Group]:
        """Return the groups to read: currents as torques, and commands only if they are used."""
        needed = dict(groups)
        current = needed.pop("current", None)
        if self.source == "currents" and current is not None:
            needed["tau"] = current
        unused = set(COMMANDS)
        if self.source == "commands":
            needed.pop("tau", None)
            unused = {name for name in ("kp", "kd") if getattr(self, name) is not None}
        for name in unused:
            needed.pop(name, None)
        return needed

    def require(self, sheet: Sheet, places: Mapping[str, object]) -> None:
        """Refuse commands whose damping needs velocities that the log has not."""
        damped = self.kd is None or any(self.kd)
        if self.source == "commands" and damped and "qd" not in places:
            problem = (
                "has no measured velocities, which kd (qd_des − qd) needs; map them by --map "
                "'qd=NAME{}', or give --kd 0 if the drives have no damping"
            )
            raise DataError(sheet.source, problem, column="qd")


def torque_source(sheet: Sheet, options: LogOptions, groups: Mapping[str, Group]) -> TorqueColumns:
    """Return where the torques come from; refuse a log that has none.

    A gain makes torques of currents unless a column is mapped to the torque; gains of the drives
    make torques of commands. Without these options, logged torques come first.
    """
    by_hand = bool(options.patterns("tau"))
    if options.kp is not None and "q_des" in groups:
        return _commands(sheet, options, groups)
    unmapped = not by_hand or bool(options.patterns("current"))
    if "current" in groups and options.gain is not None and unmapped:
        return TorqueColumns("currents")
    if "tau" in groups:
        return TorqueColumns("logged")
    if "current" in groups:
        currents = listed(groups["current"].columns.values())
        problem = (
            f"holds currents ({currents}) and no torques; "
            "give the torque per current in N m/A, such as --gain 0.11"
        )
        raise DataError(sheet.source, problem)
    if "q_des" not in groups:
        refuse_without(sheet, "tau")
    return _commands(sheet, options, groups)


def _commands(sheet: Sheet, options: LogOptions, groups: Mapping[str, Group]) -> TorqueColumns:
    """Return the gains of the drives: as given, else those that the log has."""
    gains: dict[str, Numbers | None] = {}
    for name in ("kp", "kd"):
        given = getattr(options, name)
        if given is None:
            given = _constant(sheet, name)
        if given is None and name not in groups:
            _refuse_without_gain(sheet, name, groups)
        gains[name] = given
    return TorqueColumns("commands", gains["kp"], gains["kd"])


def _constant(sheet: Sheet, name: str) -> Numbers | None:
    for key, numbers in sheet.constants.items():
        if key == name or measures(key.rpartition("/")[2]) == name:
            return numbers
    return None


def _refuse_without_gain(sheet: Sheet, name: str, groups: Mapping[str, Group]) -> NoReturn:
    wanted = listed(groups["q_des"].columns.values())
    has = f"holds commands ({wanted}) and no torques"
    if name == "kd":
        has += "; of the gains it has kp and no kd, as the firmware of a servo has one, which is "
        has += "no torque"
    problem = (
        f"{has}; the torque is kp (q_des − q) + kd (qd_des − qd) + tau_des: give --kp in N m/rad "
        "and --kd in N m s/rad if the drives have such gains, or record torques or currents"
    )
    raise DataError(sheet.source, problem, column="tau")


@dataclass(frozen=True)
class ColumnLayout:
    """Where each quantity of a recording lies in a sheet.

    Attributes:
        time, trajectory: their columns, None if there are none.
        unit: unit of the time in seconds, if known.
        places: columns of each quantity, one per joint, or one array of all joints.
        torque: where the torques come from.
        joints: joints of the log.
    """

    time: str | None
    unit: float | None
    trajectory: str | None
    places: Mapping[str, tuple[str, ...]]
    torque: TorqueColumns
    joints: Joints = field(repr=False)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names of all columns to read, each once."""
        names: dict[str | None, None] = {self.time: None, self.trajectory: None}
        for columns in self.places.values():
            names.update(dict.fromkeys(columns))
        return tuple(filter(None, names))


def find_columns(sheet: Sheet, options: LogOptions) -> ColumnLayout:
    """Return the layout of a sheet; refuse one in which columns are missing or ambiguous."""
    finder = ColumnFinder(sheet, options)
    groups = finder.groups()
    if "q" not in groups and {"q_motor", "tau_link"} <= groups.keys():
        groups["q"] = groups["q_motor"]  # the sensors tell where the links are
    if "q" not in groups:
        refuse_without_joints(sheet)
    time, unit = finder.time()
    torque = torque_source(sheet, options, groups)
    groups = torque.needed(groups)
    joints = _joints(sheet, options, groups)
    places = _places(sheet, groups, joints)
    torque.require(sheet, places)
    layout = ColumnLayout(
        time=time,
        unit=unit,
        trajectory=finder.single("trajectory"),
        places=places,
        torque=torque,
        joints=joints,
    )
    _require_shapes(sheet, layout)
    return _in_order(sheet, layout, options.exchanged)


def _in_order(sheet: Sheet, layout: ColumnLayout, exchanged: Mapping[str, str]) -> ColumnLayout:
    """Return the layout with quantities at the columns that have each other's names."""
    places = dict(layout.places)
    for quantity, source in exchanged.items():
        if source not in layout.places:
            problem = (
                f"has no {source}, whose columns are to be read as {quantity}; "
                "give a log with the same columns"
            )
            raise DataError(sheet.source, problem)
        places[quantity] = layout.places[source]
    return replace(layout, places=places)


def _joints(sheet: Sheet, options: LogOptions, groups: Mapping[str, Group]) -> Joints:
    """Return the joints as named by the file or by the columns, else numbered."""
    group = groups["q"]
    if group.style == "named":
        names = tuple(map(str, group.columns))
        # Of the named joints only those asked for need columns of all quantities.
        if options.joints and set(options.joints) <= set(names):
            names = tuple(filter(options.joints.__contains__, names))
        _require_few(sheet, len(names))
        try:
            return Joints(names, ("revolute",) * len(names))
        except SettingsError as error:
            raise DataError(sheet.source, str(error)) from None
    if group.style == "whole":
        dof = _width(sheet, group.columns[0])
    elif group.style == "listed":
        dof = len(group.columns)
    else:
        dof = len(_joint_numbers(groups))
    named = joints_of(sheet, dof) or sheet.joints
    if named is not None and named.dof == dof:
        return named
    _require_few(sheet, dof)
    return Joints.revolute(dof)


def _require_few(sheet: Sheet, dof: int) -> None:
    """Refuse more joints than any robot has: the axes of an array were confused."""
    if dof > MOST_JOINTS:
        problem = f"holds {dof} joints, more than any robot has; map its columns by --map"
        raise DataError(sheet.source, problem)


def _width(sheet: Sheet, name: str) -> int:
    shape = sheet.fields[name].shape
    if len(shape) == 1 and sheet.loose:
        return 1
    if len(shape) != 2 or shape[1] == 0:
        problem = f"expected shape (time, dof) with at least one joint, got {shape}"
        raise DataError(sheet.source, problem, column=name)
    return shape[1]


def _joint_numbers(groups: Mapping[str, Group]) -> range:
    """Return the range of the joint numbers in column names, which begin with 0 or 1."""
    numbers: list[int] = []
    for group in groups.values():
        if group.style == "numbered":
            numbers += map(int, group.columns)
    return range(min([1, *numbers]), max(numbers, default=0) + 1)


def _places(
    sheet: Sheet, groups: Mapping[str, Group], joints: Joints
) -> dict[str, tuple[str, ...]]:
    first = _joint_numbers(groups).start
    places = {}
    for quantity, group in groups.items():
        needed = quantity in REQUIRED or quantity == "q_des"
        if not needed and not _belongs(sheet, group, groups["q"], joints):
            continue
        if group.style == "listed" and len(group.columns) != joints.dof:
            problem = (
                f"--map gives {len(group.columns)} columns for {joints.dof} joints; "
                "give one per joint"
            )
            raise DataError(sheet.source, problem, column=quantity)
        keys: Iterable[JointKey] = group.columns
        if group.style == "named":
            keys = joints.names
        elif group.style == "numbered":
            keys = range(first, first + joints.dof)
        for key in keys:
            if key not in group.columns:
                refuse_without_joint(sheet, quantity, group.columns, key)
        places[quantity] = tuple(map(group.columns.__getitem__, keys))
    return places


def _belongs(sheet: Sheet, group: Group, q: Group, joints: Joints) -> bool:
    """Return whether an optional quantity is one of these joints, not of something else."""
    if group.style == "named":
        return q.style == "named" and not set(group.columns).isdisjoint(joints.names)
    if group.style == "whole" and len(sheet.fields[group.columns[0]].shape) == 1:
        return joints.dof == 1 or not sheet.loose
    return True


def _require_shapes(sheet: Sheet, layout: ColumnLayout) -> None:
    """Refuse arrays without one row per time stamp and one column per joint, before reading."""
    time = layout.time
    trajectory = layout.trajectory
    rows = sheet.fields[time or layout.places["q"][0]].shape[0]
    if time is not None and (len(sheet.fields[time].shape) != 1 or rows == 0):
        shape = sheet.fields[time].shape
        problem = f"expected at least one time stamp in shape (time,), got {shape}"
        raise DataError(sheet.source, problem, column=time)
    if trajectory is not None and sheet.fields[trajectory].shape != (rows,):
        shape = sheet.fields[trajectory].shape
        problem = f"expected one label per time stamp, shape {(rows,)}, got {shape}"
        raise DataError(sheet.source, problem, column=trajectory)
    dof = layout.joints.dof
    for names in layout.places.values():
        for name in names:
            shape = sheet.fields[name].shape
            expected = ("(time, dof)", (rows, dof))
            if len(names) > 1 or (dof == 1 and len(shape) == 1 and sheet.loose):
                expected = ("(time,)", (rows,))
            # Commands often lack the last sample.
            by_one = layout.torque.source == "commands" and abs(shape[0] - rows) == 1
            if shape != expected[1] and not (by_one and shape[1:] == expected[1][1:]):
                axes = f"{expected[0]} = {expected[1]}"
                problem = f"expected shape {axes}, got {shape}; {SHAPE_REMEDY}"
                raise DataError(sheet.source, problem, column=name)
