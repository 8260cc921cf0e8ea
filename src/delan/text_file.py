"""Text files that people write or download: TOML, XML and JSON, read as a whole.

A pipe or a device may never end, and a file may be larger than its readers can bear: both are
refused before they are read. Readers put the name of the file before what is wrong.
"""

import json
import stat
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

# Bytes of a file that people write; the URDF of a humanoid has some hundred thousand.
LARGEST = 1 << 24


class TextFileError(ValueError):
    """A file that cannot be read as text; the message begins behind the name of the file."""


def require_regular(path: str | Path) -> None:
    """Refuse a pipe, a socket or a device; say nothing of a file that is not there."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise TextFileError("is a pipe or a device; save what it gives as a file, and give that")


def read_text(path: str | Path, largest: int = LARGEST) -> str:
    """Return the text of a file in UTF-8."""
    try:
        return _content(path, largest).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextFileError(f"is no text ({error}); give a text file in UTF-8") from None


def _content(path: str | Path, largest: int) -> bytes:
    require_regular(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(largest + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TextFileError(f"cannot be read: {reason}; check the path") from None
    if len(content) > largest:
        raise TextFileError(f"has more than {largest >> 20} MB; is it another file?")
    return content


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the values in a TOML file."""
    try:
        return tomllib.loads(read_text(path, 1 << 20))
    except TextFileError:
        raise
    except (ValueError, RecursionError) as error:  # also an integer of thousands of digits
        raise TextFileError(f"is no TOML ({error}); fix it or remove it") from None


def read_json(path: str | Path) -> Any:
    """Return the value in a JSON file."""
    try:
        return json.loads(read_text(path))
    except TextFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise TextFileError(f"is no JSON ({error}); fix it") from None


def read_xml(path: str | Path) -> ElementTree.Element:
    """Return the root of an XML file."""
    try:
        return ElementTree.fromstring(_content(path, LARGEST))
    except TextFileError:
        raise
    except (ElementTree.ParseError, ValueError, LookupError, RecursionError) as error:
        raise TextFileError(f"is not well-formed XML ({error}); correct the file") from None
