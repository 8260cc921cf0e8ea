"""Pictures of wanted motions."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ..drawing import INK, LEARNED, drawing
from ..joints import JointLimits, Joints, Trajectory


def draw_strokes(pens: Sequence[Trajectory], columns: int = 7) -> Figure:
    """What a pen draws, letter by letter, all at one scale."""
    rows = -(-len(pens) // columns)
    low = np.min([pen.q.min(axis=0) for pen in pens], axis=0) - 0.02
    high = np.max([pen.q.max(axis=0) for pen in pens], axis=0) + 0.02
    with drawing(1.25 * columns, 1.25 * rows * (high - low)[1] / (high - low)[0]) as figure:
        for one, pen in zip(figure.subplots(rows, columns, squeeze=False).flat, pens, strict=False):
            one.plot(*pen.q.T, color=INK, linewidth=1.8)
            one.plot(*pen.q[0], "o", color=LEARNED, markersize=4)
            one.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        for one in figure.axes:
            one.axis("off")
    return figure


def draw_motion(motion: Trajectory, joints: Joints, limits: JointLimits) -> Figure:
    """Position and speed of each joint over time, with the limits they must keep."""
    with drawing(9.6, 1.5 * joints.dof + 0.6) as figure:
        axes = figure.subplots(joints.dof, 2, sharex=True, squeeze=False)
        for i, (place, speed) in enumerate(axes):
            unit = "m" if joints.kinds[i] == "prismatic" else "rad"
            place.plot(motion.t, motion.q[:, i], color=LEARNED)
            place.set_ylabel(f"{joints.names[i]} [{unit}]")
            speed.plot(motion.t, motion.qd[:, i], color=LEARNED)
            speed.set_ylabel(f"[{unit}/s]")
            for one, bounds in (
                (place, (limits.lower[i], limits.upper[i])),
                (speed, (-limits.velocity[i], limits.velocity[i])),
            ):
                for bound in bounds:
                    if np.isfinite(bound):
                        one.axhline(bound, color=INK, linewidth=0.8, linestyle=":")
                one.grid(axis="y")
        axes[0, 0].set_title("position (dotted: limits)")
        axes[0, 1].set_title("speed")
        for one in axes[-1]:
            one.set_xlabel("time [s]")
    return figure
