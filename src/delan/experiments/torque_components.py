"""What the torque is made of: trained on summed torques of three letters, does a model find the parts?"""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from ..drawing import drawing, truth_line
from ..joints import COMPONENTS
from ..learning.evaluate import evaluate, predict
from ..robots.two_link import TWO_LINK
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .motion_logs import LOG_PERIOD, written
from .rivals import LOOKS, fitted

NAME, WHERE = "torque-components", "Fig. 4 a–d"
LETTERS = "ade"
MODELS = ("delan", "chain")
PARTS = ("torque", *(name for name in COMPONENTS if name != "friction"))
TITLES = {
    "torque": "torque τ",
    "inertial": "inertial H q̈",
    "coriolis": "Coriolis and centrifugal c",
    "gravity": "gravity g",
}
ENOUGH = 1e-3
"""Below this share of the torque's variance two curves lie on each other in a figure."""


def cells(size: Size) -> list[Cell]:
    seeds = size.seed_range(quick=1, usual=10)
    return [Cell.of(NAME, model, seed=seed) for model in MODELS for seed in seeds]


def run(cell: Cell) -> Result:
    log = written(LETTERS, dt=LOG_PERIOD)
    model = fitted(cell.model, log, task="letters", believed=TWO_LINK, seed=cell.seed)
    scores = evaluate(model, log, rollouts=False)
    parts = predict(model, "components", *(jnp.asarray(part) for part in (log.q, log.qd, log.qdd)))
    learned = {"torque": parts.total, **{name: getattr(parts, name) for name in PARTS[1:]}}
    errors = {"torque": scores.torque, **scores.components}
    return {
        "nmse": {name: errors[name].nmse_mean for name in PARTS},
        "learned": {name: np.asarray(values).round(5).tolist() for name, values in learned.items()},
    }


def draw(results: Results) -> Mapping[str, Drawn]:
    log = written(LETTERS, dt=LOG_PERIOD)
    true = {"torque": log.tau, **log.truth}
    t = np.arange(len(log)) * LOG_PERIOD
    starts = [int(np.argmax(log.trajectory == label)) for label in log.trajectories]
    with drawing(9.0, 4.6) as figure:
        grid = figure.subplots(2, len(PARTS), sharex=True)
        for column, part in enumerate(PARTS):
            for joint, axes in enumerate(grid[:, column]):
                truth_line(axes, t, _cut(true[part][:, joint], starts), "truth")
                for model in reversed(MODELS):
                    for _, result in results.of(model).rows[:1]:
                        look = LOOKS[model]
                        curve = _cut(np.array(result["learned"][part])[:, joint], starts)
                        axes.plot(t, curve, color=look.colour, linestyle=look.line, linewidth=1, label=look.label)
                for row in starts[1:]:
                    axes.axvline(t[row], color="#e4e7eb", linewidth=0.8, zorder=0)
            grid[0, column].set_title(TITLES[part], loc="left")
        for letter, row in zip(LETTERS, starts, strict=True):
            grid[0, 0].text(t[row] + 0.1, 0.93, letter, transform=grid[0, 0].get_xaxis_transform())
        for joint, axes in enumerate(grid[:, 0]):
            axes.set_ylabel(f"joint {joint + 1} [N m]")
        for axes in grid[1]:
            axes.set_xlabel("time [s]")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    caption = (
        "The torque that the letters a, d and e take, and its parts: broad and pale the truth, thin what was learned "
        "from the summed torque of these letters alone."
    )
    return {NAME: Drawn(figure, caption)}


def _cut(curve: np.ndarray, starts: list[int]) -> np.ndarray:
    """The curve with a gap where a letter begins."""
    curve = curve.copy()
    curve[starts] = np.nan
    return curve


def claims(results: Results) -> list[Claim]:
    mine = results.of("delan")
    if not len(mine):
        return []
    worst = {part: max(result["nmse"][part] for _, result in mine.rows) for part in PARTS}
    shown = ", ".join(f"{TITLES[part]} {value:.1e}" for part, value in worst.items())
    held = [value < ENOUGH for value in worst.values()]
    return [
        Claim(
            claim="Trained on summed torques alone, the network finds the inertial, Coriolis and gravity parts.",
            where=WHERE,
            measured=f"largest nMSE over seeds: {shown}",
            asked=f"the curves lie on each other (nMSE below {ENOUGH:g})",
            holds="yes" if all(held) else "partly" if any(held) else "no",
            seeds=mine.seeds,
        )
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="The parts of the torque",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 12.0,
    draw=draw,
    claims=claims,
)
