"""The door for logs: files of any known form become recordings, whole or piece by piece in bounded memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import DataError, SettingsError
from ..joints import Recording
from .checks import require_sound
from .excerpts import Keeper
from .formats.opening import log_files, open_log
from .log_options import LogOptions
from .log_parts import Part, Seam, parts_of
from .log_pieces import Labels, pieces_of

_ROWS = 200_000

Paths = str | Path | Sequence[str | Path]


def read_log(paths: Paths, options: LogOptions | None = None, *, sound: bool = True) -> Recording:
    """The recording in a log, in several, or in a folder of them: CSV, Parquet, npz, MAT, HDF5 or ROS 2 bags.

    The form is told by content, not by name. Each file is a trajectory, or as many as it tells apart. What a fit
    cannot use is refused; with `sound=False` it is handed out as it is, empty cells of a table as not a number.
    Of a log larger than `options.memory` evenly spaced runs are returned, and `Recording.excerpt` says which.
    """
    options = options or LogOptions()
    keeper = Keeper(options.most_bytes)
    for part in log_parts(paths, options, sound=sound):
        keeper.add(part)
        del part  # before the next is read
    recording = keeper.recording()
    return require_sound(recording) if sound and recording.excerpt is not None else recording


def log_parts(paths: Paths, options: LogOptions, *, sound: bool = True) -> Iterator[Part]:
    """All rows of a log in parts that `options.memory` holds; with `sound` each is fit for a fit by itself."""
    seam = Seam()
    for part in parts_of(_pieces(paths, options, _ROWS, gaps=not sound), options.most_bytes):
        if sound:
            source, _, row = part.files[0]
            part.require_sound()
            seam.require_onward(source, row, part.recording)
            seam.end(part.files[-1][0], part.recording)
        yield part
        del part


def stream_log(
    paths: Paths, options: LogOptions | None = None, *, rows: int = _ROWS, sound: bool = True
) -> Iterator[Recording]:
    """The same as `read_log`, in pieces of at most so many rows; memory holds one piece at a time.

    A long trajectory goes on over pieces with the same label. Each piece is checked by itself, and its time to run on
    from the piece before.
    """
    if rows < 1:
        raise SettingsError(f"rows must be at least 1, got {rows}")
    begun: dict[str, int] = {}
    seam = Seam()
    for piece in _pieces(paths, options or LogOptions(), rows, gaps=not sound):
        source, row = piece.source, begun.get(piece.source, 0)
        begun[source] = row + len(piece.t)
        told = replace(piece, source=f"{source} from row {row}") if row else piece
        if sound:
            require_sound(told)
            seam.require_onward(source, row, piece)
        seam.end(source, piece)
        yield piece


def _pieces(paths: Paths, options: LogOptions, rows: int, *, gaps: bool) -> Iterator[Recording]:
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise SettingsError("no log was given; give at least one file or folder")
    files = [file for path in given for file in log_files(Path(path))]
    mapped = {quantity: options.patterns(quantity) or () for quantity in options.map}
    labels = None
    first: _Told | None = None
    for file in files:
        sheets = open_log(file, mapped=mapped, currents=options.gain is not None, gaps=gaps)
        labels = labels or Labels(keep=len(files) == len(sheets) == 1)
        for sheet in sheets:
            for piece in pieces_of(sheet, options, rows, labels):
                told = _Told(piece)
                first = first or told
                _require_alike(first, told)
                yield piece


class _Told:
    """What a piece tells, without its numbers."""

    def __init__(self, piece: Recording):
        self.source, self.joints = piece.source, piece.joints
        self.quantities = {name for name in ("qd", "qdd") if getattr(piece, name) is not None} | set(piece.truth)


def _require_alike(first: _Told, other: _Told) -> None:
    """Logs read together are of one robot and tell the same of it."""
    if first.joints != other.joints:
        told = f"has joints {', '.join(other.joints.names)}, {first.source} has {', '.join(first.joints.names)}"
        raise DataError(other.source, f"{told}; read them apart, or pick the same by --joints")
    for name in sorted(first.quantities ^ other.quantities):
        here, there = ("", "none") if name in other.quantities else ("no ", "it")
        told = f"has {here}{name}, {first.source} has {there}"
        raise DataError(other.source, f"{told}; leave it out by --map {name}=, or read them apart")
