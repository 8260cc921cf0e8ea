"""All experiments by name, in the order of the page."""

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

_MODULES = (
    torque_components,
    offline_letters,
    online_letters,
    online_cosines,
    offline_cosines,
    noise,
    published_data,
    tuning,
)
EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES
}


def run_cell(cell: Cell) -> Result:
    """Compute a cell of any experiment; workers call it, on this machine or another."""
    return EXPERIMENTS[cell.experiment].run(cell)
