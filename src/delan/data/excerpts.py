"""Of a log larger than memory may hold: runs without a break, evenly over it, because filters need neighbours.

The log is cut into blocks as it is read, and the blocks are ranked by the golden ratio: however many of the first in
rank are kept, they lie evenly over the log, and in step with nothing that repeats in it, such as files of one length.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from ..joints import Excerpt, Recording, Run
from .log_parts import Part, bytes_of, columns_of, parts_of, rows_between

BLOCK_SECONDS = 60.0
"""A block lasts so long [s],"""
FEWEST_ROWS = 1000
"""but has so many rows at least,"""
FEWEST_BLOCKS = 64
"""unless fewer blocks than this would fit."""
SHORTEST_RUN = 50
"""Rows of a run at least, unless its trajectory has no more: what a block cuts off from one may be shorter."""
ROOM = 0.75
"""Where the blocks no longer fit, so many are dropped that this share of the room is taken."""
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, eq=False)
class _Block:
    """Rows of a log that follow each other: number of the block, number of its first row, its columns."""

    number: int
    first: int
    columns: dict[str, np.ndarray]

    @property
    def rank(self) -> float:
        return _rank(self.number)

    @property
    def bytes(self) -> int:
        return sum(values.nbytes for values in self.columns.values())

    @property
    def rows(self) -> range:
        return range(self.first, self.first + len(self.columns["t"]))


def _rank(number: int) -> float:
    return number * _GOLDEN % 1.0


def excerpt_of(recording: Recording, most: float) -> Recording:
    """The recording if it fits into so many bytes, else runs evenly over it that do."""
    if bytes_of(recording) <= most:
        return recording
    keeper = Keeper(most)
    for part in parts_of(iter([recording]), most):
        keeper.add(part)
    return keeper.recording()


class Keeper:
    """Takes a log part by part and keeps what fits into so many bytes: all of it, or blocks evenly over it."""

    def __init__(self, most: float):
        self._most = most
        self._only: Part | None = None
        self._head: Recording | None = None
        self._files: set[str] = set()
        self._labels: set[int] = set()
        self._rows = self._block_rows = 0
        self._blocks: list[_Block] = []
        self._held = 0
        self._edges: list[tuple[int, int]] = []  # labels of the first and of the last row of every block there was
        self._bound = 1.0  # blocks of this rank and above are not kept

    def add(self, part: Part) -> None:
        """The next part of the log."""
        self._files |= {source for source, _, _ in part.files}
        if self._head is None:
            self._head = replace(part.recording, **rows_between(part.recording, 0, 1))
            self._only = part
            return
        if self._only is not None:
            self._block_rows = _block_rows(self._only.recording, self._most)
            self._cut(self._only.recording)
            self._only = None
        self._cut(part.recording)

    def recording(self) -> Recording:
        """The log if it came in one part, else its excerpt."""
        if self._only is not None:
            return self._only.recording
        head = self._head
        assert head is not None  # a log without rows is refused
        rows = np.concatenate([np.asarray(block.rows) for block in self._blocks])
        labels = np.concatenate([block.columns["trajectory"] for block in self._blocks])
        runs = tuple(self._runs(rows, labels))
        number = np.searchsorted([run.first for run in runs], rows, side="right") - 1
        kept = rows < np.array([run.end for run in runs])[number]
        kept &= number >= 0
        columns = {}
        for name in columns_of(head):  # one by one, so that little is held twice
            columns[name] = np.concatenate([block.columns.pop(name) for block in self._blocks])[kept]
        columns["trajectory"] = number[kept]
        truth = {name: columns.pop(name) for name in head.truth}
        starts = np.cumsum([0, *(run.end - run.first for run in runs)])
        lasts = columns["t"][starts[1:] - 1] - columns["t"][starts[:-1]]
        excerpt = Excerpt(self._rows, len(self._labels), runs, seconds=float(np.median(lasts)))
        source = head.source if len(self._files) == 1 else f"{head.source} and {len(self._files) - 1} more"
        return replace(head, **columns, truth=truth, source=source, excerpt=excerpt)

    def _cut(self, recording: Recording) -> None:
        """Keep the blocks of more rows whose rank is low enough."""
        for start, end in itertools.pairwise(_cuts(recording.trajectory, self._block_rows)):
            number = len(self._edges)
            self._edges.append((int(recording.trajectory[start]), int(recording.trajectory[end - 1])))
            if _rank(number) < self._bound:
                columns = {name: values[start:end].copy() for name, values in columns_of(recording).items()}
                self._blocks.append(_Block(number, self._rows + start, columns))
                self._held += self._blocks[-1].bytes
                if self._held > self._most:
                    self._make_room()
        self._rows += len(recording.t)
        self._labels |= set(np.unique(recording.trajectory).tolist())

    def _make_room(self) -> None:
        for block in sorted(self._blocks[1:], key=lambda block: -block.rank):
            if self._held <= ROOM * self._most:
                break
            self._held -= block.bytes
            self._bound = block.rank
        self._blocks = [block for block in self._blocks if block.rank < self._bound]

    def _runs(self, rows: Int[np.ndarray, " time"], labels: Int[np.ndarray, " time"]) -> Iterator[Run]:
        """Rows of one trajectory that follow each other, but for short ends that blocks cut off."""
        breaks = np.flatnonzero((np.diff(rows) != 1) | (np.diff(labels) != 0)) + 1
        edges = [0, *breaks.tolist(), len(rows)]
        runs = [Run(int(rows[a]), int(rows[b - 1]) + 1, int(labels[a])) for a, b in itertools.pairwise(edges)]
        begins = {block.rows.start: block.number for block in self._blocks}
        ends = {block.rows.stop: block.number for block in self._blocks}

        def is_cut(run: Run) -> bool:
            before, after = begins.get(run.first, 0) - 1, ends.get(run.end, len(self._edges)) + 1
            begun = before >= 0 and self._edges[before][1] == run.trajectory
            return begun or (after < len(self._edges) and self._edges[after][0] == run.trajectory)

        good = [run for run in runs if run.end - run.first >= SHORTEST_RUN or not is_cut(run)]
        return iter(good or runs)


def _block_rows(recording: Recording, most: float) -> int:
    """How many rows a block has at most."""
    steps = np.diff(recording.t)
    steps = steps[np.isfinite(steps) & (steps > 0)]
    wanted = BLOCK_SECONDS / float(np.median(steps)) if len(steps) else FEWEST_ROWS
    row = sum(values[:1].nbytes for values in columns_of(recording).values())
    return max(1, int(min(max(wanted, FEWEST_ROWS), most / (FEWEST_BLOCKS * row))))


def _cuts(labels: Int[np.ndarray, " time"], most: int) -> list[int]:
    """Where blocks of at most so many rows begin and end: long trajectories in even pieces, short ones together."""
    bounds = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    edges = [0]
    for start, end in itertools.pairwise(bounds):
        if end - edges[-1] > most and start > edges[-1]:
            edges.append(start)
        pieces = -(-(end - start) // most)
        if pieces > 1:
            edges += [start + (end - start) * piece // pieces for piece in range(1, pieces + 1)]
    return edges if edges[-1] == len(labels) else [*edges, len(labels)]
