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
from .claims import BELOW, Claim, Criterion, all_hold, compared, linear_interval, noted
from .comparison import STYLES, draw_curves, legend_below, ratios_over
from .motion_logs import letter_log, shuffled_letters, with_noise

NAME = "offline-letters"
WHERE = "Fig. 4 e and 7"
# Networks with the training that validation chose for such data, and by Adam as in the paper.
MODELS = (
    "delan",
    "feedforward",
    "identified",
    "newton-euler",
    "chain",
    "delan-adam",
    "feedforward-adam",
    "delan-paper",
    "feedforward-paper",
)
# Models that no claim is about; those of the preset are shown at two numbers of letters.
EXTRA = ("chain", "delan-paper", "feedforward-paper")
PRESET_COUNTS = (1, 8)
# Numbers of training letters, as in the figures of the paper; a quick run has two of them.
COUNTS = (1, 2, 4, 6, 8, 10, 12)
# Standard deviation of the noise on every number of a training sample (SI units).
SIGMA = NOISE["noisy"]
MANY_LETTERS = (
    "With many letters validation stops the training before it overfits; without validation it "
    "overfits (experiment `causes`)"
)
FLAT = (
    "Measured on three seeds: it grows with every step down from 8 letters, and from 12 to 10 by "
    "less than it differs between seeds"
)
GROWS = Criterion("a difference that grows with every step to fewer letters", low=0.0)
# On noisy samples the error of the true model is the noise alone: a lower one has learned noise.
NOISE_ALONE = Criterion("below the error that noise makes in the true model", high=1.0)


def cells(size: Size) -> list[Cell]:
    counts = size.pick(quick=PRESET_COUNTS, usual=COUNTS, paper=COUNTS)
    seeds = size.seed_range(quick=1, usual=10)
    wanted = []
    for model in MODELS:
        for n in PRESET_COUNTS if model.endswith("-paper") else counts:
            for seed in size.extra_seeds(seeds) if model in EXTRA else seeds:
                wanted.append(Cell.of(NAME, model, seed=seed, letters=n, alphabet=size.letters))
    return wanted


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
        axes = figure.subplots(1, 3)
        fields = ("train_noisy", "train", "test")
        titles = ("training letters, noisy", "training letters, clean", "unseen letters")
        for panel, field, title in zip(axes, fields, titles, strict=True):
            draw_curves(panel, results, field, "letters", models=MODELS)
            panel.set_title(title, loc="left")
            panel.set_xlabel("training letters n")
        axes[0].set_ylabel("Σ torque MSE [N² m²]")
        legend_below(figure)
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


def claims(results: Results) -> list[Claim | None]:
    label = "n = {}"
    return [
        _below(results, "-adam", "Learned by Adam as in the paper"),
        _greater_difference(results),
        _best_on_training(results),
        _overfits(results),
        compared(
            "Identification extrapolates to unseen letters better than the network.",
            "Appendix A, Fig. 7",
            ratios_over(results, "letters", "identified", "delan", label=label),
            BELOW,
            what="identification's error over the network's",
        ),
        _extrapolates(results),
        _below(results, "", "With the training that validation chose for each", ours=True),
    ]


def _below(results: Results, suffix: str, how: str, *, ours: bool = False) -> Claim | None:
    """Judge whether the network extrapolates better than the feed-forward network."""
    rivals = (f"delan{suffix}", f"feedforward{suffix}")
    return compared(
        f"{how}, the network's torque error on unseen letters is below the feed-forward network's "
        "at every n.",
        WHERE,
        ratios_over(results, "letters", *rivals, label="n = {}"),
        BELOW,
        what="error over the feed-forward network's",
        ours=ours,
        remark="Few letters say little: with one or two the network is worse for single seeds",
    )


