"""Results of an experiment as tidy CSV: one row for each number of each cell."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from .cells import Results

# Longer lists are curves for a picture, such as a written letter, not numbers to compare.
LONGEST_LIST = 50


def tidy_csv(results: Results) -> str:
    """Return results as CSV: experiment, model, seed, every setting, quantity and value.

    A number inside of a dict or a list has the path to it as its quantity, such as `errors.1.5`;
    lists of more than 50 entries are left out.
    """
    names = sorted({name for cell, _ in results.rows for name, _ in cell.setting})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["experiment", "model", "seed", *names, "quantity", "value"])
    for cell, result in results.rows:
        settings = dict(cell.setting)
        known = [settings.get(name, "") for name in names]
        for quantity, value in _flat(result, ""):
            writer.writerow([cell.experiment, cell.model, cell.seed, *known, quantity, value])
    return text.getvalue()


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each number and each text in a result with the path to it."""
    if isinstance(value, list):
        if len(value) > LONGEST_LIST:
            return
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield path, "" if value is None else value
        return
    for name, inner in value.items():
        yield from _flat(inner, f"{path}.{name}" if path else str(name))
