"""Scores as tables on the terminal."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from ..learning.evaluate import VALID_ERROR, Scores


def show_scores(models: Mapping[str, Scores], scored_on: str) -> None:
    """One row a model and quantity: summed MSE, mean nMSE, and the nMSE of each joint."""
    dof = len(next(iter(models.values())).torque.mse)
    table = Table(title=f"Errors on {scored_on}", title_justify="left")
    for heading in ("model", "of", "Σ MSE", "mean nMSE", *(f"joint {i}" for i in range(dof))):
        table.add_column(heading, justify="left" if heading in ("model", "of") else "right", no_wrap=True)
    for name, scores in models.items():
        rows = {"torque": scores.torque, **scores.components}
        if scores.acceleration is not None:
            rows["acceleration"] = scores.acceleration
        for quantity, errors in rows.items():
            numbers = (errors.mse_sum, errors.nmse_mean, *errors.nmse)
            table.add_row(name if quantity == "torque" else "", quantity, *(f"{number:.2e}" for number in numbers))
        if scores.rollouts is not None:
            stays = f"stays within {VALID_ERROR} rad (or m) for {scores.rollouts.valid_share:.0%} of the time"
            share = f"motion predicted from torques alone {stays}"
            table.caption = share if table.caption is None else f"{table.caption}; {name}: {share}"
    Console().print(table)
