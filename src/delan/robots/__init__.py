"""Robots: their description as data, and adapters that move them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .files import from_mjcf as from_mjcf
    from .files import from_urdf as from_urdf


def __getattr__(name: str) -> Any:
    """Import the readers of robot files when they are first asked for: they bring the engines along."""
    if name in ("from_mjcf", "from_urdf"):
        from . import files  # noqa: PLC0415

        return getattr(files, name)
    raise AttributeError(f"module 'delan.robots' has no attribute {name!r}")
