"""The best guess at a log that is not understood: its columns as they are, and what they may mean.

A guess is made from names, more loosely than a log is read, and for columns without names from the
numbers: time increases evenly, and velocities are the derivatives of positions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import DelanError
from .column_finder import ColumnFinder, with_elements
from .column_names import measures
from .columns import find_columns
from .formats import Sheet, open_log
from .join import file_name, open_sheets
from .options import MAPPED, LogOptions

# Rows that are looked at, and columns of an array that are.
_ROWS = 5000
_PIECE = 200_000
_MOST_COLUMNS = 200
# Correlation of a column with the derivative of another from which on it may be its velocity.
_ALIKE = 0.8
# Files of a folder of which each may hold a quantity of one log, and quantities they may hold.
_MOST_PARTS = 20
_HELD = frozenset({"q", "qd", "qdd", "tau", "current"})
# Words for what is switched on or limited, beside which a quantity is not measured.
_STATE = re.compile("enable|status|mode|limit|flag")
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
class Need:
    """What must be known of a log beside its columns.

    Attributes:
        what: what it is.
        option: how it is given, with a placeholder; empty if no option can give it.
    """

    what: str
    option: str = ""


@dataclass(frozen=True)
class LayoutGuess:
    """What a log may mean.

    Attributes:
        columns: facts about each column.
        options: options that may make the log readable, beside those given.
        needs: what must be known beside them.
        readable: whether the columns are understood with these options.
        known: quantities whose columns are known or guessed.
        file: the file to read, where others are joined to it.
    """

    columns: tuple[ColumnFacts, ...]
    options: LogOptions
    needs: tuple[Need, ...]
    readable: bool
    known: frozenset[str] = frozenset()
    file: Path | None = None


def guess_layout(sheet: Sheet, options: LogOptions) -> LayoutGuess:
    """Return the columns of a sheet and the best guess at what they mean."""
    arrays = _first_rows(sheet)
    facts = tuple(_facts(name, values) for name, values in arrays.items())
    mapped = _by_names(arrays, facts, options)
    if _is_nameless(sheet):
        mapped = _by_numbers(arrays, facts)
    known = frozenset([*mapped, *options.map])
    needs = _needs(sheet, options, known)
    short = _with_map(options, _surprising(sheet, options, mapped))
    if _is_readable(sheet, short):
        return LayoutGuess(facts, short, needs, True, known)
    full = _with_map(options, mapped)
    readable = _is_readable(sheet, full)
    # What cannot be read yet for want of a number is shown in short.
    return LayoutGuess(facts, full if readable else short, needs, readable, known)


def _needs(sheet: Sheet, options: LogOptions, known: frozenset[str]) -> tuple[Need, ...]:
    """Return what the options must say beside the columns of known quantities."""
    needs = []
    if "q" not in known:
        needs.append(Need("the columns of the positions", "--map q=COLUMNS"))
    if "t" not in known and options.rate is None:
        needs.append(Need("the sampling rate", "--rate HZ"))
    if "tau" in known:
        return tuple(needs)
    if "current" in known:
        if options.gain is None:
            needs.append(Need("the torque per current of each joint in N m/A", "--gain K,…"))
        return tuple(needs)
    if not any(measures(name) == "q_des" for name in sheet.fields):
        needs.append(Need("torques, or currents, or commands with the gains of the drives"))
        return tuple(needs)
    if options.kp is None and "kp" not in known:
        needs.append(Need("the stiffness of the drives in N m/rad", "--kp K,…"))
    if options.kd is None and "kd" not in known:
        needs.append(Need("their damping in N m s/rad", "--kd K,…"))
    return tuple(needs)


@dataclass(frozen=True)
class _Part:
    """A file with one quantity of a log.

    Attributes:
        file: the file.
        quantity: what it holds.
        columns: pattern of its columns, None if their names, or that of the file, say it already.
        others: further quantities in the file, such as its times.
    """

    file: Path
    quantity: str
    columns: str | None = None
    others: frozenset[str] = frozenset()


def guess_files(files: Sequence[Path], options: LogOptions) -> LayoutGuess | None:
    """Return how several files may be one log, None if they are no parts of one.

    Each holds one quantity, which the names of its columns or its own name say. Without a header,
    the numbers of a row may be spread over lines.
    """
    if len(files) > _MOST_PARTS:
        return None
    parts: dict[str, _Part] = {}
    for file in files:
        part = _part_of(file)
        if part is not None and part.quantity in parts:
            return None
        if part is not None:
            parts[part.quantity] = part
    if "q" not in parts or not {"tau", "current"} & parts.keys():
        return None
    lead = parts.get("t", parts["q"])
    others = [part.file.name for part in parts.values() if part is not lead]
    mapped = {}
    for quantity, part in parts.items():
        name = file_name(part.file)
        if part.columns is not None:
            mapped[quantity] = part.columns if part is lead else f"{name}.{part.columns}"
        elif not part.others and measures(name) != quantity:
            mapped[quantity] = name
    joined = replace(_with_map(options, mapped), join=tuple(others))
    if "t" in parts:
        joined = replace(joined, columns=_spread(parts["t"].file, parts["q"].file))
    sheet = open_sheets(lead.file, joined, gaps=True)[0]
    known = frozenset(parts).union(*(part.others for part in parts.values()))
    needs = _needs(sheet, joined, known)
    return LayoutGuess((), joined, needs, _is_readable(sheet, joined), known, lead.file)


def _part_of(file: Path) -> _Part | None:
    """Return the file as a part of a log, None if it does not hold just one quantity."""
    sheets = open_log(file, LogOptions(), gaps=True)
    if len(sheets) != 1 or sheets[0].kind != "table":
        return None
    measured = {name: measures(name) for name in sheets[0].fields}
    known = frozenset(filter(None, measured.values()))
    held = known & _HELD
    by_name = measures(file_name(file)) or _loose_quantity(file_name(file))
    if _is_nameless(sheets[0]):
        return _Part(file, by_name) if by_name in MAPPED else None
    if len(held) == 1:
        return _Part(file, next(iter(held)), None, known)
    if held or by_name not in _HELD:
        return None
    names = [name for name, quantity in measured.items() if quantity is None]
    families = {re.sub(r"\d+(?!.*\d)", "{}", name) for name in names}
    columns = families.pop() if len(families) == 1 else ",".join(names)
    return _Part(file, by_name, columns, known)


def _spread(times: Path, positions: Path) -> int | None:
    """Return how many lines of the positions there are for each time, None if one or no number."""
    counts = []
    for file in (times, positions):
        sheet = open_log(file, LogOptions(), gaps=True)[0]
        count = 0
        for piece in sheet.pieces(list(sheet.fields)[:1], _PIECE):
            count += len(next(iter(piece.values())))
        counts.append(count)
    lines, rest = divmod(counts[1], max(1, counts[0]))
    return lines if lines > 1 and not rest else None


def _is_nameless(sheet: Sheet) -> bool:
    return all(re.fullmatch(r"column\d+", name) for name in sheet.fields)


def _surprising(sheet: Sheet, options: LogOptions, mapped: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of a map without which other columns, or none, would be read."""
    plain = ColumnFinder(sheet, options)
    changed = _with_map(options, mapped)
    guessed = ColumnFinder(with_elements(sheet, changed), changed)
    surprising = {}
    for quantity, pattern in mapped.items():
        if plain.names(quantity) != guessed.names(quantity):
            surprising[quantity] = pattern
    return surprising


