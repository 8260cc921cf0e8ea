"""Columns of a sheet: which of them are time, positions, velocities and torques.

Columns are found as mapped by the user, else by the names of delan, else by common words. What is
missing or ambiguous is refused with the option that resolves it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn

from ..errors import DataError
from ..joints import COMPONENTS, SHAPE_REMEDY, Joints
from .column_names import ColumnName, parse_name, says_degrees
from .formats.sheet import Sheet
from .options import QUANTITIES, REQUIRED, LogOptions

# Names shown in an error.
_MOST_NAMES = 40

# More joints than any robot has: the axes of an array were confused.
_MOST_JOINTS = 500

JointKey = int | str


@dataclass(frozen=True)
class Group:
    """The columns of one quantity.

    Attributes:
        style: `whole` for one column or array of all joints, `numbered` or `named` for one column
            per joint, `listed` for columns that were given in their order.
        columns: name of each column by the number, name or position of its joint.
        degrees: whether the names say degrees.
    """

    style: Literal["whole", "numbered", "named", "listed"]
    columns: Mapping[JointKey, str]
    degrees: bool = False


@dataclass(frozen=True)
class ColumnLayout:
    """Where each quantity of a recording lies in a sheet.

    Attributes:
        time, trajectory: their columns, None if there are none.
        unit: unit of the time in seconds, if known.
        places: columns of each quantity, one per joint, or one array of all joints.
        degrees: quantities whose names say degrees.
        joints: joints of the log.
    """

    time: str | None
    unit: float | None
    trajectory: str | None
    places: Mapping[str, tuple[str, ...]]
    degrees: frozenset[str]
    joints: Joints = field(repr=False)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names of all columns to read, each once."""
        names = [name for name in (self.time, self.trajectory) if name is not None]
        for columns in self.places.values():
            names += columns
        return tuple(dict.fromkeys(names))


def find_columns(sheet: Sheet, options: LogOptions) -> ColumnLayout:
    """Return the layout of a sheet; refuse one in which columns are missing or ambiguous."""
    finder = _ColumnFinder(sheet, options)
    groups = finder.groups()
    if "q" not in groups:
        _refuse_without_joints(sheet)
    time, unit = finder.time()
    if "tau" not in groups:
        _refuse_without(sheet, "tau")
    joints = _joints(sheet, options, groups)
    if joints.dof > _MOST_JOINTS:
        problem = f"holds {joints.dof} joints, more than any robot has; map its columns by --map"
        raise DataError(sheet.source, problem)
    layout = ColumnLayout(
        time=time,
        unit=unit,
        trajectory=finder.single("trajectory"),
        places=_places(sheet, groups, joints),
        degrees=frozenset(name for name, group in groups.items() if group.degrees),
        joints=joints,
    )
    _require_shapes(sheet, layout)
    return layout


