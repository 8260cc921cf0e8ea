"""Recording the rows of the loop to disk, by a thread, without holding up the loop.

A recording and its folder belong to one run: both are locked while it lasts, and the locks vanish
with the process.
"""

import fcntl
import math
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, SettingsError
from ..joints import Joints
from ..logs.recording_file import chunk_of, header_line, require_columns
from .channels import RowLayout
from .process import keep_at_exit, undo_at_exit

# Largest chunk [rows]: while the thread joins the rows of a chunk it holds the interpreter lock.
CHUNK_ROWS = 1024
# Most bytes of rows that may wait for a slow disk (128 MiB); further rows are dropped and counted.
WAITING_BYTES = 1 << 27


@dataclass(frozen=True)
class RecordingFormat:
    """What the rows of a recording are.

    Attributes:
        layout: the quantities of a row; t, q and tau must be among them.
        dt: control period [s].
        provenance: anything else that is known, as values that JSON has.
    """

    joints: Joints
    layout: RowLayout
    dt: float
    provenance: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """A recording that is complete up to the last chunk, however the process ends.

    Create it after `raise_priority`: its thread then shares the core of the loop and runs while
    the loop sleeps, where no other process can delay a thread the loop may have to wait for.

    Attributes:
        written: number of rows on disk.
        problem: why the recording stopped; None while it works.
    """

    def __init__(
        self,
        path: str | Path,
        content: RecordingFormat,
        *,
        period: float = 0.5,
        overwrite: bool = False,
        warn: Callable[[str], None] | None = None,
    ):
        """Begin a file, which no other process may be recording to.

        Args:
            period: time between chunks [s], which is what a crash or a power cut may cost.
            overwrite: replace an existing file instead of raising an error.
            warn: called by the thread, once, with the problem that ends the recording early.
        """
        dt = content.dt
        if not (0 < dt < math.inf and 0 < period < math.inf):
            raise SettingsError(
                f"dt and period must be positive numbers of seconds, got {dt} and {period}"
            )
        sizes = content.layout.sizes
        require_columns(str(path), sizes, content.joints.dof)
        header = header_line(content.joints, sizes, dt, content.provenance)
        self.path = str(path)
        self.written = 0
        self.problem: str | None = None
        self._file = _begin(self.path, header, overwrite)
        self._end = len(header)  # position after the last whole chunk
        self._warn = warn
        self._dt = dt
        undo_at_exit(self.path, self._remove_if_empty)
        self._row_bytes = 8 * content.layout.width
        self._period = period
        self._waiting: deque[bytes] = deque()
        self._limit = max(1, WAITING_BYTES // self._row_bytes)
        # One counter for the loop and one for the thread, so that neither needs a lock.
        self._refused = 0
        self._failed = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def append(self, row: Any) -> None:
        """Record a row; never waits, and drops the row if recording stopped or lags far behind."""
        data = np.asarray(row, dtype="<f8").tobytes()
        if len(data) != self._row_bytes:
            raise SettingsError(
                f"expected a row of {self._row_bytes // 8} numbers, got {len(data) // 8}"
            )
        if self.problem is not None or self._closing.is_set() or len(self._waiting) >= self._limit:
            self._refused += 1
        else:
            self._waiting.append(data)

    @property
    def dropped(self) -> int:
        """Number of rows that were given and will not be on disk."""
        return self._refused + self._failed

    @property
    def losses(self) -> dict[str, Any]:
        """What the recording has and lacks, as fields of `LoopStats`; final once it is closed."""
        return {
            "recorded": self.written,
            "unrecorded": self.dropped,
            "recording_problem": self.problem,
        }

    def close(self, *, patience: float = 10.0) -> None:
        """Write the waiting rows and close the file; give up after `patience` [s].

        A file without rows is removed: no program could read it.
        """
        self._closing.set()
        self._thread.join(patience)
        if self._thread.is_alive() and self.problem is None:
            self.problem = (
                f"{self.path}: the disk did not respond within {patience} s; "
                f"the last {len(self._waiting)} rows are not on it"
            )

    def _run(self) -> None:
        while not self._closing.wait(self._period):
            self._write_waiting()
        self._write_waiting()
        self._remove_if_empty()
        keep_at_exit(self.path)
        try:
            os.close(self._file)
        except OSError as error:  # a network disk may report only here that it is full
            self._stop(error)

    def _remove_if_empty(self) -> None:
        """Remove the file if it is nothing but a header, and still the one that was begun."""
        begun = os.fstat(self._file)
        if self.written == 0 and stat.S_ISREG(begun.st_mode):
            with suppress(OSError):
                if os.path.samestat(begun, os.stat(self.path)):
                    os.unlink(self.path)

    def _write_waiting(self) -> None:
        while count := min(len(self._waiting), CHUNK_ROWS):
            rows = b"".join([self._waiting.popleft() for _ in range(count)])
            if self.problem is None and self._write(rows, count):
                self.written += count
            else:
                self._failed += count

    def _write(self, rows: bytes, count: int) -> bool:
        """Write a chunk through to the medium, safe from a power cut; return whether it worked."""
        chunk = b""
        try:
            chunk = chunk_of(rows, count)
            _write_all(self._file, chunk)
            os.fsync(self._file)
            removed = os.fstat(self._file).st_nlink == 0
        except OSError as error:
            with suppress(OSError):  # half a chunk would make every reader warn
                os.ftruncate(self._file, self._end)
            self._stop(error)
            return False
        self._end += len(chunk)
        if removed:
            self._lose()
        return not removed

    def _stop(self, error: OSError) -> None:
        self._tell(
            f"{self.path}: recording stopped after {self.written} rows: {error.strerror}; "
            f"{self.written * self._dt:.1f} s are kept; free disk space"
        )

    def _lose(self) -> None:
        """Give up: the file was deleted, and what is written to it goes nowhere."""
        self._failed += self.written
        self.written = 0
        self._tell(
            f"{self.path}: recording stopped, nothing is kept: the file or its folder was deleted; "
            "leave the folder of a run alone"
        )

    def _tell(self, problem: str) -> None:
        self.problem = problem
        if self._warn is not None:
            self._warn(problem)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def recording_loss(unrecorded: int, problem: str | None) -> str | None:
    """Return a sentence on what a recording lacks; None if it is complete."""
    if problem is not None and unrecorded:
        return f"{problem} ({unrecorded} rows are missing)"
    if unrecorded:
        return f"{unrecorded} rows are missing in the recording: the disk was too slow"
    return problem


@contextmanager
def owned_folder(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder; raise if one of them has it."""
    file = os.open(folder, os.O_RDONLY)
    try:
        _lock(file, str(folder))
        yield
    finally:
        os.close(file)


def _lock(file: int, path: str) -> None:
    """Lock an open file or folder until it is closed or the process ends, however it ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        problem = "another run is recording here; wait until it has ended, or give another path"
        raise DataError(path, problem) from None
    except OSError:
        return  # a network disk without locks


def _begin(path: str, header: bytes, overwrite: bool) -> int:
    """Create or replace a file, lock it and write its header; return its descriptor."""
    file = -1
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | (0 if overwrite else os.O_EXCL), 0o666)
        _lock(file, path)
        # Only now: until here the content may be that of a run that goes on.
        if stat.S_ISREG(os.fstat(file).st_mode):
            os.ftruncate(file, 0)
        _write_all(file, header)
        return file
    except DataError:
        os.close(file)
        raise
    except FileExistsError:
        problem = "exists already; give another path or overwrite=True"
        raise DataError(path, problem) from None
    except OSError as error:
        if file >= 0:
            os.close(file)
        problem = (
            f"cannot be written: {error.strerror}; give a path in an existing folder with space"
        )
        raise DataError(path, problem) from None


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
