"""Experiment `noise`: fit offline to samples with rising noise, score on samples without."""

from collections.abc import Mapping

import numpy as np

from ..figures import drawing
from ..learning.scores import evaluate
from ..robots.arms import WAM4, WAM4_ANALYTIC
from .candidates import fitted, kind_of_noise
from .cells import Cell, Drawn, Experiment, Result, Results, Size
from .claims import ABOVE, BELOW, SAME, Claim, compared, noted
from .comparison import draw_curves, legend_below, ratio, relative_growth
from .motion_logs import cosine_log, with_noise

NAME = "noise"
WHERE = "Fig. 9"
OURS = "Appendix A, Fig. 8, with noise"
MODELS = ("identified", "feedforward", "delan", "chain")
MOTIONS = 3


def cells(size: Size) -> list[Cell]:
    variances = size.pick(
        quick=(1e-4, 1.0), usual=(1e-6, 1e-4, 1e-2, 1.0), paper=np.logspace(-6, 0, 7)
    )
    seeds = size.seed_range(quick=1, usual=10)
    return [
        Cell.of(NAME, model, seed=seed, variance=float(variance))
        for model in MODELS
        for variance in variances
        for seed in (size.extra_seeds(seeds, quick=0) if model == "chain" else seeds)
    ]


def run(cell: Cell) -> Result:
    clean = cosine_log(WAM4, range(1000 * cell.seed, 1000 * cell.seed + MOTIONS))
    sigma = float(np.sqrt(cell["variance"]))
    training = with_noise(clean, sigma, cell.seed)
    model = fitted(
        cell.model,
        training,
        task="cosines",
        kind=kind_of_noise(sigma),
        believed=WAM4_ANALYTIC,
        seed=cell.seed,
    )
    torque = evaluate(model, clean, rollouts=False).torque
    return {"test": torque.mse_sum, "nmse": torque.nmse_mean}


def draw(results: Results) -> Mapping[str, Drawn]:
    with drawing(6.4, 4.0) as figure:
        axes = figure.subplots()
        draw_curves(axes, results, "test", "variance", models=MODELS)
        axes.set_xscale("log")
        axes.set_xlabel("variance σ² of the noise on q, q̇, q̈ and τ (SI units)")
        axes.set_ylabel("Σ torque MSE [N² m²]")
        legend_below(figure)
    caption = (
        f"Torque error on {MOTIONS} cosine motions of the simulated WAM (4 joints), without noise, "
        "after training on the same motions with white noise on every number of every sample. "
        "Median and 5th to 95th percentile over seeds."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim | None]:
    variances = results.of("delan").settings("variance")
    if len(variances) < 2:
        return []
    least = variances[0]
    most = variances[-1]
    faster = {}
    for model, name in (("delan", "the network's"), ("feedforward", "the feed-forward network's")):
        grown = relative_growth(results, "identified", model, "variance", least, most)
        faster[f"over {name}"] = grown
    medians = []
    for model in MODELS[:3]:
        rows = [results.of(model, variance=variance).values("test") for variance in (least, most)]
        if all(len(values) for values in rows):
            low, high = (float(np.median(values)) for values in rows)
            medians.append(f"{model} {low:.2g} → {high:.2g}")
    claim = compared(
        "With noise the error of identification grows significantly faster than those of the "
        "networks.",
        WHERE,
        faster,
        ABOVE,
        what=f"growth of its error from σ² = {least:g} to {most:g}",
    )
    claim = noted(claim, f" (medians: {', '.join(medians)} N² m²)")
    return [claim, *_with_noise(results.of(variance=most), most)]


def _with_noise(rows: Results, variance: float) -> list[Claim | None]:
    """Judge whether the order on training motions is the paper's when samples are noisy."""
    return [
        compared(
            f"Simulated WAM, samples with noise of σ² = {variance:g}: on the training motions the "
            "feed-forward network is ahead of the network and of identification.",
            OURS,
            {
                "over the network's": ratio(rows, "feedforward", "delan"),
                "over identification's": ratio(rows, "feedforward", "identified"),
            },
            BELOW,
            what="its error",
            ours=True,
        ),
        compared(
            f"Simulated WAM, samples with noise of σ² = {variance:g}: on the training motions "
            "network and identification are comparable.",
            OURS,
            {"": ratio(rows, "identified", "delan")},
            SAME,
            what="identification's error over the network's",
            ours=True,
        ),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="Noise in the training samples",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 0.3 if cell.model == "identified" else 6.0,
    draw=draw,
    claims=claims,
)