class _ColumnFinder:
    """Finds the columns of each quantity in a sheet."""

    def __init__(self, sheet: Sheet, options: LogOptions):
        self._sheet = sheet
        self._options = options
        self._parsed: dict[str, ColumnName] = {}
        for name in sheet.fields:
            parsed = parse_name(name)
            if parsed is not None:
                self._parsed[name] = parsed

    def groups(self) -> dict[str, Group]:
        """Return the columns of all quantities of joints; torques may be those of currents."""
        groups = {}
        for quantity in (*QUANTITIES, "current"):
            group = self._group(quantity)
            if group is not None:
                groups[quantity] = group
        current = groups.pop("current", None)
        if current is None:
            return groups
        # A gain makes torques of currents unless another column is mapped to the torque.
        options = self._options
        unmapped = options.patterns("tau") is None or bool(options.patterns("current"))
        if options.gain is not None and unmapped:
            groups["tau"] = current
        elif "tau" not in groups:
            problem = (
                f"holds currents ({_listed(current.columns.values())}) and no torques; "
                "give the torque per current in N m/A, such as --gain 0.11"
            )
            raise DataError(self._sheet.source, problem)
        return groups

    def time(self) -> tuple[str | None, float | None]:
        """Return the column of the time and its unit in seconds, as far as they are known."""
        if self._options.rate is not None:
            return None, None
        name = self.single("t")
        if name is None:
            _refuse_without(self._sheet, "t")
        unit = self._sheet.fields[name].unit
        parsed = self._parsed.get(name)
        if unit is None and parsed is not None and parsed.quantity == "t":
            unit = parsed.unit
        return name, unit

    def single(self, quantity: str) -> str | None:
        """Return the column of a quantity that all joints share."""
        patterns = self._options.patterns(quantity)
        if patterns is not None:
            if len(patterns) > 1:
                problem = (
                    f"{quantity} is one column, but --map gives {len(patterns)}: "
                    f"{_listed(patterns)}"
                )
                raise DataError(self._sheet.source, problem)
            return self._existing(quantity, patterns[0]) if patterns else None
        if quantity in self._sheet.fields:
            return quantity
        names = []
        for name, parsed in self._parsed.items():
            if parsed.quantity == quantity and len(self._sheet.fields[name].shape) == 1:
                names.append(name)
        if len(names) > 1:
            _refuse_ambiguous(self._sheet, quantity, names)
        return names[0] if names else None

    def _group(self, quantity: str) -> Group | None:
        patterns = self._options.patterns(quantity)
        if patterns is None:
            group = self._by_own_name(quantity)
            if group is None and quantity not in COMPONENTS:
                group = self._by_common_words(quantity)
            return group
        if not patterns:
            return None
        group = self._mapped(quantity, patterns)
        return replace(group, degrees=any(says_degrees(name) for name in group.columns.values()))

    def _by_own_name(self, quantity: str) -> Group | None:
        """Return the columns named as delan writes them: `q`, or `q0`, `q1`, …"""
        fields = self._sheet.fields
        arrays = self._sheet.kind == "arrays"
        if quantity in fields and (arrays or len(fields[quantity].shape) == 2):
            return Group("whole", {0: quantity})
        columns: dict[JointKey, str] = {}
        for name in fields:
            match = re.fullmatch(rf"{quantity}(\d{{1,3}})", name)
            if match:
                columns[int(match[1])] = name
        return Group("numbered", columns) if columns else None

    def _by_common_words(self, quantity: str) -> Group | None:
        families: dict[tuple[str, str], dict[JointKey, str]] = {}
        for name, parsed in self._parsed.items():
            axes = len(self._sheet.fields[name].shape)
            if parsed.quantity != quantity or axes > 2:
                continue
            if axes == 2 and parsed.joint is not None:
                continue  # an array of all joints whose name says more than the quantity
            family = families.setdefault((_style(parsed.joint), parsed.family), {})
            key = 0 if parsed.joint is None else parsed.joint
            if key in family:
                _refuse_ambiguous(self._sheet, quantity, [*family.values(), name])
            family[key] = name
        if len(families) > 1:
            names = [name for columns in families.values() for name in columns.values()]
            _refuse_ambiguous(self._sheet, quantity, names)
        for columns in families.values():
            parsed = [self._parsed[name] for name in columns.values()]
            degrees = any(name.degrees for name in parsed)
            return Group(_style(parsed[0].joint), columns, degrees)
        return None

    def _mapped(self, quantity: str, patterns: Sequence[str]) -> Group:
        if len(patterns) > 1:
            names = [self._existing(quantity, name) for name in patterns]
            return Group("listed", dict(enumerate(names)))
        pattern = patterns[0]
        if "{}" not in pattern:
            return Group("whole", {0: self._existing(quantity, pattern)})
        before, after = (re.escape(text) for text in pattern.split("{}"))
        joints: dict[str, str] = {}
        for name in self._sheet.fields:
            match = re.fullmatch(f"{before}(.+?){after}", name)
            if match:
                joints[name] = match[1]
        if not joints:
            self._refuse_pattern(quantity, pattern)
        if not all(
            joint.isascii() and joint.isdigit() and len(joint) < 4 for joint in joints.values()
        ):
            return Group("named", {joint: name for name, joint in joints.items()})
        columns: dict[JointKey, str] = {int(joint): name for name, joint in joints.items()}
        if len(columns) < len(joints):
            problem = (
                f"--map {quantity}={pattern} matches a joint twice in {_listed(joints)}; "
                f"list one column per joint, such as --map {quantity}=A,B,C"
            )
            raise DataError(self._sheet.source, problem)
        return Group("numbered", columns)

    def _existing(self, quantity: str, name: str) -> str:
        if name not in self._sheet.fields:
            self._refuse_pattern(quantity, name)
        return name

    def _refuse_pattern(self, quantity: str, pattern: str) -> NoReturn:
        names = _listed(self._sheet.fields)
        problem = f"--map {quantity}={pattern} matches no column; it has {names}"
        raise DataError(self._sheet.source, problem, column=quantity)


