"""Refusals of logs whose columns are missing or ambiguous, with the option that resolves it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from ..errors import DataError
from .formats import Sheet
from .options import REQUIRED

# Names shown in an error.
_MOST_NAMES = 40

JointKey = int | str


def refuse_without_joints(sheet: Sheet) -> NoReturn:
    """Refuse a sheet without a column that is known to be a position."""
    if sheet.kind == "arrays":
        refuse_without(sheet, "q")
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
