"""Findings of the log check: facts about a recording, from which the sentences are made last."""

import bisect
import itertools
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, SupportsInt

from ...joints import Recording
from ...log_rows import FileRows, RowRange, file_of_row

# An error spoils a fit or makes it refuse the log; a warning costs accuracy; a note is information.
Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
# Rows [first, end), counted from 0.
Span = tuple[int, int]

# fmt: off
Kind = Literal[
    "non_finite", "outlier", "wrapped", "gap", "jitter", "duplicate", "clock_reset", "mixed_rates",
    "interleaved", "short", "dead", "unactuated", "stuck", "saturated", "quantised", "units",
    "sign", "mismatch", "exchanged", "contradiction", "delay", "excitation", "friction", "coverage",
    "excerpt", "commanded",
]
# fmt: on

# Why a finding of each kind matters.
WHY: dict[Kind, str] = {
    "non_finite": "a single non-finite value makes every sum over the log, and so every fit, NaN",
    "outlier": "with squared errors, a few extreme values outweigh thousands of good ones",
    "wrapped": "the jump looks like an enormous velocity, and its derivative is wrong",
    "gap": "differences across a gap are not accelerations, and the state of friction is lost",
    "jitter": "velocities and accelerations are differences over time, so wrong times add noise",
    "duplicate": "a step without time or motion gives an infinite or zero velocity",
    "clock_reset": "time that decreases reverses velocities and joins unrelated motions",
    "mixed_rates": "filters and differences assume one rate and smooth other rates differently",
    "interleaved": "rows of other motions lie in between, so the motion cannot be differentiated",
    "short": "velocities and accelerations need neighbours in time",
    "dead": "a channel that never changes carries no information about the joint",
    "unactuated": "the model learns that no motor drives the joint, and how it then moves",
    "stuck": "the model learns that the robot stood still, or held its torque, when it did not",
    "saturated": "values beyond the limit are not in the log, and the model learns the limit",
    "quantised": "the steps become noise in velocities and accelerations, or hide small torques",
    "units": "masses, friction and gravity are wrong by that factor, or nothing fits at all",
    "sign": "masses are positive and friction takes energy: no physical model can fit this",
    "mismatch": "two columns that should describe one motion do not, so one of them is wrong",
    "exchanged": "a model learned from this log takes velocities or torques for positions",
    "contradiction": "no model can fit two torques for one motion; it learns a mean of both",
    "delay": "torque is paired with motion it did not cause, so inertia appears as friction",
    "excitation": "a model cannot learn what a joint did not do in the log",
    "friction": "friction in the log must be in the model; `--friction auto` chooses its terms",
    "coverage": "a model can be trusted only where the log has been",
    "commanded": "a model learns what the drives were told, which is not always what they did",
    "excerpt": "findings about the whole log, and models, use these evenly spread segments",
}


@dataclass(frozen=True)
class Case:
    """A situation that the check knows, with format strings of its sentence and remedy."""

    kind: Kind
    text: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """A fault of a recording, or a property of it that is worth knowing.

    Attributes:
        case: the situation; it gives the kind, the sentence and the remedy.
        joint: index of the joint, None for all joints or for time.
        column: the quantity, such as `tau`, None for several.
        measured: measured and expected values, by the names that the sentence uses.
        rows: spans of rows; empty for the whole log.
        row: the row that the sentence names, such as that of the largest spike.
        trajectory: label of the first trajectory concerned, None for the whole log.
        files: the files of the log; rows are those of a file where they are put into words.
        other_parts: number of other parts of a large log with the same finding.
        repaired: options that repaired the fault, None if it was not repaired.
    """

    case: Case
    severity: Severity
    joint: int | None = None
    column: str | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[Span, ...] = ()
    row: int | None = None
    trajectory: int | None = None
    files: tuple[FileRows, ...] = ()
    other_parts: int = 0
    repaired: str | None = None

    @property
    def kind(self) -> Kind:
        return self.case.kind

    @property
    def text(self) -> str:
        """What was found, with numbers, in one sentence."""
        sentence = self._render(self.case.text)
        if self.other_parts:
            sentence += f"; the same in {plural(self.other_parts, 'other part')} of the log"
        if self.repaired is not None:
            sentence += f"; repaired: the log was read {self.repaired}"
        return sentence

    @property
    def remedy(self) -> str:
        return self._render(self.case.remedy)

    @property
    def why(self) -> str:
        return WHY[self.kind]

    @property
    def channel(self) -> str:
        """Name of the column, such as `tau1`, or the joints if no column is at fault."""
        if self.joint is None:
            return self.column or "all joints"
        return f"{self.column or 'joint '}{self.joint}"

    @property
    def where(self) -> str:
        """The channel and the first rows."""
        if not self.rows:
            return self.channel
        first, end = self.rows[0]
        name = f" of {self.file}" if self.file else ""
        before = self._rows_before(first)
        place = f"row {first - before}{name}"
        if end > first + 1:
            place = f"rows {first - before}–{end - 1 - before}{name}"
        if len(self.rows) > 1:
            place += f" and {len(self.rows) - 1} more"
        return f"{self.channel}, {place}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and strings for JSON."""
        names = ("kind", "severity", "joint", "column", "trajectory", "text", "why", "remedy")
        values = {name: getattr(self, name) for name in names}
        rows = [list(span) for span in self.rows]
        return {**values, "rows": rows, "file": self.file}

    @property
    def file(self) -> str | None:
        """Name of the file with the first rows, None if the log is one file or all are meant."""
        if len(self.files) < 2 or not self.rows:
            return None
        return file_of_row(self.files, self.rows[0][0]).name

    def _rows_before(self, row: int) -> int:
        """Return how many rows of the log come before the file in which a row lies."""
        if not self.files:
            return 0
        file = file_of_row(self.files, row)
        return file.start - file.row

    def _row_text(self, row: int) -> str:
        """Return a row as the number that it has in its file, and the file if there are several."""
        number = str(row - self._rows_before(row))
        if len(self.files) < 2:
            return number
        return f"{number} of {file_of_row(self.files, row).name}"

    def _trajectory_text(self) -> str:
        """Return the label of the trajectory, with its file if there are several."""
        label = str(self.trajectory)
        return label if self.file is None else f"{label} ({self.file})"

    def _render(self, template: str) -> str:
        facts = dict(self.measured)
        for name in ("joint", "column", "channel"):
            facts.setdefault(name, getattr(self, name))
        facts.setdefault("row", None if self.row is None else self._row_text(self.row))
        facts["trajectory"] = self._trajectory_text()
        facts["file"] = self.file or "the file of this trajectory"
        facts.setdefault("others", " (--joints)")
        return _FORMATTER.vformat(template, (), facts)


