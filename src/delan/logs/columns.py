"""Columns of a sheet: which of them are time, positions, velocities and torques.

Columns are found as mapped by the user, else by the names of delan, else by common words. What is
missing or ambiguous is refused with the option that resolves it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn

from ..errors import DataError, SettingsError
from ..joints import COMPONENTS, MOST_JOINTS, SHAPE_REMEDY, Joints
from .column_names import ColumnName, parse_name, says_degrees
from .formats import Sheet
from .options import QUANTITIES, REQUIRED, LogOptions

# Names shown in an error.
_MOST_NAMES = 40

JointKey = int | str


@dataclass(frozen=True)
class Group:
    """The columns of one quantity.

    Attributes:
        style: `whole` for one column or array of all joints, `numbered` or `named` for one column
            per joint, `listed` for columns that were given in their order.
        columns: name of each column by the number, name or position of its joint.
    """

    style: Literal["whole", "numbered", "named", "listed"]
    columns: dict[JointKey, str]


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
        names: dict[str | None, None] = {self.time: None, self.trajectory: None}
        for columns in self.places.values():
            names.update(dict.fromkeys(columns))
        return tuple(filter(None, names))


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
    degrees = set()
    for quantity, group in groups.items():
        if any(map(says_degrees, group.columns.values())):
            degrees.add(quantity)
    layout = ColumnLayout(
        time=time,
        unit=unit,
        trajectory=finder.single("trajectory"),
        places=_places(sheet, groups, joints),
        degrees=frozenset(degrees),
        joints=joints,
    )
    _require_shapes(sheet, layout)
    return _in_order(sheet, layout, options.exchanged)


def _in_order(sheet: Sheet, layout: ColumnLayout, exchanged: Mapping[str, str]) -> ColumnLayout:
    """Return the layout with quantities at the columns that have each other's names."""
    places = dict(layout.places)
    degrees = set(layout.degrees)
    for quantity, source in exchanged.items():
        if source not in layout.places:
            problem = (
                f"has no {source}, whose columns are to be read as {quantity}; "
                "give a log with the same columns"
            )
            raise DataError(sheet.source, problem)
        places[quantity] = layout.places[source]
        degrees.discard(quantity)
        if source in layout.degrees:
            degrees.add(quantity)
    return replace(layout, places=places, degrees=frozenset(degrees))


