"""Rows of numbers between processes, through shared memory: nobody waits, nothing is pickled, no torn row is returned.

Both channels are a ring of slots with one writer. Row k (counted from 1) is written in this order: stamp ← −k,
numbers, checksum, stamp ← k, head ← k. A reader copies the numbers of a row up to the head and then looks at the
stamp: if it is still k, the writer had not begun to overwrite the row. A writer that dies half-way leaves the head on
the last whole row, and the next writer goes on from there.

This assumes that an aligned store of 8 bytes is whole and that stores are seen in the order they were made, as on x86.
Where a processor shows them in another order, the checksum refuses the row.
"""

import os
import secrets
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from ..errors import DelanError, SettingsError

Row = Float[np.ndarray, " width"]
Rows = Float[np.ndarray, "time width"]
Channel = TypeVar("Channel", bound="_Channel")

# Words of 8 bytes at the start of a segment; what the writer changes and what the reader changes lie 64 bytes apart.
KIND, CAPACITY, WIDTH, HEAD, TAIL, LOST = 0, 1, 2, 8, 16, 17
HEADER_WORDS = 24

SLOTS = 4
"""Slots of a `Latest`: its writer must publish three times while one row is copied before a reader has to try again."""


class ChannelError(DelanError, ValueError):
    """A channel that cannot be made or attached to, or a row that does not fit it."""


@dataclass(frozen=True)
class Layout:
    """Who sits where in a row, so that both ends of a channel agree by name."""

    slices: Mapping[str, slice]
    width: int

    @classmethod
    def of(cls, **sizes: int) -> "Layout":
        """Quantities one after the other, each of so many numbers: `Layout.of(t=1, q=7, tau=7)`."""
        wrong = [name for name, size in sizes.items() if size < 1]
        if wrong or not sizes:
            what = f"{wrong[0]}={sizes[wrong[0]]}" if wrong else "nothing"
            raise SettingsError(f"a row holds at least one quantity of at least one number, got {what}")
        ends = np.cumsum(list(sizes.values())).tolist()
        return cls(
            {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}, ends[-1]
        )

    @property
    def sizes(self) -> dict[str, int]:
        """What `of` was given; plain, so that another process can build the same layout."""
        return {name: place.stop - place.start for name, place in self.slices.items()}

    def pack(self, **values: Any) -> Row:
        """One row of all the quantities; a plain number will do for a quantity of one."""
        if values.keys() != self.slices.keys():
            raise SettingsError(f"expected the quantities {', '.join(self.slices)}, got {', '.join(values) or 'none'}")
        row = np.empty(self.width)
        for name, place in self.slices.items():
            size = place.stop - place.start
            shape = np.shape(values[name])
            if shape != (size,) and not (size == 1 and shape == ()):
                raise SettingsError(f"expected {name} of shape ({size},), got {shape}")
            row[place] = values[name]
        return row

    def unpack(self, rows: Float[np.ndarray, "*time width"]) -> dict[str, Float[np.ndarray, "*time _"]]:
        """The quantities of one row or of many, each of shape (..., size)."""
        return {name: rows[..., place] for name, place in self.slices.items()}


def checksum(rows: Float[np.ndarray, "*time width"]) -> Any:
    """The sum of each row's bits as whole numbers, wrapping around: what mixes two rows has, in practice, another."""
    return np.add.reduce(rows.view(np.int64), axis=-1)


