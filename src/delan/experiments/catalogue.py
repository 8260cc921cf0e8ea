"""All experiments, by name, in the order in which the page shows them."""

from . import (
    noise,
    offline_cosines,
    offline_letters,
    online_cosines,
    online_letters,
    published_data,
    torque_components,
    tuning,
)
from .cells import Cell, Experiment, Result

EXPERIMENTS: dict[str, Experiment] = {
    one.EXPERIMENT.name: one.EXPERIMENT
    for one in (
        torque_components,
        offline_letters,
        online_letters,
        online_cosines,
        offline_cosines,
        noise,
        published_data,
        tuning,
    )
}


def run_cell(cell: Cell) -> Result:
    """Compute a cell, whatever its experiment: what workers call, here or on another machine."""
    return EXPERIMENTS[cell.experiment].run(cell)
