"""All experiments by name; compute their cells on the grid, then draw figures and judge claims."""

import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import joblib

from ..errors import SettingsError
from . import (
    cause_claims,
    error_growth,
    learning_budget,
    noise,
    offline_cosines,
    offline_letters,
    online_cosines,
    online_letters,
    published_data,
    torque_components,
    tuning,
)
from .backends import Backend
from .cells import Cell, Drawn, Experiment, Result, Results, Size, Store, Stored
from .claims import Claim
from .grid import GridProgress, Outcome, run_grid

_MODULES = (
    torque_components,
    offline_letters,
    online_letters,
    online_cosines,
    offline_cosines,
    noise,
    published_data,
    tuning,
    learning_budget,
    error_growth,
    cause_claims,
)
EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES
}


def run_cell(cell: Cell) -> Result:
    """Compute a cell of any experiment; workers call it, on this machine or another."""
    return EXPERIMENTS[cell.experiment].run(cell)


@dataclass(frozen=True)
class ReproduceSettings:
    """What to reproduce, and where.

    Attributes:
        only: names of experiments; empty for all.
        out: folder of the page; finished cells are stored in its folder `cells`.
        redraw: compute nothing, and take stored cells whatever code computed them.
    """

    size: Size = field(default_factory=Size)
    only: tuple[str, ...] = ()
    out: Path = Path("results")
    backend: Backend = field(default_factory=Backend)
    redraw: bool = False

    @property
    def cells_folder(self) -> Path:
        return self.out / "cells"

    @property
    def workers(self) -> int | None:
        """Number of cells computed at a time; None if only the cluster knows."""
        if self.backend.workers is None and self.backend.address is None:
            return joblib.cpu_count()
        return self.backend.workers


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """Outcomes, figures and claims of one experiment.

    Attributes:
        outcomes: of the cells that were computed or stored.
        missing: number of cells without an outcome.
        problems: sentences that say why figures or claims are missing.
        stored: the cells that did not fail, with the versions that computed them.
        code: version of the code that would compute the cells now.
    """

    experiment: Experiment
    outcomes: tuple[Outcome, ...]
    missing: int
    figures: Mapping[str, Drawn]
    claims: tuple[Claim, ...]
    problems: tuple[str, ...]
    stored: tuple[Stored, ...]
    code: str

    @property
    def codes(self) -> tuple[str, ...]:
        """Versions of the code that computed the cells."""
        return _codes(self.stored)

    @property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """Versions of the libraries that the cells were computed with."""
        return _versions(self.stored)

    @property
    def results(self) -> Results:
        return _results(self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """Results of the chosen experiments.

    Attributes:
        known: number of experiments that exist.
        seconds: time from the start to the last figure.
        codes: versions of the code that computed the cells.
        versions: of the libraries that the cells were computed with.
    """

    settings: ReproduceSettings
    experiments: tuple[ExperimentResult, ...]
    known: int
    seconds: float
    codes: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(outcome for result in self.experiments for outcome in result.outcomes)

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(claim for result in self.experiments for claim in result.claims)

    @property
    def of_the_paper(self) -> tuple[Claim, ...]:
        """The claims that the paper makes."""
        return tuple(claim for claim in self.claims if not claim.ours)

    @property
    def of_ours(self) -> tuple[Claim, ...]:
        """The claims that only this package makes."""
        return tuple(claim for claim in self.claims if claim.ours)

    @property
    def whole(self) -> bool:
        """Whether nothing failed: no cell, no figure, no claim."""
        return not any(result.failed or result.problems for result in self.experiments)


class CostEstimate(NamedTuple):
    """Estimated cost of an experiment.

    Attributes:
        cells, stored: numbers of cells, and of those that are stored already.
        core_seconds: time on one core for the cells that are not stored.
        minutes: time with all workers; None if only the cluster knows how many there are.
    """

    experiment: str
    cells: int
    stored: int
    core_seconds: float
    minutes: float | None


def estimate_costs(
    settings: ReproduceSettings, *, experiments: Mapping[str, Experiment], store: Store
) -> list[CostEstimate]:
    """Return the cost of each chosen experiment."""
    estimates = []
    for experiment in choose(settings.only, experiments):
        cells = experiment.cells(settings.size)
        seconds = [experiment.seconds(cell) for cell in cells if store.get(cell) is None]
        total = math.fsum(seconds)
        minutes = None
        if settings.workers is not None:
            # A cell is not divided: the longest one bounds the time from below.
            minutes = max([total / settings.workers, *seconds]) / 60
        stored = len(cells) - len(seconds)
        estimates.append(CostEstimate(experiment.name, len(cells), stored, total, minutes))
    return estimates


def choose(only: Sequence[str], experiments: Mapping[str, Experiment]) -> list[Experiment]:
    """Return the named experiments in the order of the catalogue; all if no name is given."""
    unknown = [repr(name) for name in only if name not in experiments]
    if unknown:
        raise SettingsError(
            f"unknown experiment {', '.join(unknown)}; choose from {', '.join(experiments)}"
        )
    return [experiment for name, experiment in experiments.items() if not only or name in only]


def reproduce(
    settings: ReproduceSettings,
    *,
    experiments: Mapping[str, Experiment],
    work: Callable[[Cell], Result],
    progress: Callable[[GridProgress], None] | None = None,
) -> Reproduction:
    """Compute the cells that are not stored yet, then draw and judge each experiment.

    Args:
        experiments: all experiments by name.
        work: computes a cell of any of them, in a worker.
        progress: called after each cell.
    """
    began = time.monotonic()
    store = Store(settings.cells_folder)
    chosen = choose(settings.only, experiments)
    cells = {experiment.name: experiment.cells(settings.size) for experiment in chosen}
    all_cells = [cell for name in cells for cell in cells[name]]
    if settings.redraw:
        outcomes = _stored_outcomes(all_cells, store)
    else:
        outcomes = run_grid(
            all_cells,
            work,
            store,
            backend=settings.backend,
            seconds=lambda cell: experiments[cell.experiment].seconds(cell),
            progress=progress,
        )
    by_key = {outcome.cell.key: outcome for outcome in outcomes}
    entries = {entry.cell.key: entry for entry in _stored(all_cells, store)}
    results = []
    for experiment in chosen:
        code = store.code_of(experiment.name)
        results.append(_judged(experiment, cells[experiment.name], by_key, entries, code))
    stored = [entry for result in results for entry in result.stored]
    return Reproduction(
        settings=settings,
        experiments=tuple(results),
        known=len(experiments),
        seconds=time.monotonic() - began,
        codes=_codes(stored),
        versions=_versions(stored),
    )


def _stored(cells: Iterable[Cell], store: Store) -> list[Stored]:
    """Return the stored entries of the cells, whatever code computed them."""
    entries = []
    for cell in cells:
        entry = store.get(cell, any_code=True)
        if entry is not None:
            entries.append(entry)
    return entries


def _stored_outcomes(cells: Iterable[Cell], store: Store) -> list[Outcome]:
    entries = _stored(cells, store)
    if not entries:
        raise SettingsError(
            f"nothing is stored in {store.folder} for this command; run it once without --redraw"
        )
    return [Outcome(entry.cell, entry.result, None, entry.seconds, True) for entry in entries]


def _codes(entries: Iterable[Stored]) -> tuple[str, ...]:
    return tuple(sorted({entry.code for entry in entries}))


def _versions(entries: Iterable[Stored]) -> dict[str, tuple[str, ...]]:
    """Return all versions of each library that cells were computed with."""
    versions: dict[str, set[str]] = {}
    for entry in entries:
        for library, version in entry.versions.items():
            versions.setdefault(library, set()).add(version)
    return {library: tuple(sorted(versions[library])) for library in versions}


def _results(outcomes: Iterable[Outcome]) -> Results:
    rows = []
    for outcome in outcomes:
        if outcome.result is not None:
            rows.append((outcome.cell, outcome.result))
    return Results(rows)


def _judged(
    experiment: Experiment,
    cells: Sequence[Cell],
    outcomes_by_key: Mapping[str, Outcome],
    entries_by_key: Mapping[str, Stored],
    code: str,
) -> ExperimentResult:
    """Draw and judge an experiment; an exception there becomes one of its problems."""
    outcomes = tuple(outcomes_by_key[cell.key] for cell in cells if cell.key in outcomes_by_key)
    stored = []
    for outcome in outcomes:
        if outcome.error is None and outcome.cell.key in entries_by_key:
            stored.append(entries_by_key[outcome.cell.key])
    results = _results(outcomes)
    problems = []
    figures: Mapping[str, Drawn] = {}
    claims: Sequence[Claim] = ()
    if len(results):
        try:
            figures = dict(experiment.draw(results))
            for drawn in figures.values():
                # Some mistakes, such as wrong formulas, show only when text is laid out.
                drawn.figure.draw_without_rendering()
        except Exception as error:
            figures = {}
            problems.append(f"The figures could not be drawn: {_on_one_line(error)}.")
        try:
            claims = experiment.judged(results)
        except Exception as error:
            problems.append(f"The claims could not be judged: {_on_one_line(error)}.")
    missing = len(cells) - len(outcomes)
    return ExperimentResult(
        experiment=experiment,
        outcomes=outcomes,
        missing=missing,
        figures=figures,
        claims=tuple(claims),
        problems=tuple(problems),
        stored=tuple(stored),
        code=code,
    )


def _on_one_line(error: Exception) -> str:
    """Return an error and its place in the code on one line."""
    *_, last = traceback.extract_tb(error.__traceback__)
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words} ({Path(last.filename).name}, line {last.lineno})"