class _ColumnFinder:
    """Finds the columns of each quantity in a sheet."""

    def __init__(self, sheet: Sheet, options: LogOptions):
        self._sheet = sheet
        self._options = options
        # The meaning of every name that has one.
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
            if group.columns:
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
            self._require_existing(quantity, patterns)
            return next(iter(patterns), None)
        if quantity in self._sheet.fields:
            return quantity
        names = []
        for name, parsed in self._parsed.items():
            if parsed.quantity == quantity and len(self._sheet.fields[name].shape) == 1:
                names.append(name)
        if len(names) > 1:
            _refuse_ambiguous(self._sheet, quantity, names)
        return next(iter(names), None)

    def _group(self, quantity: str) -> Group:
        """Return the columns of a quantity of joints, a group without columns if it has none."""
        patterns = self._options.patterns(quantity)
        if patterns is not None:
            return self._mapped(quantity, patterns)
        group = self._by_own_name(quantity)
        if not group.columns and quantity not in COMPONENTS:
            group = self._by_common_words(quantity)
        return group

    def _by_own_name(self, quantity: str) -> Group:
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
        return Group("numbered", columns)

    def _by_common_words(self, quantity: str) -> Group:
        # Columns of different styles or families do not belong together.
        groups: dict[tuple[str, str], Group] = {}
        for name, parsed in self._parsed.items():
            axes = len(self._sheet.fields[name].shape)
            if parsed.quantity != quantity or axes > 2:
                continue
            if axes == 2 and parsed.joint is not None:
                continue  # an array of all joints whose name says more than the quantity
            style = _style(parsed.joint)
            group = groups.setdefault((style, parsed.family), Group(style, {}))
            key = parsed.joint or 0
            if key in group.columns:
                _refuse_ambiguous(self._sheet, quantity, [*group.columns.values(), name])
            group.columns[key] = name
        if len(groups) > 1:
            names = []
            for group in groups.values():
                names += group.columns.values()
            _refuse_ambiguous(self._sheet, quantity, names)
        return next(iter(groups.values()), Group("whole", {}))

    def _mapped(self, quantity: str, patterns: Sequence[str]) -> Group:
        if len(patterns) != 1:
            self._require_existing(quantity, patterns)
            return Group("listed", dict(enumerate(patterns)))
        pattern = patterns[0]
        if "{}" not in pattern:
            self._require_existing(quantity, patterns)
            return Group("whole", {0: pattern})
        before, after = map(re.escape, pattern.split("{}"))
        named: dict[JointKey, str] = {}
        for name in self._sheet.fields:
            match = re.fullmatch(f"{before}(.+?){after}", name)
            if match:
                named[match[1]] = name
        if not named:
            self._refuse_pattern(quantity, pattern)
        if not all(re.fullmatch("[0-9]{1,3}", str(joint)) for joint in named):
            return Group("named", named)
        numbered: dict[JointKey, str] = {int(joint): name for joint, name in named.items()}
        if len(numbered) < len(named):
            problem = (
                f"--map {quantity}={pattern} matches a joint twice in {_listed(named.values())}; "
                f"list one column per joint, such as --map {quantity}=A,B,C"
            )
            raise DataError(self._sheet.source, problem)
        return Group("numbered", numbered)

    def _require_existing(self, quantity: str, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._sheet.fields:
                self._refuse_pattern(quantity, name)

    def _refuse_pattern(self, quantity: str, pattern: str) -> NoReturn:
        names = _listed(self._sheet.fields)
        problem = f"--map {quantity}={pattern} matches no column; it has {names}"
        raise DataError(self._sheet.source, problem, column=quantity)


def _style(joint: JointKey | None) -> Literal["whole", "numbered", "named"]:
    if joint is None:
        return "whole"
    return "numbered" if isinstance(joint, int) else "named"


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
    if sheet.joints is not None and sheet.joints.dof == dof:
        return sheet.joints
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
        if quantity not in REQUIRED and not _belongs(sheet, group, groups["q"], joints):
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
                _refuse_without_joint(sheet, quantity, group.columns, key)
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
            if shape != expected[1]:
                axes = f"{expected[0]} = {expected[1]}"
                problem = f"expected shape {axes}, got {shape}; {SHAPE_REMEDY}"
                raise DataError(sheet.source, problem, column=name)


def _refuse_without_joints(sheet: Sheet) -> NoReturn:
    """Refuse a sheet without a column that is known to be a position."""
    if sheet.kind == "arrays":
        _refuse_without(sheet, "q")
    names = list(sheet.fields)
    # Such names are given to the columns of a table without a header.
    if names and all(re.fullmatch(r"column\d+", name) for name in names):
        # An example that this file can have: time, then the positions, torques last.
        joints = max(1, (len(names) - 1) // 2)
        first_torque = len(names) - joints + 1
        problem = (
            f"has no header over its {len(names)} columns; map them, such as --map t=column1 "
            f"--map 'q=column{{2-{joints + 1}}}' --map 'tau=column{{{first_torque}-{len(names)}}}'"
        )
        raise DataError(sheet.source, problem)
    problem = (
        f"no joint columns in the header ({_listed(names)}); expected {sheet.form}; "
        "map them by --map 'q=NAME{}', or remove files that are not logs from the folder"
    )
    raise DataError(sheet.source, problem)


def _refuse_without(sheet: Sheet, quantity: str) -> NoReturn:
    """Refuse a sheet without a required quantity."""
    arrays = sheet.kind == "arrays"
    names = _listed(sheet.fields)
    pattern = "NAME" if arrays or quantity == "t" else "NAME{}"
    remedy = f"expected {sheet.form}; map it by --map '{quantity}={pattern}'"
    if quantity == "t":
        remedy += ", or give --rate HZ"
    if arrays:
        raise DataError(sheet.source, f"has no array {quantity!r}, only {names}; {remedy}")
    problem = f"is missing; the header has {names}; {remedy}"
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
    texts = list(map(str, names))
    if len(texts) > _MOST_NAMES:
        texts[_MOST_NAMES:] = ["…"]
    return ", ".join(texts)
