"""The style of every figure, figures as images inside a page, and pages from their templates."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Text; the truth; what our model learned; what its rival learned.
INK = "#1f2933"
TRUTH = "#c3ccd6"
LEARNED = "#0b6e99"
RIVAL = "#d9742b"
# Joints that share a picture; the eighth has the colour of the first.
JOINT_COLOURS = ("#0b6e99", "#d9742b", "#3c8d5a", "#8a5fbf", "#c0392b", "#8c7a3d", "#4a5a6a")
# Window of the running mean of a tracking error [s], and the least error that is drawn.
ERROR_SECONDS = 0.25
LEAST_ERROR = 1e-7
# Gives text the same size in all figures of a page; 9.6 inches fill it.
REM_PER_INCH = 6.2

# Text stays text in an SVG, and a fixed salt gives the same file every time.
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
    """Open a figure of a size in inches, in the style of the package and without a display."""
    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def as_image(figure: Figure) -> str:
    """Return a figure as a data URL of vector graphics, for an HTML image."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def page_width(figure: Figure) -> str:
    """Return the width of a figure in the style of an HTML image."""
    return f"{REM_PER_INCH * figure.get_figwidth():.1f}rem"


def truth_line(axes: Axes, x: Any, y: Any, label: str | None = None) -> None:
    """Draw the truth, broad and pale, so that a line on top of it stays visible."""
    axes.plot(x, y, color=TRUTH, linewidth=4.5, solid_capstyle="round", label=label)


def smoothed_error(
    t: Float[np.ndarray, " time"], squared: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    """Return the root of the running mean of squared tracking errors, for a logarithmic axis."""
    width = 1
    if len(t) > 1:
        width = max(1, round(ERROR_SECONDS / float(t[1] - t[0])))
    mean = np.convolve(squared, np.full(width, 1 / width), mode="same")
    return np.maximum(np.sqrt(mean), LEAST_ERROR)


def rendered(template: str, **words: Any) -> str:
    """Return a page of `report/templates` with its words filled in."""
    environment = Environment(
        loader=PackageLoader("delan.report"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(template).render(words)
