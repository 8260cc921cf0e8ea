"""Scores as tables on the terminal, narrow enough for 80 columns whatever the number of joints."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from ..learning.evaluate import VALID_ERROR, Errors, Scores


def show_scores(models: Mapping[str, Scores], scored_on: str) -> None:
    """A block of rows a model, a column a quantity: summed MSE, mean nMSE, and the nMSE of each joint."""
    quantities = list(dict.fromkeys(name for scores in models.values() for name in _errors(scores)))
    table = Table(title=f"Errors on {scored_on}", title_justify="left")
    table.add_column("")
    for quantity in quantities:
        table.add_column(quantity, justify="right", no_wrap=True)
    for name, scores in models.items():
        found = _errors(scores)
        rows = {f"{name}: Σ MSE": [found[q].mse_sum if q in found else None for q in quantities]}
        rows["mean nMSE"] = [found[q].nmse_mean if q in found else None for q in quantities]
        for joint in range(len(scores.torque.nmse)):
            rows[f"nMSE, joint {joint}"] = [found[q].nmse[joint] if q in found else None for q in quantities]
        for label, numbers in rows.items():
            table.add_row(label, *("–" if number is None else f"{number:.2e}" for number in numbers))
        table.add_section()
    console = Console()
    console.print(table)
    for name, scores in models.items():
        if scores.rollouts is not None:
            share = f"{scores.rollouts.valid_share:.0%} of the time"
            console.print(f"{name}: motion predicted from torques alone is within {VALID_ERROR} rad (or m) for {share}")


def _errors(scores: Scores) -> dict[str, Errors]:
    errors = {"torque": scores.torque, **scores.components}
    return errors if scores.acceleration is None else {**errors, "acceleration": scores.acceleration}
