"""What the time stamps tell: gaps, jitter, repeats, clocks that were set back, and rates that change."""

import itertools
from dataclasses import dataclass

import numpy as np

from ...joints import Recording
from ..checks import MIXED_SHARE, ODD_STEP, OTHER_RATE
from .finding import Finding, Kind, plural, spans

ODD = 0.9 * ODD_STEP
"""A step that differs from the usual one by more than this share is odd: a little less than what a fit refuses."""
GAP = 1.75
"""A step so many times the usual one has lost a sample: one lost sample makes 2, jitter seldom makes 1.75."""
GAP_SPREADS = 8.0
"""Where time jitters, a gap must also stand out by so many standard deviations of the steps."""
JITTER_SEEN, JITTER_HARM = 0.02, 0.1
"""Standard deviation of the steps, in usual steps: told of, and warned of. Differences over a step that is wrong by a
tenth are wrong by a tenth."""
SLOWEST_STEP = 0.5
"""No robot is logged at less than 2 Hz [s]: a longer step is one of milliseconds, microseconds or nanoseconds."""
FEWEST_ROWS = 3
"""A second difference takes three rows."""
BRIDGED, BRIDGED_STEPS = 0.02, 5
"""Times without samples up to so long [s], or so many steps, are bridged by straight lines where a low-pass follows."""
SLOW_MOTION = 0.1
"""A row is in motion if the robot moves there at more than this share of its usual speed."""


PARTS = "save the parts as files of their own, or number them in a column `trajectory`; or sort the rows by time"


@dataclass(frozen=True)
class Stretch:
    """Rows [start, end) of one trajectory through which time runs forward without gaps, and their usual step [s]."""

    start: int
    end: int
    step: float

    @property
    def rows(self) -> slice:
        return slice(self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start


def without(stretches: tuple[Stretch, ...], rows: np.ndarray) -> tuple[Stretch, ...]:
    """The stretches with some rows cut out."""
    kept = []
    for piece in stretches:
        good = spans(~rows[piece.rows])
        kept += [Stretch(piece.start + first, piece.start + end, piece.step) for first, end in good]
    return tuple(kept)


def bridged(step: float) -> float:
    """The longest time without samples [s] that a preparation bridges; it cuts at longer ones."""
    return max(BRIDGED, BRIDGED_STEPS * step)


@dataclass(frozen=True, eq=False)
class Timing:
    """What was found, the stretches to work on, and by how much time is to be divided to be in seconds."""

    findings: tuple[Finding, ...]
    stretches: tuple[Stretch, ...]
    scale: float


class _Faults:
    """Masks of the rows at which time is at fault, filled trajectory by trajectory."""

    def __init__(self, t: np.ndarray):
        self.t = t
        self.lost = ~np.isfinite(t)
        self.back, self.again, self.gap, self.mixed = (np.zeros(len(t), dtype=bool) for _ in range(4))
        self.usual: list[tuple[int, float]] = []  # first row of a trajectory, and its usual step
        self.wobbles: list[tuple[float, int]] = []  # deviation of its steps over the usual one, and how many

    def judge(self, start: int, end: int) -> list[Stretch]:
        """One trajectory; its stretches."""
        t = self.t[start:end]
        steps = np.diff(t)
        good = steps[np.isfinite(steps) & (steps > 0)]
        step = float(np.median(good)) if len(good) else 0.0
        odd = np.abs(good - step) > ODD * step
        even = good[~odd]
        wobble = float(np.std(even) / step) if len(even) > 1 else 0.0
        rest = slice(start + 1, end)
        self.back[rest], self.again[rest] = steps < 0, steps == 0
        if np.count_nonzero(odd) > MIXED_SHARE * len(good):
            self.mixed[rest], wobble = np.abs(steps - step) > ODD * step, 0.0
        else:
            self.gap[rest] = steps > step * max(GAP, 1 + GAP_SPREADS * wobble)
            self.gap[start + 2 : end] &= ~self.again[start + 1 : end - 1]  # a repeated time makes the next step long
        if len(good):
            self.usual.append((start, step))
            self.wobbles.append((wobble, len(even)))
        broken = ~np.isfinite(t)
        broken[1:] |= ~(steps > 0) | self.gap[rest]
        cuts = [start, *(start + np.flatnonzero(broken)).tolist(), end]
        pieces = [Stretch(a, b, step) for a, b in itertools.pairwise(cuts) if b > a]
        return [piece for piece in pieces if np.isfinite(self.t[piece.start])]

    @property
    def step(self) -> float:
        """The usual step of most trajectories."""
        return float(np.median([step for _, step in self.usual])) if self.usual else 0.0

    @property
    def scale(self) -> float:
        """Time units a second, told by the usual step alone."""
        step = self.step / SLOWEST_STEP
        return 1.0 if step < 1 else float(10.0 ** (3 * min(3, 1 + np.floor(np.log10(step) / 3))))

    @property
    def wobble(self) -> float:
        total = sum(count for _, count in self.wobbles)
        return float(np.sqrt(sum(one**2 * count for one, count in self.wobbles) / total)) if total else 0.0


def examine_time(recording: Recording) -> Timing:
    """Judge the time stamps, trajectory by trajectory."""
    labels = recording.trajectory
    faults = _Faults(recording.t)
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1, [len(labels)]])
    stretches = [
        piece
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        for piece in faults.judge(start, end)
    ]
    for start, step in faults.usual:
        if abs(step - faults.usual[0][1]) > OTHER_RATE * faults.usual[0][1]:
            faults.mixed[start : _end(bounds, start)] = True
    scale = faults.scale
    found = [*_order(recording, faults), *_gaps(recording, faults), *_rates(recording, faults), *_jitter(faults)]
    if scale != 1.0:
        found.append(_unit(faults.step, scale))
    return Timing((*found, *_labels(labels, bounds, recording)), tuple(stretches), scale)


