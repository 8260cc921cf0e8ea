"""What experiments compare: models, how each is fitted, and errors over seeds and settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import trim_mean

from ..errors import SettingsError
from ..figures import drawing
from ..identification.identify import IdentifySettings, identify
from ..joints import Dataset
from ..learning.model_fit import fit_model
from ..learning.study import Study, TrainingResult
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import InverseDynamics
from ..models.friction import FrictionSettings
from ..models.networks import FeedForwardSettings, LagrangianNetworkSettings
from ..models.rigid_body import RigidBody
from ..robots.description import Arm
from ..solvers.adam import DescentSettings
from ..solvers.loss import Objective
from ..solvers.training import TrainingSettings
from .cells import Cell, Holds, Results, verdict

Task = Literal["letters", "cosines"]
RESAMPLES = 2000
# Smaller errors are rounding; they are drawn here, so that the others keep their room.
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
    "none": PlotStyle("PD alone", "#8a94a0", "x"),
    "chain": PlotStyle("chain (not in the paper)", "#b03a78", "D", ours=True),
    "delan-friction": PlotStyle("DeLaN + friction (not in the paper)", "#56b4e9", "p", ours=True),
    "identified-friction": PlotStyle(
        "identification + friction (not in the paper)", "#7fbf9f", "^", ours=True
    ),
    "chain-friction": PlotStyle("chain + friction (not in the paper)", "#e0a0c4", "D", ours=True),
}

# Added to a rigid model of an arm with friction.
FRICTION = FrictionSettings(terms=("armature", "viscous", "coulomb", "offset"))


@dataclass(frozen=True)
class TrainingChoice:
    """How a network is trained; it has two hidden layers of `width` units."""

    optimizer: Literal["adam", "lm"]
    width: int
    learning_rate: float = 3e-3
    weight_decay: float = 0.0

    def __str__(self) -> str:
        method = "Levenberg–Marquardt"
        if self.optimizer == "adam":
            method = f"Adam, learning rate {self.learning_rate:g}"
        decay = f", weight decay {self.weight_decay:g}" if self.weight_decay else ""
        return f"2 × {self.width} units, {method}{decay}"


# The experiment `tuning` chooses among these, for both networks alike.
CANDIDATES: tuple[TrainingChoice, ...] = (
    TrainingChoice("lm", 16),
    TrainingChoice("lm", 16, weight_decay=1e-5),
    TrainingChoice("lm", 16, weight_decay=1e-4),
    TrainingChoice("lm", 16, weight_decay=1e-3),
    TrainingChoice("adam", 64),
    TrainingChoice("adam", 64, weight_decay=1e-5),
    TrainingChoice("adam", 64, weight_decay=1e-4),
    TrainingChoice("adam", 64, learning_rate=1e-3),
)

# The best candidates on the validation motions of `delan reproduce tuning`; see its table.
CHOSEN: dict[tuple[Task, str], TrainingChoice] = {
    ("letters", "delan"): TrainingChoice("lm", 16, weight_decay=1e-5),
    ("letters", "feedforward"): TrainingChoice("lm", 16, weight_decay=1e-3),
    ("cosines", "delan"): TrainingChoice("lm", 16, weight_decay=1e-5),
    ("cosines", "feedforward"): TrainingChoice("lm", 16, weight_decay=1e-3),
}

# Largest number of Levenberg–Marquardt iterations; training stops earlier when validation does not
# improve.
ITERATIONS = 120
# Largest number of gradient steps of Adam.
STEPS = 6_000


def train(
    model: str, dataset: Dataset, choice: TrainingChoice, *, seed: int, friction: bool = False
) -> TrainingResult:
    """Train a network; the weights with the lowest error on validation trajectories are kept."""
    network = FeedForwardSettings(width=choice.width)
    if model == "delan":
        network = LagrangianNetworkSettings(width=choice.width)
    epochs = ITERATIONS
    if choice.optimizer == "adam":
        batch = min(DescentSettings.batch, len(dataset))
        epochs = max(20, STEPS * batch // len(dataset))
    settings = TrainingSettings(
        optimizer=choice.optimizer,
        epochs=epochs,
        objective=Objective(weight_decay=choice.weight_decay),
        descent=DescentSettings(learning_rate=choice.learning_rate),
    )
    head = FRICTION if friction else None
    return fit_model(Study.of(dataset, settings, friction=head, key=jax.random.key(seed)), network)


def best_of(
    model: str, dataset: Dataset, choices: Iterable[TrainingChoice], *, seed: int
) -> tuple[InverseDynamics, TrainingChoice]:
    """Train a network with each choice; return the one with the lowest validation error."""
    trained = [(train(model, dataset, choice, seed=seed), choice) for choice in choices]
    result, choice = min(trained, key=lambda pair: pair[0].validation.torque.nmse_mean)
    return result.model, choice


def fitted(
    model: str, dataset: Dataset, *, task: Task, believed: Arm, seed: int
) -> InverseDynamics:
    """Fit the model of this name; `believed` is the arm that models with given kinematics use."""
    name, _, extra = model.partition("-")
    friction = extra == "friction"
    if name in ("delan", "feedforward"):
        return train(name, dataset, CHOSEN[task, name], seed=seed, friction=friction).model
    if name == "chain":
        settings = TrainingSettings(epochs=ITERATIONS)
        head = FRICTION if friction else None
        key = jax.random.key(seed)
        return fit_model(
            Study.of(dataset, settings, friction=head, key=key), LagrangianChainSettings()
        ).model
    if name == "identified":
        settings = IdentifySettings()
        if not friction:
            settings = IdentifySettings(friction=(), armature=False)
        return identify(dataset, believed.urdf(), settings).model
    if model == "newton-euler":
        return RigidBody.from_urdf(believed.urdf())
    raise SettingsError(f"unknown model {model!r}; choose one of {', '.join(STYLES)}")


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
