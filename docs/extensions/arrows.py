"""The picture of the rooms and of what they import, drawn from the source whenever the
documentation is built.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from tests.test_layers import FILES, LAYERS, imports, room

INK, PALE, FILL = "#1f2933", "#9fb3c8", "#e6f0f5"
STEP, WIDTH, HEIGHT = 1.0, 1.7, 0.56


def arrows() -> set[tuple[str, str]]:
    """Which room imports which, without the arrows that others imply."""
    found = set()
    for path in FILES:
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "delan" and len(parts) > 1 and parts[1] != room(path):
                found.add((room(path), parts[1]))
    below = {name: {b for a, b in found if a == name} for layer in LAYERS for name in layer}
    for (
        layer
    ) in LAYERS:  # from the ground up, so that what is below a room is complete when its turn comes
        for name in layer:
            below[name] |= {far for near in set(below[name]) for far in below[near]}
    return {(a, b) for a, b in found if not any(b in below[c] for c in below[a])}


def described(found: set[tuple[str, str]]) -> str:
    """The arrows in words, for whoever cannot see the picture."""
    return ", ".join(f"{a} imports {b}" for a, b in sorted(found))


def draw(path: Path) -> None:
    """Lower rooms below; an arrow leads from a room to one that it imports."""
    plt.switch_backend("svg")
    figure, axes = plt.subplots(figsize=(6.4, 8.4))
    places = {}
    for level, layer in enumerate(LAYERS):
        for column, name in enumerate(sorted(layer)):
            shift = column - (len(layer) - 1) / 2
            places[name] = (2.4 * shift, STEP * level)
            corner = (2.4 * shift - WIDTH / 2, STEP * level - HEIGHT / 2)
            axes.add_patch(
                Rectangle(
                    corner, WIDTH, HEIGHT, facecolor=FILL, edgecolor=INK, linewidth=0.8, zorder=3
                )
            )
            axes.text(
                *places[name], name, ha="center", va="center", color=INK, zorder=4, fontsize=10
            )
    for number, (a, b) in enumerate(sorted(arrows())):
        (x, y), (to_x, to_y) = places[a], places[b]
        side = 1 if number % 2 else -1
        near = y - to_y < 1.5 * STEP
        start = (x, y - HEIGHT / 2) if near else (x + side * WIDTH / 2, y)
        end = (to_x, to_y + HEIGHT / 2) if near else (to_x + side * WIDTH / 2, to_y)
        bend = 0.0 if near else -side * 0.28
        axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                connectionstyle=f"arc3,rad={bend}",
                arrowstyle="-|>",
                mutation_scale=8,
                color=PALE,
                lw=0.9,
            )
        )
    axes.set_xlim(-4.4, 4.4)
    axes.set_ylim(-0.6, STEP * (len(LAYERS) - 1) + 0.6)
    axes.set_axis_off()
    with plt.rc_context({"svg.hashsalt": "delan"}):  # the same names in every file
        figure.savefig(
            path, bbox_inches="tight", metadata={"Date": None, "Description": described(arrows())}
        )
    plt.close(figure)


def setup(app: Any) -> dict[str, Any]:
    app.connect("builder-inited", lambda app: draw(Path(app.srcdir) / "_arrows.svg"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
