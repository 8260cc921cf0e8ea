"""The figures of a fit's page: torque, residuals, cut-offs, friction, inertia and gravity."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..figures import INK, JOINT_COLOURS, LEARNED, RIVAL, drawing, truth_line
from ..joints import Dataset, Joints, TorqueComponents, evenly_spaced
from ..learning.cutoff import CutoffTrial
from ..learning.scores import predict_samples, runs_of
from ..learning.uncertainty import torque_bands
from ..models.dynamics import InverseDynamics, in_precision
from ..models.friction import Friction
from ..models.model import Model
from ..solvers.linearised import drive_parts, mass_matrices, numpy_friction
from ..solvers.loss import Samples

WIDTH = 9.6  # of the page's figures [inches]
# Labels and colours that colour-blind people can tell apart (Okabe and Ito).
PARTS = {
    "inertial": ("inertial", "#0072b2"),
    "coriolis": ("Coriolis", "#009e73"),
    "gravity": ("gravity", "#e69f00"),
    "friction": ("friction", "#cc79a7"),
}
BAND = "#5fb0d3"
DOTS = "#7b8794"
# Length of the motion in the figures over time [s], and its rows at most.
WINDOW_SECONDS = 8.0
WINDOW_ROWS = 400
# Samples drawn as dots, and bins of their running median.
MOST_DOTS = 1500
BINS = 24
# Points of a friction curve, and of a sweep over a joint's range.
SPEEDS = 241
POSITIONS = 41


@dataclass(frozen=True, eq=False)
class Predicted:
    """Unseen samples and a model's prediction of them.

    Attributes:
        samples: the measured motion and torque.
        torque: the predicted torque [N m or N].
        parts: its components, if the model has them.
        band: half the width of the 90 % band, if the model has one.
    """

    samples: Dataset
    torque: Float[np.ndarray, "time dof"]
    parts: TorqueComponents | None = None
    band: Float[np.ndarray, "time dof"] | None = None

    @property
    def residual(self) -> Float[np.ndarray, "time dof"]:
        """Measured minus predicted torque [N m or N]."""
        return self.samples.tau - self.torque

    def rows(self, chosen: Any) -> "Predicted":
        """Return the prediction of the chosen rows."""
        parts = self.parts
        if parts is not None:
            parts = TorqueComponents(*(part[chosen] for part in parts))
        band = self.band
        if band is not None:
            band = band[chosen]
        return Predicted(self.samples.rows(chosen), self.torque[chosen], parts, band)


def predicted(
    model: InverseDynamics,
    dataset: Dataset,
    *,
    parts: bool = False,
    trusted: Model | None = None,
) -> Predicted:
    """Return the prediction of a model for every sample of a dataset."""
    components = None
    band = None
    if parts and model.promises.mechanics:
        components = predict_samples(model, dataset, "components")
    if trusted is not None:
        band = torque_bands(trusted, dataset)
    return Predicted(dataset.samples, predict_samples(model, dataset), components, band)


def window(samples: Dataset) -> Int[np.ndarray, " rows"]:
    """Return the rows of the seconds in the middle of the longest motion, thinned if many."""
    first, end = max(runs_of(samples), key=lambda run: samples.t[run[1] - 1] - samples.t[run[0]])
    t = samples.t[first:end]
    middle = float(t[0] + t[-1]) / 2
    inside = first + np.flatnonzero(np.abs(t - middle) <= WINDOW_SECONDS / 2)
    return inside[:: max(1, -(-len(inside) // WINDOW_ROWS))]


def draw_traces(prediction: Predicted) -> Figure:
    """Draw measured and predicted torque of every joint over time, with the band if any."""
    samples = prediction.samples
    time = samples.t - samples.t[0]
    with drawing(*_size(samples.dof)) as figure:
        for joint, axes in enumerate(_panels(figure, samples.joints)):
            torque = prediction.torque[:, joint]
            if prediction.band is not None:
                half = prediction.band[:, joint]
                style: Any = {"color": BAND, "alpha": 0.5, "linewidth": 0, "label": "90 % band"}
                axes.fill_between(time, torque - half, torque + half, **style)
            # Not as broad as `truth_line`, which would hide the band.
            axes.plot(time, samples.tau[:, joint], color=INK, linewidth=0.7, label="measured")
            axes.plot(time, torque, color=LEARNED, linewidth=1.2, label="model")
        _add_legend(figure)
    return figure


def draw_parts(prediction: Predicted) -> Figure:
    """Draw the components of the predicted torque of every joint over time."""
    assert prediction.parts is not None
    samples = prediction.samples
    time = samples.t - samples.t[0]
    with drawing(*_size(samples.dof)) as figure:
        for joint, axes in enumerate(_panels(figure, samples.joints)):
            truth_line(axes, time, samples.tau[:, joint], "measured torque")
            for name, (label, colour) in PARTS.items():
                part = getattr(prediction.parts, name)[:, joint]
                axes.plot(time, part, color=colour, linewidth=1.2, label=label)
        _add_legend(figure)
    return figure


def _time_columns(dof: int) -> int:
    """Return in how many columns the joints of a figure over time stand."""
    return 1 if dof <= 3 else 2


def _size(dof: int) -> tuple[float, float]:
    return WIDTH, 1.3 * -(-dof // _time_columns(dof)) + 0.8


def _panels(figure: Figure, joints: Joints) -> list[Axes]:
    """Return axes for each joint, in one column, or in two for more than three joints."""
    columns = _time_columns(joints.dof)
    rows = -(-joints.dof // columns)
    panels = list(figure.subplots(rows, columns, sharex=True, squeeze=False).flat)
    for spare in panels[joints.dof :]:
        spare.axis("off")
    panels = panels[: joints.dof]
    for joint, panel in enumerate(panels):
        panel.set_title(joints.names[joint], loc="left", pad=3)
        panel.set_ylabel(f"[{joints.units[joint].tau}]")
        panel.grid(axis="y")
        panel.locator_params(axis="y", nbins=4)
    for panel in panels[-columns:]:
        panel.set_xlabel("time [s]")
        panel.tick_params(labelbottom=True)
    return panels


def _add_legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.align_ylabels()


def draw_residuals(prediction: Predicted) -> Figure:
    """Draw the residual of each joint against position, velocity and time."""
    samples = prediction.samples
    chosen = evenly_spaced(len(samples), MOST_DOTS)
    with drawing(WIDTH, 1.25 * samples.dof + 0.7) as figure:
        axes = figure.subplots(samples.dof, 3, squeeze=False, sharey="row")
        for joint, row in enumerate(axes):
            residual = prediction.residual[:, joint]
            units = samples.joints.units[joint]
            columns = {
                f"position [{units.q}]": samples.q[:, joint],
                f"velocity [{units.qd}]": samples.qd[:, joint],
                "time, one motion after the other [s]": _continuous_time(samples),
            }
            for panel, (label, values) in zip(row, columns.items(), strict=True):
                dots(panel, values[chosen], residual[chosen])
                panel.plot(*_running_median(values, residual), color=RIVAL, linewidth=1.3)
                panel.set_xlabel(label, fontsize=8)
            # Limits that rare outliers do not widen; a residual of zero has no scale of its own.
            limit = 1.2 * float(np.quantile(np.abs(residual), 0.998)) or 1.0
            row[0].set_ylim(-limit, limit)
            row[0].set_ylabel(f"[{units.tau}]")
            row[0].locator_params(axis="y", nbins=4)
            error = np.sqrt(np.mean(residual**2))
            spread = samples.tau[:, joint].std()
            name = samples.joints.names[joint]
            title = f"{name}: RMS error {error:.2g} of a spread of {spread:.3g} {units.tau}"
            row[0].set_title(title, loc="left")
        figure.align_ylabels()
    return figure


def dots(axes: Axes, x: np.ndarray, y: np.ndarray, label: str | None = None) -> None:
    """Draw samples as light dots, with a line at zero and a grid."""
    axes.axhline(0, color="#9aa5b1", linewidth=0.6)
    style: Any = {"color": DOTS, "markersize": 3.0, "alpha": 0.45, "markeredgewidth": 0}
    if len(x) < MOST_DOTS / 2:
        style |= {"markersize": 4.0, "alpha": 0.6}
    # Pixels: thousands of dots as vector graphics would make the page slow.
    axes.plot(x, y, ".", rasterized=True, label=label, **style)
    axes.grid(axis="y")


def _continuous_time(samples: Dataset) -> Float[np.ndarray, " time"]:
    """Return the time of the samples without the gaps between motions [s]."""
    time = np.zeros(len(samples))
    last = 0.0
    for first, end in runs_of(samples):
        time[first:end] = last + samples.t[first:end] - samples.t[first]
        last = float(time[end - 1])
    return time


def _running_median(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the medians of x and of y in bins of equally many samples along x."""
    order = np.argsort(x, kind="stable")
    medians = []
    for rows in np.array_split(order, min(BINS, len(order))):
        medians.append((np.median(x[rows]), np.median(y[rows])))
    along, across = np.array(medians).T
    return along, across


