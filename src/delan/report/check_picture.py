"""Picture of a log check: the motion of every joint, with the rows of all findings marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from ..figures import INK, LEARNED, drawing
from ..joints import Recording
from ..logs.doctor import Finding
from ..logs.doctor.finding import Kind, RowMap, plural
from ..logs.segments import measurable

# Size of the picture: its width, the height per joint, and the largest height [inches].
WIDTH = 11.5
ROW_HEIGHT = 1.25
TALLEST = 12.0
# Colours of the kinds of findings, by their worst severity; none is close to that of the curves.
COLOURS = {
    "error": ("#c62828", "#d81b60", "#880e4f"),
    "warning": ("#e39a1c", "#7b3fa0", "#2e7d32", "#6d4c41", "#616e7c"),
}
LANE_COLOUR = "#eef1f4"
# Rows drawn per channel: more are not visible.
POINTS = 4000
# Values beyond this are fill values of loggers and would hide the motion.
LARGEST = 1e12
# Smallest width of a mark, as a share of the picture.
NARROWEST = 0.006
# Findings with at most this many marks are also shaded behind the curve.
MOST_SHADED = 40
# Marks over more than this share of the time show no place: the finding is listed in words.
EVERYWHERE = 0.5
# The strip of marks above a panel, where they hide no curve: its height, the largest height of a
# lane for one kind, and the distance to the panel [inches].
STRIP = 0.16
LANE = 0.08
ABOVE = 0.03
QUANTITIES = {"q": "position", "qd": "velocity", "tau": "torque"}


@dataclass(frozen=True, eq=False)
class _Mark:
    """An error or warning, and its time spans [s]; none if it concerns most of the log."""

    finding: Finding
    spans: list[tuple[float, float]]

    @property
    def kind(self) -> Kind:
        return self.finding.kind

    @property
    def of_joint(self) -> bool:
        """Whether the finding is about one joint."""
        return self.finding.joint is not None

    def concerns(self, name: str, joint: int) -> bool:
        """Whether the finding is about this channel."""
        columns = (None, "t", "trajectory", name)
        return self.finding.joint in (None, joint) and self.finding.column in columns


def draw_check(recording: Recording, findings: Sequence[Finding]) -> Figure:
    """Draw one row per joint and one column per quantity, with marks and frames for findings.

    Findings with rows are marked above the panels, findings about a whole channel frame its panel.
    In an excerpt of a log, rows between its segments are marked at the nearest row.
    """
    recording = measurable(recording)  # the check saw it so, too, and axes must end somewhere
    joints = recording.joints
    names = [name for name in QUANTITIES if getattr(recording, name) is not None]
    clock, breaks = _clock(recording)
    marks = _marks(recording, findings, clock)
    colours = _colours(marks)
    has_strips = any(mark.spans for mark in marks)
    title_pad = 72 * (STRIP + 2 * ABOVE) if has_strips else None
    with drawing(WIDTH, min(TALLEST, ROW_HEIGHT * joints.dof + 1.0)) as figure:
        panels = figure.subplots(joints.dof, len(names), sharex=True, squeeze=False)
        for joint in range(joints.dof):
            for axes, name in zip(panels[joint], names, strict=True):
                _draw_channel(axes, clock, breaks, getattr(recording, name)[:, joint])
                concerned = [mark for mark in marks if mark.concerns(name, joint)]
                _draw_marks(axes, concerned, colours, title_pad)
                axes.set_ylabel(f"[{getattr(joints.units[joint], name)}]")
            panels[joint, 0].set_ylabel(f"{joints.names[joint]}\n[{joints.units[joint].q}]")
        for axes, name in zip(panels[0], names, strict=True):
            axes.set_title(QUANTITIES[name], loc="left", pad=title_pad)
        for axes in panels[-1]:
            axes.set_xlabel(_time_label(recording, breaks))
        figure.align_ylabels()
        if has_strips:
            # More distance, so that a strip is not taken for part of the panel above it.
            figure.set_layout_engine("constrained", h_pad=2 * ABOVE)
        _legend(figure, marks, colours)
    return figure


def _marks(recording: Recording, findings: Sequence[Finding], clock: np.ndarray) -> list[_Mark]:
    """Return errors and warnings with the times of their rows."""
    marks = []
    for finding in findings:
        if finding.severity == "note":
            continue
        if recording.excerpt is not None:
            finding = RowMap(recording.excerpt.segments).to_recording(finding)
        marks.append(_Mark(finding, _places(clock, finding.rows)))
    return marks


def _time_label(recording: Recording, breaks: np.ndarray) -> str:
    if len(breaks) == 0:
        return "time [s]"
    motions = "trajectories" if recording.excerpt is None else "segments of the log"
    return f"time, {motions} one after another [s]"


def _colours(marks: Sequence[_Mark]) -> dict[Kind, str]:
    """Assign a colour to each kind; the worst finding of a kind comes first."""
    unused = {severity: cycle(colours) for severity, colours in COLOURS.items()}
    colours: dict[Kind, str] = {}
    for mark in marks:
        if mark.kind not in colours:
            colours[mark.kind] = next(unused[mark.finding.severity])
    return colours


def _clock(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Return a time that increases through all rows, and the first rows of new trajectories."""
    steps = np.diff(recording.t)
    inside = np.diff(recording.trajectory) == 0
    good = np.isfinite(steps) & (steps > 0) & inside
    usual = 1.0
    if good.any():
        usual = float(np.median(steps[good]))
    clock = np.concatenate([[0.0], np.cumsum(np.where(good, steps, usual))])
    return clock, np.flatnonzero(~inside) + 1


