"""Curves beside the scene: tracking error, torques and their parts, how the learner and the loop do."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..drawing import JOINT_COLOURS
from ..joints import Joints
from .curves import Grid, grid, known, most, rate, shown, swaps, tracking_error
from .sources import Columns

PART_COLOURS = {"inertial": "#0b6e99", "coriolis": "#d9742b", "gravity": "#8f9bab", "friction": "#8a5fbf"}
INK, PALE, SWAP = "#1f2933", "#aeb8c4", "#c0392b"
HEIGHT = 172
ERRORS = (1e-5, 1.0)
"""The range of the tracking error's axis [rad or m]."""


def _axes(label: str, log: tuple[float, float] | None) -> tuple[Any, ...]:
    """Of time and of a quantity; where that is logarithmic, each power of ten (or each second one) has its line."""
    font, lines = "11px sans-serif", {"stroke": "#e4e7eb", "width": 1}
    axis = {"font": font, "labelFont": font, "stroke": "#52606d", "grid": lines, "ticks": {"show": False}}
    y = {**axis, "scale": "y", "label": label, "labelSize": 16, "labelGap": 0, "size": 46}
    if log is not None:
        low, high = (round(np.log10(end)) for end in log)
        powers = range(low, high + 1, 1 if high - low <= 6 else 2)
        y |= {"splits": tuple(10.0**power for power in powers), "values": tuple(_power(power) for power in powers)}
    return ({**axis, "size": 24, "space": 60}, y)


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -3 < power < 4 else f"1e{power}"


def _line(label: str, colour: str, **more: Any) -> dict[str, Any]:
    return {"label": label, "stroke": colour, "width": 1.5, "scale": "y", "points": {"show": False}, **more}


