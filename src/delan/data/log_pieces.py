"""From a sheet to pieces of a recording: columns gathered, units and signs turned into ours, joints picked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from ..joints import COMPONENTS, Joints, Recording
from .columns import Layout, find_columns
from .formats.sheet import Sheet
from .log_options import QUANTITIES, LogOptions
from .stamps import Clock, whole_or_float

_RATES = ("q", "qd", "qdd")


class Labels:
    """Trajectory labels over several sheets: those of a single sheet are kept, others are numbered as they come."""

    def __init__(self, *, keep: bool):
        self._keep = keep
        self._numbers: dict[tuple[int, int], int] = {}
        self._sheet = -1

    def begin(self) -> None:
        """The next sheet begins: its labels are its own."""
        self._sheet += 1

    def number(self, labels: np.ndarray) -> np.ndarray:
        if self._keep:
            return labels
        found, first, where = np.unique(labels, return_index=True, return_inverse=True)
        for label in found[np.argsort(first)].tolist():
            self._numbers.setdefault((self._sheet, label), len(self._numbers))
        return np.array([self._numbers[self._sheet, label] for label in found.tolist()], dtype=int)[where]


@dataclass(frozen=True)
class _Shape:
    """What is done to the columns of one sheet, made ready once."""

    kept: tuple[int, ...]
    joints: Joints
    factors: Mapping[str, np.ndarray]


def pieces_of(sheet: Sheet, options: LogOptions, rows: int, labels: Labels) -> Iterator[Recording]:
    """The recording in a sheet, at most so many rows at a time."""
    layout = find_columns(sheet, options)
    shape = _shape(sheet.source, layout, options)
    unit = layout.unit if options.time_scale is None else options.time_scale
    clock = None if layout.time is None else Clock(sheet, layout.time, unit)
    labels.begin()
    done = 0
    for piece in sheet.pieces(layout.wanted, rows):
        lengths = {name: len(values) for name, values in piece.items()}
        length = min(lengths.values())
        if max(lengths.values()) != length:
            short = min(lengths, key=lengths.__getitem__)
            raise DataError(sheet.source, "ends before the other columns; cut them to one length", column=short)
        if not length:
            continue
        if clock is None or layout.time is None:
            t = np.arange(done, done + length) / float(options.rate or 1.0)
        else:
            t = clock.seconds(sheet.source, layout.time, piece[layout.time])
        own = np.zeros(length, dtype=int)
        if layout.trajectory is not None:
            own = _labels(sheet.source, layout.trajectory, piece[layout.trajectory], done)
        yield _recording(sheet.source, layout, shape, piece, t, labels.number(own))
        done += length
    if not done:
        raise DataError(sheet.source, "holds no rows; record some motion")


def _recording(
    source: str, layout: Layout, shape: _Shape, piece: Mapping[str, np.ndarray], t: np.ndarray, labels: np.ndarray
) -> Recording:
    columns = {}
    for quantity, names in layout.places.items():
        parts = [whole_or_float(source, name, piece[name]).astype(np.float64, copy=False) for name in names]
        values = parts[0] if parts[0].ndim == 2 else np.stack(parts, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            columns[quantity] = values[:, shape.kept] * shape.factors[quantity]
    return Recording(
        t=t,
        q=columns["q"],
        tau=columns["tau"],
        qd=columns.get("qd"),
        qdd=columns.get("qdd"),
        trajectory=labels,
        truth={name: columns[name] for name in COMPONENTS if name in columns},
        joints=shape.joints,
        source=source,
    )


def _shape(source: str, layout: Layout, options: LogOptions) -> _Shape:
    joints = layout.joints
    kept = range(joints.dof) if options.joints is None else _numbers(source, "--joints", options.joints, joints)
    kept = tuple(kept)
    picked = Joints(tuple(joints.names[i] for i in kept), tuple(joints.kinds[i] for i in kept))
    factors = {name: np.ones(len(kept)) for name in QUANTITIES}
    turning = np.array([kind != "prismatic" for kind in picked.kinds])
    for quantity in _RATES:
        if options.degrees or quantity in layout.degrees:
            factors[quantity] = np.where(turning, np.pi / 180, 1.0)
    if options.gain is not None:
        if len(options.gain) not in (1, len(kept)):
            problem = f"--gain gives {len(options.gain)} numbers for {len(kept)} joints; give one, or one each"
            raise DataError(source, problem)
        factors["tau"] = factors["tau"] * np.array(options.gain)
    for quantity, flipped in options.flip.items():
        numbers = kept if flipped == "all" else _numbers(source, "--flip", flipped, joints)
        sign = np.array([-1.0 if i in numbers else 1.0 for i in kept])
        for name in _RATES if quantity == "q" else ("tau", *COMPONENTS):
            factors[name] = factors[name] * sign
    return _Shape(kept, picked, factors)


def _numbers(source: str, option: str, asked: tuple[int | str, ...], joints: Joints) -> list[int]:
    """The joints asked for, by their number in the log."""
    numbers = []
    for joint in asked:
        if isinstance(joint, str) and joint in joints.names:
            numbers.append(joints.names.index(joint))
        elif isinstance(joint, int) and joint < joints.dof:
            numbers.append(joint)
        else:
            known = ", ".join(f"{i} {name}" for i, name in enumerate(joints.names))
            raise DataError(source, f"{option}: there is no joint {joint!r}; the log has {known}")
    if len(set(numbers)) < len(numbers):
        raise DataError(source, f"{option}: {', '.join(map(str, asked))} name a joint twice; give each once")
    return numbers


def _labels(source: str, column: str, values: np.ndarray, done: int) -> np.ndarray:
    remedy = "number the trajectories 0, 1, …, or leave the column out by --map trajectory="
    if values.dtype.kind not in "fiu":
        raise DataError(source, f"expected whole-number labels, got {values[0]!s}; {remedy}", column=column, row=done)
    with np.errstate(invalid="ignore"):
        labels = values.astype(int)
    wrong = np.flatnonzero(labels != values)
    if len(wrong):
        row = int(wrong[0])
        problem = f"expected whole-number labels, got {values[row]!s}; {remedy}"
        raise DataError(source, problem, column=column, row=done + row)
    return labels
