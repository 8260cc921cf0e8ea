"""What each of our changes to the paper's network is worth.

    python -m benchmarks.presets [--parts ladder] [--data PATH] [--seeds 3] [--steps 3000]

The `ladder` begins with the preset `paper` and ends with what `delan fit --model delan` takes for
two joints; each rung changes one thing and keeps the changes before it. `back` begins there and
takes back one change at a time. Every rung with Adam gets the same number of steps. Errors are nMSE
on letters that were not trained on, without noise: of the torque, and of the worst of its three
parts. The published letters have no noise; the training letters of the simulated two-link arm have
that of the paper's offline experiments. Nothing is chosen on the test letters. Writes numbers and a
figure to `benchmarks/results`.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes

from delan.figures import LEARNED, RIVAL, drawing
from delan.joints import Dataset
from delan.learning.model_fit import fit_model
from delan.learning.presets import PAPER
from delan.learning.scores import evaluate
from delan.learning.study import Study
from delan.models.networks import LagrangianNetworkSettings
from delan.paper.motion_logs import letter_log, shuffled_letters, with_noise
from delan.paper.published_data import read_published
from delan.solvers.adam import DescentSettings
from delan.solvers.loss import Objective
from delan.solvers.plan import SMALL_WIDTH
from delan.solvers.training import TrainingSettings

from .published_letters import DATA
from .results import FOLDER, read_results, write_results

# Letters of the simulated arm to train on; the other three are unseen, as in the published data.
KNOWN = 17
# Standard deviation of the noise on every number of a simulated training sample (SI units).
NOISE = 0.01
# Most iterations of Levenberg–Marquardt.
ITERATIONS = 100


@dataclass(frozen=True)
class Rung:
    """A network and its training, and what is new in it."""

    change: str
    network: LagrangianNetworkSettings
    training: TrainingSettings


def ladder() -> Iterator[Rung]:
    """Yield the rungs from the preset `paper` to our default."""
    network = PAPER.network
    training = PAPER.training
    yield Rung("the paper", network, training)
    network = replace(network, inputs="normalised", outputs="scaled")
    yield Rung("inputs and heads in units of the data", network, training)
    network = replace(network, inputs="circular", focus=LagrangianNetworkSettings.focus)
    yield Rung("cos q and sin q in place of q", network, training)
    network = replace(network, activation=LagrangianNetworkSettings.activation)
    yield Rung("a smooth activation in place of ReLU", network, training)
    network = replace(network, gravity="potential")
    yield Rung("a potential in place of a vector for g", network, training)
    training = replace(training, objective=replace(training.objective, torque="normalised"))
    yield Rung("errors over each joint's variance", network, training)
    training = replace(training, objective=Objective())
    yield Rung("no weight decay", network, training)
    training = replace(training, descent=DescentSettings())
    yield Rung("Adam: peak 3e-3, cosine, clipped", network, training)
    network = replace(network, width=SMALL_WIDTH)
    yield Rung("Levenberg–Marquardt, 2 × 16 units", network, replace(training, optimizer="lm"))


def back() -> Iterator[Rung]:
    """Yield our default with one change taken back."""
    *_, ours = ladder()
    paper = PAPER.network
    for change, setting in (
        ("q in place of cos q and sin q", {"inputs": paper.inputs}),
        ("ReLU", {"activation": paper.activation}),
        ("a vector for g", {"gravity": paper.gravity}),
        ("heads without units", {"outputs": paper.outputs}),
    ):
        yield replace(ours, change=change, network=replace(ours.network, **setting))
    squared = replace(ours.training, objective=Objective(torque="squared"))
    yield replace(ours, change="plain squared error", training=squared)
    decayed = replace(ours.training, objective=Objective(weight_decay=1e-5, decayed="all"))
    yield replace(ours, change="weight decay 1e-5 of all weights", training=decayed)


PARTS = {"ladder": ladder, "back": back}


def datasets(data: Path, seed: int) -> dict[str, tuple[Dataset, Dataset]]:
    """Return the letters to train on and the unseen ones, of each source that is here."""
    order = shuffled_letters(seed)
    known = with_noise(letter_log(order[:KNOWN]), NOISE, seed)
    pairs = {"simulated letters, noise": (known, letter_log(order[KNOWN:]))}
    if data.exists():
        pairs["published letters"] = read_published(data)
    return pairs


def score(rung: Rung, known: Dataset, unseen: Dataset, steps: int, seed: int) -> dict[str, float]:
    """Return the errors of a rung on unseen letters: torque, worst part, and Σ torque MSE."""
    epochs = ITERATIONS
    if rung.training.optimizer == "adam":
        epochs = steps * min(rung.training.descent.batch, len(known)) // len(known)
    settings = replace(rung.training, epochs=epochs)
    result = fit_model(Study.of(known, settings, key=jax.random.key(seed)), rung.network)
    scores = evaluate(result.model, unseen, rollouts=False)
    parts = [errors.nmse_mean for errors in scores.components.values()]
    return {
        "torque": scores.torque.nmse_mean,
        "worst_part": max(parts),
        "mse_sum": scores.torque.mse_sum,
        "seconds": result.seconds,
    }


Rows = dict[str, dict[str, list[dict[str, float]]]]


def measure(part: str, pairs: Sequence[Mapping[str, Any]], steps: int) -> Rows:
    """Return the errors of every rung of a part, by source and change, one for each seed."""
    rows: Rows = {source: {} for source in pairs[0]}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for rung in PARTS[part]():
            for source in rows:
                futures = []
                for seed, pair in enumerate(pairs):
                    known, unseen = pair[source]
                    futures.append(pool.submit(score, rung, known, unseen, steps, seed))
                rows[source][rung.change] = scores = [future.result() for future in futures]
                shown = []
                for name in scores[0]:
                    shown.append(f"{name} {np.median([row[name] for row in scores]):.1e}")
                print(f"{part}, {source}, {rung.change}: {', '.join(shown)}", flush=True)
    return rows


def draw(parts: Mapping[str, Rows]) -> None:
    """Draw the errors of each rung: a mark for the median, a line over all seeds."""
    titles = {
        "ladder": "from the paper's network to ours, one change after the other",
        "back": "ours with one change taken back",
    }
    heights = [len(next(iter(rows.values()))) for rows in parts.values()]
    with drawing(7.6, 1.2 + 0.36 * sum(heights)) as figure:
        grid = figure.subplots(len(parts), 1, sharex=True, squeeze=False, height_ratios=heights)
        for axes, (part, rows) in zip(grid[:, 0], parts.items(), strict=True):
            _draw_part(axes, rows)
            axes.set_title(titles[part], loc="left")
        grid[-1, 0].set_xlabel("torque nMSE on unseen letters")
        grid[0, 0].legend()
        figure.savefig(FOLDER / "presets.png", dpi=130)


def _draw_part(axes: Axes, rows: Rows) -> None:
    changes = list(next(iter(rows.values())))
    for shift, (source, colour) in enumerate(zip(rows, (LEARNED, RIVAL), strict=False)):
        values = np.array([[seed["torque"] for seed in rows[source][name]] for name in changes])
        place = np.arange(len(changes)) + 0.24 * (shift - 0.5)
        axes.hlines(place, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.5)
        axes.plot(np.median(values, axis=1), place, "o", color=colour, label=source)
    axes.set_xscale("log")
    axes.set_yticks(range(len(changes)), changes)
    axes.invert_yaxis()
    axes.grid(axis="x")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=["ladder"])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3_000)
    asked = parser.parse_args()
    how = {"seeds": asked.seeds, "steps": asked.steps}
    stored = read_results("presets")
    # Parts that are not asked for stay, if they were measured alike.
    parts: dict[str, Rows] = stored["parts"] if how.items() <= stored.items() else {}
    pairs = [datasets(asked.data, seed) for seed in range(asked.seeds)]
    for part in asked.parts:
        parts[part] = measure(part, pairs, asked.steps)
        write_results("presets", {**how, "parts": parts})
    draw(parts)


if __name__ == "__main__":
    main()