def _greater_difference(results: Results) -> Claim | None:
    """Judge whether the difference of the errors grows with every step to fewer letters."""
    differences = {}
    for n in results.settings("letters"):
        both = [results.of(model, letters=n) for model in ("delan-adam", "feedforward-adam")]
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
        claim="Learned by Adam as in the paper, the difference between the errors of the "
        "feed-forward network and the network is the greater, the fewer letters.",
        where=WHERE,
        measured=f"change of the difference [N² m²], {shown}",
        asked=GROWS.words,
        holds=holds,
        seeds=results.of("delan-adam").seeds,
        intervals=intervals,
        remark="" if holds == "yes" else FLAT,
    )


def _best_on_training(results: Results) -> Claim | None:
    """Judge the errors on noisy training samples, of networks that nothing keeps from overfitting.

    The paper does not say how its networks were regularised.
    """
    rivals = ("delan-adam", "identified")
    ratios = {}
    for rival in rivals:
        label = f"n = {{}}, over {STYLES[rival].label}"
        ratios |= ratios_over(
            results, "letters", "feedforward-adam", rival, label=label, field="train_noisy"
        )
    claim = compared(
        "Learned by Adam without weight decay, the feed-forward network is the best on the noisy "
        "training samples.",
        "Appendix A, Fig. 7",
        ratios,
        BELOW,
        what="its error on training samples",
        remark=MANY_LETTERS,
    )
    tuned = ratios_over(
        results, "letters", "feedforward", "delan", label="n = {}", field="train_noisy"
    )
    return noted(claim, _with_chosen_decay("over the network's", tuned))


def _overfits(results: Results) -> Claim | None:
    """Judge whether the feed-forward network fits the noise of its training samples."""
    claim = compared(
        "Learned by Adam without weight decay, the feed-forward network overfits its training "
        "samples.",
        "Appendix A, Fig. 7",
        _over_noise(results, "feedforward-adam", "train_noisy"),
        NOISE_ALONE,
        what="error on noisy training samples over that of the true model",
        remark=MANY_LETTERS,
    )
    tuned = _over_noise(results, "feedforward", "train_noisy")
    return noted(claim, _with_chosen_decay("over the true model's", tuned))


def _with_chosen_decay(what: str, ratios: Mapping[str, np.ndarray]) -> str:
    """Return a note on the network whose weight decay validation chose."""
    values = [float(np.median(seeds)) for seeds in ratios.values()]
    if not values:
        return ""
    return (
        f"; with the weight decay that validation chose, its error is {min(values):.2g} to "
        f"{max(values):.2g} {what} (medians)"
    )


def _extrapolates(results: Results) -> Claim | None:
    """Judge whether identification has learned the arm and not the noise."""
    claim = compared(
        "Identification does not overfit to the noise, and extrapolates to unseen letters.",
        "Appendix A, Fig. 7",
        _over_noise(results, "identified", "test"),
        NOISE_ALONE,
        what="error on unseen letters over that which noise makes in the true model",
    )
    found = []
    for n in results.settings("letters"):
        rows = results.of("identified", letters=n).rows
        if rows:
            ratio_to_known = np.median([row["test"] / row["train"] for _, row in rows])
            found.append(f"{ratio_to_known:.2g} at n = {n}")
    return noted(claim, f"; over its error on training letters without noise {', '.join(found)}")


def _over_noise(results: Results, model: str, field: str) -> dict[str, np.ndarray]:
    """Return an error over that of the true model on the noisy training samples, by n."""
    found = {}
    for n in results.settings("letters"):
        noise = {}
        for cell, row in results.of("newton-euler", letters=n).rows:
            noise[cell.seed] = row["train_noisy"]
        ratios = []
        for cell, row in results.of(model, letters=n).rows:
            if cell.seed in noise:
                ratios.append(row[field] / noise[cell.seed])
        if ratios:
            found[f"n = {n}"] = np.array(ratios)
    return found


def _seconds(cell: Cell) -> float:
    """Return the time of a cell on one core, from measured cells [s]."""
    if cell.model in ("newton-euler", "identified"):
        return 0.3
    return 1.5 + 0.25 * cell["letters"]


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
