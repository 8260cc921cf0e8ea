"""The picture of a check-up: what every joint did, with the places of all findings marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from ..data.doctor import Finding
from ..data.doctor.finding import Kind, plural
from ..data.doctor.places import Places
from ..drawing import INK, LEARNED, drawing
from ..joints import Recording

WIDTH, ROW_HEIGHT, TALLEST = 11.5, 1.25, 12.0
"""Of the picture, of one joint's row, and of the picture at most [inches]."""
COLOURS = {
    "error": ("#c62828", "#d81b60", "#880e4f"),
    "warning": ("#e39a1c", "#7b3fa0", "#2e7d32", "#6d4c41", "#616e7c"),
}
"""Of kinds of findings, by the worst of a kind: errors are red, and none is near the curves' colour."""
POINTS = 4000
"""Rows drawn of a channel at most, the extremes of each bin among them: more do not show."""
NARROWEST = 0.006
"""A mark is drawn at least so wide, as a share of the picture."""
MOST_SHADED = 40
"""Rows of a joint's finding in no more places than this are shaded, too, behind the curve."""
ALL_OVER = 0.5
"""Marks over more than this share of the time would tell no place: what is everywhere is told in words."""
STRIP, LANE, ABOVE = 0.16, 0.08, 0.03
"""Height of the strip of marks above a panel and of one kind's lane in it, at most, and its distance to the panel
[inches]: there they hide no curve."""
LANE_COLOUR = "#eef1f4"
QUANTITIES = {"q": ("position", ""), "qd": ("velocity", "/s"), "tau": ("torque", "")}


@dataclass(frozen=True, eq=False)
class _Mark:
    """A finding that is worse than a note, and where it is [s]: empty if it is of the whole log, or nearly."""

    finding: Finding
    spans: list[tuple[float, float]]

    def concerns(self, name: str, joint: int) -> bool:
        return self.finding.joint in (None, joint) and self.finding.column in (None, "t", "trajectory", name)


def draw_check(recording: Recording, findings: Sequence[Finding]) -> Figure:
    """A row a joint, a column a quantity; marked above: rows of findings; framed: findings of a whole channel.

    Of an excerpt of a log, what lies between its runs is marked at the nearest row.
    """
    joints = recording.joints
    shown, motions = [finding for finding in findings if finding.severity != "note"], "trajectories"
    if recording.excerpt is not None:
        places, motions = Places(recording.excerpt.runs), "runs of the log"
        shown = [places.in_recording(finding) for finding in shown]
    names = [name for name in QUANTITIES if getattr(recording, name) is not None]
    clock, breaks = _clock(recording)
    marks = [_Mark(finding, _places(clock, finding.rows)) for finding in shown]
    colours = _colours(marks)
    title_pad = 72 * (STRIP + 2 * ABOVE) if any(mark.spans for mark in marks) else None
    with drawing(WIDTH, min(TALLEST, ROW_HEIGHT * joints.dof + 1.0)) as figure:
        axes = figure.subplots(joints.dof, len(names), sharex=True, squeeze=False)
        for joint in range(joints.dof):
            length = "m" if joints.kinds[joint] == "prismatic" else "rad"
            for one, name in zip(axes[joint], names, strict=True):
                _draw_channel(one, clock, breaks, getattr(recording, name)[:, joint])
                _draw_marks(one, [mark for mark in marks if mark.concerns(name, joint)], colours, title_pad)
                unit = ("N" if length == "m" else "N m") if name == "tau" else length + QUANTITIES[name][1]
                one.set_ylabel(f"{joints.names[joint]}\n[{unit}]" if name == names[0] else f"[{unit}]")
        for one, name in zip(axes[0], names, strict=True):
            one.set_title(QUANTITIES[name][0], loc="left", pad=title_pad)
        for one in axes[-1]:
            one.set_xlabel("time [s]" if len(breaks) == 0 else f"time, {motions} one after another [s]")
        figure.align_ylabels()
        if title_pad is not None:  # a strip is to be seen as its own panel's, not as that of the one above
            figure.set_layout_engine("constrained", h_pad=2 * ABOVE)
        _legend(figure, marks, colours)
    return figure


def _colours(marks: Sequence[_Mark]) -> dict[Kind, str]:
    """One for each kind; the worst of a kind comes first."""
    left = {severity: cycle(colours) for severity, colours in COLOURS.items()}
    colours: dict[Kind, str] = {}
    for mark in marks:
        if mark.finding.kind not in colours:
            colours[mark.finding.kind] = next(left[mark.finding.severity])
    return colours


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