class Plots:
    """All curves of one run, and of a second one beside it if there is one."""

    def __init__(self, gui: Any, joints: Joints, *, live: bool, rival: str | None = None):
        self._gui, self._joints, self._live, self._rival = gui, joints, live, rival
        self._names = joints.names
        self.joint = 0
        self._nothing = np.linspace(-1.0, 0.0, 2)

    def tracking(self) -> None:
        """Into the container that is open: error, torque, parts."""
        names = list(self._names)
        series = [_line(name, JOINT_COLOURS[i % 7]) for i, name in enumerate(names)]
        if self._rival is not None:
            series += [
                _line(f"{name}, {self._rival}", JOINT_COLOURS[i % 7], dash=(4, 4)) for i, name in enumerate(names)
            ]
        mark = {"show": True, "size": 7, "space": 0, "width": 1, "fill": SWAP, "stroke": SWAP}
        series.append({"label": "new model", "stroke": SWAP, "width": 0, "scale": "y", "points": mark})
        self._error = self._plot("Tracking error, mean of 0.25 s [rad]", series, log=ERRORS, label="rad")
        torque = [_line("applied", PALE, width=3.5), _line("feed-forward", JOINT_COLOURS[0])]
        self._torque = self._plot("Torque of the chosen joint [N m]", torque, label="N m")
        # The outermost first, each filled down to zero, and once more for what is below zero.
        stack = [_line(name, colour, width=0, fill=colour) for name, colour in reversed(PART_COLOURS.items())] * 2
        stack.append(_line("sum", INK, width=1))
        self._parts = self._plot("Its parts by the model in use, stacked [N m]", stack, label="N m", legend=False)
        colours = {**PART_COLOURS, "sum": INK}
        self._gui.add_html(
            "<div style='text-align:center;font:11px sans-serif;margin:-4px 0 4px'>"
            + " ".join(f"<span style='color:{colour}'>■</span> {name}&ensp;" for name, colour in colours.items())
            + "</div>"
        )

    def learning(self) -> None:
        """Into the container that is open: loss and rate of the learner, lateness of the loop, smallest eigenvalue."""
        self._loss = self._rate = self._jitter = self._warning = None
        if self._live:
            self._warning = self._gui.add_markdown("", visible=False)
            loss = [_line("loss of a step", JOINT_COLOURS[0]), _line("nMSE on held-out samples", JOINT_COLOURS[1])]
            self._loss = self._plot("Learner", loss, log=(1e-9, 10.0), label="loss")
            self._rate = self._plot(
                "Samples trained on in a second", [_line("samples/s", JOINT_COLOURS[2])], label="1/s"
            )
            late = [_line("latest of 50 ms", JOINT_COLOURS[0])]
            self._jitter = self._plot("How late a period of the loop began [µs]", late, log=(0.1, 1e4), label="µs")
        least = [_line("of the learned inertia", JOINT_COLOURS[0])]
        self._eigen = self._plot("Smallest eigenvalue of the inertia", least, label="kg m²")

    def _plot(
        self,
        title: str,
        series: Sequence[dict[str, Any]],
        *,
        label: str,
        log: tuple[float, float] | None = None,
        legend: bool = True,
    ) -> Any:
        y: dict[str, Any] = {"distr": 3, "range": log} if log else {"auto": True}
        return self._gui.add_uplot(
            data=tuple(self._nothing if i == 0 else np.full(2, np.nan) for i in range(len(series) + 1)),
            series=({"label": "t [s]"}, *series),
            title=title,
            scales={"x": {"time": False, "auto": True}, "y": y},
            axes=_axes(label, log),
            legend={"show": legend, "live": False},
            cursor={"show": False},
            height=HEIGHT,
            padding=(10, 10, 0, 0),  # above the uppermost line half of its number must fit
        )

    def update(self, columns: Columns, dt: float, rival: Columns | None = None) -> None:
        """Draw the last seconds of the rows."""
        at = grid(columns)
        error = tracking_error(columns, dt)
        lines = [shown(error[:, i], at) for i in range(len(self._names))]
        if rival is not None:
            other, beside = grid(rival), tracking_error(rival, dt)
            lines += [shown(beside[:, i], other) for i in range(len(self._names))]
        elif self._rival is not None:
            lines += [np.full(len(at.t), np.nan)] * len(self._names)
        self._error.data = (at.t, *lines, _marks(swaps(columns), at))
        tau, tau_ff = columns["tau"][:, self.joint], columns["tau_ff"][:, self.joint]
        self._torque.data = known(at.t, shown(tau, at), shown(tau_ff, at))
        if self._loss is not None and self._rate is not None and self._jitter is not None:
            learner = columns["learner"]
            self._loss.data = (at.t, shown(learner[:, 0], at), shown(learner[:, 1], at))
            self._rate.data = known(at.t, rate(learner[:, 2], columns["t"][:, 0], at))
            self._jitter.data = (at.t, 1e6 * np.maximum(most(columns["lateness"][:, 0], at), 2e-7))

    def warn(self, text: str) -> None:
        """Above the learner's curves; nothing if all is well."""
        if self._warning is not None and self._warning.content != text:
            self._warning.content, self._warning.visible = text, bool(text)

    def anatomy(self, t: np.ndarray, parts: np.ndarray | None, least: np.ndarray | None) -> None:
        """Draw the parts of the torque, shape (time, 4, joints), and the smallest eigenvalues, where they are known."""
        nothing = np.full(len(t), np.nan)
        if parts is None:
            self._parts.data = (t, *[nothing] * 9)
        else:
            these = parts[:, :, self.joint]
            above, below = (np.cumsum(half, axis=1)[:, ::-1] for half in (np.maximum(these, 0), np.minimum(these, 0)))
            self._parts.data = known(t, *above.T, *below.T, these.sum(axis=1))
        self._eigen.data = known(t, nothing if least is None else least)


def _marks(times: np.ndarray, at: Grid) -> np.ndarray:
    """Points at the lower edge of the error's axis where a model was taken into use."""
    marks = np.full(len(at.t), np.nan)
    place = np.searchsorted(at.t, times)
    marks[place[place < len(marks)]] = 1.6 * ERRORS[0]
    return marks
