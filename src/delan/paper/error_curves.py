"""Errors over seeds and settings: their statistics, their curves, and ratios of two models."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import trim_mean

from ..figures import drawing
from .cells import Cell, Holds, Results, verdict
from .comparison import STYLES

RESAMPLES = 2000
# Smaller errors are rounding; they are drawn here, so that the others keep their room.
EXACT = 1e-12


@dataclass(frozen=True)
class SeedStatistics:
    """Statistics of a number over seeds.

    Attributes:
        seeds, of: number of seeds with a finite value, and of all seeds.
        median, low, high: the 50th, 5th and 95th percentile, as in the paper.
        iqm: the interquartile mean, the mean of the middle half.
        interval: 95 % confidence interval of `iqm`; None for a single seed.
    """

    seeds: int
    of: int
    median: float
    low: float
    high: float
    iqm: float
    interval: tuple[float, float] | None


def seed_statistics(values: Float[np.ndarray, " seeds"]) -> SeedStatistics | None:
    """Return the statistics of the finite values; None if there is none."""
    return pooled([values])


def pooled(strata: Sequence[Float[np.ndarray, "..."]]) -> SeedStatistics | None:
    """Return the statistics of several settings together, each a stratum of seeds."""
    finite = [values[np.isfinite(values)] for values in strata]
    pool = np.concatenate([np.empty(0), *finite])
    if len(pool) == 0:
        return None
    low, median, high = np.percentile(pool, (5, 50, 95)).tolist()
    return SeedStatistics(
        seeds=len(pool),
        of=sum(len(values) for values in strata),
        median=median,
        low=low,
        high=high,
        iqm=interquartile_mean(pool),
        interval=bootstrap_interval(finite),
    )


def interquartile_mean(values: Float[np.ndarray, " seeds"]) -> float:
    """Return the mean without the lowest and the highest quarter, rounded down to whole values."""
    return float(trim_mean(values, 0.25))


def bootstrap_interval(
    strata: Sequence[Float[np.ndarray, "..."]], *, seed: int = 0
) -> tuple[float, float] | None:
    """Return the 95 % interval of the interquartile mean of all strata (Agarwal et al. 2021).

    Seeds are resampled within each stratum (a setting, a task), never across: differences between
    strata are not random. None if no stratum has a second seed.
    """
    if all(len(values) < 2 for values in strata):
        return None
    random = np.random.default_rng(seed)
    resampled = []
    for values in strata:
        if len(values):
            resampled.append(values[random.integers(len(values), size=(RESAMPLES, len(values)))])
    means = trim_mean(np.concatenate(resampled, axis=1), 0.25, axis=1)
    low, high = np.percentile(means, (2.5, 97.5)).tolist()
    return low, high


def draw_curves(
    axes: Axes, results: Results, field: str, over: str, *, models: Iterable[str]
) -> None:
    """Draw the median of a field and its 5th to 95th percentile over a setting, by model."""
    for model in models:
        mine = results.of(model)
        style = STYLES[model]
        points = []
        for value in mine.settings(over):
            statistics = seed_statistics(mine.of(**{over: value}).values(field))
            if statistics is not None:
                points.append((value, statistics.median, statistics.low, statistics.high))
        if not points:
            continue
        x, *curves = np.array(points, dtype=float).T
        median, low, high = np.maximum(curves, EXACT)
        if (curves[0] < EXACT).any():
            axes.annotate(
                "exact",
                (x[-1], EXACT),
                (0, 3),
                textcoords="offset points",
                ha="right",
                color=style.colour,
            )
        axes.plot(
            x,
            median,
            color=style.colour,
            linestyle=style.line,
            marker=style.marker,
            markersize=3.5,
            linewidth=1.3,
            label=style.label,
        )
        axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)
    axes.set_yscale("log")
    axes.grid(axis="y")


def legend_below(figure: Any, axes: Axes, columns: int = 3) -> None:
    """Add one legend for all axes of a figure."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def by_speed(results: Results) -> Results:
    """Return a row per test speed with its error as `test`; cells without speeds are left out."""
    rows = []
    for cell, result in results.rows:
        for speed, error in result.get("errors", {}).items():
            setting = {"robot": cell["robot"], "speed": float(speed)}
            row = Cell.of(cell.experiment, cell.model, seed=cell.seed, **setting)
            rows.append((row, {"test": error}))
    return Results(rows)


def draw_speeds(
    results: Results,
    robots: Mapping[str, str],
    models: Iterable[str],
    *,
    error: str,
    width: float,
    height: float,
) -> Figure:
    """Draw the error over the speed, axes for each robot; speeds beyond training are grey."""
    rows = by_speed(results)
    models = tuple(models)
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


def ratio(results: Results, model: str, rival: str) -> Float[np.ndarray, " seeds"]:
    """Return the test error of a model over that of a rival, for each seed that both have."""
    mine = {cell.seed: result["test"] for cell, result in results.of(model).rows}
    its = {cell.seed: result["test"] for cell, result in results.of(rival).rows}
    return np.array([mine[seed] / its[seed] for seed in sorted(mine.keys() & its.keys())])


def median_ratios(results: Results, over: str, model: str, rival: str) -> dict[Any, float]:
    """Return the median over seeds of `ratio`, for each value of a setting that has one."""
    medians = {}
    for value in results.settings(over):
        ratios = ratio(results.of(**{over: value}), model, rival)
        if len(ratios):
            medians[value] = float(np.median(ratios))
    return medians


def listed(ratios: Mapping[Any, float], setting: str) -> str:
    """Return ratios as text; `setting` formats the value of the setting, such as `n = {}`."""
    return ", ".join(f"{setting.format(value)}: {ratios[value]:.2g}" for value in ratios)


def all_below(ratios: Mapping[Any, float], limit: float = 1.0) -> Holds:
    """Return the verdict on the claim that all ratios are below a limit."""
    return verdict(*(value < limit for value in ratios.values()))
