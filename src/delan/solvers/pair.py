"""Two searches for the same arm, which end when both have found it.

A search that has found its arm cannot know, and goes on in vain for a while to be sure. Another
search, from other random arms, that has come to the same one tells it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Two arms are the same if their torques differ by less than this multiple of both losses together:
# what an arm has not learned from, it explains worse than that.
SAME = 2.0
# How often a search that waits for the other one looks whether it was stopped [s].
LOOK = 0.1


class Found(NamedTuple):
    """The best arm of a search after a round, and its loss."""

    arm: Any
    loss: float


@dataclass(eq=False)
class Pair:
    """What two searches tell each other after every round.

    The arms of the same round are compared, whichever search is faster, so that a seed gives the
    same result on every machine. After its end, the last arm of a search stands for later rounds.

    Attributes:
        apart: by how much the torques of two arms differ, in the unit of their losses.
    """

    apart: Callable[[Any, Any], float]
    _told: tuple[list[Found | None], list[Found | None]] = field(default_factory=lambda: ([], []))
    _left: list[bool] = field(default_factory=lambda: [False, False])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def seat(self, number: int) -> "Seat":
        """The place of the first (0) or the second (1) search."""
        return Seat(self, number)

    def _tell(self, number: int, found: Found | None) -> int:
        with self._changed:
            self._told[number].append(found)
            self._changed.notify_all()
            return len(self._told[number])

    def _leave(self, number: int) -> None:
        with self._changed:
            self._left[number] = True
            self._changed.notify_all()

    def _of(self, number: int, round_: int, over: Callable[[], bool]) -> Found | None:
        """What a search has told after a round; waits for it."""
        told = self._told[number]
        with self._changed:
            while len(told) < round_ and not self._left[number]:
                if over():
                    return None
                self._changed.wait(LOOK)
            return told[min(round_, len(told)) - 1] if told else None


@dataclass(frozen=True, eq=False)
class Seat:
    """One of the two searches."""

    pair: Pair
    number: int

    def agrees(self, found: Found | None, over: Callable[[], bool]) -> bool:
        """Tell the end of a round, and whether the other search has the same arm after as many.

        None stands for an arm that was still getting better.
        """
        round_ = self.pair._tell(self.number, found)
        other = self.pair._of(1 - self.number, round_, over)
        if found is None or other is None:
            return False
        first, second = (found, other) if self.number == 0 else (other, found)
        return self.pair.apart(first.arm, second.arm) < SAME * (first.loss + second.loss)

    def leave(self) -> None:
        """Say that this search is at its end, so that the other one does not wait for it."""
        self.pair._leave(self.number)
