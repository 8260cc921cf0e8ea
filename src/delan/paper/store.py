"""Finished cells on disk, each with the version of the code that computed it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..errors import SettingsError
from ..storage import write_whole
from .cells import Cell, Result

ROOT = Path(__file__).parents[1]
# Subpackages that compute nothing: after a change there, stored cells remain valid.
WITHOUT_INFLUENCE = ("report", "cli", "view", "figures.py")


@cache
def code_version(root: Path = ROOT) -> str:
    """Return a hash of the sources that the numbers of a cell can depend on."""
    digest = hashlib.sha256()
    sources = (path for path in root.rglob("*") if path.suffix in (".py", ".c"))
    for path in sorted(sources, key=lambda path: path.relative_to(root).as_posix()):
        relative = path.relative_to(root)
        if relative.parts[0] not in WITHOUT_INFLUENCE:
            # As text, so that other line endings on another system give the same hash.
            text = path.read_text(encoding="utf-8")
            digest.update(f"{relative.as_posix()}\0{text}\0".encode())
    return digest.hexdigest()[:16]


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
        code: version of the code that computes cells now; cells of other code are not used.
    """

    folder: Path
    code: str = field(default_factory=code_version)

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
        if not valid or (stored.code != self.code and not any_code):
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