def _draw_marks(axes: Axes, marks: Sequence[_Mark], colours: Mapping[Kind, str], title_pad: float | None) -> None:
    """Places in the strip above, a lane a kind; those of the joint's own findings shaded, too, or its panel framed."""
    lanes = [kind for kind in colours if any(mark.spans for mark in marks if mark.finding.kind == kind)]
    height = min(LANE, STRIP / max(1, len(lanes)))
    inches = axes.figure.dpi_scale_trans + ScaledTranslation(0, 1, axes.transAxes)  # pyright: ignore[reportArgumentType]
    strip = {"transform": blended_transform_factory(axes.transData, inches), "linewidth": 0, "clip_on": False}
    for lane in range(len(lanes)):
        start, stop = axes.get_xlim()
        axes.broken_barh([(start, stop - start)], (ABOVE + height * lane, 0.8 * height), color=LANE_COLOUR, **strip)
    for mark in reversed(marks):
        colour, of_joint = colours[mark.finding.kind], mark.finding.joint is not None
        if mark.spans:
            bottom = ABOVE + height * lanes.index(mark.finding.kind)
            bars = [(start, stop - start) for start, stop in mark.spans]
            axes.broken_barh(bars, (bottom, 0.8 * height), color=colour, **strip)
            if of_joint and len(bars) <= MOST_SHADED:
                whole = axes.get_xaxis_transform()
                axes.broken_barh(bars, (0, 1), transform=whole, color=colour, alpha=0.2, linewidth=0, zorder=0)
        elif of_joint:
            for side in axes.spines.values():
                side.set(visible=True, color=colour, linewidth=1.6)
    own = {mark.finding.kind for mark in marks if mark.finding.joint is not None}
    told: list[Kind] = [kind for kind in colours if kind in own]
    if told:
        text = ", ".join(kind.replace("_", " ") for kind in told)
        axes.set_title(text, loc="right", color=colours[told[0]], fontsize=8, pad=title_pad)


def _places(clock: np.ndarray, rows: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Where to mark rows [s]; nowhere if that is nearly everywhere."""
    whole = float(clock[-1] - clock[0])
    merged = _merged(clock, rows, NARROWEST * whole)
    return [] if sum(stop - start for start, stop in merged) > ALL_OVER * whole else merged


def _merged(clock: np.ndarray, rows: Sequence[tuple[int, int]], narrowest: float) -> list[tuple[float, float]]:
    """Spans in time, each wide enough to be seen, those that then touch as one."""
    merged: list[tuple[float, float]] = []
    for first, end in rows:
        start, stop = float(clock[first]), float(clock[min(end, len(clock) - 1)])
        short = max(0.0, narrowest - (stop - start)) / 2
        start, stop = max(float(clock[0]), start - short), min(float(clock[-1]), stop + short)
        if merged and start <= merged[-1][1]:
            start = merged.pop()[0]
        merged.append((start, stop))
    return merged


def _legend(figure: Figure, marks: Sequence[_Mark], colours: Mapping[Kind, str]) -> None:
    """Every kind that is marked or framed, by its colour; what is of the whole log in words."""
    if not marks:
        figure.suptitle("nothing worse than notes", x=0.99, ha="right", fontsize=9, color=INK)
        return
    everywhere = [mark.finding for mark in marks if not mark.spans and mark.finding.joint is None]
    words = (f"{one.kind.replace('_', ' ')} ({_how_often(one)})" for one in everywhere)
    title = "everywhere, and so not marked: " + ", ".join(words) if everywhere else None
    handles = []
    for kind, colour in colours.items():
        same = [mark for mark in marks if mark.finding.kind == kind]
        own = [mark.finding for mark in same if mark.spans or mark.finding.joint is not None]
        if own:
            count = sum(len(one.rows) for one in own)
            places = f", {plural(count, 'place')}" if count else ""
            handles.append(Patch(color=colour, label=f"{kind.replace('_', ' ')}: {own[0].severity}{places}"))
    figure.legend(handles=handles, loc="outside upper right", ncols=4, title=title)


def _how_often(finding: Finding) -> str:
    told = f"{finding.severity}, {finding.column or 'all joints'}"
    return f"{told}, {plural(len(finding.rows), 'place')}" if finding.rows else told
