"""What an experiment is made of: independent cells, figures of their results, and claims."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

Setting = float | int | str
# The result of a cell: numbers, strings, lists and dicts of them, as JSON can hold them.
Result = dict[str, Any]
Holds = Literal["yes", "no", "partly"]
SizeName = Literal["quick", "usual", "paper"]


@dataclass(frozen=True)
class Cell:
    """One computation of an experiment: a model under a setting, with a seed."""

    experiment: str
    model: str
    setting: tuple[tuple[str, Setting], ...]
    seed: int

    @classmethod
    def of(cls, experiment: str, model: str, *, seed: int, **setting: Setting) -> "Cell":
        return cls(experiment, model, tuple(sorted(setting.items())), seed)

    def __getitem__(self, name: str) -> Any:
        """Return a setting by its name."""
        return dict(self.setting)[name]

    def __str__(self) -> str:
        settings = [f"{name} {value}" for name, value in self.setting]
        return ", ".join([self.experiment, self.model, *settings, f"seed {self.seed}"])

    def as_dict(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "model": self.model,
            "setting": dict(self.setting),
            "seed": self.seed,
        }

    @property
    def key(self) -> str:
        """A unique name of the cell, the same on every machine."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Size:
    """How much to compute: `quick` takes minutes, `usual` suffices for the claims, `paper` is all.

    Attributes:
        seeds: number of seeds for each setting; None for the experiment's default at this size.
        data: a file or folder that the user gave, for experiments on published logs.
    """

    name: SizeName = "usual"
    seeds: int | None = None
    data: str | None = None

    def pick(self, *, quick: Any, usual: Any, paper: Any) -> Any:
        """Return the argument that belongs to this size."""
        return {"quick": quick, "usual": usual, "paper": paper}[self.name]

    def seed_range(self, *, quick: int, usual: int, paper: int = 20) -> range:
        return range(self.seeds or self.pick(quick=quick, usual=usual, paper=paper))

    def extra_seeds(self, seeds: range, *, quick: int = 1) -> range:
        """Return fewer seeds, for models that no claim is about, unless the user gave a number."""
        if self.seeds:
            return seeds
        return seeds[: self.pick(quick=quick, usual=3, paper=len(seeds))]

    def data_file(self, name: str) -> Path | None:
        """Return the file of this name that the user gave, or its folder; None if missing."""
        if self.data is None:
            return None
        file = Path(self.data)
        if file.is_dir():
            file = file / name
        return file if file.name == name and file.exists() else None


class Results:
    """Results of many cells, selected by model and setting."""

    def __init__(self, rows: Sequence[tuple[Cell, Result]]):
        self.rows = tuple(sorted(rows, key=lambda row: row[0].seed))

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, model: str | None = None, **setting: Setting) -> "Results":
        """Return the results of a model, under a setting, or both."""
        rows = []
        for cell, result in self.rows:
            settings = dict(cell.setting)
            same_model = model is None or cell.model == model
            if same_model and all(settings.get(name) == setting[name] for name in setting):
                rows.append((cell, result))
        return Results(rows)

    def values(self, field: str) -> Float[np.ndarray, " seeds"]:
        """Return a number of each result, by seed."""
        return np.array([result[field] for _, result in self.rows], dtype=float)

    def settings(self, name: str) -> list[Any]:
        """Return all values of a setting, sorted."""
        settings = (dict(cell.setting) for cell, _ in self.rows)
        return sorted({values[name] for values in settings if name in values})

    @property
    def seeds(self) -> int:
        """Number of different seeds."""
        return len({cell.seed for cell, _ in self.rows})


class Drawn(NamedTuple):
    """A figure and its caption."""

    figure: Figure
    caption: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper in our words, what was measured, what was required, and the verdict."""

    claim: str
    where: str
    measured: str
    asked: str
    holds: Holds
    seeds: int

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def verdict(*tests: bool) -> Holds:
    """Return whether a claim holds that asks for all of the tests; it holds partly for some."""
    if all(tests):
        return "yes"
    return "partly" if any(tests) else "no"


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper.

    Attributes:
        name: the name on the command line.
        title: the heading on the page.
        where: its figures in the paper.
        cells: returns what to compute at a size.
        run: computes a cell.
        seconds: estimates the time of a cell on one core.
        draw: returns figures by file name (without suffix).
        claims: judges the claims. Like `draw`, it must work on any subset of the cells, because
            cells fail or are not asked for.
    """

    name: str
    title: str
    where: str
    cells: Callable[[Size], list[Cell]]
    run: Callable[[Cell], Result]
    seconds: Callable[[Cell], float]
    draw: Callable[[Results], Mapping[str, Drawn]]
    claims: Callable[[Results], list[Claim]]
