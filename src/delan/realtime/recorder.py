"""Write down what the loop saw while it runs: the loop hands over a row and goes on, a thread brings it to the disk."""

import math
import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..data.recording_file import chunk_of, header_line, require_columns
from ..errors import DataError, SettingsError
from ..joints import Joints
from .channels import Layout

CHUNK_ROWS = 1024
"""The most rows of a chunk: joining them is all that the thread does while the loop cannot."""

WAITING_BYTES = 1 << 27
"""The most bytes of rows that may wait for a disk that is too slow; then rows are dropped and counted."""


class Recorder:
    """A recording on disk that is whole up to the last fraction of a second, however the process ends.

    Make it after `raise_priority`: its thread then uses the loop's core while the loop sleeps, where no other process
    can hold up a thread that the loop may have to wait for.

    Attributes:
        written: rows on disk.
        problem: why the recording stopped, as a sentence; None while it goes on.
    """

    def __init__(
        self,
        path: str | Path,
        joints: Joints,
        layout: Layout,
        *,
        dt: float,
        period: float = 0.5,
        sync: bool = True,
        overwrite: bool = False,
        provenance: Mapping[str, Any] | None = None,
    ):
        """Begin a file of rows of the given layout, which must hold t, q and tau.

        Args:
            dt: control period [s].
            period: time between chunks [s], which is what a crash may cost.
            sync: have each chunk on the medium itself, safe from a power cut, not only from a crash of the process.
            overwrite: let go of a file that is there already; without, it is refused.
            provenance: whatever else is known, as JSON can say it.
        """
        if not (0 < dt < math.inf and 0 < period < math.inf):
            raise SettingsError(f"dt and period must be positive numbers of seconds, got {dt} and {period}")
        require_columns(str(path), layout.sizes, joints.dof)
        header = header_line(joints, layout.sizes, dt, provenance or {})
        self.path, self.written, self.problem = str(path), 0, None
        self._file = _begin(self.path, header, overwrite)
        self._row_bytes, self._period, self._sync = 8 * layout.width, period, sync
        self._waiting: deque[bytes] = deque()
        self._limit = max(1, WAITING_BYTES // self._row_bytes)
        self._refused, self._failed = 0, 0  # by the loop and by the thread, so that neither counts for the other
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def append(self, row: Any) -> None:
        """Hand over a row; never waits, and drops the row if the recording has stopped or the disk is far behind."""
        data = np.asarray(row, dtype="<f8").tobytes()
        if len(data) != self._row_bytes:
            raise SettingsError(f"expected a row of {self._row_bytes // 8} numbers, got {len(data) // 8}")
        if self.problem is not None or self._closing.is_set() or len(self._waiting) >= self._limit:
            self._refused += 1
        else:
            self._waiting.append(data)

    @property
    def dropped(self) -> int:
        """Rows that were handed over and are not on disk, and will not be."""
        return self._refused + self._failed

    def close(self, *, patience: float = 10.0) -> None:
        """Bring what waits to the disk and end the file; give up after `patience` [s] without an answer."""
        self._closing.set()
        self._thread.join(patience)
        if self._thread.is_alive() and self.problem is None:
            rows = len(self._waiting)
            self.problem = (
                f"{self.path}: the disk did not answer within {patience} s; the last {rows} rows are not on it"
            )

    def _run(self) -> None:
        while not self._closing.wait(self._period):
            self._write_waiting()
        self._write_waiting()
        try:
            os.close(self._file)
        except OSError as error:  # a network disk may say only here that it is full
            self._stop(error)

    def _write_waiting(self) -> None:
        while count := min(len(self._waiting), CHUNK_ROWS):
            rows = b"".join([self._waiting.popleft() for _ in range(count)])
            try:
                if self.problem is None:
                    _write_all(self._file, chunk_of(rows, count))
                    if self._sync:
                        os.fsync(self._file)
                    self.written += count
                    continue
            except OSError as error:
                self._stop(error)
            self._failed += count

    def _stop(self, error: OSError) -> None:
        self.problem = f"{self.path}: recording stopped after {self.written} rows: {error.strerror}; make room"

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def loss_told(unrecorded: int, problem: str | None) -> str | None:
    """What a recording lacks, as a sentence for people; None if it is whole."""
    if problem is None:
        return f"{unrecorded} rows are missing in the recording: the disk was too slow" if unrecorded else None
    return f"{problem} ({unrecorded} rows are missing)" if unrecorded else problem


def _begin(path: str, header: bytes, overwrite: bool) -> int:
    """A new file with its header, open for writing."""
    file = -1
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if overwrite else os.O_EXCL), 0o666)
        _write_all(file, header)
        return file
    except FileExistsError:
        problem = "is there already; give another path, or say that it may be overwritten (overwrite=True)"
        raise DataError(path, problem) from None
    except OSError as error:
        if file >= 0:
            os.close(file)
        problem = f"cannot be written: {error.strerror}; give a path in a folder that exists and has room"
        raise DataError(path, problem) from None


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
