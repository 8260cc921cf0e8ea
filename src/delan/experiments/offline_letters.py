"""How many letters a model needs: trained offline on n noisy letters, scored on the others without noise."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ..drawing import drawing
from ..learning.evaluate import evaluate
from ..robots.two_link import TWO_LINK
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .curves import draw_curves, legend_below
from .motion_logs import corrupted, shuffled_letters, written
from .rivals import fitted

NAME, WHERE = "offline-letters", "Fig. 4 e and 7"
MODELS = ("delan", "feedforward", "identified", "newton-euler", "chain")
NOISE = 0.01
"""Standard deviation of the noise on every number of a training sample, SI units."""


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
    known, unseen = written(order[: cell["letters"]]), written(order[cell["letters"] :])
    model = fitted(cell.model, corrupted(known, NOISE, cell.seed), task="letters", believed=TWO_LINK, seed=cell.seed)
    train, test = (evaluate(model, log, rollouts=False).torque for log in (known, unseen))
    return {"train": train.mse_sum, "test": test.mse_sum, "test_per_joint": list(test.mse), "letters": order}


def draw(results: Results) -> Mapping[str, Drawn]:
    with drawing(8.6, 3.9) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, field, title in ((left, "train", "letters it was trained on"), (right, "test", "unseen letters")):
            draw_curves(axes, results, field, "letters", models=MODELS)
            axes.set_title(title, loc="left")
            axes.set_xlabel("training letters n")
        left.set_ylabel("Σ torque MSE [N² m²]")
        legend_below(figure, right)
    caption = (
        "Error of the torque, without noise, against the number of letters in training. Training samples carry white "
        f"noise of standard deviation {NOISE:g} on q, q̇, q̈ and τ (SI units). Lines: median over seeds; bands: 5th to "
        "95th percentile. Newton–Euler has the true parameters and is not trained: its error is rounding."
    )
    return {NAME: Drawn(figure, caption), f"{NAME}-joints": Drawn(_bars(results), "Unseen letters, joint by joint.")}


def _bars(results: Results):
    """The error of both networks for each joint, at every number of letters."""
    counts = results.settings("letters")
    with drawing(7.0, 2.9) as figure:
        for joint, axes in enumerate(figure.subplots(1, 2, sharey=True)):
            rows = [(cell, {**result, "joint": result["test_per_joint"][joint]}) for cell, result in results.rows]
            draw_curves(axes, Results(rows), "joint", "letters", models=("delan", "feedforward"))
            axes.set_title(f"joint {joint + 1}", loc="left")
            axes.set_xlabel("training letters n")
            if counts and joint == 0:
                axes.set_ylabel("torque MSE [N² m²]")
                axes.legend()
    return figure


def claims(results: Results) -> list[Claim]:
    ratios = {}
    for n in results.settings("letters"):
        ours, its = (results.of(model, letters=n).values("test") for model in ("delan", "feedforward"))
        if len(ours) and len(its):
            ratios[n] = float(np.median(ours) / np.median(its))
    if not ratios:
        return []
    won = [n for n, value in ratios.items() if value < 1]
    few, many = min(ratios), max(ratios)
    grows = len(ratios) > 1 and all(one < next_one for one, next_one in pairwise(ratios[n] for n in sorted(ratios)))
    shown = ", ".join(f"n = {n}: {value:.2g}" for n, value in ratios.items())
    seeds = results.of("delan").seeds
    return [
        Claim(
            claim="On unseen letters the network's torque error is below the feed-forward network's at every n.",
            where=WHERE,
            measured=f"median error over the feed-forward network's: {shown}",
            asked="below 1 at every n",
            holds="yes" if len(won) == len(ratios) else "partly" if won else "no",
            seeds=seeds,
        ),
        Claim(
            claim="The fewer letters, the greater the network's lead over the feed-forward network.",
            where=WHERE,
            measured=f"error ratio {ratios[few]:.2g} at n = {few}, {ratios[many]:.2g} at n = {many}"
            + (f"; over all {shown}" if len(ratios) > 2 else ""),
            asked="a ratio that grows with n",
            holds="yes" if grows else "partly" if ratios[few] < ratios[many] else "no",
            seeds=seeds,
        ),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="Letters, learned offline",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: {"newton-euler": 1.0, "identified": 1.0}.get(cell.model, 10.0),
    draw=draw,
    claims=claims,
)
