"""`delan reproduce`: cells, figures and claims; the page and its files; and the command."""

import io
import json
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from delan.cli import reproduce_command
from delan.cli.main import app
from delan.errors import SettingsError
from delan.figures import drawing
from delan.paper import reproduction
from delan.paper.backends import Backend
from delan.paper.cells import Cell, Drawn, Experiment, Results, Size, Store, Stored
from delan.paper.claims import bootstrap_interval
from delan.paper.code_version import code_version
from delan.paper.comparison import pooled, seed_statistics
from delan.paper.grid import GridProgress, Outcome
from delan.paper.reproduction import (
    CostEstimate,
    ReproduceSettings,
    Reproduction,
    estimate_costs,
    reproduce,
)
from delan.report import reproduction_page as report
from delan.report.reproduction_page import write_reproduction
from tests.support import toy_experiments as toy
from tests.support.strokes import write_strokes

QUICK = Size("quick")


def stored(
    folder: Path, *experiments: Experiment, code: str | None = None, size: Size = QUICK
) -> ReproduceSettings:
    """Return settings of a folder in which all cells that can be computed are stored."""
    store = Store(folder / "cells") if code is None else Store(folder / "cells", code)
    for experiment in experiments:
        for cell in experiment.cells(size):
            if (experiment.name, cell.seed) != ("odd", 1):
                store.put(
                    Stored(
                        cell,
                        json.loads(json.dumps(toy.run_cell(cell))),
                        store.code_of(experiment.name),
                        2.0,
                        {"jax": "0.10"},
                    )
                )
    return ReproduceSettings(size=size, out=folder)


def reproduced(settings: ReproduceSettings, **changed: Experiment) -> Reproduction:
    return reproduce(settings, experiments={**toy.EXPERIMENTS, **changed}, work=toy.run_cell)


@pytest.fixture(scope="module")
def computed(tmp_path_factory) -> Reproduction:
    """Both experiments, computed by a worker; a cell of the second fails."""
    settings = ReproduceSettings(
        size=QUICK, out=tmp_path_factory.mktemp("results"), backend=Backend(workers=1)
    )
    reproduction = reproduced(settings)
    write_reproduction(reproduction, command="delan reproduce --quick <again>")
    return reproduction


def page(reproduction: Reproduction) -> str:
    return (reproduction.settings.out / "index.html").read_text()


def test_a_failed_cell_is_reported_and_loses_no_other(computed):
    slope, odd = computed.experiments
    assert len(slope.outcomes) == 18
    assert not slope.failed
    assert [item.cell.seed for item in odd.failed] == [1]
    assert len(odd.results) == 2
    assert list(odd.figures) == ["odd"]
    assert not computed.whole
    assert "1 of 3 cells failed" in page(computed)
    assert "no result for &lt;seed&gt; 1" in page(computed)


def test_what_is_stored_is_not_computed_again(computed):
    again = reproduced(replace(computed.settings, only=("slope",)))
    assert all(item.stored for item in again.outcomes)
    assert len(again.outcomes) == 18
    assert again.whole


def test_the_page_needs_no_other_file(computed):
    text = page(computed)
    assert not re.search(r'(src|href)="(?!data:image/svg\+xml;base64,|#)', text)
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    for word in (
        "✓ holds",
        "◐ partly",
        "✕ does not hold",
        "? not decided",
        "Fig. 1 a and b",
        "delan reproduce --quick &lt;again&gt;",
    ):
        assert word in text
    paper = "Of 3 claims of the paper, 1 holds, 1 holds partly, 1 does not and 0 are not decided."
    assert paper in text
    assert "Of 1 claim of the package," in text
    assert text.index("Claims of the paper") < text.index("Claims of this package")
    assert "Tried: more letters." in text
    assert "own alphabet." in text
    assert "Few letters &amp; many" in text
    assert "Error &lt;b&gt;against&lt;/b&gt;" in text
    assert "<i>" not in text
    assert code_version("slope") in text
    assert all(f"{name} {some[0]}" in text for name, some in computed.versions.items())
    assert {"delan", "jax", "numpy", "python"} <= computed.versions.keys()


def rows_of(text: str, start: str) -> list[list[str]]:
    rows = re.findall(r"<tr><td class=\"word\">(.*?)</td></tr>", text)
    return [
        re.split(r"</td><td(?: class=\"word\")?>", row) for row in rows if row.startswith(start)
    ]


