"""Which columns of a sheet are time, position, velocity, torque: as mapped, else by our names, else by common words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import DataError
from ..joints import COMPONENTS, SHAPE_REMEDY, Joints
from .column_names import ColumnName, parse_name, says_degrees
from .column_questions import ask_for, ask_for_joint, ask_for_joints, ask_which, listed, refuse_pattern
from .formats.sheet import Sheet
from .log_options import QUANTITIES, REQUIRED, LogOptions

_MOST_JOINTS = 500


@dataclass(frozen=True)
class Group:
    """The columns of one quantity.

    Attributes:
        style: `whole` for one column or array of all joints, `numbered` or `named` for one column a joint,
            `listed` for columns that were given in their order.
        columns: the name of each column by its joint: its number, its name, or its place.
        degrees: whether the names say degrees.
    """

    style: str
    columns: Mapping[int | str, str]
    degrees: bool = False


@dataclass(frozen=True)
class Layout:
    """Where each quantity of a recording lies in a sheet.

    Attributes:
        time, trajectory: their columns; None where there is none.
        unit: seconds in one unit of the time, if known.
        places: for each quantity the columns that hold it, one a joint, or one array of all.
        degrees: the quantities whose names say degrees.
        joints: who the joints of the log are.
    """

    time: str | None
    unit: float | None
    trajectory: str | None
    places: Mapping[str, tuple[str, ...]]
    degrees: frozenset[str]
    joints: Joints = field(repr=False)

    @property
    def wanted(self) -> tuple[str, ...]:
        """All columns to read, each once."""
        single = [name for name in (self.time, self.trajectory) if name is not None]
        return tuple(dict.fromkeys([*single, *(name for names in self.places.values() for name in names)]))


def find_columns(sheet: Sheet, options: LogOptions) -> Layout:
    """The layout of a sheet; what is missing or could be two things is asked for, with the line to write."""
    parsed = {name: said for name in sheet.fields if (said := parse_name(name)) is not None}
    groups = {}
    for quantity in (*QUANTITIES, "current"):
        group = _group(sheet, options, parsed, quantity)
        if group is not None:
            groups[quantity] = group
    groups = _torque_or_current(sheet, options, groups)
    if "q" not in groups:
        ask_for_joints(sheet)
    time, unit = _time(sheet, options, parsed)
    if "tau" not in groups:
        ask_for(sheet, "tau")
    joints = _joints(sheet, options, groups)
    if joints.dof > _MOST_JOINTS:
        problem = f"holds {joints.dof} joints, more than any robot has; say which columns are which by --map"
        raise DataError(sheet.source, problem)
    places = _places(sheet, groups, joints)
    trajectory = _single(sheet, options, parsed, "trajectory")
    _require_shapes(sheet, time, trajectory, places, joints.dof)
    degrees = frozenset(name for name, group in groups.items() if group.degrees)
    return Layout(time, unit, trajectory, places, degrees, joints)


def _group(sheet: Sheet, options: LogOptions, parsed: Mapping[str, ColumnName], quantity: str) -> Group | None:
    patterns = options.patterns(quantity)
    if patterns is not None:
        if not patterns:
            return None
        group = _mapped(sheet, quantity, patterns)
        return replace(group, degrees=any(says_degrees(name) for name in group.columns.values()))
    own = _own(sheet, quantity)
    if own is not None or quantity in COMPONENTS:
        return own
    families: dict[tuple[str, str], dict[int | str, str]] = {}
    for name, said in parsed.items():
        if said.quantity != quantity or len(sheet.fields[name].shape) > 2:
            continue
        wide = len(sheet.fields[name].shape) == 2
        if wide and said.joint is not None:
            continue  # an array of all joints whose name says more than the quantity is something else
        style = "whole" if said.joint is None else "numbered" if isinstance(said.joint, int) else "named"
        same = families.setdefault((style, said.family), {})
        if (0 if said.joint is None else said.joint) in same:
            ask_which(sheet, quantity, [*same.values(), name])
        same[0 if said.joint is None else said.joint] = name
    if len(families) > 1:
        ask_which(sheet, quantity, [name for columns in families.values() for name in columns.values()])
    for (style, _), columns in families.items():
        return Group(style, columns, any(parsed[name].degrees for name in columns.values()))
    return None


def _own(sheet: Sheet, quantity: str) -> Group | None:
    """The columns that bear our own names."""
    if quantity in sheet.fields and (sheet.kind == "arrays" or len(sheet.fields[quantity].shape) == 2):
        return Group("whole", {0: quantity})
    pattern = re.compile(rf"{quantity}(\d{{1,3}})")
    columns: dict[int | str, str] = {int(m[1]): name for name in sheet.fields if (m := pattern.fullmatch(name))}
    return Group("numbered", columns) if columns else None


def _mapped(sheet: Sheet, quantity: str, patterns: Sequence[str]) -> Group:
    if len(patterns) == 1 and "{}" not in patterns[0]:
        return Group("whole", {0: _existing(sheet, quantity, patterns[0])})
    if len(patterns) > 1:
        return Group("listed", {i: _existing(sheet, quantity, name) for i, name in enumerate(patterns)})
    before, after = (re.escape(part) for part in patterns[0].split("{}"))
    found = {name: match[1] for name in sheet.fields if (match := re.fullmatch(f"{before}(.+?){after}", name))}
    if not found:
        refuse_pattern(sheet, quantity, patterns[0])
    if all(joint.isascii() and joint.isdigit() and len(joint) < 4 for joint in found.values()):
        columns: dict[int | str, str] = {int(joint): name for name, joint in found.items()}
        if len(columns) < len(found):
            problem = f"--map {quantity}={patterns[0]} means a joint twice in {listed(found)}"
            raise DataError(sheet.source, f"{problem}; list one column a joint, such as --map {quantity}=A,B,C")
        return Group("numbered", columns)
    return Group("named", {joint: name for name, joint in found.items()})


def _existing(sheet: Sheet, quantity: str, name: str) -> str:
    if name not in sheet.fields:
        refuse_pattern(sheet, quantity, name)
    return name


def _torque_or_current(sheet: Sheet, options: LogOptions, groups: dict[str, Group]) -> dict[str, Group]:
    """With a gain the torque comes from the current where one is logged and no other column is mapped to it; without,
    a current is no torque."""
    current = groups.pop("current", None)
    chosen = options.patterns("tau") is None or bool(options.patterns("current"))
    if options.gain is not None and current is not None and chosen:
        return {**groups, "tau": current}
    if current is not None and "tau" not in groups:
        problem = f"holds currents ({listed(current.columns.values())}) and no torques"
        raise DataError(sheet.source, f"{problem}; give the torque of a current in N m/A, such as --gain 0.11")
    return groups


def _time(sheet: Sheet, options: LogOptions, parsed: Mapping[str, ColumnName]) -> tuple[str | None, float | None]:
    if options.rate is not None:
        return None, None
    name = _single(sheet, options, parsed, "t")
    if name is None:
        ask_for(sheet, "t")
    said = parsed.get(name)
    known = sheet.fields[name].unit
    return name, (said.unit if known is None and said is not None and said.quantity == "t" else known)


def _single(sheet: Sheet, options: LogOptions, parsed: Mapping[str, ColumnName], quantity: str) -> str | None:
    """The one column of a quantity that is the same for all joints."""
    patterns = options.patterns(quantity)
    if patterns is not None:
        if len(patterns) > 1:
            raise DataError(sheet.source, f"{quantity} is one column, --map gives {len(patterns)}: {listed(patterns)}")
        return _existing(sheet, quantity, patterns[0]) if patterns else None
    if quantity in sheet.fields:
        return quantity
    found = [name for name, said in parsed.items() if said.quantity == quantity and len(sheet.fields[name].shape) == 1]
    if len(found) > 1:
        ask_which(sheet, quantity, found)
    return found[0] if found else None


def _joints(sheet: Sheet, options: LogOptions, groups: dict[str, Group]) -> Joints:
    """Who the joints are: told by the file, by the columns, or by their number."""
    group = groups["q"]
    if group.style == "named":
        names = [str(joint) for joint in group.columns]
        asked = [joint for joint in options.joints or () if isinstance(joint, str)]
        if asked and len(asked) == len(options.joints or ()) and set(asked) <= set(names):
            names = [name for name in names if name in asked]
        return Joints(tuple(names), ("revolute",) * len(names))
    if group.style == "whole":
        shape = sheet.fields[group.columns[0]].shape
        single = len(shape) == 1 and sheet.loose
        if not single and (len(shape) != 2 or shape[1] == 0):
            problem = f"expected shape (time, dof) with at least one joint, got {shape}"
            raise DataError(sheet.source, problem, column=group.columns[0])
        dof = 1 if single else shape[-1]
    elif group.style == "listed":
        dof = len(group.columns)
    else:
        dof = max(_numbers(groups)) + 1 - _base(groups)
    return sheet.joints if sheet.joints is not None and sheet.joints.dof == dof else Joints.revolute(dof)


def _base(groups: Mapping[str, Group]) -> int:
    """Whether the numbers of the joints begin with 0 or 1."""
    return min([1, *_numbers(groups)])


def _numbers(groups: Mapping[str, Group]) -> list[int]:
    """The numbers of joints in the names of columns."""
    return [n for each in groups.values() if each.style == "numbered" for n in each.columns if isinstance(n, int)]


def _places(sheet: Sheet, groups: Mapping[str, Group], joints: Joints) -> dict[str, tuple[str, ...]]:
    base = _base(groups)
    places = {}
    for quantity, group in groups.items():
        if quantity not in REQUIRED and not _of_these(sheet, group, groups["q"], joints):
            continue
        if group.style in ("whole", "listed"):
            places[quantity] = tuple(group.columns.values())
            if group.style == "listed" and len(group.columns) != joints.dof:
                problem = f"--map gives {len(group.columns)} columns for {joints.dof} joints"
                raise DataError(sheet.source, f"{problem}; give one a joint", column=quantity)
            continue
        keys = list(joints.names) if group.style == "named" else [base + i for i in range(joints.dof)]
        for key in keys:
            if key not in group.columns:
                ask_for_joint(sheet, quantity, group.columns, key)
        places[quantity] = tuple(group.columns[key] for key in keys)
    return places


def _of_these(sheet: Sheet, group: Group, q: Group, joints: Joints) -> bool:
    """Whether an optional quantity is one of these joints at all, not of something beside them."""
    if group.style == "named":
        return q.style == "named" and bool(set(group.columns) & set(joints.names))
    if group.style == "whole" and len(sheet.fields[group.columns[0]].shape) == 1:
        return joints.dof == 1 or not sheet.loose
    return True


def _require_shapes(
    sheet: Sheet, time: str | None, trajectory: str | None, places: Mapping[str, tuple[str, ...]], dof: int
) -> None:
    """One row a time stamp, one column a joint, as far as the file tells before it is read."""
    fields = sheet.fields
    first = places["q"][0] if time is None else time
    rows = fields[first].shape[0]
    if time is not None and (len(fields[time].shape) != 1 or rows == 0):
        problem = f"expected at least one time stamp in shape (time,), got {fields[time].shape}"
        raise DataError(sheet.source, problem, column=time)
    if trajectory is not None and fields[trajectory].shape != (rows,):
        problem = f"expected one label a time stamp, shape {(rows,)}, got {fields[trajectory].shape}"
        raise DataError(sheet.source, problem, column=trajectory)
    for names in places.values():
        for name in names:
            shape = fields[name].shape
            single = len(names) > 1 or (dof == 1 and len(shape) == 1 and sheet.loose)
            wanted = (rows,) if single else (rows, dof)
            if shape != wanted:
                what = "(time,)" if len(wanted) == 1 else "(time, dof)"
                problem = f"expected shape {what} = {wanted}, got {shape}; {SHAPE_REMEDY}"
                raise DataError(sheet.source, problem, column=name)