class _FactFormatter(string.Formatter):
    """`str.format` with counted nouns (`{rows:n row}`), lists (a, b and c) and values per joint."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("n "):
            return plural(value, format_spec.removeprefix("n "))
        if isinstance(value, Mapping):
            texts = []
            for joint, number in value.items():
                texts.append(f"{format(number, format_spec)} in joint {joint}")
            return ", ".join(texts)
        if isinstance(value, tuple):
            *first, last = (format(item, format_spec) for item in value)
            if not first:
                return last
            return f"{', '.join(first)} and {last}"
        return format(value, format_spec)


_FORMATTER = _FactFormatter()


def plural(count: SupportsInt, noun: str) -> str:
    """Return a count with its noun, such as `1 row` or `2 rows`."""
    return f"{count} {noun}" + "s" * (int(count) != 1)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity; the order of equally severe ones stays."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def with_files(findings: Iterable[Finding], recording: Recording) -> tuple[Finding, ...]:
    """Return findings about a log, which name the files in which their rows lie."""
    return tuple(replace(finding, files=recording.files) for finding in findings)


class RowMap:
    """Maps rows of a recording, counted from 0, to the rows of a log from which they come."""

    def __init__(self, segments: Sequence[RowRange]):
        self._segments = segments
        self._firsts = [segment.first for segment in segments]
        lengths = [segment.end - segment.first for segment in segments]
        self._starts = list(itertools.accumulate(lengths, initial=0))

    def to_log(self, finding: Finding) -> Finding:
        """Return a finding about the recording with the rows of the log."""
        spans: list[Span] = []
        for span in finding.rows:
            spans += self._spans(*span)
        row = finding.row
        if row is not None:
            row = self._row(row)
        return replace(finding, rows=tuple(spans), row=row)

    def to_recording(self, finding: Finding) -> Finding:
        """Return a finding about the log with the rows of the recording, or the nearest ones."""
        last = self._starts[-1] - 1
        spans = []
        for first, end in finding.rows:
            start = min(self._nearest(first), last)
            spans.append((start, max(self._nearest(end), start + 1)))
        # Rows between two segments of the recording have the same nearest row.
        return replace(finding, rows=tuple(dict.fromkeys(spans)))

    def _nearest(self, row: int) -> int:
        index = max(0, bisect.bisect_right(self._firsts, row) - 1)
        segment = self._segments[index]
        return self._starts[index] + min(max(row, segment.first), segment.end) - segment.first

    def _row(self, row: int) -> int:
        index = min(bisect.bisect_right(self._starts, row), len(self._segments)) - 1
        return self._firsts[index] + row - self._starts[index]

    def _spans(self, first: int, end: int) -> Iterator[Span]:
        """Yield a span of the recording, cut where a segment ends."""
        while first < end:
            stop = min(end, self._starts[bisect.bisect_right(self._starts, first)])
            yield self._row(first), self._row(first) + stop - first
            first = stop