def plain_numbers(axis: Axis) -> None:
    """Put the ticks of a logarithmic axis at 1, 2, 5, 10, … or, over a wide range, at 1, 10, …"""
    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0)
    if high > 1e3 * low:
        subs = (1.0,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def draw_cutoffs(trials: tuple[CutoffTrial, ...], chosen: float) -> Figure:
    """Draw the validation error against the cut-off of the filter, with the chosen one marked."""
    cutoffs, errors = np.array([(trial.cutoff, trial.validation) for trial in trials]).T
    best = int(np.argmin(np.abs(cutoffs - chosen)))
    with drawing(5.6, 2.7) as figure:
        axes = figure.subplots()
        axes.plot(cutoffs, errors, "o-", color=LEARNED, linewidth=1.3, markersize=4, label="tried")
        mark: Any = {"color": RIVAL, "markersize": 8, "label": f"chosen: {chosen:.3g} Hz"}
        axes.plot(cutoffs[best], errors[best], "D", **mark)
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


def draw_friction(model: Any, prediction: Predicted) -> Figure | None:
    """Draw friction against velocity, with the measured torque minus that of the links as dots.

    Returns None if the model has no friction.
    """
    friction = model.friction
    if friction is None or prediction.parts is None:
        return None
    samples = prediction.samples
    parts = prediction.parts
    links = parts.inertial + parts.coriolis + parts.gravity
    chosen = evenly_spaced(len(samples), MOST_DOTS)
    columns = min(samples.dof, 4)
    rows = -(-samples.dof // columns)
    with drawing(_width(columns, 0.4), 2.1 * rows + 0.5) as figure:
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for spare in panels[samples.dof :]:
            spare.axis("off")
        for joint, panel in enumerate(panels[: samples.dof]):
            velocity = samples.qd[:, joint]
            rest = samples.tau[:, joint] - links[:, joint]
            dots(panel, velocity[chosen], rest[chosen], "measured torque without that of the links")
            _add_friction_lines(panel, friction, joint, velocity, np.median(np.abs(links), axis=0))
            panel.set_title(samples.joints.names[joint], loc="left")
            panel.set_xlabel(f"velocity [{samples.joints.units[joint].qd}]")
            panel.set_ylabel(f"friction [{samples.joints.units[joint].tau}]")
            # Limits that rare outliers do not widen.
            low, high = np.quantile(rest, [0.002, 0.998]).tolist()
            margin = 0.15 * (high - low) or 1.0
            panel.set_ylim(low - margin, high + margin)
        handles, labels = panels[0].get_legend_handles_labels()
        # In a narrow figure the labels stand one below the other.
        beside = 1
        if columns > 2:
            beside = len(labels)
        figure.legend(handles, labels, loc="outside lower center", ncols=beside, markerscale=3)
    return figure


def _width(columns: int, margin: float) -> float:
    """Return the width of a figure: one or two columns do not fill the page."""
    return WIDTH if columns > 2 else 3.2 * columns + margin


def _add_friction_lines(
    axes: Axes, friction: Friction, joint: int, velocity: np.ndarray, load: np.ndarray
) -> None:
    """Draw the friction of a joint without load and, if it depends on the load, with load."""
    speeds = np.linspace(velocity.min(), velocity.max(), SPEEDS)
    label = "model"
    if "load" in friction.settings.terms:
        loaded = friction_curve(friction, joint, speeds, load)
        axes.plot(speeds, loaded, "--", color=RIVAL, linewidth=1.3, label="model, median load")
        label += ", no load"
    if "stops" in friction.settings.terms:
        label += ", after much sliding"
    unloaded = friction_curve(friction, joint, speeds, 0 * load)
    axes.plot(speeds, unloaded, color=LEARNED, label=label)


def friction_curve(
    friction: Friction,
    joint: int,
    speeds: Float[np.ndarray, " speeds"],
    load: Float[np.ndarray, " dof"],
) -> Float[np.ndarray, " speeds"]:
    """Return the friction of a joint that moves alone, with stop operators slid [N m or N]."""
    qd = np.zeros((len(speeds), friction.joints.dof))
    qd[:, joint] = speeds
    head = numpy_friction(friction)
    return np.array([head.torque(row, load)[joint] for row in qd])


def draw_workspace(model: Any, samples: Dataset) -> Figure:
    """Draw inertia and gravity torque over the range of each joint, the others at their median."""
    dof = samples.dof
    joints = samples.joints
    # Titles and ticks of many columns would overlap.
    title_size = 8 if dof > 5 else 9
    ticks = 3 if dof > 4 else 5
    with drawing(_width(dof, 1.4), 4.6) as figure:
        axes = figure.subplots(2, dof, squeeze=False, sharex="col", sharey="row")
        for joint in range(dof):
            upper, lower = axes[:, joint]
            _add_sweep(upper, lower, model, samples, joint)
            upper.set_title(joints.names[joint], fontsize=title_size)
            lower.set_xlabel(f"[{joints.units[joint].q}]")
            lower.locator_params(axis="x", nbins=ticks)
            upper.grid(axis="y")
            lower.grid(axis="y")
        axes[0, 0].set_yscale("log")
        plain_numbers(axes[0, 0].yaxis)
        inertia_unit = "kg m²"
        torque_unit = "N m"
        if joints.sliding.any():
            inertia_unit += " or kg"
            torque_unit += " or N"
        axes[0, 0].set_ylabel(f"inertia Hᵢᵢ [{inertia_unit}]")
        axes[1, 0].set_ylabel(f"gravity torque [{torque_unit}]")
        figure.align_ylabels()
        handles, labels = axes[1, 0].get_legend_handles_labels()
        title = "inertia and gravity of"
        figure.legend(handles, labels, loc="outside lower center", ncols=min(dof, 8), title=title)
    return figure


def _add_sweep(upper: Axes, lower: Axes, model: Any, samples: Dataset, joint: int) -> None:
    """Draw the diagonal of H and the gravity torque of all joints over the range of one."""
    positions = np.linspace(samples.q[:, joint].min(), samples.q[:, joint].max(), POSITIONS)
    q = np.tile(np.median(samples.q, axis=0), (POSITIONS, 1))
    q[:, joint] = positions
    still = np.zeros_like(q)
    with jax.enable_x64(True):
        model = in_precision(model)
        inertia = mass_matrices(model, q)
        gravity = drive_parts(model, Samples(q, still, still, still)).gravity
    for number, name in enumerate(samples.joints.names):
        # Seven colours; the next seven joints are dashed.
        again, colour = divmod(number, len(JOINT_COLOURS))
        style: Any = {"color": JOINT_COLOURS[colour], "linestyle": ("-", "--", ":")[again % 3]}
        upper.plot(positions, inertia[:, number, number], linewidth=1.4, **style)
        lower.plot(positions, gravity[:, number], linewidth=1.4, label=name, **style)
