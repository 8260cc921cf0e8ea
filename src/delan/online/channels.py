"""Lock-free channels between processes: rows of floats in shared memory.

Both channels are a ring of slots with one writer. Row k (counted from 1) is written in this order:
stamp ← −k, numbers, checksum, stamp ← k, head ← k. A reader copies the numbers of a row up to the
head and then reads the stamp: if it is still k, the writer had not begun to overwrite the row. A
writer that dies halfway leaves the head on the last complete row; the next writer continues there.

This assumes that aligned 8-byte stores are atomic and become visible in program order, as on x86.
Where a processor reorders them, the checksum rejects the row.
"""

import atexit
import fcntl
import os
import re
import secrets
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from ..errors import DelanError, SettingsError
from .process import is_alive, keep_at_exit, start_time, undo_at_exit

Row = Float[np.ndarray, " width"]
Rows = Float[np.ndarray, "time width"]
Channel = TypeVar("Channel", bound="_Channel")

# Header words of 8 bytes. The words of the writer and those of the reader lie 64 bytes apart, so
# that the two processes do not share a cache line.
KIND = 0
CAPACITY = 1
WIDTH = 2
HEAD = 8
TAIL = 16
LOST = 17
HEADER_WORDS = 24

# Slots of a `Latest`: a reader only has to retry if three rows are published while it copies one.
SLOTS = 4

# Where Linux lists shared memory, and how the segments of this package are named: by the process
# that created them, its start time, and a random part. A name has at most 30 characters, as macOS
# demands.
SEGMENTS = Path("/dev/shm")
NAME = re.compile(r"delan_(?P<pid>\d+)_(?P<started>[0-9a-f]+)_[0-9a-f]{6}")

_prepared = threading.Event()  # whether this process has created a segment


class ChannelError(DelanError, ValueError):
    """A channel that cannot be created or attached to, or a row of the wrong width."""


