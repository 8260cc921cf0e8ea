"""The columns of each quantity in a sheet: as mapped, by the names of delan, or by common words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from ..errors import DataError
from ..joints import COMPONENTS, MOST_JOINTS
from .column_names import ColumnName, parse_name
from .column_refusals import JointKey, listed, refuse_ambiguous, refuse_without
from .formats import Sheet
from .options import COMMANDS, QUANTITIES, LogOptions
from .time_stamps import named_unit


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
        if not all(re.fullmatch("[0-9]{1,3}", str(joint)) for joint in named):
            return Group("named", named)
        numbered: dict[JointKey, str] = {int(joint): name for joint, name in named.items()}
        if len(numbered) < len(named):
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
