"""Experiment `online-letters`, the paper's main one: learn online on n letters, write all 20."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..figures import TRUTH, drawing
from ..motions.letters import LETTERS
from ..online.online_run import OnlineRun, run_online
from ..online.stats import LoopResult
from ..robots.arms import letter_motion, pen_position
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size, verdict
from .comparison import STYLES, all_below, draw_curves, legend_below, listed, median_ratios, ratio
from .motion_logs import shuffled_letters

NAME = "online-letters"
WHERE = "Fig. 5, 10 and 11"
# Networks are trained by Levenberg–Marquardt, and by Adam as in the paper.
LEARNED = ("delan", "feedforward", "chain", "delan-adam", "feedforward-adam")
GIVEN = ("analytic", "none")
MODELS = (*LEARNED, *GIVEN)
# Training steps per second of the robot's time: about what one core can do beside the loop.
STEPS_PER_SECOND = 10.0
# Least time of learning [s]; if all letters take longer, each is written once.
LEAST_SECONDS = 15.0
# Settling time before each letter [s].
PAUSE = 1.0
# The seed whose letters are stored for the figure, and the number of points of each.
DRAWN_SEED = 0
DRAWN_POINTS = 60
# A letter is legible if the pen is never farther than this from its path [m]: a tenth of the
# height of a letter.
LEGIBLE = 0.02
# Number of training letters after which the paper finds all letters well written.
ENOUGH = 8


def cells(size: Size) -> list[Cell]:
    counts = size.pick(quick=(1, ENOUGH), usual=(1, 4, ENOUGH), paper=(1, 2, 4, 6, ENOUGH, 10, 12))
    seeds = size.seed_range(quick=1, usual=5)
    by_adam = size.pick(quick=(ENOUGH,), usual=(ENOUGH,), paper=counts)
    # Models that do not learn do not depend on n, but the letters that are scored do.
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
    seconds = 1.0
    if cell.model in LEARNED:
        once = sum(float(letter_motion(letter, dt=0.01).t[-1]) + PAUSE for letter in known)
        seconds = max(LEAST_SECONDS, once)
    outcome = run_online(
        OnlineRun(
            model=model,
            letters=known,
            test=order,
            seconds=seconds,
            clock="stepped",
            steps_per_second=STEPS_PER_SECOND,
            optimizer="adam" if cell.model.endswith("-adam") else "auto",
            seed=cell.seed,
        )
    )
    test = outcome.test["test"]
    errors = {segment.label: segment.tracking.mse_sum for segment in test.segments}
    unseen = [error for letter, error in errors.items() if letter not in known]
    strays = {}
    drawn = {}
    for letter, (wanted, written) in pen_paths(test).items():
        strays[letter] = float(np.linalg.norm(written - wanted, axis=1).max())
        if cell.seed == DRAWN_SEED:
            drawn[letter] = _thinned(written)
    return {
        "known": known,
        "errors": errors,
        "strays": strays,
        "test": float(np.mean(unseen)),
        "first_model_seconds": outcome.train.first_model_seconds,
        "written": drawn,
    }


def pen_paths(result: LoopResult) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the desired and the measured path of the pen [m], by letter."""
    paths = {}
    for piece, (label, scored) in enumerate(zip(result.labels, result.scored, strict=True)):
        rows = result.piece == piece
        if scored and rows.any():
            paths[label] = (pen_position(result.q_des[rows]), pen_position(result.q[rows]))
    return paths


def _thinned(path: np.ndarray) -> list[list[float]]:
    rows = np.linspace(0, len(path) - 1, DRAWN_POINTS).round().astype(int)
    return path[rows].round(4).tolist()


def draw(results: Results) -> Mapping[str, Drawn]:
    if not len(results):
        return {}
    drawn = {f"{NAME}-error": _curves(results), f"{NAME}-boxes": _boxes(results)}
    for n in results.of("delan").settings("letters"):
        figure = _alphabet(results.of(letters=n))
        if figure is not None:
            caption = (
                f"All twenty letters after learning on {n} (seed {DRAWN_SEED}; training letters "
                "are marked with a dot): broad and pale as desired, thin as written."
            )
            drawn[f"{NAME}-written-{n}"] = Drawn(figure, caption)
    return drawn


def _curves(results: Results) -> Drawn:
    with drawing(6.4, 4.0) as figure:
        axes = figure.subplots()
        draw_curves(axes, results, "test", "letters", models=MODELS)
        axes.set_xlabel("training letters n")
        axes.set_ylabel("Σ tracking MSE [rad²]")
        legend_below(figure, axes)
    caption = (
        "Tracking error on unseen letters against the number of training letters, from random "
        "weights: median and 5th to 95th percentile over seeds. The analytic model has the "
        "parameters of the simulation; no model can do better."
    )
    return Drawn(figure, caption)


