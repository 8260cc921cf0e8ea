"""The command `delan demo`."""

from pathlib import Path
from typing import Annotated

import typer

from .app import SeedOption, app, command, require_writable


@app.command()
@command
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the page.")] = Path("demo"),
    seed: SeedOption = 0,
) -> None:
    """Let a two-link arm write 20 letters; train two networks on 17 of them and test on 3."""
    import jax

    from ..paper.demo import DemoSettings, run_demo
    from ..report.demo_page import write_demo_page
    from .terminal import show_scores, watching

    page = out / "report.html"
    require_writable(page, make_folder=True)
    with watching() as begun:
        watchers = [begun("DeLaN"), begun("feed-forward")]
        result = run_demo(DemoSettings(), key=jax.random.key(seed), progress=watchers)
    write_demo_page(result, page)
    scores = {name: fitted.scores for name, fitted in result.models.items()}
    show_scores(scores, "3 test letters")
    typer.echo(f"The page with every torque and its components: {page}")
