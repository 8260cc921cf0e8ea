"""The paper's main experiment: learned online on n letters, from random weights, then asked to write all twenty."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..data.letters import LETTERS
from ..drawing import TRUTH, drawing
from ..realtime.stats import LoopResult
from ..robots.two_link import letter_motion, pen_position
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .curves import draw_curves, legend_below, ratio
from .motion_logs import shuffled_letters
from .online import OnlineRun, run_online
from .rivals import LOOKS

NAME, WHERE = "online-letters", "Fig. 5, 10 and 11"
LEARNED = ("delan", "feedforward", "chain", "delan-adam", "feedforward-adam")
"""Networks by Levenberg–Marquardt, and by Adam as in the paper."""
GIVEN = ("analytic", "none")
MODELS = (*LEARNED, *GIVEN)
STEPS_PER_SECOND = 10.0
"""Steps of learning for each second of the robot's time: about what one core can do beside the loop."""
LEAST_SECONDS = 15.0
"""How long to learn at least; else every letter is written once."""
DRAWN_SEED, DRAWN_POINTS = 0, 60
"""The seed whose letters are kept to be drawn, and how many points of each."""
LEGIBLE = 0.02
"""A letter can be read when the pen is never farther than this from where it should be [m]: a tenth of its height."""
ENOUGH = 8
"""Training letters after which the paper finds all letters well written."""


def cells(size: Size) -> list[Cell]:
    counts = size.pick(quick=(1, ENOUGH), usual=(1, 4, ENOUGH), paper=(1, 2, 4, 6, ENOUGH, 10, 12))
    seeds = size.seed_range(quick=1, usual=5)
    by_adam = size.pick(quick=(ENOUGH,), usual=(ENOUGH,), paper=counts)
    # What is not learned does not depend on n; the letters that are scored do, so that every n has its own.
    return [
        Cell.of(NAME, model, seed=seed, letters=n)
        for model in MODELS
        for n in (by_adam if model.endswith("-adam") else counts)
        for seed in seeds
    ]


def run(cell: Cell) -> Result:
    model: Any = cell.model.removesuffix("-adam")
    order = shuffled_letters(cell.seed)
    known = order[: cell["letters"]]
    once = sum(float(letter_motion(letter, dt=0.01).t[-1]) + 1.0 for letter in known)
    learned = cell.model in LEARNED
    outcome = run_online(
        OnlineRun(
            feed_forward=model,
            letters=known,
            test=order,
            seconds=max(LEAST_SECONDS, once) if learned else 1.0,
            clock="stepped",
            steps_per_second=STEPS_PER_SECOND,
            optimizer="adam" if cell.model.endswith("-adam") else "auto",
            seed=cell.seed,
        )
    )
    test = outcome.test["test"]
    errors = {segment.label: segment.tracking.mse_sum for segment in test.segments}
    paths = pen_paths(test)
    strays = {
        letter: float(np.linalg.norm(path["written"] - path["wanted"], axis=1).max()) for letter, path in paths.items()
    }
    kept = {letter: _thinned(path["written"]) for letter, path in paths.items()} if cell.seed == DRAWN_SEED else {}
    return {
        "known": known,
        "errors": errors,
        "strays": strays,
        "test": float(np.mean([error for letter, error in errors.items() if letter not in known])),
        "first_model_seconds": outcome.train.first_model_seconds,
        "written": kept,
    }


def pen_paths(result: LoopResult) -> dict[str, dict[str, np.ndarray]]:
    """Where the pen was and where it should have been, by letter."""
    found = {}
    for piece, (label, scored) in enumerate(zip(result.labels, result.scored, strict=True)):
        rows = result.piece == piece
        if scored and rows.any():
            found[label] = {"wanted": pen_position(result.q_des[rows]), "written": pen_position(result.q[rows])}
    return found


def _thinned(path: np.ndarray) -> list[list[float]]:
    rows = np.linspace(0, len(path) - 1, DRAWN_POINTS).round().astype(int)
    return path[rows].round(4).tolist()


def draw(results: Results) -> Mapping[str, Drawn]:
    if not len(results):
        return {}
    drawn = {f"{NAME}-error": Drawn(_curves(results), _CURVES), f"{NAME}-boxes": Drawn(_boxes(results), _BOXES)}
    for n in results.of("delan").settings("letters"):
        figure = _alphabet(results.of(letters=n))
        if figure is not None:
            drawn[f"{NAME}-written-{n}"] = Drawn(figure, _WRITTEN.format(n=n))
    return drawn


_CURVES = (
    "Tracking error on unseen letters against the number of letters learned on, from random weights: median and 5th to "
    "95th percentile over seeds. The analytic model has the parameters of the simulation and is the best there can be."
)
_BOXES = (
    "The same, letter by letter, each box over the seeds in which that letter was not among those learned on; columns: "
    "numbers of training letters."
)
_WRITTEN = (
    "All twenty letters after learning on {n} (seed 0; a letter that was learned on is marked with a dot): broad and "
    "pale as they should be, thin as they were written."
)


def _curves(results: Results) -> Figure:
    with drawing(6.4, 4.0) as figure:
        axes = figure.subplots()
        draw_curves(axes, results, "test", "letters", models=MODELS)
        axes.set_xlabel("training letters n")
        axes.set_ylabel("Σ tracking MSE [rad²]")
        legend_below(figure, axes)
    return figure