def _draw_channel(axes: Axes, clock: np.ndarray, breaks: np.ndarray, values: np.ndarray) -> None:
    shown = np.where(np.abs(values) < LARGEST, values, np.nan).astype(float)
    chosen = _thinned(shown)
    line = shown.copy()
    line[breaks] = np.nan  # interrupts the line between trajectories
    axes.plot(clock[chosen], line[chosen], color=LEARNED, linewidth=0.8)
    finite = shown[np.isfinite(shown)]
    if len(finite):
        low = float(finite.min())
        high = float(finite.max())
        margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        axes.set_ylim(low - margin, high + margin)
    # A log of one row still needs an axis of some length.
    duration = (clock[-1] - clock[0]) or 1.0
    axes.set_xlim(clock[0], clock[0] + duration)
    axes.grid(axis="y")
    axes.locator_params(axis="y", nbins=4)


def _thinned(values: np.ndarray) -> np.ndarray:
    """Return the rows of the smallest and largest value of each bin, so that no spike is lost."""
    if len(values) <= POINTS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), POINTS // 2 + 1).astype(int)
    rows: set[int] = {0, len(values) - 1}
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = values[start:end]
        finite = np.isfinite(part)
        filled = np.where(finite, part, 0.0)
        rows |= {start + int(np.argmin(filled)), start + int(np.argmax(filled))}
        if not finite.all():
            rows.add(start + int(np.argmin(finite)))
    return np.array(sorted(rows))


def _draw_marks(
    axes: Axes, marks: Sequence[_Mark], colours: Mapping[Kind, str], title_pad: float | None
) -> None:
    """Mark rows in the strip above, one lane per kind, and shade or frame findings of the joint."""
    height = min(LANE, STRIP / max(1, len({mark.kind for mark in marks if mark.spans})))
    above = ScaledTranslation(0, 1, axes.transAxes)  # pyright: ignore[reportArgumentType]
    inches = axes.figure.dpi_scale_trans + above
    strip = {
        "transform": blended_transform_factory(axes.transData, inches),
        "linewidth": 0,
        "clip_on": False,
    }
    start, stop = axes.get_xlim()
    lanes: dict[Kind, tuple[float, float]] = {}
    titles = []
    for kind in colours:
        of_kind = [mark for mark in marks if mark.kind == kind]
        if any(mark.spans for mark in of_kind):
            lanes[kind] = (ABOVE + height * len(lanes), 0.8 * height)
            axes.broken_barh([(start, stop - start)], lanes[kind], color=LANE_COLOUR, **strip)
        if any(mark.of_joint for mark in of_kind):
            titles.append(kind)
    # The worst finding is drawn last, on top of the others.
    for mark in reversed(marks):
        colour = colours[mark.kind]
        bars = [(start, stop - start) for start, stop in mark.spans]
        if bars:
            axes.broken_barh(bars, lanes[mark.kind], color=colour, **strip)
        if mark.of_joint and 0 < len(bars) <= MOST_SHADED:
            panel = axes.get_xaxis_transform()
            shade = {"color": colour, "alpha": 0.2, "linewidth": 0, "zorder": 0}
            axes.broken_barh(bars, (0, 1), transform=panel, **shade)
        if mark.of_joint and not bars:
            for side in axes.spines.values():
                side.set(visible=True, color=colour, linewidth=1.6)
    if titles:
        text = ", ".join(map(_words, titles))
        axes.set_title(text, loc="right", color=colours[titles[0]], fontsize=8, pad=title_pad)


def _places(clock: np.ndarray, rows: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Return where to mark rows [s], nowhere if that is nearly everywhere.

    Each span is wide enough to be visible; spans that then touch are merged.
    """
    first_time = float(clock[0])
    last_time = float(clock[-1])
    whole = last_time - first_time
    places: list[tuple[float, float]] = []
    for first, end in rows:
        start = float(clock[first])
        stop = float(clock[min(end, len(clock) - 1)])
        short = max(0.0, NARROWEST * whole - (stop - start)) / 2
        start = max(first_time, start - short)
        stop = min(last_time, stop + short)
        if places and start <= places[-1][1]:
            start = places.pop()[0]
        places.append((start, stop))
    if sum(stop - start for start, stop in places) > EVERYWHERE * whole:
        return []
    return places


def _legend(figure: Figure, marks: Sequence[_Mark], colours: Mapping[Kind, str]) -> None:
    """List the kinds that are marked or framed by colour, and findings about the whole log."""
    if not marks:
        figure.suptitle("no errors or warnings", x=0.99, ha="right", fontsize=9, color=INK)
        return
    everywhere = []
    visible: dict[Kind, list[Finding]] = {}
    for mark in marks:
        if mark.spans or mark.of_joint:
            visible.setdefault(mark.kind, []).append(mark.finding)
        else:
            facts = [mark.finding.severity, mark.finding.column or "all joints"]
            if mark.finding.rows:
                facts.append(plural(len(mark.finding.rows), "place"))
            everywhere.append(f"{_words(mark.kind)} ({', '.join(facts)})")
    title = None
    if everywhere:
        title = "everywhere, and therefore not marked: " + ", ".join(everywhere)
    handles = []
    for kind, colour in colours.items():
        if kind in visible:
            label = f"{_words(kind)}: {visible[kind][0].severity}"
            count = sum(len(finding.rows) for finding in visible[kind])
            if count:
                label += f", {plural(count, 'place')}"
            handles.append(Patch(color=colour, label=label))
    figure.legend(handles=handles, loc="outside upper right", ncols=4, title=title)


def _words(kind: Kind) -> str:
    return kind.replace("_", " ")
