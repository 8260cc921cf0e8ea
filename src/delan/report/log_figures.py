"""The figures of a log's page that show torque over time and what is left of it: traces, parts, residuals, cut-offs."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..drawing import INK, LEARNED, RIVAL, drawing, truth_line
from ..joints import Dataset, Joints, TorqueComponents
from ..learning.evaluate import predict
from ..learning.intervals import runs_of
from ..learning.preparing import CutoffTrial
from ..learning.remembering import memory_of
from ..models.dynamics import DynamicsModel, InverseDynamics
from ..models.trust import TrustedModel

WIDTH = 9.6
"""Of the page's figures [inches]."""
PARTS = {
    "inertial": ("inertial", "#0072b2"),
    "coriolis": ("Coriolis", "#009e73"),
    "gravity": ("gravity", "#e69f00"),
    "friction": ("friction", "#cc79a7"),
}
"""Names and colours that colour-blind people can tell apart (Okabe and Ito)."""
BAND, DOTS = "#5fb0d3", "#7b8794"
"""Colours of the band, and of dots, which are pixels, while all else is lines."""
WINDOW_SECONDS, WINDOW_ROWS = 8.0, 400
"""How much of the unseen motion is drawn, and in so many rows at most."""
MOST_DOTS, BINS = 1500, 24
"""Samples drawn as dots, and bins of their running median."""


@dataclass(frozen=True, eq=False)
class Predicted:
    """Unseen samples and what a model says of them: the torque, its parts if it knows them, and half the band."""

    samples: Dataset
    torque: Float[np.ndarray, "time dof"]
    parts: TorqueComponents | None = None
    band: Float[np.ndarray, "time dof"] | None = None

    @property
    def residual(self) -> Float[np.ndarray, "time dof"]:
        """Measured minus predicted [N m or N]."""
        return self.samples.tau - self.torque

    def rows(self, chosen: Any) -> "Predicted":
        parts = None if self.parts is None else TorqueComponents(*(part[chosen] for part in self.parts))
        band = None if self.band is None else self.band[chosen]
        return replace(self, samples=self.samples.rows(chosen), torque=self.torque[chosen], parts=parts, band=band)


def predicted(
    model: InverseDynamics, dataset: Dataset, *, parts: bool = False, trusted: TrustedModel | None = None
) -> Predicted:
    """What a model says of every sample of a dataset."""
    one, memory = dataset.samples, memory_of(model, dataset)
    with jax.enable_x64(True):
        motions = tuple(jnp.asarray(column) for column in (one.q, one.qd, one.qdd))
        torque = predict(model, "inverse_dynamics", *motions, memory=memory)
        known = parts and isinstance(model, DynamicsModel)
        found = predict(model, "components", *motions, memory=memory) if known else None
        band = None if trusted is None else predict(trusted, "torque_band", *motions, memory=memory)
    return Predicted(one, torque, found, band)


