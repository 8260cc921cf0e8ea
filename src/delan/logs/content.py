"""The bytes of a log, which may lie in a file of their own or packed in another."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

# Bytes from which a format is recognised.
HEAD_BYTES = 1024


@dataclass(frozen=True)
class Content:
    """Bytes that can be read from their beginning any number of times.

    Attributes:
        source: the file, and the name inside it if it is an archive.
        open: function that opens the bytes as a binary file.
    """

    source: str
    open: Callable[[], Any]

    @classmethod
    def of_file(cls, path: Path) -> "Content":
        """Return the content of a file that is not packed."""
        return cls(str(path), partial(path.open, "rb"))

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """Return the first bytes."""
        with self.open() as file:
            return file.read(size)
