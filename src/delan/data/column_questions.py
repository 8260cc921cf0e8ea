"""What a log leaves open, asked for as errors: what it has, what was expected, and the option to write."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from ..errors import DataError
from .formats.sheet import Sheet
from .log_options import REQUIRED

_MOST = 40
"""So many names are shown in an error."""


def ask_for_joints(sheet: Sheet) -> NoReturn:
    """Nothing in the sheet is known to be a position."""
    names = list(sheet.fields)
    if sheet.kind == "arrays":
        ask_for(sheet, "q")
    if names and all(re.fullmatch(r"column\d+", name) for name in names):
        problem = (
            f"has no header over its {len(names)} columns; say which is what, such as "
            "--map t=column1 --map 'q=column{2-7}' --map 'tau=column{8-13}'"
        )
        raise DataError(sheet.source, problem)
    problem = (
        f"no joint columns in the header ({listed(names)}); expected {sheet.form}; say which by --map 'q=NAME{{}}', "
        "or take a file that is no log out of the folder"
    )
    raise DataError(sheet.source, problem)


def ask_for(sheet: Sheet, quantity: str) -> NoReturn:
    """A quantity that a recording needs is not there."""
    pattern, or_rate = ("NAME", ", or give --rate HZ") if quantity == "t" else ("NAME{}", "")
    if sheet.kind == "arrays":
        remedy = f"say which by --map {quantity}=NAME{or_rate}"
        problem = f"has no array {quantity!r}, only {listed(sheet.fields)}; expected {sheet.form}; {remedy}"
        raise DataError(sheet.source, problem)
    remedy = f"say which by --map '{quantity}={pattern}'{or_rate}"
    problem = f"is missing; the header has {listed(sheet.fields)}; expected {sheet.form}; {remedy}"
    raise DataError(sheet.source, problem, column=quantity)


def ask_for_joint(sheet: Sheet, quantity: str, columns: Mapping[int | str, str], joint: int | str) -> NoReturn:
    """One joint of a quantity has no column."""
    other, name = next(iter(columns.items()))
    wanted = str(joint).join(name.rsplit(str(other), 1))
    problem = f"is missing; the header has {listed(sheet.fields)}; expected {sheet.form}"
    problem += f"; add it, or name the columns by --map {quantity}=…"
    if isinstance(joint, str):
        problem = f"is missing: only {listed(columns)} have it; pick joints by --joints"
    if quantity not in REQUIRED:
        problem += f"; --map {quantity}= leaves it out"
    raise DataError(sheet.source, problem, column=wanted)


def ask_which(sheet: Sheet, quantity: str, names: Sequence[str]) -> NoReturn:
    """Several columns may be a quantity."""
    pattern = re.sub(r"\d+(?!.*\d)", "{}", names[0])
    problem = f"several columns may be {quantity}: {listed(names)}; say which by --map '{quantity}={pattern}'"
    raise DataError(sheet.source, problem, column=quantity)


def refuse_pattern(sheet: Sheet, quantity: str, pattern: str) -> NoReturn:
    problem = f"--map {quantity}={pattern} names nothing in it; it has {listed(sheet.fields)}"
    raise DataError(sheet.source, problem, column=quantity)


def listed(names: Iterable[object]) -> str:
    told = [str(name) for name in names]
    return ", ".join(told[:_MOST]) + (", …" if len(told) > _MOST else "")
