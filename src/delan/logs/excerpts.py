"""Logs larger than memory: parts that fit into it, and an excerpt of evenly spaced segments."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from ..joints import Dataset, Recording, evenly_spaced, nonzero_scale
from ..log_rows import Excerpt, FileRows, RowRange
from .segments import require_sound, trajectory_bounds, usual_step

# A part is joined from at least this many pieces, so that its size comes near the limit.
FEWEST_PIECES = 4

# Duration of a block [s]: long enough for filters and whole motions, ...
BLOCK_SECONDS = 60.0

# ... with at least this many rows where the log is slow, ...
FEWEST_ROWS = 1000

# ... but short enough that this many blocks fit, so that an excerpt covers all of the log.
FEWEST_BLOCKS = 64

# Rows of a segment. Shorter ends of trajectories that a block cuts off are left out.
SHORTEST_SEGMENT = 50

# When the memory is full, blocks are dropped until they take this share of it.
ROOM = 0.75

# Multiples of the golden ratio modulo 1 fill [0, 1) evenly, whatever their number: blocks of low
# rank lie evenly over the log, and not in step with files of one length.
_GOLDEN_RATIO = (5**0.5 - 1) / 2

# Rows in a sketch, spread evenly over the moving rows of the log.
SKETCH_ROWS = 128

# Significant digits of their values.
SKETCH_DIGITS = 7

# Rows are equal if no value differs by more than this share of its spread: logs written with few
# digits are still recognised.
ALIKE = 1e-3

# Rows that are searched at once, which bounds the additional memory.
SEARCHED_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class LogPart:
    """Consecutive rows of a log.

    Attributes:
        recording: the rows.
        files: the files that they come from, whose first rows are counted in the part.
        first: number of the first row in the log.
        continues: whether the first row continues the last trajectory of the part before.
        last: whether it is known that no part follows.
    """

    recording: Recording
    files: tuple[FileRows, ...]
    first: int
    continues: bool
    last: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether this part is all of the log."""
        return self.last and not self.first

    def require_sound(self) -> None:
        """Refuse what a fit cannot use, first file by file and then in all of them together."""
        whole = self.recording
        starts = [file.start for file in self.files]
        for file, end in zip(self.files, [*starts[1:], len(whole.t)], strict=True):
            source = file.source
            if file.row:
                source += f" from row {file.row}"
            require_sound(replace(whole.rows(slice(file.start, end)), source=source))
        if len(self.files) > 1:
            require_sound(whole)


def single_parts(pieces: Iterator[Recording]) -> Iterator[LogPart]:
    """Yield each piece of a log as a part of its own."""
    rows_read = 0
    rows_of_file: dict[str, int] = {}
    last: tuple[str, int] | None = None
    for piece in pieces:
        row = rows_of_file.get(piece.source, 0)
        if piece.files:  # of a file that was cut
            row = piece.files[0].row
        continues = last == (piece.source, int(piece.trajectory[0]))
        yield LogPart(piece, (FileRows(piece.source, 0, row),), rows_read, continues)
        rows_of_file[piece.source] = row + len(piece.t)
        rows_read += len(piece.t)
        last = (piece.source, int(piece.trajectory[-1]))


def joined_parts(pieces: Iterator[Recording], most: float) -> Iterator[LogPart]:
    """Join pieces of a log to parts of at most `most` bytes, and half of that after the first part.

    What is kept of the first parts needs the other half.
    """
    builder = _PartBuilder()
    room = most
    for piece in single_parts(_small(pieces, most / FEWEST_PIECES)):
        if builder.nbytes and builder.nbytes + piece.recording.nbytes > room:
            yield builder.part(last=False)
            builder = _PartBuilder()
            room = most / 2
        builder.add(piece)
    yield builder.part(last=True)


def excerpt_of(recording: Recording, most: float) -> Recording:
    """Return the recording if it fits into `most` bytes, else evenly spaced segments that do."""
    if recording.nbytes <= most:
        return recording
    builder = ExcerptBuilder(most)
    for part in joined_parts(iter([recording]), most):
        builder.add(part)
    return builder.recording()