def _boxes(results: Results) -> Figure:
    counts = results.settings("letters")
    with drawing(10.0, 2.1 * len(counts) + 0.5) as figure:
        grid = figure.subplots(len(counts), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, n in zip(grid, counts, strict=True):
            for shift, model in enumerate(("delan", "feedforward")):
                values = [
                    [
                        result["errors"][letter]
                        for _, result in results.of(model, letters=n).rows
                        if letter in result["errors"] and letter not in result["known"]
                    ]
                    for letter in LETTERS
                ]
                boxes = axes.boxplot(
                    values,
                    positions=np.arange(len(LETTERS)) + 0.36 * shift - 0.18,
                    widths=0.3,
                    showfliers=False,
                    patch_artist=True,
                    medianprops={"color": LOOKS[model].colour, "linewidth": 1.6},
                    boxprops={"facecolor": (LOOKS[model].colour, 0.3), "edgecolor": LOOKS[model].colour},
                    whiskerprops={"color": LOOKS[model].colour},
                    capprops={"color": LOOKS[model].colour},
                )
                boxes["medians"][0].set_label(LOOKS[model].label)
            axes.set_yscale("log")
            axes.grid(axis="y")
            axes.set_ylabel(f"n = {n}\nΣ tracking MSE [rad²]")
        grid[-1].set_xticks(np.arange(len(LETTERS)), LETTERS)
        legend_below(figure, grid[0])
    return figure


def _alphabet(results: Results) -> Figure | None:
    """A row of letters for each model."""
    rows = {model: result for model in MODELS for _, result in results.of(model).rows[:1] if result["written"]}
    if not rows:
        return None
    wanted = {letter: pen_position(letter_motion(letter, dt=0.02).q) for letter in LETTERS}
    low = np.min([path.min(axis=0) for path in wanted.values()], axis=0) - [0.03, 0.07]  # PD alone sags
    high = np.max([path.max(axis=0) for path in wanted.values()], axis=0) + 0.03
    with drawing(11.0, 11.0 / len(LETTERS) * (high - low)[1] / (high - low)[0] * len(rows) + 0.4) as figure:
        grid = figure.subplots(len(rows), len(LETTERS), squeeze=False)
        for line, (model, result) in zip(grid, rows.items(), strict=True):
            for axes, letter in zip(line, LETTERS, strict=True):
                axes.plot(*wanted[letter].T, color=TRUTH, linewidth=2.6, solid_capstyle="round")
                if letter in result["written"]:
                    axes.plot(*np.array(result["written"][letter]).T, color=LOOKS[model].colour, linewidth=0.9)
                axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
                if letter in result["known"] and model in LEARNED:
                    axes.plot(0.5, 0.02, ".", color=LOOKS[model].colour, transform=axes.transAxes, clip_on=False)
            line[0].set_title(LOOKS[model].label, loc="left")
    return figure


def claims(results: Results) -> list[Claim]:
    at = results.of(letters=ENOUGH)
    made, seeds = [], at.of("delan").seeds
    for ours, its, how in (
        ("delan-adam", "feedforward-adam", "Learned by Adam as in the paper"),
        ("delan", "feedforward", "Learned by a second-order method"),
    ):
        ratios = {
            n: float(np.median(values))
            for n in results.of(ours).settings("letters")
            if len(values := ratio(results.of(letters=n), "test", ours, its))
        }
        if ratios:
            won = [n for n, value in ratios.items() if value < 1]
            made.append(
                Claim(
                    claim=f"{how}, the network's tracking error on unseen letters is below the feed-forward network's "
                    "at every n.",
                    where=WHERE,
                    measured="median of the ratio, "
                    + ", ".join(f"n = {n}: {value:.2g}" for n, value in ratios.items()),
                    asked="below 1 at every n",
                    holds="yes" if len(won) == len(ratios) else "partly" if won else "no",
                    seeds=results.of(ours).seeds,
                )
            )
    if seeds:
        worst = max(max(result["strays"].values()) for _, result in at.of("delan").rows)
        its = [max(result["strays"].values()) for _, result in at.of("feedforward").rows]
        beside = f" (feed-forward network: {max(its) * 1e3:.1f} mm)" if its else ""
        made.append(
            Claim(
                claim=f"After {ENOUGH} random letters the robot writes all twenty legibly.",
                where=WHERE,
                measured=f"the pen is at most {worst * 1e3:.1f} mm off, over all letters and seeds{beside}",
                asked=f"at most {LEGIBLE * 1e3:.0f} mm, a tenth of a letter's height",
                holds="yes" if worst <= LEGIBLE else "no",
                seeds=seeds,
            )
        )
        over = ratio(at, "test", "delan", "analytic")
        made.append(
            Claim(
                claim=f"After {ENOUGH} letters the tracking error is comparable to the analytic model's.",
                where=WHERE,
                measured=f"{np.median(over):.3f} × the analytic model's (median; largest {over.max():.3f})",
                asked="at most 1.1 ×",
                holds="yes" if np.median(over) <= 1.1 else "no",
                seeds=seeds,
            )
        )
    return made


def seconds(cell: Cell) -> float:
    return 12.0 if cell.model in GIVEN else 30.0 + 2.5 * cell["letters"]


EXPERIMENT = Experiment(
    name=NAME,
    title="Letters, learned online",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=seconds,
    draw=draw,
    claims=claims,
)