def window(samples: Dataset) -> Int[np.ndarray, " rows"]:
    """Some seconds from the middle of the longest motion, thinned if they are many rows."""
    first, end = max(runs_of(samples), key=lambda run: samples.t[run[1] - 1] - samples.t[run[0]])
    t = samples.t[first:end]
    middle = float(t[0] + t[-1]) / 2
    inside = first + np.flatnonzero(np.abs(t - middle) <= WINDOW_SECONDS / 2)
    return inside[:: max(1, -(-len(inside) // WINDOW_ROWS))]


def draw_traces(told: Predicted) -> Figure:
    """Measured and predicted torque of every joint over some seconds, with the band if there is one."""
    one = told.samples
    clock = one.t - one.t[0]
    with drawing(*_size(one.dof)) as figure:
        for joint, axes in enumerate(_panels(figure, one.joints)):
            if told.band is not None:
                low, high = told.torque[:, joint] - told.band[:, joint], told.torque[:, joint] + told.band[:, joint]
                axes.fill_between(clock, low, high, color=BAND, alpha=0.5, linewidth=0, label="90 % band")
            # Thin, not as broad as a truth elsewhere: it would hide the band.
            axes.plot(clock, one.tau[:, joint], color=INK, linewidth=0.7, label="measured")
            axes.plot(clock, told.torque[:, joint], color=LEARNED, linewidth=1.2, label="model")
        _finish(figure)
    return figure


def draw_parts(told: Predicted) -> Figure:
    """The parts of the predicted torque over the same seconds."""
    assert told.parts is not None
    clock = told.samples.t - told.samples.t[0]
    with drawing(*_size(told.samples.dof)) as figure:
        for joint, axes in enumerate(_panels(figure, told.samples.joints)):
            truth_line(axes, clock, told.samples.tau[:, joint], "measured torque")
            for name, (label, colour) in PARTS.items():
                axes.plot(clock, getattr(told.parts, name)[:, joint], color=colour, linewidth=1.2, label=label)
        _finish(figure)
    return figure


def _size(dof: int) -> tuple[float, float]:
    rows = dof if dof <= 3 else -(-dof // 2)
    return WIDTH, 1.3 * rows + 0.8


def _panels(figure: Figure, joints: Joints) -> list[Axes]:
    """One for each joint, in one column or, for more than three, in two."""
    columns = 1 if joints.dof <= 3 else 2
    axes = list(figure.subplots(-(-joints.dof // columns), columns, sharex=True, squeeze=False).flat)
    for spare in axes[joints.dof :]:
        spare.axis("off")
    for one, joint in zip(axes, range(joints.dof), strict=False):
        one.set_title(joints.names[joint], loc="left", pad=3)
        one.set_ylabel(f"[{force_unit(joints, joint)}]")
        one.grid(axis="y")
        one.locator_params(axis="y", nbins=4)
    for one in axes[max(0, joints.dof - columns) : joints.dof]:
        one.set_xlabel("time [s]")
        one.tick_params(labelbottom=True)
    return axes[: joints.dof]


def _finish(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.align_ylabels()


def force_unit(joints: Joints, joint: int) -> str:
    return "N" if joints.kinds[joint] == "prismatic" else "N m"


def length_unit(joints: Joints, joint: int) -> str:
    return "m" if joints.kinds[joint] == "prismatic" else "rad"


def spread_rows(count: int, most: int = MOST_DOTS) -> Int[np.ndarray, " rows"]:
    """So many rows at most, evenly."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))


def draw_residuals(told: Predicted) -> Figure:
    """What the model leaves over, of each joint a row, against position, velocity and time."""
    one, residual = told.samples, told.residual
    chosen = spread_rows(len(one))
    with drawing(WIDTH, 1.25 * one.dof + 0.7) as figure:
        axes = figure.subplots(one.dof, 3, squeeze=False, sharey="row")
        for joint, row in enumerate(axes):
            unit, force = length_unit(one.joints, joint), force_unit(one.joints, joint)
            columns = (one.q[:, joint], one.qd[:, joint], _clock(one))
            labels = (f"position [{unit}]", f"velocity [{unit}/s]", "time, one motion after the other [s]")
            for panel, values, label in zip(row, columns, labels, strict=True):
                dots(panel, values[chosen], residual[chosen, joint])
                panel.plot(*_running_median(values, residual[:, joint]), color=RIVAL, linewidth=1.3)
                panel.set_xlabel(label, fontsize=8)
            reach = 1.2 * float(np.quantile(np.abs(residual[:, joint]), 0.998)) or 1.0
            row[0].set_ylim(-reach, reach)
            row[0].set_ylabel(f"[{force}]")
            row[0].locator_params(axis="y", nbins=4)
            size, whole = np.sqrt(np.mean(residual[:, joint] ** 2)), one.tau[:, joint].std()
            row[0].set_title(
                f"{one.joints.names[joint]}: error {size:.2g} of a spread of {whole:.3g} {force}", loc="left"
            )
        figure.align_ylabels()
    return figure


def dots(axes: Axes, x: np.ndarray, y: np.ndarray, label: str | None = None) -> None:
    """Light dots as pixels, a line at zero, and a grid."""
    axes.axhline(0, color="#9aa5b1", linewidth=0.6)
    few = len(x) < MOST_DOTS / 2
    size, strength = (4.0, 0.6) if few else (3.0, 0.45)
    look: Any = {"color": DOTS, "markersize": size, "alpha": strength, "markeredgewidth": 0}
    axes.plot(x, y, ".", rasterized=True, label=label, **look)
    axes.grid(axis="y")


def _clock(samples: Dataset) -> Float[np.ndarray, " time"]:
    """Seconds of motion, runs set one after the other."""
    clock, last = np.zeros(len(samples)), 0.0
    for first, end in runs_of(samples):
        clock[first:end] = last + samples.t[first:end] - samples.t[first]
        last = float(clock[end - 1])
    return clock


def _running_median(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The median of y in bins of as many samples each, at the median of x there."""
    groups = [group for group in np.array_split(np.argsort(x, kind="stable"), BINS) if len(group)]
    return np.array([np.median(x[group]) for group in groups]), np.array([np.median(y[group]) for group in groups])


def plain_numbers(axis: Axis) -> None:
    """Ticks of a logarithmic axis at 1, 2, 5, 10, … or, over a wide range, at 1, 10, 100, …"""
    low, high = axis.get_view_interval()
    wide = high > 1e3 * low
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def draw_cutoffs(trials: tuple[CutoffTrial, ...], chosen: float) -> Figure:
    """The error on validation trajectories against the cut-off of the filter, the chosen one marked."""
    cutoffs, errors = np.array([[one.cutoff, one.validation] for one in trials]).T
    with drawing(5.6, 2.7) as figure:
        axes = figure.subplots()
        axes.plot(cutoffs, errors, "o-", color=LEARNED, linewidth=1.3, markersize=4, label="tried")
        best = int(np.argmin(np.abs(cutoffs - chosen)))
        axes.plot(cutoffs[best], errors[best], "D", color=RIVAL, markersize=8, label=f"chosen: {chosen:.3g} Hz")
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        if errors.max() > 3 * errors.min() > 0:
            axes.set_yscale("log")
            plain_numbers(axes.yaxis)
        axes.set_xlabel("cut-off of the low-pass [Hz]")
        axes.set_ylabel("validation error (nMSE)")
        axes.grid()
        axes.legend(loc="best", labelcolor=INK)
    return figure