def _with_map(options: LogOptions, mapped: Mapping[str, str]) -> LogOptions:
    known = {name: value for name, value in vars(options).items() if name != "map"}
    return LogOptions(map={**mapped, **options.map}, **known)


def _is_readable(sheet: Sheet, options: LogOptions) -> bool:
    try:
        find_columns(with_elements(sheet, options), options)
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


def _by_names(
    arrays: Mapping[str, np.ndarray], facts: Sequence[ColumnFacts], options: LogOptions
) -> dict[str, str]:
    """Return a map by words inside names: arrays, or columns that differ by a number."""
    families: dict[str, dict[str, list[ColumnFacts]]] = {}
    for fact in facts:
        quantity = measures(fact.name)
        if quantity not in MAPPED:
            quantity = _loose_quantity(fact.name)
            if quantity == "t" and fact.rate is None:
                continue
            if not fact.low < fact.high or _STATE.search(fact.name.lower()):
                continue  # a switch, whatever it switches
        if quantity is None or quantity in options.map:
            continue
        family = re.sub(r"\d+(?!.*\d)", "{}", fact.name) if fact.width == 1 else fact.name
        families.setdefault(quantity, {}).setdefault(family, []).append(fact)
    mapped = {}
    for quantity, found in families.items():
        # Measured quantities come before others, and many joints before few.
        order = sorted(found, key=lambda family: (_is_other(family), -_width(found[family])))
        best = order[0]
        mapped[quantity] = best if len(found[best]) > 1 else found[best][0].name
        if quantity == "t":
            mapped[quantity] = found[best][0].name
        if quantity == "q":
            mapped[quantity] = _moving(arrays, order) or mapped[quantity]
    return mapped


def _moving(arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> str | None:
    """Return the columns of two arrays, if the second one moves where the first stands still."""
    tables = [arrays[name] for name in names if name in arrays and arrays[name].ndim == 2]
    if len(tables) < 2 or tables[0].shape[1] != tables[1].shape[1]:
        return None
    moves = [np.ptp(table, axis=0) > 0 for table in tables[:2]]
    if moves[0].all() or not (moves[0] | moves[1]).all():
        return None
    parts = []
    for joint, first in enumerate(moves[0].tolist()):
        name = names[0] if first else names[1]
        if parts and parts[-1][0] == name:
            parts[-1][2] = joint
        else:
            parts.append([name, joint, joint])
    return ",".join(f"{name}[{first}-{last}]" for name, first, last in parts)


def _width(facts: Sequence[ColumnFacts]) -> int:
    return sum(fact.width for fact in facts)


def _is_other(name: str) -> bool:
    return bool(re.search(r"des|ref|cmd|command|goal|target|filt|err|ext|fric|con\b", name.lower()))


def _loose_quantity(name: str) -> str | None:
    """Return the quantity that a word in a name may mean."""
    leaf = re.sub(r"[\d_ ]+$", "", re.split(r"[/.]", name)[-1].lower())
    for quantity, words in _LOOSE:
        if re.search(words, leaf):
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
