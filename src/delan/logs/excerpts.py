"""Logs larger than memory: parts that fit into it, and an excerpt of evenly spaced segments."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from ..errors import DataError
from ..joints import Excerpt, Recording, RowRange
from .segments import trajectory_bounds, usual_step
from .soundness import require_sound

# A part is joined from at least this many pieces, so that its size comes near the limit.
FEWEST_PIECES = 4


@dataclass(frozen=True, eq=False)
class LogPart:
    """Consecutive rows of a log.

    Attributes:
        recording: the rows.
        files: for each file, or group in one, its name, its first row in this part, and the number
            of that row in the file.
        first: number of the first row in the log.
        continues: whether the first row continues the last trajectory of the part before.
        last: whether no part follows.
    """

    recording: Recording
    files: tuple[tuple[str, int, int], ...]
    first: int
    continues: bool
    last: bool

    def require_sound(self) -> None:
        """Refuse what a fit cannot use, first file by file and then in all of them together."""
        whole = self.recording
        ends = [*(start for _, start, _ in self.files[1:]), len(whole.t)]
        for (source, start, row), end in zip(self.files, ends, strict=True):
            rows = whole.rows(slice(start, end))
            require_sound(replace(rows, source=source_from(source, row)))
        if len(self.files) > 1:
            require_sound(whole)


def source_from(source: str, row: int) -> str:
    """Return the name of a file, with the first row if it is not the first of the file."""
    return f"{source} from row {row}" if row else source


def source_of(files: list[str]) -> str:
    """Return the name of the first file and the number of the others."""
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def parts_of(pieces: Iterator[Recording], most: float) -> Iterator[LogPart]:
    """Join pieces of a log to parts of at most `most` bytes, and half of that after the first part.

    What is kept of the first parts needs the other half.
    """
    builder = _PartBuilder()
    room = most
    rows_read = 0
    rows_of_file: dict[str, int] = {}
    last: tuple[str, int] | None = None
    for piece in _small(pieces, most / FEWEST_PIECES):
        if builder.rows and builder.nbytes + piece.nbytes > room:
            yield builder.take(last=False)
            builder = _PartBuilder()
            room = most / 2
        if not builder.rows:
            builder.first = rows_read
            builder.continues = last == (piece.source, int(piece.trajectory[0]))
        row = rows_of_file.get(piece.source, 0)
        builder.add(piece, row)
        rows_of_file[piece.source] = row + len(piece.t)
        rows_read += len(piece.t)
        last = (piece.source, int(piece.trajectory[-1]))
    yield builder.take(last=True)


def _small(pieces: Iterator[Recording], most: float) -> Iterator[Recording]:
    """Yield the pieces, those of more than `most` bytes in several."""
    for piece in pieces:
        count = len(piece.t)
        if piece.nbytes <= most:
            yield piece
            continue
        rows = max(1, int(most / piece.nbytes * count))
        for start in range(0, count, rows):
            yield piece.rows(slice(start, start + rows))


class TimeOrder:
    """Check that time increases from each piece of a trajectory to the next."""

    def __init__(self) -> None:
        self._last: tuple[str, int, float] | None = None

    def require_increasing(self, source: str, row: int, piece: Recording) -> None:
        """Refuse a piece that continues the last one at an earlier time; `row` is its first row."""
        if self._last is None:
            return
        *last_trajectory, last_t = self._last
        same = last_trajectory == [source, int(piece.trajectory[0])]
        if same and not piece.t[0] > last_t:
            problem = f"time does not increase: {piece.t[0]} s after {last_t} s; sort the rows"
            raise DataError(source, problem, column="t", row=row)

    def end(self, source: str, piece: Recording) -> None:
        """Remember where a piece ends."""
        self._last = (source, int(piece.trajectory[-1]), float(piece.t[-1]))


class _PartBuilder:
    """A part under construction."""

    def __init__(self) -> None:
        self._columns: dict[str, _GrowingArray] = {}
        self._head: Recording | None = None
        self._files: list[tuple[str, int, int]] = []
        self.rows = 0
        self.nbytes = 0
        self.first = 0
        self.continues = False

    def add(self, piece: Recording, row: int) -> None:
        """Append a piece whose first row has the number `row` in its file."""
        self._head = self._head or piece.rows(slice(0, 1))
        if not self._files or self._files[-1][0] != piece.source:
            self._files.append((piece.source, self.rows, row))
        for name, values in piece.columns.items():
            self._columns.setdefault(name, _GrowingArray(values)).append(values)
        self.rows += len(piece.t)
        self.nbytes += piece.nbytes

    def take(self, *, last: bool) -> LogPart:
        """Return the part."""
        assert self._head is not None  # a log without rows is refused
        whole = self._head.with_columns(
            {name: column.whole() for name, column in self._columns.items()}
        )
        whole = replace(whole, source=source_of([source for source, _, _ in self._files]))
        return LogPart(whole, tuple(self._files), self.first, self.continues, last)


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
class _Block:
    """Consecutive rows of a log: number of the block, number of its first row, its columns."""

    number: int
    first: int
    columns: dict[str, np.ndarray]

    @property
    def rank(self) -> float:
        return _rank(self.number)

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for values in self.columns.values())

    @property
    def rows(self) -> range:
        return range(self.first, self.first + len(self.columns["t"]))


def _rank(number: int) -> float:
    return number * _GOLDEN_RATIO % 1.0


def excerpt_of(recording: Recording, most: float) -> Recording:
    """Return the recording if it fits into `most` bytes, else evenly spaced segments that do."""
    if recording.nbytes <= most:
        return recording
    builder = ExcerptBuilder(most)
    for part in parts_of(iter([recording]), most):
        builder.add(part)
    return builder.recording()


class ExcerptBuilder:
    """Takes a log part by part and keeps what fits: all of it, or evenly spaced blocks."""

    def __init__(self, most: float):
        """Keep at most `most` bytes."""
        self._most = most
        self._only: LogPart | None = None
        self._head: Recording | None = None
        self._files: dict[str, None] = {}  # an ordered set
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
        """Add the next part of the log."""
        self._files |= dict.fromkeys(source for source, _, _ in part.files)
        if self._head is None:
            self._head = part.recording.rows(slice(0, 1))
            self._only = part
            return
        if self._only is not None:
            self._block_rows = _block_rows(self._only.recording, self._most)
            self._keep_blocks(self._only.recording)
            self._only = None
        self._keep_blocks(part.recording)

    def recording(self) -> Recording:
        """Return the log if it came in one part, else its excerpt."""
        if self._only is not None:
            return self._only.recording
        assert self._head is not None  # a log without rows is refused
        rows = np.concatenate([np.asarray(block.rows) for block in self._blocks])
        labels = np.concatenate([block.columns["trajectory"] for block in self._blocks])
        segments = self._segments(rows, labels)
        number = np.searchsorted([segment.first for segment in segments], rows, side="right") - 1
        chosen = (number >= 0) & (rows < np.array([segment.end for segment in segments])[number])
        columns = {}
        # One column at a time, and out of the blocks, so that few rows are in memory twice.
        for name in self._head.columns:
            whole = np.concatenate([block.columns.pop(name) for block in self._blocks])
            columns[name] = whole[chosen]
        columns["trajectory"] = number[chosen]
        ends = np.cumsum([segment.end - segment.first for segment in segments])
        starts = np.concatenate([[0], ends[:-1]])
        durations = columns["t"][ends - 1] - columns["t"][starts]
        return replace(
            self._head.with_columns(columns),
            source=source_of(list(self._files)),
            excerpt=Excerpt(
                self._rows, len(self._labels), segments, seconds=float(np.median(durations))
            ),
        )

    def _keep_blocks(self, recording: Recording) -> None:
        """Keep the blocks of more rows whose rank is low enough."""
        labels = recording.trajectory
        for start, end in itertools.pairwise(_block_bounds(labels, self._block_rows)):
            number = len(self._edges)
            self._edges.append((int(labels[start]), int(labels[end - 1])))
            if _rank(number) >= self._bound:
                continue
            columns = {name: values[start:end].copy() for name, values in recording.columns.items()}
            block = _Block(number, self._rows + start, columns)
            self._blocks.append(block)
            self._nbytes += block.nbytes
            if self._nbytes > self._most:
                self._drop_blocks()
        self._rows += len(recording.t)
        self._labels |= set(np.unique(labels).tolist())

    def _drop_blocks(self) -> None:
        for block in sorted(self._blocks[1:], key=lambda block: -block.rank):
            if self._nbytes <= ROOM * self._most:
                break
            self._nbytes -= block.nbytes
            self._bound = block.rank
        self._blocks = [block for block in self._blocks if block.rank < self._bound]

    def _segments(
        self, rows: Int[np.ndarray, " time"], labels: Int[np.ndarray, " time"]
    ) -> tuple[RowRange, ...]:
        """Return consecutive rows of one trajectory, without short ends that blocks cut off."""
        breaks = np.flatnonzero((np.diff(rows) != 1) | (np.diff(labels) != 0)) + 1
        segments = []
        for start, end in itertools.pairwise([0, *breaks.tolist(), len(rows)]):
            segments.append(RowRange(int(rows[start]), int(rows[end - 1]) + 1, int(labels[start])))
        before = {block.rows.start: block.number - 1 for block in self._blocks}
        after = {block.rows.stop: block.number + 1 for block in self._blocks}

        def is_cut(segment: RowRange) -> bool:
            """Return whether the trajectory continues in the block before or after it."""
            previous = before.get(segment.first, -1)
            following = after.get(segment.end, len(self._edges))
            if previous >= 0 and self._edges[previous][1] == segment.trajectory:
                return True
            return following < len(self._edges) and self._edges[following][0] == segment.trajectory

        long = []
        for segment in segments:
            if segment.end - segment.first >= SHORTEST_SEGMENT or not is_cut(segment):
                long.append(segment)
        return tuple(long or segments)


def _block_rows(recording: Recording, most: float) -> int:
    """Return the largest number of rows in a block."""
    step = usual_step(recording.t)
    rows = max(BLOCK_SECONDS / step, FEWEST_ROWS) if step else FEWEST_ROWS
    return max(1, int(min(rows, most / (FEWEST_BLOCKS * recording.rows(slice(0, 1)).nbytes))))


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


def sketch(recording: Recording) -> dict[str, Any]:
    """Return the number of rows, and the positions and torques of some of them, for JSON."""
    values = _states(recording, slice(None))
    moving = np.flatnonzero(_moving(recording))
    rows = moving[np.unique(np.linspace(0, len(moving) - 1, SKETCH_ROWS).astype(int))]
    rounded = []
    for row in values[rows].tolist():
        rounded.append([float(f"{value:.{SKETCH_DIGITS}g}") for value in row])
    return {"rows": len(recording.t), "kept": rounded}


def share_known(known: Mapping[str, Any], recording: Recording) -> float:
    """Estimate the share of a recording's rows that belong to the log behind a sketch."""
    sketched = np.asarray(known["kept"], dtype=float)
    width = 2 * recording.joints.dof
    if sketched.ndim != 2 or sketched.shape[1] != width or not np.isfinite(sketched).all():
        raise ValueError(
            f"a sketch of {recording.joints.dof} joints needs rows of {width} finite numbers"
        )
    spread = sketched.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
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


def _states(recording: Recording, rows: slice) -> Float[np.ndarray, "rows values"]:
    return np.concatenate([recording.q[rows], recording.tau[rows]], axis=1, dtype=float)


def _moving(recording: Recording) -> Bool[np.ndarray, " rows"]:
    """Return the faster half of the rows: at rest, other logs of the robot look the same."""
    spread = recording.q.std(axis=0)
    steps = np.abs(np.gradient(recording.q, axis=0) / np.where(spread > 0, spread, 1.0)).max(axis=1)
    return steps >= np.median(steps)
