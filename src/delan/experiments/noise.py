"""What noise does: fitted offline to samples with more and more of it, scored without."""

from collections.abc import Mapping

import numpy as np

from ..drawing import drawing
from ..learning.evaluate import evaluate
from ..robots.barrett_wam import WAM4, WAM4_ANALYTIC
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .curves import draw_curves, legend_below
from .motion_logs import corrupted, swung
from .rivals import LOOKS, fitted

NAME, WHERE = "noise", "Fig. 9"
MODELS = ("identified", "feedforward", "delan", "chain")
MOTIONS = 3


def cells(size: Size) -> list[Cell]:
    variances = size.pick(quick=(1e-5, 1e-1), usual=(1e-4, 1e-3, 1e-2, 1e-1), paper=np.logspace(-6, 0, 7))
    seeds = size.seed_range(quick=1, usual=10)
    return [
        Cell.of(NAME, model, seed=seed, variance=float(variance))
        for model in MODELS
        for variance in variances
        for seed in (size.extra_seeds(seeds) if model == "chain" else seeds)
    ]


def run(cell: Cell) -> Result:
    clean = swung(WAM4, range(1000 * cell.seed, 1000 * cell.seed + MOTIONS))
    training = corrupted(clean, np.sqrt(cell["variance"]), cell.seed)
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
        f"Error of the torque on {MOTIONS} cosine motions of the simulated WAM (4 joints), without noise, after "
        "training on the same motions with white noise on every number of every sample. Median and 5th to 95th "
        "percentile over seeds."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim]:
    growth = {}
    for model in ("identified", "delan"):
        mine = results.of(model)
        levels = mine.settings("variance")
        if len(levels) < 2:
            return []
        least, most = (float(np.median(mine.of(variance=level).values("test"))) for level in (levels[0], levels[-1]))
        growth[model] = most / least, least, most
    faster = growth["identified"][0] > growth["delan"][0]
    ahead = growth["identified"][2] > growth["delan"][2]
    ends = ", ".join(f"{LOOKS[model].label} {least:.2g} → {most:.2g}" for model, (_, least, most) in growth.items())
    return [
        Claim(
            claim="Identification's error grows faster with noise than the network's.",
            where=WHERE,
            measured=f"from the least noise to the most: {ends} N² m²",
            asked="a larger factor for identification, and the larger error at the most noise",
            holds="yes" if faster and ahead else "partly" if faster else "no",
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
