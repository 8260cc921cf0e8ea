"""Pictures of a run in which the robot learned."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ..drawing import INK, LEARNED, RIVAL, TRUTH, drawing
from ..joints import Joints
from ..realtime.stats import LoopResult
from ..robots.two_link import pen_position

SMOOTHING_SECONDS = 0.25
"""Over so long the error is averaged before it is drawn [s]."""


def draw_tracking(result: LoopResult, joints: Joints) -> Figure:
    """The tracking error of each joint over time, with the moments at which a new model was taken into use."""
    error = result.q_des - result.q
    width = max(1, round(SMOOTHING_SECONDS / float(result.t[1] - result.t[0]))) if len(result.t) > 1 else 1
    with drawing(8.6, 1.25 * joints.dof + 0.9) as figure:
        axes = figure.subplots(joints.dof, 1, sharex=True, squeeze=False)[:, 0]
        for i, one in enumerate(axes):
            mean = np.sqrt(np.convolve(error[:, i] ** 2, np.full(width, 1 / width), mode="same"))
            for event in result.events:
                if event.kind == "swap":
                    one.axvline(event.t, color=TRUTH, linewidth=0.8)
                elif event.kind in ("learner", "restart"):
                    one.axvline(event.t, color=RIVAL, linewidth=1.2, linestyle="--")
            one.semilogy(result.t, np.maximum(mean, 1e-7), color=LEARNED, linewidth=1.0)
            one.set_ylabel(f"{joints.names[i]}\n[{'m' if joints.kinds[i] == 'prismatic' else 'rad'}]")
            one.grid(axis="y")
        axes[0].set_title("tracking error (pale lines: a new model; dashed: the robot changed)", loc="left")
        axes[-1].set_xlabel("time [s]")
    return figure


def draw_written(results: Sequence[LoopResult], columns: int = 7) -> Figure:
    """What the two-link arm wrote, against what it should have written, the last of each letter."""
    last: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for result in results:
        for piece, (label, scored) in enumerate(zip(result.labels, result.scored, strict=True)):
            rows = result.piece == piece
            if scored and rows.any():
                last[label] = (pen_position(result.q_des[rows]), pen_position(result.q[rows]))
    columns = min(columns, len(last))
    rows_needed = -(-len(last) // columns)
    low = np.min([wanted.min(axis=0) for wanted, _ in last.values()], axis=0) - 0.03
    high = np.max([wanted.max(axis=0) for wanted, _ in last.values()], axis=0) + 0.03
    with drawing(1.3 * columns, 1.3 * rows_needed * (high - low)[1] / (high - low)[0] + 0.3) as figure:
        grid = figure.subplots(rows_needed, columns, squeeze=False).flat
        for one, (label, (wanted, written)) in zip(grid, last.items(), strict=False):
            one.plot(*wanted.T, color=TRUTH, linewidth=4.5, solid_capstyle="round")
            one.plot(*written.T, color=LEARNED, linewidth=1.4)
            one.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
            one.set_title(label, color=INK)
        for one in figure.axes:
            one.axis("off")
    return figure
