"""The columns of each quantity in a sheet: as mapped, by the names of delan, or by common words.

`position[2]` is the third column of an array, `run.q` the array `q` of a group. What is missing or
ambiguous is refused with the option that resolves it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NoReturn

from ..errors import DataError
from ..joints import COMPONENTS, MOST_JOINTS
from .column_names import ColumnName, parse_name
from .formats import Field, Pieces, Sheet
from .options import COMMANDS, QUANTITIES, REQUIRED, LogOptions, element_of
from .time_stamps import named_unit

# Names shown in an error.
_MOST_NAMES = 40

JointKey = int | str

# An array of the sheet, and a column of it; None for the whole array.
Place = tuple[str, int | None]


def refuse_without_joints(sheet: Sheet) -> NoReturn:
    """Refuse a sheet without a column that is known to be a position."""
    if sheet.kind == "arrays":
        refuse_without(sheet, "q")
    names = list(sheet.fields)
    # Such names are given to the columns of a table without a header.
    if len(names) == 1 and names[0] == "column1":
        problem = (
            "has no header and one number a line; the log may lie in several files: give one, and "
            "the others by --join, and --columns N if the N numbers of a row are spread over lines"
        )
        raise DataError(sheet.source, problem)
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
        f"no joint columns in the header ({listed(names)}); expected {sheet.form}; "
        "map them by --map 'q=NAME{}', or remove files that are not logs from the folder"
    )
    raise DataError(sheet.source, problem)


def refuse_without(sheet: Sheet, quantity: str) -> NoReturn:
    """Refuse a sheet without a required quantity."""
    arrays = sheet.kind == "arrays"
    names = listed(sheet.fields)
    pattern = "NAME" if arrays or quantity == "t" else "NAME{}"
    remedy = f"expected {sheet.form}; map it by --map '{quantity}={pattern}'"
    if quantity == "t":
        remedy += ", or give --rate HZ"
    if arrays:
        raise DataError(sheet.source, f"has no array {quantity!r}, only {names}; {remedy}")
    problem = f"is missing; the header has {names}; {remedy}"
    raise DataError(sheet.source, problem, column=quantity)


def refuse_without_joint(
    sheet: Sheet, quantity: str, columns: Mapping[JointKey, str], joint: JointKey
) -> NoReturn:
    """Refuse a sheet that lacks one joint of a quantity."""
    other, name = next(iter(columns.items()))
    missing = str(joint).join(name.rsplit(str(other), 1))
    problem = (
        f"is missing; the header has {listed(sheet.fields)}; expected {sheet.form}; "
        f"add it, or map the columns by --map {quantity}=…"
    )
    if isinstance(joint, str):
        problem = f"is missing: only {listed(columns)} have it; choose joints by --joints"
    if quantity not in REQUIRED:
        problem += f"; --map {quantity}= leaves it out"
    raise DataError(sheet.source, problem, column=missing)


def refuse_ambiguous(sheet: Sheet, quantity: str, names: Sequence[str]) -> NoReturn:
    """Refuse a sheet in which several columns may be a quantity."""
    pattern = re.sub(r"\d+(?!.*\d)", "{}", names[0])
    problem = (
        f"several columns may be {quantity}: {listed(names)}; "
        f"choose by --map '{quantity}={pattern}'"
    )
    raise DataError(sheet.source, problem, column=quantity)


def listed(names: Iterable[object]) -> str:
    texts = list(map(str, names))
    if len(texts) > _MOST_NAMES:
        texts[_MOST_NAMES:] = ["…"]
    return ", ".join(texts)


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


# Number of a joint in a name.
_NUMBER = re.compile("[0-9]{1,3}")


class ColumnFinder:
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
        """Return the columns of all quantities of joints, with currents and commands."""
        groups = {}
        for quantity in (*QUANTITIES, "current", *COMMANDS):
            group = self._group(quantity)
            if group.columns:
                groups[quantity] = group
        return groups

    def time(self) -> tuple[str | None, float | None]:
        """Return the column of the time and its unit in seconds, as far as they are known."""
        if self._options.rate is not None:
            return None, None
        name = self.single("t")
        if name is None:
            refuse_without(self._sheet, "t")
        return name, named_unit(self._sheet, name)

    def names(self, quantity: str) -> tuple[str, ...]:
        """Return the columns of a quantity, none if it has none or is ambiguous."""
        try:
            if quantity in ("t", "trajectory"):
                name = self.single(quantity)
                return () if name is None else (name,)
            return tuple(self._group(quantity).columns.values())
        except DataError:
            return ()

    def single(self, quantity: str) -> str | None:
        """Return the column of a quantity that all joints share."""
        patterns = self._options.patterns(quantity)
        if patterns is not None:
            if len(patterns) > 1:
                problem = (
                    f"{quantity} is one column, but --map gives {len(patterns)}: {listed(patterns)}"
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
            refuse_ambiguous(self._sheet, quantity, names)
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
                refuse_ambiguous(self._sheet, quantity, [*group.columns.values(), name])
            group.columns[key] = name
        if len(groups) > 1:
            names = []
            for group in groups.values():
                names += group.columns.values()
            refuse_ambiguous(self._sheet, quantity, names)
        return next(iter(groups.values()), Group("whole", {}))

    def _mapped(self, quantity: str, patterns: Sequence[str]) -> Group:
        if len(patterns) != 1:
            self._require_existing(quantity, patterns)
            return Group("listed", dict(enumerate(self._single_columns(patterns))))
        pattern = patterns[0]
        if "{}" not in pattern:
            self._require_existing(quantity, patterns)
            return Group("whole", {0: pattern})
        # An array of a group is named `group/array` by the formats, and `group.array` by people.
        named = self._matches(pattern) or self._matches(pattern.replace(".", "/"))
        if not named:
            self._refuse_pattern(quantity, pattern)
        # `tau_{}` means tau_0, tau_1, … also where there is a tau_ext_0.
        matches = {joint: name for joint, name in named.items() if _NUMBER.fullmatch(str(joint))}
        if not matches:
            return Group("named", named)
        numbered: dict[JointKey, str] = {int(joint): name for joint, name in matches.items()}
        if len(numbered) < len(matches):
            problem = (
                f"--map {quantity}={pattern} matches a joint twice in {listed(named.values())}; "
                f"list one column per joint, such as --map {quantity}=A,B,C"
            )
            raise DataError(self._sheet.source, problem)
        return Group("numbered", numbered)

    def _matches(self, pattern: str) -> dict[JointKey, str]:
        """Return the columns that match a pattern, by what stands in the place of `{}`."""
        before, after = map(re.escape, pattern.split("{}"))
        named: dict[JointKey, str] = {}
        for name in self._sheet.fields:
            match = re.fullmatch(f"{before}(.+?){after}", name)
            if match:
                named[match[1]] = name
        return named

    def _single_columns(self, names: Sequence[str]) -> list[str]:
        """Return names of single columns: an array among others gives each of its columns."""
        single = []
        for name in names:
            shape = self._sheet.fields[name].shape
            if len(shape) == 2:
                single += [f"{name}[{column}]" for column in range(min(shape[1], MOST_JOINTS))]
            else:
                single.append(name)
        return single

    def _require_existing(self, quantity: str, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._sheet.fields:
                self._refuse_pattern(quantity, name)

    def _refuse_pattern(self, quantity: str, pattern: str) -> NoReturn:
        names = listed(self._sheet.fields)
        problem = f"--map {quantity}={pattern} matches no column; it has {names}"
        raise DataError(self._sheet.source, problem, column=quantity)


def _style(joint: JointKey | None) -> Literal["whole", "numbered", "named"]:
    if joint is None:
        return "whole"
    return "numbered" if isinstance(joint, int) else "named"


def with_elements(sheet: Sheet, options: LogOptions) -> Sheet:
    """Return the sheet with the names that are mapped and mean columns or arrays in it."""
    places: dict[str, Place] = {}
    for quantity in options.map:
        names = options.patterns(quantity) or ()
        for name in names:
            place = _place_of(sheet, name)
            if place is None:
                continue
            if name not in sheet.fields:
                places[name] = place
            shape = sheet.fields[place[0]].shape
            if len(names) > 1 and place[1] is None and len(shape) == 2:
                for column in range(min(shape[1], MOST_JOINTS)):
                    places[f"{name}[{column}]"] = (place[0], column)
    if not places:
        return sheet
    fields = dict(sheet.fields)
    for name, (array, column) in places.items():
        fields[name] = sheet.fields[array]
        if column is not None:
            fields[name] = Field(shape=sheet.fields[array].shape[:1])
    return replace(sheet, fields=fields, pieces=partial(_pieces, sheet, places))


def _place_of(sheet: Sheet, name: str) -> Place | None:
    """Return what a name means in a sheet, None if it means nothing or is a pattern."""
    fields = sheet.fields
    if "{}" in name:
        return None
    for whole in (name, name.replace(".", "/")):
        if whole in fields:
            return whole, None
    array, column = element_of(name)
    numbered = re.fullmatch(r"(.+)\.column(\d{1,4})", name)
    if numbered is not None:  # of a joined file without a header
        array = numbered[1]
        column = int(numbered[2]) - 1
    for whole in (array, array.replace(".", "/")):
        if whole in fields and column is not None:
            shape = fields[whole].shape
            if len(shape) == 2 and 0 <= column < shape[1]:
                return whole, column
    return None


def _pieces(sheet: Sheet, places: Mapping[str, Place], wanted: Sequence[str], rows: int) -> Pieces:
    stored = {name: places.get(name, (name, None)) for name in wanted}
    arrays = list(dict.fromkeys(array for array, _ in stored.values()))
    for piece in sheet.pieces(arrays, rows):
        columns = {}
        for name, (array, column) in stored.items():
            columns[name] = piece[array]
            if column is not None:
                columns[name] = piece[array][:, column]
        yield columns