@dataclass(frozen=True)
class RowLayout:
    """The names and positions of the quantities in a row."""

    slices: Mapping[str, slice]
    width: int

    @classmethod
    def of(cls, **sizes: int) -> "RowLayout":
        """Return the layout of consecutive quantities, such as `RowLayout.of(t=1, q=7)`."""
        if not sizes:
            raise SettingsError("a row needs at least one quantity, got nothing")
        slices = {}
        end = 0
        for name, size in sizes.items():
            if size < 1:
                raise SettingsError(f"a quantity needs a size of at least 1, got {name}={size}")
            slices[name] = slice(end, end + size)
            end += size
        return cls(slices, end)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each quantity, as given to `of`."""
        return {name: place.stop - place.start for name, place in self.slices.items()}

    def unpack(
        self, rows: Float[np.ndarray, "*time width"]
    ) -> dict[str, Float[np.ndarray, "*time _"]]:
        """Return the quantities of one or many rows, each of shape (..., size)."""
        return {name: rows[..., place] for name, place in self.slices.items()}


def checksum(rows: Float[np.ndarray, "*time width"]) -> Any:
    """Return the wrapping sum of the bits of each row; a mix of two rows has a different sum."""
    return np.add.reduce(rows.view(np.int64), axis=-1)


class _Channel:
    """A ring of slots in shared memory with one writer."""

    kind: str
    _memory: SharedMemory | None = None

    def _create(self, capacity: int, width: int) -> None:
        """Create the segment; it is removed on `close` or when this process tree has ended."""
        size = _size(capacity, width)
        if not _prepared.is_set():
            _prepared.set()
            _start_tracker()
            sweep()
        _require_room(size)
        pid = os.getpid()
        name = f"delan_{pid}_{start_time(pid):x}_{secrets.token_hex(3)}"
        try:
            memory = SharedMemory(name, create=True, size=size)
        except OSError as error:
            raise ChannelError(
                f"cannot create a channel of {size} bytes: {error.strerror}; free some memory"
            ) from None
        undo_at_exit(memory.name, memory.unlink)
        _lock(memory)
        self._map(memory, capacity, width, owner=True)
        # Touch every page now, so that the first lap of the ring has no page faults.
        for words in (self._stamps, self._sums, self._data):
            words[...] = 0
        self._words[:] = 0
        self._words[[CAPACITY, WIDTH, KIND]] = capacity, width, _word(self.kind)

    @classmethod
    def attach(cls: type[Channel], name: str) -> Channel:
        """Return the channel of that name, created by another process."""
        memory = _attached(name)
        words = _view(memory, np.int64, 0, min(HEADER_WORDS, memory.size // 8))
        capacity = 0
        width = 0
        if len(words) == HEADER_WORDS and words[KIND] == _word(cls.kind):
            capacity = int(words[CAPACITY])
            width = int(words[WIDTH])
        del words  # a view that is alive would keep the memory from being closed
        if capacity == 0 or memory.size < _size(capacity, width):
            memory.close()
            raise ChannelError(
                f"the shared memory {name!r} is not a {cls.kind}; give the `name` of one"
            )
        channel = cls.__new__(cls)
        channel._map(memory, capacity, width, owner=False)
        return channel

    def _map(self, memory: SharedMemory, capacity: int, width: int, *, owner: bool) -> None:
        self._memory = memory
        self._owner = owner
        self.name = memory.name
        self.capacity = capacity
        self.width = width
        self._words = _view(memory, np.int64, 0, HEADER_WORDS)
        self._stamps = _view(memory, np.int64, HEADER_WORDS, capacity)
        self._sums = _view(memory, np.int64, HEADER_WORDS + capacity, capacity)
        data = _view(memory, np.float64, HEADER_WORDS + 2 * capacity, capacity * width)
        self._data = data.reshape(capacity, width)

    @property
    def written(self) -> int:
        """Number of rows written since the channel was created, by all its writers."""
        return int(self._words[HEAD])

    def write(self, row: Any) -> None:
        """Write a row, overwriting the oldest if the ring is full; never waits."""
        row = np.ascontiguousarray(row, dtype=np.float64)
        if row.shape != (self.width,):
            raise ChannelError(f"expected a row of {self.width} numbers, got shape {row.shape}")
        number = int(self._words[HEAD]) + 1
        slot = (number - 1) % self.capacity
        self._stamps[slot] = -number
        self._data[slot] = row
        self._sums[slot] = checksum(row) ^ number
        self._stamps[slot] = number
        self._words[HEAD] = number

    def close(self) -> None:
        """Release the memory; in the process that created the channel, remove it."""
        memory = self._memory
        self._memory = None
        if memory is None:
            return
        del self._words, self._stamps, self._sums, self._data
        # A traceback may still hold a view; the memory is released when that goes.
        with suppress(BufferError):
            memory.close()
        self._unlink(memory)

    def remove(self) -> None:
        """Unlink the memory in the process that created it; attached processes keep it."""
        if self._memory is not None:
            self._unlink(self._memory)

    def _unlink(self, memory: SharedMemory) -> None:
        if self._owner:
            keep_at_exit(memory.name)
            with suppress(FileNotFoundError):
                memory.unlink()

    def __enter__(self: Channel) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Stream(_Channel):
    """All rows in order, for one writer and one reader; rows a slow reader missed are counted."""

    kind = "Stream"

    def __init__(self, capacity: int, width: int):
        """Create a ring for `capacity` unread rows of `width` numbers."""
        if capacity < 2 or width < 1:
            raise SettingsError(
                f"a stream needs capacity ≥ 2 and width ≥ 1, got {capacity} and {width}"
            )
        self._create(capacity, width)

    def read(self, *, again: bool = False) -> Rows:
        """Return the rows written since the last read, in order; of shape (0, width) if none.

        With `again`, also return rows that were read before and are still in the ring: for a
        reader that replaces one that died.
        """
        head = int(self._words[HEAD])
        tail = int(self._words[TAIL])
        rows, numbers = self._copied(0 if again else tail, head)
        self._words[LOST] += head - tail - np.count_nonzero(numbers > tail)
        self._words[TAIL] = head
        return rows

    def _copied(self, tail: int, head: int) -> tuple[Rows, Int[np.ndarray, " time"]]:
        """Return the complete rows from `tail` + 1 to `head`, and their numbers."""
        numbers = np.arange(max(tail, head - self.capacity), head) + 1
        slots = (numbers - 1) % self.capacity
        rows = self._data[slots]
        sums = self._sums[slots]
        # Read last: a slot that still has its stamp was not overwritten during the copy.
        stamps = self._stamps[slots]
        complete = (stamps == numbers) & (sums == checksum(rows) ^ numbers)
        return rows[complete], numbers[complete]

    def since(self, number: int) -> tuple[Rows, int]:
        """Return the rows after row `number` still in the ring, and the number of the newest.

        For any number of onlookers: nothing is marked as read.
        """
        head = int(self._words[HEAD])
        return self._copied(number, head)[0], head

    @property
    def lost(self) -> int:
        """Number of rows overwritten before they were read, as known at both ends."""
        return int(self._words[LOST])

    @property
    def unread(self) -> int:
        """Number of rows written and not read yet, as known at both ends."""
        return int(self._words[HEAD] - self._words[TAIL])


class Latest(_Channel):
    """The newest row only, for one writer and any number of readers."""

    kind = "Latest"
    _seen = 0

    def __init__(self, width: int):
        """Create a channel for rows of `width` numbers."""
        if width < 1:
            raise SettingsError(f"a channel needs width ≥ 1, got {width}")
        self._create(SLOTS, width)

    def read(self, *, tries: int = 10) -> Row | None:
        """Return the newest row, or None if it was read before or overwritten on each try."""
        for _ in range(tries):
            number = int(self._words[HEAD])
            if number == self._seen:
                return None
            slot = (number - 1) % self.capacity
            row = self._data[slot].copy()
            total = self._sums[slot]
            stamp = self._stamps[slot]  # read last, as in `Stream._copied`
            if stamp == number and total == checksum(row) ^ number:
                self._seen = number
                return row
        return None


def _start_tracker() -> None:
    """Start Python's process that removes segments after a crash; it survives a closed terminal.

    It inherits the blocked signals of the thread that starts it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    atexit.register(_wake_tracker)
    undo_at_exit("tracker", _wake_tracker)


