"""Where findings are: rows of a recording that is a part of a log told as rows of the log, and the way back."""

import bisect
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ...joints import Run
from .finding import Finding

MOST_SPANS = 10_000
"""of one finding in a large log: what is nearer than some rows is then told as one."""

_ROW = re.compile(r"\brow (\d+)")
"""How the text of a finding tells a row."""

Span = tuple[int, int]


class Places:
    """The rows of a recording, numbered from 0, that are these runs of a log."""

    def __init__(self, runs: Sequence[Run]):
        self._runs = runs
        self._starts = list(itertools.accumulate((run.end - run.first for run in runs), initial=0))

    def in_log(self, finding: Finding) -> Finding:
        """A finding of the recording, told in rows of the log."""
        text = _ROW.sub(lambda told: f"row {self._row(int(told[1]))}", finding.text)
        return replace(finding, text=text, rows=tuple(span for each in finding.rows for span in self._spans(*each)))

    def in_recording(self, finding: Finding) -> Finding:
        """A finding of the log, its rows told in those of the recording, or the nearest to them."""
        firsts = [run.first for run in self._runs]

        def nearest(row: int) -> int:
            place = max(0, bisect.bisect_right(firsts, row) - 1)
            run = self._runs[place]
            return self._starts[place] + min(max(row, run.first), run.end) - run.first

        last = self._starts[-1] - 1
        spans = ((min(nearest(first), last), nearest(end)) for first, end in finding.rows)
        return replace(finding, rows=tuple(dict.fromkeys((first, max(end, first + 1)) for first, end in spans)))

    def _row(self, row: int) -> int:
        place = min(bisect.bisect_right(self._starts, row), len(self._runs)) - 1
        return self._runs[place].first + row - self._starts[place]

    def _spans(self, first: int, end: int) -> Iterable[Span]:
        """A span of the recording, cut where a run ends."""
        while first < end:
            stop = min(end, self._starts[bisect.bisect_right(self._starts, first)])
            yield self._row(first), self._row(first) + stop - first
            first = stop


def united(spans: Iterable[Span]) -> tuple[Span, ...]:
    """All rows of some spans, each once, in at most `MOST_SPANS` spans."""
    ordered = np.array(sorted(spans))
    if not len(ordered):
        return ()
    firsts, ends = ordered[:, 0], np.maximum.accumulate(ordered[:, 1])
    near = 0
    while True:
        apart = np.flatnonzero(firsts[1:] > ends[:-1] + near)
        if len(apart) < MOST_SPANS:
            break
        near = 2 * near + 1
    firsts, ends = firsts[np.concatenate([[0], apart + 1])], ends[np.concatenate([apart, [len(ends) - 1]])]
    return tuple((int(first), int(end)) for first, end in zip(firsts, ends, strict=True))
