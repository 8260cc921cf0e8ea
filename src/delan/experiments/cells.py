"""What every experiment is made of: cells that can run anywhere and in any order, figures drawn of them, and claims."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

Setting = float | int | str
Result = dict[str, Any]
"""What a cell computed: numbers, strings, lists and dicts of them, as JSON can hold them."""
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
        """A setting by its name."""
        return dict(self.setting)[name]

    def __str__(self) -> str:
        return ", ".join([self.experiment, self.model, *(f"{name} {value}" for name, value in self.setting)]) + (
            f", seed {self.seed}"
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "model": self.model,
            "setting": dict(self.setting),
            "seed": self.seed,
        }

    @property
    def key(self) -> str:
        """A name that no other cell has, the same on every machine."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Size:
    """How much to compute: `quick` in minutes, `usual` with seeds enough for the claims, `paper` the whole grid.

    Attributes:
        seeds: how many for each setting; None for as many as the experiment takes at this size.
        data: a file that the user gave for `published-data`.
    """

    name: SizeName = "usual"
    seeds: int | None = None
    data: str | None = None

    def pick(self, *, quick: Any, usual: Any, paper: Any) -> Any:
        """What belongs to this size."""
        return {"quick": quick, "usual": usual, "paper": paper}[self.name]

    def seed_range(self, *, quick: int, usual: int, paper: int = 20) -> range:
        return range(self.seeds or self.pick(quick=quick, usual=usual, paper=paper))

    def extra_seeds(self, seeds: range, *, quick: int = 1) -> range:
        """The seeds of a model beside those that are claimed something of: unless asked for more, a few do."""
        return seeds if self.seeds else seeds[: self.pick(quick=quick, usual=3, paper=len(seeds))]


class Results:
    """The results of many cells, to be asked by model and setting."""

    def __init__(self, rows: Sequence[tuple[Cell, Result]]):
        self.rows = tuple(sorted(rows, key=lambda row: row[0].seed))

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, model: str | None = None, **setting: Setting) -> "Results":
        """Those of a model, or under a setting."""
        wanted = setting.items()
        return Results(
            [
                (cell, result)
                for cell, result in self.rows
                if (model is None or cell.model == model)
                and all(dict(cell.setting).get(name) == value for name, value in wanted)
            ]
        )

    def values(self, field: str) -> Float[np.ndarray, " seeds"]:
        """A number of each, by seed."""
        return np.array([result[field] for _, result in self.rows], dtype=float)

    def settings(self, name: str) -> list[Any]:
        """All values that a setting took, in order."""
        return sorted({dict(cell.setting)[name] for cell, _ in self.rows if name in dict(cell.setting)})

    @property
    def models(self) -> list[str]:
        return sorted({cell.model for cell, _ in self.rows})

    @property
    def seeds(self) -> int:
        """How many different seeds there are."""
        return len({cell.seed for cell, _ in self.rows})


class Drawn(NamedTuple):
    """A figure and the sentences below it."""

    figure: Figure
    caption: str


@dataclass(frozen=True)
class Claim:
    """What is claimed, in our words; where; what was measured and what was asked; whether it holds."""

    claim: str
    where: str
    measured: str
    asked: str
    holds: Holds
    seeds: int

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper.

    Attributes:
        name: as the command line knows it; title: a line for people; where: its figures in the paper.
        cells: what to compute at a size; run: computes a cell; seconds: about how long that takes on one core.
        draw: figures by file name (without suffix); claims: what can be said. Both take what there is: cells may be
            missing, because they failed or were not asked for.
    """

    name: str
    title: str
    where: str
    cells: Callable[[Size], list[Cell]]
    run: Callable[[Cell], Result]
    seconds: Callable[[Cell], float]
    draw: Callable[[Results], Mapping[str, Drawn]]
    claims: Callable[[Results], list[Claim]]
