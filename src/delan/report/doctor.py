"""The picture of a check-up: what every joint did, with the places of all findings marked."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..data.doctor import Finding, Severity
from ..data.doctor.places import Places
from ..drawing import INK, LEARNED, drawing
from ..joints import Recording

WIDTH, ROW_HEIGHT, TALLEST = 11.5, 1.25, 12.0
"""Of the picture, of one joint's row, and of the picture at most [inches]."""
MARKS: dict[Severity, str] = {"error": "#c62828", "warning": "#e39a1c", "note": "#9aa5b1"}
POINTS = 4000
"""Rows drawn of a channel at most, the extremes of each bin among them: more do not show."""
NARROWEST = 0.004
"""A mark is drawn at least so wide, as a share of the picture."""
MOST_SHADED = 40
"""A joint's finding in more places than this is marked by ticks, or its shades would hide the line."""
TICKS = 0.93
"""Height at which ticks begin, as a share of the picture's."""
QUANTITIES = {"q": ("position", ""), "qd": ("velocity", "/s"), "tau": ("torque", "")}


def draw_check(recording: Recording, findings: Sequence[Finding]) -> Figure:
    """A row a joint, a column a quantity; shaded or ticked: rows of findings; framed: findings of a whole channel.

    Of an excerpt of a log, what lies between its runs is marked at the nearest row.
    """
    joints = recording.joints
    shown, motions = findings, "trajectories"
    if recording.excerpt is not None:
        places, motions = Places(recording.excerpt.runs), "runs of the log"
        shown = [places.in_recording(finding) for finding in findings]
    names = [name for name in QUANTITIES if getattr(recording, name) is not None]
    clock, breaks = _clock(recording)
    with drawing(WIDTH, min(TALLEST, ROW_HEIGHT * joints.dof + 1.0)) as figure:
        axes = figure.subplots(joints.dof, len(names), sharex=True, squeeze=False)
        for joint in range(joints.dof):
            length = "m" if joints.kinds[joint] == "prismatic" else "rad"
            for one, name in zip(axes[joint], names, strict=True):
                _draw_channel(one, clock, breaks, getattr(recording, name)[:, joint])
                _mark(one, clock, [finding for finding in shown if _concerns(finding, name, joint)])
                unit = ("N" if length == "m" else "N m") if name == "tau" else length + QUANTITIES[name][1]
                one.set_ylabel(f"{joints.names[joint]}\n[{unit}]" if name == names[0] else f"[{unit}]")
        for one, name in zip(axes[0], names, strict=True):
            one.set_title(QUANTITIES[name][0], loc="left")
        for one in axes[-1]:
            one.set_xlabel("time [s]" if len(breaks) == 0 else f"time, {motions} one after another [s]")
        figure.align_ylabels()
        _legend(figure, findings)
    return figure


def _clock(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """A time that runs forward through all rows, and the rows at which a new trajectory begins."""
    steps = np.diff(recording.t)
    inside = np.diff(recording.trajectory) == 0
    good = np.isfinite(steps) & (steps > 0) & inside
    usual = float(np.median(steps[good])) if good.any() else 1.0
    clock = np.concatenate([[0.0], np.cumsum(np.where(good, steps, usual))])
    return clock, np.flatnonzero(~inside) + 1


def _draw_channel(axes: Axes, clock: np.ndarray, breaks: np.ndarray, values: np.ndarray) -> None:
    shown = np.where(np.abs(values) < 1e12, values, np.nan)  # a NaN is a hole in the line
    chosen = _thinned(shown)
    line = shown.astype(float)
    line[breaks] = np.nan  # no line from one trajectory to the next
    axes.plot(clock[chosen], line[chosen], color=LEARNED, linewidth=0.8)
    finite = shown[np.isfinite(shown)]
    if len(finite):
        low, high = float(finite.min()), float(finite.max())
        margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(clock[0], clock[-1] if clock[-1] > clock[0] else clock[0] + 1.0)
    axes.grid(axis="y")
    axes.locator_params(axis="y", nbins=4)


def _thinned(values: np.ndarray) -> np.ndarray:
    """Rows to draw: the smallest and the largest value of each of many bins, so that no spike is lost."""
    if len(values) <= POINTS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), POINTS // 2 + 1).astype(int)
    kept: set[int] = {0, len(values) - 1}
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = values[start:end]
        holes = np.flatnonzero(~np.isfinite(part))
        full = np.where(np.isfinite(part), part, 0.0)
        kept |= {start + int(np.argmin(full)), start + int(np.argmax(full)), *(start + holes[:1]).tolist()}
    return np.array(sorted(kept))


def _concerns(finding: Finding, name: str, joint: int) -> bool:
    if finding.severity == "note":
        return False
    return finding.joint in (None, joint) and finding.column in (None, "t", "trajectory", name)


def _mark(axes: Axes, clock: np.ndarray, findings: Sequence[Finding]) -> None:
    """A joint's findings: spans shaded, or the whole channel framed; those of all joints: ticks along the top."""
    narrowest = NARROWEST * float(clock[-1] - clock[0])
    for finding in reversed(findings):
        colour = MARKS[finding.severity]
        own = finding.joint is not None and len(finding.rows) <= MOST_SHADED
        for start, stop in _merged(clock, finding.rows, narrowest):
            low, strength = (0.0, 0.3) if own else (TICKS, 0.9)
            axes.axvspan(start, stop, ymin=low, color=colour, alpha=strength, linewidth=0)
        if not finding.rows and finding.joint is not None:
            for side in axes.spines.values():
                side.set(visible=True, color=colour, linewidth=1.6)
    told = list(dict.fromkeys(finding.kind.replace("_", " ") for finding in findings if finding.joint is not None))
    if told:
        worst = next(finding for finding in findings if finding.joint is not None)
        axes.set_title(", ".join(told), loc="right", color=MARKS[worst.severity], fontsize=8)


def _merged(clock: np.ndarray, rows: Sequence[tuple[int, int]], narrowest: float) -> list[tuple[float, float]]:
    """Spans in time, each wide enough to be seen, those that then touch as one."""
    merged: list[tuple[float, float]] = []
    for first, end in rows:
        start, stop = float(clock[first]), float(clock[min(end, len(clock) - 1)])
        short = max(0.0, narrowest - (stop - start)) / 2
        start, stop = start - short, stop + short
        if merged and start <= merged[-1][1]:
            start = merged.pop()[0]
        merged.append((start, stop))
    return merged


def _legend(figure: Figure, findings: Sequence[Finding]) -> None:
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in MARKS}
    handles = [
        Patch(color=MARKS[severity], alpha=0.5, label=f"{severity}: {counts[severity]}")
        for severity in ("error", "warning")
        if counts[severity]
    ]
    whole = [finding for finding in findings if finding.joint is None and finding.severity != "note"]
    title = "; ".join(f"{finding.kind.replace('_', ' ')}: {finding.where}" for finding in whole[:3])
    if handles:
        figure.legend(handles=handles, loc="outside upper right", ncols=2, title=title or None)
    else:
        figure.suptitle("nothing worse than notes", x=0.99, ha="right", fontsize=9, color=INK)
