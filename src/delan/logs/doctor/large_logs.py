"""Check of logs larger than memory: every row in its part, and an excerpt for the whole log."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from ...joints import Recording
from ...log_rows import RowRange
from ..excerpts import ExcerptBuilder, LogPart
from . import cases
from .finding import Finding, Kind, RowMap, Span, with_files, worst_first
from .time_and_values import interleaved

# Faults that have a place are searched in every part. All others concern the whole log and come
# from its excerpt; a part adds them only where they are errors.
# fmt: off
LOCAL: frozenset[Kind] = frozenset({
    "non_finite", "outlier", "wrapped", "gap", "jitter", "duplicate", "clock_reset", "mixed_rates",
    "interleaved", "short", "stuck", "saturated",
})
# fmt: on
# Rows on either side of a cut between parts that are checked together.
SEAM_ROWS = 1000
# Distance in rows from the cut within which a finding counts.
SEAM_REACH = 5
# Spans of one finding in a large log; with more, neighbouring spans are merged.
MOST_SPANS = 10_000

Key = tuple[Kind, int | None, str | None]


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the union of spans of rows, as at most `MOST_SPANS` spans."""
    ordered = np.array(sorted(spans))
    if not len(ordered):
        return ()
    firsts = ordered[:, 0]
    ends = np.maximum.accumulate(ordered[:, 1])
    distance = 0
    while True:
        breaks = np.flatnonzero(firsts[1:] > ends[:-1] + distance)
        if len(breaks) < MOST_SPANS:
            break
        distance = 2 * distance + 1
    starts = firsts[np.concatenate([[0], breaks + 1])].tolist()
    stops = ends[np.concatenate([breaks, [len(ends) - 1]])].tolist()
    return tuple(zip(starts, stops, strict=True))


@runtime_checkable
class Examine(Protocol):
    """The function `examine`, with what is known about the robot."""

    def __call__(self, recording: Recording, *, part: bool = False) -> tuple[Finding, ...]: ...


def examine_parts(
    parts: Iterable[LogPart], most: float, examine: Examine
) -> tuple[Recording, tuple[Finding, ...]]:
    """Return the log and its findings, the worst first, in rows of the log.

    If the log takes more than `most` bytes, every row is checked but an excerpt is returned.
    """
    excerpt = ExcerptBuilder(most)
    check = _PartCheck(examine)
    for part in parts:
        excerpt.add(part)
        check.add(part)
        del part  # its memory is needed for the next part
    recording = excerpt.recording()
    return recording, with_files(check.merged(examine(recording)), recording)


class _PartCheck:
    """Collects the findings of all parts, in rows of the log."""

    def __init__(self, examine: Examine):
        self._examine = examine
        # The finding of each fault, by the number of the part.
        self._findings: dict[Key, dict[int, Finding]] = {}
        self._parts = 0
        self._rows = 0
        self._tail: Recording | None = None
        self._labels: set[int] = set()

    def add(self, part: LogPart) -> None:
        recording = part.recording
        count = len(recording.t)
        self._parts += 1
        self._rows = part.first + count
        self._store(part.first, _relevant(self._examine(recording, part=True), part))
        if part.continues and self._tail is not None:
            self._store(part.first - len(self._tail.t), self._at_seam(self._tail, recording))
        self._store(0, self._begun_again(part))
        # Copied, so that the memory of the part is released.
        tail = recording.rows(slice(max(0, count - SEAM_ROWS), count)).columns
        self._tail = recording.with_columns({name: rows.copy() for name, rows in tail.items()})

    def merged(self, of_excerpt: Sequence[Finding]) -> tuple[Finding, ...]:
        """Return one finding per fault, from the excerpt for the whole log and from the parts."""
        whole = []
        known = set()
        for finding in of_excerpt:
            if finding.kind not in LOCAL:
                whole.append(finding)
                if finding.severity == "error":
                    known.add(_key(finding))
            elif finding.kind == "mixed_rates":
                # Rates that differ between parts are visible only in the excerpt.
                self._findings.setdefault(_key(finding), {}).setdefault(-1, finding)
        of_parts = []
        for key, findings in self._findings.items():
            if key[0] in LOCAL or key not in known:
                of_parts.append(_summary(list(findings.values()), self._rows))
        return worst_first([*whole, *of_parts])

    def _store(self, row: int, findings: Iterable[Finding]) -> None:
        """Keep findings about rows that begin with this row of the log."""
        row_map = RowMap((RowRange(row, self._rows, 0),))
        for finding in findings:
            of_parts = self._findings.setdefault(_key(finding), {})
            placed = row_map.to_log(finding)
            known = of_parts.get(self._parts)
            if known is not None:
                placed = replace(known, rows=merge_spans((*known.rows, *placed.rows)))
            of_parts[self._parts] = placed

    def _at_seam(self, before: Recording, after: Recording) -> Iterator[Finding]:
        """Yield what is found at a cut through a trajectory."""
        head = after.rows(slice(0, SEAM_ROWS)).columns
        joined = {}
        for name, values in before.columns.items():
            joined[name] = np.concatenate([values, head[name]])
        low = len(before.t) - SEAM_REACH
        high = len(before.t) + SEAM_REACH
        for finding in self._examine(before.with_columns(joined), part=True):
            near = [span for span in finding.rows if span[0] <= high and span[1] >= low]
            if near and finding.kind in LOCAL:
                yield replace(finding, rows=tuple(near))

    def _begun_again(self, part: LogPart) -> Iterator[Finding]:
        """Yield trajectories of earlier parts that continue after another trajectory."""
        labels = part.recording.trajectory
        new, rows = np.unique(labels, return_index=True)
        for label, row in zip(new.tolist(), rows.tolist(), strict=True):
            if label in self._labels and not (row == 0 and part.continues):
                end = row + int(np.argmin(np.append(labels[row:] == label, False)))
                yield interleaved(label, part.first + row, part.first + end)
        self._labels |= set(new.tolist())


def _key(finding: Finding) -> Key:
    return finding.kind, finding.joint, finding.column


def _relevant(findings: Sequence[Finding], part: LogPart) -> Iterator[Finding]:
    """Yield the findings that a part alone can give; those about all its rows get these rows."""
    resting = {finding.joint for finding in findings if finding.case is cases.STANDS_STILL}
    for finding in findings:
        cut_off = finding.kind == "short" and part.continues and finding.rows[0][0] == 0
        # A joint may rest during a part of the log.
        at_rest = finding.kind == "dead" and finding.joint in resting
        if cut_off or at_rest:
            continue
        if finding.kind in LOCAL or finding.severity == "error":
            whole = ((0, len(part.recording.t)),)
            yield replace(finding, rows=finding.rows or whole)


def _summary(findings: Sequence[Finding], rows: int) -> Finding:
    """Return the worst finding of one fault, that in most rows, with the rows of all parts."""
    most_rows = sorted(findings, key=lambda item: sum(first - end for first, end in item.rows))
    worst = worst_first(most_rows)[0]
    spans: list[Span] = []
    for finding in findings:
        spans += finding.rows
    places = merge_spans(spans)
    if places == ((0, rows),):
        places = ()
    return replace(worst, rows=places, other_parts=len(findings) - 1)
