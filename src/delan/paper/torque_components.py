"""Experiment `torque-components`: train on summed torques; are the components found as well?"""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from ..figures import drawing, truth_line
from ..joints import COMPONENTS
from ..learning.scores import evaluate, predict
from ..motions.alphabet import OWN
from ..robots.arms import TWO_LINK
from .candidates import fitted
from .cells import Cell, Drawn, Experiment, Result, Results, Size
from .claims import Claim, Criterion, compared, noted
from .comparison import STYLES, legend_below
from .motion_logs import LOG_PERIOD, letter_log

NAME = "torque-components"
WHERE = "Fig. 4 a–d"
LETTERS = "ade"
MODELS = ("delan", "chain")
PARTS = ("torque", *(name for name in COMPONENTS if name != "friction"))
TITLES = {
    "torque": "torque τ",
    "inertial": "inertial H q̈",
    "coriolis": "Coriolis and centrifugal c",
    "gravity": "gravity g",
}
# Below this share of the torque's variance, two curves of a figure coincide.
ENOUGH = 1e-3


def cells(size: Size) -> list[Cell]:
    seeds = size.seed_range(quick=1, usual=10)
    return [
        Cell.of(NAME, model, seed=seed, alphabet=size.letters)
        for model in MODELS
        for seed in (size.extra_seeds(seeds) if model == "chain" else seeds)
    ]


def run(cell: Cell) -> Result:
    log = letter_log(LETTERS, dt=LOG_PERIOD, alphabet=cell["alphabet"])
    model = fitted(cell.model, log, task="letters", kind="clean", believed=TWO_LINK, seed=cell.seed)
    scores = evaluate(model, log, rollouts=False)
    motion = (jnp.asarray(log.q), jnp.asarray(log.qd), jnp.asarray(log.qdd))
    components = predict(model, "components", *motion)
    nmse = {"torque": scores.torque.nmse_mean}
    learned = {"torque": components.total.round(5).tolist()}
    for part in PARTS[1:]:
        nmse[part] = scores.components[part].nmse_mean
        learned[part] = getattr(components, part).round(5).tolist()
    return {"nmse": nmse, "learned": learned}


def draw(results: Results) -> Mapping[str, Drawn]:
    alphabet = next(iter(results.settings("alphabet")), OWN)
    log = letter_log(LETTERS, dt=LOG_PERIOD, alphabet=alphabet)
    truth = {"torque": log.tau, **log.truth}
    t = np.arange(len(log)) * LOG_PERIOD
    starts = [int(np.argmax(log.trajectory == label)) for label in log.trajectories]
    with drawing(9.0, 4.6) as figure:
        grid = figure.subplots(2, len(PARTS), sharex=True)
        for column, part in zip(grid.T, PARTS, strict=True):
            column[0].set_title(TITLES[part], loc="left")
            for joint, axes in enumerate(column):
                truth_line(axes, t, _with_gaps(truth[part][:, joint], starts), "truth")
                for model in reversed(MODELS):
                    for _, result in results.of(model).rows[:1]:
                        learned = np.array(result["learned"][part])[:, joint]
                        curve = _with_gaps(learned, starts)
                        style = STYLES[model]
                        (line,) = axes.plot(t, curve, style.line, color=style.colour, linewidth=1)
                        line.set_label(style.label)
                for row in starts[1:]:
                    axes.axvline(t[row], color="#e4e7eb", linewidth=0.8, zorder=0)
        for letter, row in zip(LETTERS, starts, strict=True):
            grid[0, 0].text(t[row] + 0.1, 0.93, letter, transform=grid[0, 0].get_xaxis_transform())
        for joint, axes in enumerate(grid[:, 0]):
            axes.set_ylabel(f"joint {joint + 1} [N m]")
        for axes in grid[1]:
            axes.set_xlabel("time [s]")
        legend_below(figure)
    caption = (
        "The torque of the letters a, d and e, and its components: broad and pale the truth, thin "
        "what was learned from the summed torque of these letters alone."
    )
    return {NAME: Drawn(figure, caption)}


def _with_gaps(curve: np.ndarray, starts: list[int]) -> np.ndarray:
    """Return the curve with a gap where a letter begins."""
    curve = curve.copy()
    curve[starts] = np.nan
    return curve


def claims(results: Results) -> list[Claim | None]:
    mine = results.of("delan")
    nmse = {}
    for part in PARTS:
        nmse[TITLES[part]] = np.array([result["nmse"][part] for _, result in mine.rows])
    worst = max((float(values.max()) for values in nmse.values() if len(values)), default=0.0)
    claim = compared(
        "Trained on summed torques alone, the network finds the inertial, Coriolis and gravity "
        "parts.",
        WHERE,
        nmse,
        Criterion(f"the curves lie on each other (nMSE below {ENOUGH:g})", high=ENOUGH),
        what="nMSE",
    )
    claim = noted(claim, f"; largest over seeds and parts {worst:.1e}")
    return [claim]


EXPERIMENT = Experiment(
    name=NAME,
    title="The parts of the torque",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 6.0,
    draw=draw,
    claims=claims,
)
