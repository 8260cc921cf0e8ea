"""Compressed logs and zip archives of logs: text as a stream, other formats as temporary files.

A packed log takes no more memory than an unpacked one. What is unpacked is counted, and a file that
yields more than any log does is refused.
"""

import bz2
import gzip
import io
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import DataError, DelanError
from ..options import LogOptions
from . import (
    KNOWN_FORMS,
    PACKED,
    TEXT_SUFFIXES,
    Content,
    Pieces,
    PromisedSize,
    Sheet,
    library,
    library_errors,
    module_of_head,
)

# Files in an archive; one with more is no archive of logs.
_MOST_FILES = 1000
# Bytes unpacked at once into a temporary file, and the largest window of zstd, which is memory.
_AT_ONCE = 1 << 20
_LARGEST_WINDOW = 1 << 27
# Bytes of text that are unpacked from any file, however small: short rows take seconds.
_HARMLESS = 1 << 24
# Modules that read their content as a stream, without a file.
_STREAMED = {".text_table", ".json_log"}


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheets in a compressed file, or those of all logs in a zip archive."""
    sheets: list[Sheet] = []
    for content in _contents(path):
        sheets += _sheets_in(content, options, gaps)
    return sheets


def _contents(path: Path) -> list[Content]:
    """Return what is packed in a file: one content, or each log of an archive."""
    with path.open("rb") as file:
        head = file.read(8)
    source = str(path)
    if head.startswith(b"PK"):
        return _members(path)
    packer = next(name for magic, name in PACKED.items() if head.startswith(magic))
    openers: dict[str, Callable[[], Any]] = {
        "gzip": partial(gzip.open, path),
        "bzip2": partial(bz2.open, path),
        "zstd": partial(_open_zstd, path),
    }
    if packer not in openers:
        raise DataError(source, f"is compressed by {packer}; decompress it first")
    return [Content(source, partial(_open_counted, path, source, openers[packer]))]


def _members(path: Path) -> list[Content]:
    contents = []
    size = PromisedSize(path)
    with library_errors(str(path), "readable zip archive"), zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        if len(infos) > _MOST_FILES:
            raise DataError(str(path), f"holds {len(infos)} files; expected an archive of logs")
        for info in sorted(infos, key=lambda info: info.filename):
            name = info.filename
            parts = name.split("/")
            hidden = any(part.startswith((".", "__")) for part in parts)
            if info.is_dir() or hidden or not _may_be_log(archive, info):
                continue
            size.add(name, info.file_size)
            source = f"{path} [{name}]"
            opener = partial(_open_member, path, name)
            contents.append(Content(source, partial(_open_counted, path, source, opener)))
    if not contents:
        raise DataError(str(path), f"is an archive without logs; {KNOWN_FORMS}")
    return contents


def _may_be_log(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    if Path(info.filename).suffix.lower() in TEXT_SUFFIXES:
        return True
    with archive.open(info) as file:
        return module_of_head(file.read(1024)) is not None


def _open_member(path: Path, name: str) -> Any:
    with zipfile.ZipFile(path) as archive:
        return archive.open(name)  # keeps the file open until it is closed itself


def _open_zstd(path: Path) -> Any:
    zstandard = library("zstandard", str(path), "compressed by zstd")
    unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    return unpacker.stream_reader(path.open("rb"), read_across_frames=True, closefd=True)


def _open_counted(path: Path, source: str, opener: Callable[[], Any]) -> Any:
    with library_errors(source, "readable packed file"):
        return io.BufferedReader(_Counted(path, source, opener()), _AT_ONCE)


class _Counted(io.RawIOBase):
    """Unpacked bytes, counted against the size of the packed file."""

    def __init__(self, path: Path, source: str, stream: Any):
        self._source = source
        self._stream = stream
        self._size = PromisedSize(path, _HARMLESS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with library_errors(self._source, "readable packed file"):
            content = self._stream.read(len(buffer))
        self._size.add("content", len(content))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _sheets_in(content: Content, options: LogOptions, gaps: bool) -> list[Sheet]:
    head = content.head()
    if not head:
        raise DataError(content.source, f"is empty; {KNOWN_FORMS}")
    if head[257:262] == b"ustar":
        raise DataError(content.source, "is a tar archive; unpack it first")
    module = module_of_head(head) or ".text_table"
    if module == ".packed":
        raise DataError(content.source, "is packed twice; unpack it first")
    reader = import_module(module, __package__)
    if module in _STREAMED:
        return reader.sheets_of(content, options, gaps)
    place = _TemporaryFile(content)
    sheets = []
    with place.named_in_errors():
        for sheet in reader.read_sheets(place.path, options, gaps):
            pieces = partial(_unpacked_pieces, place, sheet)
            source = sheet.source.replace(str(place.path), content.source)
            sheets.append(replace(sheet, source=source, pieces=pieces))
    return sheets


def _unpacked_pieces(
    place: "_TemporaryFile", sheet: Sheet, wanted: Sequence[str], rows: int
) -> Pieces:
    with place.named_in_errors():
        yield from sheet.pieces(wanted, rows)


@dataclass(eq=False)
class _TemporaryFile:
    """An unpacked file that lasts as long as this object, or the process."""

    content: Content

    def __post_init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="delan-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder) / "log"
        with (
            library_errors(self.content.source, "readable packed file"),
            self.content.open() as packed,
            self.path.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file, _AT_ONCE)

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Name the packed file in errors, not the temporary one."""
        try:
            yield
        except DataError as error:
            source = error.source.replace(str(self.path), self.content.source)
            raise DataError(source, error.problem, column=error.column, row=error.row) from None
        except DelanError:
            raise
