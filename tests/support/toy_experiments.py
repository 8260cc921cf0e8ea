"""Two small experiments, in a file of their own: workers import it without pytest."""

import math
from collections.abc import Mapping

from delan.figures import LEARNED, RIVAL, drawing
from delan.paper.cells import Cell, Drawn, Experiment, Result, Results, Size
from delan.paper.claims import Claim


def slope_cells(size: Size) -> list[Cell]:
    seeds = size.seed_range(quick=3, usual=5)
    return [
        Cell.of("slope", model, seed=seed, n=n)
        for model in ("ours", "rival")
        for n in (1, 2, 4)
        for seed in seeds
    ]


def slope(cell: Cell) -> Result:
    error = math.exp(-cell["n"] + 0.1 * cell.seed) * (1.0 if cell.model == "ours" else 5.0)
    diverged = cell.model == "rival" and cell["n"] == 4 and cell.seed == 1
    return {
        "error": math.inf if diverged else error,
        "parts": {"gravity": error / 2},
        "curve": [1.0, error],
        "label": "x",
        "done": True,
        "valid": None,
    }


def draw_slope(results: Results) -> Mapping[str, Drawn]:
    with drawing(8.6, 3.2) as figure:
        axes = figure.subplots()
        for model, colour in (("ours", LEARNED), ("rival", RIVAL)):
            mine = results.of(model)
            axes.plot(
                [cell["n"] for cell, _ in mine.rows],
                mine.values("error"),
                "o",
                color=colour,
                label=model,
            )
        axes.set_yscale("log")
        axes.set_xlabel("letters n")
        axes.set_ylabel("error")
        axes.legend()
    return {"slope": Drawn(figure, "Error <b>against</b> the number of letters & no more.")}


def slope_claims(results: Results) -> list[Claim]:
    def claim(text: str, holds, *, ours: bool = False) -> Claim:
        return Claim(
            text,
            "Fig. 1 a",
            "ratio 0.2 at n = 1, 0.2 at n = 4",
            "below 1 at every n",
            holds,
            results.seeds,
            ours=ours,
            remark="" if holds == "yes" else "Tried: more letters",
        )

    return [
        claim(
            "Our error is below the rival's at every number of letters, <i>even</i> at one.", "yes"
        ),
        claim("The lead grows as letters become few.", "partly"),
        claim("The error vanishes.", "no"),
        claim("Other seeds say the same.", "undecided", ours=True),
    ]


def odd_cells(size: Size) -> list[Cell]:
    return [Cell.of("odd", "ours", seed=seed) for seed in range(size.seeds or 3)]


def odd(cell: Cell) -> Result:
    """Fail for the second seed."""
    if cell.seed == 1:
        raise ValueError("no result for <seed> 1")
    return {"error": float(cell.seed)}


def draw_odd(results: Results) -> Mapping[str, Drawn]:
    with drawing(4.0, 2.0) as figure:
        figure.subplots().plot(results.values("error"), "o")
    return {"odd": Drawn(figure, "One mark a seed.")}


SLOPE = Experiment(
    name="slope",
    title="Few letters & many",
    where="Fig. 1 a and b",
    cells=slope_cells,
    run=slope,
    seconds=lambda cell: 60.0 * cell["n"],
    draw=draw_slope,
    claims=slope_claims,
)
ODD = Experiment(
    name="odd",
    title="A cell that fails",
    where="Fig. 2",
    cells=odd_cells,
    run=odd,
    seconds=lambda cell: 1.0,
    draw=draw_odd,
    claims=lambda results: [],
)
EXPERIMENTS = {"slope": SLOPE, "odd": ODD}


def run_cell(cell: Cell) -> Result:
    return EXPERIMENTS[cell.experiment].run(cell)
