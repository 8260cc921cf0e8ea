"""Figures of desired motions, and of runs in which the robot learned."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import INK, LEARNED, RIVAL, TRUTH, drawing, smoothed_error, truth_line
from ..joints import JointLimits, Joints, Trajectory
from ..online.stats import LoopResult
from ..robots.arms import pen_position


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
