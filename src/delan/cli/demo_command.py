"""The command `delan demo`: the smallest experiment of the paper, and a page about it."""

from pathlib import Path
from typing import Annotated

import typer

from .app import SeedOption, app, command, require_writable, show_scores, watching


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

    page = out / "report.html"
    require_writable(page, make_folder=True)
    with watching() as begin:
        watchers = [begin("DeLaN"), begin("feed-forward")]
        result = run_demo(DemoSettings(), key=jax.random.key(seed), progress=watchers)
    write_demo_page(result, page)
    show_scores({name: model.scores for name, model in result.models.items()}, "3 test letters")
    typer.echo(f"The page with every torque and its components: {page}")
