"""Experiment `offline-letters`: train offline on n noisy letters, score on the other letters."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from ..figures import drawing
from ..learning.scores import evaluate
from ..robots.arms import TWO_LINK
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size, verdict
from .comparison import all_below, draw_curves, fitted, legend_below, listed
from .motion_logs import letter_log, shuffled_letters, with_noise

NAME = "offline-letters"
WHERE = "Fig. 4 e and 7"
MODELS = ("delan", "feedforward", "identified", "newton-euler", "chain")
# Standard deviation of the noise on every number of a training sample (SI units).
NOISE = 0.01


def cells(size: Size) -> list[Cell]:
    counts = size.pick(quick=(1, 8), usual=(1, 4, 8, 16), paper=range(1, 20))
    seeds = size.seed_range(quick=1, usual=10)
    return [
        Cell.of(NAME, model, seed=seed, letters=n)
        for model in MODELS
        for n in counts
        for seed in (size.extra_seeds(seeds) if model == "chain" else seeds)
    ]


def run(cell: Cell) -> Result:
    order = shuffled_letters(cell.seed)
    known = letter_log(order[: cell["letters"]])
    unseen = letter_log(order[cell["letters"] :])
    noisy = with_noise(known, NOISE, cell.seed)
    model = fitted(cell.model, noisy, task="letters", believed=TWO_LINK, seed=cell.seed)
    test = evaluate(model, unseen, rollouts=False).torque
    return {
        "train": evaluate(model, known, rollouts=False).torque.mse_sum,
        "test": test.mse_sum,
        "test_per_joint": list(test.mse),
        "letters": order,
    }


def draw(results: Results) -> Mapping[str, Drawn]:
    with drawing(8.6, 3.9) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        draw_curves(left, results, "train", "letters", models=MODELS)
        draw_curves(right, results, "test", "letters", models=MODELS)
        left.set_title("training letters", loc="left")
        right.set_title("unseen letters", loc="left")
        for axes in (left, right):
            axes.set_xlabel("training letters n")
        left.set_ylabel("Σ torque MSE [N² m²]")
        legend_below(figure, right)
    caption = (
        "Torque error, without noise, against the number of training letters. Training samples "
        f"carry white noise of standard deviation {NOISE:g} on q, q̇, q̈ and τ (SI units). Lines: "
        "median over seeds; bands: 5th to 95th percentile. Newton–Euler has the true parameters "
        "and is not trained: its error is rounding."
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
    ratios = {}
    for n in results.settings("letters"):
        ours = results.of("delan", letters=n).values("test")
        its = results.of("feedforward", letters=n).values("test")
        if len(ours) and len(its):
            ratios[n] = float(np.median(ours) / np.median(its))
    if not ratios:
        return []
    few = min(ratios)
    many = max(ratios)
    # `settings` returns n in ascending order.
    grows = len(ratios) > 1 and all(low < high for low, high in pairwise(ratios.values()))
    shown = listed(ratios, "n = {}")
    ends = f"error ratio {ratios[few]:.2g} at n = {few}, {ratios[many]:.2g} at n = {many}"
    if len(ratios) > 2:
        ends += f"; over all {shown}"
    seeds = results.of("delan").seeds
    return [
        Claim(
            claim="On unseen letters the network's torque error is below the feed-forward "
            "network's at every n.",
            where=WHERE,
            measured=f"median error over the feed-forward network's: {shown}",
            asked="below 1 at every n",
            holds=all_below(ratios),
            seeds=seeds,
        ),
        Claim(
            claim="The fewer letters, the greater the network's lead over the feed-forward "
            "network.",
            where=WHERE,
            measured=ends,
            asked="a ratio that grows with n",
            holds=verdict(grows, ratios[few] < ratios[many]),
            seeds=seeds,
        ),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="Letters, learned offline",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 1.0 if cell.model in ("newton-euler", "identified") else 10.0,
    draw=draw,
    claims=claims,
)
