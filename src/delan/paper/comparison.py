"""What experiments show of models: their style, and errors over seeds and settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import drawing
from .cells import Cell, Results, Size
from .claims import bootstrap_interval, interquartile_mean

# Speed of the training motions of experiments with cosines, and the fastest test, as factors.
SLOW = 1.0
FAST = 2.0
# Smaller errors are rounding. They are drawn a decade below the others, which so keep their room.
EXACT = 1e-12


@dataclass(frozen=True)
class PlotStyle:
    """Label and style of a model in figures; `ours` marks models that are not in the paper."""

    label: str
    colour: str
    marker: str
    ours: bool = False

    @property
    def line(self) -> str:
        return "--" if self.ours else "-"


# The colours, after Okabe and Ito, can be told apart without seeing red and green.
STYLES: dict[str, PlotStyle] = {
    "delan": PlotStyle("DeLaN", "#0072b2", "o"),
    "feedforward": PlotStyle("feed-forward network", "#d55e00", "s"),
    "identified": PlotStyle("identification", "#009e73", "^"),
    "newton-euler": PlotStyle("Newton–Euler", "#1f2933", "v"),
    "analytic": PlotStyle("analytic model", "#1f2933", "v"),
    "feedforward-adam": PlotStyle("feed-forward network, Adam", "#e69f00", "s"),
    "delan-adam": PlotStyle("DeLaN, Adam", "#56b4e9", "o"),
    "feedforward-paper": PlotStyle("feed-forward network, preset paper", "#f0c070", "s"),
    "delan-paper": PlotStyle("DeLaN, preset paper", "#a8d8f5", "o"),
    "feedforward-unstopped": PlotStyle(
        "feed-forward network, no validation", "#8c4000", "s", ours=True
    ),
    "delan-unstopped": PlotStyle("DeLaN, no validation", "#00456e", "o", ours=True),
    "none": PlotStyle("PD alone", "#8a94a0", "x"),
    "chain": PlotStyle("chain (not in the paper)", "#b03a78", "D", ours=True),
    "delan-friction": PlotStyle("DeLaN + friction (not in the paper)", "#56b4e9", "p", ours=True),
    "identified-friction": PlotStyle(
        "identification + friction (not in the paper)", "#7fbf9f", "^", ours=True
    ),
    "chain-friction": PlotStyle("chain + friction (not in the paper)", "#e0a0c4", "D", ours=True),
}


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


def draw_curves(
    axes: Axes, results: Results, field: str, over: str, *, models: Iterable[str]
) -> None:
    """Draw the median of a field and its 5th to 95th percentile over a setting, by model."""
    curves_of = {}
    for model in models:
        mine = results.of(model)
        points = []
        for value in mine.settings(over):
            statistics = seed_statistics(mine.of(**{over: value}).values(field))
            if statistics is not None:
                points.append((value, statistics.median, statistics.low, statistics.high))
        if points:
            curves_of[model] = np.array(points, dtype=float).T
    others = [low[low > EXACT] for _, _, low, _ in curves_of.values()]
    others = [low.min() for low in others if len(low)]
    floor = min(others) / 10 if others else EXACT
    for model, (x, *curves) in curves_of.items():
        style = STYLES[model]
        median, low, high = np.where(np.array(curves) > EXACT, curves, floor)
        if (curves[0] < EXACT).any():
            axes.annotate(
                "exact",
                (x[-1], floor),
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


def legend_below(figure: Figure, columns: int = 3) -> None:
    """Add one legend for all axes of a figure, each label once."""
    known = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            known.setdefault(label, handle)
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=columns)


def speeds_of(size: Size) -> str:
    """Return the test speeds of an experiment with cosines, as the setting of its cells."""
    every = f"{SLOW:g},1.25,1.5,1.75,{FAST:g}"
    return size.pick(quick=f"{SLOW:g},{FAST:g}", usual=every, paper=every)


def beyond_training(rows: Results) -> Results:
    """Return the rows of `by_speed` at speeds beyond that of training."""
    return Results([row for row in rows.rows if row[0]["speed"] > SLOW])


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
    # Axes without a curve would say nothing.
    robots = {name: robots[name] for name in robots if len(rows.of(robot=name))} or robots
    with drawing(width, height) as figure:
        grid = figure.subplots(1, len(robots), squeeze=False)[0]
        for axes, (robot, title) in zip(grid, robots.items(), strict=True):
            axes.axvspan(1.01, 2.05, color="#f1f3f5", zorder=-2)
            draw_curves(axes, rows.of(robot=robot), "test", "speed", models=models)
            axes.set_title(title, loc="left")
            axes.set_xlabel("speed, times that of training")
        grid[0].set_ylabel(error)
        legend_below(figure)
    return figure


def ratio(
    results: Results, model: str, rival: str, field: str = "test"
) -> Float[np.ndarray, " seeds"]:
    """Return a number of a model over that of a rival, for each seed that both have."""
    mine = {cell.seed: result[field] for cell, result in results.of(model).rows}
    its = {cell.seed: result[field] for cell, result in results.of(rival).rows}
    shared = sorted(mine.keys() & its.keys())
    return np.array([mine[seed] / its[seed] for seed in shared], dtype=float)


def ratios_over(
    results: Results, over: str, model: str, rival: str, *, label: str, field: str = "test"
) -> dict[str, Float[np.ndarray, " seeds"]]:
    """Return `ratio` at each value of a setting; `label` formats the value, as in `n = {}`."""
    found = {}
    for value in results.settings(over):
        ratios = ratio(results.of(**{over: value}), model, rival, field)
        if len(ratios):
            found[label.format(value)] = ratios
    return found


def growth(results: Results, model: str, over: str, low: float, high: float) -> dict[int, float]:
    """Return the test error at one value of a setting over that at another, by seed."""
    errors = []
    for value in (low, high):
        mine = results.of(model, **{over: value})
        errors.append({cell.seed: result["test"] for cell, result in mine.rows})
    first, last = errors
    return {seed: last[seed] / first[seed] for seed in sorted(first.keys() & last.keys())}


def relative_growth(
    results: Results, model: str, rival: str, over: str, low: float, high: float
) -> Float[np.ndarray, " seeds"]:
    """Return the `growth` of a model's error over that of a rival's, for each seed of both."""
    own = growth(results, model, over, low, high)
    its = growth(results, rival, over, low, high)
    return np.array([own[seed] / its[seed] for seed in sorted(own.keys() & its.keys())])