class _Channel:
    """A ring of slots in shared memory: its life, and its writing end."""

    kind: str
    _memory: SharedMemory | None = None

    def _create(self, capacity: int, width: int) -> None:
        """Make the segment; it goes when this process closes it, or when this process and its children have ended."""
        size = _size(capacity, width)
        _require_room(size)
        try:
            memory = SharedMemory(f"delan_{secrets.token_hex(6)}", create=True, size=size)
        except OSError as error:
            raise ChannelError(f"cannot make a channel of {size} bytes: {error.strerror}; free some memory") from None
        self._map(memory, capacity, width, owner=True)
        # Touching every page now keeps the first lap of the ring free of page faults.
        for words in (self._stamps, self._sums, self._data):
            words[...] = 0
        self._words[:] = 0
        self._words[[CAPACITY, WIDTH, KIND]] = capacity, width, _word(self.kind)

    @classmethod
    def attach(cls: type[Channel], name: str) -> Channel:
        """The channel of that name, made by another process; one end each, or many who only look."""
        memory = _attached(name)
        words = _view(memory, np.int64, 0, min(HEADER_WORDS, memory.size // 8))
        known = len(words) == HEADER_WORDS and words[KIND] == _word(cls.kind)
        capacity, width = (int(words[CAPACITY]), int(words[WIDTH])) if known else (0, 0)
        del words
        if not known or memory.size < _size(capacity, width):
            memory.close()
            raise ChannelError(f"the shared memory {name!r} is no {cls.kind}; give the `name` of one")
        channel = cls.__new__(cls)
        channel._map(memory, capacity, width, owner=False)
        return channel

    def _map(self, memory: SharedMemory, capacity: int, width: int, *, owner: bool) -> None:
        self._memory, self._owner, self.name = memory, owner, memory.name
        self.capacity, self.width = capacity, width
        self._words = _view(memory, np.int64, 0, HEADER_WORDS)
        self._stamps = _view(memory, np.int64, HEADER_WORDS, capacity)
        self._sums = _view(memory, np.int64, HEADER_WORDS + capacity, capacity)
        data = _view(memory, np.float64, HEADER_WORDS + 2 * capacity, capacity * width)
        self._data = data.reshape(capacity, width)

    @property
    def written(self) -> int:
        """How many rows were written since the channel was made, by all its writers."""
        return int(self._words[HEAD])

    def _put(self, row: Any) -> None:
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
        """Let go of the memory; where the channel was made, remove it."""
        memory, self._memory = self._memory, None
        if memory is None:
            return
        del self._words, self._stamps, self._sums, self._data
        with suppress(BufferError):  # an exception on its way may still hold a view; the memory goes when that does
            memory.close()
        if self._owner:
            _unlink(memory)

    def remove(self) -> None:
        """Where the channel was made, take it away from all who come later; those who have it keep it."""
        if self._memory is not None and self._owner:
            _unlink(self._memory)

    def __enter__(self: Channel) -> Channel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Stream(_Channel):
    """Every row in order, for one writer and one reader; a reader too slow loses the oldest and is told how many."""

    kind = "Stream"

    def __init__(self, capacity: int, width: int):
        """Room for `capacity` rows of `width` numbers that were not read yet."""
        if capacity < 2 or width < 1:
            raise SettingsError(f"a stream needs capacity ≥ 2 and width ≥ 1, got {capacity} and {width}")
        self._create(capacity, width)

    def write(self, row: Any) -> None:
        """Append a row, over the oldest one if the ring is full; never waits."""
        self._put(row)

    def read(self, *, again: bool = False) -> Rows:
        """All rows since the last read, by this reader or one before it, in order; of shape (0, width) if none.

        With `again` also the rows read before that are still there: for a reader that takes over and knows nothing.
        """
        head, tail = int(self._words[HEAD]), int(self._words[TAIL])
        rows, numbers = self._copied(0 if again else tail, head)
        self._words[LOST] += head - tail - np.count_nonzero(numbers > tail)
        self._words[TAIL] = head
        return rows

    def _copied(self, tail: int, head: int) -> tuple[Rows, Int[np.ndarray, " time"]]:
        """The rows behind `tail` up to `head` that are whole, and their numbers."""
        numbers = np.arange(max(tail, head - self.capacity), head) + 1
        slots = (numbers - 1) % self.capacity
        rows, sums = self._data[slots], self._sums[slots]
        stamps = self._stamps[slots]  # last: what still bears its number now was not touched during the copy
        whole = (stamps == numbers) & (sums == checksum(rows) ^ numbers)
        return rows[whole], numbers[whole]

    def since(self, number: int) -> tuple[Rows, int]:
        """For onlookers, of whom there may be many: whole rows behind row `number` that are still there, and the number
        of the newest. Nothing is marked as read, and the one reader does not notice."""
        head = int(self._words[HEAD])
        return self._copied(number, head)[0], head

    @property
    def lost(self) -> int:
        """Rows that were overwritten before they were read; seen from both ends."""
        return int(self._words[LOST])

    @property
    def unread(self) -> int:
        """Rows written and neither read nor found lost yet; seen from both ends."""
        return int(self._words[HEAD] - self._words[TAIL])


class Latest(_Channel):
    """The newest row alone, for one writer and any number of readers."""

    kind = "Latest"
    _seen = 0

    def __init__(self, width: int):
        """A place for `width` numbers."""
        if width < 1:
            raise SettingsError(f"a place needs width ≥ 1, got {width}")
        self._create(SLOTS, width)

    def publish(self, row: Any) -> None:
        """Put a row in the place of the last; never waits."""
        self._put(row)

    def read(self, *, tries: int = 10) -> Row | None:
        """The newest row; None if this reader has had it, or if the writer was faster each time it was tried."""
        for _ in range(tries):
            number = int(self._words[HEAD])
            if number == self._seen:
                return None
            slot = (number - 1) % self.capacity
            row, total = self._data[slot].copy(), self._sums[slot]
            stamp = self._stamps[slot]  # last, as in `Stream.read`
            if stamp == number and total == checksum(row) ^ number:
                self._seen = number
                return row
        return None

    @property
    def version(self) -> int:
        """The number of the row this reader had last, counted from 1; 0 before the first."""
        return self._seen


def _size(capacity: int, width: int) -> int:
    return 8 * (HEADER_WORDS + capacity * (2 + width))


def _view(memory: SharedMemory, kind: Any, start: int, count: int) -> np.ndarray:
    """So many numbers of 8 bytes of a segment, in place."""
    assert memory.buf is not None
    return np.frombuffer(memory.buf, kind, count=count, offset=8 * start)


def _unlink(memory: SharedMemory) -> None:
    with suppress(FileNotFoundError):
        memory.unlink()


def _word(kind: str) -> int:
    """A kind of channel as one whole number."""
    return int.from_bytes(f"dl{kind}".encode(), "little")


def _require_room(size: int) -> None:
    """A segment larger than what is left is granted by the system, which kills the process that writes to it."""
    with suppress(OSError):
        state = os.statvfs("/dev/shm")
        free = state.f_bavail * state.f_frsize
        if size > free:
            raise ChannelError(
                f"a channel of {size} bytes does not fit into the {free} bytes of shared memory that are left; "
                "make the channel smaller or /dev/shm larger (docker run --shm-size)"
            )


_attaching = threading.Lock()


def _attached(name: str) -> SharedMemory:
    """Map a segment without becoming its keeper.

    Before Python 3.13 `SharedMemory` lets every process that maps a segment remove it at its end.
    """
    try:
        if sys.version_info >= (3, 13):
            return SharedMemory(name, track=False)
        with _attaching:
            register = resource_tracker.register
            resource_tracker.register = lambda kept, kind: None if kept == f"/{name}" else register(kept, kind)
            try:
                return SharedMemory(name)
            finally:
                resource_tracker.register = register
    except (OSError, ValueError) as error:
        problem = f"no channel {name!r} ({error}); it was closed, or never made: give the `name` of an open one"
        raise ChannelError(problem) from None