class ExcerptBuilder:
    """Takes a log part by part and keeps evenly spaced blocks of it that fit into memory."""

    def __init__(self, most: float):
        """Keep at most `most` bytes."""
        self._most = most
        self._head: Recording | None = None
        self._files: dict[str, FileRows] = {}
        self._labels: set[int] = set()
        self._rows = 0
        self._block_rows = 0
        self._blocks: list[_Block] = []
        self._nbytes = 0
        # Labels of the first and of the last row of every block, including dropped ones.
        self._edges: list[tuple[int, int]] = []
        # Blocks of this rank and above are dropped.
        self._bound = 1.0

    def add(self, part: LogPart) -> None:
        """Keep the blocks of the next part of the log whose rank is low enough."""
        recording = part.recording
        if self._head is None:
            self._head = copied_rows(recording, slice(0, 1))
            self._block_rows = _block_rows(recording, self._most)
        for file in part.files:
            here = FileRows(file.source, self._rows + file.start, file.row)
            self._files.setdefault(file.source, here)
        labels = recording.trajectory
        for start, end in itertools.pairwise(_block_bounds(labels, self._block_rows)):
            number = len(self._edges)
            self._edges.append((int(labels[start]), int(labels[end - 1])))
            if _rank(number) >= self._bound:
                continue
            kept = copied_rows(recording, slice(start, end))
            self._blocks.append(_Block(number, self._rows + start, kept.nbytes, kept.columns))
            self._nbytes += kept.nbytes
            if self._nbytes > self._most:
                self._drop_blocks()
        self._rows += len(recording.t)
        self._labels.update(np.unique(labels).tolist())

    def recording(self) -> Recording:
        """Return the excerpt; the blocks are used up."""
        assert self._head is not None  # a log without rows is refused
        rows = np.concatenate([np.asarray(block.rows) for block in self._blocks])
        segments = self._segments(rows, self._taken("trajectory"))
        bounds = np.array([segment[:2] for segment in segments])
        number = np.searchsorted(bounds[:, 0], rows, side="right") - 1
        chosen = (number >= 0) & (rows < bounds[number, 1])
        columns = {"trajectory": number[chosen]}
        # One column at a time, and out of the blocks, so that few rows are in memory twice.
        for name in list(self._blocks[0].columns):
            columns[name] = self._taken(name)[chosen]
        ends = np.cumsum(bounds[:, 1] - bounds[:, 0])
        starts = np.concatenate([[0], ends[:-1]])
        durations = columns["t"][ends - 1] - columns["t"][starts]
        excerpt = Excerpt(
            self._rows, len(self._labels), segments, seconds=float(np.median(durations))
        )
        source = _source_of(list(self._files))
        files = tuple(self._files.values())
        recording = self._head.with_columns(columns)
        return replace(recording, source=source, excerpt=excerpt, files=files)

    def _taken(self, name: str) -> np.ndarray:
        """Return a column of all blocks, and remove it from them."""
        return np.concatenate([block.columns.pop(name) for block in self._blocks])

    def _drop_blocks(self) -> None:
        for block in sorted(self._blocks[1:], key=lambda block: -_rank(block.number)):
            if self._nbytes <= ROOM * self._most:
                break
            self._nbytes -= block.nbytes
            self._bound = _rank(block.number)
        self._blocks = [block for block in self._blocks if _rank(block.number) < self._bound]

    def _segments(
        self, rows: Int[np.ndarray, " time"], labels: Int[np.ndarray, " time"]
    ) -> tuple[RowRange, ...]:
        """Return consecutive rows of one trajectory, without short ends that blocks cut off."""
        # Labels on the other side of the edges of blocks: segments of the same label were cut.
        label_before = {}
        label_after = {}
        for block in self._blocks:
            if block.number > 0:
                label_before[block.rows.start] = self._edges[block.number - 1][1]
            if block.number + 1 < len(self._edges):
                label_after[block.rows.stop] = self._edges[block.number + 1][0]
        breaks = np.flatnonzero((np.diff(rows) != 1) | (np.diff(labels) != 0)) + 1
        segments = []
        long = []
        for start, end in itertools.pairwise([0, *breaks.tolist(), len(rows)]):
            segment = RowRange(int(rows[start]), int(rows[end - 1]) + 1, int(labels[start]))
            beside = (label_before.get(segment.first), label_after.get(segment.end))
            segments.append(segment)
            if end - start >= SHORTEST_SEGMENT or segment.trajectory not in beside:
                long.append(segment)
        return tuple(long or segments)


def sketch(recording: Recording | Dataset) -> dict[str, Any]:
    """Return the number of rows, and the positions and torques of some of them, for JSON."""
    moving = np.flatnonzero(_moving(recording))
    rows = moving[evenly_spaced(len(moving), SKETCH_ROWS)]
    rounded = []
    for row in _states(recording, rows).tolist():
        rounded.append([float(f"{value:.{SKETCH_DIGITS}g}") for value in row])
    return {"rows": len(recording.t), "kept": rounded}


def share_known(known: Mapping[str, Any], recording: Recording | Dataset) -> float:
    """Estimate the share of a recording's rows that belong to the log behind a sketch."""
    sketched = np.asarray(known["kept"], dtype=float)
    width = 2 * recording.joints.dof
    if sketched.ndim != 2 or sketched.shape[1] != width or not np.isfinite(sketched).all():
        raise ValueError(
            f"a sketch of {recording.joints.dof} joints needs rows of {width} finite numbers"
        )
    spread = nonzero_scale(sketched.std(axis=0))
    present = np.zeros(len(sketched), dtype=bool)
    for first in range(0, len(recording.t), SEARCHED_ROWS):
        values = _states(recording, slice(first, first + SEARCHED_ROWS))
        values = values[np.isfinite(values).all(axis=1)]
        if len(values):
            distance, _ = KDTree(values / spread).query(
                sketched / spread, p=np.inf, distance_upper_bound=ALIKE
            )
            present |= np.isfinite(distance)
    return float(min(1.0, present.mean() * known["rows"] / len(recording.t)))


