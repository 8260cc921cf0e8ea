"""All experiments at once: their cells through the grid, then figures and claims; one that fails loses no other."""

import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import joblib

from ..errors import SettingsError
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .grid import GridProgress, Outcome, run_grid
from .store import Store, Stored
from .workers import Backend


@dataclass(frozen=True)
class ReproduceSettings:
    """What to reproduce, and where.

    Attributes:
        only: names of experiments; none for all.
        out: folder of the page; finished cells are kept in its folder `cells`.
        redraw: compute nothing, and take what is stored, whatever code computed it.
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
        """How many cells at a time; None where only the cluster knows."""
        if self.backend.workers is None and self.backend.address is None:
            return joblib.cpu_count()
        return self.backend.workers


@dataclass(frozen=True, eq=False)
class Part:
    """What came of one experiment.

    Attributes:
        outcomes: of the cells that were computed or stored; missing: how many were not.
        problems: in sentences, why figures or claims are not there.
    """

    experiment: Experiment
    outcomes: tuple[Outcome, ...]
    missing: int
    figures: Mapping[str, Drawn]
    claims: tuple[Claim, ...]
    problems: tuple[str, ...]

    @property
    def results(self) -> Results:
        return _results(self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(one for one in self.outcomes if one.error is not None)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What came of all experiments that were asked for.

    Attributes:
        known: how many experiments there are; seconds: how long all took, from start to last figure.
        code: what drew the figures; codes: what computed the cells; versions: of the libraries that it stood on.
    """

    settings: ReproduceSettings
    parts: tuple[Part, ...]
    known: int
    seconds: float
    code: str
    codes: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(one for part in self.parts for one in part.outcomes)

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(claim for part in self.parts for claim in part.claims)

    @property
    def whole(self) -> bool:
        """Whether nothing failed: no cell, no figure, no claim."""
        return not any(part.failed or part.problems for part in self.parts)


class Estimate(NamedTuple):
    """What an experiment will take: cells, those stored, seconds of one core for the others, and minutes with all
    workers, None where only the cluster knows how many there are."""

    experiment: str
    cells: int
    stored: int
    core_seconds: float
    minutes: float | None


def estimate(settings: ReproduceSettings, *, experiments: Mapping[str, Experiment], store: Store) -> list[Estimate]:
    """A row for each experiment that is asked for."""
    rows = []
    for experiment in choose(settings.only, experiments):
        cells = experiment.cells(settings.size)
        waiting = [cell for cell in cells if store.get(cell) is None]
        seconds = [experiment.seconds(cell) for cell in waiting]
        minutes = None if settings.workers is None else max([math.fsum(seconds) / settings.workers, *seconds]) / 60
        rows.append(Estimate(experiment.name, len(cells), len(cells) - len(waiting), math.fsum(seconds), minutes))
    return rows


def choose(only: Sequence[str], experiments: Mapping[str, Experiment]) -> list[Experiment]:
    """The experiments of these names, in the order of the catalogue; all for no name."""
    unknown = [name for name in only if name not in experiments]
    if unknown:
        told = ", ".join(map(repr, unknown))
        raise SettingsError(f"there is no experiment {told}; there are {', '.join(experiments)}")
    return [experiment for name, experiment in experiments.items() if not only or name in only]


def reproduce(
    settings: ReproduceSettings,
    *,
    experiments: Mapping[str, Experiment],
    work: Callable[[Cell], Result],
    progress: Callable[[GridProgress], None] | None = None,
) -> Reproduction:
    """Compute what is not stored yet, then draw and judge each experiment.

    Args:
        experiments: all that there are, by name.
        work: computes a cell of any of them, in a worker.
        progress: told after each cell.
    """
    began, store = time.monotonic(), Store(settings.cells_folder)
    asked = {one.name: one.cells(settings.size) for one in choose(settings.only, experiments)}
    cells = [cell for some in asked.values() for cell in some]
    if settings.redraw:
        outcomes = _stored(cells, store)
    else:
        outcomes = run_grid(
            cells,
            work,
            store,
            backend=settings.backend,
            seconds=lambda cell: experiments[cell.experiment].seconds(cell),
            progress=progress,
        )
    found = {one.cell.key: one for one in outcomes}
    parts = tuple(_part(experiments[name], some, found) for name, some in asked.items())
    good = [one.cell for one in outcomes if one.error is None]
    kept = [one for cell in good if (one := store.get(cell, any_code=True)) is not None]
    return Reproduction(
        settings=settings,
        parts=parts,
        known=len(experiments),
        seconds=time.monotonic() - began,
        code=store.code,
        codes=tuple(sorted({one.code for one in kept})),
        versions=_versions(kept),
    )


def _stored(cells: Iterable[Cell], store: Store) -> list[Outcome]:
    """What earlier runs left of the cells, whatever code they ran."""
    found = [one for cell in cells if (one := store.get(cell, any_code=True)) is not None]
    if not found:
        problem = f"nothing is stored in {store.folder} of what is asked for; run it once without --redraw"
        raise SettingsError(problem)
    return [Outcome(one.cell, one.result, None, one.seconds, True) for one in found]


def _versions(kept: Iterable[Stored]) -> dict[str, tuple[str, ...]]:
    """All versions of each library that cells were computed with."""
    found: dict[str, set[str]] = {}
    for one in kept:
        for library, version in one.versions.items():
            found.setdefault(library, set()).add(version)
    return {library: tuple(sorted(some)) for library, some in found.items()}


def _results(outcomes: Iterable[Outcome]) -> Results:
    return Results([(one.cell, one.result) for one in outcomes if one.result is not None])


def _part(experiment: Experiment, cells: Sequence[Cell], found: Mapping[str, Outcome]) -> Part:
    """Figures and claims of an experiment; what goes wrong there is told and stays there."""
    outcomes = tuple(found[cell.key] for cell in cells if cell.key in found)
    results, problems = _results(outcomes), []
    figures: Mapping[str, Drawn] = {}
    claims: Sequence[Claim] = ()
    if len(results):
        try:
            figures = dict(experiment.draw(results))
            for drawn in figures.values():
                drawn.figure.draw_without_rendering()  # some mistakes show only when text is laid out
        except Exception as error:
            figures = {}
            problems.append(f"The figures could not be drawn: {_told(error)}.")
        try:
            claims = experiment.claims(results)
        except Exception as error:
            problems.append(f"The claims could not be judged: {_told(error)}.")
    return Part(experiment, outcomes, len(cells) - len(outcomes), figures, tuple(claims), tuple(problems))


def _told(error: Exception) -> str:
    """An error and the place that it comes from, on one line."""
    *_, last = traceback.extract_tb(error.__traceback__)
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words} ({Path(last.filename).name}, line {last.lineno})"