def _end(bounds: np.ndarray, start: int) -> int:
    return int(bounds[np.searchsorted(bounds, start, side="right")])


def _order(recording: Recording, faults: _Faults) -> list[Finding]:
    """Times that are missing, run backward or repeat."""
    t, found = recording.t, []

    def tell(kind: Kind, rows: np.ndarray, text: str, remedy: str) -> None:
        if rows.any():
            label = int(recording.trajectory[np.argmax(rows)])
            place = spans(rows)
            found.append(
                Finding(kind=kind, severity="error", column="t", trajectory=label, rows=place, text=text, remedy=remedy)
            )

    lost, back, again = (np.count_nonzero(rows) for rows in (faults.lost, faults.back, faults.again))
    tell("non_finite", faults.lost, f"{plural(lost, 'row')} without a time", "drop these rows")
    row = int(np.argmax(faults.back))
    text = f"time runs backward {plural(back, 'time')}, first from {t[row - 1]:.6g} to {t[row]:.6g}"
    tell("clock_reset", faults.back, text, PARTS)
    text = f"{plural(again, 'row')} with the time of the row before"
    tell("duplicate", faults.again, text, "drop the repeats, or log a finer time")
    return found


def _gaps(recording: Recording, faults: _Faults) -> list[Finding]:
    rows = np.flatnonzero(faults.gap)
    if not len(rows):
        return []
    lengths = recording.t[rows] - recording.t[rows - 1]
    lost = int(np.sum(np.maximum(np.round(lengths / faults.step) - 1, 1)))
    step, seconds = faults.step / faults.scale, lengths / faults.scale
    longest = 1e3 * bridged(step)
    does = (
        f"bridges gaps of up to {longest:.3g} ms and cuts the motion at longer ones"
        if recording.qdd is None
        else "takes the logged accelerations and differentiates nothing across a gap"
    )
    largest = f"the largest is {seconds.max():.4g} s before row {rows[np.argmax(lengths)]}"
    return [
        Finding(
            kind="gap",
            severity="warning",
            column="t",
            trajectory=int(recording.trajectory[rows[0]]),
            rows=spans(faults.gap),
            text=f"{plural(len(rows), 'gap')}, about {plural(lost, 'sample')} lost; {largest}, "
            f"the usual step {step:.4g} s",
            remedy=f"nothing by hand: `delan fit` {does}; next time, give the logger a buffer, so that no sample "
            "is lost",
        )
    ]


def _rates(recording: Recording, faults: _Faults) -> list[Finding]:
    if not faults.mixed.any():
        return []
    rates = sorted({float(f"{faults.scale / step:.3g}") for _, step in faults.usual})
    told = f"trajectories at {rates[0]:g} to {rates[-1]:g} Hz" if len(rates) > 1 else "steps of other lengths inside"
    return [
        Finding(
            kind="mixed_rates",
            severity="error",
            column="t",
            trajectory=int(recording.trajectory[np.argmax(faults.mixed)]),
            rows=spans(faults.mixed),
            text=f"mixed sampling rates: {told}; {np.count_nonzero(faults.mixed)} of {len(faults.t)} rows differ",
            remedy="cut the log by rate, or resample it to one",
        )
    ]


