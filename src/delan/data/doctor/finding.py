"""What the doctor says of a recording: one finding a fault, with its place, its weight and its cure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, SupportsInt

import numpy as np
from jaxtyping import Float

Severity = Literal["error", "warning", "note"]
"""An error spoils a fit or makes it refuse the log; a warning costs accuracy; a note is good to know."""

Kind = Literal[
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
    "dead",
    "stuck",
    "saturated",
    "quantised",
    "units",
    "sign",
    "mismatch",
    "exchanged",
    "delay",
    "excitation",
    "friction",
    "coverage",
    "excerpt",
]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

WHY: dict[Kind, str] = {
    "non_finite": "one such number makes every sum over the log, and so every fit, not a number",
    "outlier": "squared errors let a few wild values outweigh thousands of good ones",
    "wrapped": "the jump reads as an enormous speed, and differentiating it gives accelerations that never were",
    "gap": "differences across a gap are no accelerations, and memory of friction is lost there",
    "jitter": "speeds and accelerations are differences over time; wrong times are noise in them",
    "duplicate": "a step of no time or no motion gives infinite or zero speed where the robot moved evenly",
    "clock_reset": "time that runs backward turns speeds around and lets motions that are apart touch",
    "mixed_rates": "filters and differences are made for one rate; another rate is smoothed more or less",
    "interleaved": "rows of other motions stand between, so the motion cannot be differentiated",
    "short": "speeds and accelerations need neighbours in time",
    "dead": "what never changes teaches nothing of that joint",
    "stuck": "the model is taught that the robot stood still, or pulled evenly, when it did not",
    "saturated": "beyond the limit the log tells less than what happened, and the model learns the limit",
    "quantised": "the steps become noise in speeds and accelerations, or hide small torques",
    "units": "masses, friction and gravity come out wrong by that factor, or fit nothing at all",
    "sign": "no mass is negative and friction never pushes: a model that obeys mechanics cannot fit it",
    "mismatch": "two columns that should tell of the same motion do not, so one of them teaches nonsense",
    "exchanged": "a model learned from it takes speeds or torques for positions, and tells nothing of the robot",
    "delay": "the torque is paired with a motion it did not cause; inertia leaks into friction",
    "excitation": "what a joint did not do in the log, the model cannot learn",
    "friction": "friction that is in the log must be in the model; `--friction auto` finds its terms",
    "coverage": "a model is to be trusted where the log has been",
    "excerpt": "what is told of the log as a whole, and a model learned from it, is of these runs, evenly over the log",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong with a recording, or good to know of it.

    Attributes:
        text: what was found, with numbers; why: why it matters; remedy: what to do about it.
        joint: the joint at fault, None for all or for time; column: the quantity at fault, such as `tau`, if one is.
        trajectory: label of the first one at fault, if it sits somewhere.
        rows: the rows at fault as spans (first row, row after the last), counted from 0; empty for the whole log.
    """

    kind: Kind
    severity: Severity
    text: str
    remedy: str
    joint: int | None = None
    column: str | None = None
    trajectory: int | None = None
    rows: tuple[tuple[int, int], ...] = ()

    @property
    def why(self) -> str:
        return WHY[self.kind]

    @property
    def where(self) -> str:
        """The column and the first rows, for a person."""
        column = "" if self.column is None else self.column + ("" if self.joint is None else str(self.joint))
        column = column or ("all joints" if self.joint is None else f"joint {self.joint}")
        if not self.rows:
            return column
        first, end = self.rows[0]
        place = f"row {first}" if end == first + 1 else f"rows {first}–{end - 1}"
        more = "" if len(self.rows) == 1 else f" and {len(self.rows) - 1} more"
        return f"{column}, {place}{more}"

    def as_dict(self) -> dict[str, Any]:
        """All of it for a script: plain numbers, lists and words."""
        names = ("kind", "severity", "joint", "column", "trajectory", "text", "why", "remedy")
        return {**{name: getattr(self, name) for name in names}, "rows": [list(span) for span in self.rows]}


def worst_first(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity; what is equally bad stays in its order."""
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def plural(count: SupportsInt, thing: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {thing}" + ("" if int(count) == 1 else "s")


def spread(values: Float[np.ndarray, "..."]) -> float:
    """From the smallest to the largest value; 0 of nothing."""
    return float(np.ptp(values)) if values.size else 0.0
