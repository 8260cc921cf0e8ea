"""Which rows of which files a recording holds: names for rows, which are counted from 0."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class RowRange(NamedTuple):
    """Rows [first, end) of a log, counted from 0, and the label of their trajectory."""

    first: int
    end: int
    trajectory: int


@dataclass(frozen=True)
class Excerpt:
    """The segments of a log that a recording holds when the whole log exceeds the memory limit.

    Attributes:
        rows, trajectories: their numbers in the whole log.
        segments: rows without a break, spread evenly over the log. Each is one trajectory of the
            recording, labelled by its index here.
        seconds: median duration of a segment [s].
    """

    rows: int
    trajectories: int
    segments: tuple[RowRange, ...]
    seconds: float

    @property
    def summary(self) -> str:
        """Size of the excerpt, such as `12 % of the log: 31 segments of 60 s`."""
        share = sum(segment.end - segment.first for segment in self.segments) / self.rows
        noun = "segment" + "s" * (len(self.segments) != 1)
        return (
            f"{100 * share:.2g} % of the log: {len(self.segments)} {noun} of {self.seconds:.3g} s"
        )


class FileRows(NamedTuple):
    """A file, or a group in one, the row of the log that is its first, and that row in the file.

    The last number is not 0 where only a part of the file is meant.
    """

    source: str
    start: int
    row: int

    @property
    def name(self) -> str:
        """Name of the file without its folder, and of the group in it."""
        file, bracket, group = self.source.partition(" [")
        first = file.split(" + ")[0]  # of files side by side, all of which have these rows
        return first.replace("\\", "/").rpartition("/")[2] + bracket + group


def file_of_row(files: Sequence[FileRows], row: int) -> FileRows:
    """Return the file in which a row of a log lies."""
    starts = [file.start for file in files]
    return files[max(0, bisect.bisect_right(starts, row) - 1)]
