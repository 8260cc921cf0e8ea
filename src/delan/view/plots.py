"""The curves beside the scene: tracking error, torque and its components, learner and loop."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..figures import INK, JOINT_COLOURS
from ..joints import Joints
from ..online.broadcast import LEARNING
from .sources import Columns

Column = Float[np.ndarray, " time"]
Curve = Float[np.ndarray, " points"]

# Curves show the last 12 s with 20 points per second.
SECONDS = 12.0
POINTS = 240
# Window of the tracking error's mean [s], and the least error that a logarithmic axis gets [rad].
ERROR_SECONDS = 0.25
LEAST_ERROR = 1e-6
# Axis of the tracking error [rad or m].
ERROR_RANGE = (1e-5, 1.0)

PART_COLOURS = {
    "inertial": "#0b6e99",
    "coriolis": "#d9742b",
    "gravity": "#8f9bab",
    "friction": "#8a5fbf",
}
PALE = "#aeb8c4"
SWAP = "#c0392b"
HEIGHT = 172  # of a plot [pixels]


class TimeGrid(NamedTuple):
    """Times of the points of a curve [s], the row of each, and whether there is such a row."""

    t: Curve
    rows: Int[np.ndarray, " points"]
    known: Bool[np.ndarray, " points"]


def time_grid(columns: Columns, seconds: float = SECONDS, points: int = POINTS) -> TimeGrid:
    """Return evenly spaced times up to the last row; those before the first row are not known."""
    t = columns["t"][:, 0]
    if len(t) == 0:
        nothing = np.zeros(points, dtype=bool)
        return TimeGrid(np.linspace(-seconds, 0, points), nothing.astype(int), nothing)
    times = t[-1] - seconds + seconds * np.arange(1, points + 1) / points
    rows = np.searchsorted(t, times + 1e-9, side="right") - 1
    return TimeGrid(times, np.maximum(rows, 0), rows >= 0)


def on_grid(values: Column, grid: TimeGrid) -> Curve:
    """Return a column at the times of a grid, NaN where it is not known."""
    if len(values) == 0:
        return np.full(len(grid.t), np.nan)
    return np.where(grid.known, values[grid.rows], np.nan)


def finite_points(t: Curve, *curves: Curve) -> tuple[np.ndarray, ...]:
    """Return the points at which all curves are finite: a browser cannot scale an axis with NaN."""
    finite = np.isfinite(curves).all(axis=0)
    if not finite.any():
        return (t, *curves)
    return (t[finite], *(curve[finite] for curve in curves))


def tracking_error(columns: Columns, dt: float) -> Float[np.ndarray, "time joints"]:
    """Return the RMS of q_des − q over the last 0.25 s, for every row and joint [rad or m]."""
    error = columns["q_des"] - columns["q"]
    width = max(1, round(ERROR_SECONDS / dt))
    total = np.vstack([np.zeros((1, error.shape[1])), np.cumsum(error**2, axis=0)])
    end = np.arange(1, len(error) + 1)
    start = np.maximum(0, end - width)
    mean = (total[end] - total[start]) / (end - start)[:, None]
    return np.sqrt(np.maximum(mean, LEAST_ERROR**2))


def largest_between(values: Column, grid: TimeGrid) -> Curve:
    """Return the largest value since the previous point of a grid, so that no peak is missed."""
    largest = np.full(len(grid.t), np.nan)
    starts = np.concatenate([[max(0, grid.rows[0])], grid.rows[:-1] + 1])
    for point in np.flatnonzero(grid.known):
        between = values[starts[point] : grid.rows[point] + 1]
        if len(between):
            largest[point] = between.max()
    return largest


def swaps(columns: Columns) -> Float[np.ndarray, " swaps"]:
    """Return the times at which a new model was put into use [s]."""
    return columns["t"][1:, 0][np.diff(columns["model"][:, 0]) > 0]


def rate(count: Column, t: Column, grid: TimeGrid, seconds: float = 1.0) -> Curve:
    """Return the growth rate of a count over the second before each point [1/s]."""
    if len(count) == 0:
        return np.full(len(grid.t), np.nan)
    before = np.minimum(np.searchsorted(t, grid.t - seconds), grid.rows)
    span = t[grid.rows] - t[before]
    growth = (count[grid.rows] - count[before]) / np.maximum(span, 1e-9)
    # A count that falls belongs to a new learner.
    valid = grid.known & (span > 0.5 * seconds) & (growth >= 0)
    return np.where(valid, growth, np.nan)


def idle_seconds(columns: Columns) -> float:
    """Return the time since the learner trained on a new sample [s]; infinite before its first."""
    t = columns["t"][:, 0]
    trained = columns["learner"][:, LEARNING.index("samples")]
    if len(t) == 0 or not np.isfinite(trained[-1]):
        return np.inf
    different = np.flatnonzero(trained != trained[-1])
    first_same = different[-1] + 1 if len(different) else 0
    return float(t[-1] - t[first_same])


def _axes(label: str, log_range: tuple[float, float] | None) -> tuple[Any, ...]:
    """Return the axes of time and of a quantity; a logarithmic one has a line per power of ten."""
    font = "11px sans-serif"
    x = {
        "font": font,
        "labelFont": font,
        "stroke": "#52606d",
        "grid": {"stroke": "#e4e7eb", "width": 1},
        "ticks": {"show": False},
    }
    y = {**x, "scale": "y", "label": label, "labelSize": 16, "labelGap": 0, "size": 46}
    if log_range is not None:
        low, high = (round(np.log10(end)) for end in log_range)
        # More than seven lines do not fit: only every second power then.
        powers = range(low, high + 1, 1 if high - low <= 6 else 2)
        y["splits"] = tuple(10.0**power for power in powers)
        y["values"] = tuple(_power_text(power) for power in powers)
    return ({**x, "size": 24, "space": 60}, y)


def _power_text(power: int) -> str:
    return f"{10.0**power:g}" if -3 < power < 4 else f"1e{power}"


def _line(label: str, colour: str, *, width: float = 1.5, **style: Any) -> dict[str, Any]:
    """Return the uPlot series of a line."""
    return {
        "label": label,
        "stroke": colour,
        "width": width,
        "scale": "y",
        "points": {"show": False},
        **style,
    }


class Plots:
    """The curves of one run, and the tracking error of a second run if there is one.

    Attributes:
        joint: the joint whose torque is shown.
    """

    def __init__(self, gui: Any, joints: Joints, *, live: bool, rival_name: str | None = None):
        self._gui = gui
        self._names = joints.names
        self._live = live
        self._rival_name = rival_name
        self.joint = 0

    def add_tracking(self) -> None:
        """Add tracking error, torque and torque components to the open container."""
        series = []
        for i, name in enumerate(self._names):
            series.append(_line(name, JOINT_COLOURS[i % 7]))
        if self._rival_name is not None:
            for i, name in enumerate(self._names):
                label = f"{name}, {self._rival_name}"
                series.append(_line(label, JOINT_COLOURS[i % 7], dash=(4, 4)))
        dot = {"show": True, "size": 7, "space": 0, "width": 1, "fill": SWAP, "stroke": SWAP}
        series.append({**_line("new model", SWAP, width=0), "points": dot})
        self._error = self._plot(
            "Tracking error, mean of 0.25 s [rad]", series, label="rad", log_range=ERROR_RANGE
        )
        torque = [_line("applied", PALE, width=3.5), _line("feed-forward", JOINT_COLOURS[0])]
        self._torque = self._plot("Torque of the chosen joint [N m]", torque, label="N m")
        self._add_parts()

    def _add_parts(self) -> None:
        # The outermost first, each filled down to zero; then again for the parts below zero.
        stack = []
        for name, colour in reversed(PART_COLOURS.items()):
            stack.append(_line(name, colour, width=0, fill=colour))
        series = [*stack, *stack, _line("sum", INK, width=1)]
        self._parts = self._plot(
            "Its components by the model in use, stacked [N m]", series, label="N m", legend=False
        )
        # The plot's own legend would list every component twice.
        legend = ""
        for name, colour in {**PART_COLOURS, "sum": INK}.items():
            legend += f"<span style='color:{colour}'>■</span> {name}&ensp; "
        style = "text-align:center;font:11px sans-serif;margin:-4px 0 4px"
        self._gui.add_html(f"<div style='{style}'>{legend.rstrip()}</div>")

    def add_learning(self) -> None:
        """Add the curves of learner and loop, if live, and the smallest eigenvalue."""
        self._warning = None
        if self._live:
            self._warning = self._gui.add_markdown("", visible=False)
            loss = [
                _line("loss of a step", JOINT_COLOURS[0]),
                _line("nMSE on held-out samples", JOINT_COLOURS[1]),
            ]
            self._loss = self._plot("Learner", loss, label="loss", log_range=(1e-9, 10.0))
            samples = [_line("samples/s", JOINT_COLOURS[2])]
            self._rate = self._plot("Samples trained on per second", samples, label="1/s")
            delay = [_line("largest in 50 ms", JOINT_COLOURS[0])]
            self._delay = self._plot(
                "Delay of a control period [µs]", delay, label="µs", log_range=(0.1, 1e4)
            )
        least = [_line("of the learned inertia", JOINT_COLOURS[0])]
        self._eigenvalue = self._plot("Smallest eigenvalue of the inertia", least, label="kg m²")

    def _plot(
        self,
        title: str,
        series: Sequence[dict[str, Any]],
        *,
        label: str,
        log_range: tuple[float, float] | None = None,
        legend: bool = True,
    ) -> Any:
        y: dict[str, Any] = {"auto": True}
        if log_range is not None:
            y = {"distr": 3, "range": log_range}  # 3: logarithmic
        return self._gui.add_uplot(
            data=(np.linspace(-1.0, 0.0, 2), *[np.full(2, np.nan)] * len(series)),
            series=({"label": "t [s]"}, *series),
            title=title,
            scales={"x": {"time": False, "auto": True}, "y": y},
            axes=_axes(label, log_range),
            legend={"show": legend, "live": False},
            cursor={"show": False},
            height=HEIGHT,
            padding=(10, 10, 0, 0),  # room for half of the uppermost number
        )

    def update(self, shown: Sequence[Columns], dt: float) -> None:
        """Draw the last seconds of the rows of one run, or of two side by side."""
        columns = shown[0]
        grid = time_grid(columns)
        curves = []
        for rows in shown:
            own = time_grid(rows)
            error = tracking_error(rows, dt)
            curves += [on_grid(error[:, joint], own) for joint in range(len(self._names))]
        self._error.data = (grid.t, *curves, _swap_marks(swaps(columns), grid))
        applied = on_grid(columns["tau"][:, self.joint], grid)
        feed_forward = on_grid(columns["tau_ff"][:, self.joint], grid)
        self._torque.data = finite_points(grid.t, applied, feed_forward)
        if self._live:
            learner = dict(zip(LEARNING, columns["learner"].T, strict=True))
            loss = on_grid(learner["loss"], grid)
            self._loss.data = (grid.t, loss, on_grid(learner["error"], grid))
            samples = rate(learner["samples"], columns["t"][:, 0], grid)
            self._rate.data = finite_points(grid.t, samples)
            delay = largest_between(columns["lateness"][:, 0], grid)
            self._delay.data = (grid.t, 1e6 * np.maximum(delay, 2e-7))

    def warn(self, text: str) -> None:
        """Show a warning above the learner's curves; an empty text hides it."""
        if self._warning is not None and self._warning.content != text:
            self._warning.content = text
            self._warning.visible = bool(text)

    def update_parts(self, t: Curve, parts: np.ndarray | None, least: Curve | None) -> None:
        """Draw torque components, shape (time, 4, joints), and eigenvalues, as far as known."""
        nothing = np.full(len(t), np.nan)
        if least is None:
            least = nothing
        if parts is None:
            self._parts.data = (t, *[nothing] * (2 * len(PART_COLOURS) + 1))
        else:
            shown = parts[:, :, self.joint]
            above = np.cumsum(np.maximum(shown, 0), axis=1)[:, ::-1]
            below = np.cumsum(np.minimum(shown, 0), axis=1)[:, ::-1]
            self._parts.data = finite_points(t, *above.T, *below.T, shown.sum(axis=1))
        self._eigenvalue.data = finite_points(t, least)


def _swap_marks(times: np.ndarray, grid: TimeGrid) -> Curve:
    """Return points at the lower edge of the error's axis where a model was put into use."""
    marks = np.full(len(grid.t), np.nan)
    points = np.searchsorted(grid.t, times)
    marks[points[points < len(marks)]] = 1.6 * ERROR_RANGE[0]
    return marks
