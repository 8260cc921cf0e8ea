"""What an experiment is made of: independent cells, their results on disk, figures and claims."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ..errors import SettingsError
from ..motions.alphabet import OWN
from ..storage import write_whole
from .claims import Claim
from .code_version import code_version

Setting = float | int | str
# The result of a cell: numbers, strings, lists and dicts of them, as JSON can hold them.
Result = dict[str, Any]
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
    def alone(self) -> bool:
        """Whether it needs the machine for itself, as a run by the wall clock does."""
        return dict(self.setting).get("clock") == "wall"

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
        letters: the alphabet that is written, `own` or `uci=FILE`.
        engine: the simulator of rigid arms in the online experiments.
        wall_clock: also run in real time, with the learner in a process of its own.
    """

    name: SizeName = "usual"
    seeds: int | None = None
    data: str | None = None
    letters: str = OWN
    engine: Literal["mujoco", "pybullet"] = "mujoco"
    wall_clock: bool = False

    def pick(self, *, quick: Any, usual: Any, paper: Any) -> Any:
        """Return the argument that belongs to this size."""
        return {"quick": quick, "usual": usual, "paper": paper}[self.name]

    def seed_range(self, *, quick: int, usual: int, paper: int = 20) -> range:
        return range(self.seeds or self.pick(quick=quick, usual=usual, paper=paper))

    def extra_seeds(self, seeds: range, *, quick: int = 1) -> range:
        """Return fewer seeds, for models that no claim is about, unless the user gave a number."""
        if self.seeds:
            return seeds
        return seeds[: self.pick(quick=quick, usual=3, paper=5)]

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
        claims: judges the claims; None for one that the results say nothing about. Like `draw`, it
            must work on any subset of the cells, because cells fail or are not asked for.
    """

    name: str
    title: str
    where: str
    cells: Callable[[Size], list[Cell]]
    run: Callable[[Cell], Result]
    seconds: Callable[[Cell], float]
    draw: Callable[[Results], Mapping[str, Drawn]]
    claims: Callable[[Results], Sequence[Claim | None]]

    def judged(self, results: Results) -> list[Claim]:
        """Return the claims that the results say something about."""
        return [claim for claim in self.claims(results) if claim is not None]


class Stored(NamedTuple):
    """A finished cell, the code and library versions that computed it, and the time it took."""

    cell: Cell
    result: Result
    code: str
    seconds: float
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Store:
    """A folder with one JSON file per finished cell, `<experiment>/<key>.json`.

    Numbers are read back as the same bits. Non-finite numbers are written as Python writes them,
    `NaN` and `Infinity`: a diverged cell is a result like any other, and null could not say which.
    A damaged file counts as missing and is replaced when the cell is computed again.

    Attributes:
        code: version of the code that computes cells now; cells of other code are not used. None
            for the version that belongs to the experiment of a cell.
    """

    folder: Path
    code: str | None = None

    def code_of(self, experiment: str) -> str:
        """Return the version of the code that computes the cells of an experiment now."""
        return self.code or code_version(experiment)

    def path(self, cell: Cell) -> Path:
        return self.folder / cell.experiment / f"{cell.key}.json"

    def get(self, cell: Cell, *, any_code: bool = False) -> Stored | None:
        """Return what is stored of the cell; None if it is missing or other code computed it."""
        try:
            fields = json.loads(self.path(cell).read_text(encoding="utf-8"))
            stored = Stored(
                cell, fields["result"], fields["code"], float(fields["seconds"]), fields["versions"]
            )
            valid = fields["cell"] == cell.as_dict() and isinstance(stored.result, dict)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if not valid or (stored.code != self.code_of(cell.experiment) and not any_code):
            return None
        return stored

    def put(self, stored: Stored) -> None:
        """Store a finished cell and replace what was stored of it before."""
        self.make_folder(stored.cell.experiment)
        text = json.dumps({**stored._asdict(), "cell": stored.cell.as_dict()}, indent=1)
        write_whole(self.path(stored.cell), lambda file: file.write(text.encode()))

    def make_folder(self, experiment: str) -> None:
        """Make the folder of an experiment, so that a read-only path shows before the grid runs."""
        try:
            (self.folder / experiment).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"results cannot be stored in {self.folder} ({error.strerror}); give a folder "
                "that can be written"
            ) from None
