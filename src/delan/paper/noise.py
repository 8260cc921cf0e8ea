"""Experiment `noise`: fit offline to samples with rising noise, score on samples without."""

from collections.abc import Mapping

import numpy as np

from ..figures import drawing
from ..learning.scores import evaluate
from ..robots.arms import WAM4, WAM4_ANALYTIC
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size, verdict
from .comparison import STYLES, draw_curves, fitted, legend_below
from .motion_logs import cosine_log, with_noise

NAME = "noise"
WHERE = "Fig. 9"
MODELS = ("identified", "feedforward", "delan", "chain")
MOTIONS = 3


def cells(size: Size) -> list[Cell]:
    variances = size.pick(
        quick=(1e-5, 1e-1), usual=(1e-4, 1e-3, 1e-2, 1e-1), paper=np.logspace(-6, 0, 7)
    )
    seeds = size.seed_range(quick=1, usual=10)
    return [
        Cell.of(NAME, model, seed=seed, variance=float(variance))
        for model in MODELS
        for variance in variances
        for seed in (size.extra_seeds(seeds) if model == "chain" else seeds)
    ]


def run(cell: Cell) -> Result:
    clean = cosine_log(WAM4, range(1000 * cell.seed, 1000 * cell.seed + MOTIONS))
    training = with_noise(clean, np.sqrt(cell["variance"]), cell.seed)
    model = fitted(cell.model, training, task="cosines", believed=WAM4_ANALYTIC, seed=cell.seed)
    torque = evaluate(model, clean, rollouts=False).torque
    return {"test": torque.mse_sum, "nmse": torque.nmse_mean}


def draw(results: Results) -> Mapping[str, Drawn]:
    with drawing(6.4, 4.0) as figure:
        axes = figure.subplots()
        draw_curves(axes, results, "test", "variance", models=MODELS)
        axes.set_xscale("log")
        axes.set_xlabel("variance σ² of the noise on q, q̇, q̈ and τ (SI units)")
        axes.set_ylabel("Σ torque MSE [N² m²]")
        legend_below(figure, axes)
    caption = (
        f"Torque error on {MOTIONS} cosine motions of the simulated WAM (4 joints), without noise, "
        "after training on the same motions with white noise on every number of every sample. "
        "Median and 5th to 95th percentile over seeds."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim]:
    growth = {}
    highest = {}
    changes = []
    for model in ("identified", "delan"):
        mine = results.of(model)
        variances = mine.settings("variance")
        if len(variances) < 2:
            return []
        first, last = (
            float(np.median(mine.of(variance=variance).values("test")))
            for variance in (variances[0], variances[-1])
        )
        growth[model] = last / first
        highest[model] = last
        changes.append(f"{STYLES[model].label} {first:.2g} → {last:.2g}")
    faster = growth["identified"] > growth["delan"]
    ahead = highest["identified"] > highest["delan"]
    return [
        Claim(
            claim="Identification's error grows faster with noise than the network's.",
            where=WHERE,
            measured=f"from the least noise to the most: {', '.join(changes)} N² m²",
            asked="a larger factor for identification, and the larger error at the most noise",
            holds=verdict(faster, faster and ahead),
            seeds=results.of("delan").seeds,
        )
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="Noise in the training samples",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 2.0 if cell.model == "identified" else 30.0,
    draw=draw,
    claims=claims,
)