def test_the_table_has_the_statistics_over_seeds(computed):
    ours = np.exp(-1 + 0.1 * np.arange(3))
    low, median, high = np.percentile(ours, (5, 50, 95))
    rows = rows_of(page(computed), "ours</td><td>1<")
    assert rows[0][2:7] == ["error", "3", f"{median:.3g}", f"{low:.3g}", f"{high:.3g}"]
    assert rows[0][7] == f"{ours.mean():.3g}"
    assert [row[2] for row in rows] == ["error", "parts gravity"]
    diverged = rows_of(page(computed), "rival</td><td>4<")
    assert diverged[0][3] == "2 of 3"
    everything = rows_of(page(computed), "rival</td><td>all<")
    assert everything[0][2:4] == ["error", "8 of 9"]


def test_claims_are_a_list_for_scripts(computed):
    claims = json.loads((computed.settings.out / "claims.json").read_text())
    assert [claim["holds"] for claim in claims] == ["yes", "partly", "no", "undecided"]
    assert [claim["ours"] for claim in claims] == [False, False, False, True]
    fields = {"claim", "where", "measured", "asked", "holds", "seeds"}
    assert all(claim.keys() >= fields | {"intervals", "remark"} for claim in claims)
    assert claims[0]["seeds"] == 3
    assert {claim["experiment"] for claim in claims} == {"slope"}


def test_the_provenance_of_each_experiment_is_beside_its_claims(computed):
    text = (computed.settings.out / "run.json").read_text()
    slope = json.loads(text)["slope"]
    assert slope["codes"] == [code_version("slope")]
    assert (slope["cells"], slope["seeds"], slope["missing"], slope["failed"]) == (18, 3, 0, 0)
    assert slope["versions"]["numpy"] == [np.__version__]
    assert slope["figures"].keys() == {"slope"}
    assert str(computed.settings.out) not in text