def _boxes(results: Results) -> Drawn:
    counts = results.settings("letters")
    with drawing(10.0, 2.1 * len(counts) + 0.5) as figure:
        grid = figure.subplots(len(counts), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, n in zip(grid, counts, strict=True):
            for shift, model in ((-0.18, "delan"), (0.18, "feedforward")):
                style = STYLES[model]
                boxes = axes.boxplot(
                    _unseen_errors(results.of(model, letters=n)),
                    positions=np.arange(len(LETTERS)) + shift,
                    widths=0.3,
                    showfliers=False,
                    patch_artist=True,
                    medianprops={"color": style.colour, "linewidth": 1.6},
                    boxprops={"facecolor": (style.colour, 0.3), "edgecolor": style.colour},
                    whiskerprops={"color": style.colour},
                    capprops={"color": style.colour},
                )
                boxes["medians"][0].set_label(style.label)
            axes.set_yscale("log")
            axes.grid(axis="y")
            axes.set_ylabel(f"n = {n}\nΣ tracking MSE [rad²]")
        grid[-1].set_xticks(np.arange(len(LETTERS)), LETTERS)
        legend_below(figure, grid[0])
    caption = (
        "The same, letter by letter; each box over the seeds in which the letter was not a "
        "training letter. Rows: numbers of training letters."
    )
    return Drawn(figure, caption)


def _unseen_errors(results: Results) -> list[list[float]]:
    """Return the errors of each letter over the seeds in which it was not a training letter."""
    errors: dict[str, list[float]] = {letter: [] for letter in LETTERS}
    for _, result in results.rows:
        for letter, error in result["errors"].items():
            if letter not in result["known"]:
                errors[letter].append(error)
    return list(errors.values())


def _alphabet(results: Results) -> Figure | None:
    """Draw a row of letters for each model; None if no letters are stored."""
    rows = {}
    for model in MODELS:
        mine = results.of(model).rows
        # The first row has the lowest seed.
        if mine and mine[0][1]["written"]:
            rows[model] = mine[0][1]
    if not rows:
        return None
    desired = {letter: pen_position(letter_motion(letter, dt=0.02).q) for letter in LETTERS}
    points = np.concatenate(list(desired.values()))
    low = points.min(axis=0) - [0.03, 0.07]  # the arm under PD alone sags
    high = points.max(axis=0) + 0.03
    width, height = high - low
    with drawing(11.0, 11.0 / len(LETTERS) * height / width * len(rows) + 0.4) as figure:
        grid = figure.subplots(len(rows), len(LETTERS), squeeze=False)
        for row, (model, result) in zip(grid, rows.items(), strict=True):
            colour = STYLES[model].colour
            row[0].set_title(STYLES[model].label, loc="left")
            for axes, letter in zip(row, LETTERS, strict=True):
                axes.plot(*desired[letter].T, color=TRUTH, linewidth=2.6, solid_capstyle="round")
                if letter in result["written"]:
                    written = np.array(result["written"][letter])
                    axes.plot(*written.T, color=colour, linewidth=0.9)
                if letter in result["known"] and model in LEARNED:
                    place = {"transform": axes.transAxes, "clip_on": False}
                    axes.plot(0.5, 0.02, ".", color=colour, **place)
                axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
    return figure


def claims(results: Results) -> list[Claim]:
    compared = [
        _better(results, "delan-adam", "feedforward-adam", "Learned by Adam as in the paper"),
        _better(results, "delan", "feedforward", "Learned by a second-order method"),
    ]
    claims = [claim for claim in compared if claim is not None]
    return [*claims, *_after_enough(results.of(letters=ENOUGH))]


def _better(results: Results, model: str, rival: str, how: str) -> Claim | None:
    """Judge whether a network tracks better than the feed-forward network; None without results."""
    ratios = median_ratios(results, "letters", model, rival)
    if not ratios:
        return None
    return Claim(
        claim=f"{how}, the network's tracking error on unseen letters is below the feed-forward "
        "network's at every n.",
        where=WHERE,
        measured=f"median of the ratio, {listed(ratios, 'n = {}')}",
        asked="below 1 at every n",
        holds=all_below(ratios),
        seeds=results.of(model).seeds,
    )


def _after_enough(results: Results) -> Iterator[Claim]:
    """Judge how well the network writes after `ENOUGH` letters."""
    mine = results.of("delan")
    if not len(mine):
        return
    worst = _largest_stray(mine)
    measured = f"the pen is at most {worst * 1e3:.1f} mm off, over all letters and seeds"
    rival = results.of("feedforward")
    if len(rival):
        measured += f" (feed-forward network: {_largest_stray(rival) * 1e3:.1f} mm)"
    yield Claim(
        claim=f"After {ENOUGH} random letters the robot writes all twenty legibly.",
        where=WHERE,
        measured=measured,
        asked=f"at most {LEGIBLE * 1e3:.0f} mm, a tenth of a letter's height",
        holds=verdict(worst <= LEGIBLE),
        seeds=mine.seeds,
    )
    ratios = ratio(results, "delan", "analytic")
    if len(ratios):
        median = float(np.median(ratios))
        yield Claim(
            claim=f"After {ENOUGH} letters the tracking error is comparable to the analytic "
            "model's.",
            where=WHERE,
            measured=f"{median:.3f} × the analytic model's (median; largest {ratios.max():.3f})",
            asked="at most 1.1 ×",
            holds=verdict(median <= 1.1),
            seeds=mine.seeds,
        )


def _largest_stray(results: Results) -> float:
    """Return the largest distance of the pen from its path, over letters and seeds [m]."""
    return max(max(result["strays"].values()) for _, result in results.rows)


EXPERIMENT = Experiment(
    name=NAME,
    title="Letters, learned online",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 12.0 if cell.model in GIVEN else 30.0 + 2.5 * cell["letters"],
    draw=draw,
    claims=claims,
)
