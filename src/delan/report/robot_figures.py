"""Figures of arms, learned and true, and of the motions that robots follow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import proj3d

from ..figures import INK, LEARNED, RIVAL, TRUTH, drawing, smoothed_error, truth_line
from ..joints import JointLimits, Joints, Trajectory
from ..models.geometry import LearnedArm
from ..online.stats import LoopResult
from ..robots.arms import pen_position

Point = Float[np.ndarray, "3"]

VIEW = (18.0, -55.0)  # elevation and azimuth of the camera [degrees]
# Lengths as fractions of the picture: half a joint axis; the distance below which joints share a
# label; a line of text; the legend below the names.
AXIS = 0.07
SAME_PLACE = 0.02
LINE = 0.04
LEGEND = 0.12
GAP = 0.6  # between labels [lines of text]
DOTTED = (0, (0.5, 0.4))  # the line style of a prismatic joint's axis


def draw_skeleton(learned: LearnedArm, true: LearnedArm | None = None) -> Figure:
    """Draw the learned arm at joint positions zero, over the true arm if there is one."""
    arms = [learned]
    if true is not None:
        arms = [true, laid_over(learned, true)]
    low, high = _box(arms)
    size = float((high - low).max())
    with drawing(7.6, 5.6) as figure:
        figure.set_layout_engine("none")
        axes: Any = figure.add_axes(
            (-0.02, 0.02, 0.76, 0.96), projection="3d", computed_zorder=False
        )
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
        axes.set_box_aspect(high - low, zoom=0.85)
        axes.view_init(*VIEW)
        _set_axes(axes, low, high)
        if true is not None:
            _add_arm(axes, arms[0], TRUTH, size, width=2.4, layer=1)
        _add_arm(axes, arms[-1], LEARNED, size, width=1.0, layer=3)
        figure.draw_without_rendering()  # computes the projection that `_projected` uses
        _add_gravity(axes, arms[-1].gravity, np.array([low[0], high[1], high[2]]), size)
        _add_names(axes, arms[-1], size)
        _add_legend(axes, arms)
    return figure


def laid_over(learned: LearnedArm, true: LearnedArm) -> LearnedArm:
    """Return the learned arm moved as near to the true one as joint data leave it free.

    It may rotate about its first axis, slide along it, and be its mirror image. A prismatic first
    joint has a direction but no position, so the arm may slide across it, too.
    """
    candidates = [_turned(learned, true), _turned(_mirrored(learned), true)]
    return min(candidates, key=lambda arm: _distance(arm, true))


def _distance(arm: LearnedArm, other: LearnedArm) -> float:
    """Return the summed differences of points [m] and of unit directions."""
    points = np.abs(arm.points - other.points).sum()
    return float(points + np.abs(arm.directions - other.directions).sum())


def _mirrored(arm: LearnedArm) -> LearnedArm:
    """Return the mirror image of an arm; rotation axes are pseudovectors and change their sign."""
    flip = np.array([1.0, 1.0, -1.0])
    sign = np.where(arm.joints.sliding, 1.0, -1.0)[:, None]
    return replace(
        arm,
        points=arm.points * flip,
        directions=sign * arm.directions * flip,
        gravity=arm.gravity * flip,
    )


def _turned(arm: LearnedArm, true: LearnedArm) -> LearnedArm:
    """Return the arm rotated about z and shifted so that it is nearest to another."""
    sliding = arm.joints.sliding[0]
    free = np.array([sliding, sliding, True])
    centre = np.where(free, arm.points.mean(axis=0), 0.0)
    true_centre = np.where(free, true.points.mean(axis=0), 0.0)
    ours = np.concatenate([arm.points - centre, arm.directions])
    theirs = np.concatenate([true.points - true_centre, true.directions])
    # With x and y as a complex number, the best angle is the phase of the inner product.
    angle = np.angle(np.sum((ours[:, 0] - 1j * ours[:, 1]) * (theirs[:, 0] + 1j * theirs[:, 1])))
    cosine = np.cos(angle)
    sine = np.sin(angle)
    turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
    return replace(
        arm,
        points=(arm.points - centre) @ turn.T + true_centre,
        directions=arm.directions @ turn.T,
        gravity=turn @ arm.gravity,
    )


def _box(arms: Sequence[LearnedArm]) -> tuple[Point, Point]:
    """Return the lowest and highest corner of the picture; its sides have room for their ticks."""
    points = np.concatenate([arm.points for arm in arms])
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    size = np.ptp(points, axis=0)
    longest = max(float(size.max()), 0.1)
    half = (np.maximum(size, 0.35 * longest) + 2 * AXIS * longest) / 2
    return middle - half, middle + half


def _set_axes(axes: Any, low: Point, high: Point) -> None:
    """Set ticks and labels of the axes."""
    # Ticks of x and y near a common corner would overlap.
    margins = (0.1, 0.1, 0.0)
    for i, axis in enumerate((axes.xaxis, axes.yaxis, axes.zaxis)):
        axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
        ticks = MaxNLocator(4).tick_values(low[i], high[i])
        edge = margins[i] * (high[i] - low[i])
        axis.set_ticks(ticks[(ticks > low[i] + edge) & (ticks < high[i] - edge)])
    axes.set(xlabel="x [m]", ylabel="y [m]")
    axes.set_zlabel("z [m]", rotation=90, labelpad=11)
    axes.zaxis.set_rotate_label(False)
    axes.zaxis.set_ticks_position("lower")  # away from the names
    axes.zaxis.set_label_position("lower")
    axes.tick_params(pad=-1)
    axes.tick_params(axis="z", pad=6)


def _add_arm(
    axes: Any, arm: LearnedArm, colour: str, size: float, *, width: float, layer: int
) -> None:
    """Draw links as lines, joint axes as short thick lines, dotted for prismatic joints."""
    link: Any = {"color": colour, "linewidth": 1.6 * width, "solid_capstyle": "round"}
    for body, point in zip(arm.bodies, arm.points, strict=True):
        if body.parent >= 0:
            ends = np.stack([arm.points[body.parent], point])
            axes.plot(*ends.T, zorder=layer, **link)
    axes_of_joints = zip(arm.joints.sliding, arm.points, arm.directions, strict=True)
    for slides, point, direction in axes_of_joints:
        half = AXIS * size * width**0.3 * direction
        ends = np.stack([point - half, point + half])
        axes.plot(
            *ends.T,
            color=colour,
            linewidth=4.5 * width**0.7,
            linestyle=DOTTED if slides else "solid",
            solid_capstyle="butt",
            zorder=layer,
        )
    dot = INK if layer > 1 else colour
    axes.plot(*arm.points.T, "o", color=dot, markersize=3.5 * width, zorder=layer + 1)


def _projected(axes: Any, point: Point) -> tuple[float, float]:
    """Return the position of a point in the picture, as fractions of its width and height."""
    x, y, z = point
    flat = proj3d.proj_transform(x, y, z, axes.get_proj())[:2]
    across, up = axes.transAxes.inverted().transform(axes.transData.transform(flat))
    return float(across), float(up)


def _add_gravity(axes: Any, gravity: Point, corner: Point, size: float) -> None:
    """Draw an arrow along gravity in a corner of the picture."""
    if not gravity.any():
        return
    start = _projected(axes, corner)
    end = _projected(axes, corner + 0.16 * size / np.linalg.norm(gravity) * gravity)
    arrow = {"arrowstyle": "->", "color": INK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, xycoords="axes fraction", arrowprops=arrow)
    # The word stands at the tail of the arrow, on the side away from it.
    offset = (0, -3)
    alignment = "top"
    if end[1] < start[1]:
        offset = (0, 3)
        alignment = "bottom"
    axes.annotate(
        "gravity",
        xy=start,
        xytext=offset,
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        va=alignment,
        fontsize=8,
    )


def _add_names(axes: Any, arm: LearnedArm, size: float) -> None:
    """Write the joint names in a column beside the picture, sorted by height in it."""
    labels = []
    for names, point in _places(arm, SAME_PLACE * size):
        labels.append((_projected(axes, point), names))
    lines = sum(len(names) + GAP for _, names in labels)
    line = min(LINE, (1 - LEGEND) / lines)
    # Each label is at the height of its joint, unless the labels above or below need the room.
    top = 1.0
    lowest = LEGEND + line * lines
    pointer = {
        "arrowstyle": "-",
        "color": "#9aa5b1",
        "linewidth": 0.6,
        "shrinkA": 2,
        "shrinkB": 4,
    }
    for at, names in sorted(labels, key=lambda label: -label[0][1]):
        height = line * (len(names) + GAP)
        top = min(top, max(at[1] + height / 2, lowest))
        lowest -= height
        axes.annotate(
            "\n".join(names),
            xy=at,
            xytext=(1.0, top - height / 2),
            xycoords="axes fraction",
            va="center",
            fontsize=8.5 * line / LINE,
            arrowprops=pointer,
        )
        top -= height


def _places(arm: LearnedArm, same: float) -> list[tuple[list[str], Point]]:
    """Return the names of the joints at each place; joints nearer than `same` [m] share one."""
    places: list[tuple[list[str], Point]] = []
    for name, point in zip(arm.joints.names, arm.points, strict=True):
        for names, other in places:
            if np.linalg.norm(point - other) < same:
                names.append(name)
                break
        else:
            places.append(([name], point))
    return places


def _add_legend(axes: Any, arms: Sequence[LearnedArm]) -> None:
    def line(label: str, colour: str, width: float, style: Any = "solid") -> Line2D:
        return Line2D([], [], label=label, color=colour, linewidth=width, linestyle=style)

    handles = [line("axis of a revolute joint", LEARNED, 4.5)]
    if arms[-1].joints.sliding.any():
        handles.append(line("axis of a prismatic joint", LEARNED, 4.5, DOTTED))
    handles.append(line("line to the parent joint", LEARNED, 1.6))
    if len(arms) > 1:
        handles.append(line("the true arm", TRUTH, 7.0))
    axes.figure.legend(handles=handles, loc="lower right", fontsize=8)


def draw_tracking(result: LoopResult, joints: Joints) -> Figure:
    """Draw the tracking error of each joint over time, and when a new model was put into use."""
    with drawing(8.6, 1.25 * joints.dof + 0.9) as figure:
        axes = figure.subplots(joints.dof, 1, sharex=True, squeeze=False)[:, 0]
        for joint, panel in enumerate(axes):
            for event in result.events:
                if event.kind == "swap":
                    panel.axvline(event.t, color=TRUTH, linewidth=0.8)
                elif event.kind in ("learner", "restart"):
                    panel.axvline(event.t, color=RIVAL, linewidth=1.2, linestyle="--")
            squared = (result.q_des[:, joint] - result.q[:, joint]) ** 2
            error = smoothed_error(result.t, squared)
            panel.semilogy(result.t, error, color=LEARNED, linewidth=1.0)
            panel.set_ylabel(f"{joints.names[joint]}\n[{joints.units[joint].q}]")
            panel.grid(axis="y")
        axes[0].set_title(
            "tracking error (pale lines: new model; dashed: change of robot or learner)", loc="left"
        )
        axes[-1].set_xlabel("time [s]")
    return figure


def draw_written(results: Sequence[LoopResult], columns: int = 7) -> Figure:
    """Draw what the two-link arm wrote over the desired path, the last of each letter."""
    last: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for result in results:
        for piece, (label, scored) in enumerate(zip(result.labels, result.scored, strict=True)):
            rows = result.piece == piece
            if scored and rows.any():
                last[label] = (pen_position(result.q_des[rows]), pen_position(result.q[rows]))
    columns = min(columns, len(last))
    rows_needed = -(-len(last) // columns)
    # All letters have the scale of the largest, with a margin [m] for the pen.
    points = np.concatenate([desired for desired, _ in last.values()])
    low = points.min(axis=0) - 0.03
    high = points.max(axis=0) + 0.03
    slope = (high - low)[1] / (high - low)[0]
    with drawing(1.3 * columns, 1.3 * rows_needed * slope + 0.3) as figure:
        panels = figure.subplots(rows_needed, columns, squeeze=False).flat
        for panel, (label, (desired, written)) in zip(panels, last.items(), strict=False):
            # The desired path is broad, so that it stays visible below the written one.
            truth_line(panel, *desired.T)
            panel.plot(*written.T, color=LEARNED, linewidth=1.4)
            _set_limits(panel, low, high)
            panel.set_title(label, color=INK)
        for panel in figure.axes:
            panel.axis("off")
    return figure


def draw_strokes(pens: Sequence[Trajectory], columns: int = 7) -> Figure:
    """Draw the paths of a pen, letter by letter, all at one scale."""
    rows = -(-len(pens) // columns)
    points = np.concatenate([pen.q for pen in pens])
    low = points.min(axis=0) - 0.02
    high = points.max(axis=0) + 0.02
    with drawing(1.25 * columns, 1.25 * rows * (high - low)[1] / (high - low)[0]) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).flat
        for panel, pen in zip(panels, pens, strict=False):
            panel.plot(*pen.q.T, color=INK, linewidth=1.8)
            panel.plot(*pen.q[0], "o", color=LEARNED, markersize=4)
            _set_limits(panel, low, high)
        for panel in figure.axes:
            panel.axis("off")
    return figure


def draw_motion(motion: Trajectory, joints: Joints, limits: JointLimits) -> Figure:
    """Draw position and velocity of each joint over time, with their limits."""
    with drawing(9.6, 1.5 * joints.dof + 0.6) as figure:
        axes = figure.subplots(joints.dof, 2, sharex=True, squeeze=False)
        for joint, (position, velocity) in enumerate(axes):
            units = joints.units[joint]
            position.plot(motion.t, motion.q[:, joint], color=LEARNED)
            position.set_ylabel(f"{joints.names[joint]} [{units.q}]")
            velocity.plot(motion.t, motion.qd[:, joint], color=LEARNED)
            velocity.set_ylabel(f"[{units.qd}]")
            _add_bounds(position, limits.lower[joint], limits.upper[joint])
            _add_bounds(velocity, -limits.velocity[joint], limits.velocity[joint])
        axes[0, 0].set_title("position (dotted: limits)")
        axes[0, 1].set_title("velocity")
        for panel in axes[-1]:
            panel.set_xlabel("time [s]")
    return figure


def _set_limits(axes: Axes, low: Any, high: Any) -> None:
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")


def _add_bounds(axes: Axes, lower: float, upper: float) -> None:
    """Draw the finite ones of two limits, and a grid."""
    for bound in (lower, upper):
        if np.isfinite(bound):
            axes.axhline(bound, color=INK, linewidth=0.8, linestyle=":")
    axes.grid(axis="y")
