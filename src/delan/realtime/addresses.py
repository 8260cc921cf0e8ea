"""Where runs can be watched: each leaves its address in a folder of its user, and takes it away when it ends."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import DelanError


class WatchError(DelanError):
    """There is no run to watch, or it cannot be reached."""


@dataclass(frozen=True)
class Address:
    """Where a run can be watched: names of its channels, and what is drawn. Plain, written as JSON.

    Attributes:
        models, references: what the run can be told to use; empty if it takes no orders but to stop.
        weights: for each learned model, the channel of its numbers.
        settings: of the run, to build its models anew.
    """

    pid: int
    robot: str
    dof: int
    dt: float
    rows: str
    ahead: str
    orders: str
    standing: str
    models: tuple[str, ...]
    references: tuple[str, ...]
    weights: Mapping[str, str]
    settings: Mapping[str, Any]

    def with_weights(self, weights: Mapping[str, str]) -> "Address":
        """The same, when the learned models can be seen, too."""
        return replace(self, weights=dict(weights))


def address_folder() -> Path:
    """Where runs leave their addresses: readable by their user alone."""
    root = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(root) / "delan" if root else Path(tempfile.gettempdir()) / f"delan-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise WatchError(f"{folder} belongs to somebody else; set XDG_RUNTIME_DIR to a folder of your own")
    return folder


def announce(address: Address, path: Path) -> None:
    """Write an address, whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(asdict(address)))
    aside.replace(path)


def read_address(path: Path) -> Address:
    try:
        content = json.loads(path.read_text())
        known = {field.name for field in fields(Address)}
        content = {name: tuple(one) if isinstance(one, list) else one for name, one in content.items() if name in known}
        return Address(**content)
    except (OSError, ValueError, TypeError) as error:
        raise WatchError(f"{path}: is no address of a run ({error})") from None


def running() -> list[Address]:
    """The runs of this user that can be watched, the newest last; what ended runs left is cleared away."""
    found = []
    for path in sorted(address_folder().glob("*.json"), key=_written):
        try:
            address = read_address(path)
        except WatchError:
            continue
        if is_alive(address.pid):
            found.append(address)
        else:
            path.unlink(missing_ok=True)
    return found


def _written(path: Path) -> float:
    """When a file was written [s]; 0 if it is gone, as a run that ends takes its address away."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:  # a child that ended and was not asked for yet is no run
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True
