"""The answers of the experiment `causes`: figures, and claims of this package with intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, NullLocator

from ..figures import drawing
from .causes import ARMS, NAME, SECONDS, STEPS, cells, run
from .cells import Cell, Drawn, Experiment, Results, Setting
from .claims import ABOVE, BELOW, SAME, Claim, Criterion, compared, log_interval, noted
from .comparison import STYLES, legend_below, ratio
from .online_letters import ENOUGH, LEGIBLE

WHERE = "not in the paper"


def _models(results: Results, *names: str) -> list[str]:
    return [name for name in names if len(results.of(name))]


def _draw_letters(results: Results) -> Drawn:
    styles = {"own": "-", "paper": ":"}
    with drawing(6.4, 3.4) as figure:
        axes = figure.subplots()
        for model in _models(results, "delan-adam", "feedforward-adam"):
            style = STYLES[model]
            for recipe, line in styles.items():
                mine = results.of(model, recipe=recipe)
                steps = mine.settings("steps")
                if not steps:
                    continue
                rows = np.array([np.sort(1e3 * mine.of(steps=n).values("stray")) for n in steps])
                label = f"{style.label}, {'our training' if recipe == 'own' else 'preset paper'}"
                axes.plot(steps, np.median(rows, axis=1), line, color=style.colour, label=label)
                axes.plot(steps, rows, style.marker, color=style.colour, alpha=0.5, markersize=4)
        axes.axhline(1e3 * LEGIBLE, color="#1f2933", linewidth=1)
        axes.set(xscale="log", yscale="log")
        _plain_ticks(axes.xaxis, STEPS)
        _plain_ticks(axes.yaxis, (3, 5, 10, 20, 50))
        axes.set_xlabel("learning steps per second of robot time")
        axes.set_ylabel("largest distance of the pen [mm]")
        axes.grid(axis="y")
        legend_below(figure, columns=2)
    caption = (
        f"How far the pen strays from the twenty letters after {ENOUGH} were learned, by the "
        "training of the network and its budget; each mark a seed, lines through medians. Above "
        "the black line letters are not legible."
    )
    return Drawn(figure, caption)


def _judge_letters(results: Results) -> list[Claim | None]:
    mine = results.of("feedforward-adam")
    fast = mine.of(steps=STEPS[1])
    slow = mine.of(recipe="paper")
    ratios = {
        "preset `paper` over our training": _over(fast, "recipe", "paper", "own"),
        f"{STEPS[0]} over {STEPS[1]} steps a second, preset `paper`": _over(slow, "steps", *STEPS),
    }
    few = results.of(recipe="paper", steps=STEPS[0])
    return [
        compared(
            "How far the feed-forward network strays from the letters depends on its training: "
            "farther with the preset `paper`, and farther with few learning steps.",
            WHERE,
            ratios,
            ABOVE,
            what="largest distance of the pen, ratio",
            ours=True,
        ),
        compared(
            "With the preset `paper` and few learning steps, where the feed-forward network "
            "deviates, the network deviates farther.",
            WHERE,
            {f"{STEPS[0]} steps": ratio(few, "delan-adam", "feedforward-adam", "stray")},
            ABOVE,
            what="the network's largest distance over the feed-forward network's, preset `paper`",
            ours=True,
        ),
    ]


def _over(results: Results, name: str, one: Setting, other: Setting) -> np.ndarray:
    """Return the stray at one value of a setting over that at another, by seed."""
    both = []
    for value in (one, other):
        mine = results.of(None, **{name: value})
        both.append({cell.seed: row["stray"] for cell, row in mine.rows})
    first, last = both
    return np.array([first[seed] / last[seed] for seed in sorted(first.keys() & last.keys())])


def _plain_ticks(axis: Axis, values: Sequence[float]) -> None:
    """Put ticks at values that a reader looks for, without powers of ten."""
    axis.set_major_locator(FixedLocator(values))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def _draw_budget(results: Results) -> Drawn:
    with drawing(4.4, 3.2) as figure:
        axes = figure.subplots()
        for model in _models(results, "delan", "feedforward"):
            style = STYLES[model]
            mine = results.of(model)
            seconds = [cell["seconds"] for cell, _ in mine.rows]
            axes.plot(seconds, mine.values("test"), style.marker, color=style.colour, alpha=0.5)
            medians = [np.median(mine.of(seconds=n).values("test")) for n in SECONDS]
            axes.plot(SECONDS, medians, color=style.colour, label=style.label)
        axes.set(yscale="log")
        _plain_ticks(axes.xaxis, SECONDS)
        axes.set_xlabel("time of learning [s]")
        axes.set_ylabel("Σ tracking MSE [rad²]")
        axes.grid(axis="y")
        legend_below(figure)
    caption = (
        "Tracking error on the training motions of the rigid WAM after learning for so long; each "
        "mark a seed, lines through medians."
    )
    return Drawn(figure, caption)


def _judge_budget(results: Results) -> list[Claim | None]:
    seconds = results.settings("seconds")
    ratios = {n: ratio(results.of(seconds=n), "delan", "feedforward") for n in seconds}
    short, long = SECONDS
    claim = compared(
        f"WAM, rigid: after {long} s of learning both networks track the training motions "
        "comparably.",
        WHERE,
        {"": ratios.get(long, np.empty(0))},
        SAME,
        what="error over the feed-forward network's at 1×",
        ours=True,
    )
    if len(ratios.get(short, ())):
        claim = noted(claim, f"; after {short} s {log_interval(ratios[short])}")
    return [claim]


def _draw_cables(results: Results) -> Drawn:
    with drawing(8.2, 3.2) as figure:
        row = figure.subplots(1, 2, sharey=True)
        panels = (("slow", "training motions"), ("fast", "twice the speed"))
        for axes, (field, title) in zip(row, panels, strict=True):
            for shift, model in enumerate(_models(results, "identified", "delan", "feedforward")):
                style = STYLES[model]
                for place, arm in enumerate(ARMS):
                    values = results.of(model, arm=arm).values(field)
                    y = np.full(len(values), place + 0.22 * (shift - 1))
                    # A label that begins with an underscore is not shown.
                    label = f"_{arm}" if place else style.label
                    axes.plot(
                        values,
                        y,
                        style.marker,
                        color=style.colour,
                        alpha=0.7,
                        markersize=5,
                        label=label,
                    )
            axes.set_xscale("log")
            axes.set_title(title, loc="left")
            axes.set_xlabel("Σ torque MSE [N² m²]")
            axes.grid(axis="x")
        row[0].set_yticks(range(len(ARMS)), [variant.title for variant in ARMS.values()])
        row[0].set_ylim(len(ARMS) - 0.5, -0.5)
        legend_below(figure)
    caption = (
        "The arm with cable drives with one of its faults taken away at a time; fitted to the "
        "training motions without friction terms. Each mark a seed."
    )
    return Drawn(figure, caption)


def _judge_cables(results: Results) -> list[Claim | None]:
    changed = {}
    for arm in ARMS:
        if arm != "whole":
            changed[arm] = _less_misfit(results.of("identified"), arm)
    easy = results.of(arm="frictionless")
    factor = Criterion("a ratio below 0.1", high=0.1)
    kept = Criterion("a ratio above 0.5", low=0.5)
    return [
        compared(
            "Cable drives: friction makes the misfit of identification; without it a tenth "
            "remains.",
            WHERE,
            {"": changed["frictionless"]},
            factor,
            what="identification's error at 1× without friction over that of the whole arm",
            ours=True,
        ),
        compared(
            "Cable drives: neither stretch nor wrong kinematics makes half of the misfit of "
            "identification.",
            WHERE,
            {ARMS[arm].title: changed[arm] for arm in ("stiff", "drawn")},
            kept,
            what="identification's error at 1× over that of the whole arm",
            ours=True,
        ),
        compared(
            "Cable drives: without friction in the arm the network extrapolates to twice the speed "
            "better than the feed-forward network.",
            WHERE,
            {"": ratio(easy, "delan", "feedforward", "fast")},
            BELOW,
            what="error over the feed-forward network's at 2×",
            ours=True,
        ),
    ]


def _less_misfit(results: Results, arm: str) -> np.ndarray:
    whole = {cell.seed: row["slow"] for cell, row in results.of(arm="whole").rows}
    found = []
    for cell, row in results.of(arm=arm).rows:
        if cell.seed in whole:
            found.append(row["slow"] / whole[cell.seed])
    return np.array(found)


def _judge_noise(results: Results) -> list[Claim | None]:
    ratios = {}
    rivals = {
        "delan-unstopped": "the network's",
        "identified": "identification's",
        "newton-euler": "the true model's",
    }
    for letters in results.settings("letters"):
        mine = results.of(letters=letters)
        for rival, name in rivals.items():
            values = ratio(mine, "feedforward-unstopped", rival, "train_noisy")
            ratios[f"n = {letters}, over {name}"] = values
    return [
        compared(
            "Without validation samples that stop it, the feed-forward network overfits and is the "
            "best on the noisy training samples after 8 and 12 letters, too.",
            WHERE,
            ratios,
            BELOW,
            what="its error on noisy training samples",
            ours=True,
        )
    ]


class Answer(NamedTuple):
    """How a question is judged and drawn, and the seconds of a cell."""

    judge: Callable[[Results], list[Claim | None]]
    draw: Callable[[Results], Drawn] | None = None
    seconds: float = 8.0


ANSWERS = {
    "letters": Answer(_judge_letters, _draw_letters, seconds=9.0),
    "cables": Answer(_judge_cables, _draw_cables),
    "budget": Answer(_judge_budget, _draw_budget, seconds=20.0),
    "validation": Answer(_judge_noise, seconds=4.0),
}


def draw(results: Results) -> Mapping[str, Drawn]:
    drawn = {}
    for name, answer in ANSWERS.items():
        mine = results.of(question=name)
        if answer.draw is not None and len(mine):
            drawn[f"{NAME}-{name}"] = answer.draw(mine)
    return drawn


def claims(results: Results) -> list[Claim | None]:
    judged = []
    for name, answer in ANSWERS.items():
        judged += answer.judge(results.of(question=name))
    return judged


def _seconds(cell: Cell) -> float:
    return ANSWERS[cell["question"]].seconds


EXPERIMENT = Experiment(
    name=NAME,
    title="Why claims of the paper fail here",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=_seconds,
    draw=draw,
    claims=claims,
)
