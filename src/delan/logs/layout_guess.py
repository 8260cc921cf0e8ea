"""The best guess at a log that is not understood: its columns as they are, and what they may mean.

A guess is made from names, more loosely than a log is read, and for columns without names from the
numbers: time increases evenly, and velocities are the derivatives of positions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import DelanError
from .column_names import measures
from .columns import find_columns
from .formats import Sheet
from .options import MAPPED, LogOptions

# Rows that are looked at, and columns of an array that are.
_ROWS = 5000
_MOST_COLUMNS = 200
# Correlation of a column with the derivative of another from which on it may be its velocity.
_ALIKE = 0.8
# Words for quantities in names that say something else as well, the first found counts.
_LOOSE = (
    ("t", r"time|stamp|^m?t$|sec"),
    ("qdd", r"acc|ddq|qdd"),
    ("qd", r"vel|speed|dq|qd$"),
    ("current", r"curr|amp"),
    ("tau", r"torque|trq|effort|tau|moment|force"),
    ("q", r"pos|angle|theta|q$|joint"),
)


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """What the first rows of a column show.

    Attributes:
        name: its name.
        width: number of columns of an array, 1 for a single column.
        low, high: range of its finite values.
        rate: rows per unit if it increases evenly, as times do; else None.
    """

    name: str
    width: int
    low: float
    high: float
    rate: float | None = None


@dataclass(frozen=True)
class LayoutGuess:
    """What a log may mean.

    Attributes:
        columns: facts about each column.
        options: options that may make the log readable, beside those given.
        needs: what must be known beside them.
        readable: whether the columns are understood with these options.
    """

    columns: tuple[ColumnFacts, ...]
    options: LogOptions
    needs: tuple[str, ...]
    readable: bool


def guess_layout(sheet: Sheet, options: LogOptions) -> LayoutGuess:
    """Return the columns of a sheet and the best guess at what they mean."""
    arrays = _first_rows(sheet)
    facts = tuple(_facts(name, values) for name, values in arrays.items())
    mapped = _by_names(facts, options)
    if all(re.fullmatch(r"column\d+", name) for name in arrays):
        mapped = _by_numbers(arrays, facts)
    guessed = _with_map(options, mapped)
    needs = []
    if "t" not in mapped and options.rate is None:
        needs.append("the sampling rate: --rate HZ")
    if "current" in mapped and options.gain is None and "tau" not in mapped:
        needs.append("the torque per current of each joint in N m/A: --gain K,…")
    told = any(measures(name) == "q_des" for name in sheet.fields)
    if not {"tau", "current"} & mapped.keys() and not told:
        needs.append("torques, or currents, or commands with the gains of the drives")
    elif not {"tau", "current"} & mapped.keys() and options.kp is None:
        needs.append("the gains of the drives in N m/rad and N m s/rad: --kp K,… --kd K,…")
    if "q" not in mapped:
        needs.append("the columns of the positions: --map 'q=…'")
    return LayoutGuess(facts, guessed, tuple(needs), _is_readable(sheet, guessed))


def _with_map(options: LogOptions, mapped: Mapping[str, str]) -> LogOptions:
    known = {name: value for name, value in vars(options).items() if name != "map"}
    return LogOptions(map={**mapped, **options.map}, **known)


def _is_readable(sheet: Sheet, options: LogOptions) -> bool:
    try:
        find_columns(sheet, options)
    except DelanError:
        return False
    return True


def _first_rows(sheet: Sheet) -> dict[str, np.ndarray]:
    names = [name for name, known in sheet.fields.items() if len(known.shape) <= 2]
    names = names[:_MOST_COLUMNS]
    arrays = {}
    for name in names:
        # One by one: a column that cannot be read must not hide the others.
        try:
            piece = next(iter(sheet.pieces([name], _ROWS)), {name: np.empty(0)})
        except DelanError:
            continue
        if piece[name].dtype.kind in "fiu":
            arrays[name] = piece[name].astype(np.float64)
    return arrays


def _facts(name: str, values: np.ndarray) -> ColumnFacts:
    finite = values[np.isfinite(values)]
    low = float(finite.min()) if len(finite) else np.nan
    high = float(finite.max()) if len(finite) else np.nan
    width = values.shape[1] if values.ndim == 2 else 1
    rate = None
    if values.ndim == 1 and len(finite) == len(values) > 2:
        steps = np.diff(values)
        usual = float(np.median(steps))
        if usual > 0 and (steps > 0).all() and np.median(np.abs(steps / usual - 1)) < 0.5:
            rate = 1 / usual
    return ColumnFacts(name=name, width=width, low=low, high=high, rate=rate)


def _by_names(facts: Sequence[ColumnFacts], options: LogOptions) -> dict[str, str]:
    """Return a map by words inside names: arrays, or columns that differ by a number."""
    families: dict[str, dict[str, list[ColumnFacts]]] = {}
    for fact in facts:
        quantity = measures(fact.name)
        if quantity not in MAPPED:
            quantity = _loose_quantity(fact)
        if quantity is None or quantity in options.map:
            continue
        family = re.sub(r"\d+(?!.*\d)", "{}", fact.name) if fact.width == 1 else fact.name
        families.setdefault(quantity, {}).setdefault(family, []).append(fact)
    mapped = {}
    for quantity, found in families.items():
        # Measured quantities come before others, and many joints before few.
        best = min(found, key=lambda family: (_is_other(family), -_width(found[family])))
        mapped[quantity] = best if len(found[best]) > 1 or quantity == "t" else found[best][0].name
        if quantity == "t":
            mapped[quantity] = found[best][0].name
    return mapped


def _width(facts: Sequence[ColumnFacts]) -> int:
    return sum(fact.width for fact in facts)


def _is_other(name: str) -> bool:
    return bool(re.search(r"des|ref|cmd|command|goal|target|filt|err|ext|fric|con\b", name.lower()))


def _loose_quantity(fact: ColumnFacts) -> str | None:
    leaf = re.split(r"[/.]", fact.name)[-1].lower()
    for quantity, words in _LOOSE:
        if re.search(words, re.sub(r"[\d_ ]+$", "", leaf)):
            if quantity == "t" and fact.rate is None:
                continue
            return quantity
    return None


def _by_numbers(arrays: Mapping[str, np.ndarray], facts: Sequence[ColumnFacts]) -> dict[str, str]:
    """Return a map of columns without names: times, then equal blocks of q, qd and tau."""
    times = [fact.name for fact in facts if fact.rate is not None]
    names = list(arrays)
    mapped = {}
    if times and times[0] in names[:2]:
        mapped["t"] = times[0]
        names = names[names.index(times[0]) + 1 :]
    blocks = _blocks(arrays, names)
    for quantity, columns in blocks.items():
        first = columns[0].removeprefix("column")
        last = columns[-1].removeprefix("column")
        mapped[quantity] = f"column{{{first}-{last}}}" if len(columns) > 1 else columns[0]
    return mapped


def _blocks(arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the columns of each quantity: three blocks if the second is the derivative."""
    count = len(names)
    for joints in range(count // 3, 0, -1):
        likeness = []
        for joint in range(joints):
            position = arrays[names[joint]]
            velocity = arrays[names[joints + joint]]
            likeness.append(_likeness(np.gradient(position), velocity))
        if np.median(likeness) > _ALIKE:
            torque = names[2 * joints : 3 * joints]
            return {"q": names[:joints], "qd": names[joints : 2 * joints], "tau": torque}
    half = count // 2
    if not half:
        return {}
    return {"q": names[:half], "tau": names[half : 2 * half]}


def _likeness(first: np.ndarray, second: np.ndarray) -> float:
    good = np.isfinite(first) & np.isfinite(second)
    if good.sum() < 3 or not first[good].std() or not second[good].std():
        return 0.0
    return float(np.corrcoef(first[good], second[good])[0, 1])
