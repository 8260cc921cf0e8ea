"""Values that cannot be: no numbers, spikes, angles that jump by a turn; told of, and mended for what follows."""

import numpy as np
from jaxtyping import Bool

from ...joints import Joints, Recording
from ..stretches import Stretch, spans
from .finding import Finding, plural
from .levels import Column, Columns, quantum, steps_of

ABSURD = 1e12
"""No robot turns so far or pulls so hard, in whatever unit: fill values of loggers are taken for missing numbers."""
TURNS = (2 * np.pi, 360.0)
"""A turn in radians and in degrees."""
TURN_TOLERANCE = 0.06
"""A wrapped step differs from a turn by what the joint moved in that step, at most this share of the turn."""
WRAP_STANDS_OUT = 6.0
"""A jump is a wrap only if it is so many times larger than nearly all steps of the channel."""
WIDEST_SPIKE = 3
"""A spike is at most so many rows wide; what is longer is no isolated accident."""
SPIKE_OVER_NOISE = 10.0
"""A spike stands out from what its neighbours foretell by so many times the error that three quarters of the rows
nearby stay below. Of Gaussian noise that is 1.15 deviations; 10 times that does not occur by chance."""
SPIKE_OVER_RANGE = 0.05
"""and by this share of the channel's range, or it harms nobody"""
SPIKE_OVER_STEPS = 4.0
"""and by so many steps of a channel that is quantised"""
SPIKE_OVER_SLOPE = 3.0
"""and by so many times what the channel changes in the rows beside it: the tip of a sharp turn is no spike."""
SPIKE_SHARE = 0.01
"""More spikes than this share of the rows are noise of the channel."""
SPIKE_ENERGY = 1e-3
"""Spikes whose squares are a smaller share of the channel's variance hardly move a fit; those of positions always do,
for they are differentiated."""
NEIGHBOURS = 30
"""Rows on either side that tell what errors are usual nearby."""
SLOW_MOTION = 0.1
"""A row is in motion if the robot moves there at more than this share of its usual speed."""


def measured_columns(recording: Recording) -> Columns:
    """The quantities that were logged, by name."""
    named = {"q": recording.q, "qd": recording.qd, "qdd": recording.qdd, "tau": recording.tau}
    return {name: np.asarray(values, dtype=float) for name, values in named.items() if values is not None}


def examine_values(recording: Recording, stretches: tuple[Stretch, ...]) -> tuple[list[Finding], Columns]:
    """What is wrong with single values, and the columns without it: filled in, unwound, spikes cut off."""
    found: list[Finding] = []
    mended = measured_columns(recording)
    for name, table in mended.items():
        table = table.copy()
        mended[name] = table
        for joint in range(recording.joints.dof):
            table[:, joint], lost = _filled(table[:, joint])
            if lost.any():
                found.append(_non_finite(recording, name, joint, lost))
            if lost.all():
                continue
            if name == "q":
                table[:, joint], jumps, turn = _unwound(table[:, joint], stretches, recording.joints, joint)
                if jumps.any():
                    found.append(_wrapped(recording, joint, jumps, turn))
            spikes, foretold = _spikes(table[:, joint], stretches, lost)
            if spikes.any():
                found.append(_outliers(recording, name, joint, spikes, table[:, joint] - foretold))
                table[spikes, joint] = foretold[spikes]
    return found, mended


def _filled(values: Column) -> tuple[Column, Bool[np.ndarray, " time"]]:
    """The column with straight lines where numbers are missing, zeros if all are, and where they are."""
    with np.errstate(invalid="ignore"):
        lost = ~(np.abs(values) < ABSURD)
    if lost.all():
        return np.zeros_like(values), lost
    rows = np.arange(len(values))
    return np.where(lost, np.interp(rows, rows[~lost], np.where(lost, 0.0, values)[~lost]), values), lost


def _non_finite(recording: Recording, name: str, joint: int, lost: np.ndarray) -> Finding:
    count, row = np.count_nonzero(lost), int(np.argmax(lost))
    values = getattr(recording, name)[:, joint]
    return Finding(
        kind="non_finite",
        severity="error",
        joint=joint,
        column=name,
        trajectory=int(recording.trajectory[row]),
        rows=spans(lost),
        text=f"{plural(count, 'value')} of {len(lost)} are no numbers, first {values[row]:g} at row {row}",
        remedy="remove these rows, or leave out the column" if count < len(lost) else "leave the joint out",
    )


def _unwound(
    q: Column, stretches: tuple[Stretch, ...], joints: Joints, joint: int
) -> tuple[Column, Bool[np.ndarray, " time"], float]:
    """A turning joint's positions with jumps of whole turns taken out, where they were, and how large."""
    steps = steps_of(q, stretches)
    usual = np.quantile(np.abs(steps), 0.95)
    for turn in TURNS:
        jumps = np.abs(np.abs(steps) - turn) < TURN_TOLERANCE * turn
        if joints.kinds[joint] != "prismatic" and jumps.any() and turn > WRAP_STANDS_OUT * usual:
            turns = np.where(jumps, np.sign(steps), 0.0)
            unwound, middle = q.copy(), float(np.median(q))
            for piece in stretches:
                own = q[piece.rows] - turn * np.cumsum(turns[piece.rows])
                unwound[piece.rows] = own - turn * np.round((np.mean(own) - middle) / turn)
            return unwound, jumps, turn
    return q, np.zeros(len(q), dtype=bool), 0.0