def _style(joint: JointKey | None) -> Literal["whole", "numbered", "named"]:
    if joint is None:
        return "whole"
    return "numbered" if isinstance(joint, int) else "named"


def _joints(sheet: Sheet, options: LogOptions, groups: dict[str, Group]) -> Joints:
    """Return the joints as named by the file or by the columns, else numbered."""
    group = groups["q"]
    if group.style == "named":
        names = [str(joint) for joint in group.columns]
        # Of the named joints only those asked for need columns of all quantities.
        chosen = options.joints or ()
        if chosen and set(chosen) <= set(names):
            names = [name for name in names if name in chosen]
        return Joints(tuple(names), ("revolute",) * len(names))
    if group.style == "whole":
        dof = _width(sheet, group.columns[0])
    elif group.style == "listed":
        dof = len(group.columns)
    else:
        dof = max(_numbers(groups)) + 1 - _first_number(groups)
    if sheet.joints is not None and sheet.joints.dof == dof:
        return sheet.joints
    return Joints.revolute(dof)


def _width(sheet: Sheet, name: str) -> int:
    shape = sheet.fields[name].shape
    if len(shape) == 1 and sheet.loose:
        return 1
    if len(shape) != 2 or shape[1] == 0:
        problem = f"expected shape (time, dof) with at least one joint, got {shape}"
        raise DataError(sheet.source, problem, column=name)
    return shape[1]


def _first_number(groups: Mapping[str, Group]) -> int:
    """Return whether the numbers of the joints begin with 0 or 1."""
    return min([1, *_numbers(groups)])


def _numbers(groups: Mapping[str, Group]) -> list[int]:
    """Return the numbers of joints in column names."""
    numbers = []
    for group in groups.values():
        if group.style == "numbered":
            numbers += [number for number in group.columns if isinstance(number, int)]
    return numbers


def _places(
    sheet: Sheet, groups: Mapping[str, Group], joints: Joints
) -> dict[str, tuple[str, ...]]:
    first = _first_number(groups)
    places = {}
    for quantity, group in groups.items():
        if quantity not in REQUIRED and not _belongs(sheet, group, groups["q"], joints):
            continue
        if group.style == "listed" and len(group.columns) != joints.dof:
            problem = (
                f"--map gives {len(group.columns)} columns for {joints.dof} joints; "
                "give one per joint"
            )
            raise DataError(sheet.source, problem, column=quantity)
        if group.style in ("whole", "listed"):
            places[quantity] = tuple(group.columns.values())
            continue
        keys: Sequence[JointKey] = range(first, first + joints.dof)
        if group.style == "named":
            keys = joints.names
        for key in keys:
            if key not in group.columns:
                _refuse_without_joint(sheet, quantity, group.columns, key)
        places[quantity] = tuple(group.columns[key] for key in keys)
    return places


def _belongs(sheet: Sheet, group: Group, q: Group, joints: Joints) -> bool:
    """Return whether an optional quantity is one of these joints, not of something else."""
    if group.style == "named":
        return q.style == "named" and bool(set(group.columns) & set(joints.names))
    if group.style == "whole" and len(sheet.fields[group.columns[0]].shape) == 1:
        return joints.dof == 1 or not sheet.loose
    return True