def _wake_tracker() -> None:
    """Continue that process if it was stopped, so that it ends after this one."""
    with suppress(OSError, TypeError, AttributeError):
        # A child of this process: its id cannot be that of another one.
        os.kill(resource_tracker._resource_tracker._pid, signal.SIGCONT)  # pyright: ignore


def sweep() -> int:
    """Remove the segments that dead processes of this user left; return their number.

    A process whose tree was killed as a whole cannot remove its own. A segment is removed if its
    process is gone, by id and start time, and nobody holds its lock: a process in another container
    cannot be seen, but its lock can.
    """
    removed = 0
    with suppress(OSError):  # no such folder: shared memory is not listed on this system
        for path in SEGMENTS.iterdir():
            owner = NAME.fullmatch(path.name)
            if owner is None or is_alive(int(owner["pid"]), int(owner["started"], 16)):
                continue
            removed += _remove_unlocked(path)
    return removed


def _remove_unlocked(path: Path) -> bool:
    """Remove a segment of this user unless its lock is held; return whether it was removed."""
    try:
        if path.lstat().st_uid != os.getuid():
            return False
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _lock(memory: SharedMemory) -> None:
    """Lock a segment as long as this process lives or has it open; see `sweep`."""
    with suppress(OSError, AttributeError):  # macOS does not lock shared memory
        fcntl.flock(memory._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # pyright: ignore


def _size(capacity: int, width: int) -> int:
    return 8 * (HEADER_WORDS + capacity * (2 + width))


def _view(memory: SharedMemory, kind: Any, start: int, count: int) -> np.ndarray:
    """Return a view of `count` 8-byte numbers of a segment."""
    assert memory.buf is not None
    return np.frombuffer(memory.buf, kind, count=count, offset=8 * start)


def _word(kind: str) -> int:
    """Return the kind of a channel as one integer."""
    return int.from_bytes(f"dl{kind}".encode(), "little")


def _require_room(size: int) -> None:
    """Raise if a segment does not fit: Linux would grant it and kill whoever writes to it."""
    with suppress(OSError):
        state = os.statvfs("/dev/shm")
        free = state.f_bavail * state.f_frsize
        if size > free:
            raise ChannelError(
                f"a channel of {size} bytes does not fit into the {free} bytes of free shared "
                "memory; make the channel smaller or /dev/shm larger (docker run --shm-size)"
            )


_attaching = threading.Lock()


def _attached(name: str) -> SharedMemory:
    """Map a segment without becoming responsible for its removal.

    Before Python 3.13, `SharedMemory` lets every process that maps a segment remove it at exit.
    """
    try:
        if sys.version_info >= (3, 13):
            return SharedMemory(name, track=False)
        with _attaching:
            register = resource_tracker.register
            resource_tracker.register = lambda other, kind: (
                None if other == f"/{name}" else register(other, kind)
            )
            try:
                return SharedMemory(name)
            finally:
                resource_tracker.register = register
    except (OSError, ValueError) as error:
        raise ChannelError(
            f"no channel {name!r} ({error}); it was closed or never created: "
            "give the `name` of an open one"
        ) from None
