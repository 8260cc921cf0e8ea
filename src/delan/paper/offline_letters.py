"""Experiment `offline-letters`: train offline on n noisy letters, score on the other letters."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from ..figures import drawing
from ..learning.scores import evaluate
from ..robots.arms import TWO_LINK
from .candidates import NOISE, fitted
from .cells import Cell, Drawn, Experiment, Result, Results, Size
from .claims import (
    BELOW,
    SAME,
    Claim,
    Criterion,
    all_hold,
    compared,
    linear_interval,
)
from .comparison import draw_curves, legend_below, ratios_over
from .motion_logs import letter_log, shuffled_letters, with_noise

NAME = "offline-letters"
WHERE = "Fig. 4 e and 7"
MODELS = ("delan", "feedforward", "identified", "newton-euler", "chain")
# Numbers of training letters, as in the figures of the paper; a quick run has two of them.
COUNTS = (1, 2, 4, 6, 8, 10, 12)
# Standard deviation of the noise on every number of a training sample (SI units).
SIGMA = NOISE["noisy"]
GROWS = Criterion("a difference that grows with every step to fewer letters", low=0.0)
# On noisy samples the error of the true model is the noise alone: a lower one has learned noise.
OVERFITTED = Criterion("below the error that noise makes in the true model", high=1.0)


def cells(size: Size) -> list[Cell]:
    counts = size.pick(quick=(1, 8), usual=COUNTS, paper=COUNTS)
    seeds = size.seed_range(quick=1, usual=10)
    return [
        Cell.of(NAME, model, seed=seed, letters=n, alphabet=size.letters)
        for model in MODELS
        for n in counts
        for seed in (size.extra_seeds(seeds) if model == "chain" else seeds)
    ]


def run(cell: Cell) -> Result:
    order = shuffled_letters(cell.seed)
    written = {"alphabet": cell["alphabet"], "sample": cell.seed}
    known = letter_log(order[: cell["letters"]], **written)
    unseen = letter_log(order[cell["letters"] :], **written)
    noisy = with_noise(known, SIGMA, cell.seed)
    model = fitted(
        cell.model, noisy, task="letters", kind="noisy", believed=TWO_LINK, seed=cell.seed
    )
    test = evaluate(model, unseen, rollouts=False).torque
    return {
        "train": evaluate(model, known, rollouts=False).torque.mse_sum,
        "train_noisy": evaluate(model, noisy, rollouts=False).torque.mse_sum,
        "test": test.mse_sum,
        "test_per_joint": list(test.mse),
        "letters": order,
    }


def draw(results: Results) -> Mapping[str, Drawn]:
    with drawing(10.4, 3.9) as figure:
        axes = figure.subplots(1, 3, sharey=True)
        fields = ("train_noisy", "train", "test")
        titles = ("training letters, noisy", "training letters, clean", "unseen letters")
        for panel, field, title in zip(axes, fields, titles, strict=True):
            draw_curves(panel, results, field, "letters", models=MODELS)
            panel.set_title(title, loc="left")
            panel.set_xlabel("training letters n")
        axes[0].set_ylabel("Σ torque MSE [N² m²]")
        legend_below(figure, axes[-1])
    caption = (
        "Torque error against the number of training letters, on the noisy samples that were "
        "learned, on the same letters without noise, and on unseen letters without noise. Training "
        f"samples carry white noise of standard deviation {SIGMA:g} on q, q̇, q̈ and τ (SI units). "
        "Lines: median over seeds; bands: 5th to 95th percentile. Newton–Euler has the true "
        "parameters and is not trained: its error is rounding where there is no noise."
    )
    return {
        NAME: Drawn(figure, caption),
        f"{NAME}-joints": Drawn(_by_joint(results), "Unseen letters, joint by joint."),
    }


def _by_joint(results: Results) -> Figure:
    """Draw the error of both networks for each joint against the number of letters."""
    with drawing(7.0, 2.9) as figure:
        row = figure.subplots(1, 2, sharey=True)
        for joint, axes in enumerate(row):
            rows = []
            for cell, result in results.rows:
                rows.append((cell, {"joint": result["test_per_joint"][joint]}))
            draw_curves(axes, Results(rows), "joint", "letters", models=("delan", "feedforward"))
            axes.set_title(f"joint {joint + 1}", loc="left")
            axes.set_xlabel("training letters n")
        if len(results):
            row[0].set_ylabel("torque MSE [N² m²]")
            row[0].legend()
    return figure


def claims(results: Results) -> list[Claim]:
    label = "n = {}"
    judged = [
        compared(
            "On unseen letters the network's torque error is below the feed-forward network's at "
            "every n.",
            WHERE,
            ratios_over(results, "letters", "delan", "feedforward", label=label),
            BELOW,
            what="error over the feed-forward network's",
        ),
        _greater_difference(results),
        compared(
            "On the noisy training samples the feed-forward network is the best.",
            "Appendix A, Fig. 7",
            ratios_over(
                results, "letters", "feedforward", "delan", label=label, field="train_noisy"
            ),
            BELOW,
            what="error on training samples over the network's",
            remark=(
                "Conjecture: weight decay chosen on validation motions keeps it from fitting the "
                "noise; the paper does not say how its networks were regularised"
            ),
        ),
        _overfits(results),
        compared(
            "Identification extrapolates to unseen letters better than the network.",
            "Appendix A, Fig. 7",
            ratios_over(results, "letters", "identified", "delan", label=label),
            BELOW,
            what="identification's error over the network's",
        ),
        compared(
            "Identification does not overfit: on unseen letters its error is that on training "
            "letters.",
            "Appendix A, Fig. 7",
            _generalisation(results, "identified"),
            SAME,
            what="error on unseen over that on training letters, without noise",
            remark=(
                "Conjecture: with few letters some parameters are not excited, and unseen letters "
                "use what noise has put there"
            ),
        ),
    ]
    return [claim for claim in judged if claim is not None]


def _greater_difference(results: Results) -> Claim | None:
    """Judge whether the difference of the errors grows with every step to fewer letters."""
    differences = {}
    for n in results.settings("letters"):
        both = [results.of(model, letters=n) for model in ("delan", "feedforward")]
        mine, its = ({cell.seed: row["test"] for cell, row in rows.rows} for rows in both)
        shared = mine.keys() & its.keys()
        if shared:
            differences[n] = {seed: its[seed] - mine[seed] for seed in shared}
    intervals = {}
    for few, many in pairwise(differences):
        shared = sorted(differences[few].keys() & differences[many].keys())
        change = [differences[few][seed] - differences[many][seed] for seed in shared]
        if change:
            intervals[f"from n = {many} to {few}"] = linear_interval(np.array(change, dtype=float))
    if not intervals:
        return None
    shown = ", ".join(f"{name}: {interval}" for name, interval in intervals.items())
    holds = all_hold(GROWS.verdict(interval) for interval in intervals.values())
    return Claim(
        claim="The fewer letters, the greater the difference between the errors of the "
        "feed-forward network and the network.",
        where=WHERE,
        measured=f"change of the difference [N² m²], {shown}",
        asked=GROWS.words,
        holds=holds,
        seeds=results.of("delan").seeds,
        intervals=intervals,
        remark=""
        if holds == "yes"
        else "Conjecture: with many letters the spread over seeds is larger than the change",
    )


def _overfits(results: Results) -> Claim | None:
    """Judge whether the feed-forward network fits the noise of its training samples."""
    return compared(
        "The feed-forward network overfits its training samples.",
        "Appendix A, Fig. 7",
        ratios_over(
            results, "letters", "feedforward", "newton-euler", label="n = {}", field="train_noisy"
        ),
        OVERFITTED,
        what="error on noisy training samples over that of the true model",
        remark="Conjecture: weight decay and early stopping keep it from fitting noise",
    )


def _generalisation(results: Results, model: str) -> dict[str, np.ndarray]:
    """Return the error on unseen letters over that on training letters, by n."""
    found = {}
    for n in results.settings("letters"):
        rows = results.of(model, letters=n).rows
        found[f"n = {n}"] = np.array([row["test"] / row["train"] for _, row in rows])
    return found


def _seconds(cell: Cell) -> float:
    """Return the time of a cell on one core, from measured cells [s]."""
    if cell.model in ("newton-euler", "identified"):
        return 0.5
    return 2.0 + 0.3 * cell["letters"]


EXPERIMENT = Experiment(
    name=NAME,
    title="Letters, learned offline",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=_seconds,
    draw=draw,
    claims=claims,
)
