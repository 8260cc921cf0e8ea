"""Reading of logs: files of any known format become recordings, whole or in bounded memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import DataError, SettingsError
from ..joints import Recording
from .conversion import TrajectoryLabels, recordings_of
from .excerpts import ExcerptBuilder
from .formats.opening import log_files, open_log
from .options import LogOptions
from .parts import LogPart, TimeOrder, parts_of, source_from
from .soundness import require_sound

# Rows read at once: some tens of MB for a robot of seven joints.
_ROWS = 200_000

Paths = str | Path | Sequence[str | Path]


def read_log(paths: Paths, options: LogOptions | None = None, *, sound: bool = True) -> Recording:
    """Return the recording in a log, in several logs, or in a folder of them.

    CSV, Parquet, npz, MAT, HDF5 and ROS 2 bags are recognised by content, not by name. Each file is
    one trajectory, or as many as its labels or groups say. Data that a fit cannot use is refused;
    with `sound=False` it is returned as it is, with NaN for empty cells of a table. Of a log larger
    than `options.memory` evenly spaced segments are returned, and `Recording.excerpt` says which.
    """
    options = options or LogOptions()
    builder = ExcerptBuilder(options.most_bytes)
    for part in log_parts(paths, options, sound=sound):
        builder.add(part)
        del part  # frees its memory before the next part is read
    recording = builder.recording()
    if sound and recording.excerpt is not None:
        require_sound(recording)
    return recording


def log_parts(paths: Paths, options: LogOptions, *, sound: bool = True) -> Iterator[LogPart]:
    """Yield all rows of a log in parts of at most `options.memory`; `sound` checks each part."""
    order = TimeOrder()
    for part in parts_of(_pieces(paths, options, _ROWS, gaps=not sound), options.most_bytes):
        if sound:
            source, _, row = part.files[0]
            part.require_sound()
            order.require_increasing(source, row, part.recording)
            order.end(part.files[-1][0], part.recording)
        yield part
        del part  # frees its memory before the next part is read


def stream_log(
    paths: Paths, options: LogOptions | None = None, *, rows: int = _ROWS, sound: bool = True
) -> Iterator[Recording]:
    """Yield the rows of `read_log` in pieces of at most `rows` rows, one in memory at a time.

    A long trajectory continues over several pieces with the same label. Each piece is checked by
    itself, and its first time against the last of the piece before.
    """
    if rows < 1:
        raise SettingsError(f"rows must be at least 1, got {rows}")
    rows_of_file: dict[str, int] = {}
    order = TimeOrder()
    for piece in _pieces(paths, options or LogOptions(), rows, gaps=not sound):
        row = rows_of_file.get(piece.source, 0)
        rows_of_file[piece.source] = row + len(piece.t)
        if sound:
            require_sound(replace(piece, source=source_from(piece.source, row)))
            order.require_increasing(piece.source, row, piece)
        order.end(piece.source, piece)
        yield piece


def _pieces(paths: Paths, options: LogOptions, rows: int, *, gaps: bool) -> Iterator[Recording]:
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise SettingsError("no log was given; give at least one file or folder")
    files = [file for path in given for file in log_files(Path(path))]
    mapped = {quantity: options.patterns(quantity) or () for quantity in options.map}
    labels = None
    first = None
    for file in files:
        sheets = open_log(file, mapped=mapped, currents=options.gain is not None, gaps=gaps)
        labels = labels or TrajectoryLabels(keep=len(files) == len(sheets) == 1)
        for sheet in sheets:
            for piece in recordings_of(sheet, options, rows, labels):
                # One row has all that is compared; more would keep the first piece in memory.
                first = first or _copied_row(piece)
                _require_alike(first, piece)
                yield piece


def _copied_row(piece: Recording) -> Recording:
    return piece.with_columns({name: values[:1].copy() for name, values in piece.columns.items()})


def _require_alike(first: Recording, other: Recording) -> None:
    """Refuse logs of different robots, or with different quantities."""
    if first.joints != other.joints:
        problem = (
            f"has joints {', '.join(other.joints.names)}, "
            f"{first.source} has {', '.join(first.joints.names)}; "
            "read the logs separately, or choose the same joints by --joints"
        )
        raise DataError(other.source, problem)
    for name in sorted(first.columns.keys() ^ other.columns.keys()):
        difference = f"has no {name}, {first.source} has it"
        if name in other.columns:
            difference = f"has {name}, {first.source} has none"
        problem = f"{difference}; leave it out by --map {name}=, or read the logs separately"
        raise DataError(other.source, problem)