def _states(
    recording: Recording | Dataset, rows: np.ndarray | slice
) -> Float[np.ndarray, "rows values"]:
    return np.concatenate([recording.q[rows], recording.tau[rows]], axis=1, dtype=float)


def _moving(recording: Recording | Dataset) -> Bool[np.ndarray, " rows"]:
    """Return the faster half of the rows: at rest, other logs of the robot look the same."""
    spread = nonzero_scale(recording.q.std(axis=0))
    steps = np.abs(np.gradient(recording.q, axis=0) / spread).max(axis=1)
    return steps >= np.median(steps)


def copied_rows(recording: Recording, rows: slice) -> Recording:
    """Return rows that do not keep the memory of all others in use, as a view would."""
    chosen = recording.rows(rows)
    return chosen.with_columns({name: values.copy() for name, values in chosen.columns.items()})


def _source_of(files: list[str]) -> str:
    """Return the name of the first file and the number of the others."""
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _small(pieces: Iterator[Recording], most: float) -> Iterator[Recording]:
    """Yield the pieces, those of more than `most` bytes in several."""
    for piece in pieces:
        count = len(piece.t)
        rows = count
        if piece.nbytes > most:
            rows = max(1, int(most / piece.nbytes * count))
        for start in range(0, count, rows):
            files = []
            for file in piece.files:
                files.append(file._replace(row=file.row + start))
            yield replace(piece.rows(slice(start, start + rows)), files=tuple(files))


class _PartBuilder:
    """A part under construction."""

    def __init__(self) -> None:
        self._columns: dict[str, _GrowingArray] = {}
        self._head: LogPart | None = None
        self._files: list[FileRows] = []
        self._rows = 0
        self.nbytes = 0

    def add(self, piece: LogPart) -> None:
        """Append a piece, which is of one file."""
        recording = piece.recording
        if self._head is None:
            self._head = replace(piece, recording=copied_rows(recording, slice(0, 1)))
        source, _, row = piece.files[0]
        if not self._files or self._files[-1].source != source:
            self._files.append(FileRows(source, self._rows, row))
        for name, values in recording.columns.items():
            self._columns.setdefault(name, _GrowingArray(values)).append(values)
        self._rows += len(recording.t)
        self.nbytes += recording.nbytes

    def part(self, *, last: bool) -> LogPart:
        """Return the part."""
        assert self._head is not None  # a log without rows is refused
        columns = {name: column.whole() for name, column in self._columns.items()}
        source = _source_of([file.source for file in self._files])
        files = tuple(self._files)
        whole = replace(self._head.recording.with_columns(columns), source=source, files=files)
        return replace(self._head, recording=whole, files=files, last=last)


class _GrowingArray:
    """An array that grows in place, so that no row of a large log is in memory twice."""

    def __init__(self, like: np.ndarray):
        self._array = np.empty((0, *like.shape[1:]), like.dtype)
        self._rows = 0

    def append(self, values: np.ndarray) -> None:
        end = self._rows + len(values)
        if end > len(self._array):
            # One eighth more than needed keeps the number of reallocations logarithmic.
            room = end + end // 8 if self._rows else end
            self._array.resize((room, *values.shape[1:]), refcheck=False)
        self._array[self._rows : end] = values
        self._rows = end

    def whole(self) -> np.ndarray:
        self._array.resize((self._rows, *self._array.shape[1:]), refcheck=False)
        return self._array


@dataclass(frozen=True, eq=False)
class _Block:
    """Consecutive rows of a log: number of the block, number of its first row, its columns."""

    number: int
    first: int
    nbytes: int
    columns: dict[str, np.ndarray]

    @property
    def rows(self) -> range:
        return range(self.first, self.first + len(self.columns["t"]))


def _rank(number: int) -> float:
    return number * _GOLDEN_RATIO % 1.0


def _block_rows(recording: Recording, most: float) -> int:
    """Return the largest number of rows in a block."""
    step = usual_step(recording.t)
    rows = max(BLOCK_SECONDS / step, FEWEST_ROWS) if step else FEWEST_ROWS
    row_bytes = recording.rows(slice(0, 1)).nbytes
    return max(1, int(min(rows, most / (FEWEST_BLOCKS * row_bytes))))


def _block_bounds(labels: Int[np.ndarray, " time"], most: int) -> list[int]:
    """Return the bounds of blocks of at most `most` rows.

    Long trajectories are divided evenly, short ones share a block.
    """
    edges = [0]
    for start, end in itertools.pairwise(trajectory_bounds(labels)):
        if end - edges[-1] > most and start > edges[-1]:
            edges.append(start)
        count = -(-(end - start) // most)
        if count > 1:
            edges += [start + (end - start) * number // count for number in range(1, count + 1)]
    if edges[-1] != len(labels):
        edges.append(len(labels))
    return edges