def _require_shapes(sheet: Sheet, layout: ColumnLayout) -> None:
    """Refuse arrays without one row per time stamp and one column per joint, before reading."""
    fields = sheet.fields
    time = layout.time
    trajectory = layout.trajectory
    rows = fields[layout.places["q"][0] if time is None else time].shape[0]
    if time is not None and (len(fields[time].shape) != 1 or rows == 0):
        problem = f"expected at least one time stamp in shape (time,), got {fields[time].shape}"
        raise DataError(sheet.source, problem, column=time)
    if trajectory is not None and fields[trajectory].shape != (rows,):
        shape = fields[trajectory].shape
        problem = f"expected one label per time stamp, shape {(rows,)}, got {shape}"
        raise DataError(sheet.source, problem, column=trajectory)
    dof = layout.joints.dof
    for names in layout.places.values():
        for name in names:
            shape = fields[name].shape
            single = len(names) > 1 or (dof == 1 and len(shape) == 1 and sheet.loose)
            expected = f"(time,) = {(rows,)}" if single else f"(time, dof) = {(rows, dof)}"
            if shape != ((rows,) if single else (rows, dof)):
                problem = f"expected shape {expected}, got {shape}; {SHAPE_REMEDY}"
                raise DataError(sheet.source, problem, column=name)


def _refuse_without_joints(sheet: Sheet) -> NoReturn:
    """Refuse a sheet without a column that is known to be a position."""
    if sheet.kind == "arrays":
        _refuse_without(sheet, "q")
    names = list(sheet.fields)
    if names and all(re.fullmatch(r"column\d+", name) for name in names):
        problem = (
            f"has no header over its {len(names)} columns; map them, such as "
            "--map t=column1 --map 'q=column{2-7}' --map 'tau=column{8-13}'"
        )
        raise DataError(sheet.source, problem)
    problem = (
        f"no joint columns in the header ({_listed(names)}); expected {sheet.form}; "
        "map them by --map 'q=NAME{}', or remove a file that is no log from the folder"
    )
    raise DataError(sheet.source, problem)


def _refuse_without(sheet: Sheet, quantity: str) -> NoReturn:
    """Refuse a sheet without a required quantity."""
    arrays = sheet.kind == "arrays"
    pattern = "NAME" if arrays or quantity == "t" else "NAME{}"
    remedy = f"map it by --map '{quantity}={pattern}'"
    if quantity == "t":
        remedy += ", or give --rate HZ"
    if arrays:
        names = _listed(sheet.fields)
        problem = f"has no array {quantity!r}, only {names}; expected {sheet.form}; {remedy}"
        raise DataError(sheet.source, problem)
    problem = f"is missing; the header has {_listed(sheet.fields)}; expected {sheet.form}; {remedy}"
    raise DataError(sheet.source, problem, column=quantity)


def _refuse_without_joint(
    sheet: Sheet, quantity: str, columns: Mapping[JointKey, str], joint: JointKey
) -> NoReturn:
    """Refuse a sheet that lacks one joint of a quantity."""
    other, name = next(iter(columns.items()))
    missing = str(joint).join(name.rsplit(str(other), 1))
    problem = (
        f"is missing; the header has {_listed(sheet.fields)}; expected {sheet.form}; "
        f"add it, or map the columns by --map {quantity}=…"
    )
    if isinstance(joint, str):
        problem = f"is missing: only {_listed(columns)} have it; choose joints by --joints"
    if quantity not in REQUIRED:
        problem += f"; --map {quantity}= leaves it out"
    raise DataError(sheet.source, problem, column=missing)


def _refuse_ambiguous(sheet: Sheet, quantity: str, names: Sequence[str]) -> NoReturn:
    """Refuse a sheet in which several columns may be a quantity."""
    pattern = re.sub(r"\d+(?!.*\d)", "{}", names[0])
    problem = (
        f"several columns may be {quantity}: {_listed(names)}; "
        f"choose by --map '{quantity}={pattern}'"
    )
    raise DataError(sheet.source, problem, column=quantity)


def _listed(names: Iterable[object]) -> str:
    texts = [str(name) for name in names]
    more = ", …" if len(texts) > _MOST_NAMES else ""
    return ", ".join(texts[:_MOST_NAMES]) + more