def test_every_figure_is_a_file_twice_beside_its_numbers(computed):
    folder = computed.settings.out / "figures"
    assert sorted(path.name for path in folder.iterdir()) == [
        "odd.csv",
        "odd.png",
        "odd.svg",
        "slope.csv",
        "slope.png",
        "slope.svg",
    ]
    assert (folder / "slope.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "slope.svg").read_text()


def broken(results: Results) -> Any:
    raise RuntimeError("no ink <left>")


def unreadable(results: Results) -> dict[str, Drawn]:
    with drawing(3.0, 2.0) as figure:
        figure.subplots().set_title(r"$\frac{$")
    return {"slope": Drawn(figure, "")}


@pytest.mark.parametrize(
    ("experiment", "said"),
    [
        (
            replace(toy.SLOPE, draw=broken),
            "The figures could not be drawn: RuntimeError: no ink &lt;left&gt;",
        ),
        (replace(toy.SLOPE, draw=unreadable), "The figures could not be drawn: ValueError"),
        (
            replace(toy.SLOPE, claims=broken),
            "The claims could not be judged: RuntimeError: no ink &lt;left&gt;",
        ),
    ],
    ids=["figure", "text", "claims"],
)
def test_what_cannot_be_drawn_or_judged_is_reported_and_loses_no_other(tmp_path, experiment, said):
    settings = replace(stored(tmp_path, toy.SLOPE, toy.ODD), redraw=True)
    reproduction = reproduced(settings, slope=experiment)
    write_reproduction(reproduction, command="delan")
    assert not reproduction.whole
    assert said in page(reproduction)
    assert "One mark a seed." in page(reproduction)
    assert (tmp_path / "figures" / "odd.svg").exists()


def test_what_breaks_while_writing_leaves_the_old_page_whole(tmp_path, monkeypatch):
    reproduction = reproduced(
        stored(tmp_path, toy.SLOPE), odd=replace(toy.ODD, cells=lambda size: [])
    )
    written = write_reproduction(reproduction, command="delan first")
    before = {path: path.read_bytes() for path in (written.page, written.claims)}
    for broken_part in ("as_image", "page_text"):
        monkeypatch.setattr(report, broken_part, broken)
        with pytest.raises((RuntimeError, TypeError)):
            write_reproduction(reproduction, command="delan second")
        monkeypatch.undo()
    assert {path: path.read_bytes() for path in before} == before
    assert not list(tmp_path.rglob("*.part"))


def test_redraw_takes_cells_of_any_code_and_says_so(tmp_path):
    settings = stored(tmp_path, toy.SLOPE, toy.ODD, code="older-code")
    redrawn = reproduced(replace(settings, redraw=True))
    write_reproduction(redrawn, command="delan")
    assert redrawn.codes == ("older-code",)
    assert redrawn.whole
    assert redrawn.experiments[1].missing == 1
    assert "computed by code older-code" in page(redrawn)
    assert "1 of 3 cells missing" in page(redrawn)
    assert redrawn.versions == {"jax": ("0.10",)}


def test_redraw_of_nothing_is_refused_and_writes_nothing(tmp_path):
    with pytest.raises(SettingsError, match="run it once without --redraw"):
        reproduced(ReproduceSettings(out=tmp_path, redraw=True))
    assert not (tmp_path / "index.html").exists()


def test_an_experiment_without_cells_is_on_the_page_as_not_computed(tmp_path):
    reproduction = reproduced(
        stored(tmp_path, toy.SLOPE), odd=replace(toy.ODD, cells=lambda size: [], draw=broken)
    )
    write_reproduction(reproduction, command="delan")
    assert reproduction.whole
    assert "Fig. 2 · not computed" in page(reproduction)


def test_a_page_of_some_experiments_says_that_there_are_more(tmp_path):
    reproduction = reproduced(replace(stored(tmp_path, toy.SLOPE), only=("slope",)))
    write_reproduction(reproduction, command="delan")
    assert "This page shows 1 of 2 experiments" in page(reproduction)
    assert "A cell that fails" not in page(reproduction)


def test_the_estimate_counts_only_what_is_not_stored(tmp_path):
    settings = replace(stored(tmp_path, toy.ODD), backend=Backend(workers=4))
    slope, odd = estimate_costs(
        settings, experiments=toy.EXPERIMENTS, store=Store(settings.cells_folder)
    )
    assert slope == CostEstimate("slope", 18, 0, 2520.0, 2520 / 4 / 60)
    assert odd == CostEstimate("odd", 3, 2, 1.0, 1 / 60), (
        "one cell does not end sooner with four workers"
    )
    cluster = replace(settings, backend=Backend("dask", "tcp://there:8786"))
    rows = estimate_costs(cluster, experiments=toy.EXPERIMENTS, store=Store(settings.cells_folder))
    assert [row.minutes for row in rows] == [None, None]


def test_pictures_are_small_and_heavy_figures_stand_as_pictures_on_the_page(tmp_path, monkeypatch):
    def heavy(results: Results) -> dict[str, Drawn]:
        with drawing(9.0, 6.0) as figure:
            figure.subplots().imshow(np.random.default_rng(0).random((400, 600)))
        return {"slope": Drawn(figure, "Noise.")}

    monkeypatch.setattr(report, "SVG_BYTES", 1000)
    reproduction = reproduced(
        replace(stored(tmp_path, toy.SLOPE), only=("slope",)), slope=replace(toy.SLOPE, draw=heavy)
    )
    write_reproduction(reproduction, command="delan")
    assert (tmp_path / "figures" / "slope.png").stat().st_size <= report.PNG_BYTES
    assert 'src="data:image/png;base64,' in page(reproduction)


# What the table says of seeds


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(1)
    intervals = [bootstrap_interval([random.normal(size=20)], seed=i) for i in range(200)]
    hits = [item is not None and item[0] < 0 < item[1] for item in intervals]
    assert 0.87 < np.mean(hits) < 1


def test_seeds_without_a_finite_number_are_counted_not_averaged():
    statistics = seed_statistics(np.array([1.0, math.inf, 3.0, math.nan]))
    assert statistics is not None
    assert (statistics.seeds, statistics.of, statistics.median) == (2, 4, 2.0)
    assert seed_statistics(np.array([math.nan])) is None
    assert pooled([]) is None
    single = seed_statistics(np.array([2.0]))
    assert single is not None
    assert (single.median, single.low, single.high, single.iqm, single.interval) == (
        2.0,
        2.0,
        2.0,
        2.0,
        None,
    )


# The command


@pytest.fixture
def command(tmp_path, monkeypatch) -> Callable[..., Any]:
    """The command in a folder of its own, with the toy experiments for a reproduction."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "xla"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    monkeypatch.setattr(reproduction, "EXPERIMENTS", dict(toy.EXPERIMENTS))
    monkeypatch.setattr(reproduction, "run_cell", toy.run_cell)
    return lambda *words: CliRunner().invoke(app, ["reproduce", *words], catch_exceptions=False)


def test_the_command_reports_failed_cells(command):
    ran = command("--quick", "--workers", "1", "odd", "--json")
    assert ran.exit_code == 1, "a cell failed"
    summary = json.loads(ran.stdout)
    assert summary["cells"] == {"done": 2, "stored": 0, "failed": 1, "missing": 0}
    assert summary["failed"][0]["seed"] == 1
    assert "no result for <seed> 1" in summary["failed"][0]["error"]
    assert Path(summary["page"]).read_text().count("<h2 id=") == 1
    assert summary["command"] == "delan reproduce odd --quick --workers 1"
    assert "1 at a time" in ran.stderr
    assert "0 of 3 cells" in ran.stderr
    assert "failed: odd, ours, seed 1: ValueError: no result for <seed> 1" in ran.stderr


def test_the_command_prints_each_verdict(command, tmp_path):
    stored(tmp_path / "results", toy.SLOPE)
    ran = command("--quick", "--only", "slope", "--watch")
    assert ran.exit_code == 0, ran.stderr
    assert "◐ partly: The lead grows as letters become few. Measured: ratio 0.2" in ran.stdout
    assert "The page with every figure: results/index.html" in ran.stdout


def test_a_figure_that_cannot_be_drawn_shows_in_the_exit_code(command, tmp_path, monkeypatch):
    stored(tmp_path / "results", toy.SLOPE)
    monkeypatch.setitem(reproduction.EXPERIMENTS, "slope", replace(toy.SLOPE, draw=broken))
    ran = command("slope", "--quick", "--redraw")
    assert ran.exit_code == 1
    assert "slope: The figures could not be drawn: RuntimeError: no ink <left>" in ran.stderr
    assert "Estimated time" not in ran.stderr, (
        "nothing is computed, so there is nothing to estimate"
    )


def test_an_interrupt_keeps_finished_cells_and_says_how_to_continue(command, tmp_path, monkeypatch):
    def interrupted(results: Results) -> Any:
        raise KeyboardInterrupt

    stored(tmp_path / "results", toy.SLOPE)
    monkeypatch.setitem(reproduction.EXPERIMENTS, "slope", replace(toy.SLOPE, draw=interrupted))
    ran = command("slope", "--quick")
    assert ran.exit_code == 130
    assert (
        "18 of 18 cells are stored in results/cells; `delan reproduce slope --quick` continues"
        in ran.stderr
    )
    assert not (tmp_path / "results" / "index.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["slop"], "unknown experiment 'slop'; choose from slope, odd"),
        (["--only", "x", "--only", "slope"], "unknown experiment 'x'; choose from slope, odd"),
        (["--quick", "--paper"], "--quick and --paper are two sizes"),
        (["--address", "tcp://there:8786"], "choose the backend dask or ray"),
        (["--redraw"], "nothing is stored in results/cells"),
        (["--letters", "uci=nowhere.npz"], "nowhere.npz: no such file"),
        (["--letters", "mine"], "unknown letters 'mine'; give own, or uci=FILE"),
        (["-o", "there/results"], "cannot make the folder"),
        (
            ["--data", "nowhere"],
            "--data nowhere does not exist; give a folder with published_letters.npz",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(command, words, message):
    ran = command(*words)
    assert ran.exit_code == 1
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "settings",
    [
        ReproduceSettings(),
        ReproduceSettings(Size("paper", 7, "my data"), ("slope", "odd"), Path("else where")),
        ReproduceSettings(Size("quick", letters="uci=my strokes.npz", engine="pybullet")),
        ReproduceSettings(Size("quick", wall_clock=True)),
        ReproduceSettings(Size("quick"), backend=Backend("ray", "ray://head:10001", 8)),
    ],
)
def test_the_command_on_the_page_asks_for_the_same(command, monkeypatch, tmp_path, settings):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my data").mkdir()
    (tmp_path / "my data" / "published_letters.npz").touch()
    write_strokes(tmp_path / "my strokes.npz")
    asked = []
    monkeypatch.setattr(
        reproduce_command, "run_reproduction", lambda settings, **_: asked.append(settings) or 0
    )
    assert command(*shlex.split(reproduce_command.command_line(settings))[2:]).exit_code == 0
    assert asked == [settings]


def outcome(seed: int, error: str | None = None) -> Outcome:
    return Outcome(Cell.of("odd", "ours", seed=seed), None if error else {}, error, 3.0, False)


def test_lines_are_few_and_report_failures():
    lines: list[str] = []
    progress = reproduce_command.ProgressLines(lines.append)
    for done in range(101):
        last = (
            None
            if done == 0
            else outcome(done, "ValueError: no\n  at once" if done == 55 else None)
        )
        progress(GridProgress(done, 100, 0, int(done >= 55), float(done), 100.0 - done, last))
    assert len(lines) == 12
    assert lines[0] == "0 of 100 cells, about 2 min left"
    assert "failed: odd, ours, seed 55: ValueError: no" in lines
    assert lines[-1] == "100 of 100 cells, 1 failed"


def test_the_live_table_counts_each_experiment():
    table = reproduce_command.ProgressTable(
        [CostEstimate("slope", 18, 18, 0.0, 0.0), CostEstimate("odd", 3, 1, 2.0, 0.1)]
    )
    console = Console(width=100, record=True, file=io.StringIO())
    table(GridProgress(20, 21, 19, 1, 7.0, 90.0, outcome(1, "ValueError: no")))
    console.print(table)
    shown = console.export_text()
    assert re.search(r"slope .* 18/18", shown)
    assert re.search(r"odd .* 2/3 +1", shown)
    assert "20 of 21 cells after 7 s, 1 failed, about 90 s left" in shown
    assert "failed after 3 s: odd, ours, seed 1" in shown