def _wrapped(recording: Recording, joint: int, jumps: np.ndarray, turn: float) -> Finding:
    row = int(np.argmax(jumps))
    size = "2π" if turn < 7 else "360"
    return Finding(
        kind="wrapped",
        severity="error",
        joint=joint,
        column="q",
        trajectory=int(recording.trajectory[row]),
        rows=spans(jumps),
        text=f"the position jumps by {size} in one step {plural(np.count_nonzero(jumps), 'time')}, first at row {row}",
        remedy="unwrap the angle (numpy.unwrap along each trajectory) before it is logged or differentiated",
    )


def _spikes(
    values: Column, stretches: tuple[Stretch, ...], lost: Bool[np.ndarray, " time"]
) -> tuple[Bool[np.ndarray, " time"], Column]:
    """Rows of isolated spikes, and what a cubic through two rows on either side foretells for every row.

    A cubic follows smooth motion sampled as coarsely as 20 times a period to 0.2 % of it, so that a turning point is
    no spike; and a step, after which the signal stays, is none because its two sides do not agree.
    """
    found, foretold = np.zeros(len(values), dtype=bool), values.copy()
    low, high = np.quantile(values, [0.005, 0.995])
    least = max(SPIKE_OVER_RANGE * float(high - low), SPIKE_OVER_STEPS * quantum(values))
    if low == high:
        return found, foretold
    for piece in stretches:
        x = values[piece.rows]
        for width in range(1, WIDEST_SPIKE + 1):
            if len(x) < width + 5:
                break
            error, guess = _surprise(x, width)
            size = np.abs(error).min(axis=0)
            apart = np.abs(x[width + 2 : len(x) - 1] - x[1 : len(x) - width - 2])
            slope = np.maximum(np.abs(np.diff(x))[: len(size)], np.abs(np.diff(x))[width + 2 :])
            wild = (size > least) & (apart < size / 2) & (size > SPIKE_OVER_SLOPE * slope)
            for start in np.flatnonzero(wild).tolist():
                rows = slice(piece.start + start + 2, piece.start + start + 2 + width)
                if not found[rows].any() and not lost[rows].any() and size[start] > _usual(error, start, width):
                    found[rows], foretold[rows] = True, guess[:, start]
    if np.count_nonzero(found) > max(WIDEST_SPIKE, SPIKE_SHARE * len(values)):
        found[:] = False
    return found, foretold


def _surprise(x: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """For `width` rows from row 2 on: their distance from the cubic through the two before and after, and the cubic."""
    nodes = np.array([-2.0, -1.0, width, width + 1.0])
    count = len(x) - width - 3
    outside = np.stack(
        [x[:count], x[1 : count + 1], x[width + 2 : width + 2 + count], x[width + 3 : width + 3 + count]]
    )
    places = np.arange(width, dtype=float)
    weights = np.stack(
        [np.prod([(places - other) / (node - other) for other in nodes if other != node], axis=0) for node in nodes], 1
    )
    guess = weights @ outside
    inside = np.stack([x[2 + place : 2 + place + count] for place in range(width)])
    return inside - guess, guess


def _usual(error: np.ndarray, start: int, width: int) -> float:
    """What a surprise must exceed at this place: several times the errors nearby, this place left out."""
    own, first = width + 2, max(0, start - NEIGHBOURS)
    size = np.abs(error[:, first : start + NEIGHBOURS]).max(axis=0)
    before, after = size[: max(0, start - own) - first], size[start + own + 1 - first :]
    near = np.concatenate([before, after])
    return SPIKE_OVER_NOISE * _upper_quartile(near) if len(near) else np.inf


def _upper_quartile(values: np.ndarray) -> float:
    """`np.quantile(values, 0.75)` to the last bit, which takes twenty times as long for some dozens of numbers."""
    place = 0.75 * (len(values) - 1)
    low = int(place)
    high, share = min(low + 1, len(values) - 1), place - low
    ordered = np.partition(values, (low, high))
    below, above = float(ordered[low]), float(ordered[high])
    return above - (above - below) * (1 - share) if share >= 0.5 else below + (above - below) * share


def _outliers(recording: Recording, name: str, joint: int, spikes: np.ndarray, error: np.ndarray) -> Finding:
    places = spans(spikes)
    size = np.where(spikes, np.abs(error), 0.0)
    row = int(np.argmax(size))
    values = getattr(recording, name)[:, joint]
    harmless = name != "q" and np.sum(size**2) < SPIKE_ENERGY * len(values) * np.nanvar(values[np.isfinite(values)])
    return Finding(
        kind="outlier",
        severity="note" if harmless else "warning",
        joint=joint,
        column=name,
        trajectory=int(recording.trajectory[places[0][0]]),
        rows=places,
        text=f"{plural(len(places), 'isolated spike')}, the largest {size[row]:.3g} at row {row}",
        remedy="replace these values by what their neighbours foretell, or drop the rows; look for loose wires",
    )


def repeated_rows(columns: Columns, trajectory: np.ndarray, stretches: tuple[Stretch, ...]) -> list[Finding]:
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
