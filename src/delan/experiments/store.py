"""Finished cells on disk, each under a key of its settings and with a short name of the code that computed it."""

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

WITHOUT_INFLUENCE = ("report", "interfaces", "view", "drawing.py")
"""Rooms that compute nothing: a change there leaves stored cells good."""


@cache
def code_version(root: Path = ROOT) -> str:
    """A short name of the sources that a cell's numbers can depend on; it changes with any of them."""
    digest = hashlib.sha256()
    sources = (path for path in root.rglob("*") if path.suffix in (".py", ".c"))
    for path in sorted(sources, key=lambda path: path.relative_to(root).as_posix()):
        relative = path.relative_to(root)
        if relative.parts[0] not in WITHOUT_INFLUENCE:
            text = path.read_text(encoding="utf-8")  # the same on a system that ends its lines otherwise
            digest.update(f"{relative.as_posix()}\0{text}\0".encode())
    return digest.hexdigest()[:16]


class Stored(NamedTuple):
    """A finished cell: what it gave, by which code, in how many seconds, with which versions of what it stands on."""

    cell: Cell
    result: Result
    code: str
    seconds: float
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Store:
    """A folder with one JSON file for each finished cell, `<experiment>/<key>.json`.

    Numbers come back as the same bits. What is not finite is written as Python writes it, `NaN` and `Infinity`: a cell
    that diverged is a result like any other, and null would not tell the one from the other. A file that is damaged
    counts as not there, and the cell that is computed again takes its place.

    Attributes:
        code: what computes the cells now; those that other code computed are not taken.
    """

    folder: Path
    code: str = field(default_factory=code_version)

    def path(self, cell: Cell) -> Path:
        return self.folder / cell.experiment / f"{cell.key}.json"

    def get(self, cell: Cell, *, any_code: bool = False) -> Stored | None:
        """What is stored of the cell; None if there is nothing, or if it came of other code and that matters."""
        try:
            fields = json.loads(self.path(cell).read_text(encoding="utf-8"))
            stored = Stored(cell, fields["result"], fields["code"], float(fields["seconds"]), fields["versions"])
            whole = fields["cell"] == cell.as_dict() and isinstance(stored.result, dict)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return stored if whole and (any_code or stored.code == self.code) else None

    def put(self, stored: Stored) -> None:
        """Keep a finished cell, in place of what there was of it."""
        self.make_room(stored.cell.experiment)
        text = json.dumps({**stored._asdict(), "cell": stored.cell.as_dict()}, indent=1)
        write_whole(self.path(stored.cell), lambda file: file.write(text.encode()))

    def make_room(self, experiment: str) -> None:
        try:
            (self.folder / experiment).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = (
                f"{self.folder}: results cannot be kept there ({error.strerror}); give a folder that can be written"
            )
            raise SettingsError(problem) from None
