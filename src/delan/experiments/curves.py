"""How errors are drawn over a setting: a line for each model, its median over seeds, and a band for their spread."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..drawing import drawing
from .cells import Cell, Results
from .rivals import LOOKS
from .statistics import spread

EXACT = 1e-12
"""Errors below this are rounding, and are drawn here, so that others keep their room."""


def draw_curves(axes: Axes, results: Results, field: str, over: str, *, models: Iterable[str]) -> None:
    """The median of a field with its 5th to 95th percentile, over a setting, for each model that has results."""
    for model in models:
        mine = results.of(model)
        if not len(mine):
            continue
        look, found = LOOKS[model], {x: spread(mine.of(**{over: x}).values(field)) for x in mine.settings(over)}
        x = np.array([value for value, one in found.items() if one is not None], dtype=float)
        spreads = np.array([(one.median, one.low, one.high) for one in found.values() if one is not None])
        if not len(x):
            continue
        if (spreads[:, 0] < EXACT).any():
            axes.annotate("exact", (x[-1], EXACT), (0, 3), textcoords="offset points", ha="right", color=look.colour)
        spreads = np.maximum(spreads, EXACT)
        line: Any = {"color": look.colour, "linestyle": look.line, "marker": look.marker, "markersize": 3.5}
        axes.plot(x, spreads[:, 0], **line, linewidth=1.3, label=look.label)
        axes.fill_between(x, spreads[:, 1], spreads[:, 2], color=look.colour, alpha=0.15, linewidth=0)
    axes.set_yscale("log")
    axes.grid(axis="y")


def legend_below(figure: Any, axes: Axes, columns: int = 3) -> None:
    """One legend for all axes of a figure."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def by_speed(results: Results) -> Results:
    """A row for each speed that a cell was tested at, with its error as `test`; cells of no speed are left out."""
    return Results(
        [
            (
                Cell.of(cell.experiment, cell.model, seed=cell.seed, robot=cell["robot"], speed=float(speed)),
                {"test": error},
            )
            for cell, result in results.rows
            for speed, error in result.get("errors", {}).items()
        ]
    )


def draw_speeds(
    results: Results, robots: Mapping[str, str], models: Iterable[str], *, error: str, width: float, height: float
) -> Figure:
    """The error over the speed, axes for each robot by its title; beyond the speed of training the ground is grey."""
    rows, models = by_speed(results), tuple(models)
    with drawing(width, height) as figure:
        grid = figure.subplots(1, len(robots), squeeze=False)[0]
        for axes, (robot, title) in zip(grid, robots.items(), strict=True):
            axes.axvspan(1.01, 2.05, color="#f1f3f5", zorder=-2)
            draw_curves(axes, rows.of(robot=robot), "test", "speed", models=models)
            axes.set_title(title, loc="left")
            axes.set_xlabel("speed, times that of training")
        grid[0].set_ylabel(error)
        legend_below(figure, grid[-1])
    return figure


def ratio(results: Results, field: str, over: str, below: str) -> np.ndarray:
    """A field of one model over that of another, seed by seed, where both have it."""
    mine = {cell.seed: result[field] for cell, result in results.of(over).rows}
    its = {cell.seed: result[field] for cell, result in results.of(below).rows}
    return np.array([mine[seed] / its[seed] for seed in sorted(mine.keys() & its.keys())])