def _jitter(faults: _Faults) -> list[Finding]:
    if faults.wobble <= JITTER_SEEN or faults.mixed.any():
        return []
    return [
        Finding(
            kind="jitter",
            severity="warning" if faults.wobble > JITTER_HARM else "note",
            column="t",
            text=f"steps scatter by {faults.wobble:.0%} of the usual {faults.step / faults.scale:.4g} s",
            remedy="stamp samples where they are taken; if the robot samples evenly, replace t by even steps",
        )
    ]


def _unit(step: float, scale: float) -> Finding:
    unit = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}[scale]
    return Finding(
        kind="units",
        severity="error",
        column="t",
        text=f"the usual step is {step:.4g}: time looks like {unit}, not seconds",
        remedy=f"divide t by {scale:g} (--time-scale {1 / scale:g})",
    )


def _labels(labels: np.ndarray, bounds: np.ndarray, recording: Recording) -> list[Finding]:
    """Trajectories in pieces, and trajectories too short to differentiate."""
    found = []
    starts = bounds[:-1]
    again = np.ones(len(starts), dtype=bool)
    again[np.unique(labels[starts], return_index=True)[1]] = False
    if again.any():
        row = int(starts[np.argmax(again)])
        found.append(begun_again(int(labels[row]), row, _end(bounds, row)))
    short = np.diff(bounds) < FEWEST_ROWS
    if short.any():
        row = int(starts[np.argmax(short)])
        complete = recording.qd is not None and recording.qdd is not None
        found.append(
            Finding(
                kind="short",
                severity="note" if complete else "error",
                column="trajectory",
                trajectory=int(labels[row]),
                rows=((row, _end(bounds, row)),),
                text=f"{np.count_nonzero(short)} of {len(short)} trajectories have fewer than {FEWEST_ROWS} rows",
                remedy="nothing, if qd and qdd are measured; else record longer motions",
            )
        )
    return found


def begun_again(label: int, row: int, end: int) -> Finding:
    """A trajectory some rows of which stand behind another."""
    return Finding(
        kind="interleaved",
        severity="error",
        column="trajectory",
        trajectory=label,
        rows=((row, end),),
        text=f"trajectory {label} begins again at row {row} after another",
        remedy="keep the rows of a trajectory together, or give the parts labels of their own",
    )


def repeated_rows(
    columns: dict[str, np.ndarray], trajectory: np.ndarray, stretches: tuple[Stretch, ...]
) -> list[Finding]:
    """Rows that say again, at a later time, what the row before said, while the robot moves."""
    table = np.concatenate([columns[name] for name in ("q", "qd", "tau") if name in columns], axis=1)
    same = np.zeros(len(table), dtype=bool)
    same[1:] = (table[1:] == table[:-1]).all(axis=1)
    if not same.any():
        return []
    q = columns["q"] / np.maximum(np.ptp(columns["q"], axis=0), 1e-300)
    pace = np.zeros(len(table))
    for piece in stretches:
        if len(piece) > 4:
            inside = q[piece.rows]
            pace[piece.start + 2 : piece.end - 2] = np.abs(inside[4:] - inside[:-4]).sum(axis=1)
    moving = pace > SLOW_MOTION * np.median(pace[pace > 0]) if (pace > 0).any() else np.zeros(len(table), dtype=bool)
    # A robot at rest says the same for long; a logger that is faster than its sensor repeats a few rows.
    rows = same & moving
    if not rows.any():
        return []
    share = np.count_nonzero(rows) / max(1, np.count_nonzero(moving))
    rate = f", {share:.0%} of all rows in motion" if share > 0.01 else ""
    by_hand = "drop the repeated rows: beside logged accelerations `delan fit` takes every row as it is"
    mend = by_hand if "qdd" in columns else "nothing by hand: `delan fit` leaves repeated rows out"
    return [
        Finding(
            kind="duplicate",
            severity="warning",
            trajectory=int(trajectory[np.argmax(rows)]),
            rows=spans(rows),
            text=f"{plural(np.count_nonzero(rows), 'row')} in motion repeat every value of the row before{rate}",
            remedy=f"{mend}; next time, log when the robot sends a new state, not faster",
        )
    ]
