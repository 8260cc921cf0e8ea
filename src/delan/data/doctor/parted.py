"""The check-up of a log too large to be held: every row in its part, and an excerpt for what only the whole tells."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from ...joints import Recording, Run
from ..excerpts import Keeper
from ..log_parts import Part, columns_of, rows_between
from .finding import Finding, Kind, plural, worst_first
from .places import Places, united
from .timing import begun_again

LOCAL: frozenset[Kind] = frozenset(
    {
        "non_finite",
        "outlier",
        "wrapped",
        "gap",
        "jitter",
        "duplicate",
        "clock_reset",
        "mixed_rates",
        "interleaved",
        "short",
        "stuck",
        "saturated",
    }
)
"""What sits somewhere is looked for in every part. The rest is told of the whole log, by its excerpt, and of a part
only where it is an error there."""
SEAM_ROWS, SEAM_REACH = 1000, 5
"""Rows on either side of a cut that are examined together, and how near to the cut a finding of them must be."""


@runtime_checkable
class Examine(Protocol):
    """The doctor: `examine`, with what is known of the robot."""

    def __call__(self, recording: Recording, *, part: bool = False) -> tuple[Finding, ...]: ...


def examine_parts(parts: Iterable[Part], most: float, examine: Examine) -> tuple[Recording, tuple[Finding, ...]]:
    """The log, or an excerpt if it takes more bytes than `most`, and everything found in it, the worst first.

    A log of one part is examined as it is. Of a larger one every row is, and findings are told in rows of the log.
    """
    keeper, check = Keeper(most), _Check(examine)
    for part in parts:
        if part.last and not part.first:
            return part.recording, examine(part.recording)
        keeper.add(part)
        check.add(part)
        del part  # before the next is read
    recording = keeper.recording()
    return recording, check.merged(examine(recording))


class _Check:
    """What is found in one part after the other, told in rows of the log."""

    def __init__(self, examine: Examine):
        self._examine = examine
        self._found: dict[tuple[Kind, int | None, str | None], dict[int, Finding]] = {}
        self._parts = self._rows = 0
        self._tail: Recording | None = None
        self._seen: set[int] = set()

    def add(self, part: Part) -> None:
        recording = part.recording
        self._parts, self._rows = self._parts + 1, part.first + len(recording.t)
        self._place(part.first, _of_a_part(self._examine(recording, part=True), part))
        if part.goes_on and self._tail is not None:
            self._place(part.first - len(self._tail.t), self._at_seam(self._tail, recording))
        self._place(0, self._again(part))
        self._tail = _copied(recording, max(0, len(recording.t) - SEAM_ROWS), len(recording.t))

    def merged(self, of_excerpt: Sequence[Finding]) -> tuple[Finding, ...]:
        """One finding a fault: those of the excerpt that concern the whole log, and those of the parts."""
        whole = [finding for finding in of_excerpt if finding.kind not in LOCAL or finding.kind == "mixed_rates"]
        for finding in whole:
            if finding.kind == "mixed_rates":  # between parts only the excerpt shows it
                self._found.setdefault(_key(finding), {}).setdefault(-1, finding)
        told = {_key(finding) for finding in whole if finding.severity == "error"}
        left = [found for key, found in self._found.items() if key[0] in LOCAL or key not in told]
        of_parts = [_one_of(list(found.values()), self._rows) for found in left]
        return worst_first([*(finding for finding in whole if finding.kind not in LOCAL), *of_parts])

    def _place(self, row: int, found: Iterable[Finding]) -> None:
        """Keep findings of rows that begin with this one of the log."""
        places = Places((Run(row, self._rows, 0),))
        for finding in found:
            own = self._found.setdefault(_key(finding), {})
            placed = places.in_log(finding)
            if self._parts in own:
                placed = replace(own[self._parts], rows=united((*own[self._parts].rows, *placed.rows)))
            own[self._parts] = placed

    def _at_seam(self, before: Recording, after: Recording) -> Iterator[Finding]:
        """What sits at the cut through a trajectory."""
        head = columns_of(replace(after, **rows_between(after, 0, SEAM_ROWS)))
        joined = {name: np.concatenate([values, head[name]]) for name, values in columns_of(before).items()}
        truth = {name: joined.pop(name) for name in before.truth}
        cut = len(before.t)
        for finding in self._examine(replace(before, **joined, truth=truth), part=True):
            near = tuple(span for span in finding.rows if span[0] <= cut + SEAM_REACH and span[1] >= cut - SEAM_REACH)
            if near and finding.kind in LOCAL:
                yield replace(finding, rows=near)

    def _again(self, part: Part) -> Iterator[Finding]:
        """Trajectories that go on after another, which began in an earlier part."""
        labels = part.recording.trajectory
        new, first = np.unique(labels, return_index=True)
        for label, row in zip(new.tolist(), first.tolist(), strict=True):
            if label in self._seen and not (row == 0 and part.goes_on):
                end = row + int(np.argmin(np.append(labels[row:] == label, False)))
                yield begun_again(label, part.first + row, part.first + end)
        self._seen |= set(new.tolist())


def _key(finding: Finding) -> tuple[Kind, int | None, str | None]:
    return finding.kind, finding.joint, finding.column


def _of_a_part(found: Sequence[Finding], part: Part) -> Iterator[Finding]:
    """The findings that a part alone can tell; what is of all its rows has them as its place."""
    resting = {finding.joint for finding in found if finding.kind == "dead" and finding.column == "q"}
    for finding in found:
        cut_off = finding.kind == "short" and part.goes_on and finding.rows[0][0] == 0
        at_rest = finding.kind == "dead" and finding.joint in resting
        if (finding.kind in LOCAL and not cut_off) or (finding.severity == "error" and not at_rest):
            yield finding if finding.rows else replace(finding, rows=((0, len(part.recording.t)),))


def _one_of(found: Sequence[Finding], rows: int) -> Finding:
    """The worst of what parts of a log tell of one fault, the one in most rows, with the places of all."""
    worst, *others = worst_first(sorted(found, key=lambda one: sum(first - end for first, end in one.rows)))
    places = united(span for finding in found for span in finding.rows)
    text = worst.text + (f"; so it is in {plural(len(others), 'other part')} of the log" if others else "")
    return replace(worst, text=text, rows=() if places == ((0, rows),) else places)


def _copied(recording: Recording, start: int, end: int) -> Recording:
    """Some rows of a recording, which let go of the rest."""
    cut = rows_between(recording, start, end)
    truth = {name: values.copy() for name, values in cut.pop("truth").items()}
    return replace(recording, **{name: values.copy() for name, values in cut.items()}, truth=truth)
