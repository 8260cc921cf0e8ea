"""How the networks' training was chosen: every candidate for both networks, scored on validation motions.

The motions are no experiment's: letters written smaller, slower and elsewhere, cosines with other random numbers. What
comes out best stands in `rivals.CHOSEN`.
"""

from collections.abc import Mapping

import numpy as np

from ..drawing import drawing
from ..joints import Dataset
from ..learning.evaluate import evaluate
from ..robots.barrett_wam import WAM4
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .curves import legend_below
from .motion_logs import corrupted, shuffled_letters, swung, written
from .offline_letters import NOISE
from .rivals import CANDIDATES, CHOSEN, LOOKS, train

NAME, WHERE = "tuning", "not in the paper"
MODELS = ("delan", "feedforward")
PLACE = {"origin": (0.45, 0.0), "height": 0.15}
KNOWN, UNSEEN = (1, 8), 4
"""How many letters to learn on, and on how many others to be scored; the error is the geometric mean over both."""
MOTIONS, SPEED = 3, 1.5
"""Cosine motions to learn on; they are scored on at a higher speed."""
SEED_BASE = 90_000


def cells(size: Size) -> list[Cell]:
    """Not part of a quick run, which takes what was found before."""
    seeds = size.seed_range(quick=0, usual=3, paper=5) if size.name != "quick" else range(0)
    return [
        Cell.of(NAME, model, seed=seed, task=task, candidate=number)
        for task in ("letters", "cosines")
        for model in MODELS
        for number in range(len(CANDIDATES))
        for seed in seeds
    ]


def run(cell: Cell) -> Result:
    seed, errors = SEED_BASE + cell.seed, []
    for known, unseen in _logs(cell["task"], seed):
        model = train(cell.model, corrupted(known, NOISE, seed), CANDIDATES[cell["candidate"]], seed=seed).model
        # Scored on noisy samples too: on a robot there are no others.
        noisy = corrupted(unseen, NOISE, seed + 1)
        errors.append(evaluate(model, noisy, rollouts=False).torque.nmse_mean)
    return {"validation": float(np.exp(np.mean(np.log(errors))))}


def _logs(task: str, seed: int) -> list[tuple[Dataset, Dataset]]:
    """Pairs of logs: to learn on, and to be scored on."""
    if task == "cosines":
        motions = range(10 * seed, 10 * seed + MOTIONS)
        return [(swung(WAM4, motions), swung(WAM4, motions, speed=SPEED))]
    order = shuffled_letters(seed)
    unseen = written(order[-UNSEEN:], place=PLACE, speed=0.35)
    return [(written(order[:count], place=PLACE, speed=0.35), unseen) for count in KNOWN]


def best(results: Results) -> dict[tuple[str, str], int]:
    """The candidate with the least median error, by task and model."""
    found = {}
    for task in results.settings("task"):
        for model in MODELS:
            mine = results.of(model, task=task)
            medians = {
                number: float(np.median(mine.of(candidate=number).values("validation")))
                for number in mine.settings("candidate")
            }
            if medians:
                found[task, model] = min(medians, key=lambda number: medians[number])
    return found


def draw(results: Results) -> Mapping[str, Drawn]:
    if not len(results):
        return {}
    tasks = results.settings("task")
    with drawing(9.0, 3.0) as figure:
        grid = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for axes, task in zip(grid, tasks, strict=True):
            for shift, model in enumerate(MODELS):
                for number in results.of(model, task=task).settings("candidate"):
                    values = results.of(model, task=task, candidate=number).values("validation")
                    look = LOOKS[model]
                    place = np.full(len(values), number + 0.25 * shift - 0.12)
                    label = look.label if number == 0 else None
                    axes.plot(values, place, look.marker, color=look.colour, markersize=4, label=label)
            axes.set_xscale("log")
            axes.set_title(task, loc="left")
            axes.set_xlabel("nMSE on validation motions")
            axes.grid(axis="x")
        grid[0].set_yticks(range(len(CANDIDATES)), [str(one) for one in CANDIDATES])
        grid[0].invert_yaxis()
        legend_below(figure, grid[0])
    chosen = "; ".join(f"{task}, {LOOKS[model].label}: {CHOSEN[task, model]}" for task, model in CHOSEN)
    caption = (
        "Each mark a seed: DeLaN round, the feed-forward network square. In all experiments both are trained with what "
        f"was best here by the median ({chosen}), and keep the weights that were best on validation trajectories."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim]:
    found = best(results)
    if not found:
        return []
    same = [CANDIDATES[number] == CHOSEN[key] for key, number in found.items()]  # pyright: ignore[reportArgumentType]
    return [
        Claim(
            claim="Both networks are trained with the settings that are best for them on validation motions.",
            where=WHERE,
            measured="; ".join(f"{task}, {model}: {CANDIDATES[number]}" for (task, model), number in found.items()),
            asked="the settings that the experiments use",
            holds="yes" if all(same) else "partly" if any(same) else "no",
            seeds=results.seeds,
        )
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="How the networks' training was chosen",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 25.0,
    draw=draw,
    claims=claims,
)
