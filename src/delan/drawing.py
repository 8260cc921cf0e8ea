"""The hand that draws: one look for every figure, and figures as images that stand inside a page."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, TRUTH, LEARNED, RIVAL = "#1f2933", "#c3ccd6", "#0b6e99", "#d9742b"
"""Text; the truth; what our model learned; what its rival learned."""
JOINT_COLOURS = ("#0b6e99", "#d9742b", "#3c8d5a", "#8a5fbf", "#c0392b", "#8c7a3d", "#4a5a6a")
"""Of joints that share a picture, the first seven."""

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "delan",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa5b1",
    "axes.linewidth": 0.6,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": "#616e7c",
    "ytick.color": "#616e7c",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.6,
    "path.simplify_threshold": 0.3,
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches in the house style; no display, no global state."""
    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def as_image(figure: Figure) -> str:
    """The figure as a data address for an HTML image, vector graphics."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def truth_line(axes: Axes, x: Any, y: Any, label: str | None = None) -> None:
    """The truth: broad and pale, so that a line on top of it can be seen to lie on it."""
    axes.plot(x, y, color=TRUTH, linewidth=4.5, solid_capstyle="round", label=label)
